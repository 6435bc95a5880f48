//! Transactions of handlers, on their own connection. Tests: `tests/transactions.rs`, `tests/inline.rs`.

use std::future::Future;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use std::time::{Duration, Instant};

use oncebox_core::{Error, ErrorKind, Result};
use rusqlite::Connection;
use rusqlite::ffi::ErrorCode;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::connect::FileOpener;
use crate::error::{commit_error, stopped, store_error};
use crate::lock;
use crate::sql::SQL;

/// Turns of the writers of one process. SQLite allows one writer, and waiting here is fair and cheap. Holds the
/// connection that handlers use.
#[derive(Clone)]
pub(crate) struct WriteTurn {
    connection: Arc<Mutex<Option<Connection>>>,
    /// Number of turns so far.
    turns: Arc<AtomicU64>,
    /// Maximum time to wait for a turn.
    patience: Duration,
}

type WriteTurnGuard = OwnedMutexGuard<Option<Connection>>;

impl WriteTurn {
    pub(crate) fn new(patience: Duration) -> Self {
        Self { connection: Arc::default(), turns: Arc::default(), patience }
    }

    /// Waits for a turn while other writes take theirs. Returns an error if a single turn lasts too long: it may be the
    /// caller's own, which would never end.
    async fn enter(&self) -> Result<WriteTurnGuard> {
        let mut lock = pin!(Arc::clone(&self.connection).lock_owned());
        loop {
            let turns = self.turns.load(Ordering::Relaxed);
            let turn = tokio::time::timeout(self.patience, lock.as_mut()).await.ok();
            if let Some(turn) = self.entered(turn, turns)? {
                return Ok(turn);
            }
        }
    }

    /// Waits for a turn on a thread that may block.
    pub(crate) fn enter_blocking(&self) -> Result<WriteTurnGuard> {
        let mut lock = pin!(Arc::clone(&self.connection).lock_owned());
        loop {
            let turns = self.turns.load(Ordering::Relaxed);
            let turn = wait(lock.as_mut(), self.patience);
            if let Some(turn) = self.entered(turn, turns)? {
                return Ok(turn);
            }
        }
    }

    /// Takes the next turn in the queue, and holds it until the returned value is dropped.
    #[cfg(test)]
    pub(crate) fn queue_for_ever(&self) -> impl Send + use<> {
        let mut lock = Box::pin(Arc::clone(&self.connection).lock_owned());
        let waker = std::task::Waker::noop();
        assert!(lock.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        lock
    }

    /// Returns the number of turns so far.
    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    fn entered(&self, turn: Option<WriteTurnGuard>, before: u64) -> Result<Option<WriteTurnGuard>> {
        if turn.is_some() {
            self.turns.fetch_add(1, Ordering::Relaxed);
        } else if self.turns.load(Ordering::Relaxed) == before {
            let what = format!(
                "another transaction of this process has been open for more than {:?}",
                self.patience
            );
            return Err(Error::new(ErrorKind::Unavailable, what));
        }
        Ok(turn)
    }
}

/// Blocks until a future is ready, at most `patience`.
fn wait<F: Future + Unpin>(mut future: F, patience: Duration) -> Option<F::Output> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let (mut cx, start) = (Context::from_waker(&waker), Instant::now());
    loop {
        if let Poll::Ready(output) = pin!(&mut future).poll(&mut cx) {
            return Some(output);
        }
        let left = patience.checked_sub(start.elapsed())?;
        std::thread::park_timeout(left);
    }
}

/// An open transaction of a handler. Use it like a [`Connection`]. The library commits it, and dropping it rolls it
/// back. While it is open, no other connection can write to the file: do slow work before you request it, and do not
/// use the inbox while you hold it.
pub struct SqliteTx {
    /// `None` only while the transaction ends. Declared before `turn`, so that it closes before the next turn begins.
    connection: Option<Connection>,
    /// Set when SQLite rolls back by itself, as it does after some errors.
    rolled_back: Arc<AtomicBool>,
    /// True if a run that shares the transaction has begun its part.
    pub(crate) in_part: bool,
    /// True if its commit makes entries claimable.
    pub(crate) wakes: bool,
    turn: WriteTurnGuard,
}

