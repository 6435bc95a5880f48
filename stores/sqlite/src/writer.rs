//! The one writer of a process: a thread that runs all waiting calls in one transaction and commits it once. Tests:
//! `writer/tests.rs`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Instant;

use oncebox_core::time::{SharedClock, Timestamp};
use oncebox_core::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use rusqlite::{Connection, params};
use tokio::sync::{mpsc, oneshot, watch};

use crate::checkpoint::{self, WriterEnd};
use crate::connect::FileOpener;
use crate::error::{commit_error, is_io_failure, stopped, store_error};
use crate::lock::{self, Courtesy};
use crate::names::NameMap;
use crate::owner::Owner;
use crate::proof::{Pace, Tail};
use crate::sql::SQL;
use crate::transaction::WriteTurn;

/// Maximum calls that share a transaction. With more, callers would wait too long.
const MAX_GROUP: usize = 1_024;

/// Counters of the store, as the open transaction sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) seq: i64,
    pub(crate) token: i64,
    pub(crate) merged: i64,
    pub(crate) pass_upto: i64,
    pub(crate) pass_slice: i64,
    pub(crate) proofs: i64,
    pub(crate) swept: i64,
}

impl Counters {
    pub(crate) fn load(connection: &Connection) -> rusqlite::Result<Self> {
        connection.prepare_cached(SQL.writer_counters)?.query_row([], |row| {
            Ok(Self {
                seq: row.get(0)?,
                token: row.get(1)?,
                merged: row.get(2)?,
                pass_upto: row.get(3)?,
                pass_slice: row.get(4)?,
                proofs: row.get(5)?,
                swept: row.get(6)?,
            })
        })
    }

    pub(crate) fn save(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection.prepare_cached(SQL.writer_save_counters)?.execute(params![
            self.seq,
            self.token,
            self.merged,
            self.pass_upto,
            self.pass_slice,
            self.proofs,
            self.swept
        ])?;
        Ok(())
    }
}

/// Context of a call: the open transaction and the cached state of the database.
pub(crate) struct WriteTx<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) now: Timestamp,
    pub(crate) names: &'a mut NameMap,
    pub(crate) tail: &'a mut Tail,
    pub(crate) counters: &'a mut Counters,
    /// True if an entry became claimable.
    pub(crate) wake: &'a mut bool,
    /// Maximum size of the file, in bytes.
    pub(crate) max_bytes: Option<u64>,
    /// Owner that claims store.
    pub(crate) owner: &'a mut Owner,
}

impl WriteTx<'_> {
    pub(crate) fn next_seq(&mut self) -> i64 {
        self.counters.seq += 1;
        self.counters.seq
    }

    pub(crate) fn next_token(&mut self) -> i64 {
        self.counters.token += 1;
        self.counters.token
    }

    pub(crate) fn statement(&self, sql: &'static str) -> Result<rusqlite::CachedStatement<'_>> {
        self.connection.prepare_cached(sql).map_err(store_error)
    }
}

/// A call that waits for its turn.
trait WriterJob: Send {
    /// Runs the call. May run again after a rollback.
    fn run(&mut self, work: &mut WriteTx<'_>) -> Result<()>;
    /// Sends the caller the result, once the outcome of the transaction is known.
    fn finish(self: Box<Self>, outcome: Result<()>);
}

struct QueuedCall<F, T> {
    work: F,
    answer: Option<T>,
    reply: oneshot::Sender<Result<T>>,
    abandoned: Abandoned,
}

/// Treatment of a call whose caller stopped waiting before its turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Abandoned {
    /// The call runs nevertheless.
    Done,
    /// Skipped: no caller would receive its result.
    Left,
}

