//! Runs one claimed entry, and says what became of it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tracing::Instrument as _;

use super::repeat::is_trouble;
use super::supervisor::Stop;
use crate::error::{Error, ErrorKind, Result};
use crate::handler::{Context, Failure, FinishTx, Registered};
use crate::inbox::{Processed, Receipt, Shared};
use crate::key::Key;
use crate::message::Message;
use crate::observe::names;
use crate::state::{ErrorText, Outcome, Settlement, decide};
use crate::store::{Claim, Claimed, Mark, Settled, Store};

/// How long an entry waits when its transaction could not be committed through no fault of its own.
const STORE_TROUBLE: Duration = Duration::from_secs(1);

/// What becomes of an entry whose commit did not happen, or is not known to have. Giving it back is right either way:
/// the fence refuses that if the completion was written, and otherwise the handler runs again.
pub(super) const UNCOMMITTED: Outcome = Outcome::Snooze { delay: STORE_TROUBLE };

/// What became of a run.
pub(super) enum Verdict {
    /// To be written by the settler.
    Settle(Settlement),
    /// Already written, in the handler's own transaction.
    Written,
}

/// Runs a claimed entry to its verdict. Gives it back untouched when `cut` is requested.
pub(super) async fn execute<S: Store>(
    inbox: &Arc<Shared<S>>,
    handler: &Registered<S>,
    claimed: &Claimed,
    cut: &Stop,
) -> Verdict {
    let claim = &claimed.claim;
    let mut context = context(inbox, handler, claimed);
    let outcome = match attempt(inbox, handler, claimed, &mut context, cut).await {
        Err(outcome) => outcome,
        Ok(()) => match context.take_tx() {
            None => Outcome::Done,
            Some(tx) => match complete(tx, claim).await {
                None => return Verdict::Written,
                Some(outcome) => outcome,
            },
        },
    };
    Verdict::Settle(decide(&handler.registration.policy, claim, outcome))
}

/// What a run of a claimed entry is given.
pub(super) fn context<S: Store>(inbox: &Shared<S>, handler: &Registered<S>, claimed: &Claimed) -> Context<S> {
    let Claimed { claim, message } = claimed;
    let (key, attempt) = (handler.route.key.clone(), claim.attempts.saturating_add(1));
    Context::new(inbox.surroundings(), Arc::clone(message), claim.key, key, attempt, claim.generation)
}

/// Runs the handler of a claimed entry once. When `cut` is requested, it is stopped where it stands.
pub(super) async fn attempt<S: Store>(
    inbox: &Shared<S>,
    handler: &Registered<S>,
    claimed: &Claimed,
    context: &mut Context<S>,
    cut: &Stop,
) -> std::result::Result<(), Outcome> {
    let (seq, attempt) = (claimed.claim.seq.0, context.attempt());
    let span = tracing::info_span!("oncebox.handle", handler = %handler.route.key, seq, attempt);
    tokio::select! {
        biased;
        ended = run(handler, &claimed.message, context, inbox).instrument(span) => ended,
        () = cut.wait() => Err(Outcome::Released),
    }
}

/// Completes a claim in the handler's own transaction; an outcome is what has to be settled instead.
async fn complete(tx: Box<dyn FinishTx>, claim: &Claim) -> Option<Outcome> {
    // A task of its own: a commit must not be torn when this run is aborted.
    match tokio::spawn(tx.complete(claim.clone())).await {
        Ok(Ok(Settled::Applied)) => {
            metrics::counter!(names::SETTLED, "event" => "done").increment(1);
            None
        }
        Ok(Ok(Settled::LeaseLost)) => {
            tracing::info!("rolled back: the claim belongs to somebody else");
            None
        }
        Ok(Err(error)) if error.kind() == ErrorKind::LeaseLost => {
            tracing::info!("rolled back: the claim belongs to somebody else");
            None
        }
        Ok(Err(error)) if is_trouble(error.kind()) => {
            tracing::warn!(error = %error.what(), "the handler's transaction was not committed");
            Some(UNCOMMITTED)
        }
        // Another run would write the same once more: a person has to see what is there.
        Ok(Err(error)) if error.kind() == ErrorKind::TransactionEnded => {
            Some(Outcome::Reject { error: ErrorText::of(&error) })
        }
        // What the handler wrote cannot be committed, now or ever.
        Ok(Err(error)) => Some(Outcome::Retry { error: ErrorText::of(&error), after: None }),
        Err(panic) => Some(Outcome::Retry {
            error: ErrorText::new(format!("the commit panicked: {panic}")),
            after: None,
        }),
    }
}

