//! No input panics a reader, and values survive a round trip.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use oncebox::state::ErrorText;
use oncebox::store::EntryCursor;
use oncebox::{HandlerKey, Headers, InboxName, KeyStrategy, Message, is_blank};
use oncebox_http::cloudevents::{Event, decode_header, encode_header};
use oncebox_untrusted_input::{MADE, feed};

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name)
}

// FAULTS F11, G1, G2
#[test]
fn an_event_is_read_or_refused_and_what_is_read_is_read_again() {
    feed(&corpus("cloudevents"), 1, MADE, |input| {
        if let Ok(event) = Event::from_json(input) {
            let again = Event::from_json(&event.to_json()).expect("what we write we read");
            assert_eq!(
                (again.id(), again.source(), again.event_type()),
                (event.id(), event.source(), event.event_type())
            );
            let message = event.into_message();
            assert!(!message.id().is_empty());
        }
        let _ = Event::batch_from_json(input);
    });
}

#[test]
fn an_event_in_headers_is_read_or_refused() {
    feed(&corpus("headers"), 2, MADE, |input| {
        let mut headers = HeaderMap::new();
        for line in input.split(|byte| *byte == b'\n') {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            let name = HeaderName::from_bytes(line[..colon].trim_ascii());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii())) {
                headers.append(name, value);
            }
        }
        let _ = Event::from_request(&headers, Bytes::copy_from_slice(input));
        if let Ok(text) = std::str::from_utf8(input) {
            let encoded = encode_header(text);
            assert!(encoded.is_ascii());
            assert_eq!(decode_header(encoded.as_bytes()).as_deref(), Some(text));
            let _ = decode_header(input);
        }
    });
}

// FAULTS A12, G6
#[test]
fn names_and_keys_are_taken_or_refused() {
    let inbox = InboxName::new("i").expect("a name");
    feed(&corpus("names"), 3, MADE, |input| {
        if let Ok(text) = std::str::from_utf8(input) {
            for name in [
                InboxName::new(text).map(|name| name.to_string()),
                HandlerKey::new(text).map(|key| key.to_string()),
            ] {
                assert!(name.is_err() || name.is_ok_and(|name| name == text));
            }
            if let Ok(cursor) = text.parse::<EntryCursor>() {
                assert_eq!(cursor.to_string().parse::<EntryCursor>().ok(), Some(cursor));
            }
            assert!(!ErrorText::new(text).as_str().contains('\0'));
            assert!(ErrorText::new(text).as_str().chars().count() <= 2_000);
        }
        let key = |id: &[u8]| KeyStrategy::MessageId.key(&inbox, &Message::new(id.to_vec(), "t", "")).ok();
        // A blank id is a missing id.
        assert_eq!(key(input).is_none(), is_blank(input));
        let mut other = input.to_vec();
        other.push(b' ');
        assert!(is_blank(input) || key(input) != key(&other));
    });
}

// FAULTS E22
#[test]
fn stored_headers_are_read_or_said_to_be_damaged() {
    let mut headers = Headers::default();
    headers.push("traceparent", "00-1-2-01");
    headers.push("x", vec![0, 255]);
    let encoded = headers.encode();
    feed(&corpus("names"), 4, MADE, |input| {
        let _ = Headers::decode(input);
        // Damage within our own encoding.
        let mut damaged = encoded.clone();
        for (at, byte) in input.iter().enumerate().take(4) {
            let place = (at * 7 + usize::from(*byte)) % damaged.len();
            damaged[place] ^= *byte;
        }
        if let Ok(read) = Headers::decode(&damaged) {
            assert_eq!(
                Headers::decode(&read.encode()).expect("what we write we read").encode(),
                read.encode()
            );
        }
    });
}
