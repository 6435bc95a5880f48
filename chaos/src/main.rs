//! The rig that kills, stops and cuts, and the checker of its ledgers. `cargo xtask chaos --help` is the way in.

mod bugs;
mod checker;
mod commit;
mod driver;
mod ledger;
mod plan;
mod reliability;
mod sabotage;
mod seam;
mod worker;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Real processes and real servers, killed and cut, and a checker that shares no code with the product
#[derive(Debug, Parser)]
#[command(name = "oncebox-chaos")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run rounds of faults and check each; exits with 1 on any violation
    Run(driver::RunOptions),
    /// Turn each planted bug on; exits with 1 if the checker misses one. Needs a build with them
    Sabotage(sabotage::Args),
    /// Write RELIABILITY.md from the records
    Reliability(reliability::Args),
    /// One worker; started by the driver
    #[command(hide = true)]
    Worker {
        /// Its job, as JSON
        job: String,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(options) => driver::run(&options),
        Command::Sabotage(args) => sabotage::run(&args),
        Command::Reliability(args) => reliability::run(&args),
        Command::Worker { job } => worker::work(&job).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        eprintln!("chaos: {error:#}");
        ExitCode::from(2)
    })
}
