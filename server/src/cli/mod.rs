//! The command line.

mod config;
mod generate;
pub(crate) mod log;
mod migrate;
mod operate;
pub(crate) mod out;
mod progress;
mod serve;
mod token;
#[cfg(test)]
mod tree;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use oncebox::{Error, ErrorKind};

use crate::config::Invalid;
use crate::demo;

/// What the numbers mean that the program ends with. They are part of the interface.
pub(crate) const EXITS: &str = "Exit codes: 0 done, or stopped as asked; 1 a check found something wrong; 2 the command line or the \
                                configuration is wrong; 3 it could not start: a store, a server or an address is not to be had; 4 it \
                                failed; 5 not found, refused or not allowed";

/// A durable inbox for message consumers: what is delivered twice happens once.
#[derive(Debug, Parser)]
#[command(
    name = "oncebox",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = format!("Start here:\n  oncebox serve --to http://127.0.0.1:9000/hook\n\n{EXITS}")
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
    /// Makes the tables of the stores, says what is missing, or prints the SQL.
    #[command(after_help = "Examples:\n  oncebox migrate plan\n  oncebox migrate apply\n  \
                            oncebox migrate print --store main | psql \"$DATABASE_URL\"")]
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
    /// Prints the completions of a shell.
    #[command(after_help = "Examples:\n  oncebox completions bash > /etc/bash_completion.d/oncebox\n  \
                            oncebox completions zsh > ~/.zfunc/_oncebox")]
    Completions(generate::Completions),
    /// Prints the manual, or writes a page for each command.
    #[command(
        after_help = "Examples:\n  oncebox man | man -l -\n  oncebox man --dir /usr/local/share/man/man1"
    )]
    Man(generate::Man),
}

/// How the program ended, if not well. The numbers are part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// Something outside is missing: a database, an address.
    Start = 3,
    /// It ran, and could not go on.
    Failure = 4,
    /// What was asked for is not there, or not allowed.
    Refused = 5,
}

/// An error with its exit code.
#[derive(Debug)]
pub(crate) struct CommandError {
    exit: Exit,
    error: anyhow::Error,
}

impl CommandError {
    /// Whether what was asked for is not there.
    pub(crate) fn is_absent(&self) -> bool {
        let ours = self.error.downcast_ref::<Error>();
        ours.is_some_and(|error| error.kind() == ErrorKind::NotFound) || self.error.is::<Absent>()
    }

    /// The same, with what was being done.
    pub(crate) fn context(self, what: String) -> Self {
        Self { exit: self.exit, error: self.error.context(what) }
    }
}

/// What a server says of something that is not there.
#[derive(Debug)]
pub(crate) struct Absent(pub(crate) String);

impl std::fmt::Display for Absent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Absent {}

impl Exit {
    /// An error that ends the program with this code.
    pub(crate) fn with(self, error: impl Into<anyhow::Error>) -> CommandError {
        CommandError { exit: self, error: error.into() }
    }
}

impl From<anyhow::Error> for CommandError {
    fn from(error: anyhow::Error) -> Self {
        Exit::Usage.with(error)
    }
}

impl From<Invalid> for CommandError {
    fn from(error: Invalid) -> Self {
        Exit::Usage.with(error)
    }
}

/// An error of a store that was reached.
impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        let exit = match error.kind() {
            ErrorKind::NotFound | ErrorKind::Refused | ErrorKind::OperationReused => Exit::Refused,
            ErrorKind::InvalidConfig | ErrorKind::InvalidHandler => Exit::Usage,
            _ => Exit::Failure,
        };
        exit.with(error)
    }
}

/// The code of a check: whether it found something wrong.
fn checked(found: bool) -> ExitCode {
    ExitCode::from(u8::from(found))
}

/// The error and its causes. Of errors of ours only the first says what was kept and what to do: inside of it they would say it
/// again.
fn sentence(error: &anyhow::Error) -> String {
    let mut told = false;
    let part = |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref::<Error>() {
        Some(ours) if told => ours.what().to_owned(),
        ours => {
            told |= ours.is_some();
            cause.to_string()
        }
    };
    error.chain().map(part).collect::<Vec<_>>().join(": ")
}

pub(crate) fn run() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(args) => serve::run(args),
        Command::Config(args) => config::run(&args),
        Command::Migrate(args) => migrate::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Demo(args) => demo::run(&args).map_err(Into::into),
        Command::DemoWorker(args) => demo::work(&args).map(|()| ExitCode::SUCCESS).map_err(Into::into),
        Command::Operate(command) => operate::run(&command),
        Command::Completions(args) => generate::completions(&args),
        Command::Man(args) => generate::man(&args),
    };
    result.unwrap_or_else(|CommandError { exit, error }| {
        out::eprint_note(&format!("oncebox: {}", out::escaped_lines(&sentence(&error))));
        ExitCode::from(exit as u8)
    })
}
