//! Throughput of the inbox, in one run beside what a hand-written loop reaches on the same machine and disk.
//!
//! Each row is one JSON object on one line: `{"row":…,"ours":…,"limit":…,"ratio":…}`, in messages a second.

mod limit;
mod ours;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Parser;
use serde::Serialize;

/// Measures accepting and processing on SQLite with full synchronisation, beside hand-written loops.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  cargo xtask bench --messages 100000 --finished 0 --json")]
struct Args {
    /// Messages in each measurement.
    #[arg(long, default_value_t = 200_000)]
    messages: usize,
    /// Finished messages in the file for the rows that show growth; 0 leaves those rows out.
    #[arg(long, default_value_t = 2_000_000)]
    finished: usize,
    /// Concurrent callers of accept.
    #[arg(long, default_value_t = 256)]
    callers: usize,
    /// How often each row is measured; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Prints one JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
    /// Where the files go: the disk that is measured. Default: the system's directory for temporary files.
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// What one row shows, in messages a second.
#[derive(Debug, Serialize)]
struct Row {
    row: String,
    ours: u64,
    limit: u64,
    ratio: f64,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if !args.json {
        println!("{:<58} {:>10} {:>10} {:>6}", "row (messages a second)", "ours", "limit", "ratio");
    }
    let small = runtime.block_on(beside_the_limit(&args))?;
    if args.finished > 0 {
        runtime.block_on(growth(&args, &small))?;
    }
    Ok(())
}

/// What was measured on a small file.
struct Small {
    accept: f64,
    process: f64,
}

async fn beside_the_limit(args: &Args) -> Result<Small> {
    let n = args.messages;
    let (mut accepts, mut processes) = (Vec::new(), Vec::new());
    let (mut plain, mut bare, mut claims) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        // Ours and the limits take turns, so that a disk that is slower for a while is slower for all.
        let dir = fresh(args)?;
        let file = ours::File::open(dir.path())?;
        accepts.push(file.accept(0, n, args.callers).await?);
        processes.push(file.process(n).await?);
        drop((file, dir));
        let dir = fresh(args)?;
        let mut file = limit::File::open(dir.path(), true)?;
        plain.push(file.insert(n)?);
        claims.push(file.claim_and_delete(n)?);
        drop((file, dir));
        let dir = fresh(args)?;
        bare.push(limit::File::open(dir.path(), false)?.insert(n)?);
    }
    let small = Small { accept: median(accepts), process: median(processes) };
    let callers = args.callers;
    show(args, format!("accept, {callers} callers | loop, 500 a transaction"), small.accept, median(plain))?;
    show(args, format!("accept, {callers} callers | the loop without dedupe"), small.accept, median(bare))?;
    show(args, "process, no-op handler | batched claim and delete".into(), small.process, median(claims))?;
    Ok(small)
}

/// The same again in a file with many finished messages; the limit is our own speed in a small file.
async fn growth(args: &Args, small: &Small) -> Result<()> {
    let n = args.messages;
    let dir = fresh(args)?;
    let file = ours::File::open(dir.path())?;
    file.fill(args.finished).await?;
    let (mut accepts, mut processes) = (Vec::new(), Vec::new());
    for round in 0..args.rounds {
        accepts.push(file.accept(args.finished + round * n, n, args.callers).await?);
        processes.push(file.process(n).await?);
    }
    let finished = args.finished;
    show(args, format!("accept, {finished} finished | a small file"), median(accepts), small.accept)?;
    show(args, format!("process, {finished} finished | a small file"), median(processes), small.process)
}

fn show(args: &Args, row: String, ours: f64, limit: f64) -> Result<()> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are positive and far below 2^64"
    )]
    let row =
        Row { row, ours: ours as u64, limit: limit as u64, ratio: (ours / limit * 100.0).round() / 100.0 };
    if args.json {
        println!("{}", serde_json::to_string(&row)?);
    } else {
        println!("{:<58} {:>10} {:>10} {:>6.2}", row.row, row.ours, row.limit, row.ratio);
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

/// Messages a second.
fn rate(messages: usize, start: std::time::Instant) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let messages = messages as f64;
    messages / start.elapsed().as_secs_f64()
}

/// The payload of every message: 256 bytes of JSON.
fn payload() -> String {
    format!(r#"{{"order":7,"note":"{}"}}"#, "x".repeat(235))
}
