//! The write lock of a file that several processes share. Tests: below, and `tests/turns.rs`.

use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::ffi::ErrorCode;

use crate::sql::SQL;

/// Interval between tries for the lock. SQLite's own pauses grow up to a tenth of a second: the process that waited
/// longest is then least likely to try between two transactions of a busy process, and starves.
const EVERY: Duration = Duration::from_millis(1);

/// Begins a write transaction. Waits for the lock, at most `patience`.
pub(crate) fn begin(connection: &Connection, patience: Duration) -> rusqlite::Result<()> {
    let start = Instant::now();
    connection.busy_timeout(Duration::ZERO)?;
    let begun = loop {
        match connection.execute_batch(SQL.transaction_begin) {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && start.elapsed() < patience =>
            {
                std::thread::park_timeout(EVERY);
            }
            begun => break begun,
        }
    };
    connection.busy_timeout(patience)?;
    begun
}

/// Pauses of a busy writer, so that other processes get the lock. Without them, another process would have to try in
/// the very moment between two transactions.
pub(crate) struct Courtesy {
    /// Time of the last write by another connection.
    others: Option<Instant>,
    /// Time of the last pause.
    left: Instant,
}

/// Time after a write of another connection during which the writer pauses.
const LATELY: Duration = Duration::from_secs(10);
/// Maximum time without a pause for other writers.
const TURN: Duration = Duration::from_millis(50);

impl Courtesy {
    pub(crate) fn new() -> Self {
        Self { others: None, left: Instant::now() }
    }

    /// Records that another connection wrote.
    pub(crate) fn saw_others(&mut self, now: Instant) {
        self.others = Some(now);
    }

    /// Returns true if a pause is due between two transactions. `next` is true if the next one is ready.
    pub(crate) fn is_due(&mut self, next: bool, now: Instant) -> bool {
        if !next {
            // Other writers have room until the next call.
            self.left = now;
        }
        let shared = self.others.is_some_and(|at| now.duration_since(at) < LATELY);
        shared && now.duration_since(self.left) > TURN
    }

    /// Pauses long enough for each waiting process to try.
    pub(crate) fn leave_room(&mut self) {
        std::thread::park_timeout(2 * EVERY);
        self.left = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_due_only_after_a_recent_write_by_another_process() {
        let mut courtesy = Courtesy::new();
        let start = courtesy.left;
        let later = start + TURN + EVERY;
        assert!(!courtesy.is_due(true, later), "no other process wrote");
        courtesy.saw_others(start);
        assert!(courtesy.is_due(true, later));
        assert!(!courtesy.is_due(true, start + TURN), "not yet");
        assert!(!courtesy.is_due(true, start + LATELY), "they are gone");
        assert!(!courtesy.is_due(false, later), "there is room anyway");
        assert!(!courtesy.is_due(true, later + TURN), "there was room");
        assert!(courtesy.is_due(true, later + TURN + EVERY));
    }
}