impl<F, T> WriterJob for QueuedCall<F, T>
where
    F: FnMut(&mut WriteTx<'_>) -> Result<T> + Send,
    T: Send,
{
    fn run(&mut self, work: &mut WriteTx<'_>) -> Result<()> {
        if self.abandoned == Abandoned::Done || !self.reply.is_closed() {
            self.answer = Some((self.work)(work)?);
        }
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<()>) {
        let Self { answer, reply, .. } = *self;
        // A caller that stopped waiting gets the result when it repeats the call.
        let _ = reply.send(outcome.and_then(|()| answer.ok_or_else(stopped)));
    }
}

/// Handle of the writer thread, which ends when the last handle is dropped.
#[derive(Clone)]
pub(crate) struct WriterHandle {
    jobs: mpsc::Sender<Box<dyn WriterJob>>,
}

impl WriterHandle {
    pub(crate) fn start(
        opener: FileOpener,
        connection: Connection,
        clock: SharedClock,
        write_turn: WriteTurn,
        wake: watch::Sender<u64>,
        (known, pace): (SharedState, Pace),
    ) -> Result<(Self, WriterEnd)> {
        let (jobs, queue) = mpsc::channel(MAX_GROUP);
        let state = WriterState {
            owner: Owner::new(opener.path.clone()),
            opener,
            connection: Some(connection),
            known,
            clock,
            write_turn,
            wake,
            pace,
            courtesy: Courtesy::new(),
            turns: 0,
            wrote: false,
        };
        let (ends, ended) = channel();
        std::thread::Builder::new()
            .name("oncebox-sqlite".into())
            .spawn(move || {
                state.run(queue);
                // Drop this last, after all connections of the writer are closed.
                drop::<std::sync::mpsc::Sender<()>>(ends);
            })
            .map_err(|error| stopped().caused_by(error))?;
        Ok((Self { jobs }, WriterEnd::new(ended)))
    }

    /// Runs `work` in the next transaction, and returns after the commit.
    pub(crate) async fn call<T, F>(&self, abandoned: Abandoned, work: F) -> Result<T>
    where
        F: FnMut(&mut WriteTx<'_>) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(QueuedCall { work, answer: None, reply, abandoned });
        self.jobs.send(job).await.map_err(|_| stopped())?;
        // No answer: the thread died with the transaction open, or during the commit.
        answer.await.map_err(|_| Error::new(ErrorKind::CommitUnknown, "the SQLite writer died"))?
    }
}

/// State of the database that the writer caches between transactions.
pub(crate) struct CachedState {
    names: NameMap,
    pub(crate) tail: Tail,
    counters: Counters,
    /// SQLite's data version, which changes when another connection writes. `None` if the names and counters must be
    /// read again anyway.
    data_version: Option<i64>,
}

impl CachedState {
    pub(crate) fn nothing(pace: Pace) -> Self {
        Self {
            names: NameMap::default(),
            tail: Tail::new(pace),
            counters: Counters::default(),
            data_version: None,
        }
    }

    /// Updates the state inside a transaction, if another connection wrote meanwhile. Returns true if one is known to
    /// have written.
    fn refresh(&mut self, connection: &Connection) -> Result<bool> {
        let data_version =
            connection.pragma_query_value(None, "data_version", |row| row.get(0)).map_err(store_error)?;
        let before = self.data_version.take();
        if before != Some(data_version) {
            self.counters = Counters::load(connection).map_err(store_error)?;
            self.names = NameMap::load(connection)?;
            self.tail.catch_up(connection, &self.counters)?;
        }
        self.data_version = Some(data_version);
        Ok(before.is_some_and(|before| before != data_version))
    }

    /// Discards the state after a rollback, except the tail. The tail is long, and still valid, because it was read
    /// before the transaction's first write.
    fn rolled_back(&mut self) {
        self.tail.rolled_back();
        self.data_version = None;
    }
}

/// The cached state, which transactions of callers read, too. `None` if the next transaction must read it again. A
/// thread locks it only while it holds SQLite's write lock, so no other thread waits long.
pub(crate) type SharedState = Arc<Mutex<Option<CachedState>>>;

struct WriterState {
    opener: FileOpener,
    owner: Owner,
    /// `None` after a failure with an unknown state. Opened again for the next group.
    connection: Option<Connection>,
    known: SharedState,
    clock: SharedClock,
    write_turn: WriteTurn,
    wake: watch::Sender<u64>,
    pace: Pace,
    courtesy: Courtesy,
    /// Number of turns at the last transaction.
    turns: u64,
    /// True after a commit: a store that only read leaves the log to writers.
    wrote: bool,
}

impl WriterState {
    fn run(mut self, mut queue: mpsc::Receiver<Box<dyn WriterJob>>) {
        let mut group = Vec::new();
        while queue.blocking_recv_many(&mut group, MAX_GROUP) > 0 {
            self.serve(&mut group);
            if self.courtesy.is_due(!queue.is_empty(), Instant::now()) {
                // Hold the turn, so that no handler of this process uses the pause.
                let _turn = self.write_turn.enter_blocking();
                self.courtesy.leave_room();
                self.turns = self.write_turn.turns();
            }
        }
        self.owner.leave(self.connection.as_ref(), self.opener.patience());
        if let Some(connection) = self.connection.filter(|_| self.wrote) {
            checkpoint::at_end(&connection);
        }
    }

    /// Runs the calls of a group and sends their results.
    fn serve(&mut self, group: &mut Vec<Box<dyn WriterJob>>) {
        match self.transaction(group) {
            Err(failed) if group.len() > 1 && failed.isolate => self.one_by_one(group.drain(..)),
            Ok(()) => group.drain(..).for_each(|job| job.finish(Ok(()))),
            Err(failed) => group.drain(..).for_each(|job| job.finish(Err(failed.error.to_shared()))),
        }
    }

    /// Runs each call in its own transaction after one call made the shared transaction fail, so that only that call
    /// fails.
    fn one_by_one(&mut self, jobs: impl Iterator<Item = Box<dyn WriterJob>>) {
        let mut away: Option<Error> = None;
        for mut job in jobs {
            // While the file is locked, each call would wait as long as the first one.
            if let Some(error) = &away {
                job.finish(Err(error.to_shared()));
                continue;
            }
            let outcome = self.transaction(std::slice::from_mut(&mut job));
            if let Err(FailedTransaction { error, isolate: false }) = &outcome
                && error.kind() == ErrorKind::Unavailable
            {
                away = Some(error.to_shared());
            }
            job.finish(outcome.map_err(|failed| failed.error));
        }
    }

    /// Runs all jobs in one transaction. Stores nothing unless it returns `Ok`.
    fn transaction(&mut self, jobs: &mut [Box<dyn WriterJob>]) -> std::result::Result<(), FailedTransaction> {
        // A panic ends the transaction, but not the thread that all other calls need.
        catch_unwind(AssertUnwindSafe(|| self.try_transaction(jobs))).unwrap_or_else(|_| {
            self.connection = None;
            *self.known.lock() = None;
            self.owner.rolled_back();
            Err(Error::new(ErrorKind::CommitUnknown, "the SQLite writer panicked").into())
        })
    }

    fn try_transaction(
        &mut self,
        jobs: &mut [Box<dyn WriterJob>],
    ) -> std::result::Result<(), FailedTransaction> {
        // Transactions of handlers and of the writer take turns here, instead of colliding on SQLite's lock.
        let _turn = self.write_turn.enter_blocking()?;
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.opener.open()?,
        };
        let mut wake = false;
        let result = self.attempt(&connection, jobs, &mut wake);
        match &result {
            Ok(()) => {
                self.connection = Some(connection);
                self.wrote |= !self.opener.read_only;
                if wake {
                    self.wake.send_modify(|count| *count = count.wrapping_add(1));
                }
            }
            Err(failed) => {
                self.owner.rolled_back();
                let rolled_back =
                    connection.is_autocommit() || connection.execute_batch(SQL.transaction_rollback).is_ok();
                let error = &failed.error;
                let in_doubt = error.kind() == ErrorKind::CommitUnknown || is_io_failure(error);
                // Never reuse a connection with an unknown state, nor the cached state of the file.
                if rolled_back && !in_doubt {
                    self.connection = Some(connection);
                    self.known.lock().iter_mut().for_each(CachedState::rolled_back);
                } else {
                    *self.known.lock() = None;
                }
            }
        }
        result
    }

    fn attempt(
        &mut self,
        connection: &Connection,
        jobs: &mut [Box<dyn WriterJob>],
        wake: &mut bool,
    ) -> std::result::Result<(), FailedTransaction> {
        // Immediate: if a transaction reads first and writes later, SQLite may refuse its outdated snapshot at any
        // time, without a wait. A read-only file must not be locked.
        let begun = if self.opener.read_only {
            connection.execute_batch(SQL.transaction_begin_read)
        } else {
            lock::begin(connection, self.opener.patience())
        };
        begun.map_err(store_error)?;
        let mut known = self.known.lock();
        let known = known.get_or_insert_with(|| CachedState::nothing(self.pace));
        let turns = self.write_turn.turns();
        // If handlers of this process had turns meanwhile, they probably wrote.
        if known.refresh(connection)? && turns == self.turns + 1 {
            self.courtesy.saw_others(Instant::now());
        }
        self.turns = turns;
        let before = known.counters;
        let mut work = WriteTx {
            connection,
            now: self.clock.now(),
            names: &mut known.names,
            tail: &mut known.tail,
            counters: &mut known.counters,
            wake,
            max_bytes: self.opener.max_bytes,
            owner: &mut self.owner,
        };
        let blame = |error| FailedTransaction { error, isolate: true };
        for job in jobs {
            job.run(&mut work).map_err(blame)?;
        }
        // Only accepted messages cause a merge, so other calls need not fail if there is no room for it.
        known.tail.merge(connection, &mut known.counters).map_err(blame)?;
        if known.counters != before {
            known.counters.save(connection).map_err(store_error)?;
        }
        connection.execute_batch(SQL.transaction_commit).map_err(commit_error)?;
        known.tail.committed(&known.counters);
        Ok(())
    }
}

