//! Bad input: answered with an error that says what happened, what was kept and what to do, and nothing is stored.

mod support;

use oncebox_testkit::OperatorSteps as _;
use std::time::Duration;

use oncebox::config::{Guarantee, Limits, MissingKey, Unrouted};
use oncebox::state::{Operation, Status};
use oncebox::store::{EntryFilter, Inspect, Mark, Transactional as _};
use oncebox::{
    Config, Dedupe, Error, ErrorKind, HandlerKey, Headers, Inbox, InboxBuilder, InboxName, Key, KeyStrategy,
    MAX_NAME, Memory, Message, Policy, Receipt, Retry,
};
use support::{FaultyMemory, RunScript, SECOND, Testbed, counts, message};

const MILLISECOND: Duration = Duration::from_millis(1);

/// An error of the right kind, whose text has all three parts.
fn check(error: &Error, kind: ErrorKind, what: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    let text = error.to_string();
    for part in [what, kind.kept(), kind.advice()] {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
    assert!(text.len() < 1_000, "{} bytes are too long to read", text.len());
}

fn limited() -> Testbed {
    Testbed::new(|inbox, script| {
        let limits = Limits { id: 16, text: 16, headers: 16, payload: 16, ..Limits::default() };
        let config = Config { limits, unrouted: Unrouted::Refuse, ..Config::default() };
        inbox.config(config).on("t", script.handler("h")).on("t", script.handler("now").inline())
    })
}

fn bad_messages() -> Vec<(Message, ErrorKind, &'static str)> {
    let long = || "x".repeat(17);
    vec![
        (message("", "ok"), ErrorKind::MissingKey, "has no id"),
        (message(" \t", "ok"), ErrorKind::MissingKey, "has no id, or one of white space"),
        (message(&long(), "ok"), ErrorKind::InvalidMessage, "the message id has 17 bytes, the limit is 16"),
        (message("1", &long()), ErrorKind::TooLarge, "the payload has 17 bytes, the limit is 16"),
        (Message::new("1", "", "ok"), ErrorKind::InvalidMessage, "the message type is empty"),
        (Message::new("1", long(), "ok"), ErrorKind::InvalidMessage, "the message type has 17 bytes"),
        (
            message("1", "ok").with_source(long()),
            ErrorKind::InvalidMessage,
            "the message source has 17 bytes",
        ),
        (
            message("1", "ok").with_tenant("a"),
            ErrorKind::Tenant,
            "names the tenant \"a\", and `tenants` is Off",
        ),
        (message("1", "ok").with_ordering_key(""), ErrorKind::InvalidMessage, "the ordering key is empty"),
        (
            message("1", "ok").with_ordering_key(long()),
            ErrorKind::InvalidMessage,
            "the ordering key has 17 bytes",
        ),
        (
            message("1", "ok").with_header("name", long()),
            ErrorKind::InvalidMessage,
            "the set of headers has 21 bytes",
        ),
    ]
}

// FAULTS A11, A12, G3: on every way in, before the store is asked.
#[tokio::test]
async fn a_bad_message_is_refused_on_every_way_in() {
    let setup = limited();
    for (bad, kind, what) in bad_messages() {
        check(&setup.inbox.accept(bad.clone()).await.unwrap_err(), kind, what);
        check(&setup.inbox.accept_after(bad.clone(), SECOND).await.unwrap_err(), kind, what);
        let batch = setup.inbox.accept_batch([bad.clone()]).await.unwrap();
        check(batch[0].as_ref().unwrap_err(), kind, what);
        check(&setup.inbox.process(bad.clone()).await.unwrap_err(), kind, what);
        check(&setup.inbox.receive(bad.clone()).await.unwrap_err(), kind, what);
        let mut tx = setup.store().begin().await.unwrap();
        check(&setup.inbox.once(&mut tx, &bad, "h").await.unwrap_err(), kind, what);
        if kind != ErrorKind::Tenant {
            check(&bad_validation(&bad), kind, what);
        }
    }
    let unknown = || Message::new("1", "unknown", "ok");
    let what = "no handler is registered for messages of type \"unknown\"";
    check(&setup.inbox.accept(unknown()).await.unwrap_err(), ErrorKind::Unrouted, what);
    check(&setup.inbox.receive(unknown()).await.unwrap_err(), ErrorKind::Unrouted, what);
    check(&setup.inbox.process(unknown()).await.unwrap_err(), ErrorKind::Unrouted, what);
    assert_eq!(counts(&setup.inbox).await, oncebox::store::InboxCounts::default());
    assert!(setup.script.log().is_empty());
    let calls = setup.store().faults();
    assert_eq!(
        calls.calls(oncebox_testkit::StoreVerb::Accept) + calls.calls(oncebox_testkit::StoreVerb::Mark),
        0
    );
}

/// The same rules, asked for without an inbox.
fn bad_validation(bad: &Message) -> Error {
    let limits = Limits { id: 16, text: 16, headers: 16, payload: 16, ..Limits::default() };
    let inbox = InboxName::new("test").expect("a good name");
    let key = bad.validate(&limits).and_then(|()| KeyStrategy::MessageId.key(&inbox, bad));
    key.expect_err("a bad message")
}

// FAULTS A12, G1: any bytes are an id, and no two of them are the same one.
#[tokio::test]
async fn odd_ids_are_good_ids() {
    let setup = Testbed::new(|inbox, script| inbox.on("t", script.handler("h")));
    let ids: [&[u8]; 9] = [
        b"\0",
        b"\0\0",
        b"\xff\xfe",
        b"A",
        b"a",
        b"a ",
        "\u{e4}".as_bytes(),
        "a\u{308}".as_bytes(),
        b"'; DROP TABLE",
    ];
    for id in ids {
        let odd = Message::new(id.to_vec(), "t", "ok").with_ordering_key(b"\0\xff".to_vec());
        let accepted = setup.inbox.accept(odd).await.unwrap();
        assert!(matches!(accepted, oncebox::Accepted::First(_)), "{id:?}: {accepted:?}");
    }
    let long = Message::new(vec![0; 1 << 20], "t", "ok");
    setup.inbox.accept(long.clone()).await.unwrap();
    assert!(matches!(setup.inbox.accept(long).await.unwrap(), oncebox::Accepted::Duplicate(_)));
    let too_long = Message::new(vec![0; (1 << 20) + 1], "t", "ok");
    check(&setup.inbox.accept(too_long).await.unwrap_err(), ErrorKind::InvalidMessage, "1048577 bytes");
    assert_eq!(counts(&setup.inbox).await.messages, 10);
    assert_eq!(setup.inbox.drain().await.unwrap(), 10);
}

#[test]
fn a_key_that_cannot_be_found_falls_back_and_is_then_refused() {
    let inbox = InboxName::new("test").unwrap();
    let bad = || Message::new("", "t", "\u{0}not json");
    for strategy in [
        KeyStrategy::MessageId,
        KeyStrategy::header("absent"),
        KeyStrategy::correlation_id(),
        KeyStrategy::json_pointer("/a"),
        KeyStrategy::json_pointer("not a pointer"),
        KeyStrategy::Composite(vec![]),
        KeyStrategy::custom(|_| None),
    ] {
        check(&strategy.key(&inbox, &bad()).unwrap_err(), ErrorKind::MissingKey, "has no id");
    }
    assert_eq!(Key::parse(""), None);
    assert_eq!(Key::parse(&"g".repeat(64)), None);
    check(&Headers::decode(b"\x01").unwrap_err(), ErrorKind::Corrupt, "stored headers do not decode");
}

fn build(build: impl FnOnce(InboxBuilder<FaultyMemory>, &RunScript) -> InboxBuilder<FaultyMemory>) -> Error {
    let script = RunScript::default();
    let inbox = Inbox::builder("test", FaultyMemory::new(Memory::new()));
    build(inbox, &script).build().map(drop).expect_err("what cannot work is refused")
}

// FAULTS I1: found at start, by name.
#[test]
fn handler_keys_that_could_be_mistaken_are_refused_at_start() {
    let kind = ErrorKind::InvalidHandler;
    let keys = ["", " ", "a b", "a\0b", "\u{e9}", "a;b", "a\"b"];
    for key in keys {
        check(&build(|inbox, script| inbox.on("t", script.handler(key))), kind, "handler key");
        check(&build(|inbox, script| inbox.on("t", script.handler("h").legacy(key))), kind, "handler key");
        check(&HandlerKey::new(key).unwrap_err(), kind, "handler key");
        check(&InboxName::new(key).unwrap_err(), ErrorKind::InvalidConfig, "inbox name");
    }
    let long = "x".repeat(MAX_NAME + 1);
    check(&HandlerKey::new(&long).unwrap_err(), kind, "has 201 bytes, the limit is 200");
    let error = build(|inbox, script| inbox.on("t", script.handler("h").legacy(long.as_str())));
    check(&error, kind, "201 bytes");
    assert!(HandlerKey::new("x".repeat(MAX_NAME)).is_ok());

    let twice = "the handler key \"h\" is used twice";
    let h = |script: &RunScript| script.handler::<FaultyMemory>("h");
    check(&build(|inbox, script| inbox.on("t", h(script)).on("u", h(script))), kind, twice);
    check(&build(|inbox, script| inbox.on("t", h(script).legacy("h"))), kind, twice);
    check(
        &build(|inbox, script| inbox.on("t", h(script)).on("t", script.handler("i").legacy("h"))),
        kind,
        twice,
    );
    let both = |inbox: InboxBuilder<FaultyMemory>, script: &RunScript| {
        inbox.on("t", script.handler("a").legacy("h")).on("t", script.handler("b").legacy("h"))
    };
    check(&build(both), kind, twice);
}

/// An error about the set-up names the option, its value and what to do.
fn check_setting(error: &Error, kind: ErrorKind, [option, value, fix]: [&str; 3]) {
    check(error, kind, option);
    for part in [option, value, fix] {
        assert!(error.what().contains(part), "{:?} does not say {part:?}", error.what());
    }
    let (at, after) = (error.what().find(option), error.what().rfind(fix));
    assert!(at < after, "{:?}: the fix comes last", error.what());
}

type ChangeRegistration =
    Box<dyn Fn(oncebox::Registration<FaultyMemory>) -> oncebox::Registration<FaultyMemory>>;

#[test]
fn registrations_that_could_never_work_are_refused_at_start() {
    let kind = ErrorKind::InvalidHandler;
    let none: [&str; 0] = [];
    for error in [
        build(|inbox, script| inbox.on("", script.handler("h"))),
        build(|inbox, script| inbox.on(none, script.handler("h"))),
        build(|inbox, script| inbox.on(["t", ""], script.handler("h"))),
    ] {
        check_setting(&error, kind, ["\"h\" is registered for no type", "never run", "name its types"]);
    }
    let policy = |change: fn(&mut Policy)| -> ChangeRegistration {
        Box::new(move |handler| {
            let mut policy = Policy::default();
            change(&mut policy);
            handler.policy(policy)
        })
    };
    let retry =
        |retry: Retry| -> ChangeRegistration { Box::new(move |handler| handler.retry(retry.clone())) };
    let by_name = || Dedupe::By(KeyStrategy::handler_and_correlation_id());
    let bad: [(ChangeRegistration, [&str; 3]); 11] = [
        (Box::new(|handler| handler.concurrency(0)), ["`concurrency`", " of 0:", "use at least 1"]),
        (Box::new(|handler| handler.timeout(Duration::ZERO)), ["`timeout`", "0ns", "make it longer"]),
        (Box::new(|handler| handler.share_commit(0)), ["`share_commit`", " of 0:", "use 1 to 64"]),
        (Box::new(|handler| handler.share_commit(65)), ["`share_commit`", " of 65:", "use 1 to 64"]),
        (
            Box::new(|handler| handler.share_commit(8).inline()),
            ["`share_commit`", "is inline", "leave one of the two out"],
        ),
        (
            Box::new(|handler| handler.legacy("old").inline()),
            ["`legacy`", "is inline", "keep the key it has"],
        ),
        (
            Box::new(move |handler| handler.legacy("old").dedupe(by_name())),
            ["`legacy`", "its dedupe key contains its name", "choose a key without it"],
        ),
        (retry(Retry::new(3, Duration::ZERO, SECOND)), ["`retry`", "0ns", "or use `Retry::never()`"]),
        (retry(Retry::new(3, 2 * SECOND, SECOND)), ["`retry`", "2s", "raise `max`"]),
        (policy(|policy| policy.crashes = 0), ["`crashes`", "is 0", "use at least 1"]),
        (
            policy(|policy| policy.decode_retry = Duration::ZERO),
            ["`decode_retry`", "0ns", "use a second or more"],
        ),
    ];
    for (handler, words) in bad {
        let error = build(|inbox, script| inbox.on("t", handler(script.handler("h"))));
        check_setting(&error, kind, words);
        assert!(error.what().contains("\"h\""), "{error} does not name the handler");
    }
}

#[test]
fn settings_that_could_never_work_are_refused_at_start() {
    let default = Config::default;
    let (zero, limits) = (Duration::ZERO, Limits::default);
    let undeduplicated = Config {
        missing_key: MissingKey::Undeduplicated,
        guarantee: Guarantee::ExactlyOnceEffects,
        ..default()
    };
    let bad = [
        (Config { batch: 0, ..default() }, ["`batch`", "is 0", "use at least 1"]),
        (Config { batch: 10_001, ..default() }, ["`batch`", "10001", "use at most 10000"]),
        (Config { in_flight: 0, ..default() }, ["`in_flight`", "is 0", "use at least 1"]),
        (Config { prefetch: 0, ..default() }, ["`prefetch`", "is 0", "use at least 1"]),
        (Config { prefetch: 100_001, ..default() }, ["`prefetch`", "100001", "use at most 100000"]),
        (Config { lease: 299 * MILLISECOND, ..default() }, ["`lease`", "299ms", "use at least 300ms"]),
        (Config { poll: zero, ..default() }, ["`poll`", "0ns", "use some milliseconds"]),
        (Config { rescue: zero, ..default() }, ["`rescue`", "0ns", "use some milliseconds"]),
        (Config { sweep: Some(zero), ..default() }, ["`sweep`", "0ns", "use some milliseconds"]),
        (Config { restart: zero, ..default() }, ["`restart`", "0ns", "use some milliseconds"]),
        (Config { retention: Some(SECOND), ..default() }, ["`retention`", "1s", "is shorter than `lease`"]),
        (Config { limits: Limits { id: 0, ..limits() }, ..default() }, ["`limits.id`", "is 0", "at least 1"]),
        (
            Config { limits: Limits { text: 0, ..limits() }, ..default() },
            ["`limits.text`", "is 0", "at least 1"],
        ),
        (
            Config { limits: Limits { payload: 0, ..limits() }, ..default() },
            ["`limits.payload`", "is 0", "at least 1"],
        ),
        (Config { key: KeyStrategy::header(""), ..default() }, ["`key`", "Header(\"\")", "name the header"]),
        (
            Config { key: KeyStrategy::json_pointer("order"), ..default() },
            ["`key`", "JsonPointer(\"order\")", "write it like"],
        ),
        (
            Config { key: KeyStrategy::Composite(vec![]), ..default() },
            ["`key`", "Composite([])", "name at least one"],
        ),
        (Config { key: KeyStrategy::Handler, ..default() }, ["`key`", "Handler", "as a part of"]),
        (undeduplicated, ["`missing_key`", "Undeduplicated", "set `missing_key` to Refuse"]),
    ];
    for (config, words) in bad {
        check_setting(&build(|inbox, _| inbox.config(config)), ErrorKind::InvalidConfig, words);
    }
    for (guarantee, value) in
        [(Guarantee::Durable, "is Durable"), (Guarantee::ExactlyOnceEffects, "is ExactlyOnceEffects")]
    {
        let error = build(|inbox, _| inbox.config(Config { guarantee, ..default() }));
        check_setting(&error, ErrorKind::Unsupported, ["`guarantee`", value, "it needs a durable store"]);
    }
    let named = Inbox::builder("no blanks", Memory::new()).build().unwrap_err();
    check_setting(
        &named,
        ErrorKind::InvalidConfig,
        ["inbox name", "\"no blanks\" holds ' '", "digits and - _ . : / are allowed"],
    );
}

// Of settings that contradict one another none is chosen silently.
#[test]
fn keys_that_contradict_are_refused_at_start() {
    let kind = ErrorKind::InvalidConfig;
    let twice =
        |inbox: InboxBuilder<FaultyMemory>| inbox.key_for("a.*", Dedupe::On).key_for("a.*", Dedupe::Off);
    let error = build(|inbox, _| twice(inbox));
    check_setting(&error, kind, ["`key_for(\"a.*\")`", "is Off", "leave one out"]);
    let error = build(|inbox, _| inbox.key_for("a*b", Dedupe::Off));
    check_setting(&error, kind, ["`key_for(\"a*b\")`", "is Off", "write it like `order.*`"]);
    let error = build(|inbox, _| inbox.key_for("a", Dedupe::By(KeyStrategy::json_pointer("x"))));
    check_setting(&error, kind, ["`key_for(\"a\")`", "By(JsonPointer(\"x\"))", "write it like"]);
    let flawed = |script: &RunScript| script.handler("h").dedupe(Dedupe::By(KeyStrategy::header("")));
    let error = build(|inbox, script| inbox.on("t", flawed(script)));
    check_setting(&error, kind, ["`dedupe` of the handler `h`", "By(Header(\"\"))", "name the header"]);
}

// A store that can promise it is needed to find that the settings cannot.
#[test]
fn effects_cannot_happen_once_where_repeats_are_not_recognised() {
    let dir = tempfile::tempdir().unwrap();
    let store = oncebox_sqlite::Sqlite::open(dir.path().join("inbox.db")).unwrap();
    let config = Config { guarantee: Guarantee::ExactlyOnceEffects, ..Config::default() };
    let inbox = || Inbox::builder("test", store.clone()).config(config.clone());
    let off = || RunScript::default().handler("h").dedupe(Dedupe::Off);
    inbox().on("t", RunScript::default().handler("h")).build().unwrap();
    let what = ["ExactlyOnceEffects", "is Off", "recognise repeats, or promise less"];
    check_setting(&inbox().on("t", off()).build().unwrap_err(), ErrorKind::InvalidConfig, what);
    let error = inbox().key_for("t", Dedupe::Off).build().unwrap_err();
    check_setting(&error, ErrorKind::InvalidConfig, what);
}

// The longest settings are odd, but must not break the arithmetic.
#[tokio::test]
async fn the_longest_settings_work() {
    let setup = Testbed::new(|inbox, script| {
        let (max, retention) = (Duration::MAX, None);
        let config = Config {
            lease: max,
            poll: max,
            rescue: max,
            retention,
            sweep: Some(max),
            grace: max,
            restart: max,
            ..Config::default()
        };
        let h = script.handler("h").timeout(max).retry(Retry::new(u32::MAX, max, max));
        inbox.config(config).on("t", h)
    });
    let running = setup.inbox.start();
    setup.accept("1", "ok").await;
    setup.accept("2", "fail no").await;
    support::in_time(running.idle()).await;
    setup.pass(SECOND).await;
    assert_eq!(setup.status("1", "h").await, Status::Completed);
    assert_eq!(setup.entry("2", "h").await.attempts, 1);
    support::in_time(running.shutdown()).await;
}

#[tokio::test]
async fn what_an_operator_cannot_do_is_refused_and_changes_nothing() {
    let setup = Testbed::new(|inbox, script| inbox.on("t", script.handler("h")));
    setup.accept("1", "ok").await;
    let (store, inbox, h) = (setup.store(), setup.inbox.name(), HandlerKey::new("h").unwrap());
    let key = KeyStrategy::MessageId.key(inbox, &message("1", "")).unwrap();
    let absent = KeyStrategy::MessageId.key(inbox, &message("2", "")).unwrap();
    let other = HandlerKey::new("other").unwrap();
    for (key, handler) in [(absent, &h), (key, &other)] {
        let error = store.operate(inbox, &key, handler, Operation::Retry).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
    for operation in [Operation::Retry, Operation::Replay] {
        let error = store.operate(inbox, &key, &h, operation).await.unwrap_err();
        check(&error, ErrorKind::Refused, "an entry that is pending");
    }
    assert!(store.show(inbox, &absent).await.unwrap().is_none());
    let nowhere = InboxName::new("nowhere").unwrap();
    assert_eq!(store.count(&nowhere, None).await.unwrap().messages, 0);
    assert!(store.list(&EntryFilter::new(nowhere, Status::Pending)).await.unwrap().entries.is_empty());
    assert_eq!(setup.status("1", "h").await, Status::Pending);
}

#[tokio::test]
async fn a_good_message_passes_where_the_bad_ones_did_not() {
    let setup = limited();
    let good = || message("1234567890123456", "ok").with_source("1234567890123456").with_ordering_key("k");
    assert_eq!(setup.inbox.receive(good()).await.unwrap(), Receipt::Done);
    assert_eq!(setup.inbox.drain().await.unwrap(), 1);
    let mut tx = setup.store().begin().await.unwrap();
    assert_eq!(setup.inbox.once(&mut tx, &good(), "other").await.unwrap(), Mark::First);
}

#[test]
fn what_can_be_shared_is_taken() {
    for max in [1, 64] {
        let shared = RunScript::default().handler("h").share_commit(max);
        Inbox::builder("test", Memory::new()).on("t", shared).build().unwrap();
    }
}
