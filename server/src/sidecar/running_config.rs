//! The running inboxes of one configuration. Tests: `tests/serve/reload.rs`.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::Router;
use oncebox::config::OrderBy;
use oncebox::{ErrorKind, Inbox, Memory, Registration, Running, Store};
use oncebox_telemetry::OtelPropagator;
use tokio::task::JoinSet;

use super::stores::{AnyStore, Stores};
use super::{ingress, queues};
use crate::api::{Current, FIELDS, ServedInbox};
use crate::config::{ConfigPlan, HandlerPlan, InboxPlan, Invalid, KeyLocation, Loaded};
use crate::delivery::deliver_to;
use crate::operator::StoreClient;

/// The inboxes, workers and routes of one configuration.
pub(super) struct RunningConfig {
    router: Router,
    running: Vec<Running<AnyStore>>,
    inboxes: Vec<Inbox<AnyStore>>,
    /// Running backfills.
    backfills: JoinSet<()>,
}

impl RunningConfig {
    /// Builds all inboxes, then starts them.
    pub(super) async fn start(plan: &ConfigPlan, stores: &Stores) -> Result<Self> {
        let mut inboxes = Vec::new();
        for inbox in &plan.inboxes {
            let built = build(inbox, stores.get(&inbox.store)?);
            inboxes.push(built.with_context(|| format!("the inbox {:?}", inbox.name))?);
        }
        for inbox in &inboxes {
            register(inbox).await?;
        }
        let router = ingress::router(plan.inboxes.iter().zip(&inboxes))?;
        let mut running_config = Self { router, running: Vec::new(), inboxes, backfills: JoinSet::new() };
        for (inbox, plan) in running_config.inboxes.iter().zip(&plan.inboxes) {
            let running = inbox.start();
            let received = plan.rabbitmq.iter().try_for_each(|queue| queues::consume(&running, queue));
            running_config.running.push(running);
            if let Err(error) = received {
                // A configuration runs completely or not at all.
                running_config.shutdown().await;
                return Err(error);
            }
        }
        for warning in plan.warnings() {
            tracing::warn!(%warning, "configuration warning");
        }
        for inbox in plan.inboxes.iter().cloned() {
            if inbox.handlers.iter().any(|handler| handler.backfill) {
                running_config.backfills.spawn(backfill(inbox, stores.clone()));
            }
        }
        Ok(running_config)
    }

    /// Returns the inboxes for the API.
    pub(super) fn served(&self, plan: &ConfigPlan, stores: &Stores) -> Result<Current> {
        let (access, privacy) =
            plan.api.as_ref().map(|api| (api.access.clone(), api.privacy.clone())).unwrap_or_default();
        let (mut inboxes, privacy) = (Vec::new(), Arc::new(privacy));
        for (inbox, plan) in self.inboxes.iter().zip(&plan.inboxes) {
            let (admin, plan) = (stores.admin(&plan.store)?, Arc::new(plan.clone()));
            let operator = StoreClient::new(admin, inbox.name().clone(), Some(Arc::clone(&plan)), &FIELDS);
            let operator = operator.redact(Arc::clone(&privacy));
            inboxes.push(ServedInbox { plan, inbox: inbox.clone(), operator });
        }
        Ok(Current { inboxes, access, limits: plan.health.clone() })
    }

    /// Returns the routes for messages.
    pub(super) fn router(&self) -> Router {
        self.router.clone()
    }

    /// Finishes running deliveries within the grace period, and releases the rest.
    pub(super) async fn shutdown(mut self) {
        // The next start continues them.
        self.backfills.shutdown().await;
        futures_util::future::join_all(self.running.into_iter().map(Running::shutdown)).await;
    }
}

