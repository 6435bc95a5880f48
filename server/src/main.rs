//! `oncebox`: a durable inbox on the command line.

mod demo;
mod operate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A durable inbox for message consumers: what is delivered twice happens once.
#[derive(Debug, Parser)]
#[command(name = "oncebox", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows an inbox survive duplicates, failing handlers and killed workers.
    ///
    /// Offers messages, delivers each several times to several worker processes, makes handlers fail and panic, kills
    /// workers half-way, and then counts in the business table what really happened. Exits with 1 if anything was
    /// lost or doubled.
    #[command(after_help = "Example:\n  oncebox demo --messages 5000 --duplicates 3 --workers 4 --seed 7")]
    Demo(demo::Args),
    /// One worker of the demo; started by it.
    #[command(hide = true)]
    DemoWorker(demo::WorkerArgs),
    #[command(flatten)]
    Operate(operate::Command),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(args) => demo::run(&args),
        Command::DemoWorker(args) => demo::work(&args).map(|()| ExitCode::SUCCESS),
        Command::Operate(command) => Ok(operate::run(&command)),
    };
    result.unwrap_or_else(|error| {
        eprintln!("oncebox: {error:#}");
        ExitCode::from(2)
    })
}