impl SqliteTx {
    pub(crate) async fn begin(write_turn: &WriteTurn, opener: &FileOpener) -> Result<Self> {
        let turn = write_turn.enter().await?;
        let opener = opener.clone();
        // The task owns the turn. If the caller stops waiting, the turn ends with the task.
        let begun = tokio::task::spawn_blocking(move || Self::open(turn, &opener));
        begun.await.map_err(|panic| stopped().caused_by(panic))?
    }

    fn open(mut turn: WriteTurnGuard, opener: &FileOpener) -> Result<Self> {
        let connection = match turn.take() {
            Some(connection) => connection,
            None => opener.open()?,
        };
        let mut tx =
            Self { connection: None, rolled_back: Arc::default(), in_part: false, wakes: false, turn };
        let connection = tx.connection.insert(connection);
        // SQLite would begin, and refuse only the handler's first write.
        if connection.is_readonly("main").map_err(store_error)? {
            return Err(Error::new(ErrorKind::ReadOnly, "the SQLite file cannot be written"));
        }
        lock::begin(connection, opener.patience()).map_err(store_error)?;
        guard(connection, Some(Arc::clone(&tx.rolled_back)))?;
        Ok(tx)
    }

    /// Returns an error if SQLite rolled the transaction back: each later write would be stored alone, without the
    /// earlier ones.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_autocommit() || self.rolled_back.load(Ordering::Relaxed) {
            let what = "SQLite rolled the transaction back after an error that the handler did not report";
            return Err(Error::new(ErrorKind::Handler, what));
        }
        Ok(())
    }

    /// Commits. Keeps the connection for the next handler unless the outcome is unknown.
    pub(crate) async fn commit(mut self) -> Result<()> {
        // A separate task, which continues if the caller is cancelled.
        let committed = tokio::task::spawn_blocking(move || {
            self.check()?;
            let mut connection = self.connection.take().ok_or_else(stopped)?;
            guard(&mut connection, None)?;
            connection.execute_batch(SQL.transaction_commit).map_err(handler_commit_error)?;
            *self.turn = Some(connection);
            Ok(())
        });
        committed.await.map_err(|panic| {
            Error::new(ErrorKind::CommitUnknown, "a commit of SQLite panicked").caused_by(panic)
        })?
    }
}

/// Maps the error of a commit. A deferred constraint is the handler's own, and nothing was stored.
fn handler_commit_error(error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::ConstraintViolation) => {
            Error::new(ErrorKind::Handler, "what the handler wrote breaks a constraint").caused_by(error)
        }
        _ => commit_error(error),
    }
}

impl Deref for SqliteTx {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        #[expect(
            clippy::expect_used,
            reason = "only `commit` and `drop` take it, and both end the transaction"
        )]
        self.connection.as_ref().expect("the transaction is open")
    }
}

impl Drop for SqliteTx {
    fn drop(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            let ended = guard(&mut connection, None).is_ok()
                && (connection.is_autocommit() || connection.execute_batch(SQL.transaction_rollback).is_ok());
            if ended {
                *self.turn = Some(connection);
            }
        }
    }
}

impl std::fmt::Debug for SqliteTx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteTx").finish_non_exhaustive()
    }
}

/// Keeps a handler from ending the transaction, which would separate its writes from its completion.
///
/// The authorizer refuses the statements with a clear error. The commit hook refuses implicit commits: after SQLite
/// rolled back by itself, every write would be a separate transaction.
fn guard(connection: &mut Connection, rolled_back: Option<Arc<AtomicBool>>) -> Result<()> {
    let refuse = |context: AuthContext<'_>| match context.action {
        AuthAction::Transaction { .. } => Authorization::Deny,
        _ => Authorization::Allow,
    };
    let on = rolled_back.is_some();
    connection
        .authorizer(on.then_some(refuse))
        .and_then(|()| connection.commit_hook(on.then_some(|| true)))
        .and_then(|()| {
            connection.rollback_hook(rolled_back.map(|seen| move || seen.store(true, Ordering::Relaxed)))
        })
        .map_err(store_error)
}
