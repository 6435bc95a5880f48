//! Start, stop, and what happens when a part of the runtime fails.

mod support;

use oncebox::store::Inspect;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use oncebox::state::Status;
use oncebox::{BoxError, Config, Context, ErrorKind, Inbox, Memory, Message, handler};
use oncebox_testkit::{StoreFault, StoreVerb, TestClock};
use parking_lot::Mutex;
use support::panicky::Panicky;
use support::{FaultyMemory, RunScript, SECOND, Testbed, in_time, message, pass, quiet};

fn one_handler() -> Testbed {
    Testbed::new(|inbox, script| inbox.on("t", script.handler("h")))
}

/// A store that does not answer in any way, from now on.
fn away(setup: &Testbed, fault: StoreFault) {
    for verb in [
        StoreVerb::Accept,
        StoreVerb::Claim,
        StoreVerb::Settle,
        StoreVerb::Renew,
        StoreVerb::Rescue,
        StoreVerb::Sweep,
    ] {
        setup.store().faults().always(verb, fault);
    }
}

// FAULTS C5
#[tokio::test]
async fn shutdown_waits_for_running_handlers_and_begins_nothing_new() {
    let setup = one_handler();
    let running = setup.inbox.start();
    setup.accept("1", "wait").await;
    in_time(setup.script.started(1)).await;
    let end = tokio::spawn(running.shutdown());
    quiet().await;
    setup.accept("2", "ok").await;
    setup.pass(10 * SECOND).await;
    assert!(!end.is_finished());
    setup.script.go(1);
    in_time(end).await.unwrap();
    assert_eq!(setup.script.log(), ["h 1 1"]);
    assert_eq!(setup.status("1", "h").await, Status::Completed);
    assert_eq!(setup.status("2", "h").await, Status::Pending);
    quiet().await;
    assert_eq!(setup.clock.sleepers(), 0, "nothing of it is left");
}

// FAULTS C5: not an attempt, not a crash, and no wait for a lease.
#[tokio::test]
async fn shutdown_gives_back_what_did_not_finish() {
    let setup = one_handler();
    let running = setup.inbox.start();
    for id in ["1", "2"] {
        setup.accept(id, "wait").await;
    }
    in_time(setup.script.started(2)).await;
    let end = tokio::spawn(running.shutdown());
    setup.pass(29 * SECOND).await;
    assert_eq!((end.is_finished(), setup.script.cut()), (false, 0), "the grace is theirs");
    setup.pass(2 * SECOND).await;
    in_time(end).await.unwrap();
    assert_eq!(setup.script.cut(), 2);
    for id in ["1", "2"] {
        let back = setup.entry(id, "h").await;
        assert_eq!((back.status, back.attempts, back.suspicion.stored()), (Status::Pending, 0, 0));
    }
    setup.script.go(2);
    assert_eq!(setup.inbox.drain().await.unwrap(), 2);
}

#[tokio::test]
async fn shutdown_ends_though_the_store_does_not_answer() {
    for fault in [StoreFault::ErrBefore(ErrorKind::Unavailable), StoreFault::Hang] {
        let setup = one_handler();
        let running = setup.inbox.start();
        let (sender, source) = oncebox::source::channel("source", 1);
        running.receive(source).unwrap();
        setup.accept("1", "wait").await;
        in_time(setup.script.started(1)).await;
        away(&setup, fault);
        let delivered = tokio::spawn(async move { sender.deliver(message("2", "ok")).await });
        setup.script.go(1);
        quiet().await;
        let end = tokio::spawn(running.shutdown());
        setup.pass(29 * SECOND).await;
        assert!(!end.is_finished(), "{fault:?}: a settlement is still to be written");
        setup.pass(7 * SECOND).await;
        assert!(end.is_finished(), "{fault:?}");
        assert!(in_time(delivered).await.unwrap().is_err(), "{fault:?}: dropped, and not acknowledged");
        quiet().await;
        assert_eq!(setup.clock.sleepers(), 0, "{fault:?}: nothing of it is left");
        setup.store().faults().clear();
        assert_eq!(setup.status("1", "h").await, Status::Running, "its lease will run out");
    }
}

