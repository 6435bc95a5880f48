//! Database sessions: a statement that commits by itself, or a transaction. Tests: below, and `tests/unknown.rs`.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use futures_util::TryStreamExt as _;
use oncebox_core::store::Settled;
use oncebox_core::{Error, ErrorKind, Result};
use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::Query as SqlxQuery;
use sqlx::{AssertSqlSafe, Executor as _, Postgres, SqlSafeStr as _};
use sqlx_core::transaction::TransactionManager as _;

use crate::connect::{Manager, Pool, PooledConn, roll_back};
use crate::error::{TxPhase, corrupt, is_connection_lost, refused, store_error};
use crate::row::get;
use crate::sql::FIXED;
use crate::timeline::{Notice, Timeline, changed};

/// Query of the store.
pub(crate) type Query<'q> = SqlxQuery<'q, Postgres, PgArguments>;

/// Source of sessions for statements that write.
#[derive(Clone)]
pub(crate) struct Sessions {
    pub(crate) pool: Pool,
    /// Starts a transaction. Through a pooler, it also contains the settings that a direct connection gets
    /// once.
    pub(crate) begin: Arc<str>,
    /// True if each transaction may get another connection. Then the session keeps no state between transactions.
    pub(crate) pooled: bool,
    /// Known history of the database. Set for sessions that claim tokens or store messages.
    pub(crate) timeline: Option<Arc<Timeline>>,
    /// Number of timeline changes that the caller knew when it read the names that it uses.
    pub(crate) known: Option<u64>,
}

impl Sessions {
    /// Returns sessions for a caller whose cached name ids are from `changes` of the timeline. If the timeline has changed since,
    /// the caller gets an error and starts over.
    pub(crate) fn knowing(&self, changes: u64) -> Self {
        Self { known: Some(changes), ..self.clone() }
    }

    /// Borrows a connection. Returns an error if the timeline has changed since the caller read its names.
    async fn acquire(&self) -> Result<PooledConn> {
        let conn = self.pool.acquire().await?;
        self.refuse_former().map(|()| conn)
    }

    fn refuse_former(&self) -> Result<()> {
        match (&self.timeline, self.known) {
            (Some(timeline), Some(changes)) => timeline.refuse_former(changes),
            _ => Ok(()),
        }
    }

    /// Opens a session for one statement that commits by itself.
    pub(crate) async fn single(&self) -> Result<PgSession> {
        if self.pooled {
            return self.transaction().await;
        }
        Ok(PgSession { conn: self.acquire().await?, begun: TxStart::No, looks: false, persistent: true })
    }

    /// Opens a session for a claim. Checks behind a pooler that its connection has the timeline that this process
    /// knows.
    pub(crate) async fn claiming(&self) -> Result<PgSession> {
        match self.timeline.as_ref().filter(|_| self.pooled) {
            Some(timeline) => self.checked(timeline).await,
            None => self.single().await,
        }
    }

    /// Begins a transaction behind a pooler, which may have changed the server. Checks the timeline as the transaction
    /// begins.
    async fn checked(&self, timeline: &Timeline) -> Result<PgSession> {
        let mut conn = self.acquire().await?;
        let begin = AssertSqlSafe(format!("{}; {}", self.begin, timeline.check_pooled()));
        let rows = conn
            .answer(TxPhase::Before, async |connection: &mut PgConnection| {
                connection.fetch_all(sqlx::raw_sql(begin)).await
            })
            .await?;
        let mut session = PgSession { conn, begun: TxStart::Plain, looks: false, persistent: false };
        let row = rows.last().ok_or_else(|| corrupt("the check of the timeline has no answer"))?;
        if let Some(change) = timeline.notice(&mut session, row).await? {
            session.end().await?;
            return match change.committed() {
                Notice::Changed => Err(changed()),
                Notice::First => Box::pin(self.checked(timeline)).await,
            };
        }
        self.refuse_former()?;
        Ok(session)
    }

    /// Opens a session for read-only statements.
    pub(crate) async fn look(&self) -> Result<PgSession> {
        Ok(PgSession { looks: true, ..self.single().await? })
    }

    /// Opens a read-only transaction: all statements see one snapshot.
    pub(crate) async fn view(&self) -> Result<PgSession> {
        Ok(PgSession { looks: true, ..self.transaction().await? })
    }

    /// Begins a transaction of several statements.
    pub(crate) async fn transaction(&self) -> Result<PgSession> {
        if let (Some(timeline), true, Some(_)) = (&self.timeline, self.pooled, self.known) {
            return self.checked(timeline).await;
        }
        let mut conn = self.acquire().await?;
        let begin = Arc::clone(&self.begin);
        conn.answer(TxPhase::Before, async |connection: &mut PgConnection| {
            connection.execute(sqlx::raw_sql(AssertSqlSafe(begin))).await
        })
        .await?;
        Ok(PgSession { conn, begun: TxStart::Plain, looks: false, persistent: !self.pooled })
    }

