//! Runs that the database ended: free, but not for ever.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::store::{Claim, Seq};

/// How often in a row a run of one entry may be ended by the database before an attempt is counted.
const FREE: u32 = 20;

/// No more entries than this are counted for. Where more meet each other all the time, counting begins again.
const MAX_ENDED: usize = 4_096;

/// How often the database ended runs of a handler, by message and generation, as this process has seen it.
#[derive(Default)]
pub(crate) struct Reruns(Mutex<HashMap<(Seq, u32), u32>>);

impl Reruns {
    /// Whether a run that the database ended is not to be counted against the handler.
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
        let (reruns, one) = (Reruns::default(), Claim::for_tests());
        let other = Claim { seq: Seq(2), ..Claim::for_tests() };
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
            assert!(reruns.is_free(&Claim { seq: Seq(seq), ..Claim::for_tests() }));
        }
        assert!(reruns.0.lock().len() <= MAX_ENDED);
    }
}
