//! A worker: a real process with the product. Reads deliveries on standard input, and reports results on standard
//! output. It may be killed at any time. Tests: below.

mod handlers;
mod intake;
mod operator;
mod remote;
mod stores;

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use oncebox::config::OnConflict;
use oncebox::time::{Clock, SharedClock, Sleep, SystemClock, Timestamp};
use oncebox::{Config, Inbox, Policy, Registration, Retry, batch_handler, handler};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::bugs::Bug;
use crate::ledger::{Fact, ProcessLedger};
use crate::plan::{RoundPlan, renamed};
use crate::seam::{Notes, PointOdds, Rigged};
use handlers::Business;
pub(crate) use stores::{make_tables, set_keys_apart};

/// Job of a worker, as JSON in its one argument.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WorkerJob {
    pub(crate) dir: PathBuf,
    pub(crate) store: StoreLocation,
    pub(crate) plan: RoundPlan,
    pub(crate) life: u64,
    pub(crate) odds: PointOdds,
    /// Accepts messages and runs no handlers.
    pub(crate) front: bool,
    /// Transport of the messages.
    pub(crate) way: WorkerTransport,
    pub(crate) lease_ms: u64,
    /// Maximum entries in flight.
    pub(crate) in_flight: usize,
    /// True if the worker acts as an operator, too.
    pub(crate) operated: bool,
    /// Error of this process's clock.
    pub(crate) skew_ms: i64,
    pub(crate) retention_ms: u64,
    /// True if it creates missing tables; otherwise it waits until another worker has.
    pub(crate) migrates: bool,
    /// Number of connections for handlers.
    pub(crate) connections: usize,
    /// With renamed handlers: true if this process uses the new keys.
    pub(crate) renamed: Option<bool>,
    /// A planted bug; needs a build with bugs.
    pub(crate) sabotage: Option<String>,
}

/// Location of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoreLocation {
    Sqlite(PathBuf),
    Postgres(String),
}

/// Transport of the messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkerTransport {
    /// Lines on the standard input.
    Pipe,
    /// HTTP requests.
    Http,
    /// A queue of RabbitMQ.
    Rabbit { url: String, queue: String },
}

impl WorkerTransport {
    /// Returns true if a worker without handlers can accept messages.
    pub(crate) fn has_front(&self) -> bool {
        !matches!(self, Self::Rabbit { .. })
    }
}

/// Header of an AMQP message with the delivery's line.
pub(crate) const LINE_HEADER: &str = "line";

/// A delivery from the driver to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HandedDelivery {
    pub(crate) d: u64,
    pub(crate) m: u32,
    pub(crate) v: u8,
    /// Creation time in milliseconds.
    pub(crate) at: i64,
}

/// A report of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkerReport {
    /// A delivery is stored.
    Acked(u64),
    /// Deliver again.
    Again(u64),
    /// Rejected for good.
    Refused(u64, String),
    /// A handler finished a message; the generator stays ahead of these.
    Ran(u32),
    /// Port for requests.
    Listens(u16),
}

/// Line that ends all faults.
pub(crate) const QUIESCE: &str = "quiesce";
/// Maximum attempts.
pub(crate) const ATTEMPTS: u32 = 8;
/// Crashes after which a killer is poisoned.
pub(crate) const CRASHES: u32 = 3;
/// Maximum time of a handler.
const TIMEOUT: Duration = Duration::from_secs(12);

/// The name of the inbox.
const INBOX: &str = "chaos";

/// Retention of marks: they do not detect stale messages, so no message may come later.
const REMEMBERED: Duration = Duration::from_hours(1);

/// A clock with a wrong time of day, and correct durations.
struct Skewed {
    clock: SystemClock,
    millis: i64,
}

impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.clock.now().as_millis() + self.millis)
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        self.clock.sleep(duration)
    }
}

impl WorkerJob {
    fn clock(&self) -> SharedClock {
        Arc::new(Skewed { clock: SystemClock::default(), millis: self.skew_ms })
    }

