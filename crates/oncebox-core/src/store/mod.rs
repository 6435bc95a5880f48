//! The interface to databases: one trait with the verbs of an inbox, and smaller ones for optional features.
//!
//! | tier | trait | for |
//! |---|---|---|
//! | 0 | [`Store`] | every store: a working durable inbox |
//! | 1 | [`Inspect`] | lists, counts and views for operators, health and the dashboard |
//! | 2 | [`Operate`] | retry, discard, replay, pause, purge, erase, each with its record |
//! | 3 | [`Transactional`] with [`MarkIn`], [`SettleIn`] and [`AcceptIn`] | exactly-once effects, follow-up messages in one commit |
//! | 4 | [`ShareIn`] | several runs in one transaction |
//! | – | [`Examine`], [`Migrate`], [`Wakeups`] | where the database has it |
//!
//! A store implements the tiers that its database allows, and runs the conformance suite of each of them (`oncebox-testkit`).
//! A wrapper implements [`Layer`] and the layers of its tiers, and writes only the verbs that it changes.
//!
//! Every verb works on batches and takes one parameter struct, so new fields break no store. All times come from the store's clock:
//! callers send durations.

mod action;
mod actor;
mod answer;
mod backlog;
mod entry;
mod erase;
mod examine;
mod failover;
mod filter;
mod history;
mod inspect;
mod layer;
mod line;
mod migrate;
mod operate;
mod operation_id;
mod quarantine;
mod route;
mod sweep;
mod tenancy;
mod tenant_scope;
mod transaction;
mod wakeups;
mod windows;

pub use action::{Action, ActionKind, AuditFilter, AuditPage, OperationView};
pub use actor::Actor;
pub use answer::{Acted, ActionResult};
pub use backlog::{Backlog, BacklogParams, BlockedBacklog};
pub use entry::{
    Accepted, ClaimMode, ClaimParams, ClaimQuota, Claimed, HandlerCount, KnownMessage, NewMessage,
    RenewParams, Renewed, RescueParams, Settled,
};
pub use erase::{ErasedIds, ErasureCounts, content_erased, nothing_to_erase};
pub use examine::{Examine, ExamineParams, Finding, Severity};
pub use failover::Failover;
pub use filter::{EntryCursor, EntryFilter, EntryPage, MessageLabel};
pub use history::{
    Attempt, DuplicateCount, EntryAhead, EntryExplanation, Explanation, LeaseHolder, MessageHistory,
};
pub use inspect::{BlockedKey, BlockedParams, EntryView, InboxCounts, Inspect, MessageView};
pub use layer::{ExamineLayer, InspectLayer, Layer, OperateLayer, StoreLayer};
pub use line::{OrderQueue, PausedKey};
pub use migrate::{Migrate, Migration};
pub use operate::{Admin, Operate};
pub use operation_id::OperationId;
pub use quarantine::{
    QuarantineFilter, QuarantineId, QuarantinePage, QuarantineReason, Quarantined, QuarantinedView,
};
pub use route::{HandlerLink, Route};
pub use sweep::{BackfillParams, Backfilled, Orphan, OrphanParams, SweepId, SweepParams, Swept};
pub use tenancy::Tenancy;
pub use tenant_scope::TenantScope;
pub use transaction::{AcceptIn, Mark, MarkIn, SettleIn, ShareIn, Transactional};
pub use wakeups::{Wakeup, Wakeups};
pub use windows::{RegisterParams, RegisteredWindow, RetentionWindows, SweepCursor, SweepPosition};

pub use crate::state::{Claim, ClaimId, Seq, Token};

use async_trait::async_trait;

use crate::error::{Error, ErrorKind, Result};
use crate::state::Settlement;

/// Features of a store. A wrapper reports those of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub struct Capabilities {
    /// Name of the store, for messages and labels.
    pub name: &'static str,
    /// Accepted messages survive the end of the process.
    pub durable: bool,
    /// A handler's own writes and its completion can share one commit.
    pub transactions: bool,
    /// Several processes can work on the same data.
    pub shared: bool,
    /// It stores nothing. Handlers run while the source holds the delivery: see `Direct`.
    pub direct: bool,
    /// Maximum concurrent accept calls.
    pub writers: usize,
}

impl Capabilities {
    /// Returns the features of a store without any.
    pub const fn new(name: &'static str) -> Self {
        Self { name, durable: false, transactions: false, shared: false, direct: false, writers: 1 }
    }
}

