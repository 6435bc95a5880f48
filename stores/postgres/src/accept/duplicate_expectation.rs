//! Decides whether the next batch looks up its keys before it inserts them.

use std::sync::atomic::{AtomicU32, Ordering};

/// So many batches after one with a known key look for known keys first.
const BATCHES: u32 = 32;

/// To look for known keys first costs every message a part of its time; not to look costs a batch with a known key that it is sent
/// again. So it depends on how often there are any. Where they come at all, they mostly come in numbers, and after a start: a
/// broker delivers again what was not acknowledged.
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

    /// A batch had a known key, or had none. Calls at the same time may cost or save a look, nothing else.
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
