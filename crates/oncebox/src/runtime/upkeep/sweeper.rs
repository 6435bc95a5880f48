//! Registers the retention windows of this process and removes finished messages past them. Tests: `tests/retention.rs`, `tests/window.rs`.

use std::sync::Arc;
use std::time::Duration;

use super::repeat::Pauses;
use crate::error::{Error, ErrorKind, Result};
use crate::inbox::{Shared, unregistered};
use crate::runtime::Core;
use crate::store::{RegisterParams, Store, SweepParams, Swept};

/// Messages read in one call.
const BATCH: usize = 10_000;

/// Sweep intervals for which a registration holds, so that a failed sweep keeps it. It holds for a day at least.
const HELD: u32 = 3;

pub(in crate::runtime) async fn run<S: Store>(core: Arc<Core<S>>) -> Result<()> {
    // A sweep may take any time.
    core.heartbeats.turn("sweeper", Duration::MAX);
    // Register before this process stores anything that others could delete too early.
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

/// Shortest and longest default pause between two sweeps.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_hours(1));

/// Returns the interval of sweeps: the setting, or a tenth of the shortest window.
pub(in crate::runtime) fn interval<S: Store>(inbox: &Shared<S>) -> Duration {
    inbox.config.sweep.unwrap_or_else(|| {
        let windows = inbox.registry.windows(&inbox.config).into_iter().map(|(_, window)| window);
        let shortest = windows.chain(inbox.config.retention).min().unwrap_or(Duration::MAX);
        (shortest / 10).clamp(PAUSES.0, PAUSES.1)
    })
}

/// Logs the handlers without a retention limit, whose messages are never deleted.
fn report_unending<S: Store>(inbox: &Shared<S>) {
    let windows = inbox.registry.windows(&inbox.config);
    let unending: Vec<&str> =
        windows.iter().filter(|(_, window)| *window == Duration::MAX).map(|(key, _)| key.as_str()).collect();
    if !unending.is_empty() {
        let handlers = unending.join(", ");
        tracing::info!(inbox = %inbox.name, handlers, "no retention limit, store only grows");
    }
}

/// Time of the last registration by this process, on its clock.
#[derive(Default)]
pub(crate) struct LastRegistration {
    at: parking_lot::Mutex<Option<Duration>>,
    /// Lets one task register at a time.
    turn: tokio::sync::Mutex<()>,
}

impl LastRegistration {
    /// Returns true if it was less than `span` ago.
    fn within(&self, span: Duration, now: Duration) -> bool {
        self.at.lock().is_some_and(|at| now.saturating_sub(at) < span)
    }
}

/// Returns how long a registration of this process holds.
fn registration_hold<S: Store>(inbox: &Shared<S>) -> Duration {
    RegisterParams::HOLD.max(interval(inbox).saturating_mul(HELD))
}

/// Registers the handlers, windows and tenants setting of this process with the store.
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

/// Registers before the first message is stored, and again before the registration expires, because a process that only
/// accepts never sweeps.
pub(crate) async fn registered<S: Store>(inbox: &Shared<S>) -> Result<()> {
    let hold = registration_hold(inbox);
    let within = |span| inbox.registered.within(span, inbox.clock.monotonic());
    if within(hold / 3) {
        return Ok(());
    }
    // A store may skip a registration within half of the hold time, so it holds that long for certain.
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

/// Checks that this process has registered, without a call of the store: the caller has a transaction open, which the call could
/// wait for. Renews the registration in the background when it is time.
pub(crate) fn registered_before<S: Store>(inbox: &Arc<Shared<S>>) -> Result<()> {
    let hold = registration_hold(inbox);
    let within = |span| inbox.registered.within(span, inbox.clock.monotonic());
    if within(hold / 3) {
        return Ok(());
    }
    if inbox.registered.at.lock().is_none() {
        return Err(unregistered(inbox));
    }
    // A store may skip a registration within half of the hold time, so it holds that long for certain.
    let counts = within(hold / 2);
    let inbox = Arc::clone(inbox);
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move {
            if let Err(error) = registered(&inbox).await {
                inbox.store.watch().trouble(&inbox.name, "register", &error);
            }
        });
    }
    if counts { Ok(()) } else { Err(expired()) }
}

/// Returns the error for a registration that ended while no message came. The caller repeats its transaction.
fn expired() -> Error {
    let what =
        "the registration of this process has expired and is being renewed; nothing was stored; try again";
    Error::new(ErrorKind::Unavailable, what)
}

/// Returns the parameters of a sweep, or `None` if no window has a limit.
fn params<S: Store>(inbox: &Shared<S>) -> Option<SweepParams> {
    let retention = inbox.config.retention.unwrap_or(Duration::MAX);
    let mut params = SweepParams::new(inbox.name.clone(), retention, BATCH);
    params.windows = inbox.registry.windows(&inbox.config);
    let ends = |window: &Duration| *window < Duration::MAX;
    (ends(&retention) || params.windows.iter().any(|(_, window)| ends(window))).then_some(params)
}

/// Deletes everything past its retention, page by page. Returns the counts.
pub(crate) async fn sweep<S: Store>(inbox: &Shared<S>) -> Result<Swept> {
    register(inbox).await?;
    let Some(mut params) = params(inbox) else { return Ok(Swept::NOTHING) };
    // Always the same id, so that a sweep that failed does not block the next one of its process.
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
