//! Refusal reasons: one response for all of them, and a log line and a count for the operator.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{Request, Response};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use oncebox::time::Clock as _;
use oncebox::{Inbox, Memory};
use oncebox_http::{BodyLimits, Encoding, Endpoint, Ingress, Verify};
use oncebox_testkit::TestClock;
use parking_lot::Mutex;
use tower::ServiceExt as _;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const SECRET: &str = "the-secret-that-no-log-may-show";
const NEAR: &str = "127.0.0.1:4000";
const FAR: &str = "203.0.113.9:4000";

/// Log lines on the thread of one test.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

struct LogLine(String);

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        use std::fmt::Write as _;
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Heard {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("oncebox_http")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = LogLine(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().push(line.0);
    }
}

impl Heard {
    fn lines(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

fn router(clock: &TestClock) -> Router {
    let inbox = Inbox::builder("in", Memory::new()).build().expect("a valid inbox");
    let plain = |name: &str, verify| Endpoint::plain(name).verify(verify);
    let hmac = Verify::hmac_sha256("x-sum", "v1=", Encoding::Hex, [SECRET]);
    let whsec = format!("whsec_{}", "c2VjcmV0LXNlY3JldC1zZWNyZXQ=");
    let mut bodies = BodyLimits::default();
    bodies.max = 1_000;
    Ingress::new()
        .clock(clock.shared())
        .bodies(bodies)
        .endpoint(plain("token", Verify::tokens([SECRET]).expect("a token")), &inbox)
        .endpoint(plain("sum", hmac.expect("a secret")), &inbox)
        .endpoint(plain("near", Verify::loopback()), &inbox)
        .endpoint(Endpoint::standard_webhooks("std", [whsec]).expect("a secret"), &inbox)
        .endpoint(Endpoint::stripe("stripe", [SECRET]).expect("a secret"), &inbox)
        .endpoint(Endpoint::slack("slack", [SECRET]).expect("a secret"), &inbox)
        .into_router()
        .expect("valid endpoints")
}

async fn send(router: &Router, path: &str, peer: Option<&str>, headers: &[(&str, &str)]) -> Response<Body> {
    let mut request = Request::post(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(Body::from("body")).expect("a request");
    if let Some(peer) = peer {
        let peer: SocketAddr = peer.parse().expect("an address");
        request.extensions_mut().insert(ConnectInfo(peer));
    }
    router.clone().oneshot(request).await.expect("an answer")
}

fn counted(handle: &PrometheusHandle, source: &str, reason: &str) -> u64 {
    let name = format!("oncebox_http_unverified_total{{source=\"{source}\",reason=\"{reason}\"}} ");
    let text = handle.render();
    let found = text.lines().find_map(|line| line.strip_prefix(&name));
    found.map_or(0, |number| number.parse().expect("a number"))
}

/// Signatures of the right length, with another secret.
const SUM_TAG: &str = "v1=abababababababababababababababababababababababababababababababab";
const SLACK_TAG: &str = "v0=abababababababababababababababababababababababababababababababab";
const STANDARD_TAG: &str = "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

/// Path below `/in`, client address, headers, and the reason with the header at fault.
type RefusedRequest<'a> = (&'a str, Option<&'a str>, Vec<(&'a str, &'a str)>, &'a str, Option<&'a str>);

fn refused<'a>(now: &'a str, old: &'a str, soon: &'a str) -> Vec<RefusedRequest<'a>> {
    let signed_as =
        |time, tag| [("webhook-id", "a"), ("webhook-timestamp", time), ("webhook-signature", tag)];
    let signed = |time| signed_as(time, STANDARD_TAG);
    let svix = |time| vec![("svix-id", "a"), ("svix-timestamp", time), ("svix-signature", STANDARD_TAG)];
    let slack_as = |time, tag| vec![("x-slack-request-timestamp", time), ("x-slack-signature", tag)];
    let slack = |time| slack_as(time, SLACK_TAG);
    let host = |name| ("host", name);
    vec![
        ("none", Some(FAR), vec![], "unknown_path", None),
        ("token", Some(FAR), vec![], "missing_header", Some("authorization")),
        (
            "token",
            Some(FAR),
            vec![("authorization", "Basic eA==")],
            "malformed_header",
            Some("authorization"),
        ),
        ("token", Some(FAR), vec![("authorization", "Bearer guess")], "wrong_token", None),
        (
            "token",
            Some(FAR),
            vec![("authorization", "Bearer a"), ("authorization", "Bearer b")],
            "repeated_header",
            Some("authorization"),
        ),
        ("sum", Some(FAR), vec![], "missing_header", Some("the header of the signature")),
        ("sum", Some(FAR), vec![("x-sum", "v2=00")], "malformed_header", Some("the header of the signature")),
        ("sum", Some(FAR), vec![("x-sum", "v1=00")], "malformed_header", Some("the header of the signature")),
        ("sum", Some(FAR), vec![("x-sum", SUM_TAG)], "wrong_signature", None),
        ("std", Some(FAR), signed(now)[1..].to_vec(), "missing_header", Some("webhook-id")),
        ("std", Some(FAR), signed(now)[..2].to_vec(), "missing_header", Some("webhook-signature")),
        ("std", Some(FAR), signed("soon").to_vec(), "malformed_header", Some("webhook-timestamp")),
        ("std", Some(FAR), signed(old).to_vec(), "old_timestamp", None),
        ("std", Some(FAR), signed(soon).to_vec(), "future_timestamp", None),
        ("std", Some(FAR), signed(now).to_vec(), "wrong_signature", None),
        ("std", Some(FAR), signed_as(now, "v1,AAAA").to_vec(), "malformed_header", Some("webhook-signature")),
        ("std", Some(FAR), svix(old), "old_timestamp", None),
        ("std", Some(FAR), svix(now), "wrong_signature", None),
        ("std", Some(FAR), svix(now)[..2].to_vec(), "missing_header", Some("svix-signature")),
        (
            "stripe",
            Some(FAR),
            vec![("stripe-signature", "v1=00")],
            "malformed_header",
            Some("stripe-signature"),
        ),
        ("slack", Some(FAR), slack(old), "old_timestamp", None),
        ("slack", Some(FAR), slack_as(now, "v0=00"), "malformed_header", Some("x-slack-signature")),
        ("slack", Some(FAR), slack(now), "wrong_signature", None),
        ("near", None, vec![host("localhost")], "unknown_peer", None),
        ("near", Some(FAR), vec![host("localhost")], "not_loopback", None),
        (
            "near",
            Some(NEAR),
            vec![host("localhost"), ("x-forwarded-for", "1.2.3.4")],
            "forwarded",
            Some("x-forwarded-for"),
        ),
        ("near", Some(NEAR), vec![host("oncebox:8471")], "host_name", Some("host")),
    ]
}

// FAULTS S5: the sender learns nothing, and the operator learns why.
#[tokio::test]
async fn each_refusal_has_its_reason_in_the_log_and_the_metric() {
    let (recorder, heard, clock) =
        (PrometheusBuilder::new().build_recorder(), Heard::default(), TestClock::new());
    let handle = recorder.handle();
    let _counting = metrics::set_default_local_recorder(&recorder);
    let _listening = tracing::subscriber::set_default(heard.clone());
    let seconds = clock.now().as_millis() / 1_000;
    let (now, old, soon) =
        (seconds.to_string(), (seconds - 3_600).to_string(), (seconds + 3_600).to_string());
    let mut answers = Vec::new();
    for (at, (path, peer, headers, reason, header)) in refused(&now, &old, &soon).into_iter().enumerate() {
        // A separate router, without log lines of other requests.
        let router = router(&clock);
        let response = send(&router, &format!("/in/{path}"), peer, &headers).await;
        assert_eq!(response.status(), 401, "{at}: {path} {headers:?}");
        answers.push(axum::body::to_bytes(response.into_body(), 10_000).await.expect("a body"));
        let lines = heard.lines();
        let [line] = &lines[..] else { panic!("one line about {at}, not {lines:?}") };
        assert!(line.starts_with("WARN") && line.contains("message=a sender was not verified"), "{line}");
        for part in [format!(" reason=\"{reason}\""), format!(" path=/in/{path}"), " advice=".to_owned()] {
            assert!(line.contains(&part), "{at}: {part} in {line}");
        }
        assert!(
            peer.is_none_or(|peer| line.contains(&format!(" peer={}", &peer[..peer.len() - 5]))),
            "{line}"
        );
        let named = header.map(|name| format!(" header=\"{name}\""));
        assert!(named.is_none_or(|named| line.contains(&named)), "{at}: {header:?} in {line}");
        for secret in [SECRET, "guess", "v1=00", "AAAA", &SUM_TAG[3..]] {
            assert!(!line.contains(secret), "{line}");
        }
        let source = if path == "none" { "" } else { path };
        assert!(counted(&handle, source, reason) > 0, "{source} {reason}");
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "one answer for all");
}

// FAULTS J6, S12: a client that tries many paths fills no log, and writes only a short path into it.
#[tokio::test]
async fn untrusted_clients_cannot_fill_the_log() {
    let (heard, clock) = (Heard::default(), TestClock::new());
    let _listening = tracing::subscriber::set_default(heard.clone());
    let router = router(&clock);
    for n in 0..50 {
        let path = format!("/in/{n}-{}-%0a%1b[31mERROR", "x".repeat(500));
        send(&router, &path, Some(FAR), &[]).await;
    }
    let lines = heard.lines();
    assert_eq!(lines.len(), 5, "{lines:#?}");
    assert!(lines.iter().all(|line| line.len() < 500 && !line.contains(char::is_control)), "{lines:#?}");
    send(&router, "/in/token", Some(FAR), &[]).await;
    assert_eq!(heard.lines().len(), 1, "another reason has lines of its own");
    clock.advance(Duration::from_mins(1));
    send(&router, "/in/guess", Some(FAR), &[]).await;
    let lines = heard.lines();
    assert!(lines.len() == 1 && lines[0].contains("suppressed=45"), "{lines:#?}");
}

// A program that starts with a secret that is guessed easily says so, and does not show it.
#[test]
fn weak_secrets_of_a_program_are_logged() {
    let heard = Heard::default();
    let _listening = tracing::subscriber::set_default(heard.clone());
    let weak = "tr0ub4d";
    Verify::tokens([weak]).expect("a token");
    Verify::github([weak]).expect("a secret");
    Endpoint::standard_webhooks("std", ["whsec_eA=="]).expect("a secret");
    let lines = heard.lines();
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(lines.iter().all(|line| line.contains("weak secret") && !line.contains(weak)), "{lines:#?}");
    Verify::tokens([SECRET]).expect("a token");
    Endpoint::standard_webhooks("std", ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]).expect("a secret");
    assert!(heard.lines().is_empty());
}
