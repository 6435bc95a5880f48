//! A handler that only fails is left alone, and so is one that an operator paused: no attempts are burned.

mod support;

use std::time::Duration;

use oncebox::state::Status;
use oncebox::store::Admin as _;
use oncebox::{Breaker, BreakerState, ErrorKind, HandlerKey, Inbox, Memory, Registration, Retry, Running};
use oncebox_testkit::{StoreFault, StoreVerb};
use support::meter::Meter;
use support::{Faulty, SECOND, Stage, World, in_time, quiet};

const PAUSE: Duration = Duration::from_secs(10);

/// A handler whose breaker opens after three failures; nothing that failed is tried again while a test looks on.
fn broken(stage: &Stage) -> Registration<Faulty> {
    stage
        .handler("h")
        .breaker(Breaker::new(3, PAUSE))
        .retry(Retry::fixed(5, Duration::from_hours(2)))
        .timeout(SECOND)
        .concurrency(1)
}

fn world() -> World {
    World::new(|inbox, stage| inbox.on("t", broken(stage)).on("u", stage.handler("other")))
}

async fn accept(world: &World, plays: &[&str]) {
    for (n, play) in plays.iter().enumerate() {
        world.accept(&n.to_string(), play).await;
    }
}

fn state(running: &Running<Faulty>) -> BreakerState {
    let breakers = running.breakers();
    assert_eq!(breakers.len(), 1, "only one handler has one");
    assert_eq!(breakers[0].0.as_str(), "h");
    breakers[0].1
}

async fn attempts(world: &World) -> u32 {
    let mut attempts = 0;
    for n in 0..10 {
        attempts += world.entry(&n.to_string(), "h").await.attempts;
    }
    attempts
}

// FAULTS C10: ten entries, an outage of an hour, and a handful of attempts.
#[tokio::test]
async fn an_outage_burns_few_attempts_and_is_over_when_a_probe_does_well() {
    let world = world();
    accept(&world, &["fail down"; 10]).await;
    let running = world.inbox.start();
    in_time(running.idle()).await;
    assert_eq!((world.stage.log().len(), attempts(&world).await), (3, 3));
    assert_eq!(state(&running), BreakerState::Open { left: PAUSE });
    let claims = world.store().faults().calls(StoreVerb::Claim);
    world.pass(9 * SECOND).await;
    assert_eq!(world.stage.log().len(), 3, "nothing runs within the pause");
    assert!(
        world.store().faults().calls(StoreVerb::Claim) <= claims + 2,
        "and it is not asked for in a loop"
    );
    // One probe each, after 10, 20, 40, 80 and 160 seconds, and so on from then on.
    for (pause, probes) in [(1, 1), (20, 2), (40, 3), (80, 4), (160, 5), (160, 6)] {
        world.pass(SECOND * pause + SECOND / 2).await;
        assert_eq!(world.stage.log().len(), 3 + probes, "after {pause} s");
    }
    assert_eq!((attempts(&world).await, world.count(Status::Poisoned).await), (9, 0));
    for n in 0..10 {
        world.stage.says("h", &n.to_string(), "ok");
    }
    world.pass(SECOND * 161).await;
    in_time(running.idle()).await;
    assert_eq!(state(&running), BreakerState::Closed { failures: 0 });
    assert_eq!(world.count(Status::Completed).await, 1, "the others failed before, and wait for their retry");
    world.accept("new", "ok").await;
    in_time(running.idle()).await;
    assert_eq!(world.status("new", "h").await, Status::Completed, "at once");
}

// Errors, timeouts and panics count; what a handler says about a message does not, and a success begins anew.
#[tokio::test]
async fn only_failures_in_a_row_count() {
    let world = world();
    let running = world.inbox.start();
    let open = |running: &Running<Faulty>| matches!(state(running), BreakerState::Open { .. });
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
        world.accept(&n.to_string(), play).await;
        in_time(world.stage.started(n + 1)).await;
        world.pass(2 * SECOND).await;
        in_time(running.idle()).await;
        assert_eq!(open(&running), is_open, "{play}");
    }
}

// What was claimed and not begun when it opens is given back, and no attempt is counted for it.
#[tokio::test]
async fn what_did_not_begin_is_given_back_uncounted() {
    for share in [false, true] {
        let world = World::new(|inbox, stage| {
            let broken = broken(stage).concurrency(64);
            inbox.on("t", if share { broken.share_commit(64) } else { broken })
        });
        accept(&world, &["fail down"; 10]).await;
        let running = world.inbox.start();
        in_time(running.idle()).await;
        assert_eq!((world.stage.log().len(), attempts(&world).await), (3, 3));
        assert_eq!((world.count(Status::Pending).await, running.in_flight()), (10, 0));
        for n in 3..10 {
            assert_eq!(world.entry(&n.to_string(), "h").await.attempts, 0, "{n}");
        }
    }
}

