//! The rows and their measurement.

use std::time::Duration;

use anyhow::Result;
use oncebox_postgres::Postgres;
use oncebox_postgres::sqlx::{self, Connection as _, Executor as _, PgConnection};
use serde::Serialize;

use crate::PostgresBench;
use crate::limit::Limit;
use crate::ours::{Mode, Ours};
use crate::recovery;

/// Backlog of the row for order, and its ordering keys.
const ORDERED: usize = 100_000;
const ORDERING_KEYS: usize = 10_000;

/// Messages during warm-up, while connections open and statements are planned: their times do not count, as with the
/// peers.
pub(crate) const WARM_UP: usize = 100;

/// One row of the result.
#[derive(Debug, Serialize)]
struct PostgresRow {
    #[serde(rename = "row")]
    name: &'static str,
    ours: f64,
    limit: f64,
    ratio: f64,
    unit: &'static str,
}

/// Size of a measurement.
struct Size {
    rounds: usize,
    accepts: usize,
    singles: usize,
    backlog: usize,
    transactions: usize,
    finished: usize,
    sustain: Duration,
    latencies: usize,
}

impl Size {
    fn new(quick: bool) -> Self {
        let full = Self {
            rounds: 3,
            accepts: 200_000,
            singles: 10_000,
            backlog: 200_000,
            transactions: 50_000,
            finished: 5_000_000,
            sustain: Duration::from_mins(1),
            latencies: 2_000,
        };
        if !quick {
            return full;
        }
        Self {
            rounds: 1,
            accepts: 100_000,
            singles: 4_000,
            backlog: 100_000,
            transactions: 20_000,
            finished: 500_000,
            sustain: Duration::from_secs(30),
            latencies: 1_000,
        }
    }
}

/// Runs all rows: ours and the limit take turns, so that a slow period of the disk affects both.
pub(crate) async fn measure(bench: &PostgresBench) -> Result<()> {
    let size = Size::new(bench.args.quick);
    if !bench.args.json {
        println!("{:<20} {:>10} {:>10} {:>6}", "row", "ours", "limit", "ratio");
    }
    if is_next(bench, "accept-256").await? {
        accept(bench, &size).await?;
    }
    if is_next(bench, "accept-1").await? {
        accept_one(bench, &size).await?;
    }
    if is_next(bench, "drain-plain").await? {
        drain(bench, &size).await?;
    }
    for (row, mode) in [("drain-tx-single", Mode::Own), ("drain-tx-batched", Mode::Shared)] {
        if is_next(bench, row).await? {
            drain_in_transactions(bench, &size, row, mode).await?;
        }
    }
    if is_next(bench, "ordered-10k").await? {
        ordered(bench, &size).await?;
    }
    if is_next(bench, "growth-5m").await? {
        growth(bench, &size).await?;
    }
    if is_next(bench, "pinned-horizon").await? {
        pinned_horizon(bench, &size).await?;
    }
    if is_next(bench, "retention").await? {
        retention(bench, &size).await?;
    }
    if is_next(bench, "sustained").await? {
        sustained(bench, &size).await?;
    }
    if is_next(bench, "latency-200").await? {
        latency(bench, &size).await?;
    }
    if is_next(bench, "recovery").await? {
        recover(bench).await?;
    }
    Ok(())
}

/// Returns true if a row is selected, after a checkpoint of earlier rows.
async fn is_next(bench: &PostgresBench, row: &str) -> Result<bool> {
    if bench.args.only.as_deref().is_some_and(|only| !row.starts_with(only)) {
        return Ok(false);
    }
    write_out(bench).await?;
    Ok(true)
}

pub(crate) async fn write_out(bench: &PostgresBench) -> Result<()> {
    PgConnection::connect(&bench.url).await?.execute(sqlx::raw_sql("CHECKPOINT")).await?;
    Ok(())
}

/// Maximum delay of a message after its process was killed and restarted: a lease, and time to rescue it.
const RECOVERY: Duration = Duration::from_secs(35);

/// Opens the store of the killed worker, with default settings.
pub(crate) async fn recovery_store(url: &str) -> Result<Postgres> {
    Ok(Postgres::options(url)?.schema("bench_recovery").open().await?)
}

/// Measures once: each run waits for a lease.
async fn recover(bench: &PostgresBench) -> Result<()> {
    let mut connection = PgConnection::connect(&bench.url).await?;
    connection.execute(sqlx::raw_sql("DROP SCHEMA IF EXISTS bench_recovery CASCADE")).await?;
    let store = recovery_store(&bench.url).await?;
    recovery::measure(store, &bench.url, RECOVERY, bench.args.json).await
}

async fn accept(bench: &PostgresBench, size: &Size) -> Result<()> {
    let mut rates = Rates::default();
    for _ in 0..size.rounds {
        let ours = Ours::fresh(&bench.url, "bench_ours", Mode::Plain).await?;
        rates.ours.push(ours.accept(0, size.accepts, 256).await?);
        rates.limit.push(Limit::fresh(&bench.url).await?.accept(size.accepts).await?);
    }
    rates.show(bench, "accept-256")
}

