//! The PostgreSQL store of Oncebox: shared by many processes, durable, with exactly-once effects for handlers that write to
//! the same database.
//!
//! ```no_run
//! # async fn open() -> oncebox::Result<()> {
//! use oncebox_postgres::Postgres;
//!
//! let store = Postgres::connect("postgres://app:secret@db.example.com/shop").await?;
//! # Ok(()) }
//! ```
//!
//! Calls of accept that wait during a commit share the next batch. Claims and settlements run on their own connections
//! with fixed plans. A handler that requests a transaction gets one on a third set of connections, and the store writes
//! its completion in it. Tests: `tests/`, one file per subject.

mod accept;
mod admin;
mod backfill;
mod backlog;
mod claim;
mod claimed;
mod connect;
mod cursors;
mod db;
mod erase;
mod error;
mod examine;
mod functions;
mod history;
mod login;
mod mark;
mod migrate;
mod names;
mod once;
mod open;
mod operation;
mod options;
mod orphans;
mod partition;
mod register;
mod remembered;
mod row;
mod sections;
mod session;
mod settle;
mod sql;
mod sweep;
mod timeline;
mod transaction;
mod url;
mod vacuum;
mod wake;
mod writer;

#[cfg(feature = "tokio-postgres")]
mod tokio_pg;

/// Compiles the examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/postgres.md")]
struct Guide;

pub use options::PostgresOptions;
pub use transaction::PostgresTx;

/// The driver this store is built on, for handlers that use its transaction.
pub use sqlx;

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use oncebox_core::state::{NextState, Settlement};
use oncebox_core::store::{
    Accepted, Acted, Action, AuditFilter, AuditPage, BackfillParams, Backfilled, Backlog, BacklogParams,
    BlockedKey, BlockedParams, Capabilities, Claim, ClaimParams, Claimed, DuplicateCount, EntryFilter,
    EntryPage, Examine, ExamineParams, Failover, Finding, InboxCounts, Inspect, MarkIn, MessageHistory,
    MessageView, NewMessage, Operate, OperationId, Orphan, OrphanParams, QuarantineFilter, QuarantinePage,
    RegisterParams, RenewParams, Renewed, RescueParams, SettleIn, Settled, ShareIn, Store, SweepParams,
    Swept, Transactional, Wakeup, Wakeups,
};
use oncebox_core::{Error, ErrorKind, Fingerprint, HandlerKey, InboxName, Key, Mark, Result};
use sqlx::PgConnection;

use db::SharedDb;
use mark::{MarkQuery, MarkRef, QuarantineValues};
use partition::PartitionLimits;
use session::Sessions;
use wake::{Tasks, Waker};
use writer::BatchWriter;

/// A PostgreSQL database as a store. Cheap to clone; clones are the same store.
#[derive(Clone)]
pub struct Postgres {
    inner: Arc<Inner>,
}

struct Inner {
    db: SharedDb,
    handlers: Sessions,
    writer: BatchWriter,
    waker: Waker,
    tasks: Tasks,
    partitions: PartitionLimits,
    options: PostgresOptions,
}

