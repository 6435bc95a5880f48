//! A store that tells what it does. Every call of the library goes through it, so no store counts or traces itself.

use std::future::Future;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use tracing::Instrument as _;

use super::names;
use crate::error::Result;
use crate::key::Key;
use crate::name::{HandlerKey, InboxName};
use crate::state::{ErrorText, Event, Next, Settlement};
use crate::store::{
    Accepted, Capabilities, Claim, ClaimParams, Claimed, Mark, MarkIn, NewMessage, Orphan, OrphanParams,
    RegisterParams, RenewParams, Renewed, RescueParams, SettleIn, Settled, ShareIn, Store, SweepParams,
    Swept, Transactional, Wakeups,
};

/// A store with metrics and spans around each verb.
#[derive(Clone, Debug)]
pub struct Observed<S>(S);

impl<S> Observed<S> {
    /// Wraps a store.
    pub fn new(store: S) -> Self {
        Self(store)
    }

    /// The store inside.
    pub fn inner(&self) -> &S {
        &self.0
    }
}

async fn observe<T>(verb: &'static str, items: usize, call: impl Future<Output = Result<T>>) -> Result<T> {
    let start = Instant::now();
    let result = call.instrument(tracing::debug_span!("oncebox.store", verb, items)).await;
    let outcome = match &result {
        Ok(_) => "ok",
        Err(error) => {
            tracing::debug!(verb, error = %error.what(), kind = ?error.kind(), "store call failed");
            error.kind().as_str()
        }
    };
    metrics::counter!(names::STORE_CALLS, "verb" => verb, "result" => outcome).increment(1);
    metrics::histogram!(names::STORE_SECONDS, "verb" => verb).record(start.elapsed().as_secs_f64());
    #[expect(clippy::cast_precision_loss, reason = "batch sizes are far below 2^52")]
    metrics::histogram!(names::STORE_BATCH, "verb" => verb).record(items as f64);
    result
}

/// What is kept aside and will not run tells so: nobody else would.
fn report_accepted(message: &NewMessage, answer: Accepted) {
    let (inbox, key, kind) = (&message.inbox, &message.key, message.message.kind());
    match answer {
        Accepted::Conflict(seq) => {
            tracing::warn!(%inbox, %key, seq = seq.0, kind, "kept aside: its key was stored with another payload");
        }
        Accepted::Stale => {
            tracing::warn!(%inbox, %key, kind, "kept aside: it is older than what is remembered");
        }
        _ => {}
    }
}

/// A failed attempt is worth a warning, an entry that needs a person an error.
fn report_settled(settlement: &Settlement) {
    let Settlement { claim, event, next, attempts, crashes, error, .. } = settlement;
    let (inbox, key, handler, seq) = (&claim.inbox, &claim.key, &claim.handler, claim.seq.0);
    let error = error.as_ref().map_or("", ErrorText::as_str);
    match (next, event) {
        (Next::Poisoned { reason }, _) => {
            let reason = reason.as_str();
            tracing::error!(%inbox, %key, %handler, seq, attempts, crashes, reason, error, "poisoned: it needs a person");
        }
        (Next::Pending { delay }, Event::Fail | Event::Crash | Event::Defer) => {
            tracing::warn!(%inbox, %key, %handler, seq, attempts, crashes, ?delay, error, "failed; trying again");
        }
        (Next::Discarded, _) => {
            tracing::info!(%inbox, %key, %handler, seq, error, "discarded by its handler");
        }
        _ => {}
    }
}

fn lost<T: PartialEq>(verb: &'static str, answers: &[T], lost: &T) {
    let count = answers.iter().filter(|answer| *answer == lost).count();
    if count > 0 {
        metrics::counter!(names::LEASE_LOST, "verb" => verb).increment(count as u64);
    }
}

async fn observe_claims(
    verb: &'static str,
    items: usize,
    call: impl Future<Output = Result<Vec<Settled>>>,
) -> Result<Vec<Settled>> {
    let settled = observe(verb, items, call).await?;
    lost(verb, &settled, &Settled::LeaseLost);
    Ok(settled)
}

#[async_trait]
impl<S: Store> Store for Observed<S> {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn accept(&self, batch: &[NewMessage]) -> Result<Vec<Accepted>> {
        let accepted = observe("accept", batch.len(), self.0.accept(batch)).await?;
        for (message, answer) in batch.iter().zip(&accepted) {
            metrics::counter!(names::ACCEPTED, "outcome" => answer.as_str()).increment(1);
            report_accepted(message, *answer);
        }
        Ok(accepted)
    }

    async fn claim(&self, params: &ClaimParams) -> Result<Vec<Claimed>> {
        let wanted = params.wants.iter().map(|want| want.limit).sum();
        observe("claim", wanted, self.0.claim(params)).await
    }

