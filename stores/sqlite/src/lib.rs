//! The SQLite store of Oncebox: embedded, durable, with exactly-once effects for handlers that write to the same file.
//!
//! ```no_run
//! # fn main() -> oncebox::Result<()> {
//! use oncebox_sqlite::Sqlite;
//!
//! let store = Sqlite::open("inbox.db")?;
//! # Ok(()) }
//! ```
//!
//! One thread writes: calls that wait during a commit share the next transaction. Handlers that request a
//! transaction get one on their own connection. Transactions of one process take turns, because SQLite allows
//! one writer at a time. Several processes can share one file: a busy process pauses every 50 ms for the
//! others. Tests: `tests/`.

mod accept;
mod accept_in;
mod admin;
mod backfill;
mod backlog;
mod checkpoint;
mod claim;
mod connect;
mod entry;
mod erase;
mod error;
mod examine;
mod history;
mod lock;
mod mark;
mod migrate;
mod mode;
mod names;
mod operation;
mod options;
mod order;
mod orphans;
mod owner;
mod proof;
mod register;
mod row;
mod sections;
mod settle;
mod share;
mod sql;
mod sweep;
mod transaction;
mod writer;

pub use connect::Synchronous;
pub use options::SqliteOptions;
pub use transaction::SqliteTx;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use oncebox_core::state::Settlement;
use oncebox_core::store::{
    Accepted, Acted, Action, AuditFilter, AuditPage, BackfillParams, Backfilled, Backlog, BacklogParams,
    BlockedKey, BlockedParams, Capabilities, Claim, ClaimParams, Claimed, DuplicateCount, EntryFilter,
    EntryPage, Examine, ExamineParams, Finding, InboxCounts, Inspect, MessageHistory, MessageView,
    NewMessage, Operate, OperationId, Orphan, OrphanParams, QuarantineFilter, QuarantinePage, RegisterParams,
    RenewParams, Renewed, RescueParams, SettleIn, Settled, Store, SweepParams, Swept, Transactional, Wakeup,
    Wakeups,
};
use oncebox_core::time::SharedClock;
use oncebox_core::{Error, ErrorKind, HandlerKey, InboxName, Key, Mark, Result};
use tokio::sync::watch;

use accept_in::UnmergedKeys;
use checkpoint::WriterEnd;
use connect::FileOpener;
use names::NameMap;
use proof::Pace;
use sql::SQL;
use transaction::WriteTurn;
use writer::{Abandoned, WriteTx, WriterHandle};

/// A SQLite file as a store. Cheap to clone; clones are the same store.
#[derive(Clone)]
pub struct Sqlite {
    inner: Arc<Inner>,
}

struct Inner {
    opener: FileOpener,
    clock: SharedClock,
    writer: WriterHandle,
    recent: UnmergedKeys,
    write_turn: WriteTurn,
    wake: watch::Sender<u64>,
    watching: AtomicBool,
    stop: Arc<AtomicBool>,
    /// Must be the last field: the writer ends after all fields before it are dropped.
    _end: WriterEnd,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Sqlite {
    /// Opens a file. Creates it if it is missing, and applies missing migrations.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        Self::options(path).open()
    }

    /// Returns settings for a file, to change before it is opened.
    pub fn options(path: impl Into<PathBuf>) -> SqliteOptions {
        SqliteOptions {
            opener: FileOpener {
                path: path.into(),
                synchronous: Synchronous::Full,
                busy_timeout: Duration::from_secs(5),
                max_bytes: None,
                read_only: false,
                create: true,
            },
            clock: None,
            migrate: true,
            pace: Pace::default(),
        }
    }

    /// Marks the message with this id as handled inside the caller's own transaction, on the caller's own connection to
    /// the same file. Do the work only on [`Mark::First`], then commit: the work and the mark are stored together.
    ///
    /// Call it first in the transaction: then a concurrent duplicate waits here, and does not run its body. `inbox`
    /// separates the ids of different streams, and `handler` the handlers of one message.
    ///
    /// Refuses a connection whose main database is another file ([`ErrorKind::Refused`]), even if it attaches the inbox's
    /// file: SQLite commits several files one by one. It knows the id alone, so it cannot detect another message under the
    /// same id; `Inbox::once` of `oncebox` can.
    ///
    #[doc = include_str!("../docs/once.md")]
    pub fn once(
        &self,
        tx: &rusqlite::Connection,
        inbox: &str,
        id: impl AsRef<[u8]>,
        handler: &str,
    ) -> Result<Mark> {
        let (inbox, key) = mark::once_key(inbox, id.as_ref())?;
        self.once_key(tx, &inbox, &key, handler)
    }