// FAULTS B3, C5: entries claimed while the inbox stops are known, and given back.
#[tokio::test]
async fn shutdown_gives_back_a_claim_whose_answer_comes_late_or_was_lost() {
    for fault in [StoreFault::Hang, StoreFault::ErrAfter] {
        let setup = one_handler();
        let running = setup.inbox.start();
        in_time(running.idle()).await;
        setup.store().faults().next(StoreVerb::Claim, fault);
        setup.accept("1", "ok").await;
        quiet().await;
        let end = tokio::spawn(running.shutdown());
        quiet().await;
        setup.store().faults().release();
        setup.pass(SECOND).await;
        assert!(end.is_finished(), "{fault:?}");
        let back = setup.entry("1", "h").await;
        assert_eq!(
            (back.status, back.attempts, back.suspicion.stored()),
            (Status::Pending, 0, 0),
            "{fault:?}"
        );
        assert!(setup.script.log().is_empty(), "{fault:?}: nothing new is begun");
    }
}

#[tokio::test]
async fn dropping_stops_everything_at_once() {
    let setup = one_handler();
    let running = setup.inbox.start();
    let (sender, source) = oncebox::source::channel("source", 1);
    running.receive(source).unwrap();
    setup.accept("1", "wait").await;
    in_time(setup.script.started(1)).await;
    drop(running);
    quiet().await;
    assert_eq!(setup.script.cut(), 1);
    setup.accept("2", "ok").await;
    assert!(sender.deliver(message("3", "ok")).await.is_err());
    setup.pass(Duration::from_mins(2)).await;
    assert_eq!(setup.script.log(), ["h 1 1"]);
    assert_eq!(setup.clock.sleepers(), 0, "nothing of it is left");
    // It was given back, and blamed for nothing.
    let back = setup.entry("1", "h").await;
    assert_eq!((back.status, back.attempts, back.suspicion.stored()), (Status::Pending, 0, 0));
}

// A store that is away when an inbox is dropped is waited for, for as long as a lease.
#[tokio::test]
async fn what_is_dropped_is_given_back_when_the_store_returns() {
    for (away_for, status) in [(20 * SECOND, Status::Pending), (40 * SECOND, Status::Running)] {
        let setup = one_handler();
        let running = setup.inbox.start();
        setup.accept("1", "wait").await;
        in_time(setup.script.started(1)).await;
        away(&setup, StoreFault::ErrBefore(ErrorKind::Unavailable));
        drop(running);
        setup.pass(away_for).await;
        setup.store().faults().clear();
        setup.pass(10 * SECOND).await;
        let left = setup.entry("1", "h").await;
        assert_eq!((left.status, left.attempts, left.suspicion.stored()), (status, 0, 0), "{away_for:?}");
        assert_eq!((setup.script.cut(), setup.script.running()), (1, 0));
        if status == Status::Running {
            assert_eq!(setup.clock.sleepers(), 0, "nothing of it is left");
        }
    }
}

// A caller that stops waiting for a shutdown drops it.
#[tokio::test]
async fn a_shutdown_that_is_dropped_gives_back_what_runs() {
    let setup = one_handler();
    let running = setup.inbox.start();
    setup.accept("1", "wait").await;
    in_time(setup.script.started(1)).await;
    let end = tokio::spawn(running.shutdown());
    quiet().await;
    end.abort();
    quiet().await;
    let back = setup.entry("1", "h").await;
    assert_eq!((back.status, back.attempts, back.suspicion.stored()), (Status::Pending, 0, 0));
    assert_eq!((setup.script.cut(), setup.clock.sleepers()), (1, 0));
}

type Block = Arc<Mutex<mpsc::Receiver<()>>>;

async fn blocks(_: Message, cx: &mut Context<Memory>) -> Result<(), BoxError> {
    cx.data::<Arc<tokio::sync::Notify>>()?.notify_one();
    Ok(cx.data::<Block>()?.lock().recv()?)
}

// FAULTS C4: a handler that blocks its thread can be neither stopped nor waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn shutdown_ends_though_a_handler_blocks_its_thread() {
    let (unblock, block) = mpsc::channel();
    let begun = Arc::new(tokio::sync::Notify::new());
    let inbox = Inbox::builder("test", Memory::new())
        .config(Config { grace: Duration::from_millis(20), ..Config::default() })
        .data::<Block>(Arc::new(Mutex::new(block)))
        .data(Arc::clone(&begun))
        .on("t", handler("h", blocks))
        .build()
        .unwrap();
    let running = inbox.start();
    inbox.accept(message("1", "")).await.unwrap();
    in_time(begun.notified()).await;
    in_time(running.shutdown()).await;
    unblock.send(()).unwrap();
}

