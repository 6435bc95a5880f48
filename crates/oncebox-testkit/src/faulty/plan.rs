//! Faults, and the calls that they affect. Tests: mod.rs.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use oncebox::ErrorKind;
use parking_lot::Mutex;
use tokio::sync::watch;

/// A call of the store that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the method of the same name")]
#[non_exhaustive]
pub enum StoreVerb {
    Accept,
    Claim,
    Settle,
    Renew,
    Rescue,
    Register,
    Sweep,
    Orphans,
    Backlog,
    Begin,
    Commit,
    Mark,
    AcceptIn,
    Quarantine,
    Record,
    Recall,
    /// `is_marked`
    IsMarked,
    Complete,
    Hold,
    Savepoint,
    RollbackToSavepoint,
    CompleteAll,
    Count,
    List,
    Show,
    Blocked,
    Operate,
    Pause,
    Resume,
    Purge,
    Quarantined,
    Backfill,
    Audit,
    Progress,
    History,
    CountDuplicates,
    Examine,
}

/// Failure of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreFault {
    /// The call is not done, and returns an error of this kind.
    ErrBefore(ErrorKind),
    /// The call is not done: the database ended the transaction because of a [`Deadlock`](super::Deadlock).
    Deadlock,
    /// The call is done, and returns [`ErrorKind::CommitUnknown`].
    ErrAfter,
    /// The call waits for [`FaultPlan::release`], and is then done.
    Hang,
    /// The call panics and is not done, as in a store with a bug.
    Panic,
}

/// Probabilities of random failures, each between 0 and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultOdds {
    /// Probability of [`StoreFault::ErrBefore`] with [`ErrorKind::Unavailable`].
    pub before: f64,
    /// Probability of [`StoreFault::ErrAfter`].
    pub after: f64,
}

/// Faults of a [`FaultyStore`](super::FaultyStore). Clones are the same faults.
///
/// Scripts come first, then permanent faults, then random ones.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    plan: Mutex<FaultQueue>,
    /// Number of releases.
    released: watch::Sender<u64>,
    hanging: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct FaultQueue {
    scripts: HashMap<StoreVerb, VecDeque<Option<StoreFault>>>,
    always: HashMap<StoreVerb, StoreFault>,
    chance: Option<(fastrand::Rng, FaultOdds)>,
    calls: HashMap<StoreVerb, u64>,
}

impl FaultPlan {
    /// Makes the next call of a verb fail, or the first one after its script.
    pub fn next(&self, verb: StoreVerb, fault: StoreFault) -> &Self {
        self.script(verb, [Some(fault)])
    }

    /// Adds a script for the next calls of a verb. `None` lets a call succeed.
    pub fn script(&self, verb: StoreVerb, faults: impl IntoIterator<Item = Option<StoreFault>>) -> &Self {
        self.shared.plan.lock().scripts.entry(verb).or_default().extend(faults);
        self
    }

    /// Makes every call of a verb fail.
    pub fn always(&self, verb: StoreVerb, fault: StoreFault) -> &Self {
        self.shared.plan.lock().always.insert(verb, fault);
        self
    }

    /// Makes calls of every verb fail at random. The same seed and calls give the same faults.
    pub fn seed(&self, seed: u64, odds: FaultOdds) -> &Self {
        self.shared.plan.lock().chance = Some((fastrand::Rng::with_seed(seed), odds));
        self
    }

    /// Removes all faults, and releases hanging calls.
    pub fn clear(&self) {
        let mut plan = self.shared.plan.lock();
        *plan = FaultQueue { calls: std::mem::take(&mut plan.calls), ..FaultQueue::default() };
        drop(plan);
        self.release();
    }

    /// Lets hanging calls continue.
    pub fn release(&self) {
        self.shared.released.send_modify(|count| *count += 1);
    }

    /// Completes when at least `count` calls hang.
    pub async fn wait_for_hanging(&self, count: usize) {
        // The sender lives in `self`, so the channel cannot close.
        let _ = self.shared.hanging.subscribe().wait_for(|hanging| *hanging >= count).await;
    }

    /// Returns the number of calls of a verb, failed ones included.
    pub fn calls(&self, verb: StoreVerb) -> u64 {
        self.shared.plan.lock().calls.get(&verb).copied().unwrap_or(0)
    }

    pub(super) fn draw(&self, verb: StoreVerb) -> Option<StoreFault> {
        let mut plan = self.shared.plan.lock();
        *plan.calls.entry(verb).or_default() += 1;
        if let Some(scripted) = plan.scripts.get_mut(&verb).and_then(VecDeque::pop_front) {
            return scripted;
        }
        if let Some(fault) = plan.always.get(&verb) {
            return Some(*fault);
        }
        let (rng, odds) = plan.chance.as_mut()?;
        let drawn = rng.f64();
        if drawn < odds.before {
            Some(StoreFault::ErrBefore(ErrorKind::Unavailable))
        } else if drawn < odds.before + odds.after {
            Some(StoreFault::ErrAfter)
        } else {
            None
        }
    }

    pub(super) async fn hang(&self) {
        let mut released = self.shared.released.subscribe();
        let _hanging = Hanging::new(&self.shared.hanging);
        // The sender lives in `self`, so the channel cannot close.
        let _ = released.changed().await;
    }
}

/// Counts a call as hanging until it continues or is cancelled.
struct Hanging<'a>(&'a watch::Sender<usize>);

impl<'a> Hanging<'a> {
    fn new(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|hanging| *hanging += 1);
        Self(count)
    }
}

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|hanging| *hanging -= 1);
    }
}
