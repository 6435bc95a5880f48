//! Runs several entries of one handler in a shared transaction with one commit. Tests: `tests/share.rs`.
//!
//! Each run has its own savepoint: a failed run is rolled back and settled by its own error. After any other error the
//! remaining runs repeat, each alone, and none counts a failure. If a handler ended the transaction, earlier writes may be
//! committed, and their runs do not repeat.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;

use super::executor::{RunVerdict, UNCOMMITTED, attempt, context, uncommitted};
use super::launch::{EntryRun, one_by_one, patience};
use crate::error::{Error, ErrorKind, Result};
use crate::handler::ShareTx;
use crate::store::{Claim, Settled, Store};
use crate::time::Sleep;

/// Runs entries of one handler one after the other: several in a shared transaction, a single one alone.
pub(in crate::runtime) async fn run<S: Store>(mut runs: Vec<EntryRun<S>>) {
    loop {
        runs.retain_mut(EntryRun::may_begin);
        if runs.len() < 2 || runs[0].core.stop.requested() {
            break;
        }
        let shared = AssertUnwindSafe(share(&mut runs)).catch_unwind().await;
        // Report only now, after the transaction has released the claims.
        runs.retain(|run| run.verdict.is_none());
        if let Err(error) = shared.unwrap_or_else(|_| Err(panicked())) {
            let left = runs.len();
            tracing::warn!(error = %error.what(), left, "shared transaction failed, running entries alone");
            break;
        }
    }
    one_by_one(runs).await;
}

/// Runs entries in one transaction. After an error nothing was stored, and entries without a verdict must run again,
/// alone. After success, entries without a verdict did not begin.
async fn share<S: Store>(runs: &mut [EntryRun<S>]) -> Result<()> {
    let Some(EntryRun { core, handler, .. }) = runs.first() else { return Ok(()) };
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
    let (clock, patience) = (&core.inbox.clock, patience(core.inbox.config.lease));
    let (begun, mut too_long) = (clock.monotonic(), clock.sleep(patience));
    let mut done = Vec::new();
    for run in runs.iter_mut().filter(|run| run.verdict.is_none()) {
        // Later runs get another transaction, before the time limit of this one.
        let is_late = clock.monotonic().saturating_sub(begun) > patience / 2;
        if core.stop.requested() || is_late || !run.is_let_in() {
            break;
        }
        let parted = match tx.savepoint().await {
            Ok(()) => take_part(run, tx, &mut too_long).await,
            Err(error) => Err(error),
        };
        tx = match parted {
            Ok(tx) => tx,
            Err(error) => return fail(done, error),
        };
        if run.verdict.is_none() {
            done.push(run);
        }
    }
    if done.is_empty() { Ok(()) } else { commit(done, tx).await }
}

/// Runs an entry behind a savepoint. After a failure the savepoint is rolled back and the run has its verdict.
async fn take_part<S: Store>(
    run: &mut EntryRun<S>,
    tx: Box<dyn ShareTx>,
    too_long: &mut Sleep,
) -> Result<Box<dyn ShareTx>> {
    let (inbox, cut) = (&run.core.inbox, &run.core.cut);
    let mut context = context(inbox, &run.claimed);
    context.lend_tx(tx);
    let ended = tokio::select! {
        biased;
        ended = attempt(inbox, &run.handler, &run.claimed, &mut context, cut) => ended,
        () = too_long => {
            return Err(Error::new(ErrorKind::Unavailable, "a run takes too long for a shared transaction"));
        }
    };
    let mut tx = context.return_tx().ok_or_else(not_shared)?;
    match ended {
        Ok(()) => run.did_well(),
        Err(said) => {
            run.conclude(said.settle(&run.handler, &run.claimed.claim));
            tx.rollback_to_savepoint().await?;
        }
    }
    Ok(tx)
}

/// Completes and commits the successful runs.
async fn commit<S: Store>(done: Vec<&mut EntryRun<S>>, tx: Box<dyn ShareTx>) -> Result<()> {
    let claims = claims(done.iter().map(|run| &**run));
    // In its own task, so that an abort of this group does not interrupt the commit.
    let settled = match tokio::spawn(tx.complete_all(claims)).await {
        Ok(Ok(settled)) => settled,
        Ok(Err(error)) if error.kind() == ErrorKind::CommitUnknown => {
            tracing::warn!(error = %error.what(), "shared commit outcome unknown");
            for run in done {
                run.verdict = Some(run.settle(UNCOMMITTED));
            }
            return Ok(());
        }
        Ok(Err(error)) => return fail(done, error),
        // If it did happen, the fence refuses the repeats.
        Err(_) => return Err(panicked()),
    };
    let whole = settled.iter().all(|settled| *settled == Settled::Applied);
    for (run, settled) in done.into_iter().zip(settled) {
        match settled {
            Settled::LeaseLost => lost(run),
            Settled::Applied if whole => {
                run.verdict = Some(RunVerdict::Written);
            }
            Settled::Applied => {}
        }
    }
    if whole { Ok(()) } else { Err(Error::new(ErrorKind::LeaseLost, "a claim was lost before the commit")) }
}

/// Settles the successful runs after an error. If a handler ended the transaction, their writes may be committed: another
/// run might write the same again, so an operator must check.
fn fail<S: Store>(done: Vec<&mut EntryRun<S>>, error: Error) -> Result<()> {
    if error.kind() != ErrorKind::TransactionEnded || done.is_empty() {
        return Err(error);
    }
    for run in done {
        let said = uncommitted(&run.core.inbox, &run.handler, &error);
        run.verdict = Some(said.settle(&run.handler, &run.claimed.claim));
    }
    Ok(())
}

fn claims<'a, S: Store>(runs: impl Iterator<Item = &'a EntryRun<S>>) -> Vec<Claim> {
    runs.map(|run| run.claimed.claim.clone()).collect()
}

/// Concludes a run whose entry another worker has.
fn lost<S: Store>(run: &mut EntryRun<S>) {
    let (seq, handler) = (run.claimed.claim.seq.0, &run.handler.route.key);
    tracing::info!(seq, %handler, "claim lost, entry skipped");
    run.conclude(RunVerdict::Lost);
}

fn not_shared() -> Error {
    Error::new(ErrorKind::Unsupported, "there is no transaction to share")
}

fn panicked() -> Error {
    Error::new(ErrorKind::Unavailable, "the store panicked")
}
