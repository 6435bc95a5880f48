//! Bugs in a handler's own transaction. Tests: `cargo xtask chaos sabotage`.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use oncebox::state::Settlement;
use oncebox::store::{
    AcceptIn, Accepted, Claim, Mark, MarkIn, NewMessage, SettleIn, Settled, ShareIn, Transactional,
};
use oncebox::{Fingerprint, HandlerKey, InboxName, Key, Result};

use super::super::{Rigged, pause};
use super::Sabotaged;
use crate::bugs::Bug;

impl<S: Rigged + Clone> Transactional for Sabotaged<S> {
    type Tx = S::Tx;

    async fn begin(&self) -> Result<S::Tx> {
        self.store.begin().await
    }

    async fn commit(&self, tx: S::Tx) -> Result<()> {
        self.store.commit(tx).await?;
        let owed = self.tinker.take_completions();
        if !owed.is_empty() {
            pause(Duration::from_millis(15)).await;
            let owed: Vec<Settlement> = owed.iter().map(Settlement::done).collect();
            let _ = oncebox::Store::settle(&self.store, &owed).await?;
        }
        for (inbox, key, handler) in self.tinker.take_marks() {
            // The work is done; write the mark last.
            pause(Duration::from_millis(20)).await;
            let mut tx = self.store.begin().await?;
            let _ = self.store.mark(&mut tx, &inbox, &key, &handler, None).await?;
            self.store.commit(tx).await?;
        }
        Ok(())
    }

    async fn rollback(&self, tx: S::Tx) {
        self.store.rollback(tx).await;
    }
}

impl<S: Rigged + Clone> MarkIn<S::Tx> for Sabotaged<S> {
    async fn mark(
        &self,
        tx: &mut S::Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        fingerprint: Option<Fingerprint>,
    ) -> Result<Mark> {
        if !self.is(Bug::CheckThenInsert) {
            return self.store.mark(tx, inbox, key, handler, fingerprint).await;
        }
        // A read-only transaction.
        let mut reader = self.store.begin().await?;
        let found = self.store.mark(&mut reader, inbox, key, handler, fingerprint).await?;
        self.store.rollback(reader).await;
        if found == Mark::First {
            self.tinker.mark_later((inbox.clone(), *key, handler.clone()));
        }
        Ok(found)
    }

    async fn quarantine(&self, tx: &mut S::Tx, message: &NewMessage) -> Result<()> {
        self.store.quarantine(tx, message).await
    }

    async fn record(
        &self,
        tx: &mut S::Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        result: &[u8],
    ) -> Result<()> {
        self.store.record(tx, inbox, key, handler, result).await
    }

    async fn recall(
        &self,
        tx: &mut S::Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> Result<Option<Bytes>> {
        self.store.recall(tx, inbox, key, handler).await
    }

    async fn is_marked(
        &self,
        tx: &mut S::Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> Result<bool> {
        self.store.is_marked(tx, inbox, key, handler).await
    }
}

impl<S: Rigged + Clone> AcceptIn<S::Tx> for Sabotaged<S> {
    fn accept_in(
        &self,
        tx: &mut S::Tx,
        batch: &[NewMessage],
    ) -> impl Future<Output = Result<Vec<Accepted>>> + Send {
        self.store.accept_in(tx, batch)
    }
}

impl<S: Rigged + Clone> SettleIn<S::Tx> for Sabotaged<S> {
    async fn complete(&self, tx: &mut S::Tx, claim: &Claim) -> Result<Settled> {
        match self.bug {
            Some(Bug::UnfencedComplete) => {
                let _ = self.store.complete(tx, claim).await?;
                Ok(Settled::Applied)
            }
            Some(Bug::CompletionApart) => {
                self.tinker.complete_later(claim.clone());
                Ok(Settled::Applied)
            }
            _ => self.store.complete(tx, claim).await,
        }
    }
}

impl<S: Rigged + Clone> ShareIn<S::Tx> for Sabotaged<S> {
    fn hold(&self, tx: &mut S::Tx, claims: &[Claim]) -> impl Future<Output = Result<Vec<Settled>>> + Send {
        self.store.hold(tx, claims)
    }

    fn savepoint(&self, tx: &mut S::Tx) -> impl Future<Output = Result<()>> + Send {
        self.store.savepoint(tx)
    }

    fn rollback_to_savepoint(&self, tx: &mut S::Tx) -> impl Future<Output = Result<()>> + Send {
        self.store.rollback_to_savepoint(tx)
    }

    fn complete_all(
        &self,
        tx: &mut S::Tx,
        claims: &[Claim],
    ) -> impl Future<Output = Result<Vec<Settled>>> + Send {
        self.store.complete_all(tx, claims)
    }
}