    async fn settle(&self, batch: &[Settlement]) -> Result<Vec<Settled>> {
        let settled = observe("settle", batch.len(), self.0.settle(batch)).await?;
        for (settlement, answer) in batch.iter().zip(&settled) {
            if *answer == Settled::Applied {
                metrics::counter!(names::SETTLED, "event" => settlement.event.as_str()).increment(1);
                report_settled(settlement);
            }
        }
        lost("settle", &settled, &Settled::LeaseLost);
        Ok(settled)
    }

    async fn renew(&self, params: &RenewParams) -> Result<Vec<Renewed>> {
        let renewed = observe("renew", params.claims.len(), self.0.renew(params)).await?;
        lost("renew", &renewed, &Renewed::LeaseLost);
        Ok(renewed)
    }

    async fn rescue(&self, params: &RescueParams) -> Result<Vec<Claimed>> {
        observe("rescue", params.limit, self.0.rescue(params)).await
    }

    async fn register(&self, params: &RegisterParams) -> Result<()> {
        observe("register", 1 + params.windows.len(), self.0.register(params)).await
    }

    async fn sweep(&self, params: &SweepParams) -> Result<Swept> {
        let swept = observe("sweep", params.limit, self.0.sweep(params)).await?;
        metrics::counter!(names::SWEPT).increment(swept.messages as u64);
        Ok(swept)
    }

    async fn orphans(&self, params: &OrphanParams) -> Result<Vec<Orphan>> {
        observe("orphans", params.limit, self.0.orphans(params)).await
    }

    fn wakeups(&self) -> Option<&dyn Wakeups> {
        self.0.wakeups()
    }

    fn is_transient(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        self.0.is_transient(error)
    }
}

impl<S: Transactional> Transactional for Observed<S> {
    type Tx = S::Tx;

    async fn begin(&self) -> Result<Self::Tx> {
        observe("begin", 1, self.0.begin()).await
    }

    async fn commit(&self, tx: Self::Tx) -> Result<()> {
        observe("commit", 1, self.0.commit(tx)).await
    }

    async fn rollback(&self, tx: Self::Tx) {
        // It cannot fail as far as anybody can tell.
        let call = async {
            self.0.rollback(tx).await;
            Ok(())
        };
        let _ = observe("rollback", 1, call).await;
    }
}

// These take the caller's transaction, which need not be `Send`: nothing of the call may be held across an
// await that outlives the inner future, so they count without `observe`.
impl<Tx: ?Sized, S: MarkIn<Tx>> MarkIn<Tx> for Observed<S> {
    fn mark(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> impl Future<Output = Result<Mark>> + Send {
        let call = self.0.mark(tx, inbox, key, handler);
        async move {
            let mark = observe("mark", 1, call).await?;
            metrics::counter!(names::MARKED, "outcome" => mark.as_str()).increment(1);
            Ok(mark)
        }
    }

    fn record(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        result: &[u8],
    ) -> impl Future<Output = Result<()>> + Send {
        observe("record", 1, self.0.record(tx, inbox, key, handler, result))
    }

    fn recall(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> impl Future<Output = Result<Option<Bytes>>> + Send {
        observe("recall", 1, self.0.recall(tx, inbox, key, handler))
    }
}

impl<Tx: ?Sized, S: SettleIn<Tx>> SettleIn<Tx> for Observed<S> {
    fn complete(&self, tx: &mut Tx, claim: &Claim) -> impl Future<Output = Result<Settled>> + Send {
        let call = self.0.complete(tx, claim);
        async move {
            let settled = observe("complete", 1, call).await?;
            lost("complete", &[settled], &Settled::LeaseLost);
            Ok(settled)
        }
    }
}

impl<Tx: ?Sized, S: ShareIn<Tx>> ShareIn<Tx> for Observed<S> {
    fn hold(&self, tx: &mut Tx, claims: &[Claim]) -> impl Future<Output = Result<Vec<Settled>>> + Send {
        observe_claims("hold", claims.len(), self.0.hold(tx, claims))
    }

    fn savepoint(&self, tx: &mut Tx) -> impl Future<Output = Result<()>> + Send {
        observe("savepoint", 1, self.0.savepoint(tx))
    }

    fn rollback_to_savepoint(&self, tx: &mut Tx) -> impl Future<Output = Result<()>> + Send {
        observe("rollback_to_savepoint", 1, self.0.rollback_to_savepoint(tx))
    }

    fn complete_all(
        &self,
        tx: &mut Tx,
        claims: &[Claim],
    ) -> impl Future<Output = Result<Vec<Settled>>> + Send {
        observe_claims("complete_all", claims.len(), self.0.complete_all(tx, claims))
    }
}
