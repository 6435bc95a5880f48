//! Runs one claimed entry and returns its outcome. Tests: `tests/outcomes.rs`, `tests/deadlocks.rs`.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tracing::Instrument as _;

use super::batch;
use crate::error::{Error, ErrorKind};
use crate::handler::{Context, Failure, FinishTx, Function, RegisteredHandler, retry_of};
use crate::inbox::Shared;
use crate::message::Message;
use crate::observe::{emit, names};
use crate::runtime::upkeep::repeat::{is_transient, is_trouble};
use crate::runtime::upkeep::supervisor::Stop;
use crate::state::{CircuitSignal, EntryEvent, ErrorText, Outcome, Retry, Settlement, decide};
use crate::store::{Claim, Claimed, Settled, Store};

/// Delay of an entry whose transaction failed without a fault of its handler.
const STORE_TROUBLE: Duration = Duration::from_secs(1);

/// Outcome of an entry whose commit failed or has an unknown result. The fence refuses it if the completion was written;
/// else the handler runs again.
pub(in crate::runtime) const UNCOMMITTED: Outcome = Outcome::Snooze { delay: STORE_TROUBLE };

/// Result of a run that did not succeed.
#[derive(Debug)]
pub(in crate::runtime) struct HandlerFailure {
    pub(in crate::runtime) outcome: Outcome,
    /// The retry of the rule that matches the error, if any.
    retry: Option<Retry>,
    /// Error text, if only the database ended the run and another run may succeed.
    pub(in crate::runtime) transient: Option<ErrorText>,
}

impl From<Outcome> for HandlerFailure {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, retry: None, transient: None }
    }
}

impl HandlerFailure {
    /// Returns true for a retry or a rejection.
    pub(in crate::runtime) const fn is_failure(&self) -> bool {
        matches!(self.outcome, Outcome::Retry { .. } | Outcome::Reject { .. })
    }

    /// Returns the verdict. A transaction that the database ended counts as a failure only after many repeats.
    pub(in crate::runtime) fn settle<S: Store>(
        self,
        handler: &RegisteredHandler<S>,
        claim: &Claim,
    ) -> RunVerdict {
        RunVerdict::Settle(self.decide(handler, claim))
    }

    /// Returns the settlement of the failure.
    pub(in crate::runtime) fn decide<S: Store>(
        mut self,
        handler: &RegisteredHandler<S>,
        claim: &Claim,
    ) -> Settlement {
        let policy = &handler.registration.policy;
        if let Some(error) = self.transient.take()
            && !handler.reruns.is_free(claim)
        {
            let key = &handler.route.key;
            tracing::warn!(handler = %key, seq = claim.seq.0, %error, "database ended transaction, attempt counted");
            self.outcome = Outcome::Retry { error, after: None };
        }
        match self.retry {
            None => decide(policy, claim, self.outcome),
            Some(retry) => {
                let mut policy = policy.clone();
                policy.retry = retry;
                decide(&policy, claim, self.outcome)
            }
        }
    }
}

/// Verdict on a run.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are of the large kind, and a box would cost each an allocation"
)]
pub(in crate::runtime) enum RunVerdict {
    /// To be written by the settler.
    Settle(Settlement),
    /// Already written, in the handler's own transaction.
    Written,
    /// Another worker has the entry: there is nothing to write.
    Lost,
}

