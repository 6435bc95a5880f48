//! A store with metrics, spans and logs around every call, so that no store needs its own. Tests: `tests/observers.rs`.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use tracing::{Instrument as _, Span};

use super::watch::STORE;
use super::{Watch, emit, names, spans};
use crate::error::Result;
use crate::state::{EntryEvent, ErrorText, NextState, Settlement};
use crate::store::{
    Accepted, Backlog, BacklogParams, Claim, ClaimParams, Claimed, DuplicateCount, Layer, NewMessage, Orphan,
    OrphanParams, RegisterParams, RenewParams, Renewed, RescueParams, Settled, Store, StoreLayer,
    SweepParams, Swept,
};

/// A store with metrics and spans around each verb.
#[derive(Clone, Debug)]
pub struct Observed<S> {
    pub(super) store: S,
    watch: Arc<Watch>,
}

impl<S> Observed<S> {
    /// Wraps a store.
    pub fn new(store: S) -> Self {
        Self::by(store, Watch::default())
    }

    pub(crate) fn by(store: S, watch: Watch) -> Self {
        Self { store, watch: Arc::new(watch) }
    }

    /// Returns the wrapped store.
    pub fn inner(&self) -> &S {
        &self.store
    }

    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    pub(super) async fn observe<T>(
        &self,
        verb: &'static str,
        items: usize,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let start = Instant::now();
        let result = call.instrument(tracing::debug_span!(target: STORE, "oncebox.store", verb, items)).await;
        let outcome = match &result {
            Ok(_) => "ok",
            Err(error) => {
                let what = ErrorText::new(error.what());
                tracing::debug!(verb, error = %what, kind = ?error.kind(), "store call failed");
                error.kind().as_str()
            }
        };
        if let Some((failed_for, calls)) =
            self.watch.store_health.note(verb, self.watch.clock.monotonic(), &result)
            && let Some(suppressed) = self.watch.allow("answers again", verb)
        {
            tracing::info!(target: STORE, verb, ?failed_for, calls, suppressed, "the store answers again");
        }
        let verb = emit::word("verb", verb);
        emit::count(names::STORE_CALLS, 1, [verb.clone(), emit::word("result", outcome)]);
        emit::time(names::STORE_SECONDS, start.elapsed(), [verb.clone()]);
        emit::size(names::STORE_BATCH, items, [verb]);
        result
    }

    /// Opens a span for each message of a batch; none if no subscriber wants them.
    fn accepting(&self, batch: &[NewMessage]) -> Vec<Span> {
        let messages = batch.chunk_by(of_one_message).filter_map(<[NewMessage]>::first);
        let span = |new: &NewMessage| self.watch.propagator.accepting(&new.inbox, &new.message, batch.len());
        messages.map(span).take_while(|span| !span.is_disabled()).collect()
    }

    /// Counts a result, and logs a quarantined message, because nothing else would report it.
    fn report_accepted(&self, message: &NewMessage, answer: Accepted) {
        let NewMessage { inbox, key, .. } = message;
        let outcome = emit::word("outcome", answer.as_str());
        emit::count(names::ACCEPTED, 1, [emit::inbox(inbox), outcome]);
        self.watch.notify(inbox, |observer| observer.accepted(message, answer));
        let (message_type, say) =
            (message.message.message_type(), || self.watch.allow("quarantined", inbox.as_str()));
        match answer {
            Accepted::Conflict(seq) => {
                if let Some(suppressed) = say() {
                    tracing::warn!(%inbox, %key, seq = seq.0, message_type, suppressed, "quarantined: key stored with another payload");
                }
            }
            Accepted::Stale => {
                if let Some(suppressed) = say() {
                    tracing::warn!(%inbox, %key, message_type, suppressed, "quarantined: older than the retention");
                }
            }
            _ => {}
        }
    }

    /// Logs a failed attempt as a warning and a poisoned entry as an error, with a limit per handler.
    fn report_settled(&self, settlement: &Settlement) {
        let Settlement { claim, event, next, attempts, suspicion, error, .. } = settlement;
        let crashes = suspicion.own_crashes();
        self.watch.notify(&claim.inbox, |observer| observer.settled(claim, *event));
        let (inbox, key, handler, seq) = (&claim.inbox, &claim.key, &claim.handler, claim.seq.0);
        let error = error.as_ref().map_or("", ErrorText::as_str);
        let say = |what| self.watch.allow(what, handler.as_str());
        match (next, event) {
            (NextState::Poisoned { reason }, _) => {
                if let Some(suppressed) = say("poisoned") {
                    let reason = reason.as_str();
                    tracing::error!(%inbox, %key, %handler, seq, attempts, crashes, reason, error, suppressed, "poisoned: it needs a person");
                }
            }
            (NextState::Pending { delay }, EntryEvent::Fail | EntryEvent::Crash | EntryEvent::Defer) => {
                if let Some(suppressed) = say("failed") {
                    tracing::warn!(%inbox, %key, %handler, seq, attempts, crashes, ?delay, error, suppressed, "failed; trying again");
                }
            }
            (NextState::Discarded, _) => {
                if let Some(suppressed) = say("discarded") {
                    tracing::info!(%inbox, %key, %handler, seq, error, suppressed, "discarded by its handler");
                }
            }
            _ => {}
        }
    }
}

pub(super) fn lost<T: PartialEq>(verb: &'static str, answers: &[T], lost: &T) {
    let count = answers.iter().filter(|answer| *answer == lost).count();
    if count > 0 {
        emit::count(names::LEASE_LOST, count as u64, [emit::word("verb", verb)]);
    }
}

