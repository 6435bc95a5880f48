//! Moves the write-ahead log into the file: at a clean end, and before an operator copies the file. Tests:
//! `tests/files.rs`.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use oncebox_core::Result;
use parking_lot::Mutex;
use rusqlite::Connection;

use crate::Sqlite;
use crate::error::{stopped, store_error};
use crate::sql::SQL;

/// Time to wait for other users of the file when a store ends. After it, the last of them empties the log.
const AT_END: Duration = Duration::from_millis(250);
/// Time that the last clone of a store waits for its writer thread.
const WRITER_END: Duration = Duration::from_secs(5);

/// Moves the log into the file. Returns true if the log is now empty.
fn truncate(connection: &Connection) -> rusqlite::Result<bool> {
    let sql = SQL.checkpoint_truncate;
    connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map(|busy| busy == 0)
}

/// Moves the log into the file when a writer ends. The log holds every message, so a failure loses nothing.
pub(crate) fn at_end(connection: &Connection) {
    let truncated = connection.busy_timeout(AT_END).and_then(|()| truncate(connection));
    match truncated {
        Ok(true) => {}
        Ok(false) => {
            tracing::debug!("log kept, SQLite file in use");
        }
        Err(error) => {
            tracing::warn!(%error, advice = "nothing is lost; copy both files together", "cannot empty SQLite log");
        }
    }
}

/// Waits on drop until the writer thread has ended: the process may end right after.
pub(crate) struct WriterEnd(Mutex<Receiver<()>>);

impl WriterEnd {
    pub(crate) fn new(ended: Receiver<()>) -> Self {
        Self(Mutex::new(ended))
    }
}

impl Drop for WriterEnd {
    fn drop(&mut self) {
        // The thread sends nothing. Its end of the channel is dropped when it ends.
        if self.0.get_mut().recv_timeout(WRITER_END) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!(waited = ?WRITER_END, "writer still running, copy both files");
        }
    }
}

impl Sqlite {
    /// Moves everything from the write-ahead log (`-wal`) into the file, so that the file alone holds every message. Returns
    /// `false` if another connection used the file for longer than the [busy timeout](crate::SqliteOptions::busy_timeout); nothing is
    /// lost then, and the log is still needed.
    ///
    /// A store does this by itself when its last clone is dropped. Call it where a clone may outlive `main`.
    pub async fn checkpoint(&self) -> Result<bool> {
        let opener = self.inner.opener.clone();
        if opener.read_only {
            return Ok(false);
        }
        let truncated = tokio::task::spawn_blocking(move || truncate(&opener.open()?).map_err(store_error));
        truncated.await.map_err(|panic| stopped().caused_by(panic))?
    }
}
