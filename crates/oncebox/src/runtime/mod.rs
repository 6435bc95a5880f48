//! The runtime: small components, each with one job, each restarted if it fails. Each module names its tests, in `tests/`.
//!
//! `intake` stores deliveries or runs them inline, `work` runs entries, `upkeep` rescues, sweeps and reports.
//!
//! ```text
//! source ─▶ receiver ─▶ accept ─▶ store ─▶ dispatcher ─▶ executor ─▶ settler ─▶ store
//!                         └─▶ forget
//!                                           renewer · rescuer · sweeper · orphans · backlog
//! ```

mod intake;
mod upkeep;
mod work;

pub(crate) use intake::delivery::prepare;
pub(crate) use intake::direct::run_directly;
pub(crate) use intake::forget::{Forget, launch as forget};
pub(crate) use intake::inline::{Inline, InlineResult};
pub(crate) use upkeep::sweeper::{LastRegistration, register, registered, registered_before, sweep};
pub(crate) use work::drive::{Drives, drain, process_pending};
pub(crate) use work::dry_run::dry_run;
pub(crate) use work::local_wakeup::LocalWakeup;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};

use crate::error::Result;
use crate::health::ComponentHeartbeats;
use crate::inbox::Shared;
use crate::name::HandlerKey;
use crate::source::Source;
use crate::state::BreakerState;
use crate::store::{Backlog, Store};
use intake::intake_switch::IntakeSwitch;
use intake::source_state::SourceState;
use upkeep::supervisor::{AbortOnDrop, RECEIVER, Stop, supervise};
use work::idle_waiters::IdleWaiters;
use work::in_flight::InFlight;

/// Time for the last settlements after the grace.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// State that the components share while an inbox runs.
pub(crate) struct Core<S: Store> {
    pub(crate) inbox: Arc<Shared<S>>,
    pub(crate) in_flight: InFlight,
    /// Set when entries that crashed a worker may be waiting.
    suspects: Notify,
    /// Requests of the rescuer to the settler.
    settle: work::settler::SettleRequests,
    idle_waiters: IdleWaiters,
    /// State of the components, the sources and the store, for health.
    pub(crate) heartbeats: ComponentHeartbeats,
    pub(crate) sources: parking_lot::Mutex<Vec<Arc<SourceState>>>,
    pub(crate) backlog: parking_lot::Mutex<Vec<Backlog>>,
    /// Shut while the store has trouble: the receivers stop then.
    intake_switch: IntakeSwitch,
    /// Requested at shutdown: no new run begins.
    stop: Stop,
    /// Requested after the grace: active runs are released.
    pub(crate) cut: Stop,
}

impl<S: Store> Core<S> {
    /// Returns true after a request to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.requested()
    }
}

/// A running inbox. [`shutdown`](Self::shutdown) stops cleanly.
///
/// A drop stops it without a grace: no new run begins, handlers are aborted at their next `await`, and their transactions
/// are rolled back. A task on the async runtime that started the inbox then writes the settlements that were already
/// decided, and releases every other entry without counting an attempt or a crash. If that runtime ends before, or if the
/// store does not answer for the time of a lease, the remaining entries wait for their leases, as after a crash.
#[must_use = "an inbox stops when this is dropped"]
pub struct Running<S: Store> {
    pub(crate) core: Arc<Core<S>>,
    /// Stopped first, so that no new delivery arrives.
    receivers: parking_lot::Mutex<Vec<AbortOnDrop<()>>>,
    /// Ends by itself after every entry in hand was settled.
    working: Vec<AbortOnDrop<()>>,
    /// Stopped after the last claim is settled.
    serving: Vec<AbortOnDrop<()>>,
    /// The Tokio runtime that started it.
    runtime: tokio::runtime::Handle,
}

impl<S: Store> Running<S> {
    pub(crate) fn start(inbox: Arc<Shared<S>>) -> Self {
        let core = Arc::new(Core {
            heartbeats: ComponentHeartbeats::new(Arc::clone(&inbox.clock)),
            sources: parking_lot::Mutex::default(),
            backlog: parking_lot::Mutex::default(),
            settle: work::settler::SettleRequests::default(),
            in_flight: InFlight::new(Arc::clone(&inbox.store.watch().claims)),
            inbox,
            suspects: Notify::new(),
            idle_waiters: IdleWaiters::default(),
            intake_switch: IntakeSwitch::default(),
            stop: Stop::default(),
            cut: Stop::default(),
        });
        *core.inbox.running.lock() = Arc::downgrade(&core);
        let (settlements, queue) = mpsc::unbounded_channel();
        let queue = Arc::new(tokio::sync::Mutex::new(queue));
        let working = vec![supervise(&core, "dispatcher", true, move |core| {
            work::dispatcher::run(core, settlements.clone())
        })];
        let mut serving = vec![
            supervise(&core, "settler", false, move |core| work::settler::run(core, Arc::clone(&queue))),
            supervise(&core, "renewer", false, work::renewer::run),
            supervise(&core, "rescuer", true, upkeep::rescuer::run),
            supervise(&core, "orphans", true, upkeep::orphans::run),
            supervise(&core, "sweeper", true, upkeep::sweeper::run),
        ];
        if let Some(every) = core.inbox.config.backlog {
            serving.push(supervise(&core, "backlog", true, move |core| upkeep::backlog::run(core, every)));
        }
        let runtime = tokio::runtime::Handle::current();
        Self { core, receivers: parking_lot::Mutex::default(), working, serving, runtime }
    }

