//! Tests of the formats: untrusted input gives a message, a problem or a challenge, never a panic.

use http::HeaderValue;
use proptest::prelude::*;

use super::*;

fn formats() -> [BodyFormat; 8] {
    let names = HeaderNames {
        id: HeaderName::from_static("message-id"),
        message_type: HeaderName::from_static("message-type"),
        order: HeaderName::from_static("message-ordering-key"),
    };
    [
        BodyFormat::Plain(names),
        BodyFormat::CloudEvents,
        BodyFormat::Standard,
        BodyFormat::GitHub,
        BodyFormat::Stripe,
        BodyFormat::Slack,
        BodyFormat::Shopify(ShopifyId::Event),
        BodyFormat::Shopify(ShopifyId::Webhook),
    ]
}

const NAMES: [&str; 17] = [
    "message-id",
    "message-type",
    "message-ordering-key",
    "content-type",
    "ce-id",
    "ce-source",
    "ce-type",
    "ce-specversion",
    "webhook-id",
    "webhook-timestamp",
    "svix-id",
    "svix-timestamp",
    "x-github-delivery",
    "x-github-event",
    "x-shopify-event-id",
    "x-shopify-webhook-id",
    "x-shopify-topic",
];

proptest! {
    // FAULTS F11, G1
    #[test]
    fn untrusted_input_cannot_make_it_panic(
        headers in proptest::collection::vec((0..NAMES.len(), proptest::collection::vec(any::<u8>(), 0..12)), 0..12),
        body in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..60),
            "[{]\"(id|type|event_id|challenge|data)\":[\"{0-9a-z\\[\\]}]{0,20}[}]".prop_map(String::into_bytes),
        ],
    ) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                map.append(NAMES[name], value);
            }
        }
        for format in formats() {
            let sent = VerifiedRequest { headers: &map, kept: kept(&map, None), message_type: None, max_batch: 10 };
            let read = format.read(sent, Bytes::from(body.clone()));
            if let Ok(Content::One(message)) = read {
                // The payload is stored byte for byte.
                prop_assert_eq!(message.payload(), &body);
            }
        }
    }
}

#[test]
fn the_header_that_an_endpoint_goes_by_is_not_kept() {
    let mut headers = HeaderMap::new();
    for name in ["x-digest", "x-other", "x-goog-iap-jwt-assertion", "x-session"] {
        headers.insert(name, HeaderValue::from_static("v"));
    }
    let proof = HeaderName::from_static("x-digest");
    let names = |kept: Headers| kept.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(names(kept(&headers, Some(&proof))), ["x-other"]);
    assert_eq!(names(kept(&headers, None)), ["x-digest", "x-other"]);
}

// Signed content is genuine; its other members belong to its sender.
#[test]
fn a_standard_webhook_needs_nothing_but_its_type() {
    let mut headers = HeaderMap::new();
    headers.insert("webhook-id", HeaderValue::from_static("msg_1"));
    let body = r#"{"type":"t","id":7,"created":{"at":"noon"},"data":null}"#;
    let sent =
        VerifiedRequest { headers: &headers, kept: kept(&headers, None), message_type: None, max_batch: 1 };
    let read = BodyFormat::Standard.read(sent, Bytes::from(body));
    assert!(
        matches!(read, Ok(Content::One(message)) if message.message_type() == "t" && message.id() == b"msg_1")
    );
}
