//! Writes what was decided, many settlements at a time, and frees their capacity.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::sync::mpsc::UnboundedReceiver;

use super::Core;
use super::flights::Flights;
use super::repeat::{Pauses, is_trouble};
use crate::error::{ErrorKind, Result};
use crate::inbox::Shared;
use crate::state::{ErrorText, Next, Settlement};
use crate::store::{Claim, Settled, Store};

/// The most settlements in one call.
const BATCH: usize = 4_000;

/// Runs until every sender is gone. Nothing is delayed to fill a batch: while one is written, the next one grows.
pub(super) async fn run<S: Store>(
    core: Arc<Core<S>>,
    queue: Arc<Mutex<UnboundedReceiver<Settlement>>>,
) -> Result<()> {
    let mut queue = queue.lock().await;
    loop {
        core.beats.turn("settler", Duration::MAX);
        let mut batch = Batch { flights: &core.flights, settlements: Vec::new() };
        if queue.recv_many(&mut batch.settlements, BATCH).await == 0 {
            return Ok(());
        }
        core.beats.turn("settler", Duration::ZERO);
        write(&core, &batch.settlements).await;
        drop(batch);
        core.flights.tell(&core.inbox.name);
    }
}

/// Settlements on their way to the store. Whatever becomes of them, their entries are not in hand any more: an entry
/// that was renewed for ever could never be rescued.
struct Batch<'a> {
    flights: &'a Flights,
    settlements: Vec<Settlement>,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.flights.land(self.settlements.iter().map(|settlement| &settlement.claim));
    }
}

/// Writes a batch, and tries again while the store is away: a settlement is idempotent under its fence. What cannot
/// be written before the leases run out is refused then, and runs again elsewhere.
async fn write<S: Store>(core: &Core<S>, batch: &[Settlement]) {
    let mut pauses = Pauses::default();
    loop {
        match settle(&core.inbox, batch).await {
            Ok(()) => return,
            Err(error) if is_trouble(error.kind()) => {
                core.inbox.store.watch().trouble(&core.inbox.name, "settle", &error);
                core.beats.turn("settler", Duration::ZERO);
                core.inbox.clock.sleep(pauses.next()).await;
            }
            Err(_) if batch.len() > 1 => {
                // One of them spoils it for all: each gets its own call, so that only that one fails.
                for settlement in batch {
                    Box::pin(write(core, std::slice::from_ref(settlement))).await;
                }
                return;
            }
            Err(error) => {
                if let Some(unsaid) = core.inbox.store.watch().hush.may_say("unsettled", "") {
                    let error = ErrorText::new(error.to_string());
                    tracing::error!(inbox = %core.inbox.name, %error, unsaid, "cannot settle; leaving it to its lease");
                }
                return;
            }
        }
        if batch.iter().all(|settlement| !core.flights.holds(&settlement.claim)) {
            tracing::warn!(inbox = %core.inbox.name, count = batch.len(), "leases ran out before they could be settled");
            return;
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
                inbox.nudge.at(inbox.clock.monotonic().saturating_add(delay));
            }
            // An entry that is pending again, or one that waited behind this one for order.
            (Settled::Applied, Next::Pending { .. }) => inbox.nudge.now(),
            (Settled::Applied, _) if settlement.claim.order.is_some() => inbox.nudge.now(),
            (Settled::Applied, _) => {}
        }
    }
    Ok(())
}

fn report_lost(claim: &Claim) {
    tracing::info!(seq = claim.seq.0, handler = %claim.handler, kind = ?ErrorKind::LeaseLost, "settlement refused: the claim belongs to somebody else");
}
