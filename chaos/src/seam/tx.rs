//! Verbs of a handler's own transaction, between failpoints. Tests: tests/short.rs.

use std::future::Future;

use bytes::Bytes;
use oncebox::store::{
    AcceptIn, Accepted, Claim, Mark, MarkIn, NewMessage, SettleIn, Settled, ShareIn, Transactional,
};
use oncebox::{Error, ErrorKind, Fingerprint, HandlerKey, InboxName, Key, Result};

use super::points::PointFault;
use super::{Chaos, Rigged};
use crate::ledger::SettleResult;

/// A transaction and the completions in it, which count after its commit.
#[derive(Debug)]
pub(crate) struct ChaosTx<T> {
    pub(super) tx: T,
    completed: Vec<Claim>,
}

impl<S: Rigged> Chaos<S> {
    /// Commits; or rolls back and reports something else.
    async fn end<T, F>(&self, tx: S::Tx, commit: impl FnOnce(S::Tx) -> F + Send) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send,
    {
        let fault = self.notes.points.draw("commit");
        let (kind, what) = match fault {
            Some(PointFault::ErrBefore) => (ErrorKind::Unavailable, "error"),
            Some(PointFault::UnknownBefore) => (ErrorKind::CommitUnknown, "unknown"),
            _ => return self.run_as("commit", fault, commit(tx)).await,
        };
        self.store.rollback(tx).await;
        self.fault("commit.before", what);
        Err(Error::new(kind, "chaos: commit was not done"))
    }

    fn completed(&self, tx: &mut ChaosTx<S::Tx>, claims: &[Claim], settled: &[Settled]) {
        for (claim, one) in claims.iter().zip(settled) {
            match one {
                Settled::Applied => tx.completed.push(claim.clone()),
                Settled::LeaseLost => self.notes.settled(claim, "completed", "done", SettleResult::Lost),
            }
        }
    }
}

/// Returns the response for the contents of a failed commit.
fn doubt(error: &Error) -> SettleResult {
    if error.kind() == ErrorKind::CommitUnknown { SettleResult::Unknown } else { SettleResult::Error }
}

impl<S: Rigged> Transactional for Chaos<S> {
    type Tx = ChaosTx<S::Tx>;

    async fn begin(&self) -> Result<ChaosTx<S::Tx>> {
        let tx = self.run("begin", self.store.begin()).await?;
        Ok(ChaosTx { tx, completed: Vec::new() })
    }

    async fn commit(&self, tx: ChaosTx<S::Tx>) -> Result<()> {
        let committed = self.end(tx.tx, |tx| self.store.commit(tx)).await;
        let answer = committed.as_ref().map_or_else(doubt, |()| SettleResult::Applied);
        for claim in &tx.completed {
            self.notes.settled(claim, "completed", "done", answer);
        }
        committed
    }

    async fn finish(&self, tx: ChaosTx<S::Tx>, claim: &Claim) -> Result<Settled> {
        let finished = self.end(tx.tx, |tx| self.store.finish(tx, claim)).await;
        let answer = finished.as_ref().map_or_else(doubt, |settled| match settled {
            Settled::Applied => SettleResult::Applied,
            Settled::LeaseLost => SettleResult::Lost,
        });
        self.notes.settled(claim, "completed", "done", answer);
        finished
    }

    async fn rollback(&self, tx: ChaosTx<S::Tx>) {
        self.store.rollback(tx.tx).await;
    }
}

impl<S: Rigged> MarkIn<ChaosTx<S::Tx>> for Chaos<S> {
    fn mark(
        &self,
        tx: &mut ChaosTx<S::Tx>,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        fingerprint: Option<Fingerprint>,
    ) -> impl Future<Output = Result<Mark>> + Send {
        self.run("mark", self.store.mark(&mut tx.tx, inbox, key, handler, fingerprint))
    }

    fn quarantine(
        &self,
        tx: &mut ChaosTx<S::Tx>,
        message: &NewMessage,
    ) -> impl Future<Output = Result<()>> + Send {
        self.store.quarantine(&mut tx.tx, message)
    }

    fn record(
        &self,
        tx: &mut ChaosTx<S::Tx>,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        result: &[u8],
    ) -> impl Future<Output = Result<()>> + Send {
        self.store.record(&mut tx.tx, inbox, key, handler, result)
    }

    fn recall(
        &self,
        tx: &mut ChaosTx<S::Tx>,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> impl Future<Output = Result<Option<Bytes>>> + Send {
        self.store.recall(&mut tx.tx, inbox, key, handler)
    }

    fn is_marked(
        &self,
        tx: &mut ChaosTx<S::Tx>,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> impl Future<Output = Result<bool>> + Send {
        self.store.is_marked(&mut tx.tx, inbox, key, handler)
    }
}

impl<S: Rigged> AcceptIn<ChaosTx<S::Tx>> for Chaos<S> {
    fn accept_in(
        &self,
        tx: &mut ChaosTx<S::Tx>,
        batch: &[NewMessage],
    ) -> impl Future<Output = Result<Vec<Accepted>>> + Send {
        self.store.accept_in(&mut tx.tx, batch)
    }
}

impl<S: Rigged> SettleIn<ChaosTx<S::Tx>> for Chaos<S> {
    async fn complete(&self, tx: &mut ChaosTx<S::Tx>, claim: &Claim) -> Result<Settled> {
        let settled = self.run("complete", self.store.complete(&mut tx.tx, claim)).await?;
        self.completed(tx, std::slice::from_ref(claim), &[settled]);
        Ok(settled)
    }
}

impl<S: Rigged> ShareIn<ChaosTx<S::Tx>> for Chaos<S> {
    fn hold(
        &self,
        tx: &mut ChaosTx<S::Tx>,
        claims: &[Claim],
    ) -> impl Future<Output = Result<Vec<Settled>>> + Send {
        self.run("hold", self.store.hold(&mut tx.tx, claims))
    }

    fn savepoint(&self, tx: &mut ChaosTx<S::Tx>) -> impl Future<Output = Result<()>> + Send {
        self.store.savepoint(&mut tx.tx)
    }

    fn rollback_to_savepoint(&self, tx: &mut ChaosTx<S::Tx>) -> impl Future<Output = Result<()>> + Send {
        self.store.rollback_to_savepoint(&mut tx.tx)
    }

    async fn complete_all(&self, tx: &mut ChaosTx<S::Tx>, claims: &[Claim]) -> Result<Vec<Settled>> {
        let settled = self.run("complete", self.store.complete_all(&mut tx.tx, claims)).await?;
        self.completed(tx, claims, &settled);
        Ok(settled)
    }
}
