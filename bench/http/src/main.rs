//! Messages over HTTP: their rate compared with direct calls of the same inbox, and service under malicious load.
//!
//! The server runs in its own process, so that its memory and processor time are measured alone.

mod client;
mod load;
mod process;
mod rows;
mod serve;

use anyhow::Result;
use clap::Parser;
use oncebox_servers::{Cluster, PostgresVersion};

/// Measure messages over HTTP into PostgreSQL, or put a server under load
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  cargo xtask bench http --quick --json\n  cargo xtask bench http --load")]
pub(crate) struct Args {
    /// URL of the PostgreSQL to measure (default: a temporary one, with fsync on)
    #[arg(long)]
    url: Option<String>,
    /// Send fewer messages, once instead of three times
    #[arg(long)]
    quick: bool,
    /// Print JSON lines instead of a table
    #[arg(long)]
    json: bool,
    /// Number of connections, and of direct callers
    #[arg(long, default_value_t = 256)]
    connections: usize,
    /// Test many clients at once, some malicious; fail if a good one suffers
    #[arg(long)]
    load: bool,
    /// Number of clients under load
    #[arg(long, default_value_t = 2_000)]
    clients: usize,
    /// Seconds of load
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Maximum memory of the server under load, in MiB
    #[arg(long, default_value_t = 256)]
    ceiling: u64,
    /// Run as the server process; used by this program
    #[arg(long, hide = true)]
    serve: Option<String>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if let Some(store) = &args.serve {
        return runtime.block_on(serve::run(store));
    }
    if args.load {
        return runtime.block_on(load::run(&args));
    }
    let (url, _cluster) = if let Some(url) = &args.url {
        (url.clone(), None)
    } else {
        let cluster = Cluster::builder(PostgresVersion::Debian).durable(true).set("shared_buffers", "512MB");
        let cluster = cluster.set("max_wal_size", "4GB").set("max_connections", "200").start()?;
        (cluster.url("postgres"), Some(cluster))
    };
    runtime.block_on(rows::run(&args, &url))
}
