//! `oncebox serve`: messages come in, are stored once, and go out to HTTP endpoints.

mod banner;
mod fleet;
mod ingress;
mod notify;
mod queues;
mod quick;
mod signals;
mod stores;
mod told;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use oncebox_http::Server;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use crate::cli::{Exit, Failed};
use crate::config::{self, Loaded, Plan, Secrets};
use fleet::Fleet;
use ingress::Front;
use signals::{Signal, Signals};
use stores::Stores;

pub(crate) use fleet::rehearse;
pub(crate) use quick::Quick;
pub(crate) use stores::{is_missing, migrate, open_admin, pending, schema_sql};

/// Where the settings come from.
#[derive(Debug)]
pub(crate) enum Origin {
    /// A configuration.
    File(PathBuf),
    /// The command line.
    Quick(Quick),
}

impl Origin {
    fn load(&self, listen: Option<SocketAddr>) -> Result<Loaded> {
        let mut loaded = match self {
            Self::File(path) => config::load(path, Secrets::Read)?,
            Self::Quick(quick) => quick.load()?,
        };
        loaded.plan.listen = listen.unwrap_or(loaded.plan.listen);
        Ok(loaded)
    }
}

/// Serves until it is told to stop.
pub(crate) async fn serve(origin: &Origin, listen: Option<SocketAddr>, json: bool) -> Result<(), Failed> {
    // First of all, so that no signal is missed.
    let mut signals = Signals::new().map_err(|error| Exit::Start.with(error))?;
    let loaded = rehearse(origin.load(listen)?)?;
    let plan = loaded.plan;
    let stores = Stores::open(&plan.stores).await.map_err(|error| Exit::Start.with(error))?;
    let listener = bind(plan.listen).await.map_err(|error| Exit::Start.with(error))?;
    let address = listener.local_addr().map_err(|error| Exit::Start.with(error))?;
    let mut sidecar = Sidecar::start(origin, listen, plan, stores, listener).await?;
    banner::print(origin, &sidecar.plan, address, json);
    notify::ready();
    let stopped = sidecar.run(&mut signals).await;
    notify::stopping();
    tokio::select! {
        () = sidecar.finish() => {}
        number = signals.stop() => {
            tracing::warn!("stopped at once; what was running is run again when its lease is over");
            std::process::exit(128 + number);
        }
    }
    tracing::info!("stopped");
    stopped
}

async fn bind(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => anyhow!(
            "{address} is taken: another program listens there, perhaps another `oncebox serve`; stop it, or choose another \
             address with --listen {}:0",
            address.ip()
        ),
        _ => anyhow!("cannot listen on {address}: {error}; choose another address with --listen"),
    })
}

/// Everything that runs.
struct Sidecar<'a> {
    origin: &'a Origin,
    listen: Option<SocketAddr>,
    plan: Plan,
    stores: Stores,
    fleet: Fleet,
    front: Arc<Front>,
    /// Ends the server.
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
    /// Fleets of earlier configurations that finish what they have in hand.
    leaving: JoinSet<()>,
}

impl<'a> Sidecar<'a> {
    async fn start(
        origin: &'a Origin,
        listen: Option<SocketAddr>,
        plan: Plan,
        stores: Stores,
        listener: TcpListener,
    ) -> Result<Self, Failed> {
        let fleet = Fleet::start(&plan, &stores).await?;
        let front = Arc::new(Front::new(fleet.router()));
        let (stop, stopped) = oneshot::channel();
        let limits = ingress::limits(&plan);
        let server = Server::new(listener, front.router()).limits(limits).serve(async {
            // A sender that is gone stops it as well.
            let _ = stopped.await;
        });
        let server = tokio::spawn(server);
        let leaving = JoinSet::new();
        Ok(Self { origin, listen, plan, stores, fleet, front, stop: Some(stop), server, leaving })
    }

    /// Runs until a signal says stop, or until nothing can come in any more.
    async fn run(&mut self, signals: &mut Signals) -> Result<(), Failed> {
        loop {
            tokio::select! {
                signal = signals.next() => match signal {
                    Signal::Stop => {
                        tracing::info!("stopping: nothing more is taken in, and what runs may finish");
                        return Ok(());
                    }
                    Signal::Reload => {
                        notify::reloading();
                        match self.reload().await {
                            Ok(()) => tracing::info!("the configuration was read again and is in use"),
                            Err(error) => {
                                tracing::error!("the old configuration is kept: {error:#}");
                            }
                        }
                        notify::ready();
                    }
                },
                ended = &mut self.server => {
                    let why = ended.err().map_or_else(String::new, |error| format!(": {error}"));
                    return Err(Exit::Failure.with(anyhow!("the HTTP server ended by itself{why}")));
                }
                Some(_) = self.leaving.join_next() => {}
            }
        }
    }

    /// Takes up a new configuration as a whole, or not at all.
    async fn reload(&mut self) -> Result<()> {
        if let Origin::Quick(_) = self.origin {
            bail!("there is none: this was started from the command line");
        }
        let plan = rehearse(self.origin.load(self.listen)?)?.plan;
        if plan.listen != self.plan.listen {
            bail!("`listen` changed from {} to {}, which needs a restart", self.plan.listen, plan.listen);
        }
        if plan.stores != self.plan.stores {
            bail!("[store] changed, which needs a restart");
        }
        // Both work side by side for a moment, as two processes would: the store keeps them apart.
        let fleet = Fleet::start(&plan, &self.stores).await.context("cannot start")?;
        self.front.replace(fleet.router());
        let old = std::mem::replace(&mut self.fleet, fleet);
        self.leaving.spawn(old.shutdown());
        self.plan = plan;
        Ok(())
    }

    /// Lets what runs finish within the grace, and gives back the rest.
    async fn finish(mut self) {
        self.front.close();
        drop(self.stop.take());
        let server = async {
            if !self.server.is_finished() {
                let _ = (&mut self.server).await;
            }
        };
        let left = async { while self.leaving.join_next().await.is_some() {} };
        tokio::join!(server, self.fleet.shutdown(), left);
    }
}
