//! HTTP endpoints for messages. Tests: `tests/serve/sources.rs`.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Extension, Router};
use oncebox::{Inbox, Store};
use oncebox_http::{Anonymous, Endpoint, Ingress, Quota, ServerLimits, Verify};
use parking_lot::RwLock;
use tower::ServiceExt as _;

use crate::api::OperatorApi;
use crate::config::{self, ConfigPlan, HttpPlan, InboxPlan, PREFIX, SignatureEncoding, SourceFormat};

/// Routes for messages. A reload replaces them while connections stay open.
pub(super) struct MessageRoutes {
    current: RwLock<Router>,
    state: RwLock<IntakeState>,
    api: Arc<OperatorApi>,
}

#[derive(Clone, Copy)]
enum IntakeState {
    Waiting,
    Open,
    Closed,
}

impl MessageRoutes {
    /// Refuses messages until the stores are open.
    pub(super) fn waiting(api: Arc<OperatorApi>) -> Self {
        let current = RwLock::new(Router::new().fallback(store_unavailable));
        Self { current, state: RwLock::new(IntakeState::Waiting), api }
    }

    /// Accepts messages.
    pub(super) fn open(&self, router: Router) {
        self.replace(router);
        *self.state.write() = IntakeState::Open;
    }

    pub(super) fn replace(&self, router: Router) {
        *self.current.write() = router;
    }

    /// Reports not ready.
    pub(super) fn close(&self) {
        *self.state.write() = IntakeState::Closed;
    }

    /// Returns one word for senders and load balancers. The API reports the reasons to operators.
    fn live(&self) -> (StatusCode, &'static str) {
        if self.api.current().health().iter().all(|health| health.live) {
            (StatusCode::OK, "alive\n")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "stuck\n")
        }
    }

    fn ready(&self) -> (StatusCode, &'static str) {
        match *self.state.read() {
            IntakeState::Open => {}
            IntakeState::Waiting => return (StatusCode::SERVICE_UNAVAILABLE, "waiting for a store\n"),
            IntakeState::Closed => return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n"),
        }
        if self.api.current().health().iter().all(|health| health.ready) {
            (StatusCode::OK, "ready\n")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
        }
    }

    /// Returns the routes of the server.
    pub(super) fn router(self: &Arc<Self>) -> Router {
        let (routes, live, ready) = (Arc::clone(self), Arc::clone(self), Arc::clone(self));
        Router::new()
            .route("/livez", get(async move || (Extension(Anonymous), live.live())))
            .route("/readyz", get(async move || (Extension(Anonymous), ready.ready())))
            .fallback(async move |request: Request| {
                let router = routes.current.read().clone();
                router.oneshot(request).await.into_response()
            })
    }
}

/// Responds to senders while no store is open.
async fn store_unavailable() -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, "application/problem+json"),
        (header::CACHE_CONTROL, "no-store"),
        (header::RETRY_AFTER, "5"),
    ];
    let document = r#"{"type":"urn:oncebox:problem:unavailable","title":"Store unavailable","status":503,"detail":"the store is not open yet","kept":"nothing","advice":"retry after the time in Retry-After"}"#;
    (StatusCode::SERVICE_UNAVAILABLE, headers, document)
}

/// Returns the limits of a server.
pub(super) fn limits(plan: &ConfigPlan, connections: usize) -> ServerLimits {
    let mut limits = ServerLimits::default();
    limits.connections = connections;
    // One address never fills the port.
    limits.connections_per_address = (connections / 4).clamp(1, limits.connections_per_address);
    if let Some(grace) = plan.inboxes.iter().map(|inbox| inbox.config.grace).max() {
        limits.grace = grace;
    }
    limits
}

/// Returns the endpoints of all inboxes.
pub(super) fn router<'a, S: Store>(
    inboxes: impl IntoIterator<Item = (&'a InboxPlan, &'a Inbox<S>)>,
) -> Result<Router> {
    let mut ingress = Ingress::new().at(PREFIX);
    let mut bodies = oncebox_http::BodyLimits::default();
    for (plan, inbox) in inboxes {
        bodies.max = bodies.max.max(plan.config.limits.payload);
        for http in &plan.http {
            let endpoint =
                endpoint(http).map_err(|error| anyhow!("the endpoint {:?}: {}", http.name, error.what()))?;
            ingress = ingress.endpoint(endpoint.max_body(plan.config.limits.payload), inbox);
        }
    }
    // Large bodies may use half of the memory, which must hold two of the largest.
    bodies.in_flight = bodies.in_flight.max(bodies.max.saturating_mul(4));
    bodies.unverified = bodies.unverified.max(bodies.max.saturating_mul(4));
    ingress.bodies(bodies).into_router().map_err(|error| anyhow!("{}", error.what()))
}

fn endpoint(plan: &HttpPlan) -> oncebox::Result<Endpoint> {
    let (name, secrets) = (plan.name.as_str(), &plan.secrets);
    if plan.assumed {
        return Ok(Endpoint::plain(name).path(plan.path.as_str()).verify(Verify::loopback()));
    }
    let endpoint = match plan.format {
        SourceFormat::Plain => Endpoint::plain(name).verify(verify(plan)?),
        SourceFormat::CloudEvents => Endpoint::cloud_events(name).verify(verify(plan)?),
        SourceFormat::StandardWebhooks => Endpoint::standard_webhooks(name, secrets)?,
        SourceFormat::Github => Endpoint::github(name, secrets)?,
        SourceFormat::Stripe => Endpoint::stripe(name, secrets)?,
        SourceFormat::Slack => Endpoint::slack(name, secrets)?,
        SourceFormat::Shopify => Endpoint::shopify(name, secrets)?.shopify_id(match plan.shopify_id {
            config::ShopifyIdSetting::Event => oncebox_http::ShopifyId::Event,
            config::ShopifyIdSetting::Webhook => oncebox_http::ShopifyId::Webhook,
        })?,
    };
    let mut endpoint = endpoint.path(plan.path.as_str());
    if let Some(kind) = &plan.kind {
        endpoint = endpoint.message_type(kind.as_str());
    }
    if let Some(tenant) = &plan.tenant {
        endpoint = endpoint.tenant(tenant.as_str());
    }
    if let Some(rate) = &plan.quota {
        let per_second = f64::from(rate.count) / rate.per.as_secs_f64();
        endpoint = endpoint.quota(Quota { per_second, burst: rate.burst });
    }
    if let Some(window) = plan.replay_window {
        endpoint = endpoint.replay_window(window);
    }
    Ok(endpoint)
}

fn verify(plan: &HttpPlan) -> oncebox::Result<Verify> {
    let (header, prefix, encoding) = &plan.signature;
    match plan.verify {
        config::VerifySetting::Loopback => Ok(Verify::loopback()),
        config::VerifySetting::Open => Ok(Verify::open()),
        config::VerifySetting::Token => Verify::tokens(&plan.secrets),
        config::VerifySetting::StandardWebhooks => Verify::standard_webhooks(&plan.secrets),
        config::VerifySetting::Hmac => {
            let encoding = match encoding {
                SignatureEncoding::Hex => oncebox_http::Encoding::Hex,
                SignatureEncoding::Base64 => oncebox_http::Encoding::Base64,
            };
            Verify::hmac_sha256(header, prefix, encoding, &plan.secrets)
        }
    }
}
