//! `oncebox serve`: accepts messages, stores each once, delivers them to HTTP endpoints. Tests: `tests/serve/`.

mod banner;
mod descriptors;
mod ingress;
mod message_log;
mod notify;
mod queues;
mod running_config;
mod signals;
mod stores;
mod zero_config;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use axum::Router;
use oncebox_http::{Server, Tls, listen};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::api::{AwaitedStore, OperatorApi};
use crate::cli::{CommandError, Exit};
use crate::config::{self, ConfigPlan, Loaded, Secrets};
use descriptors::Connections;
use ingress::MessageRoutes;
use running_config::RunningConfig;
use signals::{Signal, Signals};
use stores::Stores;

pub(crate) use running_config::{build, check_plan};
pub(crate) use stores::{grants_sql, has_roles, is_missing, migrate, open_admin, pending, prune, schema_sql};
pub(crate) use zero_config::ZeroConfig;

/// Origin of the settings.
#[derive(Debug)]
pub(crate) enum Origin {
    /// A config file.
    File(PathBuf),
    /// The command line.
    ZeroConfig(ZeroConfig),
}

impl Origin {
    fn load(&self, listen: Option<SocketAddr>) -> Result<Loaded> {
        let mut loaded = match self {
            Self::File(path) => config::load(path, Secrets::Read)?,
            Self::ZeroConfig(flags) => flags.load()?,
        };
        loaded.plan.listen = listen.unwrap_or(loaded.plan.listen);
        Ok(loaded)
    }
}

/// Serves until a signal asks to stop.
pub(crate) async fn serve(
    origin: &Origin,
    listen: Option<SocketAddr>,
    json: bool,
    metrics: Router,
) -> Result<(), CommandError> {
    let descriptors = descriptors::raise_limit();
    // Registered first, so that no signal is missed.
    let mut signals = Signals::new().map_err(|error| Exit::Start.with(error))?;
    let loaded = check_plan(origin.load(listen)?)?;
    let plan = loaded.plan;
    let listener = bind(plan.listen).map_err(|error| Exit::Start.with(error))?;
    let operators = bind_api(origin, &plan).map_err(|error| Exit::Start.with(error))?;
    let addresses = Addresses::of(&listener, operators.as_ref()).map_err(|error| Exit::Start.with(error))?;
    // Both ports respond from the start: without a response, a probe would kill the process while it waits for a store.
    let operators = operators.map(|listener| (listener, metrics));
    let connections = descriptors::divide(&plan, descriptors);
    let listeners =
        Listeners::start(&plan, listener, operators, connections).map_err(|error| Exit::Start.with(error))?;
    let watch = banner::watch(&plan, addresses);
    let stores = tokio::select! {
        stores = Stores::open(&plan.stores, &watch, &listeners.api) => stores.map_err(|error| Exit::Start.with(error))?,
        _ = signals.stop() => {
            tracing::info!("stopped while waiting for a store");
            return Ok(());
        }
    };
    let mut sidecar = RunningSidecar::start(origin, listen, plan, stores, listeners).await?;
    banner::print(origin, &sidecar.plan, addresses, json);
    notify::ready();
    let stopped = sidecar.run(&mut signals).await;
    notify::stopping();
    tokio::select! {
        () = sidecar.finish() => {}
        number = signals.stop() => {
            tracing::warn!("stopped at once, deliveries interrupted");
            std::process::exit(128 + number);
        }
    }
    tracing::info!("stopped");
    stopped
}

/// Listen addresses.
#[derive(Clone, Copy, Debug)]
struct Addresses {
    messages: SocketAddr,
    operators: Option<SocketAddr>,
}

impl Addresses {
    fn of(messages: &TcpListener, operators: Option<&TcpListener>) -> std::io::Result<Self> {
        let operators = operators.map(TcpListener::local_addr).transpose()?;
        Ok(Self { messages: messages.local_addr()?, operators })
    }
}

/// Binds the port for operators. Without a configuration, uses another port if the default is taken.
fn bind_api(origin: &Origin, plan: &ConfigPlan) -> Result<Option<TcpListener>> {
    let Some(api) = &plan.api else { return Ok(None) };
    match listen(api.listen) {
        Ok(listener) => Ok(Some(listener)),
        Err(error)
            if matches!(origin, Origin::ZeroConfig(_)) && error.kind() == std::io::ErrorKind::AddrInUse =>
        {
            Ok(Some(bind(SocketAddr::new(api.listen.ip(), 0))?))
        }
        Err(error) => {
            Err(anyhow!("cannot listen on {}: {error}; choose another address for `api.listen`", api.listen))
        }
    }
}