/// Failure of a transaction.
struct FailedTransaction {
    error: Error,
    /// True if one of its calls may be the cause, so that the others are tried without it.
    isolate: bool,
}

impl From<Error> for FailedTransaction {
    fn from(error: Error) -> Self {
        Self { error, isolate: false }
    }
}

/// Starts a thread that watches for commits of other processes.
pub(crate) fn watch_file(opener: FileOpener, wake: watch::Sender<u64>, stop: Arc<AtomicBool>) {
    // SQLite has no notification across processes. A query of the data version is a read of shared memory.
    const EVERY: std::time::Duration = std::time::Duration::from_millis(20);
    let spawned = std::thread::Builder::new().name("oncebox-watch".into()).spawn(move || {
        let connection = match opener.open() {
            Ok(connection) => connection,
            Err(error) => {
                tracing::warn!(%error, "cannot watch SQLite file, polling only");
                return;
            }
        };
        let mut last: Option<i64> = None;
        while !stop.load(Ordering::Relaxed) {
            let version = connection.pragma_query_value(None, "data_version", |row| row.get(0)).ok();
            if version.is_some() && version != last {
                last = version;
                wake.send_modify(|count| *count = count.wrapping_add(1));
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "polls shared memory that no clock of ours can wake it for"
            )]
            std::thread::sleep(EVERY);
        }
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "cannot watch SQLite file, polling only");
    }
}

#[cfg(test)]
mod tests;
