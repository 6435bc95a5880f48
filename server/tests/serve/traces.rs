//! Spans of a message that a collector receives.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Confirmation, Connection, ConnectionProperties};
use oncebox_servers::RabbitMqServer;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

use super::support::{AT_ONCE, Receiver, Reply, Request, Sidecar, one_handler, request};

const PRODUCER: &str = "b7ad6b7169203331";

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
        _ => None,
    }
}

/// A collector of spans.
struct SpanSink(Receiver);

impl SpanSink {
    fn start() -> Self {
        Self(Receiver::good())
    }

    fn sidecar(&self, config: &str, more: &[(&str, &str)]) -> Sidecar {
        let endpoint = format!("http://127.0.0.1:{}", self.0.port);
        let own = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_METRICS_EXPORTER", "none")];
        Sidecar::with_env(config, &[&own[..], more].concat())
    }

    /// Returns all spans after the sidecar has ended.
    fn spans(&self) -> Vec<Span> {
        let sent = self.0.requests().into_iter().filter(|request| request.path == "/v1/traces");
        let sent = sent.map(|request| ExportTraceServiceRequest::decode(&*request.body).unwrap());
        let scopes = sent.flat_map(|sent| sent.resource_spans).flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).collect()
    }
}

/// Formats the spans below a parent, sorted by name.
fn tree(spans: &[Span], trace: &str, parent: &str) -> String {
    let of = |span: &&Span| hex(&span.trace_id) == trace && hex(&span.parent_span_id) == parent;
    let below = |span: &Span| match tree(spans, trace, &hex(&span.span_id)) {
        none if none.is_empty() => span.name.clone(),
        some => format!("{} [{some}]", span.name),
    };
    let found: BTreeSet<String> = spans.iter().filter(of).map(below).collect();
    found.into_iter().collect::<Vec<_>>().join(", ")
}

/// Parses trace and span of a header.
fn context(header: &str) -> (String, String) {
    let parts: Vec<&str> = header.split('-').collect();
    assert!(matches!(parts[..], ["00", _, _, "01"]), "{header}");
    (parts[1].to_owned(), parts[2].to_owned())
}

fn span<'a>(spans: &'a [Span], name: &str, trace: &str) -> &'a Span {
    let found: Vec<&Span> =
        spans.iter().filter(|span| span.name == name && hex(&span.trace_id) == trace).collect();
    assert_eq!(found.len(), 1, "{name} in {trace}: {spans:#?}");
    found[0]
}

const WHOLE: &str = "receive orders [accept orders, claim ship [process ship, settle ship]]";

fn delivered<'a>(requests: &'a [Request], id: &str) -> &'a Request {
    requests.iter().find(|request| request.id() == id).unwrap_or_else(|| panic!("{id} in {requests:?}"))
}

#[test]
fn each_message_has_one_trace_from_its_receipt_to_its_settlement() {
    let (sink, handler) = (SpanSink::start(), Receiver::good());
    let sidecar = sink.sidecar(&one_handler(&handler.url(), AT_ONCE), &[]);
    let known = "0af7651916cd43dd8448eb211c80319c";
    let parent = format!("00-{known}-{PRODUCER}-01");
    let again = format!("00-1{}-{PRODUCER}-01", &known[1..]);
    let contexts =
        [("known", parent.as_str()), ("none", ""), ("malformed", "00-0AF7651916CD43DD8448EB211C80319C-x-01")];
    for (id, parent) in contexts {
        let headers = [("message-id", id), ("message-type", "t"), ("traceparent", parent)];
        let headers = if parent.is_empty() { &headers[..2] } else { &headers[..] };
        assert_eq!(request("POST", &sidecar.url("orders"), headers, b"{}").unwrap().status, 202);
    }
    let requests = handler.wait_for(3);
    let headers = [("message-id", "known"), ("message-type", "t"), ("traceparent", again.as_str())];
    assert_eq!(request("POST", &sidecar.url("orders"), &headers, b"{}").unwrap().status, 200);
    sidecar.stop();

    let spans = sink.spans();
    let mut traces = BTreeSet::new();
    for (id, _) in contexts {
        let (trace, current) = context(delivered(&requests, id).header("traceparent"));
        assert_eq!(hex(&span(&spans, "process ship", &trace).span_id), current, "{id}: passed on");
        let root = if id == "known" { PRODUCER } else { "" };
        assert_eq!(tree(&spans, &trace, root), WHOLE, "{id}: {spans:#?}");
        assert_eq!(trace == known, id == "known", "{id}");
        assert_eq!(span(&spans, "receive orders", &trace).kind, 5, "a consumer");
        for name in ["receive orders", "accept orders", "claim ship", "process ship"] {
            let found = attribute(span(&spans, name, &trace), "messaging.message.id");
            assert_eq!(found.as_deref(), Some(id), "{name}");
        }
        let settled = span(&spans, "settle ship", &trace);
        assert_eq!(attribute(settled, "oncebox.event").as_deref(), Some("done"));
        assert_eq!(attribute(settled, "oncebox.outcome").as_deref(), Some("applied"));
        assert!(traces.insert(trace), "{id} has a trace of its own");
    }
    let duplicate = format!("1{}", &known[1..]);
    assert_eq!(tree(&spans, &duplicate, PRODUCER), "receive orders [accept orders]", "it was stored before");
    let accepted = span(&spans, "accept orders", &duplicate);
    assert_eq!(attribute(accepted, "oncebox.outcome").as_deref(), Some("duplicate"));
    assert_eq!(spans.len(), 3 * 5 + 2, "no others, least of all calls of the store: {spans:#?}");
}

