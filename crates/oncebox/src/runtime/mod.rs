//! What moves messages: small components, each with one job, each started again if it fails.
//!
//! ```text
//! source ─▶ receiver ─▶ accept ─▶ store ─▶ dispatcher ─▶ executor ─▶ settler ─▶ store
//!                                           renewer · rescuer · sweeper
//! ```

mod dispatcher;
mod drive;
mod executor;
mod flights;
mod nudge;
mod receiver;
mod renewer;
mod rescuer;
mod settler;
mod supervisor;
mod sweeper;

pub(crate) use drive::{drain, process_pending};
pub(crate) use executor::run_inline;
pub(crate) use nudge::Nudge;
pub(crate) use sweeper::sweep;

use std::sync::Arc;

use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

use crate::inbox::Shared;
use crate::source::Source;
use crate::store::Store;
use flights::Flights;
use supervisor::{Stop, supervise};

/// What the components share while an inbox runs.
pub(crate) struct Core<S: Store> {
    pub(crate) inbox: Arc<Shared<S>>,
    pub(crate) flights: Flights,
    /// Set when entries that crashed a worker may be waiting.
    suspects: Notify,
    /// Counts the rounds that found nothing due while nothing ran.
    quiet: watch::Sender<u64>,
    /// Asked for at shutdown: nothing new is begun.
    stop: Stop,
    /// Asked for when the grace is over: what runs is given back.
    pub(crate) cut: Stop,
}

/// A running inbox. Dropping it stops at once and leaves claims to run out; [`shutdown`](Self::shutdown) stops
/// cleanly.
pub struct Running<S: Store> {
    core: Arc<Core<S>>,
    /// Stopped first, so that nothing new comes in.
    receivers: parking_lot::Mutex<Vec<JoinHandle<()>>>,
    /// Ends by itself once everything in hand was settled.
    working: Vec<JoinHandle<()>>,
    /// Needed until the last claim is settled.
    serving: Vec<JoinHandle<()>>,
}

impl<S: Store> Running<S> {
    pub(crate) fn start(inbox: Arc<Shared<S>>) -> Self {
        let core = Arc::new(Core {
            inbox,
            flights: Flights::default(),
            suspects: Notify::new(),
            quiet: watch::Sender::new(0),
            stop: Stop::default(),
            cut: Stop::default(),
        });
        let (settlements, queue) = mpsc::unbounded_channel();
        let queue = Arc::new(tokio::sync::Mutex::new(queue));
        let working = vec![supervise(&core, "dispatcher", true, move |core| {
            dispatcher::run(core, settlements.clone())
        })];
        let mut serving = vec![
            supervise(&core, "settler", false, move |core| settler::run(core, Arc::clone(&queue))),
            supervise(&core, "renewer", false, renewer::run),
            supervise(&core, "rescuer", true, rescuer::run),
        ];
        if let Some(retention) = core.inbox.config.retention {
            serving.push(supervise(&core, "sweeper", true, move |core| sweeper::run(core, retention)));
        }
        core.suspects.notify_one();
        Self { core, receivers: parking_lot::Mutex::default(), working, serving }
    }

    /// Receives from a source until shutdown, or until the source is over.
    pub fn receive(&self, source: impl Source) {
        let source = Arc::new(tokio::sync::Mutex::new(source));
        let task =
            supervise(&self.core, "receiver", true, move |core| receiver::run(core, Arc::clone(&source)));
        self.receivers.lock().push(task);
    }

    /// Stops receiving and claiming, lets running handlers finish within the grace, gives back what did not finish
    /// without counting an attempt, and returns once everything is settled.
    pub async fn shutdown(mut self) {
        self.core.stop.request();
        let receivers = std::mem::take(&mut *self.receivers.lock());
        for task in receivers.into_iter().chain(std::mem::take(&mut self.working)) {
            // A component that panicked was reported by its supervisor.
            let _ = task.await;
        }
        let Shared { clock, config, name, .. } = &*self.core.inbox;
        tokio::select! {
            () = self.core.flights.empty() => return,
            () = clock.sleep(config.grace) => self.core.cut.request(),
        }
        // Handlers that were cut are given back through the settler; only one that blocks its thread stays.
        tokio::select! {
            () = self.core.flights.empty() => {}
            () = clock.sleep(config.grace) => {
                let left = self.core.flights.len();
                tracing::warn!(inbox = %name, left, "handlers did not stop or settlements could not be written; their leases will run out");
            }
        }
    }

    /// Waits until nothing is due and nothing runs: for programs that end when their work is done, and for tests.
    /// What is due later, as retries are, is not waited for.
    pub async fn idle(&self) {
        let core = &self.core;
        let mut quiet = core.quiet.subscribe();
        // Twice: the first quiet round may have looked at the store before the caller put something in.
        let mut rounds = 0;
        while rounds < 2 {
            let landing = core.flights.landing();
            core.inbox.nudge.now();
            tokio::select! {
                _ = quiet.changed() => rounds += 1,
                () = landing => rounds = 0,
            }
        }
    }

    /// How many entries are in hand.
    pub fn in_flight(&self) -> usize {
        self.core.flights.len()
    }
}

impl<S: Store> Drop for Running<S> {
    fn drop(&mut self) {
        self.core.stop.request();
        for task in self.receivers.lock().iter().chain(&self.working).chain(&self.serving) {
            task.abort();
        }
        self.core.flights.abort_all();
    }
}

impl<S: Store> std::fmt::Debug for Running<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("inbox", &self.core.inbox.name).finish_non_exhaustive()
    }
}
