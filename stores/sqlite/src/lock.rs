//! The one lock of a file that several processes write to.

use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::ffi::ErrorCode;

/// How often the lock is asked for. SQLite by itself rests longer and longer, up to a tenth of a second: whoever has waited
/// longest is then least likely to ask in the moment between two transactions of a busy process, and starves.
const EVERY: Duration = Duration::from_millis(1);

/// Begins to write, and waits for others until they let go, or for so long.
pub(crate) fn begin(connection: &Connection, patience: Duration) -> rusqlite::Result<()> {
    let start = Instant::now();
    connection.busy_timeout(Duration::ZERO)?;
    let begun = loop {
        match connection.execute_batch(include_str!("../sql/transaction/begin.sql")) {
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

/// Leaves room for other processes between the transactions of one that always has the next one ready: they would have to ask
/// in the very moment between two of them.
pub(crate) struct Courtesy {
    /// When somebody else was last seen to write.
    others: Option<Instant>,
    /// When there was room for them.
    left: Instant,
}

/// For how long others are reckoned with after they wrote.
const LATELY: Duration = Duration::from_secs(10);
/// How long one may go on without leaving room.
const TURN: Duration = Duration::from_millis(50);

impl Courtesy {
    pub(crate) fn new() -> Self {
        Self { others: None, left: Instant::now() }
    }

    /// Somebody else has written.
    pub(crate) fn saw_others(&mut self, now: Instant) {
        self.others = Some(now);
    }

    /// Whether room is due between two transactions; `next` says whether the next one is ready.
    pub(crate) fn is_due(&mut self, next: bool, now: Instant) -> bool {
        if !next {
            // There is room until somebody calls.
            self.left = now;
        }
        let shared = self.others.is_some_and(|at| now.duration_since(at) < LATELY);
        shared && now.duration_since(self.left) > TURN
    }

    /// Long enough for each of them to ask.
    pub(crate) fn leave_room(&mut self) {
        std::thread::park_timeout(2 * EVERY);
        self.left = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_due_to_others_who_wrote_lately_and_to_nobody_else() {
        let mut courtesy = Courtesy::new();
        let start = courtesy.left;
        let later = start + TURN + EVERY;
        assert!(!courtesy.is_due(true, later), "nobody else is there");
        courtesy.saw_others(start);
        assert!(courtesy.is_due(true, later));
        assert!(!courtesy.is_due(true, start + TURN), "not yet");
        assert!(!courtesy.is_due(true, start + LATELY), "they are gone");
        assert!(!courtesy.is_due(false, later), "there is room anyway");
        assert!(!courtesy.is_due(true, later + TURN), "there was room");
        assert!(courtesy.is_due(true, later + TURN + EVERY));
    }
}