/// Records how long messages waited for their first attempt.
fn report_lag(claimed: &[Claimed]) {
    let is_first =
        |claim: &Claim| claim.attempts == 0 && !claim.suspicion.is_suspect() && claim.generation == 0;
    // Most claims are for one handler, and labels cost more than the value.
    for same in claimed.chunk_by(|a, b| a.claim.inbox == b.claim.inbox && a.claim.handler == b.claim.handler)
    {
        let Some(Claimed { claim, .. }) = same.first() else { continue };
        let first = same.iter().map(|claimed| &claimed.claim).filter(|claim| is_first(claim));
        let lags = first.map(|claim| claim.claimed_at.since(claim.received_at));
        emit::times(names::LAG_SECONDS, lags, [emit::inbox(&claim.inbox), emit::handler(&claim.handler)]);
    }
}

/// Returns true if two offers are of one message with several keys.
fn of_one_message(a: &NewMessage, b: &NewMessage) -> bool {
    Arc::ptr_eq(&a.message, &b.message)
}

/// Combines the results for each message of a batch, under all its keys.
fn whole<'a>(batch: &'a [NewMessage], answers: &'a [Accepted]) -> impl Iterator<Item = Accepted> + 'a {
    let mut answers = answers.iter().copied();
    batch
        .chunk_by(of_one_message)
        .map_while(move |offers| answers.by_ref().take(offers.len()).reduce(Accepted::and))
}

/// Counts settled entries.
fn count_settled(batch: &[Settlement], settled: &[Settled]) {
    let applied = |settled: &Settled| *settled == Settled::Applied;
    let mut settled = settled.iter();
    let same = |a: &Settlement, b: &Settlement| {
        a.event == b.event && a.claim.inbox == b.claim.inbox && a.claim.handler == b.claim.handler
    };
    for same in batch.chunk_by(same) {
        let count = settled.by_ref().take(same.len()).filter(|settled| applied(settled)).count();
        if let (Some(Settlement { claim, event, .. }), true) = (same.first(), count > 0) {
            emit::settled(claim, event.as_str(), count as u64);
        }
    }
}

impl<S: Store> Layer for Observed<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        &self.store
    }
}

#[async_trait]
impl<S: Store> StoreLayer for Observed<S> {
    async fn accept(&self, batch: &[NewMessage]) -> Result<Vec<Accepted>> {
        let open = self.accepting(batch);
        let call =
            self.observe("accept", batch.len(), self.store.accept(batch)).instrument(spans::alone(&open));
        let accepted = call.await.inspect_err(|_| open.iter().for_each(spans::failed))?;
        for (span, answer) in open.iter().zip(whole(batch, &accepted)) {
            spans::accepted(span, answer);
        }
        for (message, answer) in batch.iter().zip(&accepted) {
            self.report_accepted(message, *answer);
        }
        Ok(accepted)
    }

    async fn claim(&self, params: &ClaimParams) -> Result<Vec<Claimed>> {
        let wanted = params.wants.iter().map(|want| want.limit).sum();
        let claimed = self.observe("claim", wanted, self.store.claim(params)).await?;
        report_lag(&claimed);
        Ok(claimed)
    }

    async fn settle(&self, batch: &[Settlement]) -> Result<Vec<Settled>> {
        let open = self.watch.settling(batch);
        let call =
            self.observe("settle", batch.len(), self.store.settle(batch)).instrument(spans::alone(&open));
        let settled = call.await.inspect_err(|_| open.iter().for_each(spans::failed))?;
        open.iter().zip(&settled).for_each(|(span, settled)| spans::settled(span, *settled));
        count_settled(batch, &settled);
        for (settlement, answer) in batch.iter().zip(&settled) {
            match answer {
                Settled::Applied => self.report_settled(settlement),
                Settled::LeaseLost => self.watch.lost(&settlement.claim),
            }
        }
        lost("settle", &settled, &Settled::LeaseLost);
        Ok(settled)
    }

    async fn renew(&self, params: &RenewParams) -> Result<Vec<Renewed>> {
        let renewed = self.observe("renew", params.claims.len(), self.store.renew(params)).await?;
        lost("renew", &renewed, &Renewed::LeaseLost);
        Ok(renewed)
    }

    async fn rescue(&self, params: &RescueParams) -> Result<Vec<Claimed>> {
        let rescued = self.observe("rescue", params.limit, self.store.rescue(params)).await?;
        for rescued in &rescued {
            self.watch.propagator.rescued(rescued);
        }
        Ok(rescued)
    }

    async fn register(&self, params: &RegisterParams) -> Result<()> {
        self.observe("register", 1 + params.windows.len(), self.store.register(params)).await
    }

    async fn sweep(&self, params: &SweepParams) -> Result<Swept> {
        let swept = self.observe("sweep", params.limit, self.store.sweep(params)).await?;
        let Swept { messages, entries, marks, operations, .. } = swept;
        let counts =
            [("messages", messages), ("entries", entries), ("marks", marks), ("operations", operations)];
        for (what, count) in counts {
            let labels = [emit::inbox(&params.inbox), emit::word("what", what)];
            emit::count(names::SWEPT, count as u64, labels);
        }
        Ok(swept)
    }

    async fn orphans(&self, params: &OrphanParams) -> Result<Vec<Orphan>> {
        self.observe("orphans", params.limit, self.store.orphans(params)).await
    }

    async fn backlog(&self, params: &BacklogParams) -> Result<Vec<Backlog>> {
        self.observe("backlog", 1, self.store.backlog(params)).await
    }

    async fn count_duplicates(&self, batch: &[DuplicateCount]) -> Result<()> {
        self.observe("count_duplicates", batch.len(), self.store.count_duplicates(batch)).await
    }
}
