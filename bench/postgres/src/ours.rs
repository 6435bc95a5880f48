//! The inbox, through its public interface.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use oncebox::store::{Seq, Store as _, SweepParams, SweepPosition};
use oncebox::{Config, Context, Inbox, Message, handler};
use oncebox_postgres::Postgres;
use oncebox_postgres::sqlx::{self, AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tokio::sync::Notify;

use crate::{id, payload, rate};

/// Kind of handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A handler that does nothing.
    Plain,
    /// A transaction and a commit per message, 16 at once.
    Own,
    /// A commit shared by up to 64 messages.
    Shared,
}

/// An inbox in its own schema.
pub(crate) struct Ours {
    url: String,
    schema: String,
    pub(crate) inbox: Inbox<Postgres>,
    done: Arc<HandlerTimes>,
}

/// Counts runs of the handler.
#[derive(Default)]
struct HandlerTimes {
    left: AtomicUsize,
    all: Notify,
    ran: AtomicUsize,
    /// The sum and the list of times from accept to handler.
    times: std::sync::Mutex<Vec<Duration>>,
    epoch: std::sync::OnceLock<Instant>,
    timed: AtomicU64,
}

impl HandlerTimes {
    fn one(&self) {
        self.ran.fetch_add(1, Ordering::Relaxed);
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.all.notify_one();
        }
    }
}

async fn noop(message: Message, cx: &mut Context<Postgres>) -> Result<(), oncebox::Error> {
    let done = cx.data::<Arc<HandlerTimes>>()?;
    if done.timed.load(Ordering::Relaxed) > 0
        && let Some(epoch) = done.epoch.get()
        && let Ok(sent) = std::str::from_utf8(message.payload()).unwrap_or_default().parse::<u64>()
        && let Ok(mut times) = done.times.lock()
    {
        times.push(epoch.elapsed().saturating_sub(Duration::from_nanos(sent)));
    }
    done.one();
    Ok(())
}

async fn business(
    message: Message,
    cx: &mut Context<Postgres>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let number = i64::try_from(message.payload().len())?;
    let tx = cx.tx().await?;
    sqlx::query("INSERT INTO bench_business VALUES ($1, 'done')").bind(number).execute(&mut **tx).await?;
    cx.data::<Arc<HandlerTimes>>()?.one();
    Ok(())
}

impl Ours {
    pub(crate) async fn fresh(url: &str, schema: &str, mode: Mode) -> Result<Self> {
        let mut connection = PgConnection::connect(url).await?;
        let sql = format!(
            "DROP SCHEMA IF EXISTS {schema} CASCADE; DROP TABLE IF EXISTS bench_business; \
             CREATE TABLE bench_business (seq bigint, note text)"
        );
        connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await?;
        let store = Postgres::options(url)?.schema(schema).open().await?;
        let done = Arc::new(HandlerTimes::default());
        let registration = match mode {
            Mode::Plain => handler("noop", noop).concurrency(8_000),
            // The store has 16 connections for handlers: 16 transactions at once. Entries in flight equal those of the
            // loop, which claims 50 on each connection.
            Mode::Own => handler("noop", business).concurrency(800),
            Mode::Shared => shared(handler("noop", business)),
        };
        let config = match mode {
            Mode::Plain => Config { batch: 1_000, in_flight: 8_000, ..Config::default() },
            Mode::Own | Mode::Shared => Config { batch: 1_000, in_flight: 1_000, ..Config::default() },
        };
        let builder = Inbox::builder("bench", store).config(config).data(Arc::clone(&done));
        let inbox = builder.on("bench", registration).build()?;
        Ok(Self { url: url.to_owned(), schema: schema.to_owned(), inbox, done })
    }