/// Verbs of an inbox. Each call is one atomic change.
///
/// After an error of kind [`CommitUnknown`](crate::ErrorKind::CommitUnknown) the change may have happened. The caller repeats the
/// call with the same arguments, and the store recognises its own earlier change.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a store",
    label = "this needs a store",
    note = "take `Memory`, `Sqlite` or `Postgres`, or implement `oncebox::Store`; a wrapper implements `oncebox::store::StoreLayer`"
)]
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Returns the features of this store.
    fn capabilities(&self) -> Capabilities;

    /// Stores each message with one pending entry per handler, once per key. Returns results in the order of the batch.
    ///
    /// A batch is one transaction. If a key occurs twice in it, the second message is a duplicate of the first.
    async fn accept(&self, batch: &[NewMessage]) -> Result<Vec<Accepted>>;

    /// Leases due entries of the given handlers, each to one worker. Each claim gets a token greater than every token before it. A
    /// repeated call with the same claim id returns the claims that still hold.
    ///
    /// Entries with an ordering key are claimed one at a time per handler and key, in the order of acceptance. All keys of a route
    /// count as one handler: an entry waits while an earlier one waits, runs or blocks under another key. Entries of paused
    /// handlers are not claimed.
    async fn claim(&self, params: &ClaimParams) -> Result<Vec<Claimed>>;

    /// Stores each settlement whose claim still holds. Others change nothing. Repeating an applied settlement returns
    /// [`Settled::Applied`] again.
    async fn settle(&self, batch: &[Settlement]) -> Result<Vec<Settled>>;

    /// Extends the leases of claims that still hold.
    async fn renew(&self, params: &RenewParams) -> Result<Vec<Renewed>>;

    /// Takes over entries whose lease has expired, under a new token, for the caller to settle as crashed. From then on the store
    /// refuses writes of the previous owner.
    async fn rescue(&self, params: &RescueParams) -> Result<Vec<Claimed>>;

    /// Records the retention windows of a process, for the sweeps of all processes. If processes register different windows for a
    /// handler key, the longest one registered within the last `hold` wins.
    ///
    /// Default: does nothing. The suite of tier 0 asks for more: a store links the keys of the routes and refuses two handlers that are
    /// one, because the second would never run. A store that outlives a process keeps the windows, too.
    async fn register(&self, params: &RegisterParams) -> Result<()> {
        let _ = params;
        Ok(())
    }

    /// Removes expired finished messages, oldest first, a bounded number per call. A message expires when each of its entries is
    /// finished and past the window of its handler. Never removes anything pending, running, poisoned or quarantined.
    ///
    /// A sweep does not read a message again before its longest window has passed. A [`SweepCursor`] for each window records the
    /// position of all sweeps. Removing a message moves the watermark of its handlers, or that of the inbox if it had no entry.
    ///
    /// One process at a time sweeps an inbox. While another one does, the result is [`Swept::NOTHING`].
    async fn sweep(&self, params: &SweepParams) -> Result<Swept>;

    /// Lists unknown handler keys whose entries have waited for longer than a grace, and none of which a worker holds; the longest
    /// wait first. A large backlog costs no more than a small one. Default: [`Unsupported`](crate::ErrorKind::Unsupported).
    async fn orphans(&self, params: &OrphanParams) -> Result<Vec<Orphan>> {
        let _ = params;
        Err(not_counted(self.capabilities().name))
    }

    /// Adds the counts of delivered duplicates to the stored ones. Repeating a call counts twice, so callers never repeat it.
    /// Default: does nothing, for a store without history.
    async fn count_duplicates(&self, batch: &[DuplicateCount]) -> Result<()> {
        let _ = batch;
        Ok(())
    }

    /// Returns the backlog of each handler key that has one, by key. A large backlog costs no more than a small one: every process
    /// calls this all the time. Default: [`Unsupported`](crate::ErrorKind::Unsupported): health and gauges then have no backlog.
    async fn backlog(&self, params: &BacklogParams) -> Result<Vec<Backlog>> {
        let _ = params;
        Err(not_counted(self.capabilities().name))
    }

    /// Returns the store's wake-ups, if it has any.
    fn wakeups(&self) -> Option<&dyn Wakeups> {
        None
    }

    /// Returns the latest failover that this process knows of. Makes no call: the store notices a failover when it reconnects.
    fn failover(&self) -> Option<Failover> {
        None
    }

    /// Returns true if the same transaction may succeed when repeated: the database ended it because of a deadlock, a serialization
    /// failure or a lock timeout. Handlers get such errors from the driver, which only the store knows. The library asks for each
    /// cause of an error in turn.
    fn is_transient(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        let _ = error;
        false
    }
}

/// Returns the error of a store that does not count its entries.
fn not_counted(store: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("the store {store:?} does not count waiting entries"))
}