    /// Returns true if the job plants this bug, which is a setting.
    fn has(&self, bug: Bug) -> bool {
        cfg!(feature = "sabotage") && self.sabotage.as_deref().and_then(Bug::named) == Some(bug)
    }

    fn config(&self) -> Config {
        let lease = Duration::from_millis(self.lease_ms);
        Config {
            lease,
            rescue: lease / 6,
            poll: if self.has(Bug::NoPoll) { Duration::from_hours(1) } else { Duration::from_millis(250) },
            on_conflict: self.has(Bug::ConflictIsNew).then_some(OnConflict::AcceptAsNew),
            in_flight: self.in_flight,
            batch: if self.plan.quick { 64 } else { self.in_flight / 2 },
            prefetch: 256,
            grace: Duration::from_millis(600),
            restart: Duration::from_millis(50),
            retention: Some(Duration::from_millis(self.retention_ms)),
            sweep: Some(Duration::from_millis(700)),
            busy_wait: Duration::from_millis(300),
            ..Config::default()
        }
    }

    /// Returns the timeout of the handler that may hang; longer than slow runs.
    fn hang(&self) -> Duration {
        Duration::from_millis(self.lease_ms * 27 / 10)
    }

    fn policy() -> Policy {
        let mut policy = Policy::default();
        policy.retry = Retry::new(ATTEMPTS, Duration::from_millis(20), Duration::from_millis(400));
        // The rig kills workers at random: the entries that run then are not to blame.
        policy.crashes = 100_000;
        policy.crash_delay = Duration::ZERO;
        policy
    }

    /// Returns the policy of messages that kill their process. They wait 0.2 and 1.2 seconds between crashes.
    fn killer_policy() -> Policy {
        let mut policy = Self::policy();
        policy.crashes = CRASHES;
        policy.crash_delay = Duration::from_millis(200);
        policy
    }
}

/// Runs a worker until it is stopped or killed.
pub(crate) fn work(job: &str) -> Result<()> {
    let job: WorkerJob = serde_json::from_str(job).context("the job is not JSON")?;
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new("warn"))
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    std::panic::set_hook(Box::new(|panic| eprintln!("panic: {panic}")));
    let ledger = ProcessLedger::open(&job.dir, job.life)?;
    let seed = job.plan.seed ^ job.life.wrapping_mul(0x2545_f491_4f6c_dd1d);
    let notes = Arc::new(Notes::new(ledger, job.life, seed, job.odds, job.lease_ms));
    watch_the_machine(&notes, job.lease_ms);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(stores::open_and_serve(job, notes))
}

/// Records lost CPU time of this process: leases then expire without a fault of the product.
fn watch_the_machine(notes: &Arc<Notes>, lease_ms: u64) {
    const TICK: Duration = Duration::from_millis(20);
    let notes = Arc::clone(notes);
    std::thread::spawn(move || {
        loop {
            let start = Instant::now();
            std::thread::park_timeout(TICK);
            let over = start.elapsed().saturating_sub(TICK);
            if over.as_millis() > u128::from(lease_ms / 4) {
                notes.ledger.note(Fact::Stall { ms: u64::try_from(over.as_millis()).unwrap_or(u64::MAX) });
            }
        }
    });
}

/// Reports to the driver, one line each.
#[derive(Clone, Debug)]
pub(crate) struct ReportWriter(mpsc::UnboundedSender<WorkerReport>);

impl ReportWriter {
    fn open() -> (Self, tokio::task::JoinHandle<()>) {
        let (sender, mut reports) = mpsc::unbounded_channel::<WorkerReport>();
        let writer = tokio::task::spawn_blocking(move || {
            let mut out = std::io::stdout();
            while let Some(report) = reports.blocking_recv() {
                let line = serde_json::to_string(&report).unwrap_or_default() + "\n";
                // One write, so that a line is complete or absent. A driver that ends also closes our input.
                let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
            }
        });
        (Self(sender), writer)
    }

