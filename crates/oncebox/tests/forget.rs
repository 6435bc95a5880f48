//! Fire-and-forget handlers, and messages for a later time.

mod support;

use std::time::Duration;

use oncebox::state::Status;
use oncebox::store::Accepted;
use oncebox::time::{Clock as _, Timestamp};
use oncebox::{BoxError, Breaker, Context, ErrorKind, Inbox, Message, OnPoisoned, Rate, Retry, handler};
use oncebox_testkit::{StoreFault, StoreVerb};
use support::meter::Meter;
use support::{FaultyMemory, RunScript, SECOND, Testbed, in_time, message, quiet};

fn setup() -> Testbed {
    Testbed::new(|inbox, script| {
        inbox.on("t", script.handler("durable")).on("t", script.handler("note").fire_and_forget())
    })
}

fn ran(setup: &Testbed) -> usize {
    setup.script.log().iter().filter(|line| line.starts_with("note")).count()
}

#[tokio::test]
async fn runs_once_for_a_new_message_and_nothing_is_stored_for_it() {
    let setup = setup();
    setup.accept("1", "ok").await;
    quiet().await;
    assert_eq!(setup.script.log(), ["note 1 1"]);
    for _ in 0..3 {
        assert!(matches!(setup.inbox.accept(message("1", "ok")).await.unwrap(), Accepted::Duplicate(_)));
    }
    assert!(matches!(setup.inbox.accept(message("1", "fail other")).await.unwrap(), Accepted::Conflict(_)));
    let batch = setup.inbox.accept_batch(["2", "1", "2"].map(|id| message(id, "ok"))).await.unwrap();
    assert_eq!(batch.len(), 3);
    quiet().await;
    assert_eq!(setup.script.log(), ["note 1 1", "note 2 1"]);
    assert_eq!(setup.count(Status::Pending).await, 2, "one entry each, of the other handler");
    assert_eq!(setup.inbox.drain().await.unwrap(), 2);
    assert_eq!(ran(&setup), 2);
}

// After the commit: what was not stored did not happen.
#[tokio::test]
async fn does_not_run_for_what_was_not_stored() {
    let setup = setup();
    for fault in [StoreFault::ErrBefore(ErrorKind::Unavailable), StoreFault::ErrAfter] {
        setup.store().faults().next(StoreVerb::Accept, fault);
        setup.inbox.accept(message("1", "ok")).await.unwrap_err();
        quiet().await;
        assert_eq!(ran(&setup), 0, "{fault:?}");
    }
}

#[tokio::test]
async fn whatever_it_does_the_accept_knows_nothing_of_it() {
    let meter = Meter::default();
    let _guard = metrics::set_default_local_recorder(&meter);
    let setup =
        Testbed::new(|inbox, script| inbox.on("t", script.handler("note").fire_and_forget().timeout(SECOND)));
    for play in ["fail no", "panic no", "reject no", "snooze 1", "after 1", "discard no", "wait"] {
        assert!(matches!(setup.inbox.accept(message(play, play)).await.unwrap(), Accepted::First(_)));
    }
    setup.pass(Duration::from_mins(10)).await;
    assert_eq!((ran(&setup), setup.script.running()), (7, 0), "once each, and none is tried again");
    assert_eq!(setup.script.cut(), 1, "a timeout ends it");
    let counted = |result| {
        meter.counter(&format!("oncebox_fire_and_forget_total{{inbox=test,handler=note,result={result}}}"))
    };
    assert_eq!(["done", "failed", "dropped"].map(counted), [1, 6, 0]);
    assert_eq!(meter.counter("oncebox_unrouted_total{inbox=test}"), 0, "it has a handler");
}

#[tokio::test]
async fn a_bounded_number_runs_and_a_bounded_number_waits() {
    let meter = Meter::default();
    let _guard = metrics::set_default_local_recorder(&meter);
    let setup =
        Testbed::new(|inbox, script| inbox.on("t", script.handler("note").fire_and_forget().concurrency(2)));
    for n in 0..1_500 {
        setup.accept(&n.to_string(), "wait").await;
    }
    quiet().await;
    assert_eq!((setup.script.running(), ran(&setup)), (2, 2));
    setup.script.go(1_500);
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    assert_eq!((ran(&setup), setup.script.peak()), (2 + 1_024, 2), "what is beyond that is dropped");
    let dropped = meter.counter("oncebox_fire_and_forget_total{inbox=test,handler=note,result=dropped}");
    assert_eq!(dropped, 1_500 - 2 - 1_024, "and counted");
    setup.accept("later", "ok").await;
    in_time(running.idle()).await;
    assert_eq!(ran(&setup), 2 + 1_024 + 1);
}

