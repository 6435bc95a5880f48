//! A handler that only fails is left alone, and so is one that an operator paused: no attempts are burned.

mod support;

use oncebox_testkit::OperatorSteps as _;
use std::time::Duration;

use oncebox::state::Status;
use oncebox::{Breaker, BreakerState, ErrorKind, HandlerKey, Inbox, Memory, Registration, Retry, Running};
use oncebox_testkit::{StoreFault, StoreVerb};
use support::meter::Meter;
use support::{FaultyMemory, RunScript, SECOND, Testbed, in_time, quiet};

const PAUSE: Duration = Duration::from_secs(10);

/// A handler whose breaker opens after three failures; nothing that failed is tried again while a test looks on.
fn broken(script: &RunScript) -> Registration<FaultyMemory> {
    script
        .handler("h")
        .breaker(Breaker::new(3, PAUSE))
        .retry(Retry::fixed(5, Duration::from_hours(2)))
        .timeout(SECOND)
        .concurrency(1)
}

fn setup() -> Testbed {
    Testbed::new(|inbox, script| inbox.on("t", broken(script)).on("u", script.handler("other")))
}

async fn accept(setup: &Testbed, plays: &[&str]) {
    for (n, play) in plays.iter().enumerate() {
        setup.accept(&n.to_string(), play).await;
    }
}

fn state(running: &Running<FaultyMemory>) -> BreakerState {
    let breakers = running.breakers();
    assert_eq!(breakers.len(), 1, "only one handler has one");
    assert_eq!(breakers[0].0.as_str(), "h");
    breakers[0].1
}

async fn attempts(setup: &Testbed) -> u32 {
    let mut attempts = 0;
    for n in 0..10 {
        attempts += setup.entry(&n.to_string(), "h").await.attempts;
    }
    attempts
}

// FAULTS C10: ten entries, an outage of an hour, and a handful of attempts.
#[tokio::test]
async fn an_outage_burns_few_attempts_and_is_over_when_a_probe_does_well() {
    let setup = setup();
    accept(&setup, &["fail down"; 10]).await;
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    assert_eq!((setup.script.log().len(), attempts(&setup).await), (3, 3));
    assert_eq!(state(&running), BreakerState::Open { left: PAUSE });
    let claims = setup.store().faults().calls(StoreVerb::Claim);
    setup.pass(9 * SECOND).await;
    assert_eq!(setup.script.log().len(), 3, "nothing runs within the pause");
    assert!(
        setup.store().faults().calls(StoreVerb::Claim) <= claims + 2,
        "and it is not asked for in a loop"
    );
    // One probe each, after 10, 20, 40, 80 and 160 seconds, and so on from then on.
    for (pause, probes) in [(1, 1), (20, 2), (40, 3), (80, 4), (160, 5), (160, 6)] {
        setup.pass(SECOND * pause + SECOND / 2).await;
        assert_eq!(setup.script.log().len(), 3 + probes, "after {pause} s");
    }
    assert_eq!((attempts(&setup).await, setup.count(Status::Poisoned).await), (9, 0));
    for n in 0..10 {
        setup.script.says("h", &n.to_string(), "ok");
    }
    setup.pass(SECOND * 161).await;
    in_time(running.idle()).await;
    assert_eq!(state(&running), BreakerState::Closed { failures: 0 });
    assert_eq!(setup.count(Status::Completed).await, 1, "the others failed before, and wait for their retry");
    setup.accept("new", "ok").await;
    in_time(running.idle()).await;
    assert_eq!(setup.status("new", "h").await, Status::Completed, "at once");
}

