//! Wraps the store's verbs: seals their input and opens their output. Tests: `tests/conformance.rs`.

use async_trait::async_trait;
use oncebox_core::Result;
use oncebox_core::state::{ErrorText, Outcome, Policies, Settlement};
use oncebox_core::store::{
    Accepted, Backlog, BacklogParams, Capabilities, ClaimParams, Claimed, DuplicateCount, Failover,
    NewMessage, Orphan, OrphanParams, RegisterParams, RenewParams, Renewed, RescueParams, Settled, Store,
    SweepParams, Swept, Wakeups,
};

use crate::Sealed;
use crate::seal::Unreadable;

/// Maximum claims per call while all claimed entries are unreadable.
const ROUNDS: usize = 16;

impl<S: Store> Sealed<S> {
    /// Opens what was claimed. What cannot be read is settled here, so that it keeps no other waiting: what a newer process may
    /// read waits for one for a while, and all of it is poisoned in the end, for a person with the key.
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
            self.settle(&unreadable).await?;
        }
        for (seq, handler, why) in whys {
            tracing::error!(seq = seq.0, %handler, %why, "a stored message cannot be read");
        }
        Ok((readable, unreadable.len()))
    }
}

#[async_trait]
impl<S: Store> Store for Sealed<S> {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

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
            // There may be others behind them.
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

    async fn renew(&self, params: &RenewParams) -> Result<Vec<Renewed>> {
        self.store.renew(params).await
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

    async fn register(&self, params: &RegisterParams) -> Result<()> {
        self.store.register(params).await
    }

    async fn sweep(&self, params: &SweepParams) -> Result<Swept> {
        self.store.sweep(params).await
    }

    async fn orphans(&self, params: &OrphanParams) -> Result<Vec<Orphan>> {
        self.store.orphans(params).await
    }

    async fn count_duplicates(&self, batch: &[DuplicateCount]) -> Result<()> {
        self.store.count_duplicates(batch).await
    }

    async fn backlog(&self, params: &BacklogParams) -> Result<Vec<Backlog>> {
        self.store.backlog(params).await
    }

    fn wakeups(&self) -> Option<&dyn Wakeups> {
        self.store.wakeups()
    }

    fn failover(&self) -> Option<Failover> {
        self.store.failover()
    }

    fn is_transient(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        self.store.is_transient(error)
    }
}
