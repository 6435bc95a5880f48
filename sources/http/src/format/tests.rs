//! Whatever strangers send, it is a message, a problem or a question, and never a panic.

use http::HeaderValue;
use proptest::prelude::*;

use super::*;

fn formats() -> [Format; 7] {
    let names = Names {
        id: HeaderName::from_static("message-id"),
        kind: HeaderName::from_static("message-type"),
        order: HeaderName::from_static("message-ordering-key"),
    };
    [
        Format::Plain(names),
        Format::CloudEvents,
        Format::Standard,
        Format::GitHub,
        Format::Stripe,
        Format::Slack,
        Format::Shopify,
    ]
}

const NAMES: [&str; 14] = [
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
    "x-github-delivery",
    "x-github-event",
    "x-shopify-webhook-id",
    "x-shopify-topic",
];

proptest! {
    // FAULTS F11, G1
    #[test]
    fn strangers_cannot_make_it_panic(
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
            let read = format.read(&map, Bytes::from(body.clone()), None);
            if let Ok(Content::One(message)) = read {
                // What is stored is what was sent.
                prop_assert_eq!(message.payload(), &body);
            }
        }
    }
}
