//! Messages over HTTP: how fast they come in beside direct calls of the same inbox, and whether good clients are served
//! while others do their worst.
//!
//! The server runs in a process of its own, so that its memory and its processor time can be told from the clients'.

mod client;
mod load;
mod process;
mod rows;
mod serve;

use anyhow::Result;
use clap::Parser;
use oncebox_servers::{Cluster, PostgresVersion};

/// Measures messages over HTTP into PostgreSQL beside direct calls, or loads a server with good and bad clients.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  cargo xtask bench http --quick --json\n  cargo xtask bench http --load")]
pub(crate) struct Args {
    /// The PostgreSQL to measure. Default: one of its own, with fsync on, which is gone afterwards.
    #[arg(long)]
    url: Option<String>,
    /// Fewer messages, once instead of three times.
    #[arg(long)]
    quick: bool,
    /// Prints one JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
    /// Connections that send one message after the other, and as many callers beside them.
    #[arg(long, default_value_t = 256)]
    connections: usize,
    /// Instead of measuring: many clients at once, slow, broken and malicious ones among them. Fails if a good one is not
    /// answered or the server takes too much memory.
    #[arg(long)]
    load: bool,
    /// Clients of the load.
    #[arg(long, default_value_t = 2_000)]
    clients: usize,
    /// Seconds of the load.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The most memory the server may take under the load, in MiB.
    #[arg(long, default_value_t = 256)]
    ceiling: u64,
    /// Is the server: for the processes that this program starts.
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
