//! Counts waiting entries for gauges and health. Each process counts for itself. Tests: `tests/health.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{ErrorKind, Result};
use crate::inbox::Shared;
use crate::name::HandlerKey;
use crate::observe::{emit, names};
use crate::runtime::Core;
use crate::store::{Backlog, BacklogParams, BlockedBacklog, Store};

pub(in crate::runtime) async fn run<S: Store>(core: Arc<Core<S>>, every: Duration) -> Result<()> {
    let (inbox, params) = (&core.inbox, BacklogParams::new(core.inbox.name.clone()));
    // Handlers without entries are reported too.
    let mut told: BTreeSet<HandlerKey> =
        inbox.registry.durable().map(|handler| handler.route.key.clone()).collect();
    loop {
        match inbox.store.backlog(&params).await {
            Ok(backlog) => {
                report(inbox, &mut told, &backlog);
                *core.backlog.lock() = backlog;
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                tracing::info!(inbox = %inbox.name, "store counts no backlog");
                core.heartbeats.turn("backlog", Duration::MAX);
                core.stop.wait().await;
                return Ok(());
            }
            Err(error) => inbox.store.watch().trouble(&inbox.name, "backlog", &error),
        }
        core.heartbeats.turn("backlog", every);
        tokio::select! {
            () = inbox.clock.sleep(every) => {}
            () = core.stop.wait() => return Ok(()),
        }
    }
}

fn report<S: Store>(inbox: &Shared<S>, told: &mut BTreeSet<HandlerKey>, backlog: &[Backlog]) {
    told.extend(backlog.iter().map(|backlog| backlog.handler.clone()));
    for handler in &*told {
        let found = backlog.iter().find(|backlog| backlog.handler == *handler);
        let (pending, poisoned, oldest) =
            found.map_or((0, 0, None), |found| (found.pending, found.poisoned, found.oldest_due));
        let blocked = found.map_or_else(BlockedBacklog::default, |found| found.blocked);
        let labels = || [emit::inbox(&inbox.name), emit::handler(handler)];
        for (name, count) in [
            (names::PENDING, pending),
            (names::POISONED, poisoned),
            (names::BLOCKED_KEYS, blocked.keys),
            (names::BLOCKED_ENTRIES, blocked.waiting),
        ] {
            emit::set_number(name, usize::try_from(count).unwrap_or(usize::MAX), labels());
        }
        for (name, span) in [(names::OLDEST_SECONDS, oldest), (names::BLOCKED_OLDEST_SECONDS, blocked.oldest)]
        {
            emit::set(name, span.unwrap_or_default().as_secs_f64(), labels());
        }
    }
}
