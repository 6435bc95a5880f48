//! Writes settlements in batches and releases their capacity. Tests: `tests/outcomes.rs`, `tests/outages.rs`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Mutex, Notify};

use crate::error::{Error, ErrorKind, Result};
use crate::inbox::Shared;
use crate::runtime::Core;
use crate::runtime::upkeep::repeat::{Pauses, is_trouble};
use crate::state::{ErrorText, NextState, Settlement};
use crate::store::{Claim, Settled, Store};

/// Maximum settlements in one call.
const BATCH: usize = 4_000;

/// Runs until every sender is gone. A batch never waits to fill up: while one is written, the next one grows.
pub(in crate::runtime) async fn run<S: Store>(
    core: Arc<Core<S>>,
    queue: Arc<Mutex<UnboundedReceiver<Settlement>>>,
) -> Result<()> {
    let mut queue = queue.lock().await;
    loop {
        core.heartbeats.turn("settler", Duration::MAX);
        let mut batch = Batch { core: Arc::clone(&core), settlements: Vec::new() };
        if queue.recv_many(&mut batch.settlements, BATCH).await == 0 {
            return Ok(());
        }
        core.heartbeats.turn("settler", Duration::ZERO);
        write(batch).await;
        core.in_flight.report(&core.inbox.name);
    }
}

/// Lets the rescuer request that waiting settlements are tried now.
#[derive(Default)]
pub(in crate::runtime) struct SettleRequests {
    wanted: Notify,
    refused: Arc<Notify>,
}

impl SettleRequests {
    /// Ends the pause before the next try.
    pub(in crate::runtime) fn now(&self) {
        self.wanted.notify_one();
    }

    /// Completes when a try after this call has failed because the store is unavailable.
    pub(in crate::runtime) fn refused(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut refused = Box::pin(Arc::clone(&self.refused).notified_owned());
        refused.as_mut().enable();
        refused
    }
}

/// Settlements that are being written. A drop releases their entries in any case, because an entry that is renewed for
/// ever could never be rescued.
struct Batch<S: Store> {
    core: Arc<Core<S>>,
    settlements: Vec<Settlement>,
}

impl<S: Store> Batch<S> {
    /// Moves one settlement to its own batch.
    fn split(&mut self) -> Option<Self> {
        let settlements = vec![self.settlements.pop()?];
        Some(Self { core: Arc::clone(&self.core), settlements })
    }

    fn is_held(&self) -> bool {
        self.settlements.iter().any(|settlement| self.core.in_flight.holds(&settlement.claim))
    }
}

impl<S: Store> Drop for Batch<S> {
    fn drop(&mut self) {
        self.core.in_flight.release(self.settlements.iter().map(|settlement| &settlement.claim));
    }
}

/// Writes a batch, and retries while the store is unavailable: a settlement is idempotent under its fence. Leases are
/// renewed meanwhile. Once they expire, the store refuses the settlements, and the entries run again elsewhere.
async fn write<S: Store>(mut batch: Batch<S>) {
    let core = Arc::clone(&batch.core);
    let mut pauses = Pauses::default();
    loop {
        match settle(&core.inbox, &batch.settlements).await {
            Ok(()) => return,
            Err(error) if is_trouble(error.kind()) => {
                core.inbox.store.watch().trouble(&core.inbox.name, "settle", &error);
                core.heartbeats.turn("settler", Duration::ZERO);
                core.settle.refused.notify_waiters();
                tokio::select! {
                    () = core.inbox.clock.sleep(pauses.next()) => {}
                    () = core.settle.wanted.notified() => {}
                }
            }
            Err(_) if batch.settlements.len() > 1 => {
                // One of them may cause the error: each gets its own call, so that only that one fails.
                while let Some(one) = batch.split() {
                    Box::pin(write(one)).await;
                }
                return;
            }
            Err(error) => {
                // The others do not wait for it.
                tokio::spawn(insist(batch, error));
                return;
            }
        }
        if !batch.is_held() {
            let count = batch.settlements.len();
            tracing::warn!(inbox = %core.inbox.name, count, "leases expired before settlement");
            return;
        }
    }
}

/// Retries one settlement that the store refuses, as long as its lease can be held: the handler has answered, and must not run
/// again. An entry that can never be settled stays in hand until this process ends.
async fn insist<S: Store>(batch: Batch<S>, mut error: Error) {
    let Shared { clock, name, store, .. } = &*batch.core.inbox;
    let (mut pauses, in_flight) = (Pauses::default(), &batch.core.in_flight);
    for settlement in &batch.settlements {
        while in_flight.deadline(&settlement.claim).is_some_and(|deadline| clock.monotonic() < deadline) {
            store.watch().trouble(name, "settle one", &error);
            clock.sleep(pauses.next()).await;
            error = match settle(&batch.core.inbox, std::slice::from_ref(settlement)).await {
                Ok(()) => return,
                Err(error) => error,
            };
        }
    }
    if let Some(suppressed) = store.watch().log_throttle.allow("unsettled", "") {
        let error = ErrorText::new(error.to_string());
        tracing::error!(inbox = %name, %error, suppressed, "cannot settle, lease will expire");
    }
}

/// Writes a batch once, and wakes the dispatcher for entries that are due again.
pub(in crate::runtime) async fn settle<S: Store>(inbox: &Shared<S>, batch: &[Settlement]) -> Result<()> {
    let settled = inbox.store.settle(batch).await?;
    for (settlement, settled) in batch.iter().zip(settled) {
        match (settled, settlement.next) {
            (Settled::LeaseLost, _) => report_lost(&settlement.claim),
            (Settled::Applied, NextState::Pending { delay }) if !delay.is_zero() => {
                inbox.local_wakeup.at(inbox.clock.monotonic().saturating_add(delay));
            }
            // An entry that is pending again, or one that waited behind this one for order.
            (Settled::Applied, NextState::Pending { .. }) => inbox.local_wakeup.now(),
            (Settled::Applied, _) if settlement.claim.order.is_some() => inbox.local_wakeup.now(),
            (Settled::Applied, _) => {}
        }
    }
    Ok(())
}

fn report_lost(claim: &Claim) {
    tracing::info!(seq = claim.seq.0, handler = %claim.handler, kind = ?ErrorKind::LeaseLost, "claim lost, settlement refused");
}