// FAULTS C5
#[tokio::test]
async fn shutdown_waits_for_it_within_the_grace_and_not_longer() {
    for finishes in [true, false] {
        let setup = setup();
        let running = setup.inbox.start();
        setup.accept("1", "wait").await;
        setup.script.says("durable", "1", "ok");
        in_time(setup.script.started(2)).await;
        let end = tokio::spawn(running.shutdown());
        setup.pass(29 * SECOND).await;
        assert!(!end.is_finished());
        if finishes {
            setup.script.go(1);
        } else {
            setup.pass(2 * SECOND).await;
        }
        in_time(end).await.unwrap();
        quiet().await;
        assert_eq!((setup.script.running(), setup.script.cut()), (0, usize::from(!finishes)));
        assert_eq!(setup.clock.sleepers(), 0, "nothing of it is left");
    }
}

// A source is told at once, and a message whose only handler is this one is no message without a handler.
#[tokio::test]
async fn a_delivery_does_not_wait_for_it() {
    let setup = Testbed::new(|inbox, script| {
        inbox.on("t", script.handler("note").fire_and_forget()).on("t", script.handler("inline").inline())
    });
    setup.script.says("inline", "1", "ok");
    for _ in 0..2 {
        setup.inbox.receive(message("1", "wait")).await.unwrap();
    }
    quiet().await;
    assert_eq!((ran(&setup), setup.script.runs("inline", "1")), (1, 1));
    setup.script.go(1);
}

async fn writes(_: Message, cx: &mut Context<FaultyMemory>) -> Result<(), BoxError> {
    cx.tx().await?;
    Ok(())
}

#[tokio::test]
async fn what_it_writes_is_committed() {
    let setup = Testbed::new(|inbox, _| inbox.on("t", handler("note", writes).fire_and_forget()));
    setup.accept("1", "").await;
    quiet().await;
    assert_eq!(setup.store().faults().calls(StoreVerb::Commit), 1);
}

#[test]
fn settings_that_mean_nothing_beside_it_are_refused() {
    let script = RunScript::default();
    let note = || script.handler::<FaultyMemory>("note").fire_and_forget();
    for (registration, what) in [
        (note().retry(Retry::never()), "`retry`"),
        (note().retry_for::<std::fmt::Error>(Retry::never()), "`retry_for`"),
        (note().on_poisoned(OnPoisoned::Skip), "`on_poisoned`"),
        (note().legacy("old"), "`legacy`"),
        (note().share_commit(4), "`share_commit`"),
        (note().inline(), "`inline`"),
        (note().breaker(Breaker::new(1, SECOND)), "`breaker`"),
        (note().rate(Rate::per_second(1)), "`rate`"),
    ] {
        let inbox = Inbox::builder("test", FaultyMemory::new(oncebox::Memory::new())).on("t", registration);
        let error = inbox.build().map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidHandler);
        let text = error.to_string();
        assert!(
            text.contains(what) && text.contains("\"note\"") && text.contains("fire_and_forget"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_message_can_be_accepted_for_a_later_time() {
    let setup = setup();
    let running = setup.inbox.start();
    let noon = setup.clock.now().after(Duration::from_hours(1));
    setup.inbox.accept_at(message("later", "ok"), noon).await.unwrap();
    setup.inbox.accept_at(message("past", "ok"), Timestamp::ZERO).await.unwrap();
    let first = setup.inbox.accept_at(message("later", "ok"), Timestamp::ZERO).await.unwrap();
    assert!(matches!(first, Accepted::Duplicate(_)), "it keeps its time");
    in_time(running.idle()).await;
    assert_eq!(setup.status("past", "durable").await, Status::Completed);
    setup.pass(Duration::from_mins(59)).await;
    assert_eq!((setup.status("later", "durable").await, ran(&setup)), (Status::Pending, 1));
    setup.pass(Duration::from_mins(1) + SECOND).await;
    assert_eq!((setup.status("later", "durable").await, ran(&setup)), (Status::Completed, 2));
    setup.inbox.accept_at(message("never", "ok"), Timestamp::MAX).await.unwrap();
    in_time(running.shutdown()).await;
    quiet().await;
    assert_eq!((setup.status("never", "durable").await, setup.clock.sleepers()), (Status::Pending, 0));
}

// What is due later waits in a room of its own.
#[tokio::test]
async fn what_is_due_later_takes_no_place_of_what_is_due_now() {
    let meter = Meter::default();
    let _guard = metrics::set_default_local_recorder(&meter);
    let setup =
        Testbed::new(|inbox, script| inbox.on("t", script.handler("note").fire_and_forget().concurrency(2)));
    for n in 0..1_030 {
        let later = message(&format!("later {n}"), "ok");
        setup.inbox.accept_after(later, Duration::from_hours(1)).await.unwrap();
    }
    for n in 0..50 {
        setup.accept(&format!("now {n}"), "ok").await;
    }
    quiet().await;
    assert_eq!(ran(&setup), 50);
    let dropped = || meter.counter("oncebox_fire_and_forget_total{inbox=test,handler=note,result=dropped}");
    assert_eq!(dropped(), 1_030 - 1_024, "and that room is bounded, too");
    setup.clock.advance(Duration::from_hours(1));
    quiet().await;
    assert_eq!((ran(&setup), dropped()), (1_074, 1_030 - 1_024));
}
