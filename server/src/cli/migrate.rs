//! `oncebox migrate`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;

use super::{Exit, Failed};
use crate::config::{self, Secrets};
use crate::sidecar;

/// What `migrate` is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The configuration. Default: `oncebox.toml` in this directory.
    #[arg(long, value_name = "FILE", env = "ONCEBOX_CONFIG")]
    config: Option<PathBuf>,
    /// The name of one store. Default: all of them.
    #[arg(long, value_name = "NAME")]
    store: Option<String>,
    /// Prints the SQL of the whole schema instead of running anything. For PostgreSQL; to be run in one transaction.
    #[arg(long)]
    print: bool,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failed> {
    let path = config::find(args.config.as_deref())
        .ok_or_else(|| Exit::Usage.with(anyhow!("there is no oncebox.toml here; name one with --config")))?;
    let plan = config::load(&path, Secrets::Read)?.plan;
    let wanted = |name: &str| args.store.as_deref().is_none_or(|store| store == name);
    let stores: Vec<_> = plan.stores.iter().filter(|store| wanted(&store.name)).collect();
    if stores.is_empty() {
        let known: Vec<&str> = plan.stores.iter().map(|store| &*store.name).collect();
        return Err(Exit::Usage.with(anyhow!("there is no such store; there are {}", known.join(", "))));
    }
    let runtime = tokio::runtime::Runtime::new().map_err(|error| Exit::Start.with(error))?;
    for store in stores {
        if args.print {
            print!("{}", sidecar::schema_sql(store)?);
            continue;
        }
        let applied = runtime.block_on(sidecar::migrate(store)).map_err(|error| Exit::Start.with(error))?;
        match applied {
            0 => println!("{}: up to date", store.name),
            steps => println!("{}: steps applied: {steps}", store.name),
        }
    }
    Ok(ExitCode::SUCCESS)
}
