//! Wraps the store's verbs: seals their input and opens their output. Tests: `tests/conformance.rs`.

use async_trait::async_trait;
use oncebox_core::Result;
use oncebox_core::state::{ErrorText, Outcome, Policies, Settlement};
use oncebox_core::store::{
    Accepted, ClaimParams, Claimed, Layer, NewMessage, RescueParams, Settled, Store, StoreLayer,
};

use crate::Sealed;
use crate::seal::Unreadable;

/// Maximum claims per call while all claimed entries are unreadable.
const ROUNDS: usize = 16;

impl<S: Store> Sealed<S> {
    /// Opens claimed messages. Settles unreadable messages, so that they keep no other entry waiting. A
    /// message that a newer process may be able to read waits for one for a while. In the end, unreadable
    /// messages are poisoned, for an operator with the key.
    async fn readable(&self, claimed: Vec<Claimed>, policies: &Policies) -> Result<(Vec<Claimed>, usize)> {
        let (mut readable, mut unreadable, mut whys) = (Vec::new(), Vec::new(), Vec::new());
        for Claimed { claim, message } in claimed {
            match self.open_message(&claim.inbox, &claim.key, &message) {
                Ok(message) => readable.push(Claimed { claim, message }),
                Err(why) => {
                    let error = ErrorText::new(format!("the stored message cannot be read: {why}"));
                    let outcome = match why {
                        Unreadable::NoKey(_) => Outcome::Undecodable { error },
                        Unreadable::Forged | Unreadable::Plain | Unreadable::Unbound => {
                            Outcome::Reject { error }
                        }
                    };
                    unreadable.push(claim.settle(&policies.of(&claim.handler), outcome));
                    whys.push((claim.seq, claim.handler, why));
                }
            }
        }
        if !unreadable.is_empty() {
            Store::settle(self, &unreadable).await?;
        }
        for (seq, handler, why) in whys {
            tracing::error!(seq = seq.0, %handler, %why, "a stored message cannot be read");
        }
        Ok((readable, unreadable.len()))
    }
}

impl<S: Store> Layer for Sealed<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        &self.store
    }
}

#[async_trait]
impl<S: Store> StoreLayer for Sealed<S> {
    async fn accept(&self, batch: &[NewMessage]) -> Result<Vec<Accepted>> {
        let keys = self.keys.keys();
        let sealed: Vec<NewMessage> =
            batch.iter().map(|new| Self::seal_new(&keys, new)).collect::<Result<_>>()?;
        self.store.accept(&sealed).await
    }

    async fn claim(&self, params: &ClaimParams) -> Result<Vec<Claimed>> {
        for _ in 1..ROUNDS {
            let claimed = self.store.claim(params).await?;
            let (readable, unreadable) = self.readable(claimed, &params.policies).await?;
            // There may be more entries behind the unreadable ones.
            if unreadable == 0 || !readable.is_empty() {
                return Ok(readable);
            }
        }
        Ok(self.readable(self.store.claim(params).await?, &params.policies).await?.0)
    }

    async fn settle(&self, batch: &[Settlement]) -> Result<Vec<Settled>> {
        if batch.iter().all(|settlement| settlement.error.is_none()) {
            return self.store.settle(batch).await;
        }
        let keys = self.keys.keys();
        let sealed: Vec<Settlement> =
            batch.iter().map(|settlement| Self::seal_settlement(&keys, settlement)).collect::<Result<_>>()?;
        self.store.settle(&sealed).await
    }

    /// Rescues entries without opening them: a rescue runs none of them.
    async fn rescue(&self, params: &RescueParams) -> Result<Vec<Claimed>> {
        let rescued = self.store.rescue(params).await?;
        let open = |Claimed { claim, message }: Claimed| {
            let message = self.show_message(&claim.inbox, &claim.key, &message);
            Claimed { claim, message }
        };
        Ok(rescued.into_iter().map(open).collect())
    }
}
