//! Says which windows this process goes by, and removes what is finished and past them.

use std::sync::Arc;
use std::time::Duration;

use super::Core;
use crate::error::Result;
use crate::inbox::Shared;
use crate::store::{RegisterParams, Store, SweepParams};

/// Messages looked at in one call.
const BATCH: usize = 10_000;

/// What is registered counts for so many sweeps, and for a day at least: one that fails forgets nothing.
const HELD: u32 = 3;

pub(super) async fn run<S: Store>(core: Arc<Core<S>>) -> Result<()> {
    // What it has to look through can take any time.
    core.beats.turn("sweeper", Duration::MAX);
    // Before this process has done anything that others could forget too early.
    registered(&core.inbox).await?;
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

/// Tells the store the windows of this process.
async fn register<S: Store>(inbox: &Shared<S>) -> Result<()> {
    let retention = inbox.config.retention.unwrap_or(Duration::MAX);
    let mut params = RegisterParams::new(inbox.name.clone(), retention);
    params.windows = inbox.registry.windows(&inbox.config);
    params.hold = params.hold.max(inbox.config.sweep.saturating_mul(HELD));
    inbox.store.register(&params).await
}

/// The same, once: before the first thing is stored that another process may forget.
pub(crate) async fn registered<S: Store>(inbox: &Shared<S>) -> Result<()> {
    inbox.registered.get_or_try_init(|| register(inbox)).await.copied()
}

/// What to ask for; nothing if everything is remembered for ever.
fn params<S: Store>(inbox: &Shared<S>) -> Option<SweepParams> {
    let retention = inbox.config.retention.unwrap_or(Duration::MAX);
    let mut params = SweepParams::new(inbox.name.clone(), retention, BATCH);
    params.windows = inbox.registry.windows(&inbox.config);
    let ends = |window: &Duration| *window < Duration::MAX;
    (ends(&retention) || params.windows.iter().any(|(_, window)| ends(window))).then_some(params)
}

/// Looks at everything that is old enough, page by page; returns how many messages were removed.
pub(crate) async fn sweep<S: Store>(inbox: &Shared<S>) -> Result<usize> {
    register(inbox).await?;
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
