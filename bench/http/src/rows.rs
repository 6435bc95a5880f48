//! Messages per second over HTTP, compared with direct calls of the same inbox in the same run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use oncebox::{Inbox, Message};
use oncebox_postgres::Postgres;
use serde::Serialize;

use crate::Args;
use crate::client::HttpClient;
use crate::process::{ServerProcess, own_cpu};
use crate::serve::{KIND, postgres};

/// Messages per batch, and connections that send batches.
const BATCH: usize = 100;
const BATCHERS: usize = 8;

/// One row: `ours` over HTTP, `limit` by direct calls.
#[derive(Debug, Serialize)]
struct HttpRow {
    #[serde(rename = "row")]
    name: &'static str,
    ours: u64,
    limit: u64,
    ratio: f64,
    unit: &'static str,
    /// Processor time per message, in microseconds: of the server with its store's client, of the load generator, and
    /// of a direct call.
    server_us: f64,
    client_us: f64,
    direct_us: f64,
}

/// A rate, and the processor time per message.
#[derive(Clone, Copy, Default)]
struct Figure {
    rate: f64,
    server_us: f64,
    client_us: f64,
}

struct HttpBench {
    inbox: Inbox<Postgres>,
    served: ServerProcess,
    /// Number of connections, and of direct callers.
    callers: usize,
    count: usize,
    next: usize,
}

pub(crate) async fn run(args: &Args, url: &str) -> Result<()> {
    let inbox = postgres(url).await?;
    let served = ServerProcess::start(url).await?;
    let (count, rounds) = if args.quick { (20_000, 1) } else { (100_000, 3) };
    let mut bench = HttpBench { inbox, served, callers: args.connections, count, next: 0 };
    // Warm up plans, connections and files.
    bench.count = count / 10;
    bench.direct().await?;
    bench.single().await?;
    bench.count = count;
    let (mut direct, mut single, mut batches, mut direct_batches) = (vec![], vec![], vec![], vec![]);
    for _ in 0..rounds {
        // They take turns, so that a slow period of the disk affects all.
        direct.push(bench.direct().await?);
        single.push(bench.single().await?);
        direct_batches.push(bench.direct_batches().await?);
        batches.push(bench.batches().await?);
    }
    if !args.json {
        println!("{:<14} {:>9} {:>9} {:>6}   processor µs a message", "row", "http", "direct", "ratio");
    }
    print(args, "http-single", &mut single, &mut direct);
    print(args, "http-batch", &mut batches, &mut direct_batches);
    bench.served.stop().await
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates are small and positive")]
fn print(args: &Args, name: &'static str, ours: &mut [Figure], limit: &mut [Figure]) {
    let median = |figures: &mut [Figure]| {
        figures.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        figures.get(figures.len() / 2).copied().unwrap_or_default()
    };
    let (ours, limit) = (median(ours), median(limit));
    let row = HttpRow {
        name,
        ours: ours.rate as u64,
        limit: limit.rate as u64,
        ratio: (ours.rate / limit.rate * 100.0).round() / 100.0,
        unit: "msg/s",
        server_us: ours.server_us.round(),
        client_us: ours.client_us.round(),
        direct_us: limit.client_us.round(),
    };
    if args.json {
        println!("{}", serde_json::to_string(&row).unwrap_or_default());
    } else {
        let HttpRow { name, ours, limit, ratio, server_us, client_us, direct_us, .. } = row;
        println!(
            "{name:<14} {ours:>9} {limit:>9} {ratio:>6.2}   server {server_us}, load generator {client_us}, direct {direct_us}"
        );
    }
}

impl HttpBench {
    /// Runs `callers` tasks, and measures.
    async fn measure<Task>(&mut self, callers: usize, task: impl Fn(usize) -> Task) -> Result<Figure>
    where
        Task: Future<Output = Result<()>> + Send + 'static,
    {
        let (start, server, own) = (Instant::now(), self.served.cpu()?, own_cpu()?);
        let tasks: Vec<_> = (0..callers).map(|caller| tokio::spawn(task(caller))).collect();
        for task in tasks {
            task.await??;
        }
        let took = start.elapsed().as_secs_f64();
        self.next += self.count;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let count = self.count as f64;
        let each = |time: Duration| time.as_secs_f64() * 1e6 / count;
        Ok(Figure {
            rate: count / took,
            server_us: each(self.served.cpu()?.saturating_sub(server)),
            client_us: each(own_cpu()?.saturating_sub(own)),
        })
    }

    async fn direct(&mut self) -> Result<Figure> {
        let (inbox, callers, first, end) =
            (self.inbox.clone(), self.callers, self.next, self.next + self.count);
        self.measure(callers, |caller| {
            let inbox = inbox.clone();
            async move {
                let payload = payload();
                for number in (first + caller..end).step_by(callers) {
                    inbox.accept(Message::new(id(number), KIND, payload.clone())).await?;
                }
                Ok(())
            }
        })
        .await
    }

    async fn single(&mut self) -> Result<Figure> {
        let (address, first, end) = (self.served.address, self.next, self.next + self.count);
        let callers = self.callers;
        self.measure(callers, |caller| async move {
            let (mut client, payload) = (HttpClient::connect(address).await?, payload());
            for number in (first + caller..end).step_by(callers) {
                let status = client.plain(&id(number), &payload).await?;
                ensure!(status == 202, "the server said {status}");
            }
            Ok(())
        })
        .await
    }

    async fn direct_batches(&mut self) -> Result<Figure> {
        let (inbox, first, end) = (self.inbox.clone(), self.next, self.next + self.count);
        self.measure(BATCHERS, |caller| {
            let inbox = inbox.clone();
            async move {
                let payload = payload();
                for start in (first + caller * BATCH..end).step_by(BATCHERS * BATCH) {
                    let message = |number| Message::new(id(number), KIND, payload.clone());
                    for accepted in inbox.accept_batch((start..end.min(start + BATCH)).map(message)).await? {
                        accepted?;
                    }
                }
                Ok(())
            }
        })
        .await
    }

    async fn batches(&mut self) -> Result<Figure> {
        let (address, first, end) = (self.served.address, self.next, self.next + self.count);
        let payload = Arc::new(payload());
        self.measure(BATCHERS, |caller| {
            let payload = Arc::clone(&payload);
            async move {
                let mut client = HttpClient::connect(address).await?;
                for start in (first + caller * BATCH..end).step_by(BATCHERS * BATCH) {
                    let event = |number| {
                        format!(
                            r#"{{"specversion":"1.0","id":"{}","source":"/bench","type":"{KIND}","data":{payload}}}"#,
                            id(number)
                        )
                    };
                    let events: Vec<String> = (start..end.min(start + BATCH)).map(event).collect();
                    let status = client.batch(&format!("[{}]", events.join(","))).await?;
                    ensure!(status == 202, "the server said {status}");
                }
                Ok(())
            }
        })
        .await
    }
}

/// The payload of every message: 256 bytes of JSON.
fn payload() -> String {
    format!(r#"{{"order":7,"note":"{}"}}"#, "x".repeat(235))
}

/// Returns the id of a message, different in each run, so that one server can be measured twice.
fn id(number: usize) -> String {
    format!("0192f7a0-{:08x}-{number:012}", std::process::id())
}
