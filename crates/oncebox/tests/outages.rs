//! A store that is away, or whose answers are lost: nothing is lost, nothing is burned, and it goes on by itself.

mod support;

use std::sync::Arc;
use std::time::Duration;

use oncebox::state::Status;
use oncebox::store::{Accepted, Store as _};
use oncebox::{BoxError, Config, Context, ErrorKind, Inbox, Message, Retry, handler};
use oncebox_testkit::{FaultyStore, StoreFault, StoreVerb, TestClock};
use support::books::{EffectsDatabase, FaultySqlite, book};
use support::log_capture::LogCapture;
use support::{FaultyMemory, SECOND, Testbed, counts, entry, in_time, message, quiet};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

const AWAY: StoreFault = StoreFault::ErrBefore(ErrorKind::Unavailable);
const VERBS: [StoreVerb; 5] =
    [StoreVerb::Claim, StoreVerb::Settle, StoreVerb::Renew, StoreVerb::Rescue, StoreVerb::Sweep];

fn one_handler() -> Testbed {
    Testbed::new(|inbox, script| inbox.on("t", script.handler("h")))
}

// FAULTS A15, E5: longer than any lease.
#[tokio::test]
async fn an_outage_loses_nothing_and_burns_nothing() {
    let denied = StoreFault::ErrBefore(ErrorKind::Denied);
    for fault in [AWAY, StoreFault::ErrBefore(ErrorKind::ReadOnly), denied, StoreFault::Hang] {
        let setup = one_handler();
        let running = setup.inbox.start();
        for id in ["long", "ends"] {
            setup.accept(id, "wait").await;
        }
        in_time(setup.script.started(2)).await;
        setup.accept("pending", "snooze 60;ok").await;
        setup.script.says("h", "pending", "ok");
        for verb in VERBS {
            setup.store().faults().always(verb, fault);
        }
        // One that hangs is done when the store is back, before anybody can say that the worker lives.
        setup.store().faults().always(StoreVerb::Rescue, AWAY);
        setup.script.go(1);
        setup.pass(Duration::from_mins(20)).await;
        assert_eq!(setup.script.running(), 0, "{fault:?}: who lost the lease must not go on");
        setup.store().faults().clear();
        setup.script.go(1);
        setup.pass(Duration::from_mins(1)).await;
        for id in ["long", "ends", "pending"] {
            let done = setup.entry(id, "h").await;
            assert_eq!(
                (done.status, done.attempts, done.suspicion.stored()),
                (Status::Completed, 0, 0),
                "{fault:?} {id}"
            );
        }
        assert_eq!(running.in_flight(), 0);
        assert!(setup.script.log().len() <= 4, "{fault:?}: {:?}", setup.script.log());
    }
}

#[tokio::test]
async fn the_log_says_when_the_store_answers_again() {
    let capture = LogCapture::default();
    let _listening = capture.listen();
    let setup = one_handler();
    setup.store().faults().script(StoreVerb::Accept, [Some(AWAY), Some(AWAY)]);
    for _ in 0..2 {
        setup.inbox.accept(message("1", "ok")).await.expect_err("it is away");
        setup.clock.advance(SECOND);
    }
    assert_eq!(capture.logged("the store answers again"), Vec::<String>::new());
    for id in ["1", "2"] {
        setup.accept(id, "ok").await;
    }
    let logged = capture.logged("the store answers again");
    assert_eq!(logged.len(), 1, "{logged:?}");
    for part in ["INFO", "verb=\"accept\"", "failed_for=2s", "calls=2"] {
        assert!(logged[0].contains(part), "{part}: {logged:?}");
    }
    // What is wrong with the settings is no answer, and what lasted for a moment no outage.
    let wrong = StoreFault::ErrBefore(ErrorKind::InvalidConfig);
    setup.store().faults().script(StoreVerb::Accept, [Some(AWAY), Some(wrong), None, Some(AWAY)]);
    for (id, after) in [("3", SECOND), ("3", SECOND), ("3", SECOND), ("4", Duration::ZERO), ("4", SECOND)] {
        let _ = setup.inbox.accept(message(id, "ok")).await;
        setup.clock.advance(after);
    }
    assert_eq!(capture.logged("the store answers again").len(), 1);
}

