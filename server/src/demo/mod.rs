//! The demo: a broker that delivers too often, workers that die, and a table that shows what really happened.

mod broker;
mod driver;
mod report;
mod shop;
mod worker;

use std::path::PathBuf;

pub(crate) use driver::run;
pub(crate) use worker::work;

/// What the demo does.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// How many different messages are offered: 1 to 1,000,000.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) messages: u32,
    /// How often each is delivered beyond the first time: 0 to 100.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) duplicates: u32,
    /// How many worker processes share the file: 1 to 32.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub(crate) workers: u32,
    /// Chooses what fails, what dies and when; by default another one each time.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Ends with one JSON object on one line instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Keeps the SQLite file in this directory, which must not hold one yet.
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
}

/// What a worker is told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WorkerArgs {
    #[arg(long)]
    pub(crate) dir: PathBuf,
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) number: u32,
}
