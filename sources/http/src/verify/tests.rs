//! Proofs that strangers make up.

use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;

use super::*;

fn all() -> Vec<Verify> {
    vec![
        Verify::tokens(["token"]).expect("a token"),
        Verify::github(["secret"]).expect("a secret"),
        Verify::shopify(["secret"]).expect("a secret"),
        Verify::stripe(["secret"]).expect("a secret"),
        Verify::slack(["secret"]).expect("a secret"),
        Verify::standard_webhooks(["whsec_c2VjcmV0", "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="])
            .expect("a secret and a key"),
        Verify::nobody().expect("random numbers"),
        Verify::loopback(),
    ]
}

const NAMES: [&str; 9] = [
    "authorization",
    "x-hub-signature-256",
    "x-shopify-hmac-sha256",
    "stripe-signature",
    "x-slack-signature",
    "x-slack-request-timestamp",
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
];

proptest! {
    // FAULTS S1: neither a panic nor a way in.
    #[test]
    fn nothing_made_up_is_a_proof(
        values in proptest::collection::vec(
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..60),
                "(Bearer |sha256=|t=[0-9]{0,20},v1=|v0=|v1,|v1a,|[0-9]{1,20})[A-Za-z0-9+/=, ]{0,90}".prop_map(String::into_bytes),
            ],
            NAMES.len(),
        ),
        body in proptest::collection::vec(any::<u8>(), 0..40),
        now in any::<i64>(),
    ) {
        let mut headers = HeaderMap::new();
        for (name, value) in NAMES.into_iter().zip(values) {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.append(name, value);
            }
        }
        let now = Timestamp::from_millis(now);
        let proof = Proof { headers: &headers, body: &body, peer: None, now, window: REPLAY_WINDOW };
        for verify in all() {
            prop_assert!(!verify.holds(&proof), "{:?}", verify);
        }
    }
}

#[test]
fn only_this_machine_is_loopback() {
    let headers = HeaderMap::new();
    let holds = |peer: Option<&str>| {
        let peer = peer.map(|peer| peer.parse().unwrap());
        let proof = Proof { headers: &headers, body: b"", peer, now: Timestamp::ZERO, window: REPLAY_WINDOW };
        Verify::loopback().holds(&proof)
    };
    assert!(holds(Some("127.0.0.1")) && holds(Some("::1")) && holds(Some("::ffff:127.0.0.1")));
    assert!(!holds(Some("10.0.0.1")) && !holds(None));
}