async fn accept_one(bench: &PostgresBench, size: &Size) -> Result<()> {
    let mut rates = Rates::default();
    for _ in 0..size.rounds {
        let ours = Ours::fresh(&bench.url, "bench_ours", Mode::Plain).await?;
        rates.ours.push(ours.accept(0, size.singles, 1).await?);
        rates.limit.push(Limit::fresh(&bench.url).await?.accept_one_by_one(size.singles).await?);
    }
    rates.show(bench, "accept-1")
}

async fn drain(bench: &PostgresBench, size: &Size) -> Result<()> {
    let mut rates = Rates::default();
    for _ in 0..size.rounds {
        let ours = Ours::fresh(&bench.url, "bench_ours", Mode::Plain).await?;
        ours.load(0, size.backlog).await?;
        rates.ours.push(ours.drain(size.backlog).await?);
        // Use the better of one and two connections.
        let mut best = 0.0_f64;
        for workers in [1, 2] {
            let limit = Limit::fresh(&bench.url).await?;
            limit.accept(size.backlog).await?;
            best = best.max(limit.drain(size.backlog, workers).await?);
        }
        rates.limit.push(best);
    }
    rates.show(bench, "drain-plain")
}

async fn drain_in_transactions(
    bench: &PostgresBench,
    size: &Size,
    row: &'static str,
    mode: Mode,
) -> Result<()> {
    let mut rates = Rates::default();
    for _ in 0..size.rounds {
        let ours = Ours::fresh(&bench.url, "bench_ours", mode).await?;
        ours.load(0, size.transactions).await?;
        rates.ours.push(ours.drain(size.transactions).await?);
        let limit = Limit::fresh(&bench.url).await?;
        limit.accept(size.transactions).await?;
        rates.limit.push(match mode {
            Mode::Shared => limit.drain_in_shared_transactions(size.transactions, 2).await?,
            Mode::Own | Mode::Plain => limit.drain_in_own_transactions(size.transactions, 16).await?,
        });
    }
    rates.show(bench, row)
}

/// Measures a backlog over ten thousand ordering keys; the limit is our own speed with the same backlog and no order.
async fn ordered(bench: &PostgresBench, size: &Size) -> Result<()> {
    let mut rates = Rates::default();
    for _ in 0..size.rounds {
        let ours = Ours::fresh(&bench.url, "bench_ours", Mode::Plain).await?;
        ours.load_ordered(ORDERED, ORDERING_KEYS).await?;
        rates.ours.push(ours.drain(ORDERED).await?);
        let ours = Ours::fresh(&bench.url, "bench_ours", Mode::Plain).await?;
        ours.load(0, ORDERED).await?;
        rates.limit.push(ours.drain(ORDERED).await?);
    }
    rates.show(bench, "ordered-10k")
}

/// Measures with many finished messages and with none; the limit is our own speed with none.
async fn growth(bench: &PostgresBench, size: &Size) -> Result<()> {
    let big = Ours::fresh(&bench.url, "bench_big", Mode::Plain).await?;
    // Register the names before rows refer to them.
    big.load(0, 1_000).await?;
    big.drain(1_000).await?;
    big.fill(size.finished).await?;
    let (mut accepts, mut drains) = (Rates::default(), Rates::default());
    for round in 0..size.rounds {
        let small = Ours::fresh(&bench.url, "bench_ours", Mode::Plain).await?;
        accepts.ours.push(big.accept(1_000 + round * size.backlog, size.backlog, 256).await?);
        accepts.limit.push(small.accept(0, size.backlog, 256).await?);
        drains.ours.push(big.drain(size.backlog).await?);
        drains.limit.push(small.drain(size.backlog).await?);
    }
    accepts.show(bench, "growth-5m-accept")?;
    drains.show(bench, "growth-5m-drain")?;
    drop(big);
    let mut connection = PgConnection::connect(&bench.url).await?;
    connection.execute(sqlx::raw_sql("DROP SCHEMA bench_big CASCADE")).await?;
    Ok(())
}

