//! Transactions that handlers share with the inbox. Tests: `tests/inline.rs`, `tests/finish.rs`.

use std::fmt;
use std::ops::{Deref, DerefMut};

use bytes::Bytes;
use oncebox_core::store::{Claim, Settled};
use oncebox_core::{Fingerprint, HandlerKey, InboxName, Key, Mark, Result};
use sqlx::PgConnection;

use crate::accept::{StagedCounts, StagedMessages};
use crate::db::{Db, Released};
use crate::mark::{MarkQuery, MarkRef, QuarantineValues, find, mark, quarantine, recall, record};
use crate::session::{PgSession, Sessions};
use crate::settle;
use crate::sql::FIXED;

/// An open transaction of a handler. It is a [`PgConnection`] to every query; a transaction begun on it is a savepoint.
/// Dropping it rolls it back; only the library commits it.
pub struct PostgresTx {
    session: PgSession,
    /// True if the store ran the last statement, without an error. Then the transaction is not aborted.
    sound: bool,
    savepoint: bool,
    /// Entries that completions released; workers hear of them after the commit.
    released: Released,
    /// True if the transaction completed an entry with an ordering key: then later entries may be released.
    ordered: bool,
    /// Messages that the transaction accepted. The store reports them after the commit.
    pub(crate) staged: StagedMessages,
    /// Counts of `staged` at the last savepoint.
    kept: StagedCounts,
    /// Keys that the transaction marked. The store remembers them after the commit.
    marked: Vec<(i16, Key, HandlerKey)>,
}

impl PostgresTx {
    /// Opens a transaction. If the caller stops waiting, the pool rolls the connection back before it lends it again.
    pub(crate) async fn begin(sessions: &Sessions) -> Result<Self> {
        Ok(Self {
            session: sessions.handlers_transaction().await?,
            sound: true,
            savepoint: false,
            released: Released::default(),
            ordered: false,
            staged: StagedMessages::default(),
            kept: StagedCounts::default(),
            marked: Vec::new(),
        })
    }

    /// Commits. Returns true if there may be work for other processes.
    pub(crate) async fn commit(mut self, db: &Db) -> Result<bool> {
        if !self.sound {
            // A COMMIT of an aborted transaction rolls back without an error. Any other statement in it fails.
            self.session.check_own().await?;
        }
        self.session.end().await?;
        self.released.notify(db);
        if !self.marked.is_empty() {
            db.timeline.marked(self.marked);
        }
        Ok(self.staged.committed(db) || self.ordered)
    }

    /// Returns true if the connection keeps prepared statements.
    pub(crate) fn is_persistent(&self) -> bool {
        self.session.is_persistent()
    }

    pub(crate) async fn rollback(self) {
        self.session.undo().await;
    }

    pub(crate) async fn mark(
        &mut self,
        db: &Db,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        fingerprint: Option<Fingerprint>,
    ) -> Result<Mark> {
        let mark_query = MarkQuery::new(db, inbox, key, handler, fingerprint);
        let persistent = self.session.is_persistent();
        let mark = mark(mark_query, persistent, &mut self.session).await?;
        if mark == Mark::First {
            self.marked.push((db.lane_of(key), *key, handler.clone()));
        }
        Ok(mark)
    }

    pub(crate) async fn quarantine(&mut self, values: QuarantineValues) -> Result<()> {
        let persistent = self.session.is_persistent();
        quarantine(values, persistent, &mut self.session).await
    }

    pub(crate) async fn record(
        &mut self,
        db: &Db,
        key: &Key,
        handler: &HandlerKey,
        result: &[u8],
    ) -> Result<()> {
        let persistent = self.session.is_persistent();
        record(MarkRef::new(db, key, handler), result, persistent, &mut self.session).await
    }

    pub(crate) async fn recall(&mut self, db: &Db, key: &Key, handler: &HandlerKey) -> Result<Option<Bytes>> {
        let persistent = self.session.is_persistent();
        recall(MarkRef::new(db, key, handler), persistent, &mut self.session).await
    }

    pub(crate) async fn is_marked(&mut self, db: &Db, key: &Key, handler: &HandlerKey) -> Result<bool> {
        let persistent = self.session.is_persistent();
        Ok(find(MarkRef::new(db, key, handler), persistent, &mut self.session).await?.is_some())
    }

    pub(crate) async fn complete(&mut self, db: &Db, claims: &[Claim]) -> Result<Vec<Settled>> {
        let settled = settle::complete(db, &mut self.session, claims).await;
        self.sound = settled.is_ok();
        let (settled, released) = settled?;
        self.released.extend(released);
        self.ordered |= claims.iter().any(|claim| claim.order.is_some());
        Ok(settled)
    }

    /// Completes the claim and commits, if it holds. Returns true if there may be work for other processes.
    pub(crate) async fn finish(mut self, db: &Db, claim: &Claim) -> Result<(Settled, bool)> {
        if claim.order.is_none()
            && !self.ordered
            && self.session.is_persistent()
            && let Some(completion) = settle::completion_text(db, claim).await?
        {
            let settled = self.session.finish(completion).await?;
            return Ok((settled, settled == Settled::Applied && self.staged.committed(db)));
        }
        // Boxed: a rare case must not enlarge the future of every handler.
        let settled = Box::pin(self.complete(db, std::slice::from_ref(claim))).await?;
        match settled.first() {
            Some(Settled::Applied) => Ok((Settled::Applied, Box::pin(self.commit(db)).await?)),
            _ => Ok((Settled::LeaseLost, false)),
        }
    }

    pub(crate) async fn hold(&mut self, db: &Db, claims: &[Claim]) -> Result<Vec<Settled>> {
        settle::hold(db, &mut self.session, claims).await
    }

    /// Starts the next run's part with a savepoint, and keeps the part of the run before.
    pub(crate) async fn savepoint(&mut self) -> Result<()> {
        let sql = if self.savepoint { FIXED.share_next } else { FIXED.share_savepoint };
        self.session.batch(sql.into()).await?;
        self.savepoint = true;
        self.kept = self.staged.counts();
        Ok(())
    }

    /// Rolls back the part of the last run.
    pub(crate) async fn rollback_to_savepoint(&mut self) -> Result<()> {
        self.staged.undo(self.kept);
        self.session.batch(FIXED.share_undo.into()).await
    }
}

impl Deref for PostgresTx {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.session
    }
}

impl DerefMut for PostgresTx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.sound = false;
        &mut self.session
    }
}

impl fmt::Debug for PostgresTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresTx").finish_non_exhaustive()
    }
}
