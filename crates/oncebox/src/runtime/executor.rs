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
use crate::inbox::{Processed, Shared};
use crate::key::Key;
use crate::message::Message;
use crate::observe::names;
use crate::state::{ErrorText, Outcome, Settlement, decide};
use crate::store::{Claimed, Mark, Settled, Store};

/// How long an entry waits when its transaction could not be committed through no fault of its own.
const STORE_TROUBLE: Duration = Duration::from_secs(1);

/// What became of a run.
pub(super) enum Verdict {
    /// To be written by the settler.
    Settle(Settlement),
    /// Already written, in the handler's own transaction.
    Written,
}

/// How a handler's run ended.
enum Ended {
    Ok(Option<Box<dyn FinishTx>>),
    Failed(Outcome),
}

/// Runs a claimed entry to its verdict. Gives it back untouched when `cut` is requested.
pub(super) async fn execute<S: Store>(
    inbox: &Arc<Shared<S>>,
    handler: &Arc<Registered<S>>,
    claimed: Claimed,
    cut: &Stop,
) -> Verdict {
    let Claimed { claim, message } = claimed;
    let policy = &handler.registration.policy;
    let key = handler.route.key.clone();
    let attempt = claim.attempts.saturating_add(1);
    let context =
        Context::new(inbox.surroundings(), Arc::clone(&message), claim.key, key, attempt, claim.generation);
    let span =
        tracing::info_span!("oncebox.handle", handler = %handler.route.key, seq = claim.seq.0, attempt);
    let run = run(handler, &message, context, inbox).instrument(span);
    let ended = tokio::select! {
        biased;
        ended = run => ended,
        () = cut.wait() => Ended::Failed(Outcome::Released),
    };
    let outcome = match ended {
        Ended::Ok(None) => Outcome::Done,
        Ended::Failed(outcome) => outcome,
        Ended::Ok(Some(tx)) => {
            // A task of its own: a commit must not be torn when this run is aborted.
            match tokio::spawn(tx.complete(claim.clone())).await {
                Ok(Ok(settled)) => {
                    match settled {
                        Settled::Applied => metrics::counter!(names::SETTLED, "event" => "done").increment(1),
                        Settled::LeaseLost => {
                            tracing::info!("rolled back: the claim belongs to somebody else");
                        }
                    }
                    return Verdict::Written;
                }
                Ok(Err(error)) if error.kind() == ErrorKind::LeaseLost => {
                    tracing::info!("rolled back: the claim belongs to somebody else");
                    return Verdict::Written;
                }
                // It did not happen, or it is not known. Giving the entry back is right either way: the fence refuses
                // it if the completion was written, and otherwise the handler runs again.
                Ok(Err(error)) if is_trouble(error.kind()) => {
                    tracing::warn!(error = %error.what(), "the handler's transaction was not committed");
                    Outcome::Snooze { delay: STORE_TROUBLE }
                }
                // What the handler wrote cannot be committed, now or ever.
                Ok(Err(error)) => Outcome::Retry { error: ErrorText::of(&error), after: None },
                Err(panic) => Outcome::Retry {
                    error: ErrorText::new(format!("the commit panicked: {panic}")),
                    after: None,
                },
            }
        }
    };
    Verdict::Settle(decide(policy, &claim, outcome))
}

/// Runs the handler function: decoding, panics and the timeout included.
async fn run<S: Store>(
    handler: &Registered<S>,
    message: &Message,
    mut context: Context<S>,
    inbox: &Shared<S>,
) -> Ended {
    let start = Instant::now();
    let ended = match AssertUnwindSafe(call(handler, message, &mut context, inbox)).catch_unwind().await {
        Ok(Ok(())) => Ended::Ok(context.take_tx()),
        Ok(Err(outcome)) => Ended::Failed(outcome),
        Err(panic) => {
            Ended::Failed(Outcome::Retry { error: ErrorText::new(panic_text(&*panic)), after: None })
        }
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
        Some(kind) if is_trouble(kind) => Outcome::Snooze { delay: STORE_TROUBLE },
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
    match run(handler, message, context, inbox).await {
        Ended::Ok(Some(tx)) => {
            // A task of its own: a commit must not be torn when the caller goes away.
            let committed = tokio::spawn(tx.commit()).await;
            committed.map_err(|panic| {
                Error::new(ErrorKind::CommitUnknown, format!("the commit panicked: {panic}"))
            })??;
            Ok(Processed::Done)
        }
        Ended::Ok(None) => {
            Err(Error::new(ErrorKind::CommitUnknown, "the transaction of an inline handler is gone"))
        }
        Ended::Failed(outcome) => Ok(Processed::Failed(outcome)),
    }
}
