//! The command line.

mod config;
pub(crate) mod log;
mod migrate;
mod operate;
mod serve;
mod token;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::Invalid;
use crate::demo;

/// A durable inbox for message consumers: what is delivered twice happens once.
#[derive(Debug, Parser)]
#[command(
    name = "oncebox",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Start here:\n  oncebox serve --to http://127.0.0.1:9000/hook\n\nExit codes: 0 done or stopped as asked, 1 a check \
                  found something wrong, 2 wrong command line or configuration, 3 could not start, 4 stopped by a failure, 5 not found or refused"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Takes messages in, stores each once, and delivers it to HTTP endpoints: the sidecar for any language.
    ///
    /// Without a configuration it starts at once: a SQLite file in this directory, an endpoint on this machine, and with
    /// `--to` one handler for everything. With an `oncebox.toml` it does what that says.
    #[command(after_help = serve::EXAMPLES)]
    Serve(serve::Args),
    /// Checks a configuration, shows an example, or prints its schema.
    #[command(after_help = "Examples:\n  oncebox config example > oncebox.toml\n  oncebox config check")]
    Config(config::Args),
    /// Makes the tables of the stores, or prints the SQL that does.
    #[command(
        after_help = "Examples:\n  oncebox migrate\n  oncebox migrate --print | psql \"$DATABASE_URL\""
    )]
    Migrate(migrate::Args),
    /// Makes a token for the API of operators, and the lines of the configuration that let it in.
    #[command(after_help = "Examples:\n  oncebox token ada --role operator --role payload-reader\n  \
                            oncebox token prometheus >> oncebox.toml")]
    Token(token::Args),
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
    Operate(Box<operate::Command>),
}

/// How the program ended. The numbers are part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// Something outside is missing: a database, an address.
    Start = 3,
    /// It ran, and could not go on.
    Failure = 4,
}

/// An error with its exit code.
#[derive(Debug)]
pub(crate) struct Failed {
    exit: Exit,
    error: anyhow::Error,
}

impl Exit {
    /// An error that ends the program with this code.
    pub(crate) fn with(self, error: impl Into<anyhow::Error>) -> Failed {
        Failed { exit: self, error: error.into() }
    }
}

impl From<anyhow::Error> for Failed {
    fn from(error: anyhow::Error) -> Self {
        Exit::Usage.with(error)
    }
}

impl From<Invalid> for Failed {
    fn from(error: Invalid) -> Self {
        Exit::Usage.with(error)
    }
}

pub(crate) fn run() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(args) => serve::run(args),
        Command::Config(args) => config::run(&args),
        Command::Migrate(args) => migrate::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Demo(args) => demo::run(&args).map_err(Into::into),
        Command::DemoWorker(args) => demo::work(&args).map(|()| ExitCode::SUCCESS).map_err(Into::into),
        Command::Operate(command) => Ok(operate::run(&command)),
    };
    result.unwrap_or_else(|Failed { exit, error }| {
        eprintln!("oncebox: {error:#}");
        ExitCode::from(exit as u8)
    })
}
