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
        let proof = Proof { headers: &headers, body: &body, peer: None, authority: None, now, window: REPLAY_WINDOW };
        for verify in all() {
            prop_assert!(!verify.holds(&proof), "{:?}", verify);
        }
    }
}

fn local(peer: Option<&str>, authority: Option<&str>, headers: &[(&'static str, &str)]) -> bool {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, HeaderValue::from_str(value).unwrap());
    }
    let authority = authority.map(|authority| authority.parse().unwrap());
    let proof = Proof {
        headers: &map,
        body: b"",
        peer: peer.map(|peer| peer.parse().unwrap()),
        authority: authority.as_ref(),
        now: Timestamp::ZERO,
        window: REPLAY_WINDOW,
    };
    Verify::loopback().holds(&proof)
}

#[test]
fn only_this_machine_is_loopback() {
    let holds = |peer: Option<&str>| local(peer, None, &[("host", "localhost:8080")]);
    assert!(holds(Some("127.0.0.1")) && holds(Some("::1")) && holds(Some("::ffff:127.0.0.1")));
    assert!(!holds(Some("10.0.0.1")) && !holds(None));
}

// FAULTS S1: a page in a browser on this machine, whose name was made to lead here.
#[test]
fn loopback_is_asked_for_by_address() {
    let near = Some("127.0.0.1");
    for host in ["127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:8080", "10.1.2.3", "localhost", "LocalHost:1"] {
        assert!(local(near, None, &[("host", host)]), "{host}");
        assert!(local(near, Some(host), &[]), "{host}");
        assert!(local(near, Some(host), &[("host", host)]), "{host}");
    }
    for host in
        ["evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example", "::1", ""]
    {
        assert!(!local(near, None, &[("host", host)]), "{host}");
        assert!(!local(near, Some("localhost"), &[("host", host)]), "{host}");
    }
    assert!(!local(near, Some("evil.example"), &[("host", "localhost")]));
    assert!(!local(near, Some("evil.example"), &[]) && !local(near, None, &[]));
    assert!(!local(near, None, &[("host", "localhost"), ("host", "localhost")]));
}

// FAULTS S1: a proxy on this machine speaks for others, and so does a browser.
#[test]
fn loopback_is_nobody_that_somebody_speaks_for() {
    let mut names =
        ["origin", "sec-fetch-site", "forwarded", "x-forwarded-for", "x-real-ip", "via"].into_iter();
    assert!(names.all(|name| !local(Some("127.0.0.1"), None, &[("host", "localhost"), (name, "x")])));
}

// FAULTS S2: by the time it takes, nobody can tell which addresses there are.
#[test]
fn what_does_not_hold_takes_the_work_of_an_address_that_is_none() {
    use crate::secret::tests::DIGESTED;

    let (headers, nobody, body) = (HeaderMap::new(), Verify::nobody().unwrap(), vec![b'x'; 100_000]);
    let work = |verify: Option<&Verify>| {
        let proof = Proof {
            headers: &headers,
            body: &body,
            peer: None,
            authority: None,
            now: Timestamp::ZERO,
            window: REPLAY_WINDOW,
        };
        DIGESTED.set(0);
        assert!(!Verify::any_holds(verify, &nobody, &proof));
        // What some of them put before the body is no matter.
        DIGESTED.get() / 1_000
    };
    assert_eq!(work(None), 100);
    for verify in all() {
        assert_eq!(work(Some(&verify)), 100, "{verify:?}");
    }
}
