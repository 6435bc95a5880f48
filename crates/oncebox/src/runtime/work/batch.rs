//! Calls batch handlers, which take many messages at once. Tests: `tests/batch.rs`.
//!
//! A call that fails as a whole says nothing about any one message: each is tried alone then, and settled by what it says
//! there. What does not decode never gets into a call.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tracing::Instrument as _;

use super::executor::{
    HandlerFailure, UNCOMMITTED, Verdict, failed, in_time, observed, panic_text, said, uncommitted,
};
use super::launch::{Run, one_by_one};
use crate::error::ErrorKind;
use crate::handler::{
    BatchContext, BatchItem, BatchResult, ErasedBatch, Function, ItemResults, Registered, ShareTx,
};
use crate::inbox::Shared;
use crate::message::Message;
use crate::observe::{emit, names};
use crate::runtime::upkeep::supervisor::Stop;
use crate::state::{ErrorText, Outcome};
use crate::store::{Claim, Claimed, Settled, Store};

/// Runs entries of one handler in one call, and those that this does not settle each alone.
pub(in crate::runtime) async fn run<S: Store>(mut runs: Vec<Run<S>>) {
    runs.retain_mut(Run::may_begin);
    let Some(Run { core, handler, .. }) = runs.first() else { return };
    let (core, handler) = (Arc::clone(core), Arc::clone(handler));
    if let Function::Batch(function) = &handler.registration.function {
        let claimed: Vec<&Claimed> = runs.iter().map(|run| &run.claimed).collect();
        let verdicts = execute(&core.inbox, &handler, &**function, &claimed, &core.cut).await;
        for (run, verdict) in runs.iter_mut().zip(verdicts) {
            if let Some(verdict) = verdict {
                run.conclude(verdict);
            }
        }
    }
    // Told only now: the transaction is over, and holds no claim any more.
    runs.retain(|run| run.verdict.is_none());
    one_by_one(runs).await;
}

/// Runs a single entry of a batch handler, in a call for itself.
pub(in crate::runtime) async fn execute_one<S: Store>(
    inbox: &Arc<Shared<S>>,
    handler: &Registered<S>,
    function: &dyn ErasedBatch<S>,
    claimed: &Claimed,
    cut: &Stop,
) -> Verdict {
    let verdict = execute(inbox, handler, function, &[claimed], cut).await.pop().flatten();
    // Alone it always has one.
    verdict.unwrap_or_else(|| HandlerFailure::from(UNCOMMITTED).settle(handler, &claimed.claim))
}

