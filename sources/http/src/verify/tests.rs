//! Tests with forged proofs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, Request};
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
    // FAULTS S1: no panic and no acceptance.
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
        let parts = parts(headers);
        let proof = Proof { parts: &parts, body: &body, peer: None, now, window: REPLAY_WINDOW };
        for verify in all() {
            prop_assert!(!verify.holds(&proof), "{:?}", verify);
        }
    }
}

fn parts(headers: HeaderMap) -> Parts {
    let mut parts = Request::new(()).into_parts().0;
    parts.headers = headers;
    parts
}

/// Verifies the head alone, at the time 1,000.
fn head(verify: &Verify, headers: &[(&'static str, &str)]) -> HeadProof {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, HeaderValue::from_str(value).unwrap());
    }
    let now = Timestamp::from_millis(1_000_000);
    verify.check_head(&Proof { parts: &parts(map), body: b"", peer: None, now, window: REPLAY_WINDOW })
}

// FAULTS S5: a body is read only if it can still make the request good.
#[test]
fn what_no_body_can_make_good_is_known_by_its_head() {
    let (hex, base64) = ("ab".repeat(32), STANDARD.encode([7; 32]));
    let github = Verify::github(["secret"]).unwrap();
    let signed = |value: &str| head(&github, &[("x-hub-signature-256", value)]);
    assert_eq!(signed(&format!("sha256={hex}")), HeadProof::NeedsBody);
    for wrong in [&hex[..], "sha256=", &format!("sha256={hex}00"), &format!("sha1={hex}"), "sha256=x"] {
        assert_eq!(signed(wrong), HeadProof::Fails, "{wrong}");
    }
    assert_eq!(head(&github, &[]), HeadProof::Fails);
    let twice = format!("sha256={hex}");
    let twice = [("x-hub-signature-256", &*twice), ("x-hub-signature-256", &*twice)];
    assert_eq!(head(&github, &twice), HeadProof::Fails);

    let stripe = Verify::stripe(["secret"]).unwrap();
    let signed = |value: &str| head(&stripe, &[("stripe-signature", value)]);
    assert_eq!(signed(&format!("t=1000,v1={hex}")), HeadProof::NeedsBody);
    for wrong in
        ["t=1000", &format!("v1={hex}"), &format!("t=1,v1={hex}"), &format!("t=1000,t=1000,v1={hex}")]
    {
        assert_eq!(signed(wrong), HeadProof::Fails, "{wrong}");
    }

    let slack = Verify::slack(["secret"]).unwrap();
    let signed = |time: &str, tag: &str| {
        head(&slack, &[("x-slack-request-timestamp", time), ("x-slack-signature", tag)])
    };
    assert_eq!(signed("1000", &format!("v0={hex}")), HeadProof::NeedsBody);
    assert_eq!(signed("1", &format!("v0={hex}")), HeadProof::Fails);
    assert_eq!(signed("1000", "v0=ab"), HeadProof::Fails);

    let shared = Verify::standard_webhooks(["whsec_c2VjcmV0"]).unwrap();
    let signed = |id: &str, time: &str, tag: &str| {
        head(&shared, &[("webhook-id", id), ("webhook-timestamp", time), ("webhook-signature", tag)])
    };
    let v1 = format!("v1,{base64}");
    assert_eq!(signed("msg", "1000", &v1), HeadProof::NeedsBody);
    for (id, time, tag) in [
        ("", "1000", &*v1),
        ("a.b", "1000", &v1),
        ("msg", "1", &v1),
        ("msg", "", &v1),
        ("msg", "1000", "v1,YQ=="),
        ("msg", "1000", &format!("v1a,{}", STANDARD.encode([7; 64]))),
    ] {
        assert_eq!(signed(id, time, tag), HeadProof::Fails, "{id} {time} {tag}");
    }
}

// FAULTS S5: many signatures in one request do not multiply the work for a large body.
#[test]
fn a_body_is_digested_a_few_times_at_most() {
    use crate::secret::tests::DIGESTED;

    let public = "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
    let tags: Vec<String> = (0..8_u8)
        .flat_map(|number| {
            let of = |version: &str, len: usize| format!("{version},{}", STANDARD.encode(vec![number; len]));
            [of("v1", 32), of("v1a", 64)]
        })
        .collect();
    let (body, mut headers) = (vec![b'x'; 100_000], HeaderMap::new());
    for (name, value) in
        [("webhook-id", "msg"), ("webhook-timestamp", "1000"), ("webhook-signature", &*tags.join(" "))]
    {
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    let (parts, now) = (parts(headers), Timestamp::from_millis(1_000_000));
    let proof = Proof { parts: &parts, body: &body, peer: None, now, window: REPLAY_WINDOW };
    for (secrets, expected) in
        [(vec!["whsec_c2VjcmV0"], 1), (vec![public], 2), (vec!["whsec_c2VjcmV0", public], 3)]
    {
        let verify = Verify::standard_webhooks(&secrets).unwrap();
        DIGESTED.set(0);
        assert!(!verify.holds(&proof));
        assert_eq!(DIGESTED.get() / body.len(), expected, "{secrets:?}");
    }
}
