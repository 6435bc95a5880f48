//! Headers of a delivery. Tests: below.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use oncebox::Message;
use oncebox::store::Token;
use oncebox::time::Timestamp;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

/// Attributes of a run for the headers.
#[derive(Clone, Debug)]
pub(super) struct DeliveryRun {
    pub(super) inbox: String,
    pub(super) handler: String,
    pub(super) attempt: u32,
    pub(super) fence: Option<Token>,
    /// Stable across attempts.
    pub(super) idempotency_key: String,
    /// Message key, which operators use to find the message.
    pub(super) key: String,
}

/// Headers of the trace context.
const TRACE: [&str; 3] = ["traceparent", "tracestate", "baggage"];

/// Maximum length of an encoded id, in bytes. Servers refuse longer headers at every attempt.
const MAX_ID: usize = 1 << 10;
/// Maximum bytes of one forwarded header, and of all.
const MAX_VALUE: usize = 4 << 10;
const MAX_VALUES: usize = 16 << 10;

/// Returns the headers of a delivery without its signature. `forward` lists further headers of the message to send.
pub(super) fn headers(message: &Message, run: &DeliveryRun, forward: &[HeaderName]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let content_type =
        message.headers().get("content-type").and_then(|value| HeaderValue::from_bytes(value).ok());
    headers
        .insert(CONTENT_TYPE, content_type.unwrap_or(HeaderValue::from_static("application/octet-stream")));
    let event = event(message);
    forward_headers(&mut headers, message, forward, event.is_some());
    let mut set = |name: &'static str, value: &str| {
        // Percent-encoded text, numbers and hexadecimal digits are always valid.
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    let inbox = format!("/oncebox/{}", run.inbox);
    let named = if message.source().is_empty() { &*inbox } else { message.source() };
    let (source, id) = event.unwrap_or((named.as_bytes(), message.id()));
    let bounded = |bytes: &[u8], otherwise: &str| {
        let short = (bytes.len() <= MAX_ID).then(|| encoded(bytes));
        short.filter(|text| text.len() <= MAX_ID).unwrap_or_else(|| otherwise.to_owned())
    };
    set("ce-specversion", "1.0");
    set("ce-id", &bounded(id, &run.key));
    set("ce-type", &encoded(message.message_type().as_bytes()));
    set("ce-source", &bounded(source, &encoded(named.as_bytes())));
    if let Some(time) = message.time().and_then(rfc3339) {
        set("ce-time", &time);
    }
    // The verified attributes, whatever the event claims.
    set("oncebox-source", &encoded(message.source().as_bytes()));
    set("oncebox-type", &encoded(message.message_type().as_bytes()));
    set("oncebox-id", &bounded(message.id(), &run.key));
    set("idempotency-key", &run.idempotency_key);
    set("webhook-id", &run.idempotency_key);
    set("oncebox-inbox", &run.inbox);
    set("oncebox-handler", &run.handler);
    set("oncebox-key", &run.key);
    set("oncebox-attempt", &run.attempt.to_string());
    if let Some(fence) = run.fence {
        set("oncebox-fence", &fence.0.to_string());
    }
    if let Some(tenant) = message.tenant() {
        set("oncebox-tenant", &encoded(tenant.as_bytes()));
    }
    if let Some(order) = message.ordering_key() {
        set("oncebox-ordering-key", &encoded(&order[..order.len().min(256)]));
    }
    headers
}

/// Returns source and id of the event of a message. The message id is both, with a space between them.
fn event(message: &Message) -> Option<(&[u8], &[u8])> {
    let (source, id) = (message.headers().get("ce-source")?, message.headers().get("ce-id")?);
    let rest = message.id().strip_prefix(&source[..])?.strip_prefix(b" ")?;
    (rest == &id[..]).then_some((source, id))
}

/// Copies the headers of a message that may be forwarded. Encodes attributes of an event for the HTTP binding.
fn forward_headers(headers: &mut HeaderMap, message: &Message, forward: &[HeaderName], event: bool) {
    let mut left = MAX_VALUES;
    for (name, value) in message.headers().iter() {
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else { continue };
        let attribute = name.as_str().starts_with("ce-");
        let wanted = attribute || TRACE.contains(&name.as_str()) || forward.contains(&name);
        // A sender must not set our headers.
        let ours = name.as_str().starts_with("oncebox-");
        if !wanted || ours || headers.contains_key(&name) || value.len() > MAX_VALUE.min(left) {
            continue;
        }
        let value = if attribute && event {
            HeaderValue::from_str(&encoded(value)).ok()
        } else {
            HeaderValue::from_bytes(value).ok()
        };
        if let Some(value) = value.filter(|value| value.len() <= MAX_VALUE.min(left)) {
            left -= value.len();
            headers.insert(name, value);
        }
    }
}