/// Runs the handler function: decoding, panics and the timeout included.
async fn run<S: Store>(
    handler: &Registered<S>,
    message: &Message,
    context: &mut Context<S>,
    inbox: &Shared<S>,
) -> std::result::Result<(), Outcome> {
    let start = Instant::now();
    let ended = match AssertUnwindSafe(call(handler, message, context, inbox)).catch_unwind().await {
        Ok(ended) => ended,
        Err(panic) => Err(Outcome::Retry { error: ErrorText::new(panic_text(&*panic)), after: None }),
    };
    let handler = handler.route.key.shared();
    metrics::histogram!(names::HANDLER_SECONDS, "handler" => handler).record(start.elapsed().as_secs_f64());
    ended
}

async fn call<S: Store>(
    handler: &Registered<S>,
    message: &Message,
    context: &mut Context<S>,
    inbox: &Shared<S>,
) -> std::result::Result<(), Outcome> {
    let run = handler
        .registration
        .function
        .run(message, context)
        .map_err(|error| Outcome::Undecodable { error: ErrorText::of(&error) })?;
    let result = match handler.registration.timeout {
        None => run.await,
        Some(timeout) => tokio::select! {
            biased;
            result = run => result,
            () = inbox.clock.sleep(timeout) => {
                let error = ErrorText::new(format!("the handler did not finish within {timeout:?}"));
                return Err(Outcome::Retry { error, after: None });
            }
        },
    };
    result.map_err(|failure| failure_outcome(&failure))
}

/// A store that was briefly away is not the handler's failure: no attempt is counted for it.
fn failure_outcome(failure: &Failure) -> Outcome {
    match failure.store_error() {
        Some(kind) if is_trouble(kind) => UNCOMMITTED,
        _ => failure.outcome(),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the handler panicked: {}", text.unwrap_or("no text"))
}

/// Runs an inline handler: mark, handler and commit in one transaction.
pub(crate) async fn run_inline<S: Store>(
    inbox: &Arc<Shared<S>>,
    handler: &Arc<Registered<S>>,
    key: Key,
    message: &Arc<Message>,
) -> Result<Processed> {
    let Some(open) = handler.registration.open else {
        return Err(Error::new(
            ErrorKind::InvalidHandler,
            format!("{:?} is not an inline handler", handler.route.key),
        ));
    };
    let handler_key = handler.route.key.clone();
    let (mark, tx) = open(Arc::clone(&inbox.store), inbox.name.clone(), key, handler_key.clone()).await?;
    match mark {
        Mark::Duplicate => return Ok(Processed::Duplicate),
        Mark::Busy => return Ok(Processed::Busy),
        Mark::First => {}
    }
    let mut context = Context::new(inbox.surroundings(), Arc::clone(message), key, handler_key, 1, 0);
    context.set_tx(tx);
    if let Err(outcome) = run(handler, message, &mut context, inbox).await {
        return Ok(Processed::Failed(outcome));
    }
    let Some(tx) = context.take_tx() else {
        return Err(Error::new(ErrorKind::CommitUnknown, "the transaction of an inline handler is gone"));
    };
    // A task of its own: a commit must not be torn when the caller goes away.
    let committed = tokio::spawn(tx.commit()).await;
    committed
        .map_err(|panic| Error::new(ErrorKind::CommitUnknown, format!("the commit panicked: {panic}")))??;
    Ok(Processed::Done)
}

/// Runs all handlers of a message at once, with no store behind them. One that fails keeps no other from its work.
pub(crate) async fn run_directly<S: Store>(
    inbox: &Arc<Shared<S>>,
    message: &Arc<Message>,
) -> Result<Receipt> {
    let mut receipt = Receipt::Done;
    for handler in inbox.registry.durable_for(message.kind()) {
        let handler_key = handler.route.key.clone();
        let key = inbox.mark_key(message, &handler_key)?;
        let mut context = Context::new(inbox.surroundings(), Arc::clone(message), key, handler_key, 1, 0);
        let processed = match run(handler, message, &mut context, inbox).await {
            Ok(()) => Processed::Done,
            Err(outcome) => Processed::Failed(outcome),
        };
        receipt = receipt.and(Receipt::of(processed, &handler.registration.policy));
    }
    Ok(receipt)
}