/// Registers an inbox before it runs, and fails if the store refuses its settings. The runtime waits for an unavailable store.
async fn register(inbox: &Inbox<AnyStore>) -> Result<()> {
    let refused = |kind| {
        matches!(kind, ErrorKind::TenantsChanged | ErrorKind::InvalidHandler | ErrorKind::InvalidConfig)
    };
    match inbox.register().await {
        Err(error) if refused(error.kind()) => Err(error.into()),
        Err(error) => {
            tracing::warn!(inbox = %inbox.name(), %error, "cannot register yet");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Runs the backfills of an inbox.
async fn backfill(inbox: InboxPlan, stores: Stores) {
    for handler in inbox.handlers.iter().filter(|handler| handler.backfill) {
        match stores.add_missing(&inbox, &handler.key).await {
            Ok(0) => {}
            Ok(count) => {
                tracing::info!(inbox = inbox.name, handler = handler.key, count, "backfill done");
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(
                    inbox = inbox.name,
                    handler = handler.key,
                    %error,
                    "backfill interrupted until next start"
                );
            }
        }
    }
}

/// Builds all inboxes in memory, without opening anything, to find settings that the library refuses. `serve`, each reload and
/// `config check` use it, so that all of them accept the same files.
pub(crate) fn check_plan(loaded: Loaded) -> Result<Loaded, Invalid> {
    let mut inboxes = Vec::new();
    for inbox in &loaded.plan.inboxes {
        match build(inbox, Arc::new(Memory::new()) as AnyStore) {
            Ok(built) => inboxes.push(built),
            Err(error) => {
                let (at, what) = (inbox.at, format!("{error:#}"));
                return Err(loaded.wrong(at, what));
            }
        }
    }
    // Skips a URL that is only assumed.
    for queue in
        loaded.plan.inboxes.iter().flat_map(|inbox| &inbox.rabbitmq).filter(|queue| !queue.url.is_empty())
    {
        if let Err(error) = queues::queue(queue) {
            let (at, what) = (queue.at, format!("{error:#}"));
            return Err(loaded.wrong(at, what));
        }
    }
    match ingress::router(loaded.plan.inboxes.iter().zip(&inboxes)) {
        Ok(_) => Ok(loaded),
        Err(error) => {
            let what = format!("{error:#}");
            Err(loaded.wrong(0, what))
        }
    }
}

pub(crate) fn build<S: Store>(plan: &InboxPlan, store: S) -> Result<Inbox<S>> {
    let mut config = plan.config.clone();
    config.order = plan.order.as_ref().map(|place| match place {
        KeyLocation::Header(name) => OrderBy::Header(name.as_str().into()),
        KeyLocation::Pointer(pointer) => OrderBy::JsonPointer(pointer.as_str().into()),
    });
    let mut builder = Inbox::builder(&plan.name, store).config(config).propagate(OtelPropagator);
    for handler in &plan.handlers {
        builder = builder.on(handler.types.clone(), registration(&plan.name, handler)?);
    }
    // Without the part of the error about kept data, because nothing runs yet.
    builder.build().map_err(|error| anyhow::anyhow!("{}", error.what()))
}

fn registration<S: Store>(inbox: &str, plan: &HandlerPlan) -> Result<Registration<S>> {
    let mut registration = deliver_to(inbox, &plan.key, plan.endpoint.clone())?
        .retry(plan.retry.clone())
        .concurrency(plan.concurrency)
        .on_poisoned(plan.on_poisoned);
    if plan.unordered {
        registration = registration.unordered();
    }
    if let Some(crashes) = plan.crashes {
        registration = registration.crashes(crashes);
    }
    if let Some(delay) = plan.crash_delay {
        registration = registration.crash_delay(delay);
    }
    if let Some(rate) = &plan.rate {
        registration = registration.rate(rate.clone());
    }
    if let Some(breaker) = &plan.breaker {
        registration = registration.breaker(breaker.clone());
    }
    if let Some(dedupe) = &plan.dedupe {
        registration = registration.dedupe(dedupe.clone());
    }
    if let Some(retention) = plan.retention {
        registration = registration.retention(retention);
    }
    for legacy in &plan.legacy {
        registration = registration.legacy(legacy);
    }
    Ok(registration)
}
