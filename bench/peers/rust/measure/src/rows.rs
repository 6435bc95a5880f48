//! The four rows.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tokio::task::{JoinHandle, JoinSet};

use crate::{Peer, Started};

const BATCH: usize = 500;
const CALLERS: usize = 8;
const INTERVAL: Duration = Duration::from_millis(5);
const WARM_UP: usize = 100;
const DRAIN_DEADLINE: Duration = Duration::from_mins(2);
const LATENCY_DEADLINE: Duration = Duration::from_secs(10);

/// Returns the fields that this row adds to its name.
pub(crate) async fn measure<P: Peer>(row: &str, url: &str, count: usize) -> Result<Value> {
    if row == "enqueue-batch-500" && !P::BATCHES {
        return Ok(json!({ "note": "it has no call that enqueues several messages" }));
    }
    let mut database = Database::<P>::open(url).await?;
    let peer = Arc::new(P::open(url).await?);
    match row {
        "enqueue-single-8" => single(peer, &mut database, count).await,
        "enqueue-batch-500" => batch(peer, &mut database, count).await,
        "drain" => drain(peer, &mut database, count).await,
        "latency-200" => latency(peer, count).await,
        _ => bail!("there is no row {row}"),
    }
}

/// A connection of our own, to read the peer's tables.
struct Database<P> {
    connection: PgConnection,
    peer: PhantomData<P>,
}

impl<P: Peer> Database<P> {
    async fn open(url: &str) -> Result<Self> {
        Ok(Self { connection: PgConnection::connect(url).await?, peer: PhantomData })
    }

    /// Returns the number of unfinished messages.
    async fn left(&mut self) -> Result<usize> {
        let left: i64 = sqlx::query_scalar(P::UNFINISHED).fetch_one(&mut self.connection).await?;
        Ok(left.try_into()?)
    }

    /// Updates the statistics: a table that grew within seconds has none, and its plans would not occur in operation.
    async fn analyze(&mut self) -> Result<()> {
        sqlx::query("analyze").execute(&mut self.connection).await?;
        Ok(())
    }
}

