//! Removes what is finished and past its retention.

use std::sync::Arc;
use std::time::Duration;

use super::Core;
use crate::error::Result;
use crate::inbox::Shared;
use crate::store::{Store, SweepParams};

/// Messages looked at in one call.
const BATCH: usize = 10_000;

pub(super) async fn run<S: Store>(core: Arc<Core<S>>) -> Result<()> {
    // What it has to look through can take any time.
    core.beats.turn("sweeper", Duration::MAX);
    loop {
        tokio::select! {
            () = core.inbox.clock.sleep(core.inbox.config.sweep) => {}
            () = core.stop.wait() => return Ok(()),
        }
        match sweep(&core.inbox).await {
            Ok(0) => tracing::debug!(inbox = %core.inbox.name, "nothing to sweep"),
            Ok(removed) => tracing::info!(inbox = %core.inbox.name, removed, "swept"),
            Err(error) => core.inbox.store.watch().trouble(&core.inbox.name, "sweep", &error),
        }
    }
}

/// What to ask for; nothing if everything is remembered for ever.
pub(super) fn params<S: Store>(inbox: &Shared<S>) -> Option<SweepParams> {
    let windows: Vec<_> =
        inbox.registry.windows().map(|(handler, window)| (handler.clone(), window)).collect();
    if inbox.config.retention.is_none() && windows.is_empty() {
        return None;
    }
    let retention = inbox.config.retention.unwrap_or(Duration::MAX);
    let mut params = SweepParams::new(inbox.name.clone(), retention, BATCH);
    params.windows = windows;
    Some(params)
}

/// Looks at everything that is old enough, page by page; returns how many messages were removed.
pub(crate) async fn sweep<S: Store>(inbox: &Shared<S>) -> Result<usize> {
    let Some(mut params) = params(inbox) else { return Ok(0) };
    // Always the same: a sweep that an error has ended must not keep away the next one of its own process.
    let sweep_id = inbox.sweeps.lock().await;
    params.sweep_id = *sweep_id;
    let mut removed = 0;
    loop {
        let swept = inbox.store.sweep(&params).await?;
        removed += swept.messages;
        match swept.next {
            Some(next) => params.after = Some(next),
            None => return Ok(removed),
        }
    }
}