/// Encodes a text as the HTTP binding of `CloudEvents` requires.
fn encoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if matches!(byte, 0x21..=0x7e) && !matches!(byte, b'"' | b'%') {
            text.push(char::from(*byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

fn rfc3339(time: Timestamp) -> Option<String> {
    let millis = u64::try_from(time.as_millis()).ok()?;
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis))?;
    // RFC 3339 ends with the year 9999.
    (millis < 253_402_300_800_000).then(|| humantime::format_rfc3339_millis(time).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> DeliveryRun {
        DeliveryRun {
            inbox: "orders".into(),
            handler: "ship".into(),
            attempt: 3,
            fence: Some(Token(17)),
            idempotency_key: "abc123".into(),
            key: "00ff".into(),
        }
    }

    fn text(headers: &HeaderMap, name: &str) -> Option<String> {
        headers.get(name).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn sends_all_attributes_and_forwards_only_allowed_headers() {
        let message = Message::new("evt 1%", "order.placed", "{}")
            .with_source("shop/ü")
            .with_ordering_key("customer-7")
            .with_time(Timestamp::from_millis(1_700_000_000_123))
            .with_header("Content-Type", "application/json; charset=utf-8")
            .with_header("traceparent", "00-aa-bb-01")
            .with_header("ce-subject", "7")
            .with_header("Authorization", "Bearer hunter2")
            .with_header("cookie", "hunter2")
            .with_header("x-shop", "berlin")
            .with_header("host", "elsewhere")
            .with_header("ce-id", "forged")
            .with_header("oncebox-attempt", "99");
        let headers = headers(&message, &run(), &[HeaderName::from_static("x-shop")]);
        for (name, value) in [
            ("content-type", "application/json; charset=utf-8"),
            ("traceparent", "00-aa-bb-01"),
            ("ce-subject", "7"),
            ("ce-id", "evt%201%25"),
            ("ce-source", "shop/%C3%BC"),
            ("ce-type", "order.placed"),
            ("ce-specversion", "1.0"),
            ("ce-time", "2023-11-14T22:13:20.123Z"),
            ("x-shop", "berlin"),
            ("idempotency-key", "abc123"),
            ("webhook-id", "abc123"),
            ("oncebox-inbox", "orders"),
            ("oncebox-handler", "ship"),
            ("oncebox-attempt", "3"),
            ("oncebox-fence", "17"),
            ("oncebox-key", "00ff"),
            ("oncebox-ordering-key", "customer-7"),
        ] {
            assert_eq!(text(&headers, name).as_deref(), Some(value), "{name}");
        }
        for name in ["authorization", "cookie", "host"] {
            assert_eq!(text(&headers, name), None, "{name}");
        }
    }

    #[test]
    fn an_event_is_sent_as_it_was_received() {
        let message = Message::new("/shop e 1", "placed", "{}")
            .with_source("events")
            .with_header("ce-source", "/shop")
            .with_header("ce-id", "e 1")
            .with_header("ce-subject", "caf\u{e9} 100%")
            .with_header("oncebox-source", "forged");
        let forward = [HeaderName::from_static("oncebox-source")];
        let headers = headers(&message, &run(), &forward);
        for (name, value) in [
            ("ce-source", "/shop"),
            ("ce-id", "e%201"),
            ("ce-subject", "caf%C3%A9%20100%25"),
            ("oncebox-source", "events"),
            ("oncebox-type", "placed"),
            ("oncebox-id", "/shop%20e%201"),
        ] {
            assert_eq!(text(&headers, name).as_deref(), Some(value), "{name}");
        }
    }

    #[test]
    fn a_body_that_looks_like_an_event_cannot_impersonate_another_message() {
        let message = Message::new("1", "t", "{}")
            .with_source("shop")
            .with_header("content-type", "Application/CloudEvents+JSON")
            .with_header("ce-source", "bank");
        let headers = headers(&message, &run(), &[]);
        for (name, value) in [
            ("ce-id", "1"),
            ("ce-source", "shop"),
            ("oncebox-source", "shop"),
            ("oncebox-type", "t"),
            ("oncebox-id", "1"),
        ] {
            assert_eq!(text(&headers, name).as_deref(), Some(value), "{name}");
        }
    }

    #[test]
    fn values_that_are_too_long_are_not_sent() {
        let message = Message::new(vec![b'x'; 1 << 20], "t", "").with_source("s");
        let headers_of = |message: &Message| headers(message, &run(), &[]);
        let headers = headers_of(&message);
        assert_eq!(
            (text(&headers, "ce-id").as_deref(), text(&headers, "oncebox-id").as_deref()),
            (Some("00ff"), Some("00ff"))
        );
        let mut many = Message::new("1", "t", "").with_header("ce-long", "x".repeat(5_000));
        for number in 0..40 {
            many = many.with_header(format!("ce-x{number}"), "x".repeat(1_000));
        }
        let headers = headers_of(&many);
        assert_eq!(text(&headers, "ce-long"), None);
        let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        assert!(bytes < 20_000, "{bytes}");
    }

    #[test]
    fn odd_messages_get_valid_headers() {
        let message = Message::new(vec![0, 0xff, b'\n'], "t\r\nx: y", "")
            .with_header("content-type", "text/plain\r\nx: y")
            .with_time(Timestamp::from_millis(i64::MAX));
        let headers = headers(&message, &run(), &[]);
        assert_eq!(text(&headers, "ce-id").as_deref(), Some("%00%FF%0A"));
        assert_eq!(text(&headers, "ce-type").as_deref(), Some("t%0D%0Ax:%20y"));
        assert_eq!(text(&headers, "content-type").as_deref(), Some("application/octet-stream"));
        assert_eq!(text(&headers, "ce-source").as_deref(), Some("/oncebox/orders"));
        assert_eq!(text(&headers, "ce-time"), None);
    }
}
