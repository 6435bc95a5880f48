//! Outcomes of handlers, and the resulting states of their entries.

mod support;

use std::sync::Arc;
use std::time::Duration;

use oncebox::state::{PoisonReason, Status};
use oncebox::time::Clock as _;
use oncebox::{Context, ErrorKind, Message, Policy, Retry, handler};
use parking_lot::Mutex;
use support::{FaultyMemory, SECOND, Testbed, in_time, message, quiet};

fn quick(attempts: u32) -> Testbed {
    Testbed::new(|inbox, script| {
        inbox.on("t", script.handler("h").retry(Retry::new(attempts, 2 * SECOND, 8 * SECOND)))
    })
}

#[tokio::test]
async fn failures_are_retried_later_and_later_and_then_poisoned() {
    let setup = quick(5);
    let running = setup.inbox.start();
    setup.accept("1", "fail no truck").await;
    in_time(setup.script.started(1)).await;
    // Each wait lies in the upper half of 2, 4, 8 and 8 seconds.
    for (attempt, base) in [(1, 2), (2, 4), (3, 8), (4, 8)] {
        in_time(running.idle()).await;
        let failed = setup.entry("1", "h").await;
        assert_eq!((failed.status, failed.attempts), (Status::Pending, attempt));
        assert_eq!(failed.error.unwrap().as_str(), "no truck");
        let (before, base) = (setup.clock.monotonic(), base * SECOND);
        setup.pass_until(async || setup.script.log().len() > usize::try_from(attempt).unwrap()).await;
        let waited = setup.clock.monotonic().saturating_sub(before);
        assert!(waited >= base / 2 && waited <= base + SECOND / 2, "{waited:?} after attempt {attempt}");
    }
    in_time(running.idle()).await;
    let poisoned = setup.entry("1", "h").await;
    assert_eq!((poisoned.status, poisoned.attempts, poisoned.suspicion.stored()), (Status::Poisoned, 5, 0));
    assert_eq!(poisoned.reason, Some(PoisonReason::Exhausted));
    assert_eq!(poisoned.error.unwrap().as_str(), "no truck");
    setup.pass(Duration::from_mins(10)).await;
    assert_eq!(setup.script.log(), ["h 1 1", "h 1 2", "h 1 3", "h 1 4", "h 1 5"]);
}

#[tokio::test]
async fn without_retries_the_first_failure_poisons() {
    for attempts in [0, 1] {
        let setup = quick(attempts);
        setup.accept("1", "fail no").await;
        setup.inbox.drain().await.unwrap();
        assert_eq!(setup.status("1", "h").await, Status::Poisoned, "{attempts} attempts");
    }
}

#[tokio::test]
async fn control_words_do_what_they_say() {
    let setup = quick(3);
    let running = setup.inbox.start();
    setup.accept("rejected", "reject broken for good").await;
    setup.accept("discarded", "discard too old").await;
    setup.accept("snoozed", "snooze 100").await;
    setup.accept("later", "after 50;ok").await;
    in_time(running.idle()).await;

    let rejected = setup.entry("rejected", "h").await;
    assert_eq!((rejected.status, rejected.attempts), (Status::Poisoned, 0), "no attempt is burned");
    assert_eq!(rejected.reason, Some(PoisonReason::Rejected));
    assert_eq!(rejected.error.unwrap().as_str(), "broken for good");

    let discarded = setup.entry("discarded", "h").await;
    assert_eq!((discarded.status, discarded.attempts), (Status::Discarded, 0));
    assert_eq!(discarded.error.unwrap().as_str(), "too old");

    let later = setup.entry("later", "h").await;
    assert_eq!((later.status, later.attempts), (Status::Pending, 1), "a failed attempt");
    assert_eq!(later.error.unwrap().as_str(), "later");

    setup.pass(49 * SECOND).await;
    assert_eq!(setup.script.runs("h", "later"), 1);
    setup.pass(2 * SECOND).await;
    assert_eq!(setup.script.runs("h", "later"), 2);
    assert_eq!(setup.script.runs("h", "snoozed"), 1);
    setup.pass(Duration::from_mins(20)).await;
    let snoozed = setup.entry("snoozed", "h").await;
    assert_eq!((snoozed.status, snoozed.attempts), (Status::Pending, 0), "a snooze is no attempt");
    assert!(setup.script.runs("h", "snoozed") > 5);
    for (id, runs) in [("rejected", 1), ("discarded", 1), ("later", 2)] {
        assert_eq!(setup.script.runs("h", id), runs, "{id}");
    }
}

