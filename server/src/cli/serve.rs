//! `oncebox serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;

use oncebox_telemetry::{OtlpSettings, Telemetry, metrics_router};

use super::log::LogArgs;
use super::{CommandError, Exit};
use crate::config;
use crate::sidecar::{self, Origin, ZeroConfig};

/// Maximum time for tasks that outlive the shutdown to drop their clones of a store.
const LAST_CLONES: Duration = Duration::from_secs(6);

pub(super) const EXAMPLES: &str = "\
Examples:
  oncebox serve                                       see what arrives, deliver nothing yet
  oncebox serve --to http://127.0.0.1:9000/hook       deliver everything to one handler
  oncebox serve --config oncebox.toml                 several inboxes, sources and handlers
  oncebox config example > oncebox.toml               every setting, explained

SIGTERM or Ctrl-C stops: what runs is finished or given back, and the exit code is 0; a second one stops at once.
SIGHUP reads the configuration again, and keeps the old one if the new one is wrong.";

/// What `serve` is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The configuration. Default: `oncebox.toml` in this directory, if there is one.
    #[arg(long, value_name = "FILE", env = "ONCEBOX_CONFIG", conflicts_with_all = ["to", "store", "lease"])]
    config: Option<PathBuf>,
    /// Delivers every message to this URL. Not beside a configuration.
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// The database: `sqlite:FILE`, or `env:NAME` for a URL in the environment. Default `sqlite:oncebox.db`. Not beside a
    /// configuration.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Redeliver messages of a dead process after this time [default: 30s]. Not beside a configuration.
    #[arg(long, value_name = "TIME")]
    lease: Option<String>,
    /// Where messages come in. Default 127.0.0.1:8471, or what the configuration says; port 0 takes any.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    log: LogArgs,
}

pub(super) fn run(args: Args) -> Result<ExitCode, CommandError> {
    let from = match config::find(args.config.as_deref()) {
        Some(path) if args.to.is_some() || args.store.is_some() || args.lease.is_some() => {
            let what = anyhow!(
                "--to, --store and --lease are for a start without a configuration, and {} is here; write the handler into it, or \
                 start in another directory",
                path.display()
            );
            return Err(Exit::Usage.with(what));
        }
        Some(path) => Origin::File(path),
        None => Origin::ZeroConfig(ZeroConfig { to: args.to, store: args.store, lease: args.lease }),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Exit::Start.with(error))?;
    let served = runtime.block_on(async {
        let telemetry = telemetry(&args.log)?;
        let metrics = metrics_router(telemetry.prometheus());
        let served = sidecar::serve(&from, args.listen, args.log.is_json(), metrics).await;
        // What was measured and traced until the end is sent.
        telemetry.shutdown().await;
        served
    });
    // Tasks had their time. The last clone of a store may be in one of them, and ends its file when it is dropped.
    runtime.shutdown_timeout(LAST_CLONES);
    served.map(|()| ExitCode::SUCCESS)
}

/// Sets up what is logged, measured and traced.
fn telemetry(log: &LogArgs) -> Result<Telemetry, CommandError> {
    let settings = OtlpSettings::from_env("oncebox").map_err(|error| Exit::Usage.with(error))?;
    let telemetry = Telemetry::new(&settings).map_err(|error| Exit::Start.with(error))?;
    log.start(&telemetry)?;
    telemetry.install().map_err(|error| Exit::Start.with(error))?;
    Ok(telemetry)
}
