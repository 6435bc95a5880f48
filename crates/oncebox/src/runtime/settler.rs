//! Writes what was decided, many settlements at a time, and frees their capacity.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::sync::mpsc::UnboundedReceiver;

use super::Core;
use crate::error::{ErrorKind, Result};
use crate::inbox::Shared;
use crate::state::{Next, Settlement};
use crate::store::{Claim, Settled, Store};

/// The most settlements in one call.
const BATCH: usize = 1_000;
/// The longest pause between two tries while the store does not answer.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Runs until every sender is gone. Nothing is delayed to fill a batch: while one is written, the next one grows.
pub(super) async fn run<S: Store>(
    core: Arc<Core<S>>,
    queue: Arc<Mutex<UnboundedReceiver<Settlement>>>,
) -> Result<()> {
    let mut queue = queue.lock().await;
    let mut batch = Vec::new();
    while queue.recv_many(&mut batch, BATCH).await > 0 {
        write(&core, &batch).await?;
        core.flights.land(batch.iter().map(|settlement| &settlement.claim));
        batch.clear();
    }
    Ok(())
}

/// Writes a batch, and tries again while the store is away: a settlement is idempotent under its fence. What cannot
/// be written before the leases run out is refused then, and runs again elsewhere.
async fn write<S: Store>(core: &Core<S>, batch: &[Settlement]) -> Result<()> {
    let mut pause = Duration::ZERO;
    loop {
        match settle(&core.inbox, batch).await {
            Ok(()) => return Ok(()),
            Err(error) if error.is_retryable() => {
                if pause.is_zero() {
                    tracing::warn!(inbox = %core.inbox.name, error = %error, "cannot settle; trying again");
                }
                pause = (pause * 2).clamp(Duration::from_millis(50), MAX_PAUSE);
                core.inbox.clock.sleep(pause).await;
            }
            // Nothing of this batch can be written now; free its capacity and let the leases run out.
            Err(error) => {
                core.flights.land(batch.iter().map(|settlement| &settlement.claim));
                return Err(error);
            }
        }
        if batch.iter().all(|settlement| !core.flights.holds(&settlement.claim)) {
            tracing::warn!(inbox = %core.inbox.name, count = batch.len(), "leases ran out before they could be settled");
            return Ok(());
        }
    }
}

/// Writes a batch once, and tells the dispatcher what follows from it.
pub(super) async fn settle<S: Store>(inbox: &Shared<S>, batch: &[Settlement]) -> Result<()> {
    let settled = inbox.store.settle(batch).await?;
    for (settlement, settled) in batch.iter().zip(settled) {
        match (settled, settlement.next) {
            (Settled::LeaseLost, _) => report_lost(&settlement.claim),
            (Settled::Applied, Next::Pending { delay }) if !delay.is_zero() => {
                inbox.nudge.at(inbox.clock.monotonic() + delay);
            }
            // An entry that is pending again, or one that waited behind this one for order.
            (Settled::Applied, Next::Pending { .. }) => inbox.nudge.now(),
            (Settled::Applied, Next::Completed | Next::Discarded) if settlement.claim.ordered => {
                inbox.nudge.now();
            }
            (Settled::Applied, _) => {}
        }
    }
    Ok(())
}

fn report_lost(claim: &Claim) {
    tracing::info!(seq = claim.seq.0, handler = %claim.handler, kind = ?ErrorKind::LeaseLost, "settlement refused: the claim belongs to somebody else");
}