    /// Receives from a source until shutdown, or until the source ends. Returns an error if the source may deliver a message
    /// again after its retention, unless [`Config::short_window`](crate::Config::short_window) allows that.
    pub fn receive(&self, source: impl Source) -> Result<()> {
        intake::receiver::check_window(&self.core.inbox, &source)?;
        let state = Arc::new(SourceState::new(&self.core.inbox.name, &source));
        self.core.sources.lock().push(Arc::clone(&state));
        let intake =
            Arc::new(tokio::sync::Mutex::new(intake::receiver::Intake::new(&self.core, source, state)));
        let task = supervise(&self.core, RECEIVER, true, move |core| {
            intake::receiver::run(core, Arc::clone(&intake))
        });
        self.receivers.lock().push(task);
        Ok(())
    }

    /// Stops receiving and claiming, and lets running handlers finish within the grace. Unfinished entries are released
    /// without counting an attempt. Returns after everything is settled. A store that does not answer delays it by the grace
    /// and a few seconds at most.
    pub async fn shutdown(mut self) {
        let core = Arc::clone(&self.core);
        core.stop.request();
        let Shared { clock, config, name, .. } = &*core.inbox;
        let receivers = std::mem::take(&mut *self.receivers.lock());
        // Not taken out: if the caller drops this future, the drop of `self` releases them.
        let working = &mut self.working;
        let mut ended = std::pin::pin!(async {
            for task in receivers {
                // A component that panicked was reported by its supervisor.
                let _ = task.join().await;
            }
            for task in working {
                task.ended().await;
            }
            core.in_flight.empty().await;
            core.inbox.forget.empty().await;
            // These counts may be incomplete, so an unavailable store does not delay the shutdown.
            tokio::select! {
                () = upkeep::rescuer::write_duplicate_counts(&core.inbox) => {}
                () = clock.sleep(LAST_WRITES) => {}
            }
        });
        let in_grace = tokio::select! {
            () = &mut ended => true,
            () = clock.sleep(config.grace) => false,
        };
        if !in_grace {
            core.cut.request();
            core.inbox.forget.cut();
            // The settler releases aborted runs; only a handler that blocks its thread stays.
            tokio::select! {
                () = ended => {}
                () = clock.sleep(config.grace.min(LAST_WRITES)) => {
                    let left = core.in_flight.len();
                    tracing::warn!(inbox = %name, left, "shutdown incomplete, leases will expire");
                }
            }
        }
        self.serving.clear();
    }

    /// Waits until no entry is due and none runs: for programs that end when their work is done, and for tests. It does not
    /// wait for entries that are due later, such as retries, or whose handler's breaker is open.
    pub async fn idle(&self) {
        self.core.inbox.forget.empty().await;
        self.core.idle_waiters.wait().await;
    }

    /// Returns the state of every handler that has a breaker.
    pub fn breakers(&self) -> Vec<(HandlerKey, BreakerState)> {
        self.core.inbox.breakers()
    }

    /// Returns the number of entries in hand.
    pub fn in_flight(&self) -> usize {
        self.core.in_flight.len()
    }
}

impl<S: Store> Drop for Running<S> {
    fn drop(&mut self) {
        self.core.stop.request();
        self.core.inbox.forget.cut();
        self.receivers.lock().clear();
        // Runs are aborted; only a commit in progress continues.
        self.core.cut.request();
        if self.serving.is_empty() {
            // It was shut down before.
            return self.core.in_flight.close();
        }
        let core = Arc::clone(&self.core);
        let (mut working, serving) = (std::mem::take(&mut self.working), std::mem::take(&mut self.serving));
        // If the Tokio runtime is gone, so are the components, and this does nothing.
        self.runtime.spawn(async move {
            let given_back = async {
                for task in &mut working {
                    task.ended().await;
                }
                core.in_flight.empty().await;
            };
            tokio::select! {
                () = given_back => {}
                () = core.inbox.clock.sleep(core.inbox.config.lease) => {
                    let (inbox, left) = (&core.inbox.name, core.in_flight.len());
                    tracing::warn!(%inbox, left, "drop incomplete, leases will expire");
                }
            }
            core.in_flight.close();
            drop(serving);
        });
    }
}

impl<S: Store> std::fmt::Debug for Running<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("inbox", &self.core.inbox.name).finish_non_exhaustive()
    }
}
