//! The command line. Tests: `tests/operate/`, `tests/serve/` and `tree.rs`.

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

use anyhow::anyhow;
use clap::{Parser, Subcommand};
use oncebox::{Error, ErrorKind};

use crate::config::Invalid;
use crate::demo;
use crate::operator::OperatorError;

/// Exit codes of the program. They are part of the interface.
pub(crate) const EXITS: &str = "\
Exit codes:
  0  success, or stopped by a signal
  1  a check found a problem
  2  command line or configuration not valid
  3  cannot start: database, server or address unavailable
  4  failed
  5  not found, refused or not allowed";

/// Durable inbox for message consumers: duplicate deliveries take effect once
#[derive(Debug, Parser)]
#[command(
    name = "oncebox",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = format!("Example:\n  oncebox serve --to http://127.0.0.1:9000/hook\n\n{EXITS}")
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the sidecar: accept messages, store each once, deliver to HTTP endpoints
    ///
    /// Without a config file, the sidecar uses a SQLite file in the current directory, accepts messages from this machine, and
    /// delivers all of them to `--to`. With an `oncebox.toml`, it uses that file.
    #[command(after_help = serve::EXAMPLES)]
    Serve(serve::Args),
    /// Check a configuration, or print an example or the schema
    #[command(after_help = "Examples:\n  oncebox config example > oncebox.toml\n  oncebox config check")]
    Config(config::Args),
    /// Create or upgrade the tables of the stores, or print the SQL
    #[command(after_help = "Examples:\n  oncebox migrate plan\n  oncebox migrate apply\n  \
                            oncebox migrate print --store main | psql \"$DATABASE_URL\"")]
    Migrate(migrate::Args),
    /// Create an API token and its lines for the configuration
    #[command(after_help = "Examples:\n  oncebox token ada --role operator --role payload-reader\n  \
                            oncebox token prometheus >> oncebox.toml")]
    Token(token::Args),
    /// Show that duplicates, failing handlers and killed workers lose nothing
    ///
    /// The demo delivers each message several times to several worker processes. Handlers fail and panic, and the demo kills
    /// workers. Then it counts the rows in the business table. The exit code is 1 if a message was lost or took effect twice.
    #[command(after_help = "Example:\n  oncebox demo --messages 5000 --duplicates 3 --workers 4 --seed 7")]
    Demo(demo::Args),
    /// Run one worker of the demo
    #[command(hide = true)]
    DemoWorker(demo::WorkerArgs),
    #[command(flatten)]
    Operate(Box<operate::Command>),
    /// Print shell completions
    #[command(after_help = "Examples:\n  oncebox completions bash > /etc/bash_completion.d/oncebox\n  \
                            oncebox completions zsh > ~/.zfunc/_oncebox")]
    Completions(generate::Completions),
    /// Print the manual, or write one page per command
    #[command(
        after_help = "Examples:\n  oncebox man | man -l -\n  oncebox man --dir /usr/local/share/man/man1"
    )]
    Man(generate::Man),
}

impl Command {
    /// Returns true if the command changes nothing in a store.
    fn is_read(&self) -> bool {
        match self {
            Self::Serve(_) | Self::Demo(_) | Self::DemoWorker(_) => false,
            Self::Migrate(args) => args.is_read(),
            Self::Operate(command) => command.is_read(),
            Self::Config(_) | Self::Token(_) | Self::Completions(_) | Self::Man(_) => true,
        }
    }
}

/// Exit code of a failure. The numbers are part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command line or the configuration is not valid.
    Usage = 2,
    /// A database, server or address is unavailable.
    Start = 3,
    /// The command failed while it ran.
    Failure = 4,
    /// The object does not exist, or the action is refused or not allowed.
    Refused = 5,
}

/// An error with its exit code.
#[derive(Debug)]
pub(crate) struct CommandError {
    exit: Exit,
    error: anyhow::Error,
}

impl CommandError {
    /// Adds the context of the error.
    pub(crate) fn context(self, what: String) -> Self {
        Self { exit: self.exit, error: self.error.context(what) }
    }
}

impl Exit {
    /// Returns an error that ends the program with this code.
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

/// Converts an error of an open store.
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

impl From<OperatorError> for CommandError {
    fn from(error: OperatorError) -> Self {
        let exit = match error {
            OperatorError::Store(error) => return error.into(),
            OperatorError::Changed { .. } => {
                let advice = "nothing was changed; repeat the dry run, then pass its count with --expect";
                return Exit::Refused.with(anyhow!("{error}: {advice}"));
            }
            OperatorError::Unreachable(_) => Exit::Start,
            OperatorError::Refused(401 | 403 | 404 | 409, _) => Exit::Refused,
            OperatorError::Invalid(_) | OperatorError::Refused(400..500, _) => Exit::Usage,
            OperatorError::Refused(..) | OperatorError::Lost(_) => Exit::Failure,
        };
        exit.with(anyhow!("{error}"))
    }
}

/// Returns the exit code of a check.
fn checked(found: bool) -> ExitCode {
    ExitCode::from(u8::from(found))
}

/// Formats the error and its causes. Only the first library error adds its advice, and what was kept unless the command only reads.
fn sentence(error: &anyhow::Error, is_read: bool) -> String {
    let mut advised = false;
    let part = |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref::<Error>() {
        Some(ours) if advised => ours.what().to_owned(),
        ours => {
            advised |= ours.is_some();
            match ours.filter(|_| is_read) {
                Some(ours) => format!("{}; {}", ours.what(), ours.kind().advice()),
                None => cause.to_string(),
            }
        }
    };
    error.chain().map(part).collect::<Vec<_>>().join(": ")
}

pub(crate) fn run() -> ExitCode {
    let command = Cli::parse().command;
    let is_read = command.is_read();
    let result = match command {
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
        out::eprint_note(&format!("oncebox: {}", out::escaped_lines(&sentence(&error, is_read))));
        ExitCode::from(exit as u8)
    })
}