    /// Begins a transaction for a handler.
    pub(crate) async fn handlers_transaction(&self) -> Result<PgSession> {
        let mut conn = self.pool.acquire().await?;
        if !conn.is_begun() {
            let begin = AssertSqlSafe(Arc::clone(&self.begin)).into_sql_str();
            conn.answer(TxPhase::Before, async |connection: &mut PgConnection| {
                Manager::begin(connection, Some(begin)).await
            })
            .await?;
        }
        Ok(PgSession { conn, begun: TxStart::Counted, looks: false, persistent: !self.pooled })
    }
}

/// Begin mode of a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TxStart {
    /// No transaction: each statement commits by itself.
    No,
    /// The store began it, unseen by the driver.
    Plain,
    /// The driver began it. A transaction that a handler begins in it is a savepoint.
    Counted,
}

/// A statement or transaction in progress. Dropping it rolls it back.
pub(crate) struct PgSession {
    conn: PooledConn,
    begun: TxStart,
    /// True for a read-only session: a lost answer then leaves no doubt.
    looks: bool,
    persistent: bool,
}

impl PgSession {
    fn phase(&self) -> TxPhase {
        if self.begun == TxStart::No && !self.looks { TxPhase::Commit } else { TxPhase::Before }
    }

    /// Runs a statement and returns its rows.
    pub(crate) async fn rows(&mut self, query: Query<'_>) -> Result<Vec<PgRow>> {
        let (phase, query) = (self.phase(), query.persistent(self.persistent));
        self.conn.answer(phase, async |connection: &mut PgConnection| query.fetch_all(connection).await).await
    }

    /// Runs a statement and returns the number of changed rows.
    pub(crate) async fn run(&mut self, query: Query<'_>) -> Result<u64> {
        let (phase, query) = (self.phase(), query.persistent(self.persistent));
        let done = self
            .conn
            .answer(phase, async |connection: &mut PgConnection| query.execute(connection).await)
            .await?;
        Ok(done.rows_affected())
    }

    /// Runs several statements without values.
    pub(crate) async fn batch(&mut self, sql: Arc<str>) -> Result<()> {
        let phase = self.phase();
        self.conn
            .answer(phase, async |connection: &mut PgConnection| {
                connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await
            })
            .await?;
        Ok(())
    }

    /// Returns an error if the handler ended its transaction, or began another one instead.
    pub(crate) async fn check_own(&mut self) -> Result<()> {
        let rows = self.rows(sqlx::query(FIXED.transaction_probe)).await?;
        if rows.first().map_or(Ok(false), |row| get(row, 0))? {
            return Ok(());
        }
        Err(ended())
    }

    /// Returns true if the session keeps prepared statements.
    pub(crate) fn is_persistent(&self) -> bool {
        self.persistent
    }

    /// Rolls back, and returns the connection to the pool. If the rollback fails, the effect is the same as dropping
    /// the session.
    pub(crate) async fn undo(mut self) {
        let undone = self
            .conn
            .answer(TxPhase::Before, async |connection: &mut PgConnection| roll_back(connection).await);
        if undone.await.is_ok() {
            self.conn.give_back();
        }
    }

    /// Returns true if the commit of a handler's transaction also begins the next one. A waiting caller then gets the
    /// connection with a transaction, one round trip earlier.
    pub(crate) fn chains(&self) -> bool {
        self.begun == TxStart::Counted && self.persistent && self.conn.is_waited_for()
    }

    /// Returns an error if the handler ended its transaction: only the store may commit a handler's writes.
    fn check_depth(&self) -> Result<()> {
        if self.begun == TxStart::Counted && Manager::get_transaction_depth(&self.conn) != 1 {
            let what = "a transaction that the handler began within its own was left open";
            return Err(Error::new(ErrorKind::Handler, what));
        }
        Ok(())
    }

    /// Completes the claim of a handler's transaction and commits. Needs one round trip if that also begins the next
    /// transaction. Commits nothing if the claim is lost.
    pub(crate) async fn finish(mut self, completion: String) -> Result<Settled> {
        self.check_depth()?;
        if !self.chains() {
            return match self.send(TxPhase::Before, completion).await? {
                PipelineResult::All => self.end().await.map(|()| Settled::Applied),
                PipelineResult::Failed { error, .. } => refusal(error),
            };
        }
        // The completion is the second of its two statements. The COMMIT follows them.
        let sql = format!("{completion};\n{}", FIXED.transaction_chain);
        match self.send(TxPhase::HandlersCommit, sql).await? {
            PipelineResult::All => self.conn.return_to_pool(),
            PipelineResult::Failed { done, error } => match FailedAt::of(done, 2) {
                FailedAt::Before => return refusal(error),
                FailedAt::Commit => return Err(store_error(error, TxPhase::HandlersCommit)),
                FailedAt::Behind => not_begun(&error),
            },
        }
        Ok(Settled::Applied)
    }

