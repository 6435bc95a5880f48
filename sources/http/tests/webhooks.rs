//! Webhooks: their signatures and their stored content.

mod support;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use oncebox::store::Admin as _;
use oncebox::time::Clock as _;
use oncebox::{Context, Inbox, Memory, Message, handler};
use oncebox_http::{Encoding, Endpoint, Ingress, ServerLimits, ShopifyId, Verify};
use oncebox_testkit::TestClock;
use parking_lot::Mutex;
use ring::hmac;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use support::{HttpResponse, RunningServer};

struct WebhookFixture {
    server: RunningServer,
    inbox: Inbox<Memory>,
    clock: TestClock,
    seen: Arc<Mutex<Vec<Message>>>,
}

async fn fixture(endpoint: Endpoint) -> WebhookFixture {
    let clock = TestClock::new();
    let seen = Arc::<Mutex<Vec<Message>>>::default();
    let note = {
        let seen = Arc::clone(&seen);
        move |message: Message, _: &mut Context<Memory>| {
            seen.lock().push(message);
            async { Ok::<(), oncebox::Error>(()) }
        }
    };
    let types = ["push", "invoice.paid", "message", "orders/create", "contact.created", "fixed"];
    let inbox =
        Inbox::builder("in", Memory::with_clock(clock.shared())).on(types, handler("h", note)).build();
    let inbox = inbox.expect("a valid inbox");
    let ingress = Ingress::new().clock(clock.shared()).endpoint(endpoint, &inbox);
    let server =
        RunningServer::start(ingress.into_router().expect("a valid endpoint"), ServerLimits::default()).await;
    WebhookFixture { server, inbox, clock, seen }
}

impl WebhookFixture {
    async fn send(&self, headers: &[(&str, String)], body: &str) -> HttpResponse {
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
        self.server.post("/in/hook", &headers, body).await
    }

    fn now(&self) -> i64 {
        self.clock.now().as_millis() / 1_000
    }

    async fn stored(&self) -> u64 {
        self.inbox.store().count(self.inbox.name()).await.expect("counts").messages
    }

    /// Returns the handler's last message.
    async fn last(&self) -> Message {
        self.inbox.drain().await.expect("drained");
        self.seen.lock().last().cloned().expect("a message was handled")
    }
}