    /// Like [`once`](Self::once), for another kind of key: with a source, or of another
    /// [`KeyStrategy`](oncebox_core::KeyStrategy).
    pub fn once_key(
        &self,
        tx: &rusqlite::Connection,
        inbox: &InboxName,
        key: &Key,
        handler: &str,
    ) -> Result<Mark> {
        self.check_file(tx)?;
        mark::mark(tx, inbox, key, &HandlerKey::new(handler)?, None, self.inner.clock.now())
    }

    async fn call<T, F>(&self, work: F) -> Result<T>
    where
        F: FnMut(&mut WriteTx<'_>) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        self.inner.writer.call(Abandoned::Done, work).await
    }

    /// Reads state that only the writer has. A read changes nothing, so the outcome of the transaction does not matter.
    async fn look<T, F>(&self, work: F) -> Result<T>
    where
        F: FnMut(&mut WriteTx<'_>) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        self.call(work).await.map_err(|error| match error.kind() {
            ErrorKind::CommitUnknown => Error::new(ErrorKind::Unavailable, error.what()).caused_by(error),
            _ => error,
        })
    }

    /// Reads many rows on a separate connection, so that the writer does not wait.
    async fn read<T, F>(&self, look: F) -> Result<T>
    where
        F: FnOnce(&rusqlite::Connection, &NameMap) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let opener = FileOpener { read_only: true, ..self.inner.opener.clone() };
        let looked = tokio::task::spawn_blocking(move || {
            let connection = opener.open()?;
            // One snapshot for all statements.
            connection.execute_batch(SQL.transaction_begin_read).map_err(error::store_error)?;
            look(&connection, &NameMap::load(&connection)?)
        });
        looked.await.map_err(|panic| error::stopped().caused_by(panic))?
    }
}

/// The SQLite library this store is built on, for handlers that use its transaction.
pub use rusqlite;

impl std::fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.inner.opener.path).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for Sqlite {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("sqlite");
        (capabilities.durable, capabilities.transactions, capabilities.shared) = (true, true, true);
        capabilities
    }

    async fn accept(&self, batch: &[NewMessage]) -> Result<Vec<Accepted>> {
        let batch = batch.to_vec();
        self.call(move |work| accept::accept(work, &batch)).await
    }

    async fn claim(&self, params: &ClaimParams) -> Result<Vec<Claimed>> {
        let params = params.clone();
        self.inner.writer.call(Abandoned::Left, move |work| claim::claim(work, &params)).await
    }

    async fn settle(&self, batch: &[Settlement]) -> Result<Vec<Settled>> {
        let batch = batch.to_vec();
        self.call(move |work| settle::settle(work, &batch)).await
    }

    async fn renew(&self, params: &RenewParams) -> Result<Vec<Renewed>> {
        let params = params.clone();
        self.call(move |work| settle::renew(work, &params)).await
    }

    async fn rescue(&self, params: &RescueParams) -> Result<Vec<Claimed>> {
        let params = params.clone();
        self.inner.writer.call(Abandoned::Left, move |work| claim::rescue(work, &params)).await
    }

    async fn register(&self, params: &RegisterParams) -> Result<()> {
        let params = params.clone();
        self.call(move |work| register::register(work, &params)).await
    }

    async fn sweep(&self, params: &SweepParams) -> Result<Swept> {
        let params = params.clone();
        self.call(move |work| sweep::sweep(work, &params)).await
    }

    async fn orphans(&self, params: &OrphanParams) -> Result<Vec<Orphan>> {
        let (params, now) = (params.clone(), self.inner.clock.now());
        self.read(move |connection, names| orphans::orphans(connection, names, &params, now)).await
    }

    async fn count_duplicates(&self, batch: &[DuplicateCount]) -> Result<()> {
        let batch = batch.to_vec();
        self.call(move |work| history::count_duplicates(work, &batch)).await
    }

    async fn backlog(&self, params: &BacklogParams) -> Result<Vec<Backlog>> {
        let (params, now) = (params.clone(), self.inner.clock.now());
        self.read(move |connection, names| backlog::backlog(connection, names, &params, now)).await
    }

    fn wakeups(&self) -> Option<&dyn Wakeups> {
        Some(self)
    }

    fn is_transient(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        error::is_transient(error)
    }
}

