//! Inline handlers and `once`: the mark and the work are committed together, while the delivery is held.

mod support;

use std::sync::Arc;

use oncebox::state::{ErrorText, Outcome, Status};
use oncebox::store::Mark;
use oncebox::{
    BoxError, Config, Context, ErrorKind, HandlerAnswer, Inbox, KeyStrategy, Message, Processed, Receipt,
    Registration, Retry, handler,
};
use oncebox_sqlite::rusqlite::Connection;
use oncebox_testkit::{StoreFault, StoreVerb, TestClock};
use support::books::{EffectsDatabase, FaultySqlite, book};
use support::log_capture::LogCapture;
use support::{FaultyMemory, SECOND, Testbed, counts, in_time, message, quiet};
use tokio::sync::Semaphore;

fn inline() -> Testbed {
    Testbed::new(|inbox, script| inbox.on("t", script.handler("h").inline()))
}

fn failed(why: &str) -> Processed {
    Processed::Failed(Outcome::Retry { error: ErrorText::new(why), after: None })
}

async fn process(setup: &Testbed, id: &str) -> Processed {
    setup.inbox.process(message(id, "ok")).await.expect("the store answers")
}

// DESIGN rule 1: busy elsewhere is an answer of its own, neither done nor failed.
#[tokio::test]
async fn of_two_duplicates_at_once_one_runs_and_the_other_is_told_to_wait() {
    let setup = inline();
    setup.script.says("h", "1", "wait");
    let inbox = setup.inbox.clone();
    let first = tokio::spawn(async move { inbox.process(message("1", "ok")).await });
    in_time(setup.script.started(1)).await;
    assert_eq!(process(&setup, "1").await, Processed::Busy);
    assert_eq!(setup.inbox.receive(message("1", "ok")).await.unwrap(), Receipt::Busy);
    assert_eq!(setup.script.log().len(), 1, "the body did not run again");
    setup.script.go(1);
    assert_eq!(first.await.unwrap().unwrap(), Processed::Done);
    assert_eq!(process(&setup, "1").await, Processed::Duplicate);
    assert_eq!(setup.script.log(), ["h 1 1"]);
    assert_eq!(counts(&setup.inbox).await.messages, 0, "nothing is stored but the mark");
}

#[tokio::test]
async fn a_failure_leaves_no_mark_and_can_be_tried_again() {
    let setup = inline();
    for (play, expected) in [("fail no", failed("no")), ("panic oh", failed("the handler panicked: oh"))] {
        setup.script.says("h", "1", play);
        assert_eq!(process(&setup, "1").await, expected);
    }
    setup.script.says("h", "1", "ok");
    assert_eq!(process(&setup, "1").await, Processed::Done);
    assert_eq!(process(&setup, "1").await, Processed::Duplicate);
    assert_eq!(setup.script.log().len(), 3);
}

#[tokio::test]
async fn a_timeout_is_a_failure_and_leaves_no_mark() {
    let setup = Testbed::new(|inbox, script| inbox.on("t", script.handler("h").inline().timeout(SECOND)));
    setup.script.says("h", "1", "wait");
    let inbox = setup.inbox.clone();
    let late = tokio::spawn(async move { inbox.process(message("1", "ok")).await });
    in_time(setup.script.started(1)).await;
    setup.pass(2 * SECOND).await;
    assert_eq!(late.await.unwrap().unwrap(), failed("the handler did not finish within 1s"));
    setup.script.says("h", "1", "ok");
    assert_eq!(process(&setup, "1").await, Processed::Done);
}

#[tokio::test]
async fn a_caller_who_goes_away_leaves_no_mark() {
    let setup = inline();
    setup.script.says("h", "1", "wait");
    let inbox = setup.inbox.clone();
    let gone = tokio::spawn(async move { inbox.process(message("1", "ok")).await });
    in_time(setup.script.started(1)).await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    setup.script.says("h", "1", "ok");
    assert_eq!(process(&setup, "1").await, Processed::Done);
}

// FAULTS A4, C6: a commit is not torn, even if its caller stops waiting.
#[tokio::test]
async fn a_caller_who_goes_away_does_not_tear_the_commit() {
    let setup = inline();
    setup.store().faults().next(StoreVerb::Commit, StoreFault::Hang);
    let inbox = setup.inbox.clone();
    let gone = tokio::spawn(async move { inbox.process(message("1", "ok")).await });
    in_time(setup.store().faults().wait_for_hanging(1)).await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    assert_eq!(process(&setup, "1").await, Processed::Busy);
    setup.store().faults().release();
    quiet().await;
    assert_eq!(process(&setup, "1").await, Processed::Duplicate);
    assert_eq!(setup.script.log().len(), 1);
}