impl RunVerdict {
    /// Returns the result for the handler's breaker.
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

/// Runs a claimed entry to its verdict. Releases it when `cut` is requested.
pub(in crate::runtime) async fn execute<S: Store>(
    inbox: &Arc<Shared<S>>,
    handler: &RegisteredHandler<S>,
    claimed: &Claimed,
    cut: &Stop,
) -> RunVerdict {
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

/// Makes the context of a run of a claimed entry.
pub(in crate::runtime) fn context<S: Store>(inbox: &Shared<S>, claimed: &Claimed) -> Context<S> {
    let Claimed { claim, message } = claimed;
    let (key, attempt) = (claim.handler.clone(), claim.attempts.saturating_add(1));
    Context::new(inbox.surroundings(), Arc::clone(message), claim.key, key, attempt, claim.generation)
        .claimed(claim)
}

/// Runs the handler of a claimed entry once. Aborts it when `cut` is requested.
pub(in crate::runtime) async fn attempt<S: Store>(
    inbox: &Shared<S>,
    handler: &RegisteredHandler<S>,
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

/// Completes a claim in the handler's own transaction. The error is the failure to settle instead.
async fn complete<S: Store>(
    inbox: &Shared<S>,
    handler: &RegisteredHandler<S>,
    tx: Box<dyn FinishTx>,
    claim: &Claim,
) -> Result<RunVerdict, HandlerFailure> {
    // In its own task, so that an abort of this run does not interrupt the commit.
    let error = match tokio::spawn(tx.complete(claim.clone())).await {
        Ok(Ok(Settled::Applied)) => {
            return Ok(RunVerdict::Written);
        }
        Ok(Ok(Settled::LeaseLost)) => {
            tracing::info!("claim lost, run rolled back");
            return Ok(RunVerdict::Lost);
        }
        Ok(Err(error)) if error.kind() == ErrorKind::LeaseLost => {
            tracing::info!("claim lost, run rolled back");
            return Ok(RunVerdict::Lost);
        }
        Ok(Err(error)) => error,
        Err(panic) => return Err(failed(inbox, &format!("the commit panicked: {panic}"))),
    };
    Err(uncommitted(inbox, handler, &error))
}

/// Returns the failure of the entries whose completion was in a failed commit.
pub(in crate::runtime) fn uncommitted<S: Store>(
    inbox: &Shared<S>,
    handler: &RegisteredHandler<S>,
    error: &Error,
) -> HandlerFailure {
    if is_trouble(error.kind()) {
        tracing::warn!(error = %error.what(), "transaction not committed");
        // A handler that changed its role is denied every time; only the count distinguishes that from an outage.
        let transient = (error.kind() == ErrorKind::Denied).then(|| inbox.redactor.error(error));
        return HandlerFailure { transient, ..UNCOMMITTED.into() };
    }
    let text = inbox.redactor.error(error);
    if error.kind() == ErrorKind::TransactionEnded {
        // Another run might write the same again, so an operator must check.
        return Outcome::Reject { error: text }.into();
    }
    // The handler's writes can never be committed.
    let retry = retry_of(&handler.registration.kinds, error);
    HandlerFailure { outcome: Outcome::Retry { error: text, after: None }, retry, transient: None }
}

pub(in crate::runtime) fn failed<S: Store>(inbox: &Shared<S>, text: &str) -> HandlerFailure {
    Outcome::Retry { error: inbox.redactor.text(text), after: None }.into()
}

/// Runs the handler function, including decoding, panics and the timeout.
pub(in crate::runtime) async fn run<S: Store>(
    handler: &RegisteredHandler<S>,
    message: &Message,
    context: &mut Context<S>,
    inbox: &Shared<S>,
) -> Result<(), HandlerFailure> {
    observed(handler, inbox, call(handler, message, context, inbox)).await
}

/// Measures a call of user code, and turns its panic into a failed attempt.
pub(in crate::runtime) async fn observed<S: Store, T>(
    handler: &RegisteredHandler<S>,
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
    handler: &RegisteredHandler<S>,
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

/// Applies the handler's timeout to a run.
pub(in crate::runtime) async fn in_time<S: Store, T>(
    handler: &RegisteredHandler<S>,
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

/// Converts the error of a handler. A transient error of the store counts no attempt.
pub(in crate::runtime) fn said<S: Store>(
    handler: &RegisteredHandler<S>,
    inbox: &Shared<S>,
    failure: &Failure,
) -> HandlerFailure {
    if is_transient(&*inbox.store, failure.error()) {
        let error = inbox.redactor.error(failure.error());
        tracing::warn!(handler = %handler.route.key, %error, "database ended transaction, no attempt counted");
        return HandlerFailure { transient: Some(error), ..UNCOMMITTED.into() };
    }
    match failure.store_error() {
        Some(kind) if is_trouble(kind) => UNCOMMITTED.into(),
        _ => {
            if failure.lacks_descriptors()
                && let Some(suppressed) =
                    inbox.store.watch().log_throttle.allow("no descriptors", handler.route.key.as_str())
            {
                tracing::warn!(handler = %handler.route.key, suppressed, "no file descriptor, no attempt counted");
            }
            let retry = handler.registration.retry_of(failure);
            HandlerFailure { outcome: failure.outcome_by(&inbox.redactor), retry, transient: None }
        }
    }
}

pub(in crate::runtime) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    format!("the handler panicked: {}", text_of(panic))
}

pub(in crate::runtime) fn text_of(panic: &(dyn std::any::Any + Send)) -> &str {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no text")
}
