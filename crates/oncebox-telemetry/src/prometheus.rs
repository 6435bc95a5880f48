//! Metrics for Prometheus, at `/metrics`. Tests: `tests/routes.rs`.

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

/// Ends of the buckets of durations, in seconds: from a fast store to a backlog of days.
pub(crate) const SECONDS: [f64; 18] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3_600.0,
    21_600.0, 86_400.0,
];
/// Ends of the buckets of sizes.
pub(crate) const SIZES: [f64; 10] = [1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0];

pub(crate) fn recorder() -> PrometheusRecorder {
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_size".into()), &SIZES));
    // Fails only for an empty list of buckets.
    builder.unwrap_or_else(|_| PrometheusBuilder::new()).build_recorder()
}

/// Serves `GET /metrics`. Its labels hold no ids, but the counts are internal: restrict access to it.
pub fn metrics_router(handle: PrometheusHandle) -> Router {
    let answer = async move || {
        let headers =
            [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8"), (CACHE_CONTROL, "no-store")];
        (headers, handle.render())
    };
    Router::new().route("/metrics", get(answer))
}
