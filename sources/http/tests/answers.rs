//! Responses to senders, and the stored messages.

mod support;

use std::sync::Arc;
use std::time::Duration;

use oncebox::config::{OnConflict, Unrouted};
use oncebox::store::{Admin as _, InboxCounts};
use oncebox::{Config, Context, Dedupe, ErrorKind, Inbox, KeyStrategy, Memory, Message, Retry, handler};
use oncebox_http::{BodyLimits, Endpoint, Ingress, Quota, ServerLimits, Verify};
use oncebox_testkit::{FaultyStore, StoreFault, StoreVerb, TestClock};
use parking_lot::Mutex;
use support::{HttpResponse, RawHttpClient, RunningServer, in_time};
use tokio::sync::watch;

type AnswersStore = FaultyStore<Memory>;

struct AnswersFixture {
    server: RunningServer,
    inbox: Inbox<AnswersStore>,
    clock: TestClock,
    seen: Arc<Mutex<Vec<Message>>>,
    gate: watch::Sender<bool>,
}

fn plain(name: &str) -> Endpoint {
    Endpoint::plain(name).verify(Verify::tokens(["token"]).expect("a token"))
}

fn events(name: &str) -> Endpoint {
    Endpoint::cloud_events(name).verify(Verify::tokens(["token"]).expect("a token"))
}

async fn fixture(endpoints: Vec<Endpoint>) -> AnswersFixture {
    fixture_with(Config::default(), ServerLimits::default(), endpoints).await
}

async fn fixture_with(config: Config, limits: ServerLimits, endpoints: Vec<Endpoint>) -> AnswersFixture {
    let clock = TestClock::new();
    let store = FaultyStore::new(Memory::with_clock(clock.shared()));
    let (seen, gate) = (Arc::<Mutex<Vec<Message>>>::default(), watch::Sender::new(false));
    let note = {
        let seen = Arc::clone(&seen);
        move |message: Message, _: &mut Context<AnswersStore>| {
            seen.lock().push(message);
            async { Ok::<(), oncebox::Error>(()) }
        }
    };
    let wait = {
        let gate = gate.clone();
        move |_: Message, _: &mut Context<AnswersStore>| {
            let gate = gate.subscribe();
            async move {
                let _ = gate.clone().wait_for(|open| *open).await;
                Ok::<(), oncebox::Error>(())
            }
        }
    };
    let fail = |_: Message, _: &mut Context<AnswersStore>| async { Err::<(), String>("no".into()) };
    let inbox = Inbox::builder("in", store)
        .config(config)
        .on("t", handler("note", note))
        .on("slow", handler("wait", wait).inline())
        .on("bad", handler("fail", fail).retry(Retry::fixed(3, Duration::from_secs(7))).inline())
        .build()
        .expect("a valid inbox");
    let bodies = {
        let mut bodies = BodyLimits::default();
        bodies.max = 10_000;
        bodies
    };
    let mut ingress = Ingress::new().clock(clock.shared()).bodies(bodies);
    for endpoint in endpoints {
        ingress = ingress.endpoint(endpoint, &inbox);
    }
    let server = RunningServer::start(ingress.into_router().expect("valid endpoints"), limits).await;
    AnswersFixture { server, inbox, clock, seen, gate }
}

const TOKEN: (&str, &str) = ("authorization", "Bearer token");

impl AnswersFixture {
    async fn send(&self, id: &str, body: &str) -> HttpResponse {
        self.send_to("/in/shop", id, "t", body).await
    }

    async fn send_to(&self, path: &str, id: &str, message_type: &str, body: &str) -> HttpResponse {
        self.server.post(path, &[TOKEN, ("message-id", id), ("message-type", message_type)], body).await
    }

    async fn counts(&self) -> InboxCounts {
        self.inbox.store().inner().count(self.inbox.name()).await.expect("counts")
    }

    /// Returns the only message, as its handler received it.
    async fn handled(&self) -> Message {
        self.inbox.drain().await.expect("drained");
        let seen = self.seen.lock();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen[0].clone()
    }
}

fn without_date(mut answer: HttpResponse) -> HttpResponse {
    let lines: Vec<&str> = answer.head.lines().filter(|line| !line.starts_with("date:")).collect();
    answer.head = lines.join("\n");
    answer
}