    /// Accepts `count` messages, one per call.
    pub(crate) async fn accept(&self, first: usize, count: usize, callers: usize) -> Result<f64> {
        let payload = Bytes::from(payload());
        let start = Instant::now();
        let tasks: Vec<_> = (0..callers)
            .map(|caller| {
                let (inbox, payload) = (self.inbox.clone(), payload.clone());
                tokio::spawn(async move {
                    for number in (first + caller..first + count).step_by(callers) {
                        inbox.accept(message(number, &payload)).await?;
                    }
                    Ok::<_, oncebox::Error>(())
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        Ok(rate(count, start))
    }

    /// Accepts `count` messages in batches.
    pub(crate) async fn load(&self, first: usize, count: usize) -> Result<()> {
        self.load_by(first, count, 1_000).await
    }

    /// Accepts `count` messages in calls of `size`.
    pub(crate) async fn load_by(&self, first: usize, count: usize, size: usize) -> Result<()> {
        let payload = Bytes::from(payload());
        for start in (first..first + count).step_by(size) {
            let batch = (start..(first + count).min(start + size)).map(|number| message(number, &payload));
            for accepted in self.inbox.accept_batch(batch).await? {
                accepted?;
            }
        }
        Ok(())
    }

    /// Accepts `count` messages that alternate over `keys` ordering keys.
    pub(crate) async fn load_ordered(&self, count: usize, keys: usize) -> Result<()> {
        let payload = Bytes::from(payload());
        for start in (0..count).step_by(1_000) {
            let ordered = |number: usize| {
                message(number, &payload).with_ordering_key((number % keys).to_string().into_bytes())
            };
            let batch = (start..count.min(start + 1_000)).map(ordered);
            for accepted in self.inbox.accept_batch(batch).await? {
                accepted?;
            }
        }
        Ok(())
    }

    /// Runs pending entries until all are settled.
    pub(crate) async fn drain(&self, count: usize) -> Result<f64> {
        self.done.left.store(count, Ordering::Relaxed);
        let start = Instant::now();
        let running = self.inbox.start();
        self.done.all.notified().await;
        running.shutdown().await;
        let rate = rate(count, start);
        let left = oncebox::store::Admin::count(self.inbox.store(), self.inbox.name()).await?;
        ensure!(
            left.with_status(oncebox::Status::Completed) >= count as u64,
            "not all were completed: {left:?}"
        );
        ensure!(left.with_status(oncebox::Status::Pending) == 0, "something was left");
        Ok(rate)
    }

    /// Returns a sweep of the filled messages, before its first page.
    pub(crate) fn sweeper(&self) -> SweepParams {
        let mut params = SweepParams::new(self.inbox.name().clone(), Duration::from_hours(7 * 24), 10_000);
        // The few that registered the names are younger than the filled ones.
        params.after = Some(SweepPosition::new(params.retention, Seq((1 << 36) | (100_000 << 6))));
        params
    }

    /// Sweeps `count` old messages, page by page.
    pub(crate) async fn sweep(&self, params: &mut SweepParams, count: usize) -> Result<()> {
        let mut swept = 0;
        while swept < count {
            let page = self.inbox.store().sweep(params).await?;
            ensure!(page.messages > 0 && page.next.is_some(), "there are enough old messages");
            swept += page.messages;
            params.after = page.next;
        }
        Ok(())
    }

    /// Fills in finished messages without handling them.
    pub(crate) async fn fill(&self, count: usize) -> Result<()> {
        let mut connection = PgConnection::connect(&self.url).await?;
        let sql = include_str!("../sql/fill.sql");
        let sql = sql.replace("{schema}", &self.schema).replace("{count}", &count.to_string());
        for statement in sql.split(";\n").filter(|statement| !statement.trim().is_empty()) {
            connection.execute(sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))).await?;
        }
        Ok(())
    }

    /// Accepts and processes together for `time`; returns the number processed per `window`.
    pub(crate) async fn sustain(&self, time: Duration, window: Duration, callers: usize) -> Result<Vec<f64>> {
        self.done.left.store(usize::MAX, Ordering::Relaxed);
        let running = self.inbox.start();
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let next = Arc::new(AtomicUsize::new(0));
        let payload = Bytes::from(payload());
        let tasks: Vec<_> = (0..callers)
            .map(|_| {
                let (inbox, payload, stop, next) =
                    (self.inbox.clone(), payload.clone(), Arc::clone(&stop), Arc::clone(&next));
                let done = Arc::clone(&self.done);
                tokio::spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        // Limit the backlog to a second's work: the row measures the balance.
                        while number > done.ran.load(Ordering::Relaxed) + 20_000
                            && !stop.load(Ordering::Relaxed)
                        {
                            crate::pause(Duration::from_millis(1)).await;
                        }
                        inbox.accept(message(number, &payload)).await?;
                    }
                    Ok::<_, oncebox::Error>(())
                })
            })
            .collect();
        let mut rates = Vec::new();
        let start = Instant::now();
        while start.elapsed() < time {
            let (before, at) = (self.done.ran.load(Ordering::Relaxed), Instant::now());
            crate::pause(window).await;
            rates.push(rate(self.done.ran.load(Ordering::Relaxed) - before, at));
        }
        stop.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await??;
        }
        running.shutdown().await;
        Ok(rates)
    }

    /// Accepts a message every 5 ms; returns the times from accept to the start of the handler.
    pub(crate) async fn latencies(&self, count: usize) -> Result<Vec<Duration>> {
        let epoch = *self.done.epoch.get_or_init(Instant::now);
        self.done.timed.store(1, Ordering::Relaxed);
        self.done.left.store(count, Ordering::Relaxed);
        let running = self.inbox.start();
        let mut beat = tokio::time::interval(Duration::from_millis(5));
        let mut tasks = Vec::new();
        for number in 0..count {
            beat.tick().await;
            let inbox = self.inbox.clone();
            tasks.push(tokio::spawn(async move {
                let sent = epoch.elapsed().as_nanos().to_string();
                inbox.accept(Message::new(id(number), "bench", sent).with_source("bench")).await
            }));
        }
        for task in tasks {
            task.await??;
        }
        self.done.all.notified().await;
        running.shutdown().await;
        Ok(self.done.times.lock().map_err(|_| anyhow::anyhow!("a handler panicked"))?.clone())
    }
}

fn shared(registration: oncebox::Registration<Postgres>) -> oncebox::Registration<Postgres> {
    registration.concurrency(256).share_commit(64)
}

pub(crate) fn message(number: usize, payload: &Bytes) -> Message {
    Message::new(id(number), "bench", payload.clone()).with_source("bench")
}
