//! Failpoints before and after every verb, and their odds. Tests: below.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Verbs with failpoints: one before and one after each.
const VERBS: [&str; 14] = [
    "accept", "claim", "settle", "renew", "rescue", "sweep", "begin", "commit", "complete", "mark", "hold",
    "register", "act", "handler",
];

/// Every failpoint.
pub(crate) const POINTS: [&str; 28] = {
    // Written out, so that a reader can compare a report.
    [
        "accept.before",
        "accept.after",
        "claim.before",
        "claim.after",
        "settle.before",
        "settle.after",
        "renew.before",
        "renew.after",
        "rescue.before",
        "rescue.after",
        "sweep.before",
        "sweep.after",
        "begin.before",
        "begin.after",
        "commit.before",
        "commit.after",
        "complete.before",
        "complete.after",
        "mark.before",
        "mark.after",
        "hold.before",
        "hold.after",
        "register.before",
        "register.after",
        "act.before",
        "act.after",
        "handler.before",
        "handler.after",
    ]
};

/// Odds of faults per million calls of a verb.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PointOdds {
    /// The process aborts.
    pub(crate) abort: u32,
    /// The call fails without effect.
    pub(crate) error: u32,
    /// The call is reported in doubt; it may have succeeded.
    pub(crate) unknown: u32,
    /// The call waits.
    pub(crate) delay: u32,
}

/// A fault at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PointFault {
    AbortBefore,
    AbortAfter,
    ErrBefore,
    /// Only where nothing is committed: the call succeeded, and has no effect.
    ErrAfter,
    UnknownBefore,
    UnknownAfter,
    Delay(Duration),
}

/// Chooses faults.
#[derive(Debug)]
pub(super) struct Points {
    rng: Mutex<fastrand::Rng>,
    odds: PointOdds,
    quiescent: AtomicBool,
}

impl Points {
    pub(super) fn new(seed: u64, odds: PointOdds) -> Self {
        Self { rng: Mutex::new(fastrand::Rng::with_seed(seed)), odds, quiescent: AtomicBool::new(false) }
    }

    pub(super) fn quiesce(&self) {
        self.quiescent.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_quiescent(&self) -> bool {
        self.quiescent.load(Ordering::Relaxed)
    }

    pub(super) fn draw(&self, verb: &'static str) -> Option<PointFault> {
        debug_assert!(VERBS.contains(&verb));
        if self.is_quiescent() {
            return None;
        }
        let PointOdds { abort, error, unknown, delay } = self.odds;
        // Rare calls fail more often, so that every point is hit.
        let more =
            if matches!(verb, "renew" | "rescue" | "sweep" | "hold" | "register" | "act") { 10 } else { 1 };
        // Without a commit there is no doubt: the call may fail before or after it ran.
        let commits = !matches!(verb, "begin" | "mark" | "hold" | "complete" | "handler");
        let unknown = if commits { unknown } else { 0 };
        let mut rng = self.rng.lock();
        let mut roll = rng.u32(0..1_000_000);
        for (odds, fault) in [(abort, 0), (error, 1), (unknown, 2), (delay, 3)] {
            let odds = odds.saturating_mul(more).min(200_000);
            if roll < odds {
                return Some(match (fault, rng.bool()) {
                    (0, true) => PointFault::AbortBefore,
                    (0, false) => PointFault::AbortAfter,
                    (1, false) if !commits => PointFault::ErrAfter,
                    (1, _) => PointFault::ErrBefore,
                    (2, true) => PointFault::UnknownBefore,
                    (2, false) => PointFault::UnknownAfter,
                    _ => PointFault::Delay(Duration::from_millis(rng.u64(5..100))),
                });
            }
            roll -= odds;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_has_two_points() {
        let points: Vec<String> =
            VERBS.iter().flat_map(|verb| [format!("{verb}.before"), format!("{verb}.after")]).collect();
        assert_eq!(points, POINTS);
    }

    /// Returns the faults of many calls of a verb.
    fn drawn(verb: &'static str, odds: PointOdds) -> Vec<PointFault> {
        let points = Points::new(1, odds);
        (0..1_000).filter_map(|_| points.draw(verb)).collect()
    }

    #[test]
    fn a_call_that_commits_nothing_fails_before_and_after_it_is_made() {
        let odds = PointOdds { error: 100_000, unknown: 100_000, ..PointOdds::default() };
        for verb in VERBS {
            let drawn = drawn(verb, odds);
            let [after, in_doubt] =
                [PointFault::ErrAfter, PointFault::UnknownAfter].map(|fault| drawn.contains(&fault));
            assert!(drawn.contains(&PointFault::ErrBefore), "{verb}");
            // An error after a commit would be false; without a commit there is no doubt.
            assert!(after != in_doubt, "{verb}: {drawn:?}");
        }
        assert!(drawn("hold", odds).contains(&PointFault::ErrAfter));
        assert!(drawn("commit", odds).contains(&PointFault::UnknownAfter));
    }

    #[test]
    fn nothing_happens_without_odds() {
        let points = Points::new(1, PointOdds::default());
        assert!((0..1_000).all(|_| points.draw("accept").is_none()));
        let points = Points::new(1, PointOdds { unknown: 1_000_000, ..PointOdds::default() });
        assert!((0..1_000).all(|_| points.draw("begin").is_none()), "nothing is committed there");
    }
}