fn bind(address: SocketAddr) -> Result<TcpListener> {
    listen(address).map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => anyhow!(
            "{address} is in use by another program, perhaps another `oncebox serve`; stop it, or choose another address with \
             --listen {}:0",
            address.ip()
        ),
        _ => anyhow!("cannot listen on {address}: {error}; choose another address with --listen"),
    })
}

/// HTTP servers of both ports.
struct Listeners {
    messages: Arc<MessageRoutes>,
    api: Arc<OperatorApi>,
    tls: Option<Tls>,
    /// Stops the servers.
    stop: watch::Sender<bool>,
    servers: JoinSet<()>,
}

impl Listeners {
    /// Starts both servers, without accepting messages yet.
    fn start(
        plan: &ConfigPlan,
        listener: TcpListener,
        operators: Option<(TcpListener, Router)>,
        connections: Connections,
    ) -> Result<Self> {
        let tls = plan.tls.as_ref();
        let tls = tls.map(|tls| Tls::from_pem(tls.certificate.as_bytes(), tls.key.as_bytes())).transpose()?;
        let api = Arc::new(OperatorApi::default());
        api.starting(plan.api.as_ref().map(|api| api.access.clone()).unwrap_or_default());
        if let Some(store) = plan.stores.first() {
            api.wait_for(AwaitedStore { store: store.name.clone(), reason: None });
        }
        let messages = Arc::new(MessageRoutes::waiting(Arc::clone(&api)));
        let mut limits = ingress::limits(plan, connections.messages);
        if let Some(set) = plan.connections_per_address {
            limits.connections_per_address = set.min(limits.connections);
        }
        let mut server = Server::new(listener, messages.router()).limits(limits);
        if let Some(tls) = &tls {
            server = server.tls(tls.clone());
        }
        let (stop, servers) = (watch::Sender::new(false), JoinSet::new());
        let mut listeners = Self { messages, api, tls, stop, servers };
        listeners.spawn(server);
        if let Some((listener, metrics)) = operators {
            let mut limits = ingress::limits(plan, connections.operators);
            // Reserved for probes of this machine, while other clients use all other connections.
            limits.loopback = limits.connections / 4;
            let mut server = Server::new(listener, listeners.api.router(&metrics)).limits(limits);
            if let Some(tls) = listeners.tls.as_ref().filter(|_| plan.api.as_ref().is_some_and(|api| api.tls))
            {
                server = server.tls(tls.clone());
            }
            listeners.spawn(server);
        }
        Ok(listeners)
    }

    fn spawn(&mut self, server: Server) {
        let mut stopped = self.stop.subscribe();
        self.servers.spawn(server.serve(async move {
            // A dropped sender stops the server too.
            let _ = stopped.wait_for(|stopped| *stopped).await;
        }));
    }

    /// Replaces the certificate.
    fn change(&self, plan: &ConfigPlan) -> Result<()> {
        if let (Some(tls), Some(plan)) = (&self.tls, &plan.tls) {
            tls.replace(plan.certificate.as_bytes(), plan.key.as_bytes())?;
        }
        Ok(())
    }
}

/// A running sidecar.
struct RunningSidecar<'a> {
    origin: &'a Origin,
    listen: Option<SocketAddr>,
    plan: ConfigPlan,
    stores: Stores,
    running_config: RunningConfig,
    listeners: Listeners,
    /// Earlier configurations that finish their running deliveries.
    draining: JoinSet<()>,
}

impl<'a> RunningSidecar<'a> {
    async fn start(
        origin: &'a Origin,
        listen: Option<SocketAddr>,
        plan: ConfigPlan,
        stores: Stores,
        listeners: Listeners,
    ) -> Result<Self, CommandError> {
        let running_config = RunningConfig::start(&plan, &stores).await?;
        listeners.api.replace(running_config.served(&plan, &stores)?);
        listeners.messages.open(running_config.router());
        Ok(Self { origin, listen, plan, stores, running_config, listeners, draining: JoinSet::new() })
    }

