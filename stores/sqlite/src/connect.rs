//! Opens the file with the settings that the guarantees need. Tests: `tests/files.rs`, `tests/modes.rs`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use oncebox_core::{Error, ErrorKind, Result};
use rusqlite::ffi::ErrorCode;
use rusqlite::{Connection, OpenFlags};

use crate::error::store_error;
use crate::mode;

/// Durability of a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// A confirmed commit survives a power failure. The default, because the broker then deletes the message.
    #[default]
    Full,
    /// A confirmed commit survives the end of the process. A power failure may lose the last commits.
    Normal,
}

/// Everything needed to open another connection.
#[derive(Clone, Debug)]
pub(crate) struct FileOpener {
    pub(crate) path: PathBuf,
    pub(crate) synchronous: Synchronous,
    pub(crate) busy_timeout: Duration,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) read_only: bool,
    /// True to create a missing file. Only the first connection does so: a file that is deleted later is not replaced.
    pub(crate) create: bool,
}

/// Pages (of 4 KiB) after which SQLite moves the log into the file: often enough to stay small, and seldom enough that
/// it does not write one page again and again.
const CHECKPOINT_PAGES: u32 = 8_192;
const CACHE_KIB: u32 = 64 * 1024;
/// Size, in bytes, to which SQLite cuts the log of a large transaction when the log starts again.
const LONGEST_LOG: u32 = 64 * 1024 * 1024;
/// Maximum busy timeout. SQLite counts milliseconds in 31 bits.
const LONGEST_WAIT: Duration = Duration::from_hours(24);

impl FileOpener {
    pub(crate) fn open(&self) -> Result<Connection> {
        if self.path.as_os_str().is_empty() || self.path.as_os_str() == ":memory:" {
            let what = format!(
                "`path` is `{}`: an inbox cannot live in a private in-memory database, because its connections would not see each other; name a file, or use the Memory store",
                self.path.display()
            );
            return Err(Error::new(ErrorKind::InvalidConfig, what));
        }
        let mut flags = OpenFlags::SQLITE_OPEN_NO_MUTEX;
        flags |= match self {
            Self { read_only: true, .. } => OpenFlags::SQLITE_OPEN_READ_ONLY,
            Self { create: true, .. } => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
            _ => OpenFlags::SQLITE_OPEN_READ_WRITE,
        };
        if self.create && !self.read_only {
            mode::make_private(&self.path);
        }
        let connection =
            Connection::open_with_flags(&self.path, flags).map_err(|error| self.cannot_open(error))?;
        self.configure(&connection).map_err(|error| self.cannot_open(error))?;
        Ok(connection)
    }

    /// Returns an opener with an absolute path, which stays valid if the process changes its directory.
    pub(crate) fn opened(&self) -> Self {
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        Self { path, create: false, ..self.clone() }
    }

    /// Time to wait for other connections.
    pub(crate) fn patience(&self) -> Duration {
        self.busy_timeout.min(LONGEST_WAIT)
    }

    fn configure(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection.busy_timeout(self.patience())?;
        connection.set_prepared_statement_cache_capacity(64);
        if !self.read_only {
            let mode = self.log_ahead(connection)?;
            if !mode.eq_ignore_ascii_case("wal") {
                // The file system has no shared memory, or the database is read-only.
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
        // SQLite overwrites deleted data on pages that it writes anyway. An entry moves between tables, and a
        // later erasure must not leave the entry's error in its former place.
        connection.pragma_update_and_check(None, "secure_delete", "fast", |_| Ok(()))?;
        connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
        connection.pragma_update_and_check(None, "journal_size_limit", LONGEST_LOG, |_| Ok(()))?;
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

    /// Enables the write-ahead log, and returns the resulting journal mode.
    fn log_ahead(&self, connection: &Connection) -> rusqlite::Result<String> {
        const PAUSE: Duration = Duration::from_millis(2);
        let start = Instant::now();
        loop {
            match connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)) {
                Err(error)
                    if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                        && start.elapsed() < self.busy_timeout =>
                {
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "the one lock of SQLite that does not wait: several that open a new file at once"
                    )]
                    std::thread::sleep(PAUSE);
                }
                switched => return switched,
            }
        }
    }

    fn cannot_open(&self, error: rusqlite::Error) -> Error {
        if error.sqlite_error_code() == Some(ErrorCode::CannotOpen)
            && let Some(why) = self.cannot_be_a_file()
        {
            return Error::new(ErrorKind::InvalidConfig, why).caused_by(error);
        }
        let cause = store_error(error);
        Error::new(cause.kind(), format!("cannot open {}: {}", self.path.display(), cause.what()))
            .caused_by(cause)
    }

    /// Explains a path that cannot be a database file, if SQLite's error does not.
    fn cannot_be_a_file(&self) -> Option<String> {
        let missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
        if self.path.is_dir() {
            return Some(format!(
                "cannot open {}: it is a directory; name a file in it",
                self.path.display()
            ));
        }
        let dir = self.path.parent().filter(missing)?;
        let (path, dir) = (self.path.display(), dir.display());
        Some(format!("cannot open {path}: the directory {dir} does not exist; make it first"))
    }
}