#[tokio::test]
async fn trouble_of_the_store_is_an_error_and_the_next_delivery_resolves_it() {
    let books = EffectsDatabase::new();
    let store = books.store();
    let inbox =
        Inbox::builder("test", store.clone()).on("t", handler("book", book).inline()).build().unwrap();
    let away = StoreFault::ErrBefore(ErrorKind::Unavailable);
    // What fails, what the caller is told, and what the next delivery finds.
    let troubles = [
        (StoreVerb::Begin, away, ErrorKind::Unavailable, Processed::Done),
        (StoreVerb::Mark, away, ErrorKind::Unavailable, Processed::Done),
        (StoreVerb::Commit, away, ErrorKind::Unavailable, Processed::Done),
        // FAULTS A4: it happened, and the caller got no answer.
        (StoreVerb::Commit, StoreFault::ErrAfter, ErrorKind::CommitUnknown, Processed::Duplicate),
    ];
    for (number, (verb, fault, kind, next)) in troubles.into_iter().enumerate() {
        let id = number.to_string();
        store.faults().next(verb, fault);
        let error = inbox.process(message(&id, "")).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{verb:?} {fault:?}");
        assert_eq!(inbox.process(message(&id, "")).await.unwrap(), next, "{verb:?} {fault:?}");
        assert_eq!(inbox.process(message(&id, "")).await.unwrap(), Processed::Duplicate);
        assert_eq!(books.effects(&id), 1, "{verb:?} {fault:?}");
    }
}

async fn book_and_fail(message: Message, cx: &mut Context<FaultySqlite>) -> Result<(), BoxError> {
    book(message, cx).await?;
    match cx.data::<Semaphore>()?.try_acquire() {
        Ok(permit) => {
            permit.forget();
            Ok(())
        }
        Err(_) => Err("not yet".into()),
    }
}