impl Postgres {
    /// Connects to a database. Creates missing tables and applies missing migrations.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::options(url)?.open().await
    }

    /// Returns settings for a connection, to change before it is opened.
    pub fn options(url: &str) -> Result<PostgresOptions> {
        PostgresOptions::new(url)
    }
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Postgres").field("options", &self.inner.options).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for Postgres {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("postgres");
        (capabilities.durable, capabilities.transactions, capabilities.shared) = (true, true, true);
        capabilities.writers = writer::WRITERS;
        capabilities
    }

    async fn accept(&self, batch: &[NewMessage]) -> Result<Vec<Accepted>> {
        self.inner.writer.accept(&self.inner.db, batch).await
    }

    async fn claim(&self, params: &ClaimParams) -> Result<Vec<Claimed>> {
        let params = params.clone();
        // Claims scan over deleted rows that vacuum has not removed.
        vacuum::if_due(&self.inner.db);
        self.claimed(async move |db| claim::claim(&db, &params).await).await
    }

    async fn settle(&self, batch: &[Settlement]) -> Result<Vec<Settled>> {
        let settled = settle::settle(&self.inner.db, batch).await?;
        // Other processes may have handlers for released entries, and for followers of a settled entry.
        let notifies =
            |one: &Settlement| one.claim.order.is_some() || matches!(one.next, NextState::Pending { .. });
        if batch.iter().any(notifies) {
            self.inner.waker.work();
        }
        Ok(settled)
    }

    async fn renew(&self, params: &RenewParams) -> Result<Vec<Renewed>> {
        settle::renew(&self.inner.db, params).await
    }

    async fn rescue(&self, params: &RescueParams) -> Result<Vec<Claimed>> {
        let params = params.clone();
        self.claimed(async move |db| claim::rescue(&db, &params).await).await
    }

    async fn register(&self, params: &RegisterParams) -> Result<()> {
        register::register(&self.inner.db, params).await
    }

    async fn sweep(&self, params: &SweepParams) -> Result<Swept> {
        sweep::sweep(&self.inner.db, &self.inner.partitions, params).await
    }

    async fn orphans(&self, params: &OrphanParams) -> Result<Vec<Orphan>> {
        orphans::orphans(&self.inner.db, params).await
    }

    async fn count_duplicates(&self, batch: &[DuplicateCount]) -> Result<()> {
        history::count_duplicates(&self.inner.db, batch).await
    }

    async fn backlog(&self, params: &BacklogParams) -> Result<Vec<Backlog>> {
        backlog::backlog(&self.inner.db, params).await
    }

    fn wakeups(&self) -> Option<&dyn Wakeups> {
        Some(self)
    }

    fn failover(&self) -> Option<Failover> {
        self.inner.db.timeline.failover()
    }

    fn is_transient(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        error::is_transient(error)
    }
}

impl Postgres {
    /// Runs a claim in its own task. If the caller stopped waiting, the task releases the entries at once.
    async fn claimed<F>(&self, claim: impl FnOnce(SharedDb) -> F + Send + 'static) -> Result<Vec<Claimed>>
    where
        F: Future<Output = Result<Vec<Claimed>>> + Send + 'static,
    {
        let db = Arc::clone(&self.inner.db);
        let (answer, answered) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let claimed = claim(Arc::clone(&db)).await;
            if let Err(Ok(claimed)) = answer.send(claimed)
                && !claimed.is_empty()
            {
                claim::release(&db, &claimed).await;
            }
        });
        answered.await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::CommitUnknown, "a claim was interrupted before it was answered"))
        })
    }
}

impl Wakeups for Postgres {
    fn subscribe(&self) -> Wakeup {
        let inner = &self.inner;
        // Only a process that waits for work must listen for notifications.
        if !inner.options.pooled {
            inner.tasks.listen(&inner.waker, &inner.options.login);
        }
        inner.waker.subscribe()
    }
}

impl Transactional for Postgres {
    type Tx = PostgresTx;

    async fn begin(&self) -> Result<PostgresTx> {
        PostgresTx::begin(&self.inner.handlers).await
    }

    async fn commit(&self, tx: PostgresTx) -> Result<()> {
        if tx.commit(&self.inner.db).await? {
            self.inner.waker.work();
        }
        Ok(())
    }

    async fn finish(&self, tx: PostgresTx, claim: &Claim) -> Result<Settled> {
        let (settled, work) = tx.finish(&self.inner.db, claim).await?;
        if work {
            self.inner.waker.work();
        }
        Ok(settled)
    }

    async fn rollback(&self, tx: PostgresTx) {
        tx.rollback().await;
    }
}

impl MarkIn<PostgresTx> for Postgres {
    async fn mark(
        &self,
        tx: &mut PostgresTx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        fingerprint: Option<Fingerprint>,
    ) -> Result<Mark> {
        tx.mark(&self.inner.db, inbox, key, handler, fingerprint).await
    }

    async fn quarantine(&self, tx: &mut PostgresTx, message: &NewMessage) -> Result<()> {
        tx.quarantine(QuarantineValues::new(&self.inner.db, message)).await
    }

    async fn record(
        &self,
        tx: &mut PostgresTx,
        _: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        result: &[u8],
    ) -> Result<()> {
        tx.record(&self.inner.db, key, handler, result).await
    }

