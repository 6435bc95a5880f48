//! What moves messages: small components, each with one job, each started again if it fails.
//!
//! ```text
//! source ─▶ receiver ─▶ accept ─▶ store ─▶ dispatcher ─▶ executor ─▶ settler ─▶ store
//!                         └─▶ forget
//!                                           renewer · rescuer · sweeper · orphans · backlog
//! ```

mod backlog;
mod batch;
mod delivery;
mod direct;
mod dispatcher;
mod door;
mod drive;
mod executor;
mod flights;
mod forget;
mod group;
mod inline;
mod launch;
mod lines;
mod nudge;
mod orphans;
mod plan;
mod quiet;
mod receiver;
mod rehearse;
mod renewer;
mod repeat;
mod rescuer;
mod settler;
mod supervisor;
mod sweeper;

pub(crate) use delivery::prepare;
pub(crate) use direct::run_directly;
pub(crate) use drive::{drain, process_pending};
pub(crate) use forget::{Forget, launch as forget};
pub(crate) use inline::{Answer, Inline};
pub(crate) use nudge::Nudge;
pub(crate) use rehearse::rehearse;
pub(crate) use sweeper::{Registered, registered, sweep};

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};

use crate::error::Result;
use crate::health::{Beats, SourceState};
use crate::inbox::Shared;
use crate::name::HandlerKey;
use crate::source::Source;
use crate::state::BreakerState;
use crate::store::{Backlog, Store};
use door::Door;
use flights::Flights;
use quiet::Quiet;
use supervisor::{AbortOnDrop, RECEIVER, Stop, supervise};

/// How long the last settlements may take once the grace is over.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// What the components share while an inbox runs.
pub(crate) struct Core<S: Store> {
    pub(crate) inbox: Arc<Shared<S>>,
    pub(crate) flights: Flights,
    /// Set when entries that crashed a worker may be waiting.
    suspects: Notify,
    quiet: Quiet,
    /// What the parts, the sources and the store tell of themselves, for health.
    pub(crate) beats: Beats,
    pub(crate) sources: parking_lot::Mutex<Vec<Arc<SourceState>>>,
    pub(crate) backlog: parking_lot::Mutex<Vec<Backlog>>,
    /// Shut while the store has trouble: nothing is received then.
    door: Door,
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

/// A running inbox. Dropping it stops at once and leaves claims to run out; [`shutdown`](Self::shutdown) stops
/// cleanly.
#[must_use = "an inbox stops when this is dropped"]
pub struct Running<S: Store> {
    pub(crate) core: Arc<Core<S>>,
    /// Stopped first, so that nothing new comes in.
    receivers: parking_lot::Mutex<Vec<AbortOnDrop<()>>>,
    /// Ends by itself once everything in hand was settled.
    working: Vec<AbortOnDrop<()>>,
    /// Needed until the last claim is settled.
    #[expect(dead_code, reason = "held to be dropped")]
    serving: Vec<AbortOnDrop<()>>,
}

impl<S: Store> Running<S> {
    pub(crate) fn start(inbox: Arc<Shared<S>>) -> Self {
        let core = Arc::new(Core {
            beats: Beats::new(Arc::clone(&inbox.clock)),
            sources: parking_lot::Mutex::default(),
            backlog: parking_lot::Mutex::default(),
            inbox,
            flights: Flights::default(),
            suspects: Notify::new(),
            quiet: Quiet::default(),
            door: Door::default(),
            stop: Stop::default(),
            cut: Stop::default(),
        });
        *core.inbox.running.lock() = Arc::downgrade(&core);
        let (settlements, queue) = mpsc::unbounded_channel();
        let queue = Arc::new(tokio::sync::Mutex::new(queue));
        let working = vec![supervise(&core, "dispatcher", true, move |core| {
            dispatcher::run(core, settlements.clone())
        })];
        let mut serving = vec![
            supervise(&core, "settler", false, move |core| settler::run(core, Arc::clone(&queue))),
            supervise(&core, "renewer", false, renewer::run),
            supervise(&core, "rescuer", true, rescuer::run),
            supervise(&core, "orphans", true, orphans::run),
            supervise(&core, "sweeper", true, sweeper::run),
        ];
        if let Some(every) = core.inbox.config.backlog {
            serving.push(supervise(&core, "backlog", true, move |core| backlog::run(core, every)));
        }
        Self { core, receivers: parking_lot::Mutex::default(), working, serving }
    }

    /// Receives from a source until shutdown, or until the source is over. Refused if the source may bring a message again
    /// after the inbox has forgotten it, unless [`Config::short_window`](crate::Config::short_window) allows that.
    pub fn receive(&self, source: impl Source) -> Result<()> {
        receiver::check_window(&self.core.inbox, &source)?;
        let state = Arc::new(SourceState::new(&self.core.inbox.name, source.name()));
        self.core.sources.lock().push(Arc::clone(&state));
        let intake = Arc::new(tokio::sync::Mutex::new(receiver::Intake::new(&self.core, source, state)));
        let task =
            supervise(&self.core, RECEIVER, true, move |core| receiver::run(core, Arc::clone(&intake)));
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
        let begun = std::mem::take(&mut *self.receivers.lock()).into_iter().chain(self.working.drain(..));
        let mut ended = std::pin::pin!(async {
            for task in begun {
                // A component that panicked was reported by its supervisor.
                let _ = task.join().await;
            }
            core.flights.empty().await;
            core.inbox.forget.empty().await;
            // Nobody needs these counts to be whole: a store that is away does not hold up the end for them.
            tokio::select! {
                () = rescuer::write_absorbed(&core.inbox) => {}
                () = clock.sleep(LAST_WRITES) => {}
            }
        });
        tokio::select! {
            () = &mut ended => return,
            () = clock.sleep(config.grace) => {
                core.cut.request();
                core.inbox.forget.cut();
            }
        }
        // Handlers that were cut are given back through the settler; only one that blocks its thread stays.
        tokio::select! {
            () = ended => {}
            () = clock.sleep(config.grace.min(LAST_WRITES)) => {
                let left = core.flights.len();
                tracing::warn!(inbox = %name, left, "handlers did not stop or settlements could not be written; their leases will run out");
            }
        }
    }

    /// Waits until nothing is due and nothing runs: for programs that end when their work is done, and for tests.
    /// What is due later, as retries are, is not waited for; nor are the entries of a handler whose breaker is open.
    pub async fn idle(&self) {
        self.core.inbox.forget.empty().await;
        self.core.quiet.wait().await;
    }

    /// Where the breakers of handlers stand that have one.
    pub fn breakers(&self) -> Vec<(HandlerKey, BreakerState)> {
        self.core.inbox.breakers()
    }

    /// How many entries are in hand.
    pub fn in_flight(&self) -> usize {
        self.core.flights.len()
    }
}

impl<S: Store> Drop for Running<S> {
    fn drop(&mut self) {
        self.core.stop.request();
        self.core.inbox.forget.cut();
        // The components end with the handles that are dropped now.
        self.core.flights.close();
    }
}

impl<S: Store> std::fmt::Debug for Running<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("inbox", &self.core.inbox.name).finish_non_exhaustive()
    }
}
