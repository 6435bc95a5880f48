//! Reports entries whose handler key this process does not know: they wait for a process that does, and if there is none
//! any more, nobody else would say so.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Core;
use crate::error::Result;
use crate::inbox::Shared;
use crate::name::HandlerKey;
use crate::observe::names;
use crate::store::{Orphan, OrphanParams, Store};

pub(super) async fn run<S: Store>(core: Arc<Core<S>>) -> Result<()> {
    let mut reported = BTreeSet::new();
    loop {
        tokio::select! {
            () = core.inbox.clock.sleep(core.inbox.config.sweep) => {}
            () = core.stop.wait() => return Ok(()),
        }
        match core.inbox.store.orphans(&params(&core.inbox)).await {
            Ok(orphans) => report(&core.inbox, &mut reported, &orphans),
            Err(error) => {
                tracing::warn!(inbox = %core.inbox.name, error = %error, "cannot look for orphans; trying again later");
            }
        }
    }
}

pub(super) fn params<S: Store>(inbox: &Shared<S>) -> OrphanParams {
    OrphanParams::new(inbox.name.clone(), inbox.registry.keys().cloned().collect(), inbox.config.orphan_grace)
}

/// Sets the gauges, and says once what is new and what is over.
fn report<S: Store>(inbox: &Shared<S>, reported: &mut BTreeSet<HandlerKey>, orphans: &[Orphan]) {
    let name = &inbox.name;
    let gauge = |handler: &HandlerKey| metrics::gauge!(names::ORPHANED, "inbox" => name.to_string(), "handler" => handler.to_string());
    for Orphan { handler, count, oldest } in orphans {
        #[expect(clippy::cast_precision_loss, reason = "counted up to 10,000")]
        gauge(handler).set(*count as f64);
        if reported.insert(handler.clone()) {
            tracing::warn!(
                inbox = %name, %handler, count, oldest = oldest.as_millis(),
                "entries wait for a handler that this process does not know; register it, or its new name with `legacy`, or discard them"
            );
        }
    }
    reported.retain(|handler| {
        let still = orphans.iter().any(|orphan| orphan.handler == *handler);
        if !still {
            gauge(handler).set(0.0);
            tracing::info!(inbox = %name, %handler, "no entry waits for this unknown handler any more");
        }
        still
    });
}