/// Runs claimed entries in one call. Those without a verdict are to run again, each alone.
pub(in crate::runtime) async fn execute<S: Store>(
    inbox: &Arc<Shared<S>>,
    handler: &Registered<S>,
    function: &dyn ErasedBatch<S>,
    claimed: &[&Claimed],
    cut: &Stop,
) -> Vec<Option<Verdict>> {
    let mut verdicts: Vec<Option<Verdict>> = claimed.iter().map(|_| None).collect();
    let messages: Vec<Arc<Message>> = claimed.iter().map(|claimed| Arc::clone(&claimed.message)).collect();
    let prepared = catch_unwind(AssertUnwindSafe(|| function.prepare(&messages)));
    let (decoded, prepared) = match prepared {
        Ok(prepared) => prepared,
        Err(panic) => {
            let whole = failed(inbox, &panic_text(&*panic));
            blame(handler, claimed.iter().copied().zip(&mut verdicts), whole);
            return verdicts;
        }
    };
    for ((claimed, verdict), decoded) in claimed.iter().zip(&mut verdicts).zip(decoded) {
        if let Err(error) = decoded {
            let error = inbox.redactor.error(&error);
            *verdict =
                Some(HandlerFailure::from(Outcome::Undecodable { error }).settle(handler, &claimed.claim));
        }
    }
    let mut left: Vec<(&Claimed, &mut Option<Verdict>)> =
        claimed.iter().copied().zip(&mut verdicts).collect();
    left.retain(|(_, verdict)| verdict.is_none());
    if left.is_empty() {
        return verdicts;
    }
    let items = left.iter().map(|(Claimed { claim, message }, _)| BatchItem::new(Arc::clone(message), claim));
    let mut context = BatchContext::new(inbox.surroundings(), items.collect());
    let count = left.len();
    let labels = [emit::inbox(&inbox.name), emit::handler(&handler.route.key)];
    emit::size(names::HANDLER_BATCH, count, labels);
    let watch = inbox.store.watch();
    for (Claimed { claim, message }, _) in &left {
        watch.notify(&inbox.name, |observer| observer.started(claim, message));
    }
    let messages = left.iter().map(|(claimed, _)| (&*claimed.message, watch.claims.of(&claimed.claim)));
    let span = watch.propagator.handling_batch(&inbox.name, &handler.route.key, messages);
    let call = async {
        let answer = in_time(handler, inbox, prepared(&mut context)).await?;
        answer
            .map_err(|failure| said(handler, inbox, &failure))
            .and_then(|answer| each(handler, inbox, answer, count))
    };
    let answered = tokio::select! {
        biased;
        answered = observed(handler, inbox, call).instrument(span) => answered,
        () = cut.wait() => Err(Outcome::Released.into()),
    };
    match answered {
        Err(whole) => blame(handler, left, whole),
        Ok(answers) => conclude(inbox, handler, left, answers, context.take_tx()).await,
    }
    verdicts
}

/// What was said of each message. Who answers for another number of messages was mistaken about all of them.
fn each<S: Store>(
    handler: &Registered<S>,
    inbox: &Shared<S>,
    BatchResult(answer): BatchResult,
    count: usize,
) -> Result<Vec<Result<(), HandlerFailure>>, HandlerFailure> {
    match answer {
        ItemResults::Done => Ok((0..count).map(|_| Ok(())).collect()),
        ItemResults::Each(items) if items.len() == count => {
            let said = |item: Result<(), _>| item.map_err(|failure| said(handler, inbox, &failure));
            Ok(items.into_iter().map(said).collect())
        }
        ItemResults::Each(items) => {
            let answers = items.len();
            Err(failed(inbox, &format!("the batch handler gave {answers} answers for {count} messages")))
        }
    }
}

/// Settles what a call that failed as a whole means for each. Several are left without a verdict, unless what was said
/// is about nobody in particular.
fn blame<'a, S: Store>(
    handler: &Registered<S>,
    left: impl IntoIterator<Item = (&'a Claimed, &'a mut Option<Verdict>)>,
    whole: HandlerFailure,
) {
    let mut left: Vec<_> = left.into_iter().collect();
    match whole.outcome {
        Outcome::Snooze { .. } | Outcome::Released => {
            for (claimed, verdict) in left {
                *verdict = Some(HandlerFailure::from(whole.outcome.clone()).settle(handler, &claimed.claim));
            }
        }
        outcome if left.len() > 1 => {
            let error = outcome.text().map_or("", ErrorText::as_str);
            let (handler, count) = (&handler.route.key, left.len());
            tracing::warn!(%handler, count, error, "a batch failed; each of its messages is tried alone");
        }
        _ => {
            if let Some((claimed, verdict)) = left.pop() {
                *verdict = Some(whole.settle(handler, &claimed.claim));
            }
        }
    }
}

