//! Health over HTTP: `/livez` and `/readyz`. Tests: `tests/routes.rs`.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;
use axum::response::IntoResponse;
use axum::routing::get;
use oncebox::{Health, HealthStatus};
use serde::Serialize;

/// Health of all inboxes of a process.
#[derive(Serialize)]
struct HealthReport {
    status: HealthStatus,
    inboxes: Vec<Health>,
}

/// Serves `GET /livez` (200 while the loops of all inboxes run; otherwise a restart may help) and `GET /readyz` (200 while all
/// inboxes can accept messages). Both return 503 otherwise, and JSON with the checks: parts, store verbs, sources and handlers,
/// without ids, payloads or error texts.
///
/// ```
/// use oncebox::{Inbox, Memory};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> oncebox::Result<()> {
/// let inbox = Inbox::builder("orders", Memory::new()).build()?;
/// let running = inbox.start();
/// let routes = oncebox_telemetry::health_router(move || vec![inbox.health()]);
/// # drop((routes, running));
/// # Ok(()) }
/// ```
pub fn health_router(read: impl Fn() -> Vec<Health> + Send + Sync + 'static) -> Router {
    let read = Arc::new(read);
    let live = Arc::clone(&read);
    Router::new()
        .route("/livez", get(async move || answer(live(), |health| health.live)))
        .route("/readyz", get(async move || answer(read(), |health| health.ready)))
}

fn answer(inboxes: Vec<Health>, is_well: impl Fn(&Health) -> bool) -> impl IntoResponse {
    // A process without an inbox is not ready.
    let well = !inboxes.is_empty() && inboxes.iter().all(is_well);
    let worst = inboxes.iter().map(|health| health.status).max();
    let code = if well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let status = worst.unwrap_or(HealthStatus::Unhealthy);
    (code, [(CACHE_CONTROL, "no-store")], axum::Json(HealthReport { status, inboxes }))
}
