//! Runs one claimed entry and returns its outcome. Tests: `tests/outcomes.rs`, `tests/deadlocks.rs`.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tracing::Instrument as _;

use super::batch;
use crate::error::{Error, ErrorKind};
use crate::handler::{Context, Failure, FinishTx, Function, Registered, retry_of};
use crate::inbox::Shared;
use crate::message::Message;
use crate::observe::{emit, names};
use crate::runtime::upkeep::repeat::{is_transient, is_trouble};
use crate::runtime::upkeep::supervisor::Stop;
use crate::state::{CircuitSignal, EntryEvent, ErrorText, Outcome, Policy, Retry, Settlement, decide};
use crate::store::{Claim, Claimed, Settled, Store};

/// How long an entry waits when its transaction could not be committed through no fault of its own.
const STORE_TROUBLE: Duration = Duration::from_secs(1);

/// What becomes of an entry whose commit did not happen, or is not known to have. Giving it back is right either way:
/// the fence refuses that if the completion was written, and otherwise the handler runs again.
pub(in crate::runtime) const UNCOMMITTED: Outcome = Outcome::Snooze { delay: STORE_TROUBLE };

/// What a run said instead of "done".
#[derive(Debug)]
pub(in crate::runtime) struct HandlerFailure {
    pub(in crate::runtime) outcome: Outcome,
    /// The retry for this kind of error, if it has one of its own.
    retry: Option<Retry>,
    /// Whether only the database stood in the way, and may not the next time; with what it said.
    pub(in crate::runtime) transient: Option<ErrorText>,
}

impl From<Outcome> for HandlerFailure {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, retry: None, transient: None }
    }
}

impl HandlerFailure {
    /// Whether it tells of something that went wrong.
    pub(in crate::runtime) const fn is_failure(&self) -> bool {
        matches!(self.outcome, Outcome::Retry { .. } | Outcome::Reject { .. })
    }

    /// What follows from it. What the database ended is not the handler's failure, unless it does so every time.
    pub(in crate::runtime) fn settle<S: Store>(self, handler: &Registered<S>, claim: &Claim) -> Verdict {
        Verdict::Settle(self.decide(handler, claim))
    }

    /// The same, before it is to be written.
    pub(in crate::runtime) fn decide<S: Store>(
        mut self,
        handler: &Registered<S>,
        claim: &Claim,
    ) -> Settlement {
        let policy = &handler.registration.policy;
        if let Some(error) = self.transient.take()
            && !handler.reruns.is_free(claim)
        {
            let key = &handler.route.key;
            tracing::warn!(handler = %key, seq = claim.seq.0, %error, "the database ended the handler's transaction again and again; an attempt is counted");
            self.outcome = Outcome::Retry { error, after: None };
        }
        match self.retry {
            None => decide(policy, claim, self.outcome),
            Some(retry) => decide(&Policy { retry, ..policy.clone() }, claim, self.outcome),
        }
    }
}

/// What became of a run.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are of the large kind, and a box would cost each an allocation"
)]
pub(in crate::runtime) enum Verdict {
    /// To be written by the settler.
    Settle(Settlement),
    /// Already written, in the handler's own transaction.
    Written,
    /// Somebody else has the entry: there is nothing to be written.
    Lost,
}

impl Verdict {
    /// What the handler's breaker learns from it.
    pub(in crate::runtime) fn ended(&self) -> CircuitSignal {
        match self {
            Self::Written => CircuitSignal::Success,
            Self::Lost => CircuitSignal::Neutral,
            Self::Settle(settlement) => match settlement.event {
                EntryEvent::Done => CircuitSignal::Success,
                EntryEvent::Fail | EntryEvent::Exhaust => CircuitSignal::Failure,
                _ => CircuitSignal::Neutral,
            },
        }
    }
}

