//! Runs of one handler that share a transaction and its commit.
//!
//! Each run is a part of its own: one that fails is undone and settled by what it said. Whatever else goes wrong is
//! nobody's failure, and those who had not failed by themselves run again, each alone.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;

use super::executor::{UNCOMMITTED, Verdict, attempt, context};
use super::launch::Run;
use crate::error::{Error, ErrorKind, Result};
use crate::handler::ShareTx;
use crate::observe::names;
use crate::store::{Claim, Settled, Store};

/// Runs entries of one handler, one after the other: together if there are several, and else alone.
pub(super) async fn run<S: Store>(mut runs: Vec<Run<S>>) {
    if runs.len() > 1 {
        let shared = AssertUnwindSafe(share(&mut runs)).catch_unwind().await;
        let Err(error) = shared.unwrap_or_else(|_| Err(panicked())) else { return };
        // Those with a verdict of their own keep it. It is told here: not while the transaction held their claims.
        runs.retain(|run| run.verdict.is_none());
        let left = runs.len();
        tracing::warn!(error = %error.what(), left, "a shared transaction failed; running its entries one by one");
    }
    for run in runs {
        if !run.core.stop.requested() {
            run.alone().await;
        }
    }
}

/// Runs entries in one transaction. An error says that nothing of it was stored, and that all who have no verdict are
/// to run again. After success those without one did not begin.
async fn share<S: Store>(runs: &mut [Run<S>]) -> Result<()> {
    let Some(Run { core, handler, .. }) = runs.first() else { return Ok(()) };
    let Some(sharing) = &handler.registration.share else { return Err(not_shared()) };
    let (core, claims) = (Arc::clone(core), claims(runs.iter()));
    let (held, mut tx) = tokio::select! {
        biased;
        opened = (sharing.open)(Arc::clone(&core.inbox.store), claims) => opened?,
        () = core.cut.wait() => return Ok(()),
    };
    for (run, _) in runs.iter_mut().zip(held).filter(|(_, held)| *held == Settled::LeaseLost) {
        lost(run);
    }
    let mut done = Vec::new();
    for run in runs.iter_mut().filter(|run| run.verdict.is_none()) {
        if core.stop.requested() {
            break;
        }
        tx.savepoint().await?;
        tx = take_part(run, tx).await?;
        if run.verdict.is_none() {
            done.push(run);
        }
    }
    if done.is_empty() { Ok(()) } else { commit(done, tx).await }
}

/// Runs an entry in its part of the transaction. If it fails, the part is undone and the run has its verdict.
async fn take_part<S: Store>(run: &mut Run<S>, tx: Box<dyn ShareTx>) -> Result<Box<dyn ShareTx>> {
    let (inbox, cut) = (&run.core.inbox, &run.core.cut);
    let mut context = context(inbox, &run.handler, &run.claimed);
    context.lend_tx(tx);
    let ended = attempt(inbox, &run.handler, &run.claimed, &mut context, cut).await;
    let mut tx = context.return_tx().ok_or_else(not_shared)?;
    if let Err(outcome) = ended {
        run.verdict = Some(run.settle(outcome));
        tx.rollback_to_savepoint().await?;
    }
    Ok(tx)
}

/// Completes and commits what was done.
async fn commit<S: Store>(done: Vec<&mut Run<S>>, tx: Box<dyn ShareTx>) -> Result<()> {
    let claims = claims(done.iter().map(|run| &**run));
    // A task of its own: a commit must not be torn when this group is aborted.
    let settled = match tokio::spawn(tx.complete_all(claims)).await {
        Ok(Ok(settled)) => settled,
        Ok(Err(error)) if error.kind() == ErrorKind::CommitUnknown => {
            tracing::warn!(error = %error.what(), "it is not known whether a shared transaction was committed");
            for run in done {
                run.verdict = Some(run.settle(UNCOMMITTED));
            }
            return Ok(());
        }
        Ok(Err(error)) => return Err(error),
        // If it did happen, the fence refuses the repeats.
        Err(_) => return Err(panicked()),
    };
    let whole = settled.iter().all(|settled| *settled == Settled::Applied);
    for (run, settled) in done.into_iter().zip(settled) {
        match settled {
            Settled::LeaseLost => lost(run),
            Settled::Applied if whole => {
                metrics::counter!(names::SETTLED, "event" => "done").increment(1);
                run.verdict = Some(Verdict::Written);
            }
            Settled::Applied => {}
        }
    }
    if whole { Ok(()) } else { Err(Error::new(ErrorKind::LeaseLost, "a claim was lost before the commit")) }
}

fn claims<'a, S: Store>(runs: impl Iterator<Item = &'a Run<S>>) -> Vec<Claim> {
    runs.map(|run| run.claimed.claim.clone()).collect()
}

/// Nothing is left to be written for an entry that somebody else has.
fn lost<S: Store>(run: &mut Run<S>) {
    let (seq, handler) = (run.claimed.claim.seq.0, &run.handler.route.key);
    tracing::info!(seq, %handler, "left out: the claim belongs to somebody else");
    run.verdict = Some(Verdict::Written);
}

fn not_shared() -> Error {
    Error::new(ErrorKind::Unsupported, "there is no transaction to share")
}

fn panicked() -> Error {
    Error::new(ErrorKind::Unavailable, "the store panicked")
}
