//! The demo: a broker that repeats deliveries, workers that die, and a business table that shows the effects. Tests: `tests/demo.rs`.

mod broker;
mod driver;
mod report;
mod shop;
mod worker;

use std::path::PathBuf;

pub(crate) use driver::run;
pub(crate) use worker::work;

/// Arguments of `oncebox demo`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of different messages, 1 to 1,000,000
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) messages: u32,
    /// Duplicate deliveries per message, 0 to 100
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) duplicates: u32,
    /// Number of worker processes, 1 to 32
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) workers: u32,
    /// Seed of the faults [default: random]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Keep the SQLite file in this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
}

/// Arguments of a worker process.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WorkerArgs {
    #[arg(long)]
    pub(crate) dir: PathBuf,
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) number: u32,
}
