//! Registers the retention windows of this process and removes finished messages past them. Tests: `tests/retention.rs`, `tests/window.rs`.

use std::sync::Arc;
use std::time::Duration;

use super::repeat::Pauses;
use crate::error::Result;
use crate::inbox::Shared;
use crate::runtime::Core;
use crate::store::{RegisterParams, Store, SweepParams, Swept};

/// Messages looked at in one call.
const BATCH: usize = 10_000;

/// What is registered counts for so many sweeps, and for a day at least: one that fails forgets nothing.
const HELD: u32 = 3;

pub(in crate::runtime) async fn run<S: Store>(core: Arc<Core<S>>) -> Result<()> {
    // What it has to look through can take any time.
    core.heartbeats.turn("sweeper", Duration::MAX);
    // Before this process has done anything that others could forget too early.
    let mut pauses = Pauses::default();
    while let Err(error) = registered(&core.inbox).await {
        core.inbox.store.watch().trouble(&core.inbox.name, "register", &error);
        tokio::select! {
            () = core.inbox.clock.sleep(pauses.next()) => {}
            () = core.stop.wait() => return Ok(()),
        }
    }
    report_unending(&core.inbox);
    loop {
        tokio::select! {
            () = core.inbox.clock.sleep(interval(&core.inbox)) => {}
            () = core.stop.wait() => return Ok(()),
        }
        match sweep(&core.inbox).await {
            Ok(swept) if swept.is_nothing() => {
                tracing::debug!(inbox = %core.inbox.name, "nothing to sweep");
            }
            Ok(Swept { messages, entries, marks, operations, .. }) => {
                tracing::info!(inbox = %core.inbox.name, messages, entries, marks, operations, "swept");
            }
            Err(error) => core.inbox.store.watch().trouble(&core.inbox.name, "sweep", &error),
        }
    }
}

/// The shortest and the longest pause between two sweeps, if it is not set.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_hours(1));

/// How often this process sweeps: as it is set, or by the shortest window.
pub(in crate::runtime) fn interval<S: Store>(inbox: &Shared<S>) -> Duration {
    inbox.config.sweep.unwrap_or_else(|| {
        let windows = inbox.registry.windows(&inbox.config).into_iter().map(|(_, window)| window);
        let shortest = windows.chain(inbox.config.retention).min().unwrap_or(Duration::MAX);
        (shortest / 10).clamp(PAUSES.0, PAUSES.1)
    })
}

/// Says of which handlers nothing is ever forgotten: that is a choice, and the store grows with it.
fn report_unending<S: Store>(inbox: &Shared<S>) {
    let windows = inbox.registry.windows(&inbox.config);
    let unending: Vec<&str> =
        windows.iter().filter(|(_, window)| *window == Duration::MAX).map(|(key, _)| key.as_str()).collect();
    if !unending.is_empty() {
        let handlers = unending.join(", ");
        tracing::info!(inbox = %inbox.name, handlers, "what these handlers finish is remembered for ever, so the store only grows; set `retention` if that is not meant");
    }
}

/// When this process last told its windows, on its clock.
#[derive(Default)]
pub(crate) struct Registered {
    at: parking_lot::Mutex<Option<Duration>>,
    /// One tells them at a time.
    turn: tokio::sync::Mutex<()>,
}

impl Registered {
    /// Whether it was less than `span` ago.
    fn within(&self, span: Duration, now: Duration) -> bool {
        self.at.lock().is_some_and(|at| now.saturating_sub(at) < span)
    }
}

/// For how long the store goes by what this process says.
fn registration_hold<S: Store>(inbox: &Shared<S>) -> Duration {
    RegisterParams::HOLD.max(interval(inbox).saturating_mul(HELD))
}

/// Tells the store the handlers, windows and tenants setting of this process.
pub(crate) async fn register<S: Store>(inbox: &Shared<S>) -> Result<()> {
    let now = inbox.clock.monotonic();
    let retention = inbox.config.retention.unwrap_or(Duration::MAX);
    let mut params = RegisterParams::new(inbox.name.clone(), retention);
    params.windows = inbox.registry.windows(&inbox.config);
    params.routes = inbox.registry.durable().map(|handler| handler.route.clone()).collect();
    params.tenancy = Some(inbox.config.tenancy());
    params.hold = registration_hold(inbox);
    inbox.store.register(&params).await?;
    *inbox.registered.at.lock() = Some(now);
    Ok(())
}

/// The same, before anything is stored that another process may forget: at first, and again before it is over, because a process
/// that only accepts never sweeps.
pub(crate) async fn registered<S: Store>(inbox: &Shared<S>) -> Result<()> {
    let hold = registration_hold(inbox);
    let within = |span| inbox.registered.within(span, inbox.clock.monotonic());
    if within(hold / 3) {
        return Ok(());
    }
    // A store need not write what was said within half of the time: so long it counts for certain.
    let counts = within(hold / 2);
    let _turn = match inbox.registered.turn.try_lock() {
        Ok(turn) => turn,
        Err(_) if counts => return Ok(()),
        Err(_) => inbox.registered.turn.lock().await,
    };
    if within(hold / 3) {
        return Ok(());
    }
    match register(inbox).await {
        Err(error) if counts => {
            inbox.store.watch().trouble(&inbox.name, "register", &error);
            Ok(())
        }
        registered => registered,
    }
}

/// What to ask for; nothing if everything is remembered for ever.
fn params<S: Store>(inbox: &Shared<S>) -> Option<SweepParams> {
    let retention = inbox.config.retention.unwrap_or(Duration::MAX);
    let mut params = SweepParams::new(inbox.name.clone(), retention, BATCH);
    params.windows = inbox.registry.windows(&inbox.config);
    let ends = |window: &Duration| *window < Duration::MAX;
    (ends(&retention) || params.windows.iter().any(|(_, window)| ends(window))).then_some(params)
}

/// Looks at everything that is old enough, page by page; returns what was removed.
pub(crate) async fn sweep<S: Store>(inbox: &Shared<S>) -> Result<Swept> {
    register(inbox).await?;
    let Some(mut params) = params(inbox) else { return Ok(Swept::NOTHING) };
    // Always the same: a sweep that an error has ended must not keep away the next one of its own process.
    let sweep_id = inbox.sweeps.lock().await;
    params.sweep_id = *sweep_id;
    let mut removed = Swept::NOTHING;
    loop {
        let swept = inbox.store.sweep(&params).await?;
        removed.add(&swept);
        match swept.next {
            Some(next) => params.after = Some(next),
            None => return Ok(removed),
        }
    }
}
