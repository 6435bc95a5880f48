//! Extends the leases of what still runs, and stops what lost its lease.

use std::sync::Arc;

use super::Core;
use crate::error::Result;
use crate::store::{Claim, RenewParams, Renewed, Store};

/// The most claims in one call.
const BATCH: usize = 1_000;

pub(super) async fn run<S: Store>(core: Arc<Core<S>>) -> Result<()> {
    let lease = core.inbox.config.lease;
    let tick = lease / 4;
    loop {
        core.inbox.clock.sleep(tick).await;
        for claims in core.flights.claims().chunks(BATCH) {
            renew(&core, claims).await;
        }
        // What could not be renewed must stop before the store's lease ends, and the next look comes a tick later.
        let overdue = core.flights.overdue(core.inbox.clock.monotonic() + tick);
        if !overdue.is_empty() {
            tracing::warn!(inbox = %core.inbox.name, count = overdue.len(), "leases could not be renewed; stopping their handlers");
            core.flights.abort(&overdue);
        }
    }
}

async fn renew<S: Store>(core: &Core<S>, claims: &[Claim]) {
    let inbox = &core.inbox;
    let lease = inbox.config.lease;
    // Taken before the call: the lease cannot have been extended from an earlier moment.
    let deadline = inbox.clock.monotonic() + lease;
    match inbox.store.renew(&RenewParams::new(claims.to_vec(), lease)).await {
        Ok(renewed) => {
            let (mut kept, mut lost) = (Vec::new(), Vec::new());
            for (claim, renewed) in claims.iter().zip(renewed) {
                match renewed {
                    Renewed::Extended => kept.push(claim.clone()),
                    Renewed::LeaseLost => lost.push(claim.clone()),
                }
            }
            core.flights.extend(&kept, deadline);
            core.flights.abort(&lost);
        }
        // The deadlines stand; what reaches its own is stopped.
        Err(error) => tracing::warn!(inbox = %inbox.name, error = %error, "cannot renew leases"),
    }
}
