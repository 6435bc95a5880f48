//! `oncebox migrate`. Tests: `tests/operate/migrate.rs` and `tests/operate/postgres.rs`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Subcommand;
use oncebox::store::Migration;
use serde_json::{Value, json};

use super::progress::ProgressLine;
use super::{CommandError, Exit, checked, out};
use crate::config::{self, Secrets, StorePlan};
use crate::sidecar;

/// Arguments of `oncebox migrate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

impl Args {
    /// Returns true if the command changes nothing in a store.
    pub(super) fn is_read(&self) -> bool {
        !matches!(self.command, Command::Apply(_) | Command::Prune(_))
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the missing steps without applying them
    #[command(
        after_help = "Examples:\n  oncebox migrate plan\n  oncebox migrate plan --store sqlite:inbox.db"
    )]
    Plan(StoreArgs),
    /// Print the SQL of the whole schema, without connecting
    ///
    /// Run the SQL for PostgreSQL in one transaction.
    #[command(
        after_help = "Example:\n  oncebox migrate print --store env:DATABASE_URL | psql --single-transaction \"$DATABASE_URL\""
    )]
    Print(StoreArgs),
    /// Apply the missing steps; safe to run concurrently
    #[command(after_help = "Example:\n  oncebox migrate apply --store env:DATABASE_URL")]
    Apply(StoreArgs),
    /// Check that no step is missing, for a probe or before a deployment
    #[command(after_help = "Example:\n  oncebox migrate check && oncebox serve\n\n\
                            Exit codes: 0 up to date, 1 steps are missing, or the tables are newer than this build")]
    Check(StoreArgs),
    /// Drop functions of earlier releases, once no process of these runs
    #[command(after_help = "Example:\n  oncebox migrate prune --store env:DATABASE_URL")]
    Prune(StoreArgs),
    /// Print the SQL that grants a role access to the tables, without connecting
    #[command(
        after_help = "Example:\n  oncebox migrate grants --role shop_worker --store env:DATABASE_URL | psql \"$DATABASE_URL\""
    )]
    Grants(GrantArgs),
}

#[derive(Debug, clap::Args)]
struct GrantArgs {
    /// Database role of the service
    #[arg(long, value_name = "NAME")]
    role: String,
    #[command(flatten)]
    which: StoreArgs,
}

/// Arguments that select stores.
#[expect(clippy::doc_markdown, reason = "clap prints the texts as they are")]
#[derive(Debug, clap::Args)]
struct StoreArgs {
    /// Config file [default: ./oncebox.toml]
    #[arg(long, value_name = "FILE", env = "ONCEBOX_CONFIG")]
    config: Option<PathBuf>,
    /// Store name, sqlite:FILE, postgres:// URL, env:NAME or file:PATH [default: all]
    #[arg(long, value_name = "NAME|URL")]
    store: Option<String>,
    /// PostgreSQL schema of the tables, with a URL [default: public]
    #[arg(long, requires = "store")]
    schema: Option<String>,
    /// Prefix of the table names, with a URL [default: oncebox_]
    #[arg(long, requires = "store")]
    prefix: Option<String>,
    /// Print one JSON object per store
    #[arg(long)]
    json: bool,
}

impl StoreArgs {
    fn stores(&self) -> Result<Vec<StorePlan>, CommandError> {
        if let Some(url) = self.store.as_ref().filter(|store| store.contains(':')) {
            let store = config::store_at(url, self.schema.as_deref(), self.prefix.as_deref());
            return Ok(vec![store.map_err(|what| Exit::Usage.with(anyhow!(what)))?]);
        }
        let path = config::find(self.config.as_deref()).ok_or_else(|| {
            let what =
                "no oncebox.toml in this directory; name a file with --config, or a store with --store sqlite:FILE";
            Exit::Usage.with(anyhow!(what))
        })?;
        let mut stores = config::load(&path, Secrets::Stores)?.plan.stores;
        let Some(wanted) = &self.store else { return Ok(stores) };
        let known: Vec<String> = stores.iter().map(|store| store.name.clone()).collect();
        stores.retain(|store| store.name == *wanted);
        if stores.is_empty() {
            let what = format!("{} has no store {wanted:?}; it has {}", path.display(), known.join(", "));
            return Err(Exit::Usage.with(anyhow!(what)));
        }
        Ok(stores)
    }

