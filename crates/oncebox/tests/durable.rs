//! Durable processing: a message is stored once, and each of its handlers does its work on its own.

mod support;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use oncebox::config::{OnConflict, Unrouted};
use oncebox::state::{Operation, Status};
use oncebox::store::{Accepted, Admin as _, KnownMessage};
use oncebox::{Config, Context, ErrorKind, HandlerKey, Inbox, KeyStrategy, Message, handler};
use oncebox_testkit::{StoreFault, StoreVerb};
use parking_lot::Mutex;
use support::{FaultyMemory, RunScript, SECOND, Testbed, counts, entry, in_time, message, quiet};

fn one_handler() -> Testbed {
    Testbed::new(|inbox, script| inbox.on("t", script.handler("h")))
}

// FAULTS A2
#[tokio::test]
async fn a_message_runs_once_however_often_it_comes() {
    let setup = one_handler();
    let running = setup.inbox.start();
    let Accepted::First(seq) = setup.inbox.accept(message("1", "ok")).await.unwrap() else {
        panic!("the message is new")
    };
    in_time(running.idle()).await;
    for _ in 0..3 {
        assert_eq!(
            setup.inbox.accept(message("1", "ok")).await.unwrap(),
            Accepted::Duplicate(KnownMessage::new(seq, Duration::ZERO))
        );
    }
    in_time(running.idle()).await;
    assert_eq!(setup.script.log(), ["h 1 1"]);
    assert_eq!(setup.status("1", "h").await, Status::Completed);
}

#[tokio::test]
async fn a_failing_handler_never_runs_another_one_again() {
    let setup = Testbed::new(|inbox, script| inbox.on("t", script.handler("a")).on("t", script.handler("b")));
    setup.script.says("a", "1", "fail no;fail no;ok");
    let running = setup.inbox.start();
    setup.accept("1", "ok").await;
    setup.pass(20 * SECOND).await;
    assert_eq!((setup.script.runs("a", "1"), setup.script.runs("b", "1")), (3, 1));
    assert_eq!(setup.count(Status::Completed).await, 2);
    let failed = setup.entry("1", "a").await;
    drop(running);
    assert_eq!(failed.attempts, 2, "attempts are kept after success");
}

// FAULTS A10
#[tokio::test]
async fn a_key_with_another_payload_is_quarantined_and_does_not_run() {
    let setup = one_handler();
    let Accepted::First(seq) = setup.inbox.accept(message("1", "ok")).await.unwrap() else {
        panic!("the message is new")
    };
    assert_eq!(setup.inbox.accept(message("1", "panic")).await.unwrap(), Accepted::Conflict(seq));
    assert_eq!(setup.inbox.drain().await.unwrap(), 1);
    assert_eq!(counts(&setup.inbox).await.quarantined, 1);

    let config = Config { on_conflict: Some(OnConflict::FirstWins), ..Config::default() };
    let setup = Testbed::new(|inbox, script| inbox.config(config).on("t", script.handler("h")));
    setup.accept("1", "ok").await;
    let again = setup.inbox.accept(message("1", "other")).await.unwrap();
    assert!(matches!(again, Accepted::Duplicate(_)), "{again:?}");
    assert_eq!(counts(&setup.inbox).await.quarantined, 0);
}

// FAULTS A8: never an error loop, never dropped in silence.
#[tokio::test]
async fn a_type_without_a_handler_is_kept_or_refused() {
    let setup = one_handler();
    let unknown = || Message::new("1", "unknown", "x");
    assert!(matches!(setup.inbox.accept(unknown()).await.unwrap(), Accepted::First(_)));
    assert_eq!(counts(&setup.inbox).await.messages, 1);
    assert_eq!(setup.inbox.drain().await.unwrap(), 0);

    let config = Config { unrouted: Unrouted::Refuse, ..Config::default() };
    let setup = Testbed::new(|inbox, script| inbox.config(config).on("t", script.handler("h")));
    assert_eq!(setup.inbox.accept(unknown()).await.unwrap_err().kind(), ErrorKind::Unrouted);
    assert_eq!(counts(&setup.inbox).await.messages, 0);
}