    /// Runs until a signal asks to stop, or a server fails.
    async fn run(&mut self, signals: &mut Signals) -> Result<(), CommandError> {
        loop {
            tokio::select! {
                signal = signals.next() => match signal {
                    Signal::Stop => {
                        tracing::info!("stopping; running deliveries may finish");
                        return Ok(());
                    }
                    Signal::Reload => {
                        notify::reloading();
                        match self.reload().await {
                            Ok(()) => tracing::info!("configuration reloaded"),
                            Err(error) => {
                                let error = format!("{error:#}");
                                tracing::error!(%error, "reload failed, old configuration kept");
                            }
                        }
                        notify::ready();
                    }
                },
                Some(ended) = self.listeners.servers.join_next() => {
                    let why = ended.err().map_or_else(String::new, |error| format!(": {error}"));
                    return Err(Exit::Failure.with(anyhow!("the HTTP server stopped unexpectedly{why}; see the log, then restart")));
                }
                Some(_) = self.draining.join_next() => {}
            }
        }
    }

    /// Applies a new configuration completely, or keeps the old one.
    async fn reload(&mut self) -> Result<()> {
        if let Origin::ZeroConfig(_) = self.origin {
            bail!("no config file: the sidecar was started with flags; restart it");
        }
        let plan = check_plan(self.origin.load(self.listen)?)?.plan;
        if plan.listen != self.plan.listen {
            bail!("`listen` changed from {} to {}, which needs a restart", self.plan.listen, plan.listen);
        }
        if plan.tls.is_some() != self.plan.tls.is_some() {
            bail!("`tls` was added or removed, which needs a restart");
        }
        if plan.connections_per_address != self.plan.connections_per_address {
            bail!("`connections_per_address` changed, which needs a restart");
        }
        let api = |plan: &ConfigPlan| plan.api.as_ref().map(|api| api.listen);
        if api(&plan) != api(&self.plan) {
            bail!("`api.listen` changed, which needs a restart");
        }
        let stores = || plan.stores.iter().zip(&self.plan.stores);
        if plan.stores.len() != self.plan.stores.len()
            || !stores().all(|(new, old)| new.is_same_but_secrets(old))
        {
            bail!("[store] changed beyond its login and keys, which needs a restart");
        }
        let seals = stores().filter_map(|(new, old)| new.seal.as_ref().zip(old.seal.as_ref()));
        if !seals.into_iter().all(|(new, old)| new.has_fingerprints_of(old)) {
            bail!(
                "`fingerprints` of a sealed store changed, so redeliveries would look like conflicts; restore the former secret"
            );
        }
        // The new configuration starts with the new login, because the server may refuse the old one already.
        self.stores.log_in(&self.plan.stores, &plan.stores).await?;
        let changed = self.change_to(&plan).await;
        if changed.is_err() {
            self.stores.log_back_in(&plan.stores, &self.plan.stores).await;
        }
        changed?;
        self.plan = plan;
        Ok(())
    }

    /// Starts a configuration in place of the running one. On failure, the running one stays.
    async fn change_to(&mut self, plan: &ConfigPlan) -> Result<()> {
        // Both run at the same time for a moment, like two processes.
        let running_config =
            RunningConfig::start(plan, &self.stores).await.context("cannot start the new configuration")?;
        let served = match running_config.served(plan, &self.stores) {
            Ok(served) => served,
            Err(error) => {
                running_config.shutdown().await;
                return Err(error);
            }
        };
        self.listeners.change(plan)?;
        self.stores.change_keys(&plan.stores)?;
        self.listeners.api.replace(served);
        self.listeners.messages.replace(running_config.router());
        let old = std::mem::replace(&mut self.running_config, running_config);
        self.draining.spawn(old.shutdown());
        Ok(())
    }

    /// Finishes running deliveries within the grace period, and releases the rest.
    async fn finish(mut self) {
        self.listeners.messages.close();
        self.listeners.api.close();
        self.listeners.stop.send_replace(true);
        let servers = async { while self.listeners.servers.join_next().await.is_some() {} };
        let drained = async { while self.draining.join_next().await.is_some() {} };
        tokio::join!(servers, self.running_config.shutdown(), drained);
        self.stores.checkpoint().await;
    }
}
