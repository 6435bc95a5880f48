//! `/livez`, `/readyz` and `/metrics`.
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use oncebox::{Inbox, Memory};
use oncebox_telemetry::{OtlpSettings, Telemetry, health_router, metrics_router};
use tower::ServiceExt as _;

async fn get(routes: &axum::Router, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = routes.clone().oneshot(request).await.unwrap();
    assert_eq!(response.headers()["cache-control"], "no-store");
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

// FAULTS J7
#[tokio::test]
async fn an_inbox_is_ready_while_it_runs() {
    let inbox = Inbox::builder("orders", Memory::new()).build().unwrap();
    let routes = health_router({
        let inbox = inbox.clone();
        move || vec![inbox.health()]
    });
    for path in ["/livez", "/readyz"] {
        let (status, body) = get(&routes, path).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
        assert!(body.contains("not running"), "{body}");
    }
    let running = inbox.start();
    running.idle().await;
    for path in ["/livez", "/readyz"] {
        let (status, body) = get(&routes, path).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        assert!(body.contains(r#""subject":"component","name":"dispatcher","status":"healthy""#), "{body}");
        assert!(body.contains(r#""subject":"store","name":"backlog""#), "{body}");
    }
    running.shutdown().await;
    assert_eq!(get(&routes, "/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_process_without_an_inbox_is_not_ready() {
    let routes = health_router(Vec::new);
    assert_eq!(get(&routes, "/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn metrics_are_rendered() {
    let telemetry = Telemetry::new(&OtlpSettings::new("test")).unwrap();
    let recorder = telemetry.recorder().unwrap();
    let _guard = metrics::set_default_local_recorder(&*recorder);
    oncebox::observe::describe();
    let inbox = Inbox::builder("orders", Memory::new()).build().unwrap();
    inbox.accept(oncebox::Message::new("1", "t", "")).await.unwrap();
    let (status, body) = get(&metrics_router(telemetry.prometheus()), "/metrics").await;
    assert_eq!(status, StatusCode::OK);
    assert!(body.contains("# TYPE oncebox_accepted_total counter"), "{body}");
    assert!(body.contains(r#"oncebox_accepted_total{inbox="orders",outcome="first"} 1"#), "{body}");
}
