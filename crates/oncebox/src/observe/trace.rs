//! The producer's trace, from its headers to the span of a handler.
//!
//! The library makes spans with `tracing` and knows nothing of what they are exported to. Whoever exports them gives the
//! inbox a [`Propagate`], which makes the producer's span the parent of ours.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tracing::Span;

use crate::message::{Headers, Message};
use crate::name::{HandlerKey, InboxName};

/// Where a trace may stand: W3C headers first, because they tell of the last hop; then the extension "distributed tracing" of
/// CloudEvents, as HTTP, Kafka and AMQP spell it.
const PREFIXES: [&str; 5] = ["", "ce-", "ce_", "cloudEvents:", "cloudEvents_"];
/// The longest state that is passed on; the specification asks for no more.
const MAX_STATE: usize = 512;
/// The longest message id in a span.
const MAX_ID: usize = 128;

/// The span of a producer, as the W3C recommendation "Trace Context" writes it.
#[derive(Clone, PartialEq, Eq)]
pub struct TraceContext {
    parent: Box<str>,
    state: Option<Box<str>>,
}

impl TraceContext {
    /// The trace that a message came with. Nothing if it has none, or if what it has is malformed or ambiguous: a trace is
    /// not worth refusing a message for.
    ///
    /// ```
    /// use oncebox::{Message, observe::TraceContext};
    ///
    /// let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    /// let message = Message::new("1", "order.placed", "{}").with_header("traceparent", parent);
    /// let trace = TraceContext::of(&message).unwrap();
    /// assert_eq!(trace.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
    /// ```
    pub fn of(message: &Message) -> Option<Self> {
        PREFIXES.iter().find_map(|prefix| Self::in_headers(message.headers(), prefix))
    }

    fn in_headers(headers: &Headers, prefix: &str) -> Option<Self> {
        let parent = only(headers, prefix, "traceparent")?;
        if !is_traceparent(&parent) {
            return None;
        }
        // A state that cannot be read is left out; the parent still holds.
        let state = joined(headers, prefix, "tracestate").filter(|state| is_tracestate(state));
        Some(Self { parent, state })
    }

    /// The header `traceparent`, to hand on.
    pub fn traceparent(&self) -> &str {
        &self.parent
    }

    /// The header `tracestate`, if there is one.
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// The trace: 32 hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        &self.parent[3..35]
    }

    /// The producer's span: 16 hexadecimal digits.
    pub fn span_id(&self) -> &str {
        &self.parent[36..52]
    }

    /// Whether the producer records the trace.
    pub fn is_sampled(&self) -> bool {
        u8::from_str_radix(&self.parent[53..55], 16).is_ok_and(|flags| flags & 1 == 1)
    }
}

/// Without the state, which holds what other vendors like.
impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceContext").field("parent", &self.parent).finish_non_exhaustive()
    }
}

fn all<'a>(headers: &'a Headers, prefix: &'a str, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let is = move |found: &str| {
        let (len, wanted) = (found.len(), prefix.len() + name.len());
        len == wanted
            && found.is_char_boundary(prefix.len())
            && found[..prefix.len()].eq_ignore_ascii_case(prefix)
            && found[prefix.len()..].eq_ignore_ascii_case(name)
    };
    headers.iter().filter(move |(found, _)| is(found)).map(|(_, value)| &**value)
}

/// The value of a header that may be there once.
fn only(headers: &Headers, prefix: &str, name: &str) -> Option<Box<str>> {
    let mut values = all(headers, prefix, name);
    let first = values.next()?;
    if values.next().is_some() {
        return None;
    }
    Some(std::str::from_utf8(first).ok()?.trim().into())
}

/// The values of a header that may be there several times, as one.
fn joined(headers: &Headers, prefix: &str, name: &str) -> Option<Box<str>> {
    let values: Option<Vec<&str>> =
        all(headers, prefix, name).map(|value| std::str::from_utf8(value).ok().map(str::trim)).collect();
    values.filter(|values| !values.is_empty()).map(|values| values.join(",").into())
}

