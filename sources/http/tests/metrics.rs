//! Responses are counted for every sender.

mod support;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use oncebox::{Inbox, Memory};
use oncebox_http::{BodyLimits, Endpoint, Ingress, Quota, ServerLimits, Verify};
use oncebox_testkit::TestClock;
use support::RunningServer;

const TOKEN: (&str, &str) = ("authorization", "Bearer token");
const KIND: (&str, &str) = ("message-type", "t");

fn counted(handle: &PrometheusHandle, source: &str, answer: &str) -> usize {
    let name = format!("oncebox_http_responses_total{{source=\"{source}\",result=\"{answer}\"}} ");
    let text = handle.render();
    let found = text.lines().find_map(|line| line.strip_prefix(&name));
    found.map_or(0, |number| number.parse().expect("a number"))
}

// FAULTS J5, S5, S6: 401, 413 and 429 are counted, and untrusted clients add no labels.
#[tokio::test]
async fn every_response_is_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    // The server of the test runs on its thread.
    let _listening = metrics::set_default_local_recorder(&recorder);
    let inbox = Inbox::builder("in", Memory::new()).build().expect("a valid inbox");
    let endpoint = |name: &str| Endpoint::plain(name).verify(Verify::tokens(["token"]).expect("a token"));
    let mut bodies = BodyLimits::default();
    bodies.max = 1_000;
    let ingress = Ingress::new()
        .clock(TestClock::new().shared())
        .bodies(bodies)
        .endpoint(endpoint("shop"), &inbox)
        .endpoint(endpoint("slow").quota(Quota::per_second(1)), &inbox);
    let server =
        RunningServer::start(ingress.into_router().expect("valid endpoints"), ServerLimits::default()).await;
    let large = "x".repeat(1_001);
    for (path, headers, body, expected) in [
        ("/in/shop", vec![TOKEN, KIND, ("message-id", "1")], "", 202),
        ("/in/shop", vec![TOKEN, KIND, ("message-id", "1")], "", 200),
        ("/in/shop", vec![TOKEN, KIND, ("message-id", "1")], "other", 422),
        ("/in/shop", vec![TOKEN, KIND], "", 400),
        ("/in/shop", vec![KIND, ("message-id", "2")], "", 401),
        ("/in/guess-1", vec![], "", 401),
        ("/in/guess-2", vec![], "", 401),
        ("/in/shop", vec![TOKEN, KIND, ("message-id", "3")], &large, 413),
        ("/in/slow", vec![TOKEN, KIND, ("message-id", "1")], "", 202),
        ("/in/slow", vec![TOKEN, KIND, ("message-id", "2")], "", 429),
    ] {
        assert_eq!(server.post(path, &headers, body).await.status, expected, "{path} {headers:?}");
    }
    for (source, answer, expected) in [
        ("shop", "accepted", 1),
        ("shop", "duplicate", 1),
        ("shop", "conflict", 1),
        ("shop", "missing-key", 1),
        ("shop", "unverified", 1),
        ("", "unverified", 2),
        ("shop", "too-large", 1),
        ("slow", "accepted", 1),
        ("slow", "over-quota", 1),
    ] {
        assert_eq!(counted(&handle, source, answer), expected, "{source} {answer}");
    }
    assert!(!handle.render().contains("guess"), "a guessed path is no label");
}
