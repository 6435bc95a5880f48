//! Decides whether the next batch looks up its keys before it inserts them. Tests: `tests/unlooked.rs`.

use std::sync::atomic::{AtomicU32, Ordering};

/// Number of batches after one with a known key that look up known keys first.
const BATCHES: u32 = 32;

/// Prediction of known keys in the next batch. A lookup costs every message some time. Without one, a batch with a
/// known key must be sent again. Known keys mostly come in groups, and after a start: a broker then redelivers
/// unacknowledged messages.
pub(crate) struct DuplicateExpectation {
    batches: AtomicU32,
}

impl Default for DuplicateExpectation {
    fn default() -> Self {
        Self { batches: AtomicU32::new(BATCHES) }
    }
}

impl DuplicateExpectation {
    /// Returns true if the next batch looks up its keys first.
    pub(super) fn looks(&self) -> bool {
        self.batches.load(Ordering::Relaxed) > 0
    }

    /// Records if a batch had a known key. Concurrent calls may cost or save a lookup, nothing else.
    pub(super) fn learn(&self, known: bool) {
        let left = if known { BATCHES } else { self.batches.load(Ordering::Relaxed).saturating_sub(1) };
        self.batches.store(left, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_known_key_is_remembered_for_a_while() {
        let expectation = DuplicateExpectation::default();
        assert!(expectation.looks(), "after a start");
        for _ in 0..BATCHES {
            assert!(expectation.looks());
            expectation.learn(false);
        }
        assert!(!expectation.looks());
        expectation.learn(false);
        assert!(!expectation.looks());
        expectation.learn(true);
        for _ in 0..BATCHES {
            assert!(expectation.looks());
            expectation.learn(false);
        }
        assert!(!expectation.looks());
    }
}
