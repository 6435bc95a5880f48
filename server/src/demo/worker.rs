//! A worker process: takes deliveries on its standard input, acknowledges them on its standard output.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;
use oncebox::{Accepted, BoxError, Config, Context, Inbox, Message, Policy, Retry, handler};
use oncebox_sqlite::Sqlite;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::mpsc;

use super::{WorkerArgs, shop};

/// What the broker hands a worker.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct OrderDelivery {
    pub(crate) delivery: u64,
    pub(crate) order: u32,
}

/// What a worker says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkerMessage {
    /// A delivery is stored, or was before: the broker may forget it.
    Acked { delivery: u64, duplicate: bool },
    /// A handler failed or panicked; it will be tried again.
    Failed { panicked: bool },
    /// A handler is about to take its process down.
    Dying,
}

/// How many orders in a hundred meet each fate at their first attempt.
const FAIL: u64 = 5;
const PANIC: u64 = 2;
/// In ten thousand.
const DIE: u64 = 15;

#[derive(Deserialize)]
struct OrderPlaced {
    order: u32,
}

pub(crate) fn work(args: &WorkerArgs) -> Result<()> {
    // A panic is part of the show; its report is not.
    std::panic::set_hook(Box::new(|_| {}));
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(serve(args.clone()))
}

async fn serve(args: WorkerArgs) -> Result<()> {
    let (say, mut said) = mpsc::unbounded_channel::<WorkerMessage>();
    let printer = tokio::task::spawn_blocking(move || {
        let mut out = std::io::stdout();
        while let Some(said) = said.blocking_recv() {
            // A driver that is gone reads nothing any more; the closed input ends this worker.
            let line = serde_json::to_string(&said).unwrap_or_default();
            let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        }
    });
    let inbox = inbox(&args, say.clone())?;
    let running = inbox.start();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let handed: OrderDelivery = serde_json::from_str(&line)?;
        let (inbox, say) = (inbox.clone(), say.clone());
        tokio::spawn(async move { take(&inbox, handed, &say).await });
    }
    // The broker hung up: finish what is in hand and go.
    running.shutdown().await;
    drop((inbox, say));
    printer.await?;
    Ok(())
}

/// Stores a delivery, and only then acknowledges it. While the file is locked it is held, not given back.
async fn take(inbox: &Inbox<Sqlite>, handed: OrderDelivery, say: &mpsc::UnboundedSender<WorkerMessage>) {
    let payload = serde_json::json!({ "order": handed.order }).to_string();
    let message =
        Message::new(format!("order-{}", handed.order), "order.placed", payload).with_source("demo");
    loop {
        match inbox.accept(message.clone()).await {
            Ok(accepted) => {
                let duplicate = !matches!(accepted, Accepted::First(_));
                let _ = say.send(WorkerMessage::Acked { delivery: handed.delivery, duplicate });
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

fn inbox(args: &WorkerArgs, say: mpsc::UnboundedSender<WorkerMessage>) -> Result<Inbox<Sqlite>> {
    let store = Sqlite::options(shop::file(&args.dir)).busy_timeout(Duration::from_secs(30)).open()?;
    let mut policy = Policy::default();
    policy.retry = Retry::new(20, Duration::from_millis(20), Duration::from_secs(1));
    // Here it is not the messages that kill the workers, so none of them is to be poisoned for it.
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
        .data(OrderFaults { args: args.clone(), say })
        .on("order.placed", handler("ship-order", ship).policy(policy).concurrency(16))
        .build()?)
}

/// Ships an order, in one transaction with the entry's completion. Some orders meet trouble on the way.
async fn ship(placed: OrderPlaced, cx: &mut Context<Sqlite>) -> Result<(), BoxError> {
    let first = cx.attempt() == 1;
    let worker = cx.data::<OrderFaults>()?.args.number;
    shop::ship(cx.tx().await?, placed.order, worker)?;
    let fate = cx.data::<OrderFaults>()?;
    match fate.of(placed.order) {
        OrderOutcome::Dies if fate.first_death(placed.order) => {
            let _ = fate.say.send(WorkerMessage::Dying);
            std::process::abort();
        }
        OrderOutcome::Fails if first => {
            let _ = fate.say.send(WorkerMessage::Failed { panicked: false });
            Err("the carrier does not answer".into())
        }
        OrderOutcome::Panics if first => {
            let _ = fate.say.send(WorkerMessage::Failed { panicked: true });
            panic!("a bug in the handler");
        }
        _ => Ok(()),
    }
}

/// What happens to which order.
struct OrderFaults {
    args: WorkerArgs,
    say: mpsc::UnboundedSender<WorkerMessage>,
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

    /// Whether the order has not killed a worker yet; remembered in a file, because the worker cannot.
    fn first_death(&self, order: u32) -> bool {
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(self.args.dir.join(format!("died-{order}")))
            .is_ok()
    }
}
