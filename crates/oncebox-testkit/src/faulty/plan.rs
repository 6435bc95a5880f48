//! What goes wrong, and when.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use oncebox::ErrorKind;
use parking_lot::Mutex;
use tokio::sync::watch;

/// A call of the seam that can fail.
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
    Quarantine,
    Record,
    Recall,
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

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreFault {
    /// It is not done, and the caller is told an error of this kind.
    ErrBefore(ErrorKind),
    /// It is not done: the database has ended the transaction because of a [`Deadlock`](super::Deadlock).
    Deadlock,
    /// It is done, and the caller is told [`ErrorKind::CommitUnknown`].
    ErrAfter,
    /// It waits for [`FaultPlan::release`], then is done.
    Hang,
    /// It panics and is not done, as in a store with a bug.
    Panic,
}

/// How often calls fail at random, each between 0 and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultOdds {
    /// Of [`StoreFault::ErrBefore`] with [`ErrorKind::Unavailable`].
    pub before: f64,
    /// Of [`StoreFault::ErrAfter`].
    pub after: f64,
}

/// The faults of a [`FaultyStore`](super::FaultyStore). Clones are the same faults.
///
/// A script goes first, then what always fails, then chance.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    plan: Mutex<FaultQueue>,
    /// Counts the releases.
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
    /// Lets the next call of a verb fail, or the one after those that are scripted already.
    pub fn next(&self, verb: StoreVerb, fault: StoreFault) -> &Self {
        self.script(verb, [Some(fault)])
    }

    /// Says of the next calls of a verb which fail; `None` lets one pass.
    pub fn script(&self, verb: StoreVerb, faults: impl IntoIterator<Item = Option<StoreFault>>) -> &Self {
        self.shared.plan.lock().scripts.entry(verb).or_default().extend(faults);
        self
    }

    /// Lets every call of a verb fail.
    pub fn always(&self, verb: StoreVerb, fault: StoreFault) -> &Self {
        self.shared.plan.lock().always.insert(verb, fault);
        self
    }

    /// Lets calls of every verb fail by chance; the same seed and calls give the same faults.
    pub fn seed(&self, seed: u64, odds: FaultOdds) -> &Self {
        self.shared.plan.lock().chance = Some((fastrand::Rng::with_seed(seed), odds));
        self
    }

    /// No more faults: scripts are forgotten, and what hangs goes on.
    pub fn clear(&self) {
        let mut plan = self.shared.plan.lock();
        *plan = FaultQueue { calls: std::mem::take(&mut plan.calls), ..FaultQueue::default() };
        drop(plan);
        self.release();
    }

    /// Lets the calls that hang go on.
    pub fn release(&self) {
        self.shared.released.send_modify(|count| *count += 1);
    }

    /// Completes when at least `count` calls hang.
    pub async fn wait_for_hanging(&self, count: usize) {
        // The sender lives in `self`, so the channel cannot close.
        let _ = self.shared.hanging.subscribe().wait_for(|hanging| *hanging >= count).await;
    }

    /// How often a verb was called, failed calls included.
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

/// Counts a call as hanging until it goes on or is given up.
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
