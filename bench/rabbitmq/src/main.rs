//! From RabbitMQ to PostgreSQL, compared in one run with each half of the path alone: consuming and acknowledging the
//! same queue with the same client, and accepting the same messages directly.
//!
//! Each row is one JSON object on one line: `{"row":…,"ours":…,"consume":…,"accept":…,"ratio":…,"unit":"msg/s"}`. The
//! ratio compares with the lower of the two halves.

mod halves;
mod queue;
mod whole;

use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::Parser;
use oncebox_servers::{Cluster, PostgresVersion, RabbitMqServer};
use serde::Serialize;

/// Measure durable accept from a persistent quorum queue
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  cargo xtask bench rabbitmq --quick --json")]
struct Args {
    /// Send fewer messages, once instead of three times
    #[arg(long)]
    quick: bool,
    /// Print JSON lines instead of a table
    #[arg(long)]
    json: bool,
    /// Unacknowledged deliveries, and callers of the accept half
    #[arg(long, default_value_t = 4_096)]
    prefetch: u16,
}

/// One row of the result.
#[derive(Debug, Serialize)]
struct RabbitMqRow {
    #[serde(rename = "row")]
    name: &'static str,
    ours: f64,
    consume: f64,
    accept: f64,
    ratio: f64,
    unit: &'static str,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let broker = RabbitMqServer::start()?;
    let cluster = Cluster::builder(PostgresVersion::Debian)
        .durable(true)
        .set("shared_buffers", "256MB")
        .set("max_wal_size", "4GB")
        .start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(&args, &broker.url(), &cluster.url("postgres")))
}

/// The three take turns, so that a slow period of the disk affects all.
async fn measure(args: &Args, amqp: &str, postgres: &str) -> Result<()> {
    let (rounds, messages) = if args.quick { (1, 20_000) } else { (3, 100_000) };
    let (mut ours, mut consume, mut accept) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        consume.push(halves::consume(amqp, messages, args.prefetch).await.context("consuming alone")?);
        accept.push(halves::accept(postgres, messages, args.prefetch).await.context("accepting alone")?);
        ours.push(whole::receive(amqp, postgres, messages, args.prefetch).await.context("the whole way")?);
    }
    let (ours, consume, accept) = (median(ours), median(consume), median(accept));
    let row = RabbitMqRow {
        name: "quorum-to-postgres",
        ours: ours.round(),
        consume: consume.round(),
        accept: accept.round(),
        ratio: (ours / consume.min(accept) * 100.0).round() / 100.0,
        unit: "msg/s",
    };
    if args.json {
        println!("{}", serde_json::to_string(&row)?);
    } else {
        println!("{:<20} {:>10} {:>10} {:>10} {:>6}", "row", "ours", "consume", "accept", "ratio");
        let RabbitMqRow { name, ours, consume, accept, ratio, .. } = row;
        println!("{name:<20} {ours:>10.0} {consume:>10.0} {accept:>10.0} {ratio:>6.2}");
    }
    Ok(())
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or_default()
}

/// Returns messages per second.
fn rate(messages: usize, start: Instant) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let messages = messages as f64;
    messages / start.elapsed().as_secs_f64()
}

/// The payload of every message: 256 bytes of JSON.
fn payload() -> String {
    format!(r#"{{"order":7,"note":"{}"}}"#, "x".repeat(235))
}

/// The id of a message.
fn id(number: usize) -> String {
    format!("0192f7a0-0000-7000-8000-{number:012}")
}