#[test]
fn a_message_of_a_broker_has_one_trace_too() {
    let (broker, sink, handler) = (RabbitMqServer::shared(), SpanSink::start(), Receiver::good());
    let queue = format!("traces-{}", std::process::id());
    let more = format!(
        "{AT_ONCE}[inbox.orders.rabbitmq.q]\nurl = \"env:AMQP\"\nqueue = \"{queue}\"\ndiscard_rejected = true\n"
    );
    let config = one_handler(&handler.url(), &more);
    let traces = ["1af7651916cd43dd8448eb211c80319c", "2af7651916cd43dd8448eb211c80319c"];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let connection = Connection::connect(&broker.url(), ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(queue.as_str().into(), durable, FieldTable::default()).await.unwrap();
        // Both wait in the queue, so that the sidecar receives and stores them together.
        for trace in traces {
            let mut headers = FieldTable::default();
            let parent = format!("00-{trace}-{PRODUCER}-01");
            headers.insert("traceparent".into(), AMQPValue::LongString(parent.into()));
            let properties = BasicProperties::default().with_message_id(trace.into()).with_type("t".into());
            let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
            let properties = properties.with_headers(headers);
            let sent = channel.basic_publish("".into(), queue.as_str().into(), options, b"{}", properties);
            assert!(matches!(sent.await.unwrap().await.unwrap(), Confirmation::Ack(None)));
        }
    });
    let sidecar = sink.sidecar(&config, &[("AMQP", &broker.url())]);
    let requests = handler.wait_for(2);
    sidecar.stop();
    broker.ctl(&["delete_queue", &queue]).unwrap();
    let spans = sink.spans();
    for trace in traces {
        assert_eq!(tree(&spans, trace, PRODUCER), WHOLE, "{spans:#?}");
        assert_eq!(context(delivered(&requests, trace).header("traceparent")).0, trace);
    }
    assert_eq!(spans.len(), 2 * 5, "{spans:#?}");
}

#[test]
fn a_retry_is_in_the_trace_of_its_message() {
    let (sink, failed) = (SpanSink::start(), std::sync::atomic::AtomicBool::new(false));
    let handler = Receiver::new(move |_| {
        let again = failed.swap(true, std::sync::atomic::Ordering::SeqCst);
        Reply::status(if again { 200 } else { 503 })
    });
    let sidecar = sink.sidecar(&one_handler(&handler.url(), AT_ONCE), &[]);
    let headers = [("message-id", "1"), ("message-type", "t")];
    request("POST", &sidecar.url("orders"), &headers, b"{}").unwrap();
    let requests = handler.wait_for(2);
    sidecar.stop();
    let spans = sink.spans();
    let traces: BTreeSet<String> = spans.iter().map(|span| hex(&span.trace_id)).collect();
    assert_eq!(traces.len(), 1, "{spans:#?}");
    let currents: BTreeSet<_> =
        requests.iter().map(|request| context(request.header("traceparent"))).collect();
    assert_eq!(currents.len(), 2, "each attempt has a span of its own");
    let status = |name: &str| {
        let found = spans.iter().filter(|span| span.name == name);
        found.map(|span| span.status.as_ref().map_or(0, |status| status.code)).collect::<BTreeSet<_>>()
    };
    assert_eq!(status("process ship"), BTreeSet::from([0, 2]), "{spans:#?}");
    assert_eq!(spans.iter().filter(|span| span.name == "claim ship").count(), 2);
    assert_eq!(spans.iter().filter(|span| span.name == "settle ship").count(), 2);
}

#[test]
fn calls_of_the_store_are_exported_where_the_log_filter_asks_for_them() {
    let (sink, handler) = (SpanSink::start(), Receiver::good());
    let level = [("RUST_LOG", "info,oncebox::store=debug")];
    let sidecar = sink.sidecar(&one_handler(&handler.url(), AT_ONCE), &level);
    let headers = [("message-id", "1"), ("message-type", "t")];
    request("POST", &sidecar.url("orders"), &headers, b"{}").unwrap();
    let (trace, _) = context(handler.wait_for(1)[0].header("traceparent"));
    sidecar.stop();
    let spans = sink.spans();
    let whole = "receive orders [accept orders [oncebox.store], claim ship [process ship, settle ship [oncebox.store]]]";
    assert_eq!(tree(&spans, &trace, ""), whole, "{spans:#?}");
    let verbs: BTreeSet<_> = spans.iter().filter_map(|span| attribute(span, "verb")).collect();
    assert!(verbs.contains("claim") && verbs.contains("accept"), "{verbs:?}");
}