// Errors, timeouts and panics count; what a handler says about a message does not, and a success begins anew.
#[tokio::test]
async fn only_failures_in_a_row_count() {
    let setup = setup();
    let running = setup.inbox.start();
    let open = |running: &Running<FaultyMemory>| matches!(state(running), BreakerState::Open { .. });
    for (n, (play, is_open)) in [
        ("fail a", false),
        ("panic b", false),
        ("ok", false),
        ("fail c", false),
        ("reject d", false),
        ("discard e", false),
        ("snooze 9000", false),
        ("after 9000", false),
        ("wait", true),
    ]
    .into_iter()
    .enumerate()
    {
        setup.accept(&n.to_string(), play).await;
        in_time(setup.script.started(n + 1)).await;
        setup.pass(2 * SECOND).await;
        in_time(running.idle()).await;
        assert_eq!(open(&running), is_open, "{play}");
    }
}

// What was claimed and not begun when it opens is given back, and no attempt is counted for it.
#[tokio::test]
async fn what_did_not_begin_is_given_back_uncounted() {
    for share in [false, true] {
        let setup = Testbed::new(|inbox, script| {
            let broken = broken(script).concurrency(64);
            inbox.on("t", if share { broken.share_commit(64) } else { broken })
        });
        accept(&setup, &["fail down"; 10]).await;
        let running = setup.inbox.start();
        in_time(running.idle()).await;
        assert_eq!((setup.script.log().len(), attempts(&setup).await), (3, 3));
        assert_eq!((setup.count(Status::Pending).await, running.in_flight()), (10, 0));
        for n in 3..10 {
            assert_eq!(setup.entry(&n.to_string(), "h").await.attempts, 0, "{n}");
        }
    }
}

// A run that did well in a transaction that then failed runs again, and is not mistaken for one that may not begin.
#[tokio::test]
async fn a_shared_transaction_that_fails_is_no_reason_to_give_back() {
    let meter = Meter::default();
    let _guard = metrics::set_default_local_recorder(&meter);
    let setup = Testbed::new(|inbox, script| inbox.on("t", broken(script).concurrency(64).share_commit(64)));
    accept(&setup, &["fail a", "fail b", "ok", "fail c", "fail d", "ok"]).await;
    setup.store().faults().next(StoreVerb::Commit, StoreFault::ErrBefore(ErrorKind::Unavailable));
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    for n in [2, 5] {
        assert_eq!(setup.status(&n.to_string(), "h").await, Status::Completed, "{n}");
    }
    assert_eq!((state(&running), setup.script.log().len()), (BreakerState::Closed { failures: 0 }, 8));
    assert_eq!(meter.counter("oncebox_settled_total{inbox=test,handler=h,event=release}"), 0);
    assert_eq!(
        meter.counter("oncebox_settled_total{inbox=test,handler=h,event=fail}"),
        4,
        "who is given back is counted here"
    );
}

// Runs that began before it opened end as they end; only the probe decides.
#[tokio::test]
async fn a_late_success_does_not_close_it() {
    let setup = Testbed::new(|inbox, script| inbox.on("t", broken(script).concurrency(4).timeout(9 * PAUSE)));
    accept(&setup, &["wait", "fail a", "fail b", "fail c"]).await;
    let running = setup.inbox.start();
    in_time(setup.script.started(4)).await;
    quiet().await;
    assert!(matches!(state(&running), BreakerState::Open { .. }));
    setup.script.go(1);
    in_time(running.idle()).await;
    assert_eq!(setup.status("0", "h").await, Status::Completed);
    assert_eq!(state(&running), BreakerState::Open { left: PAUSE });
    // Several are due when the pause is over; one of them is tried.
    for id in ["x", "y", "z"] {
        setup.accept(id, "wait").await;
    }
    setup.pass(PAUSE).await;
    assert_eq!((state(&running), setup.script.running()), (BreakerState::Probing, 1));
    setup.script.go(3);
    in_time(running.idle()).await;
    assert_eq!(setup.count(Status::Completed).await, 4);
}

