//! What a collector gets: the producer's trace on the handler's span, after a restart too, and the metrics.
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::routing::post;
use oncebox::{BoxError, Context, Inbox, Message, handler};
use oncebox_sqlite::Sqlite;
use oncebox_telemetry::{Propagator, Settings, Telemetry};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message as _;
use tracing_subscriber::layer::SubscriberExt as _;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

/// A collector that keeps what it is sent.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<(String, Bytes)>>>);

impl Collector {
    async fn start() -> (Self, String) {
        let collector = Self::default();
        let take = async |State(Self(kept)): State<Self>, Path(signal): Path<String>, body: Bytes| {
            kept.lock().push((signal, body));
        };
        let routes = Router::new().route("/v1/{signal}", post(take)).with_state(collector.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        (collector, url)
    }

    fn bodies(&self, signal: &str) -> Vec<Bytes> {
        self.0.lock().iter().filter(|(kept, _)| kept == signal).map(|(_, body)| body.clone()).collect()
    }

    fn spans(&self) -> Vec<Span> {
        let requests = self.bodies("traces");
        let requests = requests.into_iter().map(|body| ExportTraceServiceRequest::decode(body).unwrap());
        let resources = requests.flat_map(|request| request.resource_spans);
        resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
    }

    fn metrics(&self) -> Vec<String> {
        let requests = self.bodies("metrics");
        let requests = requests.into_iter().map(|body| ExportMetricsServiceRequest::decode(body).unwrap());
        let resources = requests.flat_map(|request| request.resource_metrics);
        let scopes = resources.flat_map(|resource| resource.scope_metrics);
        scopes.flat_map(|scope| scope.metrics).map(|metric| metric.name).collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn attribute(span: &Span, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        _ => None,
    }
}

async fn ship(message: Message, _: &mut Context<Sqlite>) -> Result<(), BoxError> {
    if message.id() == b"bad" { Err("no truck".into()) } else { Ok(()) }
}

fn inbox(file: &std::path::Path) -> Inbox<Sqlite> {
    let store = Sqlite::open(file).unwrap();
    let builder = Inbox::builder("orders", store).on("order.placed", handler("ship", ship));
    builder.propagate(Propagator).build().unwrap()
}

#[tokio::test]
async fn a_producers_trace_arrives_on_the_span_of_the_handler() {
    let (collector, url) = Collector::start().await;
    let telemetry = Telemetry::new(&Settings::to("shop", url)).unwrap();
    let recorder = telemetry.recorder().unwrap();
    let _metrics = metrics::set_default_local_recorder(&*recorder);
    let _spans = tracing::subscriber::set_default(tracing_subscriber::registry().with(telemetry.layer()));

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("inbox.db");
    let parent = format!("00-{TRACE}-{SPAN}-01");
    {
        let inbox = inbox(&file);
        let message = |id: &'static str| Message::new(id, "order.placed", "{}");
        inbox.accept(message("good").with_header("traceparent", parent.clone())).await.unwrap();
        inbox.accept(message("event").with_header("ce-traceparent", parent.clone())).await.unwrap();
        inbox.accept(message("bad").with_header("traceparent", parent)).await.unwrap();
        inbox.accept(message("malformed").with_header("traceparent", "00-nonsense-01")).await.unwrap();
    }
    // Another process, as it were: the trace comes from the store.
    assert_eq!(inbox(&file).drain().await.unwrap(), 4);
    let scraped = telemetry.prometheus().render();
    telemetry.shutdown().await;

    let spans = collector.spans();
    let of = |id: &str| {
        let handled = spans.iter().filter(|span| span.name == "process ship");
        let mut found = handled.filter(|span| attribute(span, "messaging.message.id").as_deref() == Some(id));
        found.next().unwrap_or_else(|| panic!("no span for {id} among {spans:?}"))
    };
    for id in ["good", "event", "bad"] {
        let span = of(id);
        assert_eq!((hex(&span.trace_id), hex(&span.parent_span_id)), (TRACE.into(), SPAN.into()), "{id}");
        assert_eq!(span.kind, 5, "a consumer");
        for (key, value) in [
            ("messaging.system", "oncebox"),
            ("messaging.operation.type", "process"),
            ("messaging.destination.name", "orders"),
            ("messaging.consumer.group.name", "ship"),
        ] {
            assert_eq!(attribute(span, key).as_deref(), Some(value), "{id}");
        }
    }
    let failed = |id| of(id).status.as_ref().map(|status| status.code);
    assert_eq!((failed("bad"), failed("good")), (Some(2), Some(0)));
    assert_ne!(
        hex(&of("malformed").trace_id),
        TRACE,
        "a malformed trace is ignored, and its message handled"
    );

    let exported = collector.metrics();
    for name in ["oncebox_settled_total", "oncebox_handler_seconds", "oncebox_lag_seconds"] {
        assert!(exported.iter().any(|known| known == name), "{name} in {exported:?}");
        assert!(scraped.contains(name), "{name} in {scraped}");
    }
    assert!(
        scraped.contains(r#"oncebox_settled_total{inbox="orders",handler="ship",event="done"} 3"#),
        "{scraped}"
    );
    assert!(
        scraped.contains(r#"oncebox_handler_seconds_bucket{inbox="orders",handler="ship",le="0.001"}"#),
        "{scraped}"
    );
}

// A collector that is away harms nothing.
#[tokio::test]
async fn without_a_collector_messages_are_handled_all_the_same() {
    let telemetry = Telemetry::new(&Settings::to("shop", "http://127.0.0.1:9")).unwrap();
    let _spans = tracing::subscriber::set_default(tracing_subscriber::registry().with(telemetry.layer()));
    let dir = tempfile::tempdir().unwrap();
    let inbox = inbox(&dir.path().join("inbox.db"));
    inbox.accept(Message::new("1", "order.placed", "{}")).await.unwrap();
    assert_eq!(inbox.drain().await.unwrap(), 1);
    telemetry.shutdown().await;
}
