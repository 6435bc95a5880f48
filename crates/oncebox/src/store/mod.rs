//! The seam to the database: one trait with the verbs of an inbox, and small ones for what a store can do beyond.
//!
//! A store author implements [`Store`], then whichever of [`Transactional`] with [`MarkIn`], [`SettleIn`] and
//! [`ShareIn`], [`Admin`], [`Migrate`] and [`Wakeups`] the database allows, and runs the conformance suite of
//! `oncebox-testkit`.
//!
//! Every verb works on batches and takes one parameter struct, so fields can be added without breaking stores.
//! The store's clock dates everything; callers send durations, never times.

mod action;
mod actor;
mod admin;
mod answer;
mod backlog;
mod entry;
mod erase;
mod examine;
mod failover;
mod filter;
mod history;
mod line;
mod migrate;
mod operation_id;
mod quarantine;
mod route;
mod shared;
mod sweep;
mod tenancy;
mod transaction;
mod wakeups;
mod windows;

pub use action::{Action, ActionKind, AuditFilter, AuditPage, OperationView};
pub use actor::Actor;
pub use admin::{Admin, BlockedKey, BlockedParams, EntryView, InboxCounts, MessageView, TenantScope};
pub use answer::{Acted, ActionResult};
pub use backlog::{Backlog, BacklogParams, BlockedBacklog};
pub use entry::{
    Accepted, Claim, ClaimId, ClaimMode, ClaimParams, ClaimQuota, Claimed, HandlerCount, KnownMessage,
    NewMessage, RenewParams, Renewed, RescueParams, Seq, Settled, Token,
};
pub use erase::{ErasureCounts, content_erased, nothing_to_erase};
pub use examine::{ExamineParams, Finding, Severity};
pub use failover::Failover;
pub use filter::{EntryCursor, EntryFilter, EntryPage, MessageLabel};
pub use history::{
    Attempt, DuplicateCount, EntryAhead, EntryExplanation, Explanation, LeaseHolder, MessageHistory,
};
pub use line::{OrderQueue, PausedKey};
pub use migrate::{Migrate, Migration};
pub use operation_id::OperationId;
pub use quarantine::{
    QuarantineFilter, QuarantineId, QuarantinePage, QuarantineReason, Quarantined, QuarantinedView,
};
pub use route::{HandlerLink, Route};
pub use sweep::{BackfillParams, Backfilled, Orphan, OrphanParams, SweepId, SweepParams, Swept};
pub use tenancy::Tenancy;
pub use transaction::{Mark, MarkIn, SettleIn, ShareIn, Transactional};
pub use wakeups::{Wakeup, Wakeups};
pub use windows::{RegisterParams, RegisteredWindow, RetentionWindows, SweepCursor, SweepPosition};

use async_trait::async_trait;

use crate::error::Result;
use crate::state::Settlement;

/// What a store can do. Wrappers report what is true of the whole, not of themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub struct Capabilities {
    /// The name of the store, for messages and labels.
    pub name: &'static str,
    /// What was accepted survives the end of the process.
    pub durable: bool,
    /// A handler's own writes and its completion can share one commit.
    pub transactions: bool,
    /// Several processes can work on the same data.
    pub shared: bool,
    /// Nothing is stored at all, and handlers run while the delivery is held: [`Direct`](crate::Direct).
    pub direct: bool,
    /// How many calls of accept are stored at the same time, rather than one after the other.
    pub writers: usize,
}

impl Capabilities {
    /// A store that can do nothing beyond the verbs.
    pub const fn new(name: &'static str) -> Self {
        Self { name, durable: false, transactions: false, shared: false, direct: false, writers: 1 }
    }
}