    async fn recall(
        &self,
        tx: &mut PostgresTx,
        _: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> Result<Option<Bytes>> {
        tx.recall(&self.inner.db, key, handler).await
    }

    async fn is_marked(
        &self,
        tx: &mut PostgresTx,
        _: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> Result<bool> {
        tx.is_marked(&self.inner.db, key, handler).await
    }
}

/// The caller's own connection, with a transaction open on it: `&mut *tx` of a `sqlx::Transaction`.
impl MarkIn<PgConnection> for Postgres {
    async fn mark(
        &self,
        tx: &mut PgConnection,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        fingerprint: Option<Fingerprint>,
    ) -> Result<Mark> {
        let mark_query = MarkQuery::new(&self.inner.db, inbox, key, handler, fingerprint);
        mark::mark(mark_query, !self.inner.options.pooled, tx).await
    }

    async fn quarantine(&self, tx: &mut PgConnection, message: &NewMessage) -> Result<()> {
        let values = QuarantineValues::new(&self.inner.db, message);
        mark::quarantine(values, !self.inner.options.pooled, tx).await
    }

    async fn record(
        &self,
        tx: &mut PgConnection,
        _: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        result: &[u8],
    ) -> Result<()> {
        let place = MarkRef::new(&self.inner.db, key, handler);
        mark::record(place, result, !self.inner.options.pooled, tx).await
    }

    async fn recall(
        &self,
        tx: &mut PgConnection,
        _: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> Result<Option<Bytes>> {
        mark::recall(MarkRef::new(&self.inner.db, key, handler), !self.inner.options.pooled, tx).await
    }

    async fn is_marked(
        &self,
        tx: &mut PgConnection,
        _: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> Result<bool> {
        let place = MarkRef::new(&self.inner.db, key, handler);
        Ok(mark::find(place, !self.inner.options.pooled, tx).await?.is_some())
    }
}

impl SettleIn<PostgresTx> for Postgres {
    async fn complete(&self, tx: &mut PostgresTx, claim: &Claim) -> Result<Settled> {
        let settled = tx.complete(&self.inner.db, std::slice::from_ref(claim)).await?;
        Ok(settled.first().copied().unwrap_or(Settled::LeaseLost))
    }
}

impl ShareIn<PostgresTx> for Postgres {
    async fn hold(&self, tx: &mut PostgresTx, claims: &[Claim]) -> Result<Vec<Settled>> {
        tx.hold(&self.inner.db, claims).await
    }

    async fn savepoint(&self, tx: &mut PostgresTx) -> Result<()> {
        tx.savepoint().await
    }

    async fn rollback_to_savepoint(&self, tx: &mut PostgresTx) -> Result<()> {
        tx.rollback_to_savepoint().await
    }

    async fn complete_all(&self, tx: &mut PostgresTx, claims: &[Claim]) -> Result<Vec<Settled>> {
        tx.complete(&self.inner.db, claims).await
    }
}

#[async_trait]
impl Inspect for Postgres {
    async fn count(&self, inbox: &InboxName, tenant: Option<&str>) -> Result<InboxCounts> {
        admin::count(&self.inner.db, inbox, tenant).await
    }

    async fn list(&self, filter: &EntryFilter) -> Result<EntryPage> {
        admin::list(&self.inner.db, filter).await
    }

    async fn blocked(&self, params: &BlockedParams) -> Result<Vec<BlockedKey>> {
        admin::blocked(&self.inner.db, params).await
    }

    async fn show(&self, inbox: &InboxName, key: &Key) -> Result<Option<MessageView>> {
        admin::show(&self.inner.db, inbox, key).await
    }

    async fn history(&self, inbox: &InboxName, key: &Key) -> Result<Option<MessageHistory>> {
        history::history(&self.inner.db, inbox, key).await
    }

    async fn quarantined(&self, filter: &QuarantineFilter) -> Result<QuarantinePage> {
        admin::quarantined(&self.inner.db, filter).await
    }

    async fn audit(&self, filter: &AuditFilter) -> Result<AuditPage> {
        operation::audit(&self.inner.db, filter).await
    }
}

#[async_trait]
impl Operate for Postgres {
    async fn backfill(&self, params: &BackfillParams) -> Result<Backfilled> {
        let page = backfill::backfill(&self.inner.db, params).await?;
        if page.added > 0 {
            self.inner.waker.work();
        }
        Ok(page)
    }

    async fn act(&self, action: &Action) -> Result<Acted> {
        let acted = operation::act(&self.inner.db, action).await?;
        self.inner.waker.work();
        Ok(acted)
    }

    async fn progress(&self, id: OperationId, noted: u32, progress: &str) -> Result<bool> {
        operation::note(&self.inner.db, id, noted, progress).await
    }
}

#[async_trait]
impl Examine for Postgres {
    async fn examine(&self, params: &ExamineParams) -> Result<Vec<Finding>> {
        examine::examine(&self.inner.db, &self.inner.options.plan, params).await
    }
}