/// Measures while another session holds an old snapshot, so that no dead row can be removed, and without one.
async fn pinned_horizon(bench: &PostgresBench, size: &Size) -> Result<()> {
    let mut rates = Rates::default();
    for _ in 0..size.rounds {
        for pinned in [true, false] {
            let ours = Ours::fresh(&bench.url, "bench_ours", Mode::Plain).await?;
            let mut other = PgConnection::connect(&bench.url).await?;
            if pinned {
                other
                    .execute(sqlx::raw_sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current()"))
                    .await?;
            }
            ours.load(0, size.backlog).await?;
            let rate = ours.drain(size.backlog).await?;
            if pinned {
                rates.ours.push(rate);
            } else {
                rates.limit.push(rate);
            }
            other.close().await?;
        }
    }
    rates.show(bench, "pinned-horizon")
}

/// Measures accept during a sweep of as many old messages, and without one. A shared machine may change within the
/// seconds of a round. So there are more rounds than elsewhere, and the median pair counts.
async fn retention(bench: &PostgresBench, size: &Size) -> Result<()> {
    let rounds = size.rounds * 2 + 1;
    let ours = Ours::fresh(&bench.url, "bench_ours", Mode::Plain).await?;
    ours.load(0, 1_000).await?;
    ours.drain(1_000).await?;
    ours.fill(size.accepts * rounds).await?;
    let mut pairs = Vec::new();
    // One sweep over all rounds: an active sweep excludes others.
    let mut sweeper = ours.sweeper();
    for round in 0..rounds {
        let first = 1_000 + round * 2 * size.accepts;
        let alone = ours.accept(first, size.accepts, 256).await?;
        let (accepted, swept) = tokio::join!(
            ours.accept(first + size.accepts, size.accepts, 256),
            ours.sweep(&mut sweeper, size.accepts)
        );
        swept?;
        pairs.push(Rates { ours: vec![accepted?], limit: vec![alone] });
    }
    Rates::middle(pairs).show(bench, "retention")
}

/// Measures accept and processing together: the last sixth of the time against the first. Shared machines change their
/// speed by a third within a minute. So a last sixth is compared with the first of the next run, and the median pair
/// counts.
async fn sustained(bench: &PostgresBench, size: &Size) -> Result<()> {
    let window = size.sustain / 6;
    let (mut pairs, mut last) = (Vec::new(), None);
    for round in 0..=size.rounds {
        let ours = Ours::fresh(&bench.url, "bench_ours", Mode::Plain).await?;
        write_out(bench).await?;
        let time = if round < size.rounds { size.sustain } else { window };
        let windows = ours.sustain(time, window, 256).await?;
        eprintln!("sustained: {windows:.0?} messages a second");
        pairs.extend(last.map(|last| Rates { ours: vec![last], limit: vec![windows[0]] }));
        last = windows.last().copied();
    }
    Rates::middle(pairs).show(bench, "sustained")
}

/// Measures from accept to the start of the handler: the median and the 99th percentile.
async fn latency(bench: &PostgresBench, size: &Size) -> Result<()> {
    let mut parts = [("latency-200-p50", 50, Rates::default()), ("latency-200-p99", 99, Rates::default())];
    for _ in 0..size.rounds {
        let count = size.latencies + WARM_UP;
        let ours = Ours::fresh(&bench.url, "bench_ours", Mode::Plain).await?.latencies(count).await?;
        let limit = Limit::fresh(&bench.url).await?.latencies(count).await?;
        for (_, part, rates) in &mut parts {
            rates.ours.push(percentile(&ours, *part));
            rates.limit.push(percentile(&limit, *part));
        }
    }
    for (name, _, rates) in parts {
        let (ours, limit) = (median(rates.ours), median(rates.limit));
        // Less is better: a ratio of 1 equals the hand-written loop, as everywhere.
        let row = PostgresRow {
            name,
            ours: round(ours),
            limit: round(limit),
            ratio: round(limit / ours),
            unit: "ms",
        };
        print(bench, &row)?;
    }
    Ok(())
}

/// Returns a percentile in milliseconds, without the first half second.
pub(crate) fn percentile(times: &[Duration], part: usize) -> f64 {
    let mut times = times[WARM_UP..].to_vec();
    times.sort_unstable();
    times[(times.len() - 1) * part / 100].as_secs_f64() * 1_000.0
}

#[derive(Default)]
struct Rates {
    ours: Vec<f64>,
    limit: Vec<f64>,
}

impl Rates {
    /// Returns the pair with the median ratio, of pairs that ran back to back.
    fn middle(mut pairs: Vec<Self>) -> Self {
        let ratio = |pair: &Self| pair.ours[0] / pair.limit[0];
        pairs.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
        let ratios: Vec<f64> = pairs.iter().map(ratio).collect();
        eprintln!("ratios of the pairs: {ratios:.2?}");
        pairs.swap_remove(pairs.len() / 2)
    }

    fn show(self, bench: &PostgresBench, row: &'static str) -> Result<()> {
        let (ours, limit) = (median(self.ours), median(self.limit));
        print(
            bench,
            &PostgresRow {
                name: row,
                ours: ours.round(),
                limit: limit.round(),
                ratio: round(ours / limit),
                unit: "msg/s",
            },
        )
    }
}

fn print(bench: &PostgresBench, row: &PostgresRow) -> Result<()> {
    if bench.args.json {
        println!("{}", serde_json::to_string(row)?);
    } else {
        println!("{:<20} {:>10} {:>10} {:>6.2} {}", row.name, row.ours, row.limit, row.ratio, row.unit);
    }
    Ok(())
}

pub(crate) fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

pub(crate) fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