/// The verbs of an inbox. Each call is one atomic change: all of it happened, or none of it.
///
/// An error of kind [`CommitUnknown`](crate::ErrorKind::CommitUnknown) says that the change may have happened; the
/// caller repeats the call with the same arguments, and the store recognises what it already did.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// What this store can do.
    fn capabilities(&self) -> Capabilities;

    /// Stores each message with one pending entry per handler, once per key. Answers in the order of the batch.
    ///
    /// A batch is one transaction; a key that stands in it twice is a duplicate of itself.
    async fn accept(&self, batch: &[NewMessage]) -> Result<Vec<Accepted>>;

    /// Leases due entries of the wanted handlers, at most one worker to an entry. Each claim gets a token greater
    /// than every token before it. Repeating a call with the same claim id returns what it already holds.
    ///
    /// Entries with an ordering key are handed out one at a time per handler and key, in the order of acceptance. The keys
    /// of a route are one handler here: nothing is handed out while an earlier one waits, runs or blocks under another.
    /// Handlers that are paused get nothing.
    async fn claim(&self, params: &ClaimParams) -> Result<Vec<Claimed>>;

    /// Writes each settlement whose claim still holds; one that does not changes nothing. Repeating a settlement
    /// that was applied answers [`Settled::Applied`] again.
    async fn settle(&self, batch: &[Settlement]) -> Result<Vec<Settled>>;

    /// Extends the leases of claims that still hold.
    async fn renew(&self, params: &RenewParams) -> Result<Vec<Renewed>>;

    /// Takes over entries whose lease ran out, under a new token, for the caller to settle as crashed. What the
    /// previous owner still writes is refused from here on.
    async fn rescue(&self, params: &RescueParams) -> Result<Vec<Claimed>>;

    /// Notes the windows that a process goes by, for sweeps of all processes. Of several windows for one handler key the
    /// longest counts that was registered within the last `hold`.
    async fn register(&self, params: &RegisterParams) -> Result<()>;

    /// Removes finished messages past their retention, a bounded number at a time, oldest first. A message leaves when
    /// each of its entries is finished and past the window of its handler. Never removes anything pending, running,
    /// poisoned or quarantined.
    ///
    /// What was looked at and did not leave because a window of it is longer is not read again before that window is over;
    /// a [`SweepCursor`] for each window remembers how far sweeps have come. What is forgotten moves the watermark of the handlers that it
    /// had entries for, or that of the inbox if it had none.
    ///
    /// One sweeps an inbox at a time, over all processes. While somebody else does, the answer is [`Swept::NOTHING`].
    async fn sweep(&self, params: &SweepParams) -> Result<Swept>;

    /// Handler keys that the caller does not know, whose entries have waited for longer than a grace, and of which none
    /// is held by a worker; the one that waits longest first. Costs no more for a large backlog than for a small one.
    async fn orphans(&self, params: &OrphanParams) -> Result<Vec<Orphan>>;

    /// Writes down how many duplicates of stored messages were delivered; each adds to what was written before. Repeating a call
    /// counts twice, so nobody repeats it. A store that keeps no history leaves this as it is.
    async fn count_duplicates(&self, batch: &[DuplicateCount]) -> Result<()> {
        let _ = batch;
        Ok(())
    }

    /// What waits for each handler key of an inbox, those with something alone, by key. Costs no more for a large backlog
    /// than for a small one: it is asked for all the time, by every process.
    async fn backlog(&self, params: &BacklogParams) -> Result<Vec<Backlog>>;

    /// The store's source of wake-ups, if it has one.
    fn wakeups(&self) -> Option<&dyn Wakeups> {
        None
    }

    /// The latest failover of the database that this process knows of. Makes no call: the store notices it when it connects again.
    fn failover(&self) -> Option<Failover> {
        None
    }

    /// Whether an error of the database says that the same transaction may well succeed if it is made again: it was
    /// chosen to end a deadlock, could not be serialized, or found a lock taken. Handlers get such errors from the
    /// driver, which only the store knows. The library asks for each cause of an error in turn.
    fn is_transient(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        let _ = error;
        false
    }
}

#[async_trait]
impl<S: Store + ?Sized> Store for std::sync::Arc<S> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    async fn accept(&self, batch: &[NewMessage]) -> Result<Vec<Accepted>> {
        (**self).accept(batch).await
    }

    async fn claim(&self, params: &ClaimParams) -> Result<Vec<Claimed>> {
        (**self).claim(params).await
    }

    async fn settle(&self, batch: &[Settlement]) -> Result<Vec<Settled>> {
        (**self).settle(batch).await
    }

    async fn renew(&self, params: &RenewParams) -> Result<Vec<Renewed>> {
        (**self).renew(params).await
    }

    async fn rescue(&self, params: &RescueParams) -> Result<Vec<Claimed>> {
        (**self).rescue(params).await
    }

    async fn register(&self, params: &RegisterParams) -> Result<()> {
        (**self).register(params).await
    }

    async fn sweep(&self, params: &SweepParams) -> Result<Swept> {
        (**self).sweep(params).await
    }

    async fn orphans(&self, params: &OrphanParams) -> Result<Vec<Orphan>> {
        (**self).orphans(params).await
    }

    async fn count_duplicates(&self, batch: &[DuplicateCount]) -> Result<()> {
        (**self).count_duplicates(batch).await
    }

    async fn backlog(&self, params: &BacklogParams) -> Result<Vec<Backlog>> {
        (**self).backlog(params).await
    }

    fn wakeups(&self) -> Option<&dyn Wakeups> {
        (**self).wakeups()
    }

    fn failover(&self) -> Option<Failover> {
        (**self).failover()
    }

    fn is_transient(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        (**self).is_transient(error)
    }
}
