//! Transactions of handlers, on a connection of their own.

use std::ops::Deref;
use std::sync::Arc;

use oncebox::{Error, ErrorKind, Result};
use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::connect::Opener;
use crate::error::{commit_error, stopped, store_error};

/// Where the writes of one process take turns: SQLite lets only one of them write, and waiting here is fair and costs
/// nothing. It holds the connection that handlers use.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Mutex<Option<Connection>>>);

impl Gate {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(None)))
    }

    pub(crate) fn enter_blocking(&self) -> tokio::sync::MutexGuard<'_, Option<Connection>> {
        self.0.blocking_lock()
    }
}

/// An open transaction of a handler. Use it like a [`Connection`]; the library commits it, and dropping it rolls it
/// back. While it is open nothing else can write to the file: do slow things before asking for it.
pub struct SqliteTx {
    /// `None` only while it is being ended.
    connection: Option<Connection>,
    turn: OwnedMutexGuard<Option<Connection>>,
}

impl SqliteTx {
    pub(crate) async fn begin(gate: &Gate, opener: &Opener) -> Result<Self> {
        let mut turn = Arc::clone(&gate.0).lock_owned().await;
        let (connection, opener) = (turn.take(), opener.clone());
        let begun = blocking(move || {
            let mut connection = match connection {
                Some(connection) => connection,
                None => opener.open()?,
            };
            connection.execute_batch("BEGIN IMMEDIATE").map_err(store_error)?;
            allow_end(&mut connection, false)?;
            Ok(connection)
        });
        Ok(Self { connection: Some(begun.await?), turn })
    }

    /// Commits; the connection is kept for the next handler unless the commit is in doubt.
    pub(crate) async fn commit(mut self) -> Result<()> {
        let mut connection = self.connection.take().ok_or_else(stopped)?;
        let mut tx = self;
        // A task of its own: it goes on if the caller is cancelled.
        blocking(move || {
            if connection.is_autocommit() {
                // Some errors make SQLite roll back by itself; a commit now would pretend that nothing happened.
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    "SQLite rolled the handler's transaction back",
                ));
            }
            allow_end(&mut connection, true)?;
            connection.execute_batch("COMMIT").map_err(commit_error)?;
            *tx.turn = Some(connection);
            drop(tx);
            Ok(())
        })
        .await
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
            let ended = allow_end(&mut connection, true).is_ok()
                && (connection.is_autocommit() || connection.execute_batch("ROLLBACK").is_ok());
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

/// A handler may do anything but end the transaction: that would tear its writes from its completion.
fn allow_end(connection: &mut Connection, allowed: bool) -> Result<()> {
    let refuse = |context: AuthContext<'_>| match context.action {
        AuthAction::Transaction { .. } => Authorization::Deny,
        _ => Authorization::Allow,
    };
    let hook = if allowed { None } else { Some(refuse) };
    connection.authorizer(hook).map_err(store_error)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(panic) => Err(Error::new(ErrorKind::CommitUnknown, "a SQLite call panicked").caused_by(panic)),
    }
}
