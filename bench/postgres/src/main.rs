//! Throughput and latency of the inbox on PostgreSQL, each compared with a hand-written loop on the same server in one
//! run.
//!
//! Each row is one JSON object on one line: `{"row":…,"ours":…,"limit":…,"ratio":…,"unit":"msg/s"}`.

mod limit;
mod ours;
mod peers;
#[path = "../../src/recovery.rs"]
mod recovery;
mod rows;

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use oncebox_postgres::sqlx::{self, Connection as _, Executor as _, PgConnection};
use oncebox_servers::{Cluster, PostgresVersion};

/// Measure accept, processing and latency on PostgreSQL
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  cargo xtask bench postgres --quick --json")]
pub(crate) struct Args {
    /// URL of the server to measure (default: a temporary one, with fsync on)
    #[arg(long)]
    url: Option<String>,
    /// Measure once with fewer messages, and 500,000 finished ones instead of 5 million
    #[arg(long)]
    quick: bool,
    /// Measure only rows with this name prefix
    #[arg(long)]
    only: Option<String>,
    /// Print JSON lines instead of a table
    #[arg(long)]
    json: bool,
    /// Measure the rows of the peers, and print them as the peers do
    #[arg(long)]
    beside_peers: bool,
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if let Some((role, url)) = recovery::role() {
        return runtime.block_on(async { recovery::work(rows::recovery_store(&url).await?, &role).await });
    }
    let args = Args::parse();
    let (url, _cluster) = if let Some(url) = &args.url {
        (url.clone(), None)
    } else {
        let cluster = server()?;
        runtime.block_on(age(&cluster.url("postgres")))?;
        (cluster.url("postgres"), Some(cluster))
    };
    let bench = PostgresBench { url, args };
    if bench.args.beside_peers {
        return runtime.block_on(peers::measure(&bench));
    }
    runtime.block_on(rows::measure(&bench))
}

/// The benchmark and its server.
pub(crate) struct PostgresBench {
    url: String,
    args: Args,
}

/// Starts a server with default durability, and enough memory.
fn server() -> Result<Cluster> {
    Cluster::builder(PostgresVersion::Debian)
        .durable(true)
        .set("shared_buffers", "512MB")
        .set("max_wal_size", "4GB")
        .set("max_connections", "200")
        .start()
}

/// Makes the server create its log files before the measurement: after an hour of operation, a server reuses them.
async fn age(url: &str) -> Result<()> {
    let mut connection = PgConnection::connect(url).await?;
    connection.execute(sqlx::raw_sql(include_str!("../sql/age.sql"))).await?;
    Ok(())
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

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