    pub(crate) fn send(&self, report: WorkerReport) {
        let _ = self.0.send(report);
    }
}

async fn serve<S: Rigged + Clone>(job: WorkerJob, store: S, notes: Arc<Notes>) -> Result<()> {
    let (reports, writer) = ReportWriter::open();
    let business = Business {
        plan: job.plan,
        dir: job.dir.clone(),
        long: Duration::from_millis(job.lease_ms * 3 / 2),
        notes: Arc::clone(&notes),
        reports: reports.clone(),
        keyed: job.renamed.is_some(),
    };
    if job.operated {
        let seed = job.plan.seed ^ (job.life << 32);
        tokio::spawn(operator::act(store.clone(), Arc::clone(&notes), seed));
    }
    let inbox = inbox(&job, store, business)?;
    match &job.way {
        WorkerTransport::Pipe if job.front => intake::front(&inbox, &job, &reports, &notes).await?,
        WorkerTransport::Pipe => {
            let running = inbox.start();
            let (source, over) = intake::source(&job, reports.clone(), notes);
            running.receive(source)?;
            tokio::select! {
                () = intake::stopped() => {}
                _ = over => {}
            }
            running.shutdown().await;
        }
        WorkerTransport::Http => remote::http(&inbox, &job, &reports, &notes).await?,
        WorkerTransport::Rabbit { url, queue } => remote::rabbit(&inbox, url, queue, &notes).await?,
    }
    drop((inbox, reports));
    // Flush all reports, but do not wait for a sender that a task keeps.
    let _ = tokio::time::timeout(Duration::from_millis(500), writer).await;
    std::process::exit(0);
}

fn inbox<S: Rigged>(job: &WorkerJob, store: S, business: Business) -> Result<Inbox<S>> {
    let policy = WorkerJob::policy();
    let many = if job.plan.quick { 64 } else { 12 };
    let killed = WorkerJob::killer_policy();
    let mut skips = policy.clone();
    skips.on_poisoned = oncebox::OnPoisoned::Skip;
    // Its old key, or its new key with the old one as a former key.
    let named = |key: &str, make: &dyn Fn(String) -> Registration<S>| match job.renamed {
        Some(true) => make(renamed(key)).legacy(key),
        _ => make(key.to_owned()),
    };
    let built = Inbox::builder(INBOX, store)
        .config(job.config())
        .clock(job.clock())
        .data(Arc::new(business))
        .on(
            ["tx", "both"],
            named("tx", &|key| handler(key, handlers::tx::<S>))
                .policy(policy.clone())
                .timeout(TIMEOUT)
                .concurrency(many),
        )
        .on(
            ["plain", "both"],
            named("plain", &|key| handler(key, handlers::plain::<S>))
                .policy(policy.clone())
                .timeout(job.hang())
                .concurrency(many),
        )
        .on(
            "ordered",
            named("ordered", &|key| handler(key, handlers::ordered::<S>)).policy(skips).concurrency(8),
        )
        .on("inline", handler("inline", handlers::inline::<S>).inline().retention(REMEMBERED))
        .on(
            "share",
            named("share", &|key| handler(key, handlers::share::<S>))
                .policy(policy.clone())
                .share_commit(6)
                .concurrency(many),
        )
        .on(
            "batch",
            named("batch", &|key| batch_handler(key, handlers::batch::<S>)).policy(policy).max_batch(6),
        )
        .on(
            "killer",
            named("killer", &|key| handler(key, handlers::killer::<S>)).policy(killed).concurrency(1),
        )
        .build()?;
    Ok(built)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_kill_are_poisoned_long_before_a_round_loses_patience() {
        for policy in [WorkerJob::policy(), WorkerJob::killer_policy()] {
            policy.validate().unwrap();
            let waits: Duration = (1..CRASHES).map(|crashes| policy.crash_wait(crashes)).sum();
            assert!(waits < Duration::from_secs(5), "{waits:?}");
        }
    }
}