// A wait without end must not end the inbox.
#[tokio::test]
async fn a_snooze_for_ever_delays_no_other() {
    let setup = quick(3);
    let running = setup.inbox.start();
    setup.accept("1", &format!("snooze {}", u64::MAX)).await;
    setup.accept("2", &format!("after {}", u64::MAX)).await;
    setup.accept("3", "ok").await;
    in_time(running.idle()).await;
    assert_eq!((running.in_flight(), setup.count(Status::Pending).await), (0, 2));
    assert_eq!(setup.status("3", "h").await, Status::Completed);
}

// FAULTS C2
#[tokio::test]
async fn a_panic_is_a_failed_attempt_and_the_worker_lives() {
    let setup = quick(2);
    let running = setup.inbox.start();
    setup.accept("1", "panic at the disco;ok").await;
    setup.accept("2", "ok").await;
    in_time(running.idle()).await;
    let failed = setup.entry("1", "h").await;
    assert_eq!((failed.status, failed.attempts, failed.suspicion.stored()), (Status::Pending, 1, 0));
    assert!(failed.error.unwrap().as_str().contains("at the disco"));
    assert_eq!(setup.status("2", "h").await, Status::Completed);
    setup.pass(3 * SECOND).await;
    assert_eq!(setup.status("1", "h").await, Status::Completed);
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "dropped in anger");
    }
}

async fn panics_early(_: Message, _: &mut Context<FaultyMemory>) -> Result<(), oncebox::BoxError> {
    let _angry = PanicsWhenDropped;
    Ok(())
}

async fn panics_when_stopped(_: Message, _: &mut Context<FaultyMemory>) -> Result<(), oncebox::BoxError> {
    let _angry = PanicsWhenDropped;
    std::future::pending::<()>().await;
    Ok(())
}

// FAULTS C2: wherever it panics, the entry comes back and the slot is free again.
#[tokio::test]
async fn a_panic_in_a_destructor_is_a_failed_attempt_too() {
    let setup = Testbed::new(|inbox, _| {
        inbox
            .on("t", handler("end", panics_early).concurrency(1))
            .on("t", handler("timeout", panics_when_stopped).timeout(SECOND).concurrency(1))
            .on("t", handler("cut", panics_when_stopped).concurrency(1))
    });
    setup.accept("1", "").await;
    let running = setup.inbox.start();
    setup.pass(2 * SECOND).await;
    for key in ["end", "timeout"] {
        let failed = setup.entry("1", key).await;
        assert_eq!(
            (failed.status, failed.attempts, failed.suspicion.stored()),
            (Status::Pending, 1, 0),
            "{key}"
        );
    }
    assert_eq!(running.in_flight(), 1);
    let end = tokio::spawn(running.shutdown());
    setup.pass(40 * SECOND).await;
    assert!(end.is_finished());
    let cut = setup.entry("1", "cut").await;
    assert_eq!(
        (cut.status, cut.suspicion.stored()),
        (Status::Pending, 0),
        "given back, and not left to its lease"
    );
}

// FAULTS C4
#[tokio::test]
async fn a_timeout_is_a_failed_attempt() {
    let setup = Testbed::new(|inbox, script| {
        inbox.on("t", script.handler("h").timeout(10 * SECOND).retry(Retry::never()).concurrency(1))
    });
    let running = setup.inbox.start();
    setup.accept("1", "wait").await;
    setup.accept("2", "ok").await;
    in_time(setup.script.started(1)).await;
    setup.pass(9 * SECOND).await;
    assert_eq!((setup.script.cut(), setup.script.log().len()), (0, 1));
    setup.pass(2 * SECOND).await;
    assert_eq!(setup.script.cut(), 1, "its run was stopped");
    let late = setup.entry("1", "h").await;
    assert_eq!((late.status, late.attempts), (Status::Poisoned, 1));
    assert!(late.error.unwrap().as_str().contains("10s"));
    assert_eq!(setup.status("2", "h").await, Status::Completed, "its slot is free again");
    drop(running);
}

#[derive(serde::Deserialize)]
struct NumberedOrder {
    order: u64,
}

type Orders = Arc<Mutex<Vec<u64>>>;

async fn take(order: NumberedOrder, cx: &mut Context<FaultyMemory>) -> Result<(), oncebox::Error> {
    cx.data::<Orders>()?.lock().push(order.order);
    Ok(())
}

