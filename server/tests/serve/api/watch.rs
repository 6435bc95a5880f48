//! Monitoring: metrics, health and traces.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use super::super::support::{PATIENCE, Receiver, Reply, Sidecar, get, post, request};
use super::{Depot, Operator, config, failing, poison};

#[test]
fn metrics_and_health_have_details_without_ids() {
    let depot = Depot::closed();
    let sidecar = failing(&depot, "");
    poison(&sidecar, &["evt_canary"]);
    let base = sidecar.operators();
    let metrics = get(&format!("{base}/metrics"));
    assert!(metrics.header("content-type").is_some_and(|kind| kind.starts_with("text/plain")), "{metrics:?}");
    assert!(
        metrics.body.contains(r#"oncebox_accepted_total{inbox="orders",outcome="first"} 1"#),
        "{metrics:?}"
    );
    for path in ["/livez", "/readyz"] {
        let answer = get(&format!("{base}{path}"));
        let json = answer.json();
        assert_eq!((answer.status, &json["inboxes"][0]["inbox"]), (200, &json!("orders")), "{answer:?}");
        let subjects: Vec<&Value> =
            json["inboxes"][0]["checks"].as_array().unwrap().iter().map(|one| &one["subject"]).collect();
        assert!(subjects.contains(&&json!("store")) && subjects.contains(&&json!("component")), "{json}");
        // FAULTS S23.
        assert!(!answer.body.contains("canary") && !metrics.body.contains("canary"));
    }
    let advice = Operator::new(&sidecar, None).look("/inboxes/orders/retention");
    assert_eq!((&advice["duplicates"], &advice["covered"]), (&json!(0), &json!(true)), "{advice}");
}

// FAULTS J7: health reports a large backlog.
#[test]
fn health_uses_the_limits_of_the_configuration() {
    let depot = Depot::closed();
    let text = config(&depot.handler.url(), "[health]\nbacklog_unhealthy = 1\n")
        .replace("retry = \"never\"", "retry = { attempts = 9, first = \"1h\", max = \"1h\" }");
    let dir = Arc::new(tempfile::tempdir().unwrap());
    std::fs::write(dir.path().join("oncebox.toml"), text).unwrap();
    let sidecar = Sidecar::start(Arc::clone(&dir), &[], &[]);
    assert_eq!(get(&format!("{}/readyz", sidecar.base)).status, 200);
    post(&sidecar.url("orders"), "evt_1", "t", "{}");
    sidecar.wait_words(&["failed", "evt_1"]);
    sidecar.stop();
    // The backlog is counted at the start and in intervals.
    let sidecar = Sidecar::start(dir, &[], &[]);
    let ready = format!("{}/readyz", sidecar.operators());
    let end = Instant::now() + PATIENCE;
    let answer = loop {
        let answer = get(&ready);
        if answer.status != 200 || Instant::now() > end {
            break answer;
        }
    };
    assert_eq!((answer.status, &answer.json()["status"]), (503, &json!("unhealthy")), "{answer:?}");
    let front = get(&format!("{}/readyz", sidecar.base));
    assert_eq!((front.status, front.body.as_str()), (503, "not ready\n"));
    assert_eq!(get(&format!("{}/livez", sidecar.operators())).status, 200, "a restart does not help");
}

/// The trace of a producer continues through storage to the handler, with our spans in between.
#[test]
fn a_trace_leads_from_the_producer_to_the_handler() {
    let (collector, told) = (Receiver::good(), Arc::new(AtomicBool::new(false)));
    let seen = Arc::clone(&told);
    let handler = Receiver::new(move |_| {
        seen.store(true, Ordering::SeqCst);
        Reply::status(200)
    });
    let endpoint = format!("http://127.0.0.1:{}", collector.port);
    let env = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_BSP_SCHEDULE_DELAY", "50")];
    let sidecar = Sidecar::with_env(&config(&handler.url(), ""), &env);
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let parent = format!("00-{trace}-b7ad6b7169203331-01");
    let headers = [("message-id", "1"), ("message-type", "t"), ("traceparent", parent.as_str())];
    request("POST", &sidecar.url("orders"), &headers, b"{}").unwrap();
    let request = handler.wait_for(1)[0].clone();
    let passed = request.header("traceparent");
    assert!(passed.contains(trace) && !passed.contains("b7ad6b7169203331"), "a span of ours: {passed}");
    let span: Vec<u8> = hex(passed.split('-').nth(2).unwrap());
    let holds = |body: &[u8], part: &[u8]| body.windows(part.len()).any(|window| window == part);
    collector.wait_until("our span at the collector", |all| {
        let mut traces = all.iter().filter(|request| request.path == "/v1/traces");
        traces.any(|request| holds(&request.body, &hex(trace)) && holds(&request.body, &span))
    });
    sidecar.stop();
    assert!(collector.requests().iter().any(|request| request.path == "/v1/metrics"), "metrics at the end");
    assert!(told.load(Ordering::SeqCst));
}

fn hex(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn without_a_collector_the_trace_of_the_producer_is_forwarded() {
    let handler = Receiver::good();
    let sidecar = Sidecar::with(&config(&handler.url(), ""));
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = [("message-id", "1"), ("message-type", "t"), ("traceparent", parent)];
    request("POST", &sidecar.url("orders"), &headers, b"{}").unwrap();
    assert_eq!(handler.wait_for(1)[0].header("traceparent"), parent);
}