// A probe that is cut short says nothing: the next one must not wait for it for ever.
#[tokio::test]
async fn a_probe_that_learns_nothing_makes_room_for_another() {
    let setup = Testbed::new(|inbox, script| inbox.on("t", broken(script)));
    accept(&setup, &["fail a", "fail b", "fail c", "snooze 9000", "reject x", "ok"]).await;
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    assert_eq!(setup.script.log().len(), 3);
    setup.pass(PAUSE + SECOND).await;
    assert_eq!(setup.script.log().len(), 6);
    assert_eq!(state(&running), BreakerState::Closed { failures: 0 });
}

#[tokio::test]
async fn by_hand_it_is_the_same_breaker() {
    let setup = setup();
    accept(&setup, &["fail down"; 10]).await;
    assert_eq!(setup.inbox.drain().await.unwrap(), 3);
    assert_eq!((setup.inbox.drain().await.unwrap(), attempts(&setup).await), (0, 3));
    setup.clock.advance(PAUSE);
    // A caller who goes away in the middle of a probe does not leave it open for ever.
    setup.script.says("h", "3", "wait");
    {
        let drain = setup.inbox.drain();
        tokio::pin!(drain);
        tokio::select! {
            biased;
            _ = &mut drain => panic!("the probe waits"),
            () = setup.script.started(4) => {}
        }
        assert_eq!(setup.inbox.breakers()[0].1, BreakerState::Probing);
    }
    setup.script.says("h", "4", "ok");
    for n in 5..10 {
        setup.script.says("h", &n.to_string(), "ok");
    }
    assert_eq!(setup.inbox.drain().await.unwrap(), 6, "and the next one closes it");
    assert_eq!(setup.count(Status::Completed).await, 6);
}

#[tokio::test]
async fn an_open_breaker_shows_in_metrics_and_states() {
    let meter = Meter::default();
    let _guard = metrics::set_default_local_recorder(&meter);
    let setup = Testbed::new(|inbox, script| inbox.on("t", broken(script)));
    let open = || meter.gauge("oncebox_breaker_open{handler=h}");
    assert_eq!(open(), Some(0.0), "there from the start");
    accept(&setup, &["fail a", "fail b", "fail c", "ok"]).await;
    setup.inbox.drain().await.unwrap();
    assert_eq!(open(), Some(1.0));
    setup.clock.advance(PAUSE);
    setup.inbox.drain().await.unwrap();
    assert_eq!(open(), Some(0.0));
}

// Paused by a person: nothing runs, nothing is counted, and everything is there afterwards.
#[tokio::test]
async fn pausing_burns_no_attempts() {
    let setup = Testbed::new(|inbox, script| inbox.on("t", script.handler("h")));
    let (inbox, handler) = (setup.inbox.name().clone(), HandlerKey::new("h").unwrap());
    setup.store().pause(&inbox, &handler).await.unwrap();
    let running = setup.inbox.start();
    accept(&setup, &["ok"; 5]).await;
    setup.pass(Duration::from_mins(10)).await;
    assert_eq!(setup.script.log().len(), 0);
    for n in 0..5 {
        let entry = setup.entry(&n.to_string(), "h").await;
        assert_eq!((entry.status, entry.attempts, entry.suspicion.stored()), (Status::Pending, 0, 0));
    }
    setup.store().resume(&inbox, &handler).await.unwrap();
    setup.pass(31 * SECOND).await;
    in_time(running.idle()).await;
    assert_eq!(setup.count(Status::Completed).await, 5);
}

#[test]
fn a_breaker_that_cannot_work_is_refused_at_start() {
    let script = RunScript::default();
    for (breaker, what) in [
        (Breaker::new(0, SECOND), "after 0 failures"),
        (Breaker::new(1, Duration::ZERO), "`pause` of 0"),
        (Breaker::new(1, PAUSE).max_pause(SECOND), "`max_pause` of 1s"),
    ] {
        let inbox = Inbox::builder("test", Memory::new()).on("t", script.handler("h").breaker(breaker));
        let error = inbox.build().map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidHandler);
        assert!(error.to_string().contains(what) && error.to_string().contains("\"h\""), "{error}");
    }
}
