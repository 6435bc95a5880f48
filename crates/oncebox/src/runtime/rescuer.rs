//! Takes over entries whose worker died, and counts the crash.

use std::sync::Arc;

use super::Core;
use super::settler::settle;
use crate::error::Result;
use crate::inbox::Shared;
use crate::state::{Outcome, Settlement, decide};
use crate::store::{RescueParams, Route, Store};

/// The most entries in one call.
const BATCH: usize = 100;

pub(super) async fn run<S: Store>(core: Arc<Core<S>>) -> Result<()> {
    while !core.stop.requested() {
        match rescue(&core.inbox).await {
            Ok(0) => {}
            Ok(rescued) => {
                tracing::warn!(inbox = %core.inbox.name, rescued, "leases ran out: their workers died or hang");
                core.suspects.notify_one();
                if rescued >= BATCH {
                    continue;
                }
            }
            Err(error) => {
                tracing::warn!(inbox = %core.inbox.name, error = %error, "cannot rescue; trying again later");
            }
        }
        tokio::select! {
            () = core.inbox.clock.sleep(core.inbox.config.rescue) => {}
            () = core.stop.wait() => {}
        }
    }
    Ok(())
}

/// Rescues one batch; returns its size. If this is interrupted between the two steps, the next rescue finds the
/// entries again, and the crash is still counted once.
pub(super) async fn rescue<S: Store>(inbox: &Shared<S>) -> Result<usize> {
    let routes: Vec<Route> = inbox.registry.durable().map(|handler| handler.route.clone()).collect();
    if routes.is_empty() {
        return Ok(0);
    }
    let params = RescueParams::new(inbox.name.clone(), routes, inbox.config.lease, BATCH);
    let rescued = inbox.store.rescue(&params).await?;
    let settlements: Vec<Settlement> = rescued
        .iter()
        .filter_map(|rescued| {
            let handler = inbox.registry.by_key(&rescued.claim.handler)?;
            Some(decide(&handler.registration.policy, &rescued.claim, Outcome::Crashed))
        })
        .collect();
    if !settlements.is_empty() {
        settle(inbox, &settlements).await?;
    }
    Ok(rescued.len())
}