async fn single<P: Peer>(peer: Arc<P>, database: &mut Database<P>, count: usize) -> Result<Value> {
    let start = Instant::now();
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let peer = Arc::clone(&peer);
        callers.spawn(async move {
            for n in (caller..count).step_by(CALLERS) {
                peer.enqueue(n).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    kept(database, count, start.elapsed()).await
}

async fn batch<P: Peer>(peer: Arc<P>, database: &mut Database<P>, count: usize) -> Result<Value> {
    let start = Instant::now();
    fill(&*peer, count).await?;
    kept(database, count, start.elapsed()).await
}

async fn fill<P: Peer>(peer: &P, count: usize) -> Result<()> {
    for first in (0..count).step_by(BATCH) {
        peer.enqueue_batch(first..count.min(first + BATCH)).await?;
    }
    Ok(())
}

/// Returns a rate if all messages are in the tables.
async fn kept<P: Peer>(database: &mut Database<P>, count: usize, time: Duration) -> Result<Value> {
    let left = database.left().await?;
    if left != count {
        bail!("{left} of {count} messages are in the tables");
    }
    Ok(rate(count, time))
}

fn rate(count: usize, time: Duration) -> Value {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let rate = count as f64 / time.as_secs_f64();
    json!({ "value": rate.round(), "unit": "msg/s" })
}

async fn drain<P: Peer>(peer: Arc<P>, database: &mut Database<P>, count: usize) -> Result<Value> {
    fill(&*peer, count).await?;
    database.analyze().await?;
    let seen: Arc<[AtomicBool]> = (0..count).map(|_| AtomicBool::new(false)).collect();
    let (distinct, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let started: Started = {
        let (distinct, again) = (Arc::clone(&distinct), Arc::clone(&again));
        Arc::new(move |n| {
            let counter = if seen[n].swap(true, Ordering::Relaxed) { &again } else { &distinct };
            counter.fetch_add(1, Ordering::Relaxed);
        })
    };
    let start = Instant::now();
    let worker = spawn(&peer, started);
    let mut poll = tokio::time::interval(Duration::from_millis(2));
    let finished = loop {
        poll.tick().await;
        // After the last handler run, its result must reach the database, too.
        if distinct.load(Ordering::Relaxed) == count {
            let offered_at = Instant::now();
            if database.left().await? == 0 {
                break offered_at;
            }
        }
        alive(&worker)?;
        if start.elapsed() > DRAIN_DEADLINE {
            let (seconds, left) = (DRAIN_DEADLINE.as_secs(), database.left().await?);
            let handled = distinct.load(Ordering::Relaxed);
            bail!("after {seconds} s {handled} of {count} were handled, {left} not finished");
        }
    };
    let mut row = rate(count, finished - start);
    let again = again.load(Ordering::Relaxed);
    if again > 0 {
        row["handled_again"] = again.into();
    }
    Ok(row)
}

fn spawn<P: Peer>(peer: &Arc<P>, started: Started) -> JoinHandle<Result<()>> {
    let peer = Arc::clone(peer);
    tokio::spawn(async move {
        let ended = peer.work(started).await;
        if let Err(error) = &ended {
            eprintln!("the worker ended: {error:#}");
        }
        ended
    })
}

fn alive(worker: &JoinHandle<Result<()>>) -> Result<()> {
    if worker.is_finished() {
        bail!("the worker ended by itself");
    }
    Ok(())
}

/// Time of an enqueue, and the delay of its handler.
#[derive(Default)]
struct Times {
    called: OnceLock<Instant>,
    took: OnceLock<Duration>,
}

async fn latency<P: Peer>(peer: Arc<P>, count: usize) -> Result<Value> {
    let total = WARM_UP + count;
    let times: Arc<[Times]> = (0..total).map(|_| Times::default()).collect();
    let handled = Arc::new(AtomicUsize::new(0));
    let started: Started = {
        let (times, handled) = (Arc::clone(&times), Arc::clone(&handled));
        Arc::new(move |n| {
            let times = &times[n];
            if let Some(called) = times.called.get()
                && times.took.set(called.elapsed()).is_ok()
            {
                handled.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let worker = spawn(&peer, started);
    paced(&peer, &times, 0..WARM_UP).await?;
    let _ = all(WARM_UP, &handled, &worker).await?;
    paced(&peer, &times, WARM_UP..total).await?;
    if !all(total, &handled, &worker).await? {
        let (missing, seconds) = (total - handled.load(Ordering::Relaxed), LATENCY_DEADLINE.as_secs());
        bail!("{missing} of {total} were not handled {seconds} s after the last enqueue");
    }
    let mut took: Vec<Duration> =
        times[WARM_UP..].iter().filter_map(|times| times.took.get().copied()).collect();
    took.sort_unstable();
    let at = |percent: usize| {
        let took = took[(took.len() * percent / 100).min(took.len() - 1)];
        (took.as_secs_f64() * 100_000.0).round() / 100.0
    };
    Ok(json!({ "p50_ms": at(50), "p99_ms": at(99) }))
}

/// Starts an enqueue every 5 ms, without waiting for earlier ones.
async fn paced<P: Peer>(peer: &Arc<P>, times: &Arc<[Times]>, numbers: std::ops::Range<usize>) -> Result<()> {
    let mut pace = tokio::time::interval(INTERVAL);
    let mut calls = JoinSet::new();
    for n in numbers {
        pace.tick().await;
        let (peer, times) = (Arc::clone(peer), Arc::clone(times));
        calls.spawn(async move {
            let _ = times[n].called.set(Instant::now());
            peer.enqueue(n).await
        });
    }
    while let Some(call) = calls.join_next().await {
        call??;
    }
    Ok(())
}

/// Returns true if `count` messages were handled before the deadline.
async fn all(count: usize, handled: &AtomicUsize, worker: &JoinHandle<Result<()>>) -> Result<bool> {
    let end = Instant::now() + LATENCY_DEADLINE;
    let mut poll = tokio::time::interval(Duration::from_millis(2));
    while handled.load(Ordering::Relaxed) < count {
        poll.tick().await;
        alive(worker)?;
        if Instant::now() > end {
            return Ok(false);
        }
    }
    Ok(true)
}
