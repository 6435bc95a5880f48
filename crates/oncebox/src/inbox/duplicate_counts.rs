//! Counts duplicate deliveries until they are stored. Tests: below, and `tests/duplicate_counts.rs`.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::store::{Accepted, DuplicateCount, Seq};
use crate::time::Timestamp;

/// Maximum messages counted between two writes, which bounds memory and writes in a flood. Further ones are not counted.
const MAX_COUNTED: usize = 1_024;

/// Duplicates by message.
#[derive(Default)]
pub(crate) struct DuplicateCounts {
    counted: Mutex<HashMap<Seq, DuplicateCount>>,
}

impl DuplicateCounts {
    pub(crate) fn note(&self, accepted: &Accepted, now: impl FnOnce() -> Timestamp) {
        let Accepted::Duplicate(known) = accepted else { return };
        let mut counted = self.counted.lock();
        if counted.len() >= MAX_COUNTED && !counted.contains_key(&known.seq) {
            return;
        }
        let now = now();
        let varied = u64::from(known.varied);
        let one = DuplicateCount { seq: known.seq, count: 1, first: now, last: now, varied };
        counted.entry(known.seq).and_modify(|known| *known = known.and(one)).or_insert(one);
    }

    /// Takes the counts since the last call.
    pub(crate) fn take(&self) -> Vec<DuplicateCount> {
        let mut counted = self.counted.lock();
        if counted.is_empty() {
            return Vec::new();
        }
        let mut taken: Vec<DuplicateCount> = counted.drain().map(|(_, duplicates)| duplicates).collect();
        drop(counted);
        // Every writer takes several rows in the same order.
        taken.sort_unstable_by_key(|duplicates| duplicates.seq);
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::KnownMessage;

    #[test]
    fn a_flood_of_keys_is_bounded() {
        let duplicate_counts = DuplicateCounts::default();
        let at = Timestamp::from_millis;
        for round in 1..=3 {
            for n in 0..2_000 {
                let known = KnownMessage::new(Seq(n), Duration::ZERO).varied(round == 2);
                let known = Accepted::Duplicate(known);
                duplicate_counts.note(&known, || at(round));
            }
        }
        duplicate_counts.note(&Accepted::Stale, || at(9));
        let taken = duplicate_counts.take();
        assert_eq!(taken.len(), MAX_COUNTED);
        assert_eq!(taken[7], DuplicateCount { seq: Seq(7), count: 3, first: at(1), last: at(3), varied: 1 });
        assert!(duplicate_counts.take().is_empty());
    }
}