/// Settles each by its own answer; the completions of those that are done go with the transaction, if there is one.
async fn conclude<S: Store>(
    inbox: &Shared<S>,
    handler: &Registered<S>,
    left: Vec<(&Claimed, &mut Option<Verdict>)>,
    answers: Vec<Result<(), HandlerFailure>>,
    tx: Option<Box<dyn ShareTx>>,
) {
    let (mut done, mut missed, many) = (Vec::new(), Vec::new(), left.len() > 1);
    for ((claimed, verdict), answer) in left.into_iter().zip(answers) {
        match answer {
            Ok(()) => done.push((claimed, verdict)),
            Err(said) => missed.push((claimed, verdict, said)),
        }
    }
    let holds = match tx {
        Some(tx) if !done.is_empty() => commit(inbox, handler, done, many, tx).await,
        // The first failure may have ended the transaction, and be all that is wrong with those after it.
        Some(_) if missed.iter().filter(|(.., said)| said.is_failure()).count() > 1 => {
            let (handler, count) = (&handler.route.key, missed.len());
            tracing::warn!(%handler, count, "nothing of a batch succeeded in its transaction; each of its messages is tried alone");
            false
        }
        _ => {
            for (claimed, verdict) in done {
                *verdict = Some(HandlerFailure::from(Outcome::Done).settle(handler, &claimed.claim));
            }
            true
        }
    };
    // Where the transaction was spoiled, nobody knows by whom, and what was said of each may be said because of another.
    if holds {
        for (claimed, verdict, said) in missed {
            *verdict = Some(said.settle(handler, &claimed.claim));
        }
    }
}

/// Settles what a commit that failed means. Of several messages in one transaction none is blamed: each is tried alone.
fn blame_commit<S: Store>(
    handler: &Registered<S>,
    done: Vec<(&Claimed, &mut Option<Verdict>)>,
    many: bool,
    whole: HandlerFailure,
) -> bool {
    if many && !matches!(whole.outcome, Outcome::Snooze { .. } | Outcome::Released) {
        let (handler, error) = (&handler.route.key, whole.outcome.text().map_or("", ErrorText::as_str));
        tracing::warn!(%handler, error, "a batch could not be committed; each of its messages is tried alone");
        return false;
    }
    blame(handler, done, whole);
    true
}

/// Completes and commits what is done. If a claim was lost, nothing is stored, and the others are left without a verdict. Whether
/// the answers for the others hold: not if what one of `many` did cannot be committed.
async fn commit<S: Store>(
    inbox: &Shared<S>,
    handler: &Registered<S>,
    done: Vec<(&Claimed, &mut Option<Verdict>)>,
    many: bool,
    tx: Box<dyn ShareTx>,
) -> bool {
    let claims: Vec<Claim> = done.iter().map(|(claimed, _)| claimed.claim.clone()).collect();
    // A task of its own: a commit must not be torn when this call is aborted.
    let settled = match tokio::spawn(tx.complete_all(claims)).await {
        Ok(Ok(settled)) => settled,
        Ok(Err(error)) if error.kind() == ErrorKind::LeaseLost && done.len() > 1 => {
            let handler = &handler.route.key;
            tracing::info!(%handler, "rolled back: a claim of the batch belongs to somebody else");
            return true;
        }
        Ok(Err(error)) if error.kind() == ErrorKind::LeaseLost => vec![Settled::LeaseLost],
        Ok(Err(error)) => {
            let whole = uncommitted(inbox, handler, &error);
            if error.kind() == ErrorKind::TransactionEnded {
                // All of them are in what was written: a person has to see each.
                for (claimed, verdict) in done {
                    *verdict =
                        Some(HandlerFailure::from(whole.outcome.clone()).settle(handler, &claimed.claim));
                }
                return true;
            }
            return blame_commit(handler, done, many, whole);
        }
        Err(panic) => {
            let whole = failed(inbox, &format!("the commit panicked: {panic}"));
            return blame_commit(handler, done, many, whole);
        }
    };
    let whole = settled.iter().all(|settled| *settled == Settled::Applied);
    for ((claimed, verdict), settled) in done.into_iter().zip(settled) {
        match settled {
            Settled::LeaseLost => {
                let (seq, handler) = (claimed.claim.seq.0, &handler.route.key);
                tracing::info!(seq, %handler, "rolled back: the claim belongs to somebody else");
                *verdict = Some(Verdict::Lost);
            }
            Settled::Applied if whole => {
                *verdict = Some(Verdict::Written);
            }
            Settled::Applied => {}
        }
    }
    true
}
