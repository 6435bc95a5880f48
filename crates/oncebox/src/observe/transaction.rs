//! Metrics, spans and logs around the calls of a handler's own transaction. Tests: `tests/share.rs`, `tests/inline.rs`.

use std::future::Future;

use bytes::Bytes;

use super::observed::lost;
use super::{Observed, emit, names};
use crate::error::Result;
use crate::key::{Fingerprint, Key};
use crate::name::{HandlerKey, InboxName};
use crate::store::{
    AcceptIn, Accepted, Claim, Mark, MarkIn, NewMessage, SettleIn, Settled, ShareIn, Transactional,
};

impl<S: Transactional> Transactional for Observed<S> {
    type Tx = S::Tx;

    async fn begin(&self) -> Result<Self::Tx> {
        self.observe("begin", 1, self.store.begin()).await
    }

    async fn commit(&self, tx: Self::Tx) -> Result<()> {
        self.observe("commit", 1, self.store.commit(tx)).await
    }

    async fn finish(&self, tx: Self::Tx, claim: &Claim) -> Result<Settled> {
        let settled = self.observe("finish", 1, self.store.finish(tx, claim)).await?;
        lost("finish", &[settled], &Settled::LeaseLost);
        Ok(settled)
    }

    async fn rollback(&self, tx: Self::Tx) {
        // A rollback returns no error.
        let call = async {
            self.store.rollback(tx).await;
            Ok(())
        };
        let _ = self.observe("rollback", 1, call).await;
    }
}

impl<S> Observed<S> {
    async fn observe_claims(
        &self,
        verb: &'static str,
        claims: &[Claim],
        call: impl Future<Output = Result<Vec<Settled>>>,
    ) -> Result<Vec<Settled>> {
        let settled = self.observe(verb, claims.len(), call).await?;
        lost(verb, &settled, &Settled::LeaseLost);
        for (claim, _) in claims.iter().zip(&settled).filter(|(_, settled)| **settled == Settled::LeaseLost) {
            self.watch().lost(claim);
        }
        Ok(settled)
    }
}

impl<Tx: ?Sized, S: MarkIn<Tx>> MarkIn<Tx> for Observed<S> {
    fn mark(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        fingerprint: Option<Fingerprint>,
    ) -> impl Future<Output = Result<Mark>> + Send {
        let call = self.store.mark(tx, inbox, key, handler, fingerprint);
        async move {
            let mark = self.observe("mark", 1, call).await?;
            let outcome = emit::word("outcome", mark.as_str());
            emit::count(names::MARKED, 1, [emit::inbox(inbox), emit::handler(handler), outcome]);
            Ok(mark)
        }
    }

    fn quarantine(&self, tx: &mut Tx, message: &NewMessage) -> impl Future<Output = Result<()>> + Send {
        self.observe("quarantine", 1, self.store.quarantine(tx, message))
    }

    fn record(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        result: &[u8],
    ) -> impl Future<Output = Result<()>> + Send {
        self.observe("record", 1, self.store.record(tx, inbox, key, handler, result))
    }

    fn recall(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> impl Future<Output = Result<Option<Bytes>>> + Send {
        self.observe("recall", 1, self.store.recall(tx, inbox, key, handler))
    }

    fn is_marked(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> impl Future<Output = Result<bool>> + Send {
        self.observe("is_marked", 1, self.store.is_marked(tx, inbox, key, handler))
    }
}

/// Counts calls only: whether the messages are stored is known at the commit, which may be the caller's.
impl<Tx: ?Sized, S: AcceptIn<Tx>> AcceptIn<Tx> for Observed<S> {
    fn accept_in(
        &self,
        tx: &mut Tx,
        batch: &[NewMessage],
    ) -> impl Future<Output = Result<Vec<Accepted>>> + Send {
        self.observe("accept_in", batch.len(), self.store.accept_in(tx, batch))
    }
}

impl<Tx: ?Sized, S: SettleIn<Tx>> SettleIn<Tx> for Observed<S> {
    fn complete(&self, tx: &mut Tx, claim: &Claim) -> impl Future<Output = Result<Settled>> + Send {
        let call = self.store.complete(tx, claim);
        async move {
            let settled = self.observe("complete", 1, call).await?;
            lost("complete", &[settled], &Settled::LeaseLost);
            Ok(settled)
        }
    }
}

impl<Tx: ?Sized, S: ShareIn<Tx>> ShareIn<Tx> for Observed<S> {
    fn hold(&self, tx: &mut Tx, claims: &[Claim]) -> impl Future<Output = Result<Vec<Settled>>> + Send {
        self.observe_claims("hold", claims, self.store.hold(tx, claims))
    }

    fn savepoint(&self, tx: &mut Tx) -> impl Future<Output = Result<()>> + Send {
        self.observe("savepoint", 1, self.store.savepoint(tx))
    }

    fn rollback_to_savepoint(&self, tx: &mut Tx) -> impl Future<Output = Result<()>> + Send {
        self.observe("rollback_to_savepoint", 1, self.store.rollback_to_savepoint(tx))
    }

    fn complete_all(
        &self,
        tx: &mut Tx,
        claims: &[Claim],
    ) -> impl Future<Output = Result<Vec<Settled>>> + Send {
        self.observe_claims("complete_all", claims, self.store.complete_all(tx, claims))
    }
}
