//! Calls batch handlers, which take many messages at once. Tests: `tests/batch.rs`.
//!
//! If a call fails as a whole, each of its messages runs alone and is settled by its own result. Messages that do not
//! decode never get into a call.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tracing::Instrument as _;

use super::executor::{
    HandlerFailure, RunVerdict, UNCOMMITTED, failed, in_time, observed, panic_text, said, uncommitted,
};
use super::launch::{EntryRun, one_by_one};
use crate::error::ErrorKind;
use crate::handler::{
    BatchContext, BatchItem, BatchResult, ErasedBatch, Function, ItemResults, RegisteredHandler, ShareTx,
};
use crate::inbox::Shared;
use crate::message::Message;
use crate::observe::{emit, names};
use crate::runtime::upkeep::supervisor::Stop;
use crate::state::{ErrorText, Outcome};
use crate::store::{Claim, Claimed, Settled, Store};

/// Runs entries of one handler in one call, then each entry without a verdict alone.
pub(in crate::runtime) async fn run<S: Store>(mut runs: Vec<EntryRun<S>>) {
    runs.retain_mut(EntryRun::may_begin);
    let Some(EntryRun { core, handler, .. }) = runs.first() else { return };
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
    // Report only now, after the transaction has released the claims.
    runs.retain(|run| run.verdict.is_none());
    one_by_one(runs).await;
}

/// Runs a single entry of a batch handler in its own call.
pub(in crate::runtime) async fn execute_one<S: Store>(
    inbox: &Arc<Shared<S>>,
    handler: &RegisteredHandler<S>,
    function: &dyn ErasedBatch<S>,
    claimed: &Claimed,
    cut: &Stop,
) -> RunVerdict {
    let verdict = execute(inbox, handler, function, &[claimed], cut).await.pop().flatten();
    // A single entry always has a verdict.
    verdict.unwrap_or_else(|| HandlerFailure::from(UNCOMMITTED).settle(handler, &claimed.claim))
}

/// Runs claimed entries in one call. Entries without a verdict must run again, each alone.
pub(in crate::runtime) async fn execute<S: Store>(
    inbox: &Arc<Shared<S>>,
    handler: &RegisteredHandler<S>,
    function: &dyn ErasedBatch<S>,
    claimed: &[&Claimed],
    cut: &Stop,
) -> Vec<Option<RunVerdict>> {
    let mut verdicts: Vec<Option<RunVerdict>> = claimed.iter().map(|_| None).collect();
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
    let mut left: Vec<(&Claimed, &mut Option<RunVerdict>)> =
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

/// Returns the result of each message. Another number of results is a failure of the whole call.
fn each<S: Store>(
    handler: &RegisteredHandler<S>,
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
            Err(failed(inbox, &format!("the batch handler returned {answers} results for {count} messages")))
        }
    }
}

/// Settles a call that failed as a whole. Several entries stay without a verdict, unless the result applies to all of
/// them.
fn blame<'a, S: Store>(
    handler: &RegisteredHandler<S>,
    left: impl IntoIterator<Item = (&'a Claimed, &'a mut Option<RunVerdict>)>,
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
            tracing::warn!(%handler, count, error, "batch failed, retrying each message alone");
        }
        _ => {
            if let Some((claimed, verdict)) = left.pop() {
                *verdict = Some(whole.settle(handler, &claimed.claim));
            }
        }
    }
}

/// Settles each entry by its own result. The transaction, if there is one, completes those that are done.
async fn conclude<S: Store>(
    inbox: &Shared<S>,
    handler: &RegisteredHandler<S>,
    left: Vec<(&Claimed, &mut Option<RunVerdict>)>,
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
        // The first failure may have ended the transaction and caused the later ones.
        Some(_) if missed.iter().filter(|(.., said)| said.is_failure()).count() > 1 => {
            let (handler, count) = (&handler.route.key, missed.len());
            tracing::warn!(%handler, count, "batch transaction failed, retrying each alone");
            false
        }
        _ => {
            for (claimed, verdict) in done {
                *verdict = Some(HandlerFailure::from(Outcome::Done).settle(handler, &claimed.claim));
            }
            true
        }
    };
    // After a failed transaction, the result of one message may be the fault of another.
    if holds {
        for (claimed, verdict, said) in missed {
            *verdict = Some(said.settle(handler, &claimed.claim));
        }
    }
}

/// Settles a failed commit. Several messages of one transaction get no verdict: each runs alone.
fn blame_commit<S: Store>(
    handler: &RegisteredHandler<S>,
    done: Vec<(&Claimed, &mut Option<RunVerdict>)>,
    many: bool,
    whole: HandlerFailure,
) -> bool {
    if many && !matches!(whole.outcome, Outcome::Snooze { .. } | Outcome::Released) {
        let (handler, error) = (&handler.route.key, whole.outcome.text().map_or("", ErrorText::as_str));
        tracing::warn!(%handler, error, "batch commit failed, retrying each alone");
        return false;
    }
    blame(handler, done, whole);
    true
}

/// Completes and commits what is done. After a lost claim nothing is stored, and the others stay without a verdict. Returns
/// true if the results of the failed messages hold: not if the commit of `many` failed.
async fn commit<S: Store>(
    inbox: &Shared<S>,
    handler: &RegisteredHandler<S>,
    done: Vec<(&Claimed, &mut Option<RunVerdict>)>,
    many: bool,
    tx: Box<dyn ShareTx>,
) -> bool {
    let claims: Vec<Claim> = done.iter().map(|(claimed, _)| claimed.claim.clone()).collect();
    // In its own task, so that an abort of this call does not interrupt the commit.
    let settled = match tokio::spawn(tx.complete_all(claims)).await {
        Ok(Ok(settled)) => settled,
        Ok(Err(error)) if error.kind() == ErrorKind::LeaseLost && done.len() > 1 => {
            let handler = &handler.route.key;
            tracing::info!(%handler, "claim lost, batch rolled back");
            return true;
        }
        Ok(Err(error)) if error.kind() == ErrorKind::LeaseLost => vec![Settled::LeaseLost],
        Ok(Err(error)) => {
            let whole = uncommitted(inbox, handler, &error);
            if error.kind() == ErrorKind::TransactionEnded {
                // The handler may have committed all of them: an operator must check each.
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
                tracing::info!(seq, %handler, "claim lost, run rolled back");
                *verdict = Some(RunVerdict::Lost);
            }
            Settled::Applied if whole => {
                *verdict = Some(RunVerdict::Written);
            }
            Settled::Applied => {}
        }
    }
    true
}