// FAULTS B3, D2: what was done and not answered is found by asking again, and nothing runs twice.
#[tokio::test]
async fn an_answer_that_was_lost_changes_nothing() {
    // So long that renewals whose answers are lost leave time for others.
    let config = || Config { lease: Duration::from_mins(5), ..Config::default() };
    for verb in VERBS {
        for faults in [
            vec![StoreFault::ErrAfter],
            vec![StoreFault::ErrAfter; 5],
            vec![StoreFault::ErrAfter, AWAY, AWAY],
        ] {
            let setup = Testbed::new(|inbox, script| inbox.config(config()).on("t", script.handler("h")));
            let running = setup.inbox.start();
            in_time(running.idle()).await;
            setup.store().faults().script(verb, faults.iter().copied().map(Some));
            for id in ["1", "2", "3"] {
                setup.accept(id, "wait").await;
            }
            setup.pass(Duration::from_mins(2)).await;
            setup.script.go(3);
            setup.pass(Duration::from_mins(2)).await;
            assert_eq!(setup.script.log().len(), 3, "{verb:?} {faults:?}");
            for id in ["1", "2", "3"] {
                let done = setup.entry(id, "h").await;
                assert_eq!(
                    (done.status, done.suspicion.stored()),
                    (Status::Completed, 0),
                    "{verb:?} {faults:?}"
                );
            }
            assert_eq!(running.in_flight(), 0);
        }
    }
}

// FAULTS B10: the crash is counted once, and the entry does not wait for another lease.
#[tokio::test]
async fn a_rescue_whose_answer_was_lost_is_asked_for_again() {
    for (verb, faults) in [
        (StoreVerb::Rescue, vec![StoreFault::ErrAfter]),
        (StoreVerb::Rescue, vec![StoreFault::ErrAfter, AWAY, StoreFault::ErrAfter]),
        (StoreVerb::Settle, vec![StoreFault::ErrAfter]),
        (StoreVerb::Settle, vec![AWAY, AWAY, AWAY]),
    ] {
        let setup = one_handler();
        let running = setup.inbox.start();
        setup.accept("1", "wait").await;
        in_time(setup.script.started(1)).await;
        setup.die(running, Duration::from_mins(5)).await;
        setup.script.says("h", "1", "ok");
        setup.store().faults().script(verb, faults.iter().copied().map(Some));
        let running = setup.inbox.start();
        setup.pass(10 * SECOND).await;
        let done = setup.entry("1", "h").await;
        assert_eq!((done.status, done.suspicion.stored()), (Status::Completed, 1), "{verb:?} {faults:?}");
        drop(running);
    }
}

// The deadline of a claim that was asked for twice counts from the first time.
#[tokio::test]
async fn a_claim_that_took_long_to_be_known_is_not_held_too_long() {
    let setup = Testbed::new(|inbox, script| {
        let config = Config { lease: 10 * SECOND, ..Config::default() };
        inbox.config(config).on("t", script.handler("h"))
    });
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    setup.store().faults().script(StoreVerb::Claim, [Some(StoreFault::ErrAfter), Some(StoreFault::Hang)]);
    setup.store().faults().always(StoreVerb::Renew, AWAY);
    setup.accept("1", "wait").await;
    quiet().await;
    setup.pass(4 * SECOND).await;
    setup.store().faults().release();
    in_time(setup.script.started(1)).await;
    setup.pass(5 * SECOND).await;
    assert_eq!(setup.script.cut(), 1, "stopped before the lease of the first call ends");
    drop(running);
}

/// Waits until a message is done; the store tells of every change.
async fn done(inbox: &Inbox<FaultySqlite>, id: &str) {
    let mut wakeup = inbox.store().wakeups().expect("SQLite tells of changes").subscribe();
    in_time(async {
        while entry(inbox, id, "book").await.status != Status::Completed {
            wakeup.woken().await;
        }
    })
    .await;
}