impl Wakeups for Sqlite {
    fn subscribe(&self) -> Wakeup {
        let inner = &self.inner;
        // Only a process that waits for work must watch for writes of others.
        if !inner.watching.swap(true, Ordering::Relaxed) {
            writer::watch_file(inner.opener.clone(), inner.wake.clone(), Arc::clone(&inner.stop));
        }
        oncebox_tokio::wakeup(inner.wake.subscribe())
    }
}

impl Transactional for Sqlite {
    type Tx = SqliteTx;

    async fn begin(&self) -> Result<SqliteTx> {
        SqliteTx::begin(&self.inner.write_turn, &self.inner.opener).await
    }

    async fn commit(&self, tx: SqliteTx) -> Result<()> {
        let wakes = tx.wakes;
        tx.commit().await?;
        if wakes {
            self.inner.wake.send_modify(|count| *count = count.wrapping_add(1));
        }
        Ok(())
    }
}

impl SettleIn<SqliteTx> for Sqlite {
    fn complete(&self, tx: &mut SqliteTx, claim: &Claim) -> impl Future<Output = Result<Settled>> + Send {
        let now = self.inner.clock.now();
        std::future::ready(tx.check().and_then(|()| settle::complete(tx, claim, now)))
    }
}

#[async_trait]
impl Inspect for Sqlite {
    async fn count(&self, inbox: &InboxName, tenant: Option<&str>) -> Result<InboxCounts> {
        let (inbox, tenant) = (inbox.clone(), tenant.map(str::to_owned));
        self.read(move |connection, names| match tenant {
            None => admin::count(connection, names, &inbox),
            Some(tenant) => admin::count_tenant(connection, names, &inbox, &tenant),
        })
        .await
    }

    async fn list(&self, filter: &EntryFilter) -> Result<EntryPage> {
        let filter = filter.clone();
        self.read(move |connection, names| admin::list(connection, names, &filter)).await
    }

    async fn blocked(&self, params: &BlockedParams) -> Result<Vec<BlockedKey>> {
        let params = params.clone();
        self.read(move |connection, names| admin::blocked(connection, names, &params)).await
    }

    async fn show(&self, inbox: &InboxName, key: &Key) -> Result<Option<MessageView>> {
        let (inbox, key) = (inbox.clone(), *key);
        self.look(move |work| admin::show(work, &inbox, &key)).await
    }

    async fn history(&self, inbox: &InboxName, key: &Key) -> Result<Option<MessageHistory>> {
        let (inbox, key) = (inbox.clone(), *key);
        self.look(move |work| history::history(work, &inbox, &key)).await
    }

    async fn quarantined(&self, filter: &QuarantineFilter) -> Result<QuarantinePage> {
        let filter = filter.clone();
        self.read(move |connection, names| admin::quarantined(connection, names, &filter)).await
    }

    async fn audit(&self, filter: &AuditFilter) -> Result<AuditPage> {
        let filter = filter.clone();
        self.read(move |connection, names| operation::audit(connection, names, &filter)).await
    }
}

#[async_trait]
impl Operate for Sqlite {
    async fn backfill(&self, params: &BackfillParams) -> Result<Backfilled> {
        let params = params.clone();
        self.call(move |work| backfill::backfill(work, &params)).await
    }

    async fn act(&self, action: &Action) -> Result<Acted> {
        let action = action.clone();
        let acted = self.call(move |work| {
            match operation::act(work, &action) {
                // The error was found before any write, so the other calls of the transaction can commit.
                Err(error) if is_answer(error.kind()) => Ok(Err(error)),
                acted => acted.map(Ok),
            }
        });
        acted.await?
    }

    async fn progress(&self, id: OperationId, noted: u32, progress: &str) -> Result<bool> {
        let progress = progress.to_owned();
        self.call(move |work| operation::note(work, id, noted, &progress)).await
    }
}

#[async_trait]
impl Examine for Sqlite {
    async fn examine(&self, params: &ExamineParams) -> Result<Vec<Finding>> {
        let (params, opener, now) = (params.clone(), self.inner.opener.clone(), self.inner.clock.now());
        self.read(move |connection, names| examine::examine(connection, names, &opener, &params, now)).await
    }
}

/// Returns true if the error is a result for the operator, and not a fault of the store.
fn is_answer(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::Refused | ErrorKind::OperationReused)
}