#[tokio::test]
async fn a_redelivery_brings_a_message_to_handlers_added_since() {
    let old = one_handler();
    old.accept("1", "ok").await;
    old.inbox.drain().await.unwrap();
    let new = Testbed::over(old.store().clone(), old.clock.clone(), |inbox, script| {
        inbox.on("t", script.handler("h")).on("t", script.handler("new"))
    });
    let again = new.inbox.accept(message("1", "ok")).await.unwrap();
    assert!(matches!(again, Accepted::HandlersAdded(_, 1)), "{again:?}");
    new.inbox.drain().await.unwrap();
    assert_eq!(new.script.log(), ["new 1 1"]);
}

// FAULTS I1: a handler is renamed while entries wait under its former key.
#[tokio::test]
async fn a_renamed_handler_runs_what_was_stored_under_its_former_key() {
    let old = Testbed::new(|inbox, script| inbox.on("t", script.handler("old")));
    for id in ["waits", "retries", "done"] {
        old.accept(id, "ok").await;
    }
    old.script.says("old", "retries", "fail no");
    old.script.says("old", "waits", "snooze 1");
    old.inbox.drain().await.unwrap();

    let new = Testbed::over(old.store().clone(), old.clock.clone(), |inbox, script| {
        inbox.on("t", script.handler("new").legacy("old").legacy("older"))
    });
    for id in ["waits", "retries", "done"] {
        let again = new.inbox.accept(message(id, "ok")).await.unwrap();
        assert!(matches!(again, Accepted::Duplicate(_)), "{id}: {again:?}");
    }
    let running = new.inbox.start();
    new.pass(10 * SECOND).await;
    new.accept("fresh", "ok").await;
    in_time(running.idle()).await;
    let mut log = new.script.log();
    log.sort();
    assert_eq!(log, ["new fresh 1", "new retries 2", "new waits 1"]);
    assert_eq!(new.count(Status::Completed).await, 4);
    assert_eq!(new.status("fresh", "new").await, Status::Completed, "new entries get the new key");
}

// FAULTS B14
#[tokio::test]
async fn messages_with_an_ordering_key_run_one_after_the_other() {
    let setup = Testbed::new(|inbox, script| inbox.on("t", script.handler("h").concurrency(16)));
    let ordered = |id: &str, key: &str| message(id, "ok").with_ordering_key(key.to_owned());
    let mut messages = Vec::new();
    for number in 0..20 {
        messages.push(ordered(&format!("a{number}"), "a"));
        messages.push(ordered(&format!("b{number}"), "b"));
    }
    setup.script.says("h", "a3", "fail no;ok");
    for answer in setup.inbox.accept_batch(messages).await.unwrap() {
        answer.unwrap();
    }
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    assert_eq!(setup.script.runs("h", "a3"), 1);
    assert_eq!(setup.script.runs("h", "a4"), 0, "no message overtakes one that waits for its retry");
    assert_eq!(setup.script.runs("h", "b19"), 1, "another key does not wait");
    setup.pass(5 * SECOND).await;
    in_time(running.idle()).await;
    let log = setup.script.log();
    for key in ["a", "b"] {
        let line = log.iter().filter(|line| line.starts_with(&format!("h {key}")));
        let numbers: Vec<u32> =
            line.map(|line| line.split(' ').nth(1).unwrap()[1..].parse().unwrap()).collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
    }
    assert!(setup.script.peak() <= 2, "{} at once", setup.script.peak());
    assert_eq!(setup.count(Status::Completed).await, 40);
}

// FAULTS B15
#[tokio::test]
async fn a_poisoned_head_blocks_its_line_until_an_operator_decides() {
    let setup = one_handler();
    let ordered = |id: &str, play: &str| message(id, play).with_ordering_key("k");
    setup.inbox.accept(ordered("1", "reject bad")).await.unwrap();
    setup.inbox.accept(ordered("2", "ok")).await.unwrap();
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    assert_eq!(setup.script.log(), ["h 1 1"]);
    let key = KeyStrategy::MessageId.key(setup.inbox.name(), &message("1", "")).unwrap();
    let handler = HandlerKey::new("h").unwrap();
    setup.store().operate(setup.inbox.name(), &key, &handler, Operation::Discard).await.unwrap();
    in_time(running.idle()).await;
    assert_eq!(setup.script.log(), ["h 1 1", "h 2 1"]);
}

