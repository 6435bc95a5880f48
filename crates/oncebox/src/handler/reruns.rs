//! Counts runs that the database ended: they cost no attempt, up to a limit. Tests: below, and `tests/deadlocks.rs`.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::store::{Claim, Seq};

/// Runs of one entry that the database may end in a row before an attempt is counted.
const FREE: u32 = 20;

/// Maximum counted entries. At the limit all counts start again.
const MAX_ENDED: usize = 4_096;

/// Counts of runs that the database ended in this process, by message and generation.
#[derive(Default)]
pub(crate) struct Reruns(Mutex<HashMap<(Seq, u32), u32>>);

impl Reruns {
    /// Counts a run that the database ended. Returns true if it costs no attempt.
    pub(crate) fn is_free(&self, claim: &Claim) -> bool {
        let mut ended = self.0.lock();
        if ended.len() >= MAX_ENDED {
            ended.clear();
        }
        let count = ended.entry((claim.seq, claim.generation)).or_insert(0);
        *count += 1;
        let free = *count <= FREE;
        if !free {
            ended.remove(&(claim.seq, claim.generation));
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_has_its_own_count() {
        let (reruns, one) = (Reruns::default(), crate::fixtures::claim());
        let other = Claim { seq: Seq(2), ..crate::fixtures::claim() };
        for _ in 0..FREE {
            assert!(reruns.is_free(&one) && reruns.is_free(&other));
        }
        assert!(!reruns.is_free(&one));
        assert!(reruns.is_free(&one), "the next attempt begins anew");
        assert!(!reruns.is_free(&other));
    }

    #[test]
    fn memory_is_bounded() {
        let reruns = Reruns::default();
        for seq in 0..10_000 {
            assert!(reruns.is_free(&Claim { seq: Seq(seq), ..crate::fixtures::claim() }));
        }
        assert!(reruns.0.lock().len() <= MAX_ENDED);
    }
}