/// `version-trace-span-flags`. A later version may have more behind that.
fn is_traceparent(text: &str) -> bool {
    let bytes = text.as_bytes();
    let hex = |part: &[u8]| part.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let zero = |part: &[u8]| part.iter().all(|byte| *byte == b'0');
    let (Some(version), Some(trace), Some(span), Some(flags)) =
        (bytes.get(..2), bytes.get(3..35), bytes.get(36..52), bytes.get(53..55))
    else {
        return false;
    };
    let dashes = [2, 35, 52].into_iter().all(|at| bytes[at] == b'-');
    let end = match version {
        b"00" => bytes.len() == 55,
        _ => bytes.len() == 55 || (bytes[55] == b'-' && bytes.len() <= MAX_STATE && text.is_ascii()),
    };
    let parts = [version, trace, span, flags].into_iter().all(hex);
    dashes && end && parts && version != b"ff" && !zero(trace) && !zero(span)
}

fn is_tracestate(text: &str) -> bool {
    let printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
    !text.is_empty() && text.len() <= MAX_STATE && printable
}

/// Ties spans of the library to those of producers. For a program that exports traces: the library itself only makes spans.
pub trait Propagate: Send + Sync + 'static {
    /// Makes the producer's span the parent of `span`, which has just been made.
    fn parent(&self, span: &Span, producer: &TraceContext);

    /// Links `span` to the producer of one of several messages that it is about.
    fn link(&self, span: &Span, producer: &TraceContext) {
        let _ = (span, producer);
    }
}

/// A propagator that cannot harm what it is called for.
#[derive(Default)]
pub(crate) struct Propagator(Option<Box<dyn Propagate>>);

impl Propagator {
    pub(crate) fn new(propagate: impl Propagate) -> Self {
        Self(Some(Box::new(propagate)))
    }

    fn tell(&self, message: &Message, tell: impl FnOnce(&dyn Propagate, &TraceContext)) {
        let Some(propagate) = &self.0 else { return };
        let Some(producer) = TraceContext::of(message) else { return };
        let _ = catch_unwind(AssertUnwindSafe(|| tell(&**propagate, &producer)));
    }

    /// The span of one message that is received.
    pub(crate) fn receiving(&self, inbox: &InboxName, source: &str, message: &Message) -> Span {
        let span = tracing::info_span!(
            "oncebox.receive",
            otel.name = format!("receive {inbox}"),
            otel.kind = "consumer",
            messaging.system = "oncebox",
            messaging.operation.name = "receive",
            messaging.operation.r#type = "receive",
            messaging.destination.name = %inbox,
            messaging.message.id = id(message),
            oncebox.source = source,
            oncebox.message_type = message.kind(),
        );
        self.tell(message, |propagate, producer| propagate.parent(&span, producer));
        span
    }

    /// The span of several messages that are received together: linked to each of them, child of none.
    pub(crate) fn receiving_batch<'a>(
        &self,
        inbox: &InboxName,
        source: &str,
        messages: impl ExactSizeIterator<Item = &'a Message>,
    ) -> Span {
        let count = messages.len();
        let span = tracing::info_span!(
            "oncebox.receive_batch",
            otel.name = format!("receive {inbox}"),
            otel.kind = "consumer",
            messaging.system = "oncebox",
            messaging.operation.name = "receive",
            messaging.operation.r#type = "receive",
            messaging.destination.name = %inbox,
            messaging.batch.message_count = count,
            oncebox.source = source,
        );
        for message in messages {
            self.tell(message, |propagate, producer| propagate.link(&span, producer));
        }
        span
    }

    /// The span of a handler that runs for one message.
    pub(crate) fn handling(
        &self,
        inbox: &InboxName,
        handler: &HandlerKey,
        message: &Message,
        (seq, attempt): (Option<i64>, u32),
    ) -> Span {
        let span = tracing::info_span!(
            "oncebox.handle",
            otel.name = format!("process {handler}"),
            otel.kind = "consumer",
            otel.status_code = tracing::field::Empty,
            messaging.system = "oncebox",
            messaging.operation.name = "process",
            messaging.operation.r#type = "process",
            messaging.destination.name = %inbox,
            messaging.consumer.group.name = %handler,
            messaging.message.id = id(message),
            messaging.message.body.size = message.payload().len(),
            oncebox.message_type = message.kind(),
            handler = %handler,
            seq,
            attempt,
        );
        self.tell(message, |propagate, producer| propagate.parent(&span, producer));
        span
    }

    /// The span of a handler that runs for several messages: linked to each of them, child of none.
    pub(crate) fn handling_batch<'a>(
        &self,
        inbox: &InboxName,
        handler: &HandlerKey,
        messages: impl ExactSizeIterator<Item = &'a Message>,
    ) -> Span {
        let count = messages.len();
        let span = tracing::info_span!(
            "oncebox.handle_batch",
            otel.name = format!("process {handler}"),
            otel.kind = "consumer",
            otel.status_code = tracing::field::Empty,
            messaging.system = "oncebox",
            messaging.operation.name = "process",
            messaging.operation.r#type = "process",
            messaging.destination.name = %inbox,
            messaging.consumer.group.name = %handler,
            messaging.batch.message_count = count,
            handler = %handler,
        );
        for message in messages {
            self.tell(message, |propagate, producer| propagate.link(&span, producer));
        }
        span
    }
}