#[tokio::test]
async fn a_delayed_message_waits_for_its_time() {
    let setup = one_handler();
    let running = setup.inbox.start();
    setup.inbox.accept_after(message("1", "ok"), 10 * SECOND).await.unwrap();
    in_time(running.idle()).await;
    setup.pass(9 * SECOND).await;
    assert!(setup.script.log().is_empty());
    setup.pass(2 * SECOND).await;
    assert_eq!(setup.script.log(), ["h 1 1"]);
    // For ever is a time like any other.
    setup.inbox.accept_after(message("2", "ok"), Duration::MAX).await.unwrap();
    setup.accept("3", "ok").await;
    in_time(running.idle()).await;
    assert_eq!(setup.script.log(), ["h 1 1", "h 3 1"]);
}

// FAULTS A17: the others of a batch do not suffer.
#[tokio::test]
async fn a_bad_message_does_not_keep_its_batch_out() {
    let setup = one_handler();
    let batch = [message("1", "ok"), message("", "ok"), message("2", "ok"), message("1", "ok")];
    let answers = setup.inbox.accept_batch(batch).await.unwrap();
    assert!(matches!(answers[0], Ok(Accepted::First(_))));
    assert_eq!(answers[1].as_ref().unwrap_err().kind(), ErrorKind::MissingKey);
    assert!(matches!(answers[2], Ok(Accepted::First(_))));
    assert!(matches!(answers[3], Ok(Accepted::Duplicate(_))));
    assert_eq!(setup.inbox.drain().await.unwrap(), 2);
    assert!(setup.inbox.accept_batch([]).await.unwrap().is_empty());
    setup.store().faults().next(StoreVerb::Accept, StoreFault::ErrBefore(ErrorKind::Unavailable));
    let error = setup.inbox.accept_batch([message("3", "ok")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

type AttemptKeys = Arc<Mutex<Vec<(u32, [String; 3])>>>;

async fn remember_keys(_: Message, cx: &mut Context<FaultyMemory>) -> Result<(), oncebox::BoxError> {
    let keys = [cx.idempotency_key("charge"), cx.idempotency_key("mail"), cx.key().to_string()];
    cx.data::<AttemptKeys>()?.lock().push((cx.attempt(), keys));
    if cx.attempt() < 3 { Err("again".into()) } else { Ok(()) }
}

#[tokio::test]
async fn idempotency_keys_are_the_same_at_every_attempt_and_for_nothing_else() {
    let keys = AttemptKeys::default();
    let setup = Testbed::new(|inbox, _| {
        inbox
            .data(Arc::clone(&keys))
            .on("t", handler("a", remember_keys))
            .on("t", handler("b", remember_keys))
    });
    for id in ["1", "2"] {
        setup.accept(id, "").await;
    }
    let running = setup.inbox.start();
    setup.pass(30 * SECOND).await;
    drop(running);
    let keys = keys.lock();
    assert_eq!(keys.len(), 12, "two messages, two handlers, three attempts");
    let effects: std::collections::BTreeSet<_> = keys.iter().flat_map(|(_, keys)| &keys[..2]).collect();
    assert_eq!(effects.len(), 8, "one for each message, handler and effect: {keys:?}");
    for (attempt, of_attempt) in keys.iter() {
        assert_eq!(keys.iter().filter(|(_, other)| other == of_attempt).count(), 3, "attempt {attempt}");
    }
}

// FAULTS I1: the other side knows the first attempt by the key it was given then.
#[tokio::test]
async fn an_idempotency_key_survives_the_rename_of_its_handler() {
    let keys = AttemptKeys::default();
    let old = Testbed::new(|inbox, _| inbox.data(Arc::clone(&keys)).on("t", handler("old", remember_keys)));
    old.accept("1", "").await;
    old.inbox.drain().await.unwrap();
    let new = Testbed::over(old.store().clone(), old.clock.clone(), |inbox, _| {
        inbox.data(Arc::clone(&keys)).on("t", handler("new", remember_keys).legacy("old"))
    });
    new.clock.advance(30 * SECOND);
    new.inbox.drain().await.unwrap();
    let keys = keys.lock();
    assert_eq!(keys.iter().map(|(attempt, _)| *attempt).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(keys[0].1, keys[1].1);
}

async fn needs_missing_data(_: Message, cx: &mut Context<FaultyMemory>) -> Result<(), oncebox::Error> {
    cx.data::<RunScript>().map(drop)
}

#[tokio::test]
async fn data_that_was_not_given_is_a_failed_attempt_that_names_it() {
    let setup = Testbed::new(|inbox, _| inbox.on("t", handler("h", needs_missing_data)));
    setup.accept("1", "").await;
    setup.inbox.drain().await.unwrap();
    let failed = setup.entry("1", "h").await;
    assert_eq!((failed.status, failed.attempts), (Status::Pending, 1));
    assert!(failed.error.unwrap().as_str().contains("RunScript"));
}

#[tokio::test]
async fn processing_by_hand_runs_no_more_than_it_is_told() {
    let setup = one_handler();
    for id in ["1", "2", "3", "4", "5"] {
        setup.accept(id, "ok").await;
    }
    assert_eq!(setup.inbox.process_pending(0).await.unwrap(), 0);
    assert_eq!(setup.inbox.process_pending(2).await.unwrap(), 2);
    assert_eq!((setup.script.log().len(), setup.count(Status::Pending).await), (2, 3));
    assert_eq!(setup.inbox.drain().await.unwrap(), 3);
    assert_eq!(setup.inbox.drain().await.unwrap(), 0);
    assert_eq!(setup.count(Status::Completed).await, 5);
}

#[tokio::test]
async fn processing_by_hand_runs_no_more_than_it_is_told_of_several_handlers() {
    let setup = Testbed::new(|inbox, script| {
        let inbox = ["a", "b", "c"].iter().fold(inbox, |inbox, key| inbox.on("t", script.handler(key)));
        inbox.on("u", script.handler("idle")).on("v", script.handler("never"))
    });
    for n in 0..10 {
        setup.accept(&n.to_string(), "ok").await;
    }
    let mut ran = 0;
    for limit in [1, 2, 3, 4, 5, 1, 7] {
        assert_eq!(setup.inbox.process_pending(limit).await.unwrap(), limit);
        ran += limit;
        assert_eq!(setup.script.log().len(), ran);
    }
    assert_eq!(setup.inbox.process_pending(100).await.unwrap(), 30 - ran, "and everything that is asked for");
    assert_eq!(setup.count(Status::Completed).await, 30);
}

// What stands behind a long run must not be taken for crashed.
#[tokio::test]
async fn processing_by_hand_keeps_the_claims_of_what_waits() {
    let setup = one_handler();
    setup.accept("1", "wait").await;
    setup.accept("2", "ok").await;
    let inbox = setup.inbox.clone();
    let drain = tokio::spawn(async move { inbox.drain().await });
    setup.script.started(1).await;
    setup.pass(1_000 * SECOND).await;
    let other = Testbed::over(setup.store().clone(), setup.clock.clone(), |inbox, script| {
        inbox.on("t", script.handler("h"))
    });
    assert_eq!(other.inbox.drain().await.unwrap(), 0);
    setup.script.go(1);
    assert_eq!(in_time(drain).await.unwrap().unwrap(), 2);
    for id in ["1", "2"] {
        let done = setup.entry(id, "h").await;
        assert_eq!((done.status, done.suspicion.stored()), (Status::Completed, 0));
    }
}

// FAULTS B3, D2: nothing stays behind under a claim id that was forgotten.
#[tokio::test]
async fn processing_by_hand_survives_lost_answers() {
    let setup = one_handler();
    for id in ["1", "2", "3"] {
        setup.accept(id, "ok").await;
    }
    for verb in [StoreVerb::Claim, StoreVerb::Settle, StoreVerb::Rescue] {
        setup.store().faults().next(verb, StoreFault::ErrAfter);
        setup.store().faults().next(verb, StoreFault::ErrBefore(ErrorKind::Unavailable));
    }
    assert_eq!(setup.inbox.drain().await.unwrap(), 3);
    assert_eq!(setup.script.log().len(), 3);
    assert_eq!(setup.count(Status::Completed).await, 3);
}

#[tokio::test]
async fn processing_by_hand_gives_back_what_did_not_run() {
    let setup = one_handler();
    for id in ["1", "2", "3"] {
        setup.accept(id, "ok").await;
    }
    // As many tries as fit into a lease.
    let refused = Some(StoreFault::ErrBefore(ErrorKind::Corrupt));
    setup.store().faults().script(StoreVerb::Settle, [refused; 13]);
    let inbox = setup.inbox.clone();
    let drain = tokio::spawn(async move { inbox.drain().await });
    setup.pass(40 * SECOND).await;
    assert_eq!(in_time(drain).await.unwrap().unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(setup.script.log(), ["h 1 1"]);
    assert_eq!(setup.count(Status::Pending).await, 2);
    assert_eq!(setup.inbox.drain().await.unwrap(), 2);
}

// FAULTS E5: a refused login does not discard what a handler has done, and the call ends if it lasts.
#[tokio::test]
async fn processing_by_hand_settles_when_the_store_is_back() {
    for (away_for, settled) in [(20 * SECOND, true), (40 * SECOND, false)] {
        let setup = one_handler();
        setup.accept("1", "ok").await;
        setup.store().faults().always(StoreVerb::Settle, StoreFault::ErrBefore(ErrorKind::Denied));
        let inbox = setup.inbox.clone();
        let drain = tokio::spawn(async move { inbox.drain().await.map_err(|error| error.kind()) });
        setup.pass(away_for).await;
        assert_eq!(drain.is_finished(), !settled, "{away_for:?}");
        setup.store().faults().clear();
        setup.pass(6 * SECOND).await;
        let expected = if settled { Ok(1) } else { Err(ErrorKind::Denied) };
        assert_eq!(in_time(drain).await.unwrap(), expected, "{away_for:?}");
        let status = if settled { Status::Completed } else { Status::Running };
        assert_eq!((setup.status("1", "h").await, setup.script.log().len()), (status, 1), "{away_for:?}");
    }
}

// Other processes do not wake this dispatcher: the store's wakeups and the poll do.
#[tokio::test]
async fn what_others_put_in_is_found() {
    let setup = one_handler();
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    let other = Testbed::over(setup.store().clone(), setup.clock.clone(), |inbox, script| {
        inbox.on("t", script.handler("h"))
    });
    other.accept("1", "ok").await;
    in_time(setup.script.started(1)).await;
}

// A handler that is left out of a claim would wait for the next wakeup of any handler.
#[tokio::test]
async fn every_wakeup_claims_for_every_handler() {
    const KEYS: [&str; 10] = ["h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8", "h9"];
    let setup = Testbed::new(|inbox, script| {
        KEYS.iter().fold(inbox, |inbox, key| inbox.on(*key, script.handler(key)))
    });
    let running = setup.inbox.start();
    for round in 0..7 {
        for step in 0..KEYS.len() {
            let kind = KEYS[(step * 7 + round) % KEYS.len()];
            let message = Message::new(format!("{round}"), kind, "ok").with_source(kind);
            setup.inbox.accept(message).await.unwrap();
            quiet().await;
            assert_eq!(setup.script.log().len(), round * KEYS.len() + step + 1, "{kind} has not run");
        }
    }
    drop(running);
}

#[tokio::test]
async fn inboxes_in_one_store_do_not_see_each_other() {
    let setup = one_handler();
    let script = RunScript::default();
    let other: Inbox<FaultyMemory> = Inbox::builder("other", setup.store().clone())
        .clock(setup.clock.shared())
        .on("t", script.handler("h"))
        .build()
        .unwrap();
    setup.accept("1", "ok").await;
    assert!(matches!(other.accept(message("1", "ok")).await.unwrap(), Accepted::First(_)));
    assert_eq!(other.drain().await.unwrap(), 1);
    assert_eq!(entry(&other, "1", "h").await.status, Status::Completed);
    assert_eq!((setup.script.log().len(), setup.status("1", "h").await), (0, Status::Pending));
}

async fn do_nothing(_: Message, _: &mut Context<FaultyMemory>) -> Result<(), Infallible> {
    Ok(())
}

#[tokio::test]
async fn a_type_that_is_named_twice_is_one_type() {
    let setup = Testbed::new(|inbox, _| inbox.on(["t", "u", "t"], handler("h", do_nothing)));
    setup.accept("1", "").await;
    assert_eq!(setup.inbox.drain().await.unwrap(), 1);
}

#[tokio::test]
async fn what_is_done_and_old_leaves() {
    let setup = one_handler();
    let running = setup.inbox.start();
    setup.accept("1", "ok").await;
    setup.accept("2", "reject bad").await;
    in_time(running.idle()).await;
    setup.clock.advance(Duration::from_hours(24 * 8));
    setup.pass(Duration::from_secs(3)).await;
    assert_eq!(counts(&setup.inbox).await.messages, 1);
    assert_eq!(setup.status("2", "h").await, Status::Poisoned);
    drop(running);
    assert_eq!(setup.inbox.sweep().await.unwrap().messages, 0);
}
