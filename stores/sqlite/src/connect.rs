//! Opening the file, with the settings the guarantees rest on.

use std::path::PathBuf;
use std::time::Duration;

use oncebox::{Error, ErrorKind, Result};
use rusqlite::{Connection, OpenFlags};

use crate::error::store_error;

/// How much a commit survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// A commit that was answered survives a power failure. The default: a broker is told to forget the message.
    #[default]
    Full,
    /// A commit that was answered survives the end of the process, but the last ones may be lost with the power.
    Normal,
}

/// Everything needed to open another connection.
#[derive(Clone, Debug)]
pub(crate) struct Opener {
    pub(crate) path: PathBuf,
    pub(crate) synchronous: Synchronous,
    pub(crate) busy_timeout: Duration,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) read_only: bool,
}

/// The log is folded into the file after this many pages (of 4 KiB): often enough to stay small, seldom enough that
/// one page is not written again and again.
const CHECKPOINT_PAGES: u32 = 8_192;
const CACHE_KIB: u32 = 64 * 1024;

impl Opener {
    pub(crate) fn open(&self) -> Result<Connection> {
        if self.path.as_os_str().is_empty() || self.path.as_os_str() == ":memory:" {
            let what = "an inbox cannot live in a private in-memory database: its connections would not see each other; use the Memory store";
            return Err(Error::new(ErrorKind::InvalidConfig, what));
        }
        let mut flags = OpenFlags::SQLITE_OPEN_NO_MUTEX;
        flags |= if self.read_only {
            OpenFlags::SQLITE_OPEN_READ_ONLY
        } else {
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE
        };
        let connection =
            Connection::open_with_flags(&self.path, flags).map_err(|error| self.cannot_open(error))?;
        self.configure(&connection).map_err(|error| self.cannot_open(error))?;
        Ok(connection)
    }

    fn configure(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection.busy_timeout(self.busy_timeout)?;
        connection.set_prepared_statement_cache_capacity(64);
        if !self.read_only {
            let mode: String =
                connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
            if !mode.eq_ignore_ascii_case("wal") {
                // A file system without shared memory, or a database that must not be changed.
                return Err(rusqlite::Error::InvalidParameterName(format!(
                    "journal mode is {mode}, not wal"
                )));
            }
        }
        connection.pragma_update(
            None,
            "synchronous",
            match self.synchronous {
                Synchronous::Full => "full",
                Synchronous::Normal => "normal",
            },
        )?;
        connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
        connection.pragma_update(None, "cache_size", format!("-{CACHE_KIB}"))?;
        if let Some(bytes) = self.max_bytes {
            let page_size: u64 =
                connection.pragma_query_value(None, "page_size", |row| row.get(0).map(i64::unsigned_abs))?;
            connection.pragma_update_and_check(
                None,
                "max_page_count",
                (bytes / page_size.max(1)).max(1).to_string(),
                |_| Ok(()),
            )?;
        }
        Ok(())
    }

    fn cannot_open(&self, error: rusqlite::Error) -> Error {
        let cause = store_error(error);
        Error::new(cause.kind(), format!("cannot open {}: {}", self.path.display(), cause.what()))
            .caused_by(cause)
    }
}