// FAULTS C1, D2: exactly once, wherever an answer is lost on the way.
#[tokio::test(flavor = "multi_thread")]
async fn a_transactional_handler_takes_effect_once_whatever_is_lost() {
    let books = EffectsDatabase::new();
    let store = books.store();
    let inbox = Inbox::builder("test", store.clone())
        .on("t", handler("book", book).retry(Retry::never()))
        .build()
        .unwrap();
    let running = inbox.start();
    let mut ids = Vec::new();
    for verb in [
        StoreVerb::Accept,
        StoreVerb::Claim,
        StoreVerb::Begin,
        StoreVerb::Complete,
        StoreVerb::Commit,
        StoreVerb::Settle,
    ] {
        for fault in [AWAY, StoreFault::ErrAfter] {
            let id = format!("{verb:?} {fault:?}");
            in_time(running.idle()).await;
            store.faults().next(verb, fault);
            // A settlement is written only for a handler that does not complete in its own transaction.
            if verb == StoreVerb::Settle {
                store.faults().next(StoreVerb::Complete, AWAY);
            }
            let first = inbox.accept(message(&id, "")).await;
            if verb == StoreVerb::Accept {
                let kind = if fault == AWAY { ErrorKind::Unavailable } else { ErrorKind::CommitUnknown };
                assert_eq!(first.unwrap_err().kind(), kind);
                let again = inbox.accept(message(&id, "")).await.unwrap();
                assert_eq!(matches!(again, Accepted::First(_)), fault == AWAY, "{id}: {again:?}");
            } else {
                first.unwrap();
            }
            ids.push(id);
        }
    }
    for id in &ids {
        done(&inbox, id).await;
        let done = entry(&inbox, id, "book").await;
        assert_eq!((done.attempts, done.suspicion.stored(), books.effects(id)), (0, 0, 1), "{id}");
    }
    in_time(running.idle()).await;
    assert_eq!((running.in_flight(), counts(&inbox).await.with_status(Status::Running)), (0, 0));
    in_time(running.shutdown()).await;
}

async fn book_or_fail(message: Message, cx: &mut Context<FaultySqlite>) -> Result<(), BoxError> {
    let attempt = cx.attempt();
    book(message, cx).await?;
    match attempt {
        1 => Err("not yet".into()),
        2 => panic!("not yet either"),
        _ => Ok(()),
    }
}

// FAULTS C2: the transaction is rolled back before the failure is written, or the two would wait for each other.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_transactional_handler_leaves_no_effect() {
    let books = EffectsDatabase::new();
    let few = Duration::from_millis(20);
    let inbox = Inbox::builder("test", books.store())
        .on("t", handler("book", book_or_fail).retry(Retry::new(3, few, few)))
        .build()
        .unwrap();
    let running = inbox.start();
    inbox.accept(message("1", "")).await.unwrap();
    done(&inbox, "1").await;
    assert_eq!((entry(&inbox, "1", "book").await.attempts, books.effects("1")), (2, 1));
    in_time(running.shutdown()).await;
}

async fn hog(message: Message, cx: &mut Context<FaultySqlite>) -> Result<(), BoxError> {
    let first = message.payload() == "hog"
        && cx.data::<Arc<Semaphore>>()?.try_acquire().map(SemaphorePermit::forget).is_ok();
    book(message, cx).await?;
    if first {
        // The transaction stays open, and with it the one place where this file can be written.
        std::future::pending::<()>().await;
    }
    Ok(())
}

// FAULTS B6, E6: a handler that holds what the renewals need is stopped, and everything else goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_never_ends_its_transaction_does_not_stop_the_others() {
    let books = EffectsDatabase::new();
    let inbox = Inbox::builder("test", books.store())
        .config(Config { lease: Duration::from_millis(600), ..Config::default() })
        .data(Arc::new(Semaphore::new(1)))
        .on("t", handler("book", hog))
        .build()
        .unwrap();
    let running = inbox.start();
    inbox.accept(message("hog", "hog")).await.unwrap();
    for id in ["1", "2", "3"] {
        inbox.accept(message(id, "")).await.unwrap();
    }
    for id in ["1", "2", "3", "hog"] {
        done(&inbox, id).await;
        assert_eq!(books.effects(id), 1, "{id}");
    }
    in_time(running.shutdown()).await;
}

async fn book_late(message: Message, cx: &mut Context<FaultySqlite>) -> Result<(), BoxError> {
    let gate = cx.data::<Arc<(Notify, Semaphore)>>()?;
    let (begun, go) = (&gate.0, &gate.1);
    begun.notify_one();
    go.acquire().await?.forget();
    book(message, cx).await
}

