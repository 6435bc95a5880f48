//! A worker process: reads deliveries from standard input, acknowledges them on standard output. Tests: `tests/demo.rs`.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;
use oncebox::{Accepted, BoxError, Config, Context, Inbox, Message, Policy, Retry, handler};
use oncebox_sqlite::Sqlite;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::mpsc;

use super::{WorkerArgs, shop};

/// A delivery to a worker.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct OrderDelivery {
    pub(crate) delivery: u64,
    pub(crate) order: u32,
}

/// A message of a worker to the driver.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkerMessage {
    /// The inbox has stored the delivery, or recognised a duplicate.
    Acked { delivery: u64, duplicate: bool },
    /// A handler failed or panicked, and will be retried.
    Failed { panicked: bool },
    /// A handler is about to abort its process.
    Dying,
}

/// Percentage of orders that fail or panic at their first attempt.
const FAIL: u64 = 5;
const PANIC: u64 = 2;
/// Orders in ten thousand that abort their worker.
const DIE: u64 = 15;

#[derive(Deserialize)]
struct OrderPlaced {
    order: u32,
}

pub(crate) fn work(args: &WorkerArgs) -> Result<()> {
    // Hides the reports of panics, which are intended.
    std::panic::set_hook(Box::new(|_| {}));
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(serve(args.clone()))
}

async fn serve(args: WorkerArgs) -> Result<()> {
    let (sender, mut messages) = mpsc::unbounded_channel::<WorkerMessage>();
    let printer = tokio::task::spawn_blocking(move || {
        let mut out = std::io::stdout();
        while let Some(message) = messages.blocking_recv() {
            // If the driver is gone, the closed input ends this worker.
            let line = serde_json::to_string(&message).unwrap_or_default();
            let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        }
    });
    let inbox = inbox(&args, sender.clone())?;
    let running = inbox.start();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let delivery: OrderDelivery = serde_json::from_str(&line)?;
        let (inbox, sender) = (inbox.clone(), sender.clone());
        tokio::spawn(async move { accept(&inbox, delivery, &sender).await });
    }
    // The driver closed the input: finish running handlers.
    running.shutdown().await;
    drop((inbox, sender));
    printer.await?;
    Ok(())
}

/// Stores a delivery, then acknowledges it. Retries while the file is locked.
async fn accept(
    inbox: &Inbox<Sqlite>,
    delivery: OrderDelivery,
    sender: &mpsc::UnboundedSender<WorkerMessage>,
) {
    let payload = serde_json::json!({ "order": delivery.order }).to_string();
    let message =
        Message::new(format!("order-{}", delivery.order), "order.placed", payload).with_source("demo");
    loop {
        match inbox.accept(message.clone()).await {
            Ok(accepted) => {
                let duplicate = !matches!(accepted, Accepted::First(_));
                let _ = sender.send(WorkerMessage::Acked { delivery: delivery.delivery, duplicate });
                return;
            }
            Err(error) if error.is_retryable() => tokio::task::yield_now().await,
            Err(error) => {
                eprintln!("oncebox: demo worker: {error}");
                return;
            }
        }
    }
}

fn inbox(args: &WorkerArgs, sender: mpsc::UnboundedSender<WorkerMessage>) -> Result<Inbox<Sqlite>> {
    let store = Sqlite::options(shop::file(&args.dir)).busy_timeout(Duration::from_secs(30)).open()?;
    let mut policy = Policy::default();
    policy.retry = Retry::new(20, Duration::from_millis(20), Duration::from_secs(1));
    // The driver kills the workers, not the messages, so no message is poisoned for a crash.
    policy.crashes = 1_000;
    let config = Config {
        lease: Duration::from_secs(1),
        rescue: Duration::from_millis(250),
        poll: Duration::from_millis(250),
        in_flight: 32,
        grace: Duration::from_secs(5),
        ..Config::default()
    };
    Ok(Inbox::builder("demo", store)
        .config(config)
        .data(OrderFaults { args: args.clone(), sender })
        .on("order.placed", handler("ship-order", ship).policy(policy).concurrency(16))
        .build()?)
}

/// Ships an order in one transaction with the completion of its entry. Injects faults.
async fn ship(placed: OrderPlaced, cx: &mut Context<Sqlite>) -> Result<(), BoxError> {
    let first = cx.attempt() == 1;
    let worker = cx.data::<OrderFaults>()?.args.number;
    shop::ship(cx.tx().await?, placed.order, worker)?;
    let faults = cx.data::<OrderFaults>()?;
    match faults.of(placed.order) {
        OrderOutcome::Dies if faults.first_death(placed.order) => {
            let _ = faults.sender.send(WorkerMessage::Dying);
            std::process::abort();
        }
        OrderOutcome::Fails if first => {
            let _ = faults.sender.send(WorkerMessage::Failed { panicked: false });
            Err("the carrier does not respond".into())
        }
        OrderOutcome::Panics if first => {
            let _ = faults.sender.send(WorkerMessage::Failed { panicked: true });
            panic!("a bug in the handler");
        }
        _ => Ok(()),
    }
}

/// Planned faults of orders.
struct OrderFaults {
    args: WorkerArgs,
    sender: mpsc::UnboundedSender<WorkerMessage>,
}

enum OrderOutcome {
    Well,
    Fails,
    Panics,
    Dies,
}

impl OrderFaults {
    fn of(&self, order: u32) -> OrderOutcome {
        let roll = fastrand::Rng::with_seed(self.args.seed ^ (u64::from(order) << 32)).u64(0..10_000);
        if roll < DIE {
            OrderOutcome::Dies
        } else if roll < DIE + PANIC * 100 {
            OrderOutcome::Panics
        } else if roll < DIE + (PANIC + FAIL) * 100 {
            OrderOutcome::Fails
        } else {
            OrderOutcome::Well
        }
    }

    /// Returns true if the order has not aborted a worker yet. A file remembers it across processes.
    fn first_death(&self, order: u32) -> bool {
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(self.args.dir.join(format!("died-{order}")))
            .is_ok()
    }
}
