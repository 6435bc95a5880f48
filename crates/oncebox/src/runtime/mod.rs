//! The runtime: small components, each with one job, each restarted if it fails. Each module names its tests, in `tests/`.
//!
//! `intake` stores deliveries, `work` runs entries, `upkeep` rescues, sweeps and reports.
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
pub(crate) use intake::inline::{Answer, Inline};
pub(crate) use upkeep::sweeper::{Registered, register, registered, sweep};
pub(crate) use work::drive::{Drives, drain, process_pending};
pub(crate) use work::dry_run::dry_run;
pub(crate) use work::local_wakeup::LocalWakeup;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};

use crate::error::Result;
use crate::health::{ComponentHeartbeats, SourceState};
use crate::inbox::Shared;
use crate::name::HandlerKey;
use crate::source::Source;
use crate::state::BreakerState;
use crate::store::{Backlog, Store};
use intake::intake_switch::IntakeSwitch;
use upkeep::supervisor::{AbortOnDrop, RECEIVER, Stop, supervise};
use work::idle_waiters::IdleWaiters;
use work::in_flight::InFlight;

/// How long the last settlements may take once the grace is over.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// What the components share while an inbox runs.
pub(crate) struct Core<S: Store> {
    pub(crate) inbox: Arc<Shared<S>>,
    pub(crate) in_flight: InFlight,
    /// Set when entries that crashed a worker may be waiting.
    suspects: Notify,
    /// What the rescuer asks of the settler.
    settle: work::settler::SettleRequests,
    idle_waiters: IdleWaiters,
    /// What the parts, the sources and the store tell of themselves, for health.
    pub(crate) heartbeats: ComponentHeartbeats,
    pub(crate) sources: parking_lot::Mutex<Vec<Arc<SourceState>>>,
    pub(crate) backlog: parking_lot::Mutex<Vec<Backlog>>,
    /// Shut while the store has trouble: nothing is received then.
    intake_switch: IntakeSwitch,
    /// Asked for at shutdown: nothing new is begun.
    stop: Stop,
    /// Asked for when the grace is over: what runs is given back.
    pub(crate) cut: Stop,
}

impl<S: Store> Core<S> {
    /// Whether nothing new is begun any more.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.requested()
    }
}

/// A running inbox. [`shutdown`](Self::shutdown) stops cleanly.
///
/// Dropping it stops without a grace: nothing new begins, running handlers are aborted at their next `await`, and their
/// transactions are rolled back. A task on the async runtime that started the inbox then gives every entry in hand back, without
/// counting an attempt or a crash. Settlements that were already decided are written first. If that runtime ends before, or if
/// the store does not answer for as long as a lease, the remaining entries wait for their leases, as after a crash.
#[must_use = "an inbox stops when this is dropped"]
pub struct Running<S: Store> {
    pub(crate) core: Arc<Core<S>>,
    /// Stopped first, so that nothing new comes in.
    receivers: parking_lot::Mutex<Vec<AbortOnDrop<()>>>,
    /// Ends by itself once everything in hand was settled.
    working: Vec<AbortOnDrop<()>>,
    /// Needed until the last claim is settled.
    serving: Vec<AbortOnDrop<()>>,
    /// Where it was started.
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

    /// Receives from a source until shutdown, or until the source is over. Refused if the source may bring a message again
    /// after the inbox has forgotten it, unless [`Config::short_window`](crate::Config::short_window) allows that.
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

    /// Stops receiving and claiming, lets running handlers finish within the grace, gives back what did not finish
    /// without counting an attempt, and returns once everything is settled. A store that does not answer is not
    /// waited for beyond the grace and a few seconds more.
    pub async fn shutdown(mut self) {
        let core = Arc::clone(&self.core);
        core.stop.request();
        let Shared { clock, config, name, .. } = &*core.inbox;
        let receivers = std::mem::take(&mut *self.receivers.lock());
        // Not taken out: whoever drops this before it is over leaves them to the task that gives everything back.
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
            // Nobody needs these counts to be whole: a store that is away does not hold up the end for them.
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
            // Handlers that were cut are given back through the settler; only one that blocks its thread stays.
            tokio::select! {
                () = ended => {}
                () = clock.sleep(config.grace.min(LAST_WRITES)) => {
                    let left = core.in_flight.len();
                    tracing::warn!(inbox = %name, left, "handlers did not stop or settlements could not be written; their leases will run out");
                }
            }
        }
        self.serving.clear();
    }

    /// Waits until nothing is due and nothing runs: for programs that end when their work is done, and for tests.
    /// What is due later, as retries are, is not waited for; nor are the entries of a handler whose breaker is open.
    pub async fn idle(&self) {
        self.core.inbox.forget.empty().await;
        self.core.idle_waiters.wait().await;
    }

    /// Where the breakers of handlers stand that have one.
    pub fn breakers(&self) -> Vec<(HandlerKey, BreakerState)> {
        self.core.inbox.breakers()
    }

    /// How many entries are in hand.
    pub fn in_flight(&self) -> usize {
        self.core.in_flight.len()
    }
}

impl<S: Store> Drop for Running<S> {
    fn drop(&mut self) {
        self.core.stop.request();
        self.core.inbox.forget.cut();
        self.receivers.lock().clear();
        // Runs stop where they stand; only a commit on its way goes on to its end.
        self.core.cut.request();
        if self.serving.is_empty() {
            // Shut down before.
            return self.core.in_flight.close();
        }
        let core = Arc::clone(&self.core);
        let (mut working, serving) = (std::mem::take(&mut self.working), std::mem::take(&mut self.serving));
        // If the runtime is gone, so are the components, and this does nothing.
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
                    tracing::warn!(%inbox, left, "entries not given back after a drop; their leases will run out");
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