#[tokio::test]
async fn a_message_is_accepted_once() {
    let fixture = fixture(vec![plain("shop")]).await;
    let first = fixture.send("1", "{}").await;
    assert_eq!((first.status, &*first.body), (202, r#"{"outcome":"accepted"}"#));
    let second = fixture.send("1", "{}").await;
    assert_eq!((second.status, &*second.body), (200, r#"{"outcome":"duplicate"}"#));
    assert_eq!(fixture.counts().await.messages, 1);
    assert_eq!(second.header("cache-control"), Some("no-store"));
}

// FAULTS A10
#[tokio::test]
async fn another_content_under_an_id_is_quarantined() {
    let fixture = fixture(vec![plain("shop")]).await;
    fixture.send("1", "one").await;
    let answer = fixture.send("1", "other").await;
    assert_eq!((answer.status, &*answer.problem()), (422, "conflict"));
    assert!(answer.json()["kept"].as_str().is_some_and(|kept| kept.starts_with("quarantined")), "{answer:?}");
    let counts = fixture.counts().await;
    assert_eq!((counts.messages, counts.conflicts), (1, 1));
    let config = Config { on_conflict: Some(OnConflict::FirstWins), ..Config::default() };
    let lenient = fixture_with(config, ServerLimits::default(), vec![plain("shop")]).await;
    lenient.send("1", "one").await;
    assert_eq!(lenient.send("1", "other").await.status, 200);
}

// FAULTS A11
#[tokio::test]
async fn without_an_id_or_a_type_nothing_is_taken() {
    let fixture = fixture(vec![plain("shop")]).await;
    let answer = fixture.server.post("/in/shop", &[TOKEN, ("message-type", "t")], "{}").await;
    assert_eq!((answer.status, &*answer.problem()), (400, "missing-key"));
    let answer = fixture.server.post("/in/shop", &[TOKEN, ("message-id", "1")], "{}").await;
    assert_eq!((answer.status, &*answer.problem()), (400, "malformed"));
    let twice = [TOKEN, ("message-id", "1"), ("message-id", "2"), ("message-type", "t")];
    assert_eq!(fixture.server.post("/in/shop", &twice, "{}").await.status, 400);
    assert_eq!(fixture.counts().await.messages, 0);
}

#[tokio::test]
async fn the_headers_of_a_plain_message_can_be_others() {
    let endpoint =
        plain("shop").id_header("x-id").unwrap().order_header("x-order").unwrap().message_type("t");
    let fixture = fixture(vec![endpoint]).await;
    let headers = [TOKEN, ("x-id", "7"), ("x-order", "customer"), ("message-type", "ignored")];
    assert_eq!(fixture.server.post("/in/shop", &headers, "{}").await.status, 202);
    let message = fixture.handled().await;
    assert_eq!((message.id(), message.message_type(), message.source()), (&b"7"[..], "t", "shop"));
    assert_eq!(message.ordering_key(), Some(&b"customer"[..]));
}

// FAULTS A15, A4: an unknown outcome is not stored, and a known failure is not unknown.
#[tokio::test]
async fn a_store_that_is_away_and_a_commit_in_doubt_are_503() {
    let fixture = fixture(vec![plain("shop")]).await;
    let faults = fixture.inbox.store().faults();
    faults.next(StoreVerb::Accept, StoreFault::ErrBefore(ErrorKind::Unavailable));
    let answer = fixture.send("1", "{}").await;
    assert_eq!((answer.status, &*answer.problem()), (503, "unavailable"));
    assert!(answer.header("retry-after").is_some());
    assert_eq!(fixture.counts().await.messages, 0);
    faults.next(StoreVerb::Accept, StoreFault::ErrAfter);
    let answer = fixture.send("1", "{}").await;
    assert_eq!((answer.status, &*answer.problem()), (503, "outcome-unknown"));
    assert_eq!(fixture.send("1", "{}").await.status, 200, "it had been stored");
    for kind in [ErrorKind::Full, ErrorKind::ReadOnly, ErrorKind::SchemaOutdated] {
        faults.next(StoreVerb::Accept, StoreFault::ErrBefore(kind));
        assert_eq!(fixture.send("2", "{}").await.status, 503, "{kind:?}");
    }
    faults.next(StoreVerb::Accept, StoreFault::Panic);
    assert_eq!(fixture.send("2", "{}").await.problem(), "outcome-unknown");
}

/// A well-formed but forged signature.
const FORGED: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

// FAULTS S2, S4: the response does not show the fault, and nothing is stored.
#[tokio::test]
async fn every_unverified_sender_gets_the_same_response_and_leaves_nothing() {
    let github = Endpoint::github("github", ["secret"]).unwrap();
    let stripe = Endpoint::stripe("stripe", ["secret"]).unwrap();
    let local = Endpoint::plain("local").verify(Verify::loopback());
    let fixture = fixture(vec![plain("shop"), github, stripe, local]).await;
    let id =
        [("message-id", "1"), ("message-type", "t"), ("x-github-delivery", "1"), ("x-github-event", "t")];
    let with = |more: &[(&'static str, &'static str)]| [&id[..], more].concat();
    let attempts = [
        ("/in/unknown", with(&[TOKEN])),
        ("/in/shop/more", with(&[TOKEN])),
        ("/in/SHOP", with(&[TOKEN])),
        ("/in/shop", with(&[])),
        ("/in/shop", with(&[("authorization", "Bearer other")])),
        ("/in/shop", with(&[("authorization", "token")])),
        ("/in/shop", with(&[TOKEN, TOKEN])),
        ("/in/github", with(&[])),
        ("/in/github", with(&[("x-hub-signature-256", "sha256=00")])),
        ("/in/github", with(&[("x-hub-signature-256", "nonsense")])),
        ("/in/github", with(&[("x-hub-signature-256", FORGED)])),
        ("/in/github", with(&[TOKEN])),
        ("/in/stripe", with(&[("stripe-signature", "t=1,v1=00")])),
        ("/in/local", with(&[("x-forwarded-for", "10.0.0.1")])),
        ("/in/local", with(&[("origin", "http://evil.example")])),
        ("/in/local", with(&[("host", "evil.example")])),
        ("/in/local", with(&[("cf-connecting-ip", "10.0.0.1")])),
    ];
    let mut answers = Vec::new();
    for (path, headers) in &attempts {
        answers.push(without_date(fixture.server.post(path, headers, "{\"id\":\"1\",\"type\":\"t\"}").await));
    }
    assert_eq!((answers[0].status, &*answers[0].problem()), (401, "unverified"));
    for (answer, attempt) in answers.iter().zip(&attempts) {
        assert_eq!(*answer, answers[0], "{attempt:?}");
    }
    assert_eq!(fixture.inbox.store().faults().calls(StoreVerb::Accept), 0, "the store was not even asked");
    assert_eq!(fixture.counts().await.messages, 0);
    // An endpoint for local senders accepts them.
    assert_eq!(fixture.server.post("/in/local", &id, "{}").await.status, 202);
}

// FAULTS S4: a sender of one endpoint cannot use up the ids of another.
#[tokio::test]
async fn the_same_id_from_two_sources_is_two_messages() {
    let fixture = fixture(vec![plain("shop"), plain("bank")]).await;
    assert_eq!(fixture.send("1", "{}").await.status, 202);
    assert_eq!(fixture.send_to("/in/bank", "1", "t", "{}").await.status, 202);
    assert_eq!(fixture.counts().await.messages, 2);
}

// FAULTS S12
#[tokio::test]
async fn credentials_are_not_stored() {
    let fixture = fixture(vec![plain("shop")]).await;
    let headers = [
        TOKEN,
        ("message-id", "1"),
        ("message-type", "t"),
        ("cookie", "canary"),
        ("x-api-key", "canary"),
        ("x-auth-request", "canary"),
        ("proxy-authorization", "canary"),
        ("webhook-signature", "canary"),
        ("x-hub-signature-256", "canary"),
        ("x-shopify-hmac-sha256", "canary"),
        ("x-forwarded-for", "canary"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("content-type", "text/plain"),
        ("x-own", "kept"),
    ];
    assert_eq!(fixture.server.post("/in/shop", &headers, "body").await.status, 202);
    let message = fixture.handled().await;
    let kept: Vec<&str> = message.headers().iter().map(|(name, _)| name).collect();
    assert_eq!(kept, ["message-id", "message-type", "traceparent", "content-type", "x-own"]);
    assert!(!format!("{message:?}").contains("canary"));
}

#[tokio::test]
async fn what_is_being_worked_on_is_busy() {
    let fixture = fixture(vec![plain("shop")]).await;
    let first = fixture.send_to("/in/shop", "1", "slow", "{}");
    let second = async {
        // The first one has begun once the handler read its mark.
        while fixture.inbox.store().faults().calls(StoreVerb::Mark) == 0 {
            tokio::task::yield_now().await;
        }
        let answer = fixture.send_to("/in/shop", "1", "slow", "{}").await;
        fixture.gate.send_replace(true);
        answer
    };
    let (first, second) = Box::pin(in_time("both answers", async { tokio::join!(first, second) })).await;
    assert_eq!((second.status, &*second.problem()), (409, "busy"));
    assert!(second.header("retry-after").is_some());
    assert_eq!(first.status, 202);
    assert_eq!(fixture.send_to("/in/shop", "1", "slow", "{}").await.status, 200);
}

#[tokio::test]
async fn a_handler_that_fails_while_the_sender_waits_is_503() {
    let fixture = fixture(vec![plain("shop")]).await;
    let answer = fixture.send_to("/in/shop", "1", "bad", "{}").await;
    assert_eq!((answer.status, &*answer.problem()), (503, "failed"));
    assert_eq!(answer.header("retry-after"), Some("7"));
}

#[tokio::test]
async fn a_type_that_nothing_handles_is_kept_or_refused() {
    let keeps = fixture(vec![plain("shop")]).await;
    assert_eq!(keeps.send_to("/in/shop", "1", "unheard-of", "{}").await.status, 202);
    assert_eq!(keeps.counts().await.unrouted, 1);
    let config = Config { unrouted: Unrouted::Refuse, ..Config::default() };
    let refuses = fixture_with(config, ServerLimits::default(), vec![plain("shop")]).await;
    let answer = refuses.send_to("/in/shop", "1", "unheard-of", "{}").await;
    assert_eq!((answer.status, &*answer.problem()), (422, "unrouted"));
    assert_eq!(refuses.counts().await.messages, 0);
}

// FAULTS F12
#[tokio::test]
async fn a_message_that_may_have_been_forgotten_is_quarantined() {
    let config = Config { retention: Some(Duration::from_hours(1)), ..Config::default() };
    let fixture = fixture_with(config, ServerLimits::default(), vec![events("events")]).await;
    let send = async |id: &str| {
        let event = format!(
            r#"{{"specversion":"1.0","id":"{id}","source":"/s","type":"t","time":"1970-01-02T00:00:00Z"}}"#
        );
        let headers = [TOKEN, ("content-type", "application/cloudevents+json")];
        fixture.server.post("/in/events", &headers, event).await
    };
    assert_eq!(send("1").await.status, 202);
    fixture.handled().await;
    fixture.clock.advance(Duration::from_hours(2));
    assert_eq!(fixture.inbox.sweep().await.unwrap().messages, 1);
    let answer = send("1").await;
    assert_eq!((answer.status, &*answer.problem()), (422, "stale"));
    assert_eq!(fixture.counts().await.stale, 1);
}

// FAULTS S6
#[tokio::test]
async fn a_quota_is_one_sources_own_and_comes_back() {
    let quota = Quota { per_second: 0.1, burst: 2 };
    let fixture = fixture(vec![plain("shop").quota(quota), plain("bank")]).await;
    let statuses = [fixture.send("1", "").await.status, fixture.send("1", "").await.status];
    assert_eq!(statuses, [202, 200]);
    let answer = fixture.send("2", "").await;
    assert_eq!((answer.status, &*answer.problem()), (429, "over-quota"));
    assert_eq!(answer.header("retry-after"), Some("10"));
    // Unverified senders do not spend it.
    fixture.clock.advance(Duration::from_secs(10));
    let forged = [("authorization", "Bearer x"), ("message-id", "3"), ("message-type", "t")];
    assert_eq!(fixture.server.post("/in/shop", &forged, "").await.status, 401);
    assert_eq!(fixture.send("2", "").await.status, 202);
    assert_eq!(fixture.send_to("/in/bank", "1", "t", "").await.status, 202);
}

#[tokio::test]
async fn what_is_too_large_or_not_understood_is_refused() {
    let fixture = fixture(vec![plain("shop").max_body(100), events("events").max_batch(2)]).await;
    let answer = fixture.send("1", &"x".repeat(101)).await;
    assert_eq!((answer.status, &*answer.problem()), (413, "too-large"));
    assert_eq!(fixture.send("1", &"x".repeat(100)).await.status, 202);
    let batch = format!("[{}]", [r#"{"specversion":"1.0","id":"1","source":"/s","type":"t"}"#; 3].join(","));
    let batch_type = [TOKEN, ("content-type", "application/cloudevents-batch+json")];
    assert_eq!(fixture.server.post("/in/events", &batch_type, &batch).await.status, 413);
    // FAULTS S5: many small items, none of which is read; `1` is no event.
    let many = format!("[{}]", vec!["1"; 4_000].join(","));
    let answer = fixture.server.post("/in/events", &batch_type, &many).await;
    assert_eq!(answer.status, 413);
    assert!(answer.body.contains("there are 4000 messages in the request, the limit is 2"), "{answer:?}");
    for media_type in ["application/cloudevents+xml", "application/cloudevents+json; charset=latin1"] {
        let answer = fixture.server.post("/in/events", &[TOKEN, ("content-type", media_type)], "{}").await;
        assert_eq!((answer.status, &*answer.problem()), (415, "unsupported-media-type"), "{media_type}");
    }
    // FAULTS G3: nothing is decompressed.
    let packed = [TOKEN, ("message-id", "2"), ("message-type", "t"), ("content-encoding", "gzip")];
    assert_eq!(fixture.server.post("/in/shop", &packed, "x").await.status, 415);
    let mut client = fixture.server.connect().await;
    client.send("GET /in/shop HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
    assert_eq!(fixture.counts().await.messages, 1);
}

// FAULTS A17: one bad event does not block the others.
#[tokio::test]
async fn a_batch_is_answered_for_each_event() {
    let fixture = fixture(vec![events("events")]).await;
    let event = |id: &str, data: u32| {
        format!(r#"{{"specversion":"1.0","id":"{id}","source":"/s","type":"t","data":{data}}}"#)
    };
    let batch_type = [TOKEN, ("content-type", "application/cloudevents-batch+json")];
    let batch = format!("[{},{},{}]", event("1", 1), event("2", 2), event("1", 1));
    let answer = fixture.server.post("/in/events", &batch_type, &batch).await;
    let outcomes = |answer: &HttpResponse| -> Vec<String> {
        let json = answer.json();
        json["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["outcome"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(answer.status, 202);
    assert_eq!(outcomes(&answer), ["accepted", "accepted", "duplicate"]);
    let batch = format!("[{},{{\"id\":\"x\"}},{},{}]", event("1", 1), event("2", 3), event("3", 3));
    let answer = fixture.server.post("/in/events", &batch_type, &batch).await;
    assert_eq!(answer.status, 422);
    assert_eq!(outcomes(&answer), ["duplicate", "malformed", "conflict", "accepted"]);
    assert_eq!(answer.json()["results"][2]["problem"]["status"], 422);
    fixture.inbox.store().faults().next(StoreVerb::Accept, StoreFault::ErrBefore(ErrorKind::Unavailable));
    let batch = format!("[{},{{}},{}]", event("4", 4), event("5", 5));
    let answer = fixture.server.post("/in/events", &batch_type, &batch).await;
    assert_eq!(
        (answer.status, outcomes(&answer)),
        (503, ["unavailable", "malformed", "unavailable"].map(str::to_owned).into())
    );
    assert!(answer.header("retry-after").is_some());
    assert_eq!(fixture.inbox.store().faults().calls(StoreVerb::Accept), 3, "one call for each batch");
    assert_eq!(fixture.server.post("/in/events", &batch_type, "[]").await.status, 200);
    assert_eq!(fixture.server.post("/in/events", &batch_type, "{}").await.status, 400);
}

#[tokio::test]
async fn an_event_is_the_same_message_whichever_way_it_comes() {
    let fixture = fixture(vec![events("events")]).await;
    let binary = [
        TOKEN,
        ("ce-specversion", "1.0"),
        ("ce-id", "caf%C3%A9"),
        ("ce-source", "/shop"),
        ("ce-type", "t"),
        ("ce-partitionkey", "customer 1"),
        ("ce-time", "2018-04-05T17:31:00Z"),
        ("content-type", "application/json"),
    ];
    assert_eq!(fixture.server.post("/in/events", &binary, r#"{"a": 1}"#).await.status, 202);
    let structured = r#"{"specversion":"1.0","id":"café","source":"/shop","type":"t","partitionkey":"customer 1",
        "time":"2018-04-05T17:31:00Z","datacontenttype":"application/json","data":{"a": 1}}"#;
    let headers = [TOKEN, ("content-type", "application/cloudevents+json; charset=UTF-8")];
    assert_eq!(fixture.server.post("/in/events", &headers, structured).await.status, 200);
    let message = fixture.handled().await;
    assert_eq!(message.id(), "/shop café".as_bytes());
    assert_eq!((message.source(), &message.payload()[..]), ("events", &br#"{"a": 1}"#[..]));
    assert_eq!(message.ordering_key(), Some(&b"customer 1"[..]));
    assert_eq!(message.time().map(oncebox::time::Timestamp::as_millis), Some(1_522_949_460_000));
    assert_eq!(message.headers().get("ce-id").map(|id| &id[..]), Some("café".as_bytes()));
}

// FAULTS A16: a disconnect does not stop a write.
#[tokio::test]
async fn a_message_is_stored_though_its_sender_is_gone() {
    let limits = {
        let mut limits = ServerLimits::default();
        limits.connections = 1;
        limits
    };
    let fixture = fixture_with(Config::default(), limits, vec![plain("shop")]).await;
    let faults = fixture.inbox.store().faults();
    faults.next(StoreVerb::Accept, StoreFault::Hang);
    let mut gone: RawHttpClient = fixture.server.connect().await;
    gone.send(support::request("/in/shop", &[TOKEN, ("message-id", "1"), ("message-type", "t")], "{}")).await;
    in_time("the store is asked", faults.wait_for_hanging(1)).await;
    drop(gone);
    // There is one connection slot: this response comes when the other connection ends.
    let untrusted = fixture.server.post("/in/shop", &[("message-id", "2"), ("message-type", "t")], "{}");
    assert_eq!(in_time("the connection ends", untrusted).await.status, 401);
    assert_eq!(fixture.counts().await.messages, 0);
    faults.release();
    let stored = async {
        while fixture.counts().await.messages < 1 {
            tokio::task::yield_now().await;
        }
    };
    in_time("the message is stored", stored).await;
    assert_eq!(fixture.send("1", "{}").await.status, 200);
}

// The response must not deny that a message runs if another handler runs it.
#[tokio::test]
async fn the_answer_says_what_happened_for_each_handler() {
    let key = Dedupe::By(KeyStrategy::correlation_id().on_conflict(OnConflict::Quarantine));
    let note = |_: Message, _: &mut Context<Memory>| async { Ok::<(), oncebox::Error>(()) };
    let inbox = Inbox::builder("in", Memory::new())
        .on("*", handler("pay", note))
        .on("t", handler("saga", note).dedupe(key))
        .build()
        .expect("a valid inbox");
    let router = Ingress::new().endpoint(plain("shop"), &inbox).endpoint(events("events"), &inbox);
    let server =
        RunningServer::start(router.into_router().expect("endpoints"), ServerLimits::default()).await;
    let send = async |id: &str, body: &str| {
        let headers = [TOKEN, ("message-id", id), ("message-type", "t"), ("correlation-id", "c")];
        server.post("/in/shop", &headers, body).await
    };
    assert_eq!(&*send("1", "one").await.body, r#"{"outcome":"accepted"}"#);
    let answer = send("2", "other").await;
    let expected = r#"{"outcome":"accepted","handlers":[{"handler":"pay","outcome":"first"},{"handler":"saga","outcome":"conflict"}]}"#;
    assert_eq!((answer.status, &*answer.body), (202, expected));
    let answer = send("2", "other").await;
    let expected = expected.replace("accepted", "duplicate").replace("first", "duplicate");
    assert_eq!((answer.status, &*answer.body), (200, &*expected), "it was taken before");
    let answer = send("1", "other").await;
    assert_eq!((answer.status, &*answer.problem()), (422, "conflict"), "no handler took it");
    assert_eq!(inbox.drain().await.expect("drained"), 3);
}