// FAULTS C13: a newer build may know the format.
#[tokio::test]
async fn what_does_not_decode_waits_for_a_newer_build_and_is_then_poisoned() {
    let orders = Orders::default();
    let setup = Testbed::new(|inbox, _| {
        let mut policy = Policy::default();
        (policy.decode_grace, policy.decode_retry) = (Duration::from_mins(10), Duration::from_mins(1));
        inbox.data(Arc::clone(&orders)).on("t", handler("take", take).policy(policy))
    });
    let running = setup.inbox.start();
    setup.accept("good", r#"{"order":7}"#).await;
    setup.accept("bad", r#"{"order":"seven"}"#).await;
    setup.accept("bytes", "\u{1}\u{0}").await;
    in_time(running.idle()).await;
    assert_eq!(*orders.lock(), [7]);
    for id in ["bad", "bytes"] {
        let waits = setup.entry(id, "take").await;
        assert_eq!((waits.status, waits.attempts), (Status::Pending, 0), "no attempt is burned");
        assert!(waits.error.unwrap().as_str().contains("does not decode"));
    }
    setup.pass(Duration::from_mins(9)).await;
    assert_eq!(setup.count(Status::Pending).await, 2);
    setup.pass(Duration::from_mins(3)).await;
    let poisoned = setup.entry("bad", "take").await;
    assert_eq!((poisoned.status, poisoned.attempts), (Status::Poisoned, 0));
    assert_eq!(poisoned.reason, Some(PoisonReason::Undecodable));
    drop(running);
}

// FAULTS C11: writing a failure down must never fail itself.
#[tokio::test]
async fn any_error_text_can_be_kept() {
    let setup = quick(1);
    setup.accept("1", &format!("fail {}\0{}", "x".repeat(10), "é".repeat(1 << 20))).await;
    setup.inbox.drain().await.unwrap();
    let poisoned = setup.entry("1", "h").await;
    let text = poisoned.error.unwrap();
    assert!(text.as_str().starts_with("xxxxxxxxxx\u{fffd}é") && text.as_str().chars().count() == 2_000);
}

async fn forwards(message: Message, cx: &mut Context<FaultyMemory>) -> Result<(), oncebox::Error> {
    let next = cx.data::<Arc<NextInbox>>()?;
    next.inbox.accept(message).await.map(drop)
}

struct NextInbox {
    inbox: oncebox::Inbox<FaultyMemory>,
}

// FAULTS C10: an outage burns no attempts.
#[tokio::test]
async fn a_store_that_is_away_is_not_the_handlers_failure() {
    let next = Testbed::new(|inbox, script| inbox.on("t", script.handler("next")));
    let setup = Testbed::new(|inbox, _| {
        let next = Arc::new(NextInbox { inbox: next.inbox.clone() });
        inbox.data(next).on("t", handler("forward", forwards).retry(Retry::never()))
    });
    let faults = next.store().faults();
    for kind in [ErrorKind::Unavailable, ErrorKind::Full, ErrorKind::ReadOnly] {
        faults.next(oncebox_testkit::StoreVerb::Accept, oncebox_testkit::StoreFault::ErrBefore(kind));
    }
    faults.next(oncebox_testkit::StoreVerb::Accept, oncebox_testkit::StoreFault::ErrAfter);
    setup.accept("1", "ok").await;
    let running = setup.inbox.start();
    setup.pass(10 * SECOND).await;
    let done = setup.entry("1", "forward").await;
    assert_eq!((done.status, done.attempts), (Status::Completed, 0));
    assert_eq!(next.inbox.drain().await.unwrap(), 1);
    drop(running);
}

#[tokio::test]
async fn a_handler_gets_no_more_than_its_share_of_runs() {
    let setup = Testbed::new(|inbox, script| {
        let config = oncebox::Config { in_flight: 5, ..oncebox::Config::default() };
        inbox
            .config(config)
            .on("t", script.handler("narrow").concurrency(2))
            .on("u", script.handler("wide").concurrency(64))
    });
    let running = setup.inbox.start();
    for number in 0..20 {
        setup.accept(&format!("n{number}"), "wait").await;
        setup.inbox.accept(Message::new(format!("w{number}"), "u", "wait")).await.unwrap();
    }
    quiet().await;
    setup.pass(SECOND).await;
    assert_eq!((running.in_flight(), setup.script.running()), (5, 5));
    let narrow = setup.script.log().iter().filter(|line| line.starts_with("narrow")).count();
    assert!((1..=2).contains(&narrow), "{narrow}");
    setup.script.go(40);
    in_time(running.idle()).await;
    assert_eq!(setup.script.log().len(), 40);
    assert_eq!(setup.script.peak(), 5);
}

// Slots must not stay empty behind runs that take hours.
#[tokio::test]
async fn long_runs_do_not_keep_free_slots_from_work() {
    let setup = Testbed::new(|inbox, script| inbox.on("t", script.handler("h").concurrency(16)));
    let running = setup.inbox.start();
    for number in 0..14 {
        setup.accept(&format!("long{number}"), "wait").await;
    }
    in_time(setup.script.started(14)).await;
    setup.accept("short", "ok").await;
    quiet().await;
    setup.pass(SECOND).await;
    assert_eq!(setup.status("short", "h").await, Status::Completed);
    setup.accept("shorter", "ok").await;
    setup.inbox.accept(message("shortest", "ok")).await.unwrap();
    setup.pass(SECOND).await;
    assert_eq!(setup.count(Status::Completed).await, 3);
    drop(running);
}
