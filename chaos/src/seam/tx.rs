//! The verbs of a handler's own transaction, between the failpoints.

use std::future::Future;

use bytes::Bytes;
use oncebox::store::{Claim, Mark, MarkIn, SettleIn, Settled, ShareIn, Transactional};
use oncebox::{Error, ErrorKind, HandlerKey, InboxName, Key, Result};

use super::points::Fault;
use super::{Chaos, answer_of};
use crate::ledger::Answer;

impl<S: Transactional> Chaos<S> {
    /// Ends a transaction through `end`, or rolls it back and says something else.
    async fn end<T, F>(&self, verb: &'static str, tx: S::Tx, end: impl FnOnce(S::Tx) -> F + Send) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send,
    {
        let fault = self.notes.points.draw(verb);
        let kind = match fault {
            Some(Fault::ErrBefore) => ErrorKind::Unavailable,
            Some(Fault::UnknownBefore) => ErrorKind::CommitUnknown,
            _ => return self.run_as(verb, fault, end(tx)).await,
        };
        self.store.rollback(tx).await;
        let (point, what) =
            (format!("{verb}.before"), if fault == Some(Fault::ErrBefore) { "error" } else { "unknown" });
        self.fault(&point, what);
        Err(Error::new(kind, format!("chaos: {verb} was not done")))
    }
}

impl<S: Transactional> Transactional for Chaos<S> {
    type Tx = S::Tx;

    async fn begin(&self) -> Result<S::Tx> {
        self.run("begin", self.store.begin()).await
    }

    async fn commit(&self, tx: S::Tx) -> Result<()> {
        self.end("commit", tx, |tx| self.store.commit(tx)).await
    }

    async fn rollback(&self, tx: S::Tx) {
        self.store.rollback(tx).await;
    }

    async fn finish(&self, tx: S::Tx, claim: &Claim) -> Result<Settled> {
        let finished = self.end("finish", tx, |tx| self.store.finish(tx, claim)).await;
        let all = finished.as_ref().map(|one| vec![*one]).map_err(|error| Error::new(error.kind(), ""));
        self.notes.settled(claim, "completed", "done", answer_of(&all, 0));
        finished
    }
}

impl<Tx: ?Sized, S: MarkIn<Tx>> MarkIn<Tx> for Chaos<S> {
    fn mark(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> impl Future<Output = Result<Mark>> + Send {
        self.run("mark", self.store.mark(tx, inbox, key, handler))
    }

    fn record(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        result: &[u8],
    ) -> impl Future<Output = Result<()>> + Send {
        self.store.record(tx, inbox, key, handler, result)
    }

    fn recall(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> impl Future<Output = Result<Option<Bytes>>> + Send {
        self.store.recall(tx, inbox, key, handler)
    }
}

impl<Tx: ?Sized, S: SettleIn<Tx>> SettleIn<Tx> for Chaos<S> {
    fn complete(&self, tx: &mut Tx, claim: &Claim) -> impl Future<Output = Result<Settled>> + Send {
        self.store.complete(tx, claim)
    }
}

impl<Tx: ?Sized, S: ShareIn<Tx>> ShareIn<Tx> for Chaos<S> {
    fn hold(&self, tx: &mut Tx, claims: &[Claim]) -> impl Future<Output = Result<Vec<Settled>>> + Send {
        self.run("hold", self.store.hold(tx, claims))
    }

    fn savepoint(&self, tx: &mut Tx) -> impl Future<Output = Result<()>> + Send {
        self.store.savepoint(tx)
    }

    fn rollback_to_savepoint(&self, tx: &mut Tx) -> impl Future<Output = Result<()>> + Send {
        self.store.rollback_to_savepoint(tx)
    }

    fn complete_all(
        &self,
        tx: &mut Tx,
        claims: &[Claim],
    ) -> impl Future<Output = Result<Vec<Settled>>> + Send {
        let call = self.store.complete_all(tx, claims);
        async move {
            let settled = call.await?;
            for (claim, one) in claims.iter().zip(&settled) {
                // Whether it is committed is not known here.
                let answer = if *one == Settled::Applied { Answer::Unknown } else { Answer::Lost };
                self.notes.settled(claim, "completed", "done", answer);
            }
            Ok(settled)
        }
    }
}
