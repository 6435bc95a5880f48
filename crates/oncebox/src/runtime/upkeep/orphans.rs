//! Reports entries whose handler key this process does not know. Tests: `tests/orphans.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::sweeper;
use crate::error::Result;
use crate::inbox::Shared;
use crate::name::HandlerKey;
use crate::observe::{emit, names};
use crate::runtime::Core;
use crate::store::{Orphan, OrphanParams, Store};

/// Shortest and longest pause between two queries, each of which reads the entries table.
const PAUSES: (Duration, Duration) = (Duration::from_mins(1), Duration::from_hours(1));

pub(in crate::runtime) async fn run<S: Store>(core: Arc<Core<S>>) -> Result<()> {
    let mut reported = BTreeSet::new();
    let every = sweeper::interval(&core.inbox).clamp(PAUSES.0, PAUSES.1);
    loop {
        core.heartbeats.turn("orphans", every);
        tokio::select! {
            () = core.inbox.clock.sleep(every) => {}
            () = core.stop.wait() => return Ok(()),
        }
        match core.inbox.store.orphans(&params(&core.inbox)).await {
            Ok(orphans) => report(&core.inbox, &mut reported, &orphans),
            Err(error) => core.inbox.store.watch().trouble(&core.inbox.name, "orphans", &error),
        }
    }
}

pub(in crate::runtime) fn params<S: Store>(inbox: &Shared<S>) -> OrphanParams {
    OrphanParams::new(inbox.name.clone(), inbox.registry.keys().cloned().collect(), inbox.config.orphan_grace)
}

/// Sets the gauges, and logs each new and each resolved orphan once.
fn report<S: Store>(inbox: &Shared<S>, reported: &mut BTreeSet<HandlerKey>, orphans: &[Orphan]) {
    let name = &inbox.name;
    let gauge = |handler: &HandlerKey, count: u64| {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        emit::set_number(names::ORPHANED, count, [emit::inbox(name), emit::handler(handler)]);
    };
    for Orphan { handler, count, oldest, .. } in orphans {
        gauge(handler, *count);
        if reported.insert(handler.clone()) {
            tracing::warn!(
                inbox = %name, %handler, count, oldest = oldest.as_millis(),
                "entries wait for an unknown handler"
            );
        }
    }
    reported.retain(|handler| {
        let still = orphans.iter().any(|orphan| orphan.handler == *handler);
        if !still {
            gauge(handler, 0);
            tracing::info!(inbox = %name, %handler, "unknown handler has no entries left");
        }
        still
    });
}
