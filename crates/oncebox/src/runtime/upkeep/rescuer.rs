//! Takes over entries whose worker died, counts the crash, and stores duplicate counts. Tests: `tests/leases.rs`, `tests/duplicate_counts.rs`.

use std::sync::Arc;
use std::time::Duration;

use super::repeat::{MAX_PAUSE, Pauses, answered, is_trouble};
use crate::error::Result;
use crate::inbox::Shared;
use crate::runtime::Core;
use crate::runtime::work::settler::settle;
use crate::state::{Outcome, Settlement, decide};
use crate::store::{Claimed, RescueParams, Route, Store};

/// Maximum entries in one call.
pub(in crate::runtime) const BATCH: usize = 100;
/// Interval between two writes of duplicate counts.
const WRITE_DUPLICATE_COUNTS: Duration = Duration::from_secs(30);

pub(in crate::runtime) async fn run<S: Store>(core: Arc<Core<S>>) -> Result<()> {
    let (mut written, mut after_trouble) = (Duration::ZERO, false);
    while !core.stop.requested() {
        if after_trouble {
            settled_first(&core).await;
        }
        let rescued = rescue(&core).await;
        after_trouble = rescued.is_err();
        match rescued {
            Ok(0) => {}
            Ok(rescued) => {
                tracing::warn!(inbox = %core.inbox.name, rescued, "rescued entries of dead workers");
                core.suspects.notify_one();
                if rescued >= BATCH {
                    continue;
                }
            }
            Err(error) => core.inbox.store.watch().trouble(&core.inbox.name, "rescue", &error),
        }
        let now = core.inbox.clock.monotonic();
        if now.saturating_sub(written) >= WRITE_DUPLICATE_COUNTS {
            written = now;
            write_duplicate_counts(&core.inbox).await;
        }
        core.heartbeats.turn("rescuer", core.inbox.config.rescue);
        tokio::select! {
            () = core.inbox.clock.sleep(core.inbox.config.rescue) => {}
            () = core.stop.wait() => {}
        }
    }
    Ok(())
}

/// Lets the settler first write the settlements of this process. After an outage longer than a lease, a rescue would count
/// a crash for each entry of a live worker. Waits until the settler finds that the store is still unavailable, at most.
async fn settled_first<S: Store>(core: &Core<S>) {
    let clock = &core.inbox.clock;
    let mut patience = clock.sleep(MAX_PAUSE);
    loop {
        let (landing, refused) = (core.in_flight.landing(), core.settle.refused());
        if !core.in_flight.is_any_over(clock.monotonic()) {
            return;
        }
        core.settle.now();
        tokio::select! {
            () = landing => {}
            () = refused => return,
            () = &mut patience => return,
            () = core.stop.wait() => return,
        }
    }
}

/// Writes duplicate counts. After an error the counts are lost, because a repeated call might count twice.
pub(in crate::runtime) async fn write_duplicate_counts<S: Store>(inbox: &Shared<S>) {
    let duplicates = inbox.duplicate_counts.take();
    if duplicates.is_empty() {
        return;
    }
    if let Err(error) = inbox.store.count_duplicates(&duplicates).await {
        tracing::debug!(inbox = %inbox.name, error = %error, "cannot write duplicate counts");
    }
}

/// Rescues one batch and returns its size. After an interruption between the two steps, a later rescue finds the entries
/// again and still counts one crash.
async fn rescue<S: Store>(core: &Core<S>) -> Result<usize> {
    let inbox = &core.inbox;
    let Some(params) = params(inbox) else { return Ok(0) };
    let ends = inbox.clock.monotonic().saturating_add(inbox.config.lease);
    let rescued = answered(inbox, &core.stop, || inbox.store.rescue(&params)).await?;
    let crashed = crashed(inbox, &rescued);
    let mut pauses = Pauses::default();
    while !crashed.is_empty() {
        match settle(inbox, &crashed).await {
            Ok(()) => break,
            Err(error) if is_trouble(error.kind()) && inbox.clock.monotonic() < ends => {
                tokio::select! {
                    () = inbox.clock.sleep(pauses.next()) => {}
                    () = core.stop.wait() => return Err(error),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(rescued.len())
}

/// Returns the parameters of a rescue, or `None` without handlers.
pub(in crate::runtime) fn params<S: Store>(inbox: &Shared<S>) -> Option<RescueParams> {
    let routes: Vec<Route> = inbox.registry.durable().map(|handler| handler.route.clone()).collect();
    let some = !routes.is_empty();
    let params = || RescueParams::new(inbox.name.clone(), routes, inbox.config.lease, BATCH);
    some.then(|| params().policies(inbox.registry.policies()))
}

/// Returns the settlements of entries whose lease expired.
pub(in crate::runtime) fn crashed<S: Store>(inbox: &Shared<S>, rescued: &[Claimed]) -> Vec<Settlement> {
    let settlement = |rescued: &Claimed| {
        let handler = inbox.registry.by_key(&rescued.claim.handler)?;
        Some(decide(&handler.registration.policy, &rescued.claim, Outcome::Crashed))
    };
    rescued.iter().filter_map(settlement).collect()
}
