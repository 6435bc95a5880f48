//! Throughput of the inbox, compared in one run with a hand-written loop on the same machine and disk.
//!
//! Each row is one JSON object on one line: `{"row":…,"ours":…,"limit":…,"ratio":…}`, in messages per second.

mod limit;
mod ours;
mod recovery;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};
use oncebox_sqlite::Sqlite;
use serde::Serialize;

/// Measure accept and processing on SQLite with full synchronisation
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  cargo xtask bench --messages 100000 --finished 0 --json")]
struct Args {
    /// Messages per measurement
    #[arg(long, default_value_t = 200_000)]
    messages: usize,
    /// Finished messages for the growth rows; 0 skips those rows
    #[arg(long, default_value_t = 2_000_000)]
    finished: usize,
    /// Concurrent callers of accept
    #[arg(long, default_value_t = 256)]
    callers: usize,
    /// Measurements per row; the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Measure only these rows (repeatable)
    #[arg(long, value_enum)]
    only: Vec<Part>,
    /// Print JSON lines instead of a table
    #[arg(long)]
    json: bool,
    /// Directory of the files, on the disk to measure (default: the system's)
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// Rows that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Compare accept and processing with hand-written loops
    Limit,
    /// Compare a backlog over many ordering keys with one without order
    Ordered,
    /// Compare a file with many finished messages with a small one
    Growth,
    /// Measure from the kill of a process to the next delivery of its messages
    Recovery,
}

impl Args {
    fn measures(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

/// Ordering keys of the backlog in the row for order.
const ORDERING_KEYS: usize = 10_000;

/// One row of the result, in messages per second.
#[derive(Debug, Serialize)]
struct SqliteRow {
    #[serde(rename = "row")]
    name: String,
    ours: u64,
    limit: u64,
    ratio: f64,
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if let Some((role, path)) = recovery::role() {
        return runtime.block_on(recovery::work(Sqlite::open(path)?, &role));
    }
    let args = Args::parse();
    if !args.json {
        println!("{:<58} {:>10} {:>10} {:>6}", "row (messages a second)", "ours", "limit", "ratio");
    }
    if args.measures(Part::Limit) {
        runtime.block_on(compare_with_limit(&args))?;
    }
    if args.measures(Part::Ordered) {
        runtime.block_on(ordered(&args))?;
    }
    if args.measures(Part::Growth) && args.finished > 0 {
        runtime.block_on(growth(&args))?;
    }
    if args.measures(Part::Recovery) {
        runtime.block_on(recover(&args))?;
    }
    Ok(())
}

async fn compare_with_limit(args: &Args) -> Result<()> {
    let n = args.messages;
    let (mut accepts, mut processes) = (Vec::new(), Vec::new());
    let (mut plain, mut bare, mut claims) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        // Ours and the limits take turns, so that a slow period of the disk affects all.
        let dir = fresh(args)?;
        let file = ours::InboxFile::open(dir.path())?;
        accepts.push(file.accept(0, n, args.callers).await?);
        processes.push(file.process(n).await?);
        drop((file, dir));
        let dir = fresh(args)?;
        let mut file = limit::HandWrittenFile::open(dir.path(), true)?;
        plain.push(file.insert(n)?);
        claims.push(file.claim_and_delete(n)?);
        drop((file, dir));
        let dir = fresh(args)?;
        bare.push(limit::HandWrittenFile::open(dir.path(), false)?.insert(n)?);
    }
    let (callers, accept, process) = (args.callers, median(accepts), median(processes));
    show(args, format!("accept, {callers} callers | loop, 500 a transaction"), accept, median(plain))?;
    show(args, format!("accept, {callers} callers | the loop without dedupe"), accept, median(bare))?;
    show(args, "process, no-op handler | batched claim and delete".into(), process, median(claims))
}

/// Maximum delay of a message after its process was killed and restarted.
const RECOVERY: Duration = Duration::from_secs(2);

async fn recover(args: &Args) -> Result<()> {
    for _ in 0..args.rounds {
        let dir = fresh(args)?;
        let path = dir.path().join("recovery.db");
        let place = path.to_str().context("the path of the file is no text")?;
        recovery::measure(Sqlite::open(&path)?, place, RECOVERY, args.json).await?;
    }
    Ok(())
}

/// Measures a backlog over many ordering keys; the limit is our own speed with the same backlog and no order.
async fn ordered(args: &Args) -> Result<()> {
    let n = args.messages;
    let (mut ordered, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        for (keys, rates) in [(Some(ORDERING_KEYS), &mut ordered), (None, &mut plain)] {
            let dir = fresh(args)?;
            let file = ours::InboxFile::open(dir.path())?;
            file.load(n, keys).await?;
            rates.push(file.process(n).await?);
        }
    }
    let row = format!("process, over {ORDERING_KEYS} ordering keys | without order");
    show(args, row, median(ordered), median(plain))
}

/// Measures in a file with many finished messages, alternating with a small file: the limit is our own speed there.
async fn growth(args: &Args) -> Result<()> {
    let n = args.messages;
    let dir = fresh(args)?;
    let big = ours::InboxFile::open(dir.path())?;
    big.fill(args.finished).await?;
    let mut rates: [Vec<f64>; 4] = Default::default();
    for round in 0..args.rounds {
        let dir = fresh(args)?;
        let small = ours::InboxFile::open(dir.path())?;
        rates[0].push(big.accept(args.finished + round * n, n, args.callers).await?);
        rates[1].push(small.accept(0, n, args.callers).await?);
        rates[2].push(big.process(n).await?);
        rates[3].push(small.process(n).await?);
    }
    let finished = args.finished;
    let [accept, accept_small, process, process_small] = rates.map(median);
    show(args, format!("accept, {finished} finished | a small file"), accept, accept_small)?;
    show(args, format!("process, {finished} finished | a small file"), process, process_small)
}

fn show(args: &Args, row: String, ours: f64, limit: f64) -> Result<()> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are positive and far below 2^64"
    )]
    let row = SqliteRow {
        name: row,
        ours: ours as u64,
        limit: limit as u64,
        ratio: (ours / limit * 100.0).round() / 100.0,
    };
    if args.json {
        println!("{}", serde_json::to_string(&row)?);
    } else {
        println!("{:<58} {:>10} {:>10} {:>6.2}", row.name, row.ours, row.limit, row.ratio);
    }
    Ok(())
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn fresh(args: &Args) -> Result<tempfile::TempDir> {
    let dir = args.dir.as_deref().map_or_else(std::env::temp_dir, Path::to_owned);
    Ok(tempfile::Builder::new().prefix("oncebox-bench-").tempdir_in(dir)?)
}

/// Returns messages per second.
fn rate(messages: usize, start: std::time::Instant) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let messages = messages as f64;
    messages / start.elapsed().as_secs_f64()
}

/// The payload of every message: 256 bytes of JSON.
fn payload() -> String {
    format!(r#"{{"order":7,"note":"{}"}}"#, "x".repeat(235))
}