    /// Commits, and returns the connection to the pool.
    pub(crate) async fn end(mut self) -> Result<()> {
        self.check_depth()?;
        if self.chains() {
            match self.send(TxPhase::HandlersCommit, FIXED.transaction_chain.to_owned()).await? {
                PipelineResult::All => self.conn.return_to_pool(),
                PipelineResult::Failed { done, error } => match FailedAt::of(done, 0) {
                    FailedAt::Before | FailedAt::Commit => {
                        return Err(store_error(error, TxPhase::HandlersCommit));
                    }
                    FailedAt::Behind => not_begun(&error),
                },
            }
            return Ok(());
        }
        let begun = self.begun;
        if begun != TxStart::No {
            let phase = match begun {
                TxStart::Counted => TxPhase::HandlersCommit,
                _ if self.looks => TxPhase::Before,
                TxStart::Plain | TxStart::No => TxPhase::Commit,
            };
            self.conn
                .answer(phase, async |connection: &mut PgConnection| match begun {
                    TxStart::Counted => Manager::commit(connection).await,
                    TxStart::Plain | TxStart::No => run(connection, FIXED.transaction_commit).await,
                })
                .await?;
        }
        self.conn.give_back();
        Ok(())
    }

    /// Sends several statements without values. `lost` is the phase for the error if no answer arrives.
    async fn send(&mut self, lost: TxPhase, sql: String) -> Result<PipelineResult> {
        self.conn
            .answer(lost, async |connection: &mut PgConnection| {
                let mut done = 0;
                let mut answers = connection.fetch_many(sqlx::raw_sql(AssertSqlSafe(sql)));
                loop {
                    match answers.try_next().await {
                        Ok(None) => return Ok(PipelineResult::All),
                        Ok(Some(answer)) => done += usize::from(answer.is_left()),
                        Err(error) if is_connection_lost(&error) => return Err(error),
                        Err(error) => return Ok(PipelineResult::Failed { done, error }),
                    }
                }
            })
            .await
    }
}

/// Result of several statements that were sent together.
enum PipelineResult {
    All,
    /// The server refused a statement, and so all statements after it. `done` statements succeeded before.
    Failed {
        done: usize,
        error: sqlx::Error,
    },
}

/// Position of the statement that failed, of several.
#[derive(Debug, PartialEq, Eq)]
enum FailedAt {
    Before,
    Commit,
    /// After the commit, which succeeded.
    Behind,
}

impl FailedAt {
    /// Returns the position from the counts of completed statements and of statements before the COMMIT.
    fn of(done: usize, before: usize) -> Self {
        match done.cmp(&before) {
            std::cmp::Ordering::Less => Self::Before,
            std::cmp::Ordering::Equal => Self::Commit,
            std::cmp::Ordering::Greater => Self::Behind,
        }
    }
}

/// Logs that the commit succeeded, but the next transaction did not begin. The pool resets the connection
/// before it lends it.
fn not_begun(error: &sqlx::Error) {
    tracing::debug!(%error, "cannot begin transaction with last commit");
}

/// Returns `LeaseLost` if the claim is lost, or the error that prevented its completion.
fn refusal(error: sqlx::Error) -> Result<Settled> {
    match refused(&error) {
        Some("seq") => Ok(Settled::LeaseLost),
        Some(_) => Err(ended()),
        None => Err(store_error(error, TxPhase::Before)),
    }
}

impl Deref for PgSession {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.conn
    }
}

impl DerefMut for PgSession {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.conn
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::TransactionEnded, "the handler has ended the transaction that it was given")
}

pub(crate) async fn run(connection: &mut PgConnection, sql: &'static str) -> sqlx::Result<()> {
    connection.execute(sqlx::raw_sql(sql)).await.map(|_| ())
}

/// Returns a query with a statement of the store.
pub(crate) fn query<'q>(sql: &Arc<str>) -> Query<'q> {
    sqlx::query(AssertSqlSafe(Arc::clone(sql)))
}

#[cfg(test)]
mod tests {
    use super::*;

    // FAULTS A4: a cancel between the COMMIT and the next BEGIN finds everything committed.
    #[test]
    fn what_fails_behind_a_commit_is_no_proof_that_it_failed() {
        assert_eq!(
            [0, 1, 2, 3, 4].map(|done| FailedAt::of(done, 2)),
            [FailedAt::Before, FailedAt::Before, FailedAt::Commit, FailedAt::Behind, FailedAt::Behind]
        );
        assert_eq!(
            [0, 1, 2].map(|done| FailedAt::of(done, 0)),
            [FailedAt::Commit, FailedAt::Behind, FailedAt::Behind]
        );
    }
}