    /// Returns the flags that select the same stores, without URLs: they may contain a password.
    fn as_flags(&self) -> String {
        let mut words = String::new();
        let config = self.config.as_ref().map(|path| path.display().to_string());
        let store = self.store.as_ref().map(|store| match store.split_once("://") {
            Some((scheme, _)) => format!("{scheme}://…"),
            None => store.clone(),
        });
        let flags =
            [("config", &config), ("store", &store), ("schema", &self.schema), ("prefix", &self.prefix)];
        for (name, value) in flags {
            if let Some(value) = value {
                let quote = if value.contains(char::is_whitespace) { "'" } else { "" };
                words.extend([" --", name, " ", quote, value, quote]);
            }
        }
        words
    }
}

pub(super) fn run(args: &Args) -> Result<ExitCode, CommandError> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| Exit::Start.with(error))?;
    let (Command::Plan(which)
    | Command::Print(which)
    | Command::Apply(which)
    | Command::Check(which)
    | Command::Prune(which)
    | Command::Grants(GrantArgs { which, .. })) = &args.command;
    let mut found = false;
    let mut stores = which.stores()?;
    if matches!(args.command, Command::Grants(_)) && stores.len() > 1 {
        stores.retain(|store| {
            let has_roles = sidecar::has_roles(store);
            if !has_roles {
                out::eprint_note(&format!("{}: a SQLite file has no roles; nothing to grant", store.name));
            }
            has_roles
        });
    }
    for store in stores {
        let done = runtime.block_on(one(&args.command, &store, which));
        found |= done.map_err(|failed| failed.context(format!("the store {:?}", store.name)))?;
    }
    Ok(checked(found))
}

/// Runs the command on one store; returns true if a check found missing steps.
async fn one(command: &Command, store: &StorePlan, which: &StoreArgs) -> Result<bool, CommandError> {
    let json = which.json;
    let start = |error: oncebox::Error| Exit::Start.with(anyhow::Error::new(error));
    let name = &store.name;
    match command {
        Command::Print(_) => print_sql(name, sidecar::schema_sql(store).await?, json)?,
        Command::Grants(GrantArgs { role, .. }) => {
            print_sql(name, sidecar::grants_sql(store, role).map_err(start)?, json)?;
        }
        Command::Apply(_) => {
            let progress = ProgressLine::unknown("steps");
            let applied = sidecar::migrate(store).await.map_err(start)?;
            drop(progress);
            if json {
                out::line(&json!({ "store": name, "applied": steps(&applied) }).to_string())?;
            } else if applied.is_empty() {
                out::line(&format!("{name}: up to date"))?;
            } else {
                out::line(&format!("{name}: applied steps {}", names(&applied)))?;
            }
        }
        Command::Prune(_) => {
            let dropped = sidecar::prune(store).await.map_err(start)?;
            if json {
                out::line(&json!({ "store": name, "dropped": dropped }).to_string())?;
            } else if dropped.is_empty() {
                out::line(&format!("{name}: no function of an earlier release"))?;
            } else {
                out::line(&format!("{name}: dropped {}", dropped.join(", ")))?;
            }
        }
        Command::Plan(_) | Command::Check(_) => {
            let check = matches!(command, Command::Check(_));
            let (current, missing) = match sidecar::pending(store).await {
                Err(error) if check && error.kind() == oncebox::ErrorKind::SchemaTooNew => {
                    out::eprint_note(&format!("{name}: {error}"));
                    return Ok(true);
                }
                pending => pending.map_err(start)?,
            };
            if json {
                let object = json!({ "store": name, "version": current, "missing": steps(&missing) });
                out::line(&object.to_string())?;
            } else if missing.is_empty() {
                out::line(&format!("{name}: up to date (version {current})"))?;
            } else {
                let (missing, flags) = (names(&missing), which.as_flags());
                let what = format!(
                    "{name}: version {current}; missing: {missing}; run `oncebox migrate apply{flags}`"
                );
                out::line(&what)?;
            }
            return Ok(check && !missing.is_empty());
        }
    }
    Ok(false)
}

fn print_sql(name: &str, sql: String, json: bool) -> Result<(), CommandError> {
    let text = if json { format!("{}\n", json!({ "store": name, "sql": sql })) } else { sql };
    out::print(&text)
}

fn names(steps: &[Migration]) -> String {
    steps.iter().map(|step| format!("{} ({})", step.version, step.name)).collect::<Vec<_>>().join(", ")
}

fn steps(steps: &[Migration]) -> Vec<Value> {
    steps.iter().map(|step| json!({ "version": step.version, "name": step.name, "sql": step.sql })).collect()
}
