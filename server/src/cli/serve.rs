//! `oncebox serve`. Tests: `tests/serve/`.

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
  oncebox serve                                       store messages without delivering them
  oncebox serve --to http://127.0.0.1:9000/hook       deliver all messages to one handler
  oncebox serve --config oncebox.toml                 use several inboxes, sources and handlers
  oncebox config example > oncebox.toml               print every setting, explained

SIGTERM or Ctrl-C: finish or release running deliveries, then exit with 0. A second signal stops at once.
SIGHUP: reload the configuration; keep the old one if the new one is not valid.";

/// Arguments of `oncebox serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Config file [default: ./oncebox.toml, if it exists]
    #[arg(long, value_name = "FILE", env = "ONCEBOX_CONFIG", conflicts_with_all = ["to", "store", "lease"])]
    config: Option<PathBuf>,
    /// Handler URL for all messages; not with a config file
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// sqlite:FILE or env:NAME; not with a config file [default: sqlite:oncebox.db]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Lease of a delivery; not with a config file [default: 30s]
    #[arg(long, value_name = "TIME")]
    lease: Option<String>,
    /// Listen address; port 0 takes any [default: configured or 127.0.0.1:8471]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    log: LogArgs,
}

pub(super) fn run(args: Args) -> Result<ExitCode, CommandError> {
    let from = match config::find(args.config.as_deref()) {
        Some(path) if args.to.is_some() || args.store.is_some() || args.lease.is_some() => {
            let what = anyhow!(
                "--to, --store and --lease do not work with a config file, and {} exists; add the handler to it, or start in \
                 another directory",
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
        // Sends the remaining metrics and spans.
        telemetry.shutdown().await;
        served
    });
    // Tasks have had the grace period to finish. One of them may hold the last clone of a store, whose drop empties its log.
    runtime.shutdown_timeout(LAST_CLONES);
    served.map(|()| ExitCode::SUCCESS)
}

/// Sets up logs, metrics and traces.
fn telemetry(log: &LogArgs) -> Result<Telemetry, CommandError> {
    let settings = OtlpSettings::from_env("oncebox").map_err(|error| Exit::Usage.with(error))?;
    let telemetry = Telemetry::new(&settings).map_err(|error| Exit::Start.with(error))?;
    log.start(&telemetry)?;
    telemetry.install().map_err(|error| Exit::Start.with(error))?;
    Ok(telemetry)
}