struct PanickyFixture {
    clock: TestClock,
    store: Panicky,
    inbox: Inbox<Panicky>,
    script: RunScript,
}

/// An inbox over a store with a bug. The store dates its leases with the same clock.
fn broken() -> PanickyFixture {
    let clock = TestClock::new();
    let store = Panicky::new(Memory::with_clock(clock.shared()));
    on(clock, store)
}

fn on(clock: TestClock, store: Panicky) -> PanickyFixture {
    let script = RunScript::default();
    // The clock goes on by a minute at a time.
    let config = Config { lease: Duration::from_mins(5), ..Config::default() };
    let inbox = Inbox::builder("test", store.clone())
        .clock(clock.shared())
        .config(config)
        .on("t", script.handler("h"))
        .build()
        .expect("a valid inbox");
    PanickyFixture { clock, store, inbox, script }
}

impl PanickyFixture {
    async fn completed(&self) -> u64 {
        let counts = self.store.memory.count(self.inbox.name(), None).await.expect("a count");
        counts.with_status(Status::Completed)
    }
}

// FAULTS J8: each on its own, after a pause.
#[tokio::test]
async fn a_part_that_panics_starts_again_and_the_others_go_on() {
    let broken = broken();
    let running = broken.inbox.start();
    in_time(running.idle()).await;
    broken.inbox.accept(message("long", "wait")).await.unwrap();
    in_time(broken.script.started(1)).await;

    broken.store.panic_at(StoreVerb::Claim);
    broken.inbox.accept(message("1", "ok")).await.unwrap();
    quiet().await;
    broken.script.go(1);
    quiet().await;
    assert_eq!(broken.completed().await, 1, "the settler goes on without the dispatcher");
    pass(&broken.clock, 4 * SECOND).await;
    assert_eq!(broken.completed().await, 1, "not before the pause is over");
    pass(&broken.clock, 2 * SECOND).await;
    assert_eq!(broken.completed().await, 2);

    for verb in [StoreVerb::Renew, StoreVerb::Rescue, StoreVerb::Sweep] {
        broken.store.panic_at(verb);
    }
    broken.inbox.accept(message("longer", "wait")).await.unwrap();
    for _ in 0..90 {
        broken.clock.advance(Duration::from_mins(1));
        quiet().await;
    }
    broken.inbox.accept(message("2", "ok")).await.unwrap();
    broken.script.go(1);
    in_time(running.idle()).await;
    assert_eq!((broken.completed().await, broken.script.log().len()), (4, 4), "the lease was renewed again");
}

// What was being settled is not in hand for ever: that would be renewed for ever, and never run again.
#[tokio::test]
async fn an_entry_whose_settlement_panics_is_left_to_its_lease() {
    let broken = broken();
    let running = broken.inbox.start();
    in_time(running.idle()).await;
    broken.store.panic_at(StoreVerb::Settle);
    broken.inbox.accept(message("1", "ok")).await.unwrap();
    quiet().await;
    assert_eq!(running.in_flight(), 0);
    pass(&broken.clock, Duration::from_mins(7)).await;
    assert_eq!((broken.completed().await, broken.script.log().len()), (1, 2));
}

#[tokio::test]
async fn a_part_that_cannot_go_on_starts_again_after_a_pause() {
    let setup = one_handler();
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    setup.store().faults().next(StoreVerb::Claim, StoreFault::ErrBefore(ErrorKind::Corrupt));
    setup.accept("1", "ok").await;
    setup.pass(4 * SECOND).await;
    assert_eq!(setup.count(Status::Completed).await, 0);
    setup.pass(2 * SECOND).await;
    assert_eq!(setup.count(Status::Completed).await, 1);
    drop(running);
}

// FAULTS D4: one settlement that cannot be stored does not take its batch along.
#[tokio::test]
async fn a_settlement_that_cannot_be_stored_is_alone_with_it() {
    let setup = one_handler();
    for id in ["1", "2", "3"] {
        setup.accept(id, "wait").await;
    }
    let running = setup.inbox.start();
    in_time(setup.script.started(3)).await;
    let corrupt = Some(StoreFault::ErrBefore(ErrorKind::Corrupt));
    setup.store().faults().script(StoreVerb::Settle, [corrupt, None, corrupt, None]);
    setup.script.go(3);
    quiet().await;
    assert_eq!((setup.count(Status::Completed).await, running.in_flight()), (2, 1));
    assert_eq!(setup.count(Status::Running).await, 1);
    // It is tried again, and does not run again.
    setup.pass(SECOND).await;
    assert_eq!((setup.count(Status::Completed).await, running.in_flight()), (3, 0));
    assert_eq!(setup.script.log().len(), 3);
    drop(running);
}

