//! The trace context of a message, in its headers. Tests: below.

use std::fmt;

use crate::message::{Headers, Message};

/// Prefixes of trace headers: W3C first, because they are from the last hop; then the CloudEvents extension "distributed
/// tracing", as HTTP, Kafka and AMQP spell it.
const PREFIXES: [&str; 5] = ["", "ce-", "ce_", "cloudEvents:", "cloudEvents_"];
/// Maximum bytes of a state, as in the specification.
const MAX_STATE: usize = 512;
/// Header with the trace and the span.
pub(super) const PARENT: &str = "traceparent";
/// Header with vendor data.
pub(super) const STATE: &str = "tracestate";

/// Span of a producer, in the format of W3C "Trace Context".
#[derive(Clone, PartialEq, Eq)]
pub struct TraceContext {
    parent: Box<str>,
    state: Option<Box<str>>,
}

impl TraceContext {
    /// Reads the trace context of a message. `None` if it has none, or a malformed or ambiguous one: a trace is no reason to
    /// refuse a message.
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

    /// Reads a context from the headers `traceparent` and `tracestate`. Returns `None` if the first is malformed. A malformed
    /// second is ignored.
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let state = tracestate.filter(|state| is_tracestate(state));
        is_traceparent(traceparent).then(|| Self { parent: traceparent.into(), state: state.map(Into::into) })
    }

    fn in_headers(headers: &Headers, prefix: &str) -> Option<Self> {
        Self::parse(&only(headers, prefix, PARENT)?, joined(headers, prefix, STATE).as_deref())
    }

    /// Returns the header `traceparent`.
    pub fn traceparent(&self) -> &str {
        &self.parent
    }

    /// Returns the header `tracestate`, if there is one.
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Returns the trace id: 32 hexadecimal digits.
    pub fn trace_id(&self) -> &str {
        &self.parent[3..35]
    }

    /// Returns the producer's span id: 16 hexadecimal digits.
    pub fn span_id(&self) -> &str {
        &self.parent[36..52]
    }

    /// Returns true if the producer records the trace.
    pub fn is_sampled(&self) -> bool {
        u8::from_str_radix(&self.parent[53..55], 16).is_ok_and(|flags| flags & 1 == 1)
    }
}

/// Omits the state, which holds data of other vendors.
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

/// Returns the value of a header that may occur once.
fn only(headers: &Headers, prefix: &str, name: &str) -> Option<Box<str>> {
    let mut values = all(headers, prefix, name);
    let first = values.next()?;
    if values.next().is_some() {
        return None;
    }
    Some(std::str::from_utf8(first).ok()?.trim().into())
}

/// Joins the values of a header that may occur several times.
fn joined(headers: &Headers, prefix: &str, name: &str) -> Option<Box<str>> {
    let values: Option<Vec<&str>> =
        all(headers, prefix, name).map(|value| std::str::from_utf8(value).ok().map(str::trim)).collect();
    values.filter(|values| !values.is_empty()).map(|values| values.join(",").into())
}

/// Checks `version-trace-span-flags`. A later version may have more fields.
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