// FAULTS B4, C14: a zombie wakes up after its entry was taken over and done.
#[tokio::test]
async fn the_effects_of_a_zombie_are_rolled_back() {
    let (books, clock) = (EffectsDatabase::new(), TestClock::new());
    let gate = Arc::new((Notify::new(), Semaphore::new(0)));
    let worker = || {
        let store = FaultyStore::new(books.options().clock(clock.shared()).open().unwrap());
        let inbox = Inbox::builder("test", store).clock(clock.shared()).data(Arc::clone(&gate));
        inbox.on("t", handler("book", book_late)).build().unwrap()
    };
    let (zombie, other) = (worker(), worker());
    zombie.accept(message("1", "")).await.unwrap();
    zombie.store().faults().always(StoreVerb::Renew, AWAY);
    let late = tokio::spawn(async move { zombie.drain().await });
    in_time(gate.0.notified()).await;
    clock.advance(Duration::from_secs(301));
    let second = tokio::spawn(async move {
        let ran = other.drain().await;
        (other, ran)
    });
    in_time(gate.0.notified()).await;
    // First come, first served: the zombie goes on before the one that holds the claim.
    gate.1.add_permits(1);
    assert_eq!(in_time(late).await.unwrap().unwrap(), 1);
    assert_eq!(books.effects("1"), 0, "another worker has the claim");
    gate.1.add_permits(1);
    let (other, ran) = in_time(second).await.unwrap();
    assert_eq!((ran.unwrap(), books.effects("1")), (1, 1));
    let done = entry(&other, "1", "book").await;
    assert_eq!((done.status, done.suspicion.stored()), (Status::Completed, 1));
}

async fn in_a_transaction(_: Message, cx: &mut Context<FaultyMemory>) -> Result<(), oncebox::Error> {
    cx.tx().await.map(drop)
}

// A commit that can never work is the handler's failure. Any other failed commit is not.
#[tokio::test]
async fn only_a_commit_that_can_never_work_is_a_failed_attempt() {
    for kind in
        [ErrorKind::Unavailable, ErrorKind::Full, ErrorKind::ReadOnly, ErrorKind::Denied, ErrorKind::Corrupt]
    {
        let setup = Testbed::new(|inbox, _| inbox.on("t", handler("h", in_a_transaction)));
        setup.store().faults().next(StoreVerb::Commit, StoreFault::ErrBefore(kind));
        setup.accept("1", "").await;
        let running = setup.inbox.start();
        in_time(running.idle()).await;
        let failed = setup.entry("1", "h").await;
        let burned = u32::from(kind == ErrorKind::Corrupt);
        assert_eq!(
            (failed.status, failed.attempts, failed.suspicion.stored()),
            (Status::Pending, burned, 0),
            "{kind:?}"
        );
        setup.pass(5 * SECOND).await;
        assert_eq!(setup.status("1", "h").await, Status::Completed, "{kind:?}");
    }
}

// FAULTS J6: trouble is waited out, not shouted at the store.
#[tokio::test]
async fn a_store_that_is_away_is_asked_less_and_less() {
    let setup = one_handler();
    let running = setup.inbox.start();
    setup.accept("1", "wait").await;
    in_time(setup.script.started(1)).await;
    setup.store().faults().always(StoreVerb::Settle, AWAY);
    setup.script.go(1);
    setup.pass(Duration::from_mins(1)).await;
    let calls = setup.store().faults().calls(StoreVerb::Settle);
    assert!((10..=25).contains(&calls), "{calls} calls in a minute");
    setup.store().faults().clear();
    setup.pass(6 * SECOND).await;
    assert_eq!(setup.status("1", "h").await, Status::Completed);
    assert_eq!(setup.script.log().len(), 1);
    drop(running);
}

// No refused login, privilege or connection ends a part of a running inbox.
#[tokio::test]
async fn a_refused_login_ends_no_component() {
    let capture = LogCapture::default();
    let _listening = capture.listen();
    let setup = one_handler();
    let verbs = [
        StoreVerb::Register,
        StoreVerb::Claim,
        StoreVerb::Renew,
        StoreVerb::Rescue,
        StoreVerb::Sweep,
        StoreVerb::Backlog,
    ];
    for verb in verbs {
        setup.store().faults().always(verb, StoreFault::ErrBefore(ErrorKind::Denied));
    }
    let running = setup.inbox.start();
    setup.pass(Duration::from_mins(3)).await;
    assert_eq!(capture.logged("component failed"), Vec::<String>::new());
    setup.store().faults().clear();
    setup.accept("1", "ok").await;
    setup.pass(10 * SECOND).await;
    assert_eq!(setup.status("1", "h").await, Status::Completed);
    drop(running);
}
