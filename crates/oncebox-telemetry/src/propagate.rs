//! Trace context: the producer's span as the parent of a handler's span, and that span as the parent of further calls.
//! Tests: `tests/otlp.rs` and `tests/ways.rs`.

use std::collections::HashMap;

use oncebox::observe::{Propagate, TraceContext};
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry_http::HeaderInjector;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Connects the spans of an inbox with those of producers: pass it to `InboxBuilder::propagate`. It does nothing unless spans are
/// exported.
#[derive(Clone, Copy, Debug, Default)]
pub struct OtelPropagator;

impl Propagate for OtelPropagator {
    fn parent(&self, span: &Span, producer: &TraceContext) {
        // Fails only if nothing is exported.
        let _ = span.set_parent(context(producer));
    }

    fn link(&self, span: &Span, producer: &TraceContext) {
        span.add_link(context(producer).span().span_context().clone());
    }

    fn context(&self, span: &Span) -> Option<TraceContext> {
        let mut carrier = HashMap::new();
        TraceContextPropagator::new().inject_context(&span.context(), &mut carrier);
        let state = carrier.get("tracestate").map(String::as_str);
        TraceContext::parse(carrier.get("traceparent")?, state)
    }
}

fn context(producer: &TraceContext) -> opentelemetry::Context {
    let mut carrier = HashMap::from([("traceparent".to_owned(), producer.traceparent().to_owned())]);
    if let Some(state) = producer.tracestate() {
        carrier.insert("tracestate".to_owned(), state.to_owned());
    }
    TraceContextPropagator::new().extract_with_context(&opentelemetry::Context::new(), &carrier)
}

/// Writes `traceparent` and `tracestate` of the current span into the headers of a request.
pub fn inject(headers: &mut http::HeaderMap) {
    let context = Span::current().context();
    TraceContextPropagator::new().inject_context(&context, &mut HeaderInjector(headers));
}
