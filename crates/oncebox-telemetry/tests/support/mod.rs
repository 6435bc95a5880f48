//! A test collector, and readers of spans.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "not every test program uses all of it")]

use std::fmt::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message as _;

pub const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
pub const SPAN: &str = "00f067aa0ba902b7";

/// Collector that keeps all received requests.
#[derive(Clone, Default)]
pub struct Collector(Arc<Mutex<Vec<(String, Bytes)>>>);

impl Collector {
    pub async fn start() -> (Self, String) {
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

    pub fn spans(&self) -> Vec<Span> {
        let requests = self.bodies("traces");
        let requests = requests.into_iter().map(|body| ExportTraceServiceRequest::decode(body).unwrap());
        let resources = requests.flat_map(|request| request.resource_spans);
        resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
    }

    pub fn metrics(&self) -> Vec<String> {
        let requests = self.bodies("metrics");
        let requests = requests.into_iter().map(|body| ExportMetricsServiceRequest::decode(body).unwrap());
        let resources = requests.flat_map(|request| request.resource_metrics);
        let scopes = resources.flat_map(|resource| resource.scope_metrics);
        scopes.flat_map(|scope| scope.metrics).map(|metric| metric.name).collect()
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub fn attribute(span: &Span, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns the names from a span to its root, and the root's parent.
pub fn ancestors(spans: &[Span], of: &Span) -> (Vec<String>, String) {
    let parent = spans.iter().find(|span| span.span_id == of.parent_span_id && span.trace_id == of.trace_id);
    let (mut names, last) =
        parent.map_or_else(|| (Vec::new(), hex(&of.parent_span_id)), |parent| ancestors(spans, parent));
    names.insert(0, of.name.clone());
    (names, last)
}
