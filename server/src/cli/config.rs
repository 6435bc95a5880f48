//! `oncebox config`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Subcommand;
use serde_json::json;

use super::out::{self, print};
use super::{CommandError, Exit};
use crate::config::{self, EXAMPLE, Secrets};
use crate::sidecar;

/// What `config` is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check a configuration as `oncebox serve` does, without connecting to anything
    #[command(after_help = "Examples:
  oncebox config check --config /etc/oncebox.toml
  oncebox config check --assume-secrets       where the secrets are not, as in CI")]
    Check {
        /// The configuration. Default: `oncebox.toml` in this directory.
        #[arg(long, value_name = "FILE", env = "ONCEBOX_CONFIG")]
        config: Option<PathBuf>,
        /// Take all secrets, and the files that hold them, to be there and right
        #[arg(long)]
        assume_secrets: bool,
        /// One JSON object, for programs.
        #[arg(long)]
        json: bool,
    },
    /// Prints a configuration with every setting and its meaning.
    #[command(after_help = "Example:\n  oncebox config example > oncebox.toml")]
    Example,
    /// Prints the JSON schema of the configuration, for editors.
    #[command(after_help = "Example:\n  oncebox config schema > oncebox.schema.json")]
    Schema,
    /// Prints the page of the documentation that lists every setting.
    #[command(hide = true)]
    Reference,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CommandError> {
    match &args.command {
        Command::Check { config, assume_secrets, json } => check(config.as_deref(), *assume_secrets, *json)?,
        Command::Example => print(EXAMPLE)?,
        Command::Schema => print(&format!("{:#}\n", config::schema().as_value()))?,
        Command::Reference => print(&config::reference())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn check(named: Option<&Path>, assume_secrets: bool, json: bool) -> Result<(), CommandError> {
    let path = config::find(named).ok_or_else(|| {
        Exit::Usage.with(anyhow!(
            "there is no oncebox.toml here; name one with --config, or begin with `oncebox config example`"
        ))
    })?;
    let secrets = if assume_secrets { Secrets::Assume } else { Secrets::Read };
    let loaded = sidecar::check_plan(config::load(&path, secrets)?)?;
    let (inboxes, all) = (loaded.plan.inboxes.len(), loaded.plan.inboxes.iter());
    let handlers: usize = all.map(|inbox| inbox.handlers.len()).sum();
    let warnings = loaded.plan.warnings();
    if json {
        let file = path.display().to_string();
        return print(&format!(
            "{}\n",
            json!({ "file": file, "inboxes": inboxes, "handlers": handlers, "warnings": warnings })
        ));
    }
    for warning in warnings {
        out::eprint_note(&format!("{}: warning: {}", path.display(), out::escaped_lines(&warning)));
    }
    print(&format!("{}: good; inboxes: {inboxes}, handlers: {handlers}\n", path.display()))
}
