//! `oncebox config`. Tests: `tests/serve/config.rs`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Subcommand;
use oncebox_telemetry::OtlpSettings;
use serde_json::json;

use super::out::{self, print};
use super::{CommandError, Exit};
use crate::config::{self, EXAMPLE, Secrets};
use crate::sidecar;

/// Arguments of `oncebox config`.
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
  oncebox config check --assume-secrets       in CI, without the secrets")]
    Check {
        /// Config file [default: ./oncebox.toml]
        #[arg(long, value_name = "FILE", env = "ONCEBOX_CONFIG")]
        config: Option<PathBuf>,
        /// Do not read secrets or their files
        #[arg(long)]
        assume_secrets: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print a configuration with every setting, explained
    #[command(after_help = "Example:\n  oncebox config example > oncebox.toml")]
    Example,
    /// Print the JSON schema of the configuration, for editors
    #[command(after_help = "Example:\n  oncebox config schema > oncebox.schema.json")]
    Schema,
    /// Print the reference page of all settings
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
            "no oncebox.toml in this directory; name a file with --config, or start with `oncebox config example`"
        ))
    })?;
    // The environment of `serve` is that of this command, as it is for secrets.
    OtlpSettings::from_env("oncebox").map_err(|error| Exit::Usage.with(error))?;
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
    print(&format!("{}: valid; inboxes: {inboxes}, handlers: {handlers}\n", path.display()))
}