/// Runs a claimed entry to its verdict. Gives it back untouched when `cut` is requested.
pub(in crate::runtime) async fn execute<S: Store>(
    inbox: &Arc<Shared<S>>,
    handler: &Registered<S>,
    claimed: &Claimed,
    cut: &Stop,
) -> Verdict {
    if let Function::Batch(function) = &handler.registration.function {
        return batch::execute_one(inbox, handler, &**function, claimed, cut).await;
    }
    let claim = &claimed.claim;
    let mut context = context(inbox, claimed);
    let said = match attempt(inbox, handler, claimed, &mut context, cut).await {
        Err(said) => said,
        Ok(()) => match context.take_tx() {
            None => Outcome::Done.into(),
            Some(tx) => match complete(inbox, handler, tx, claim).await {
                Ok(verdict) => return verdict,
                Err(said) => said,
            },
        },
    };
    said.settle(handler, claim)
}

/// What a run of a claimed entry is given.
pub(in crate::runtime) fn context<S: Store>(inbox: &Shared<S>, claimed: &Claimed) -> Context<S> {
    let Claimed { claim, message } = claimed;
    let (key, attempt) = (claim.handler.clone(), claim.attempts.saturating_add(1));
    Context::new(inbox.surroundings(), Arc::clone(message), claim.key, key, attempt, claim.generation)
        .claimed(claim)
}

/// Runs the handler of a claimed entry once. When `cut` is requested, it is stopped where it stands.
pub(in crate::runtime) async fn attempt<S: Store>(
    inbox: &Shared<S>,
    handler: &Registered<S>,
    claimed: &Claimed,
    context: &mut Context<S>,
    cut: &Stop,
) -> Result<(), HandlerFailure> {
    let (Claimed { claim, message }, watch) = (claimed, inbox.store.watch());
    watch.notify(&inbox.name, |observer| observer.started(claim, message));
    let place = (Some(claim.seq.0), context.attempt());
    let held = watch.claims.of(claim);
    let span = watch.propagator.handling(&inbox.name, &handler.route.key, message, place, &held);
    tokio::select! {
        biased;
        ended = run(handler, &claimed.message, context, inbox).instrument(span) => ended,
        () = cut.wait() => Err(Outcome::Released.into()),
    }
}

/// Completes a claim in the handler's own transaction; an error is what has to be settled instead.
async fn complete<S: Store>(
    inbox: &Shared<S>,
    handler: &Registered<S>,
    tx: Box<dyn FinishTx>,
    claim: &Claim,
) -> Result<Verdict, HandlerFailure> {
    // A task of its own: a commit must not be torn when this run is aborted.
    let error = match tokio::spawn(tx.complete(claim.clone())).await {
        Ok(Ok(Settled::Applied)) => {
            return Ok(Verdict::Written);
        }
        Ok(Ok(Settled::LeaseLost)) => {
            tracing::info!("rolled back: the claim belongs to somebody else");
            return Ok(Verdict::Lost);
        }
        Ok(Err(error)) if error.kind() == ErrorKind::LeaseLost => {
            tracing::info!("rolled back: the claim belongs to somebody else");
            return Ok(Verdict::Lost);
        }
        Ok(Err(error)) => error,
        Err(panic) => return Err(failed(inbox, &format!("the commit panicked: {panic}"))),
    };
    Err(uncommitted(inbox, handler, &error))
}

/// What a commit that failed means for those whose completion was in it.
pub(in crate::runtime) fn uncommitted<S: Store>(
    inbox: &Shared<S>,
    handler: &Registered<S>,
    error: &Error,
) -> HandlerFailure {
    if is_trouble(error.kind()) {
        tracing::warn!(error = %error.what(), "the handler's transaction was not committed");
        // A handler that changed its role is refused every time; only the count tells that from an outage.
        let transient = (error.kind() == ErrorKind::Denied).then(|| inbox.redactor.error(error));
        return HandlerFailure { transient, ..UNCOMMITTED.into() };
    }
    let text = inbox.redactor.error(error);
    if error.kind() == ErrorKind::TransactionEnded {
        // Another run would write the same once more: a person has to see what is there.
        return Outcome::Reject { error: text }.into();
    }
    // What the handler wrote cannot be committed, now or ever.
    let retry = retry_of(&handler.registration.kinds, error);
    HandlerFailure { outcome: Outcome::Retry { error: text, after: None }, retry, transient: None }
}

