//! Exported data at a collector: the producer's trace on the handler's span, also after a restart, and the metrics.
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

mod support;

use std::collections::BTreeSet;

use oncebox::{BoxError, Context, Inbox, Message, handler};
use oncebox_sqlite::Sqlite;
use oncebox_telemetry::{OtelPropagator, OtlpSettings, Telemetry};
use support::{Collector, SPAN, TRACE, ancestors, attribute, hex};
use tracing_subscriber::layer::SubscriberExt as _;

async fn ship(message: Message, _: &mut Context<Sqlite>) -> Result<(), BoxError> {
    if message.id() == b"bad" { Err("no truck".into()) } else { Ok(()) }
}

fn inbox(file: &std::path::Path) -> Inbox<Sqlite> {
    let store = Sqlite::open(file).unwrap();
    let builder = Inbox::builder("orders", store).on("order.placed", handler("ship", ship));
    builder.propagate(OtelPropagator).build().unwrap()
}

#[tokio::test]
async fn a_producers_trace_arrives_on_the_span_of_the_handler() {
    let (collector, url) = Collector::start().await;
    let telemetry = Telemetry::new(&OtlpSettings::to("shop", url)).unwrap();
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
    // This stands for another process: the trace comes from the store.
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
        assert_eq!(hex(&span.trace_id), TRACE, "{id}");
        let path = ["process ship", "claim ship", "receive orders"];
        assert_eq!(ancestors(&spans, span), (path.map(str::to_owned).to_vec(), SPAN.to_owned()), "{id}");
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
    let names: BTreeSet<&str> = spans.iter().map(|span| &*span.name).collect();
    let expected = ["accept orders", "claim ship", "process ship", "receive orders", "settle ship"];
    assert_eq!(names, BTreeSet::from(expected), "no single calls of the store");
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

// An unavailable collector does no harm.
#[tokio::test]
async fn without_a_collector_messages_are_handled_all_the_same() {
    let telemetry = Telemetry::new(&OtlpSettings::to("shop", "http://127.0.0.1:9")).unwrap();
    let _spans = tracing::subscriber::set_default(tracing_subscriber::registry().with(telemetry.layer()));
    let dir = tempfile::tempdir().unwrap();
    let inbox = inbox(&dir.path().join("inbox.db"));
    inbox.accept(Message::new("1", "order.placed", "{}")).await.unwrap();
    assert_eq!(inbox.drain().await.unwrap(), 1);
    telemetry.shutdown().await;
}