/// A message's id as text; nothing if it is long or not text.
fn id(message: &Message) -> Option<&str> {
    std::str::from_utf8(message.id()).ok().filter(|id| id.len() <= MAX_ID)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn of(headers: &[(&str, &str)]) -> Option<TraceContext> {
        let message = Message::new("1", "t", "");
        TraceContext::of(
            &headers
                .iter()
                .fold(message, |message, (name, value)| message.with_header(*name, (*value).to_owned())),
        )
    }

    #[test]
    fn a_parent_is_found_wherever_a_transport_puts_it() {
        for name in
            ["traceparent", "TraceParent", "ce-traceparent", "ce_traceparent", "cloudEvents:traceparent"]
        {
            let trace = of(&[(name, PARENT)]).unwrap();
            assert_eq!(trace.traceparent(), PARENT);
            assert_eq!(trace.span_id(), "00f067aa0ba902b7");
            assert!(trace.is_sampled());
        }
        let other = PARENT.replace("4bf9", "0000");
        let both = of(&[("ce-traceparent", &other), ("traceparent", PARENT)]).unwrap();
        assert_eq!(both.traceparent(), PARENT, "the last hop");
        let broken = of(&[("ce-traceparent", &other), ("traceparent", "00-nonsense")]).unwrap();
        assert_eq!(broken.traceparent(), other, "what is malformed counts as absent");
    }

    #[test]
    fn what_is_malformed_is_ignored() {
        let long = format!("{PARENT}-{}", "x".repeat(600));
        for bad in [
            "",
            "00",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
            "00-4bf92f3577b34da6a3ce929d0e0e473\u{e9}-00f067aa0ba902b7-01",
            &long,
        ] {
            assert_eq!(of(&[("traceparent", bad)]), None, "{bad}");
        }
        assert_eq!(of(&[("traceparent", PARENT), ("traceparent", PARENT)]), None, "ambiguous");
        assert!(
            of(&[("traceparent", "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-new")]).is_some()
        );
    }

    #[test]
    fn a_state_is_joined_and_a_bad_one_left_out() {
        let state = of(&[("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2")]).unwrap();
        assert_eq!(state.tracestate(), Some("a=1,b=2"));
        let long = "a".repeat(513);
        for bad in ["", "\u{1}", &long] {
            assert_eq!(of(&[("traceparent", PARENT), ("tracestate", bad)]).unwrap().tracestate(), None);
        }
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic(value in proptest::collection::vec(any::<u8>(), 0..80), name in ".{0,20}") {
            let message = Message::new("1", "t", "").with_header("traceparent", value.clone()).with_header(name, value);
            let _ = TraceContext::of(&message);
        }

        #[test]
        fn near_misses_do_not_panic(cut in 0..56usize, put in any::<char>()) {
            let mut text = PARENT.to_owned();
            if cut <= text.len() {
                text.insert(cut, put);
            }
            let _ = of(&[("traceparent", &text)]).map(|trace| (trace.span_id().len(), trace.is_sampled()));
        }
    }
}
