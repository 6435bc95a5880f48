//! Extends the leases of running entries and stops runs that lost their lease. Tests: `tests/leases.rs`.

use std::sync::Arc;

use super::in_flight::InFlight;
use crate::error::Result;
use crate::inbox::Shared;
use crate::runtime::Core;
use crate::store::{Claim, RenewParams, Renewed, Store};

/// Maximum claims in one call.
const BATCH: usize = 1_000;
/// Ticks in a lease. Each lease is extended at the second tick at the latest: after a third of it.
const TICKS: u32 = 6;

pub(in crate::runtime) async fn run<S: Store>(core: Arc<Core<S>>) -> Result<()> {
    let Shared { clock, config, name, .. } = &*core.inbox;
    let (tick, patience) = (config.lease / TICKS, config.lease / 3);
    loop {
        core.heartbeats.turn("renewer", tick + patience);
        clock.sleep(tick).await;
        tokio::select! {
            biased;
            lost = renew(&core.inbox, aging(&core)) => core.in_flight.lose(&lost),
            () = clock.sleep(patience) => tracing::warn!(inbox = %name, "lease renewal takes too long"),
        }
        // Runs without a renewal must stop before the store's lease ends, and the next check may be this far away.
        let overdue = core.in_flight.overdue(clock.monotonic().saturating_add(tick + patience));
        if !overdue.is_empty() {
            tracing::warn!(inbox = %name, count = overdue.len(), "lease renewal failed, stopping handlers");
            core.in_flight.stop(&overdue);
        }
    }
}

/// Returns the claims older than a tick. Younger ones can wait for the next tick, before a third of their lease is over.
fn aging<S: Store>(core: &Core<S>) -> (&InFlight, Vec<Claim>) {
    let lease = core.inbox.config.lease;
    let ends = core.inbox.clock.monotonic().saturating_add(lease.saturating_sub(lease / TICKS));
    (&core.in_flight, core.in_flight.overdue(ends))
}

/// Renews claims in hand. Returns those that another worker has.
async fn renew<S: Store>(inbox: &Shared<S>, (in_flight, claims): (&InFlight, Vec<Claim>)) -> Vec<Claim> {
    let lease = inbox.config.lease;
    let mut lost = Vec::new();
    for claims in claims.chunks(BATCH) {
        // Taken before the call, so the new lease cannot begin earlier.
        let deadline = inbox.clock.monotonic().saturating_add(lease);
        match inbox.store.renew(&RenewParams::new(claims.to_vec(), lease)).await {
            Ok(renewed) => {
                let mut kept = Vec::new();
                for (claim, renewed) in claims.iter().zip(renewed) {
                    match renewed {
                        Renewed::Extended => kept.push(claim.clone()),
                        Renewed::LeaseLost => lost.push(claim.clone()),
                    }
                }
                in_flight.extend(&kept, deadline);
            }
            // The deadlines stay, and stop the runs that reach them.
            Err(error) => inbox.store.watch().trouble(&inbox.name, "renew", &error),
        }
    }
    lost
}

/// Renews everything in hand until it is dropped, and stops nothing. For `process_pending`.
pub(in crate::runtime) async fn keep_renewing<S: Store>(
    inbox: &Shared<S>,
    in_flight: &InFlight,
) -> std::convert::Infallible {
    loop {
        inbox.clock.sleep(inbox.config.lease / 4).await;
        renew(inbox, (in_flight, in_flight.claims())).await;
    }
}