// A run that did well in a transaction that then failed runs again, and is not mistaken for one that may not begin.
#[tokio::test]
async fn a_shared_transaction_that_fails_is_no_reason_to_give_back() {
    let meter = Meter::default();
    let _guard = metrics::set_default_local_recorder(&meter);
    let world = World::new(|inbox, stage| inbox.on("t", broken(stage).concurrency(64).share_commit(64)));
    accept(&world, &["fail a", "fail b", "ok", "fail c", "fail d", "ok"]).await;
    world.store().faults().next(StoreVerb::Commit, StoreFault::ErrBefore(ErrorKind::Unavailable));
    let running = world.inbox.start();
    in_time(running.idle()).await;
    for n in [2, 5] {
        assert_eq!(world.status(&n.to_string(), "h").await, Status::Completed, "{n}");
    }
    assert_eq!((state(&running), world.stage.log().len()), (BreakerState::Closed { failures: 0 }, 8));
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
    let world = World::new(|inbox, stage| inbox.on("t", broken(stage).concurrency(4).timeout(9 * PAUSE)));
    accept(&world, &["wait", "fail a", "fail b", "fail c"]).await;
    let running = world.inbox.start();
    in_time(world.stage.started(4)).await;
    quiet().await;
    assert!(matches!(state(&running), BreakerState::Open { .. }));
    world.stage.go(1);
    in_time(running.idle()).await;
    assert_eq!(world.status("0", "h").await, Status::Completed);
    assert_eq!(state(&running), BreakerState::Open { left: PAUSE });
    // Several are due when the pause is over; one of them is tried.
    for id in ["x", "y", "z"] {
        world.accept(id, "wait").await;
    }
    world.pass(PAUSE).await;
    assert_eq!((state(&running), world.stage.running()), (BreakerState::Probing, 1));
    world.stage.go(3);
    in_time(running.idle()).await;
    assert_eq!(world.count(Status::Completed).await, 4);
}

// A probe that is cut short says nothing: the next one must not wait for it for ever.
#[tokio::test]
async fn a_probe_that_learns_nothing_makes_room_for_another() {
    let world = World::new(|inbox, stage| inbox.on("t", broken(stage)));
    accept(&world, &["fail a", "fail b", "fail c", "snooze 9000", "reject x", "ok"]).await;
    let running = world.inbox.start();
    in_time(running.idle()).await;
    assert_eq!(world.stage.log().len(), 3);
    world.pass(PAUSE + SECOND).await;
    assert_eq!(world.stage.log().len(), 6);
    assert_eq!(state(&running), BreakerState::Closed { failures: 0 });
}

#[tokio::test]
async fn by_hand_it_is_the_same_breaker() {
    let world = world();
    accept(&world, &["fail down"; 10]).await;
    assert_eq!(world.inbox.drain().await.unwrap(), 3);
    assert_eq!((world.inbox.drain().await.unwrap(), attempts(&world).await), (0, 3));
    world.clock.advance(PAUSE);
    // A caller who goes away in the middle of a probe does not leave it open for ever.
    world.stage.says("h", "3", "wait");
    {
        let drain = world.inbox.drain();
        tokio::pin!(drain);
        tokio::select! {
            biased;
            _ = &mut drain => panic!("the probe waits"),
            () = world.stage.started(4) => {}
        }
        assert_eq!(world.inbox.breakers()[0].1, BreakerState::Probing);
    }
    world.stage.says("h", "4", "ok");
    for n in 5..10 {
        world.stage.says("h", &n.to_string(), "ok");
    }
    assert_eq!(world.inbox.drain().await.unwrap(), 6, "and the next one closes it");
    assert_eq!(world.count(Status::Completed).await, 6);
}

#[tokio::test]
async fn whoever_watches_can_see_it() {
    let meter = Meter::default();
    let _guard = metrics::set_default_local_recorder(&meter);
    let world = World::new(|inbox, stage| inbox.on("t", broken(stage)));
    let open = || meter.gauge("oncebox_breaker_open{handler=h}");
    assert_eq!(open(), Some(0.0), "there from the start");
    accept(&world, &["fail a", "fail b", "fail c", "ok"]).await;
    world.inbox.drain().await.unwrap();
    assert_eq!(open(), Some(1.0));
    world.clock.advance(PAUSE);
    world.inbox.drain().await.unwrap();
    assert_eq!(open(), Some(0.0));
}

// Paused by a person: nothing runs, nothing is counted, and everything is there afterwards.
#[tokio::test]
async fn pausing_burns_no_attempts() {
    let world = World::new(|inbox, stage| inbox.on("t", stage.handler("h")));
    let (inbox, handler) = (world.inbox.name().clone(), HandlerKey::new("h").unwrap());
    world.store().pause(&inbox, &handler).await.unwrap();
    let running = world.inbox.start();
    accept(&world, &["ok"; 5]).await;
    world.pass(Duration::from_mins(10)).await;
    assert_eq!(world.stage.log().len(), 0);
    for n in 0..5 {
        let entry = world.entry(&n.to_string(), "h").await;
        assert_eq!((entry.status, entry.attempts, entry.suspicion.stored()), (Status::Pending, 0, 0));
    }
    world.store().resume(&inbox, &handler).await.unwrap();
    world.pass(31 * SECOND).await;
    in_time(running.idle()).await;
    assert_eq!(world.count(Status::Completed).await, 5);
}

#[test]
fn a_breaker_that_cannot_work_is_refused_at_start() {
    let stage = Stage::default();
    for (breaker, what) in [
        (Breaker::new(0, SECOND), "after 0 failures"),
        (Breaker::new(1, Duration::ZERO), "`pause` of 0"),
        (Breaker::new(1, PAUSE).max_pause(SECOND), "`max_pause` of 1s"),
    ] {
        let inbox = Inbox::builder("test", Memory::new()).on("t", stage.handler("h").breaker(breaker));
        let error = inbox.build().map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidHandler);
        assert!(error.to_string().contains(what) && error.to_string().contains("\"h\""), "{error}");
    }
}