/// A failed attempt with this text.
pub(in crate::runtime) fn failed<S: Store>(inbox: &Shared<S>, text: &str) -> HandlerFailure {
    Outcome::Retry { error: inbox.redactor.text(text), after: None }.into()
}

/// Runs the handler function: decoding, panics and the timeout included.
pub(in crate::runtime) async fn run<S: Store>(
    handler: &Registered<S>,
    message: &Message,
    context: &mut Context<S>,
    inbox: &Shared<S>,
) -> Result<(), HandlerFailure> {
    observed(handler, inbox, call(handler, message, context, inbox)).await
}

/// Runs a call of user code: measured, and with its panic as a failed attempt.
pub(in crate::runtime) async fn observed<S: Store, T>(
    handler: &Registered<S>,
    inbox: &Shared<S>,
    call: impl Future<Output = Result<T, HandlerFailure>>,
) -> Result<T, HandlerFailure> {
    let start = Instant::now();
    let ended = match AssertUnwindSafe(call).catch_unwind().await {
        Ok(ended) => ended,
        Err(panic) => Err(failed(inbox, &panic_text(&*panic))),
    };
    if ended.is_err() {
        tracing::Span::current().record("otel.status_code", "ERROR");
    }
    let labels = [emit::inbox(&inbox.name), emit::handler(&handler.route.key)];
    emit::time(names::HANDLER_SECONDS, start.elapsed(), labels);
    ended
}

async fn call<S: Store>(
    handler: &Registered<S>,
    message: &Message,
    context: &mut Context<S>,
    inbox: &Shared<S>,
) -> Result<(), HandlerFailure> {
    let Function::One(function) = &handler.registration.function else {
        return Err(failed(inbox, "a batch handler was called for one message"));
    };
    let run = function
        .run(message, context)
        .map_err(|error| Outcome::Undecodable { error: inbox.redactor.error(&error) })?;
    let result = in_time(handler, inbox, run).await?;
    result.map_err(|failure| said(handler, inbox, &failure))
}

/// Waits for a run no longer than its handler may take.
pub(in crate::runtime) async fn in_time<S: Store, T>(
    handler: &Registered<S>,
    inbox: &Shared<S>,
    run: impl Future<Output = T>,
) -> Result<T, HandlerFailure> {
    let Some(timeout) = handler.registration.timeout else { return Ok(run.await) };
    tokio::select! {
        biased;
        result = run => Ok(result),
        () = inbox.clock.sleep(timeout) => {
            Err(failed(inbox, &format!("the handler did not finish within {timeout:?}")))
        }
    }
}

/// What a handler said. A store that was briefly away is not the handler's failure: no attempt is counted for it.
pub(in crate::runtime) fn said<S: Store>(
    handler: &Registered<S>,
    inbox: &Shared<S>,
    failure: &Failure,
) -> HandlerFailure {
    if is_transient(&*inbox.store, failure.error()) {
        let error = inbox.redactor.error(failure.error());
        tracing::warn!(handler = %handler.route.key, %error, "the database ended the handler's transaction; no attempt is counted");
        return HandlerFailure { transient: Some(error), ..UNCOMMITTED.into() };
    }
    match failure.store_error() {
        Some(kind) if is_trouble(kind) => UNCOMMITTED.into(),
        _ => {
            if failure.lacks_descriptors()
                && let Some(suppressed) =
                    inbox.store.watch().log_throttle.allow("no descriptors", handler.route.key.as_str())
            {
                tracing::warn!(handler = %handler.route.key, suppressed, "no file descriptor for a handler; no attempt is counted");
            }
            let retry = handler.registration.retry_of(failure);
            HandlerFailure { outcome: failure.outcome_by(&inbox.redactor), retry, transient: None }
        }
    }
}

pub(in crate::runtime) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    format!("the handler panicked: {}", text_of(panic))
}

/// What a panic said.
pub(in crate::runtime) fn text_of(panic: &(dyn std::any::Any + Send)) -> &str {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no text")
}