fn sign(secret: &[u8], parts: &[&str]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    hmac::sign(&key, parts.concat().as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).expect("four bits");
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn github(secret: &str, delivery: &str, body: &str) -> Vec<(&'static str, String)> {
    vec![
        ("x-hub-signature-256", format!("sha256={}", hex(&sign(secret.as_bytes(), &[body])))),
        ("x-github-delivery", delivery.to_owned()),
        ("x-github-event", "push".to_owned()),
    ]
}

// FAULTS S1: the vector of GitHub's documentation.
#[tokio::test]
async fn github_as_its_documentation_says() {
    let fixture = fixture(Endpoint::github("hook", ["It's a Secret to Everybody"]).unwrap()).await;
    let headers = [
        (
            "x-hub-signature-256",
            "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17".to_owned(),
        ),
        ("x-github-delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958".to_owned()),
        ("x-github-event", "push".to_owned()),
    ];
    assert_eq!(fixture.send(&headers, "Hello, World!").await.status, 202);
    assert_eq!(fixture.send(&headers, "Hello, World?").await.status, 401);
    let message = fixture.last().await;
    assert_eq!(
        (message.id(), message.message_type()),
        (&b"72d3162e-cc78-11e3-81ab-4c9367dc0958"[..], "push")
    );
    assert_eq!(message.payload(), "Hello, World!");
    assert!(message.headers().get("x-hub-signature-256").is_none());
}

#[tokio::test]
async fn a_secret_can_be_replaced_without_a_gap() {
    let fixture = fixture(Endpoint::github("hook", ["new", "old"]).unwrap()).await;
    assert_eq!(fixture.send(&github("old", "1", "{}"), "{}").await.status, 202);
    assert_eq!(fixture.send(&github("new", "2", "{}"), "{}").await.status, 202);
    assert_eq!(fixture.send(&github("older", "3", "{}"), "{}").await.status, 401);
    assert_eq!(fixture.send(&github("new", "2", "{}"), "{}").await.status, 200);
    assert_eq!(fixture.stored().await, 2);
}

fn stripe(fixture: &WebhookFixture, age: i64, body: &str) -> Vec<(&'static str, String)> {
    let time = (fixture.now() - age).to_string();
    let good = hex(&sign(b"whsec_stripe", &[&time, ".", body]));
    vec![("stripe-signature", format!("t={time}, v1={}, v0=ff, v1={good}", "0".repeat(64)))]
}

// FAULTS S3, A10: a rewritten event of a later attempt is the same event.
#[tokio::test]
async fn stripe_events_are_known_though_they_are_written_anew() {
    let fixture = fixture(Endpoint::stripe("hook", ["whsec_stripe"]).unwrap()).await;
    let event = |open: u32, amount: u32| {
        format!(
            r#"{{"id":"evt_1","type":"invoice.paid","created":1522949460,"pending_webhooks":{open},"data":{{"object":{{"amount":{amount}}}}}}}"#
        )
    };
    assert_eq!(fixture.send(&stripe(&fixture, 0, &event(2, 7)), &event(2, 7)).await.status, 202);
    assert_eq!(fixture.send(&stripe(&fixture, 0, &event(1, 7)), &event(1, 7)).await.status, 200);
    assert_eq!(fixture.send(&stripe(&fixture, 0, &event(1, 8)), &event(1, 8)).await.problem(), "conflict");
    let message = fixture.last().await;
    assert_eq!((message.id(), message.message_type()), (&b"evt_1"[..], "invoice.paid"));
    assert_eq!(message.time().map(oncebox::time::Timestamp::as_millis), Some(1_522_949_460_000));
    for (age, status) in [(299, 200), (-299, 200), (301, 401), (-301, 401)] {
        assert_eq!(
            fixture.send(&stripe(&fixture, age, &event(1, 7)), &event(1, 7)).await.status,
            status,
            "{age}"
        );
    }
    let nameless = r#"{"type":"invoice.paid","data":{}}"#;
    assert_eq!(fixture.send(&stripe(&fixture, 0, nameless), nameless).await.problem(), "missing-key");
    assert_eq!(fixture.send(&stripe(&fixture, 0, "no json"), "no json").await.problem(), "malformed");
    // Two times; the signed one is not the last.
    let time = fixture.now();
    let good = hex(&sign(b"whsec_stripe", &[&time.to_string(), ".", &event(1, 7)]));
    let twice = [("stripe-signature", format!("t={time},t={time},v1={good}"))];
    assert_eq!(fixture.send(&twice, &event(1, 7)).await.status, 401);
}

// Thin events of Stripe write the time as text. An unreadable time is ignored.
#[tokio::test]
async fn stripe_may_write_the_time_in_any_way() {
    let fixture = fixture(Endpoint::stripe("hook", ["whsec_stripe"]).unwrap()).await;
    let times = [
        (r#""2018-04-05T17:31:00.000Z""#, Some(1_522_949_460_000)),
        ("1522949460", Some(1_522_949_460_000)),
        (r#""yesterday""#, None),
        ("null", None),
        ("{}", None),
    ];
    for (number, (created, time)) in times.into_iter().enumerate() {
        let event = format!(
            r#"{{"id":"evt_{number}","object":"v2.core.event","type":"invoice.paid","created":{created}}}"#
        );
        let answer = fixture.send(&stripe(&fixture, 0, &event), &event).await;
        assert_eq!(answer.status, 202, "{created}: {answer:?}");
        let message = fixture.last().await;
        assert_eq!(message.time().map(oncebox::time::Timestamp::as_millis), time, "{created}");
    }
}

// FAULTS S11: the digest is not stored with the message, whatever its header.
#[tokio::test]
async fn the_header_with_the_digest_is_not_stored() {
    let verify = Verify::hmac_sha256("X-Digest", "", Encoding::Hex, ["secret"]).unwrap();
    let fixture = fixture(Endpoint::plain("hook").message_type("fixed").verify(verify)).await;
    let digest = hex(&sign(b"secret", &["{}"]));
    let headers = [("x-digest", digest), ("message-id", "1".to_owned()), ("x-kept", "yes".to_owned())];
    assert_eq!(fixture.send(&headers, "{}").await.status, 202);
    let message = fixture.last().await;
    assert!(message.headers().get("x-digest").is_none());
    assert_eq!(message.headers().get("x-kept").unwrap(), "yes");
}

fn slack(fixture: &WebhookFixture, age: i64, body: &str) -> Vec<(&'static str, String)> {
    let time = (fixture.now() - age).to_string();
    let signature = format!("v0={}", hex(&sign(b"slack", &["v0:", &time, ":", body])));
    vec![("x-slack-signature", signature), ("x-slack-request-timestamp", time)]
}

#[tokio::test]
async fn slack_asks_first_and_sends_then() {
    let fixture = fixture(Endpoint::slack("hook", ["slack"]).unwrap()).await;
    let question = r#"{"type":"url_verification","token":"x","challenge":"3eZbrw1aB"}"#;
    let answer = fixture.send(&slack(&fixture, 0, question), question).await;
    assert_eq!((answer.status, &*answer.body), (200, "3eZbrw1aB"));
    assert_eq!(fixture.send(&[], question).await.status, 401, "only to Slack itself");
    assert_eq!(fixture.stored().await, 0);
    let event =
        r#"{"type":"event_callback","event_id":"Ev1","event_time":1522949460,"event":{"type":"message"}}"#;
    assert_eq!(fixture.send(&slack(&fixture, 0, event), event).await.status, 202);
    assert_eq!(fixture.send(&slack(&fixture, 100, event), event).await.status, 200);
    assert_eq!(fixture.send(&slack(&fixture, 301, event), event).await.status, 401);
    let message = fixture.last().await;
    assert_eq!((message.id(), message.message_type()), (&b"Ev1"[..], "message"));
    let command = "command=%2Fdeploy";
    assert_eq!(fixture.send(&slack(&fixture, 0, command), command).await.status, 400);
}

#[tokio::test]
async fn shopify_signs_in_base64() {
    let fixture = fixture(Endpoint::shopify("hook", ["shop"]).unwrap()).await;
    let headers = |body: &str| {
        [
            ("x-shopify-hmac-sha256", BASE64.encode(sign(b"shop", &[body]))),
            ("x-shopify-webhook-id", "b54557e4".to_owned()),
            ("x-shopify-topic", "orders/create".to_owned()),
            ("x-shopify-triggered-at", "2018-04-05T17:31:00.5Z".to_owned()),
        ]
    };
    assert_eq!(fixture.send(&headers("{}"), "{}").await.status, 202);
    assert_eq!(fixture.send(&headers("{}"), "{ }").await.status, 401);
    let message = fixture.last().await;
    assert_eq!((message.id(), message.message_type()), (&b"b54557e4"[..], "orders/create"));
    assert_eq!(message.time().map(oncebox::time::Timestamp::as_millis), Some(1_522_949_460_500));
}

fn shopify(event: &str, webhook: &str, topic: &str, body: &str) -> Vec<(&'static str, String)> {
    let mut headers = vec![
        ("x-shopify-hmac-sha256", BASE64.encode(sign(b"shop", &[body]))),
        ("x-shopify-webhook-id", webhook.to_owned()),
        ("x-shopify-topic", topic.to_owned()),
    ];
    if !event.is_empty() {
        headers.push(("x-shopify-event-id", event.to_owned()));
    }
    headers
}

// One event reaches several subscriptions. Shopify advises to use the event's id; topics have different bodies.
#[tokio::test]
async fn shopify_events_are_recognised_by_the_id_that_is_chosen() {
    let by_event = fixture(Endpoint::shopify("hook", ["shop"]).unwrap()).await;
    let send = async |fixture: &WebhookFixture, event: &str, webhook: &str, topic: &str, body: &str| {
        fixture.send(&shopify(event, webhook, topic, body), body).await.status
    };
    assert_eq!(send(&by_event, "e1", "w1", "orders/create", "{}").await, 202);
    assert_eq!(by_event.last().await.id(), b"e1/orders/create");
    assert_eq!(send(&by_event, "e1", "w2", "orders/create", "{}").await, 200, "another subscription");
    assert_eq!(send(&by_event, "e1", "w3", "push", "[]").await, 202, "another topic of the same event");
    assert_eq!(send(&by_event, "e2", "w1", "orders/create", "{}").await, 202, "another event");
    assert_eq!(send(&by_event, "", "w4", "orders/create", "{}").await, 202, "none named: by the webhook");
    assert_eq!(send(&by_event, "", "w4", "orders/create", "{}").await, 200);
    assert_eq!(send(&by_event, "", "", "orders/create", "{}").await, 400);
    let by_webhook =
        fixture(Endpoint::shopify("hook", ["shop"]).unwrap().shopify_id(ShopifyId::Webhook).unwrap()).await;
    assert_eq!(send(&by_webhook, "e1", "w1", "orders/create", "{}").await, 202);
    assert_eq!(by_webhook.last().await.id(), b"w1");
    assert_eq!(send(&by_webhook, "e1", "w1", "orders/create", "{}").await, 200);
    assert_eq!(send(&by_webhook, "e1", "w2", "orders/create", "[]").await, 202, "a subscription of its own");
    assert!(Endpoint::github("hook", ["s"]).unwrap().shopify_id(ShopifyId::Webhook).is_err());
}

// A webhook of GitHub is a form if its settings choose that, as some of its pages do by default.
#[tokio::test]
async fn github_may_send_a_form() {
    let fixture = fixture(Endpoint::github("hook", ["s"]).unwrap()).await;
    let form = |delivery: &str, body: &str| {
        let mut headers = github("s", delivery, body);
        headers.push(("content-type", "application/x-www-form-urlencoded; charset=utf-8".to_owned()));
        headers
    };
    let body = "payload=%7B%22ref%22%3A%22a+b%2Bc%22%2C%22n%22%3A%5B%5D%7D";
    assert_eq!(fixture.send(&form("1", body), body).await.status, 202);
    let message = fixture.last().await;
    assert_eq!((message.message_type(), &**message.payload()), ("push", &br#"{"ref":"a b+c","n":[]}"#[..]));
    assert_eq!(message.headers().get("content-type").unwrap(), "application/json");
    assert_eq!(fixture.send(&form("1", body), body).await.status, 200);
    for wrong in ["", "payload=", "payload=%7B", "other=%7B%7D", "payload=1&payload=2", "{}"] {
        let answer = fixture.send(&form("2", wrong), wrong).await;
        assert_eq!((answer.status, &*answer.problem()), (400, "malformed"), "{wrong}");
        assert!(answer.body.contains("application/json in its settings"), "{}", answer.body);
    }
    assert_eq!(
        fixture.send(&form("3", "payload=1"), "payload=2").await.status,
        401,
        "the form is what is signed"
    );
    assert_eq!(fixture.stored().await, 1);
}

const BODY: &str = r#"{"type":"contact.created","timestamp":"2022-11-03T20:26:10Z","data":{"id":"1"}}"#;

fn standard(id: &str, time: i64, signature: String) -> Vec<(&'static str, String)> {
    vec![
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", time.to_string()),
        ("webhook-signature", signature),
    ]
}

fn v1(secret: &[u8], id: &str, time: i64) -> String {
    format!("v1,{}", BASE64.encode(sign(secret, &[id, ".", &time.to_string(), ".", BODY])))
}

// FAULTS S1, S3
#[tokio::test]
async fn standard_webhooks_with_a_shared_secret() {
    let secret = |bytes: &[u8]| format!("whsec_{}", BASE64.encode(bytes));
    let (one, other) = (b"a secret of 24 bytes....", b"another one of 25 bytes..");
    let fixture = fixture(Endpoint::standard_webhooks("hook", [secret(one), secret(other)]).unwrap()).await;
    let now = fixture.now();
    let send = async |headers: Vec<(&str, String)>| fixture.send(&headers, BODY).await.status;
    assert_eq!(send(standard("msg_1", now, v1(one, "msg_1", now))).await, 202);
    assert_eq!(send(standard("msg_1", now, v1(other, "msg_1", now))).await, 200);
    let several = format!("v1a,AAAA v2,x nonsense {}", v1(one, "msg_1", now));
    assert_eq!(send(standard("msg_1", now, several)).await, 200);
    for (what, headers) in [
        ("another id", standard("msg_2", now, v1(one, "msg_1", now))),
        ("another time", standard("msg_1", now + 1, v1(one, "msg_1", now))),
        ("another version", standard("msg_1", now, v1(one, "msg_1", now).replace("v1,", "v1a,"))),
        ("no signature", standard("msg_1", now, String::new())),
        ("too old", standard("msg_1", now - 301, v1(one, "msg_1", now - 301))),
        ("too new", standard("msg_1", now + 301, v1(one, "msg_1", now + 301))),
        ("a dot in the id", standard("msg.1", now, v1(one, "msg.1", now))),
        ("no id", standard("", now, v1(one, "", now))),
        ("too many", standard("msg_1", now, format!("{}{}", "v1,AAAA ".repeat(8), v1(one, "msg_1", now)))),
    ] {
        assert_eq!(send(headers).await, 401, "{what}");
    }
    for time in ["99999999999999999999", "-1", "+5", "9223372036854775807"] {
        let signature = format!("v1,{}", BASE64.encode(sign(one, &["msg_1.", time, ".", BODY])));
        let headers = [
            ("webhook-id", "msg_1".to_owned()),
            ("webhook-timestamp", time.to_owned()),
            ("webhook-signature", signature),
        ];
        assert_eq!(fixture.send(&headers, BODY).await.status, 401, "{time}");
    }
    // A signature expires.
    let old = standard("msg_3", now, v1(one, "msg_3", now));
    fixture.clock.advance(Duration::from_secs(299));
    assert_eq!(send(old.clone()).await, 202);
    fixture.clock.advance(Duration::from_secs(2));
    assert_eq!(send(old).await, 401);
    let message = fixture.last().await;
    assert_eq!((message.id(), message.message_type()), (&b"msg_3"[..], "contact.created"));
}

// FAULTS S1, S3: the names from before the specification. The verified header becomes the key.
#[tokio::test]
async fn standard_webhooks_with_the_headers_of_svix() {
    let secret = b"a secret of 24 bytes....";
    let endpoint = Endpoint::standard_webhooks("hook", [format!("whsec_{}", BASE64.encode(secret))]);
    let fixture = fixture(endpoint.unwrap()).await;
    let now = fixture.now();
    let svix = |id: &str, time: i64, signature: String| {
        vec![("svix-id", id.to_owned()), ("svix-timestamp", time.to_string()), ("svix-signature", signature)]
    };
    let send = async |headers: Vec<(&str, String)>| fixture.send(&headers, BODY).await.status;
    assert_eq!(send(svix("msg_1", now, v1(secret, "msg_1", now))).await, 202);
    let message = fixture.last().await;
    assert_eq!((message.id(), message.message_type()), (&b"msg_1"[..], "contact.created"));
    assert_eq!(message.time().map(|time| time.as_millis() / 1_000), Some(now));
    assert!(message.headers().get("svix-signature").is_none());
    // One message, under either set of names.
    assert_eq!(send(standard("msg_1", now, v1(secret, "msg_1", now))).await, 200);
    for (what, headers) in [
        ("another id", svix("msg_2", now, v1(secret, "msg_1", now))),
        ("too old", svix("msg_1", now - 301, v1(secret, "msg_1", now - 301))),
        ("no signature", svix("msg_1", now, String::new())),
        ("only an id", vec![("svix-id", "msg_1".to_owned())]),
    ] {
        assert_eq!(send(headers).await, 401, "{what}");
    }
    // A request with both: the names of the specification count, and the others are ignored.
    let signed = svix("msg_3", now, v1(secret, "msg_3", now));
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        let mixed = [signed.clone(), vec![(name, "msg_4".to_owned())]].concat();
        assert_eq!(send(mixed).await, 401, "{name}");
    }
    let forged = standard("msg_4", now, v1(secret, "msg_4", now));
    assert_eq!(send([signed, forged].concat()).await, 202);
    assert_eq!(fixture.last().await.id(), b"msg_4");
}

#[tokio::test]
async fn standard_webhooks_with_a_key_pair() {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let other = Ed25519KeyPair::from_seed_unchecked(&[8; 32]).unwrap();
    let public = format!("whpk_{}", BASE64.encode(pair.public_key().as_ref()));
    let fixture = fixture(Endpoint::standard_webhooks("hook", [public]).unwrap().message_type("fixed")).await;
    let now = fixture.now();
    let v1a = |pair: &Ed25519KeyPair, id: &str| {
        format!("v1a,{}", BASE64.encode(pair.sign(format!("{id}.{now}.{BODY}").as_bytes()).as_ref()))
    };
    assert_eq!(fixture.send(&standard("msg_1", now, v1a(&pair, "msg_1")), BODY).await.status, 202);
    assert_eq!(fixture.send(&standard("msg_1", now, v1a(&pair, "msg_1")), BODY).await.status, 200);
    assert_eq!(fixture.send(&standard("msg_2", now, v1a(&pair, "msg_1")), BODY).await.status, 401);
    assert_eq!(fixture.send(&standard("msg_2", now, v1a(&other, "msg_2")), BODY).await.status, 401);
    // The public key is no secret: a digest made with it proves nothing.
    let forged = v1(pair.public_key().as_ref(), "msg_2", now);
    assert_eq!(fixture.send(&standard("msg_2", now, forged), BODY).await.status, 401);
    assert_eq!(fixture.last().await.message_type(), "fixed");
}

// A signature without a private key: it holds for every message under the first of these keys.
#[test]
fn public_keys_that_need_no_private_key_are_refused() {
    let mut identity = [0; 32];
    identity[0] = 1;
    let mut forged = [0; 64];
    forged[..32].copy_from_slice(&identity);
    let verified = ring::signature::UnparsedPublicKey::new(&ring::signature::ED25519, identity)
        .verify(BODY.as_bytes(), &forged);
    assert!(verified.is_ok(), "the attack works where such a key is taken");
    let eighth = "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05";
    let other = "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a";
    let bytes = |hex: &str| -> [u8; 32] {
        std::array::from_fn(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
    };
    let near_p = |low: u8| {
        let mut key = [0xff; 32];
        (key[0], key[31]) = (low, 0x7f);
        key
    };
    let all = [identity, [0; 32], bytes(eighth), bytes(other), near_p(0xec), near_p(0xed), near_p(0xee)];
    for mut key in all {
        for _ in 0..2 {
            let error =
                Endpoint::standard_webhooks("hook", [format!("whpk_{}", BASE64.encode(key))]).unwrap_err();
            assert!(error.what().contains("small order"), "{error:?}");
            // The sign of the other coordinate is in the last bit.
            key[31] ^= 0x80;
        }
    }
}

#[test]
fn secrets_that_cannot_be_meant_are_refused_and_never_shown() {
    for secret in ["whsec_", "whsec_?", "whpk_AAAA", "whsk_AAAA", ""] {
        let error = Endpoint::standard_webhooks("hook", [secret]).unwrap_err();
        assert!(secret.len() < 7 || !format!("{error:?}").contains(&secret[6..]), "{error:?}");
    }
    let unpadded = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let shown = format!(
        "{:?} {:?} {:?}",
        Endpoint::standard_webhooks("hook", [unpadded]).unwrap(),
        Endpoint::github("hook", ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]).unwrap(),
        Verify::tokens(["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]).unwrap(),
    );
    assert!(!shown.contains("MfKQ"), "{shown}");
    assert!(Verify::hmac_sha256("no header", "", Encoding::Hex, ["s"]).is_err());
}
