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

/// The most entries in one call.
pub(in crate::runtime) const BATCH: usize = 100;
/// How often duplicate counts are written down.
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

/// Lets the settler write first what this process has in hand. After an outage that was longer than a lease, the store cannot tell a
/// worker that gives its entries back from one that died, and a rescue would count a crash for each. Waits no longer than the settler
/// needs to find that the store is still away.
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

/// Writes down duplicate counts. What cannot be written is not counted: nobody waits for it, and a call that is
/// repeated might count twice.
pub(in crate::runtime) async fn write_duplicate_counts<S: Store>(inbox: &Shared<S>) {
    let duplicates = inbox.duplicate_counts.take();
    if duplicates.is_empty() {
        return;
    }
    if let Err(error) = inbox.store.count_duplicates(&duplicates).await {
        tracing::debug!(inbox = %inbox.name, error = %error, "cannot write down duplicate counts");
    }
}

/// Rescues one batch; returns its size. If this is interrupted between the two steps, a later rescue finds the
/// entries again, and the crash is still counted once.
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

/// What to ask for; nothing without handlers.
pub(in crate::runtime) fn params<S: Store>(inbox: &Shared<S>) -> Option<RescueParams> {
    let routes: Vec<Route> = inbox.registry.durable().map(|handler| handler.route.clone()).collect();
    let some = !routes.is_empty();
    let params = || RescueParams::new(inbox.name.clone(), routes, inbox.config.lease, BATCH);
    some.then(|| params().policies(inbox.registry.policies()))
}

/// What follows for entries whose lease ran out.
pub(in crate::runtime) fn crashed<S: Store>(inbox: &Shared<S>, rescued: &[Claimed]) -> Vec<Settlement> {
    let settlement = |rescued: &Claimed| {
        let handler = inbox.registry.by_key(&rescued.claim.handler)?;
        Some(decide(&handler.registration.policy, &rescued.claim, Outcome::Crashed))
    };
    rescued.iter().filter_map(settlement).collect()
}
