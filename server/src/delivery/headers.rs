//! What a delivery says of its message.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use oncebox::Message;
use oncebox::store::Token;
use oncebox::time::Timestamp;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

/// What is told beside the message itself.
#[derive(Clone, Debug)]
pub(super) struct DeliveryRun {
    pub(super) inbox: String,
    pub(super) handler: String,
    pub(super) attempt: u32,
    pub(super) fence: Option<Token>,
    /// The same at every attempt.
    pub(super) idempotency_key: String,
    /// The key by which the message is recognised, for whoever asks an operator about it.
    pub(super) key: String,
}

/// Headers that lead from the producer's trace to the handler's.
const TRACE: [&str; 3] = ["traceparent", "tracestate", "baggage"];

/// The longest id that is sent, in the way it is written in a header: servers refuse long headers, and would for ever.
const LONGEST_ID: usize = 1 << 10;
/// How much of a message's own headers is sent: of one, and of all.
const LONGEST_VALUE: usize = 4 << 10;
const ALL_VALUES: usize = 16 << 10;

/// Every header of a delivery but those of the signature. `forward` names further ones of the message that are passed on.
pub(super) fn headers(message: &Message, run: &DeliveryRun, forward: &[HeaderName]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let content_type =
        message.headers().get("content-type").and_then(|value| HeaderValue::from_bytes(value).ok());
    headers
        .insert(CONTENT_TYPE, content_type.unwrap_or(HeaderValue::from_static("application/octet-stream")));
    let event = event(message);
    pass_on(&mut headers, message, forward, event.is_some());
    let mut set = |name: &'static str, value: &str| {
        // Text that was percent-encoded, a number or hexadecimal digits: it always fits.
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    let inbox = format!("/oncebox/{}", run.inbox);
    let named = if message.source().is_empty() { &*inbox } else { message.source() };
    let (source, id) = event.unwrap_or((named.as_bytes(), message.id()));
    let bounded = |bytes: &[u8], otherwise: &str| {
        let short = (bytes.len() <= LONGEST_ID).then(|| encoded(bytes));
        short.filter(|text| text.len() <= LONGEST_ID).unwrap_or_else(|| otherwise.to_owned())
    };
    set("ce-specversion", "1.0");
    set("ce-id", &bounded(id, &run.key));
    set("ce-type", &encoded(message.message_type().as_bytes()));
    set("ce-source", &bounded(source, &encoded(named.as_bytes())));
    if let Some(time) = message.time().and_then(rfc3339) {
        set("ce-time", &time);
    }
    // What was verified and routed by, whatever stands in the event.
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

/// The source and id of the event that a message was made of. Its own id is both, with a blank between them.
fn event(message: &Message) -> Option<(&[u8], &[u8])> {
    let (source, id) = (message.headers().get("ce-source")?, message.headers().get("ce-id")?);
    let rest = message.id().strip_prefix(&source[..])?.strip_prefix(b" ")?;
    (rest == &id[..]).then_some((source, id))
}

/// Passes on what may be of a message's own headers. The attributes of an event are kept as text, and are written as its
/// binding asks.
fn pass_on(headers: &mut HeaderMap, message: &Message, forward: &[HeaderName], event: bool) {
    let mut left = ALL_VALUES;
    for (name, value) in message.headers().iter() {
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else { continue };
        let attribute = name.as_str().starts_with("ce-");
        let wanted = attribute || TRACE.contains(&name.as_str()) || forward.contains(&name);
        // These are ours to say.
        let ours = name.as_str().starts_with("oncebox-");
        if !wanted || ours || headers.contains_key(&name) || value.len() > LONGEST_VALUE.min(left) {
            continue;
        }
        let value = if attribute && event {
            HeaderValue::from_str(&encoded(value)).ok()
        } else {
            HeaderValue::from_bytes(value).ok()
        };
        if let Some(value) = value.filter(|value| value.len() <= LONGEST_VALUE.min(left)) {
            left -= value.len();
            headers.insert(name, value);
        }
    }
}

/// A text in the way the HTTP binding of `CloudEvents` puts it into a header.
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
    // The year 9999 is the last one that can be written.
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
    fn says_everything_and_passes_on_no_more_than_it_may() {
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
    fn an_event_goes_out_as_it_came_in() {
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
    fn a_body_that_looks_like_an_event_cannot_pose_as_another_message() {
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
    fn what_is_too_long_for_a_header_is_not_sent_in_one() {
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
    fn odd_messages_make_good_headers() {
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
