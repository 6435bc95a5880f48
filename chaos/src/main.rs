//! The fault injection rig and the checker of its ledgers. `cargo xtask chaos --help` describes it. Tests:
//! tests/short.rs.

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

/// Inject faults into real processes and servers, and check the result
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
    /// Plant each bug, and expect the checker to find it (needs a build with bugs)
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