// FAULTS A9, DESIGN rule 2: on a database, the second waits for the first.
#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_duplicates_takes_effect_once() {
    let books = EffectsDatabase::new();
    let inbox = Inbox::builder("test", books.store())
        .data(Semaphore::new(1))
        .on("t", handler("book", book_and_fail).inline())
        .build()
        .unwrap();
    let storm: Vec<_> = (0..32)
        .map(|_| {
            let inbox = inbox.clone();
            tokio::spawn(async move { inbox.process(message("1", "")).await.unwrap() })
        })
        .collect();
    let mut done = 0;
    for delivery in storm {
        match in_time(delivery).await.unwrap() {
            Processed::Done => done += 1,
            Processed::Duplicate | Processed::Busy => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((done, books.effects("1")), (1, 1));
    // What fails is rolled back, the mark with it.
    assert_eq!(inbox.process(message("2", "")).await.unwrap(), failed("not yet"));
    assert_eq!(books.effects("2"), 0);
}

#[tokio::test]
async fn one_handler_that_fails_keeps_no_other_from_its_work() {
    let setup = Testbed::new(|inbox, script| {
        ["a", "b", "c"].iter().fold(inbox, |inbox, key| inbox.on("t", script.handler(key).inline()))
    });
    setup.script.says("a", "1", "fail no");
    assert_eq!(process(&setup, "1").await, failed("no"));
    assert_eq!(setup.script.log(), ["a 1 1", "b 1 1", "c 1 1"]);
    setup.script.says("a", "1", "reject never");
    let rejected = Processed::Failed(Outcome::Reject { error: ErrorText::new("never") });
    assert_eq!(process(&setup, "1").await, rejected);
    setup.script.says("a", "1", "ok");
    assert_eq!(process(&setup, "1").await, Processed::Done);
    assert_eq!(process(&setup, "1").await, Processed::Duplicate);
    assert_eq!(
        (setup.script.runs("a", "1"), setup.script.runs("b", "1"), setup.script.runs("c", "1")),
        (3, 1, 1)
    );
}

#[tokio::test]
async fn a_message_can_have_both_kinds_of_handlers() {
    let setup = Testbed::new(|inbox, script| {
        inbox
            .on("t", script.handler("now").inline().retry(Retry::new(3, 7 * SECOND, 9 * SECOND)))
            .on("t", script.handler("later"))
    });
    setup.script.says("now", "1", "fail no");
    let receipt = setup.inbox.receive(message("1", "ok")).await.unwrap();
    assert_eq!(receipt, Receipt::Failed { after: 7 * SECOND });
    assert_eq!(setup.status("1", "later").await, Status::Pending, "stored, though the inline one failed");
    setup.script.says("now", "1", "ok");
    for _ in 0..2 {
        assert_eq!(setup.inbox.receive(message("1", "ok")).await.unwrap(), Receipt::Done);
    }
    assert_eq!(setup.inbox.drain().await.unwrap(), 1);
    assert_eq!(setup.script.log(), ["now 1 1", "now 1 1", "later 1 1"]);
}

// FAULTS A10: what is quarantined for a person must not run on another way.
#[tokio::test]
async fn a_conflict_runs_no_inline_handler() {
    let setup = Testbed::new(|inbox, script| {
        inbox.on("t", script.handler("now").inline()).on("t", script.handler("later"))
    });
    setup.script.says("now", "1", "fail no");
    let _ = setup.inbox.receive(message("1", "ok")).await.unwrap();
    assert_eq!(setup.inbox.receive(message("1", "another payload")).await.unwrap(), Receipt::Done);
    assert_eq!(setup.script.runs("now", "1"), 1);
    assert_eq!(counts(&setup.inbox).await.quarantined, 1);
}

#[derive(serde::Deserialize)]
struct Number(#[expect(dead_code, reason = "only its decoding matters")] u64);

async fn take_number(_: Number, _: &mut Context<FaultyMemory>) -> Result<(), BoxError> {
    Ok(())
}

#[tokio::test]
async fn a_receipt_says_what_to_tell_the_broker() {
    let setup = Testbed::new(|inbox, script| {
        let retry = Retry::new(3, 7 * SECOND, 9 * SECOND);
        let number: Registration<FaultyMemory> = handler("number", take_number);
        inbox.on("t", script.handler("h").inline().retry(retry)).on("number", number.inline())
    });
    let receipts = [
        ("ok", Receipt::Done),
        ("discard old", Receipt::Done),
        ("fail no", Receipt::Failed { after: 7 * SECOND }),
        ("panic no", Receipt::Failed { after: 7 * SECOND }),
        ("snooze 3", Receipt::Snoozed { after: 3 * SECOND }),
        ("after 4", Receipt::Failed { after: 4 * SECOND }),
        ("reject bad", Receipt::Rejected { reason: "bad".into() }),
    ];
    for (play, receipt) in receipts {
        assert_eq!(setup.inbox.receive(message(play, play)).await.unwrap(), receipt, "{play}");
    }
    let undecodable = setup.inbox.receive(Message::new("1", "number", "seven")).await.unwrap();
    assert!(matches!(undecodable, Receipt::Rejected { reason } if reason.contains("does not decode")));
}

#[tokio::test]
async fn a_type_without_an_inline_handler_is_refused() {
    let setup = Testbed::new(|inbox, script| inbox.on("t", script.handler("h")));
    assert_eq!(setup.inbox.process(message("1", "ok")).await.unwrap_err().kind(), ErrorKind::Unrouted);
    assert_eq!(counts(&setup.inbox).await.messages, 0);
}

#[tokio::test]
async fn once_belongs_to_the_callers_own_transaction() {
    let books = EffectsDatabase::new();
    let inbox = Inbox::builder("test", books.options().open().unwrap()).build().unwrap();
    let mut mine = books.connect();
    let mark =
        async |mine: &mut Connection, handler: &str| inbox.once(mine, &message("1", ""), handler).await;
    let run = |mine: &Connection, sql: &str| mine.execute_batch(sql).unwrap();

    run(&mine, "BEGIN IMMEDIATE");
    assert_eq!(mark(&mut mine, "a").await.unwrap(), Mark::First);
    assert_eq!(mark(&mut mine, "a").await.unwrap(), Mark::Duplicate, "seen by the transaction itself");
    run(&mine, "ROLLBACK; BEGIN IMMEDIATE");
    assert_eq!(mark(&mut mine, "a").await.unwrap(), Mark::First, "a rollback leaves no mark");
    run(&mine, "INSERT INTO effect VALUES ('1'); COMMIT; BEGIN IMMEDIATE");
    assert_eq!(mark(&mut mine, "a").await.unwrap(), Mark::Duplicate);
    assert_eq!(mark(&mut mine, "b").await.unwrap(), Mark::First, "handlers never share a mark");
    assert_eq!(mark(&mut mine, "").await.unwrap_err().kind(), ErrorKind::InvalidHandler);
    run(&mine, "ROLLBACK");
    assert_eq!(books.effects("1"), 1);
}

#[tokio::test]
async fn once_and_inline_share_their_marks() {
    let setup = inline();
    let mut tx = oncebox::store::Transactional::begin(setup.store()).await.unwrap();
    assert_eq!(setup.inbox.once(&mut tx, &message("1", "ok"), "h").await.unwrap(), Mark::First);
    assert_eq!(process(&setup, "1").await, Processed::Busy);
    oncebox::store::Transactional::commit(setup.store(), tx).await.unwrap();
    assert_eq!(process(&setup, "1").await, Processed::Duplicate);
    assert!(setup.script.log().is_empty());
}

// A sweep forgets marks past their retention, and no others.
#[tokio::test]
async fn marks_leave_with_their_retention() {
    let clock = TestClock::new();
    let books = EffectsDatabase::new();
    let store = oncebox_testkit::FaultyStore::new(books.options().clock(clock.shared()).open().unwrap());
    let inbox = Inbox::builder("test", store)
        .clock(clock.shared())
        .data(Arc::new(()))
        .on("t", handler("book", book).inline())
        .build()
        .unwrap();
    assert_eq!(inbox.process(message("1", "")).await.unwrap(), Processed::Done);
    clock.advance(std::time::Duration::from_hours(24 * 6));
    inbox.sweep().await.unwrap();
    assert_eq!(inbox.process(message("1", "")).await.unwrap(), Processed::Duplicate);
    clock.advance(std::time::Duration::from_hours(25));
    inbox.sweep().await.unwrap();
    assert_eq!(inbox.process(message("1", "")).await.unwrap(), Processed::Done);
}

// FAULTS A10: counted, told and answered as what is in conflict with a stored message.
#[tokio::test]
async fn another_message_under_a_known_key_is_quarantined() {
    let capture = LogCapture::default();
    let _listening = capture.listen();
    let setup = inline();
    assert_eq!(process(&setup, "1").await, Processed::Done);
    assert_eq!(setup.inbox.process(message("1", "another thing")).await.unwrap(), Processed::Conflict);
    let received = setup.inbox.receive_each([message("1", "another thing")]).await.remove(0).unwrap();
    assert_eq!((received.receipt, received.duplicate), (Receipt::Done, false));
    let [(handler, answer)] = &received.handlers[..] else { panic!("one handler: {:?}", received.handlers) };
    assert_eq!((handler.as_str(), answer), ("h", &HandlerAnswer::Ran(Processed::Conflict)));
    assert!(answer.is_quarantined() && !answer.is_new());
    assert_eq!(setup.script.log(), ["h 1 1"]);
    assert_eq!(counts(&setup.inbox).await.conflicts, 1);
    assert_eq!(capture.counted("oncebox_accepted_total{inbox=test,outcome=conflict}"), 2);
    assert_eq!(capture.counted("oncebox_inline_total{inbox=test,handler=h,result=conflict}"), 2);
    assert!(!capture.logged("quarantined").is_empty());
}

// FAULTS A10, A4: what cannot be quarantined is not acknowledged.
#[tokio::test]
async fn a_conflict_that_cannot_be_quarantined_is_an_error_and_comes_again() {
    let setup = inline();
    assert_eq!(process(&setup, "1").await, Processed::Done);
    let other = || message("1", "another thing");
    for (verb, fault, kind) in [
        (StoreVerb::Quarantine, StoreFault::ErrBefore(ErrorKind::Unavailable), ErrorKind::Unavailable),
        (StoreVerb::Commit, StoreFault::ErrAfter, ErrorKind::CommitUnknown),
    ] {
        setup.store().faults().next(verb, fault);
        assert_eq!(setup.inbox.receive(other()).await.unwrap_err().kind(), kind, "{verb:?}");
    }
    assert_eq!(setup.inbox.receive(other()).await.unwrap(), Receipt::Done);
    assert_eq!(counts(&setup.inbox).await.conflicts, 1, "that of the unknown commit is the same");
}

#[tokio::test]
async fn where_the_first_wins_another_payload_is_a_duplicate_and_counted() {
    let capture = LogCapture::default();
    let _listening = capture.listen();
    let order = |id: &str, payload: &str| {
        Message::new(id.to_owned(), "t", payload.to_owned()).with_header("correlation-id", "7")
    };
    let setup = Testbed::new(|inbox, script| {
        let config = Config { key: KeyStrategy::correlation_id(), ..Config::default() };
        inbox.config(config).on("t", script.handler("h").inline())
    });
    assert_eq!(setup.inbox.process(order("1", "ok")).await.unwrap(), Processed::Done);
    assert_eq!(setup.inbox.process(order("2", "ok;ok")).await.unwrap(), Processed::Duplicate);
    assert_eq!(counts(&setup.inbox).await.quarantined, 0);
    assert_eq!(capture.counted("oncebox_allowed_conflicts_total{inbox=test,policy=first_wins}"), 1);
}