#[tokio::test]
async fn idle_returns_when_there_is_nothing_to_do_and_not_before() {
    // Without handlers there never is.
    let setup = Testbed::new(|inbox, _| inbox);
    in_time(setup.inbox.start().idle()).await;

    // Two workers of one inbox do not take each other's answers.
    let setup = one_handler();
    let (first, second) = (setup.inbox.start(), setup.inbox.start());
    for running in [&first, &second, &first] {
        in_time(running.idle()).await;
    }
    drop(second);

    setup.accept("1", "wait").await;
    in_time(setup.script.started(1)).await;
    let idle = tokio::spawn(async move {
        first.idle().await;
        first
    });
    setup.pass(SECOND).await;
    assert!(!idle.is_finished(), "one still runs");
    away(&setup, StoreFault::ErrBefore(ErrorKind::Unavailable));
    setup.script.go(1);
    setup.pass(SECOND).await;
    assert!(!idle.is_finished(), "it is not settled");
    setup.store().faults().clear();
    setup.pass(10 * SECOND).await;
    assert!(idle.is_finished());
}

// What waits behind another one for order is due as soon as that one is done.
#[tokio::test(flavor = "multi_thread")]
async fn idle_waits_for_whole_lines() {
    let script = RunScript::default();
    let inbox: Inbox<Memory> =
        Inbox::builder("test", Memory::new()).on("t", script.handler("h")).build().unwrap();
    let running = inbox.start();
    for round in 0..100 {
        let line = (0..10).map(|number| message(&format!("{round}/{number}"), "ok").with_ordering_key("k"));
        inbox.accept_batch(line).await.unwrap();
        in_time(running.idle()).await;
        assert_eq!(script.log().len(), 10 * (round + 1));
    }
}

// FAULTS E14: wake-ups are best effort, polling is the truth.
#[tokio::test]
async fn without_wake_ups_the_poll_finds_what_others_put_in() {
    let clock = TestClock::new();
    let mute = on(clock.clone(), Panicky::new(Memory::with_clock(clock.shared())).mute());
    let running = mute.inbox.start();
    in_time(running.idle()).await;
    let other = on(clock.clone(), mute.store.clone());
    other.inbox.accept(message("1", "ok")).await.unwrap();
    pass(&clock, 29 * SECOND).await;
    assert_eq!(mute.completed().await, 0);
    pass(&clock, 2 * SECOND).await;
    assert_eq!(mute.completed().await, 1);
    // What this process puts in itself needs neither.
    mute.inbox.accept(message("2", "ok")).await.unwrap();
    quiet().await;
    assert_eq!(mute.completed().await, 2);
    drop(running);
}

// A store may hand out less than there is, as long as it hands out something.
#[tokio::test]
async fn who_waits_for_the_end_of_all_work_waits_for_a_claim_that_finds_nothing() {
    let clock = TestClock::new();
    let thrifty = on(clock.clone(), Panicky::new(Memory::with_clock(clock.shared())).mute().thrifty());
    for id in ["1", "2", "3"] {
        on(clock.clone(), thrifty.store.clone()).inbox.accept(message(id, "ok")).await.unwrap();
    }
    let running = thrifty.inbox.start();
    in_time(running.idle()).await;
    assert_eq!(thrifty.completed().await, 3);
    running.shutdown().await;
}

async fn ends(_: Message, _: &mut Context<FaultyMemory>) -> Result<(), BoxError> {
    Ok(())
}

#[tokio::test]
async fn an_inbox_can_be_started_again() {
    let setup = Testbed::new(|inbox, _| inbox.on("t", handler("h", ends)));
    for round in 0..3 {
        let running = setup.inbox.start();
        setup.accept(&round.to_string(), "").await;
        in_time(running.idle()).await;
        in_time(running.shutdown()).await;
        assert_eq!(setup.count(Status::Completed).await, round + 1);
    }
}
