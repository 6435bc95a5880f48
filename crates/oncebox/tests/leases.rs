//! Leases: kept while a handler lives, given up before they end, and taken over when a worker died.

mod support;

use std::time::Duration;

use oncebox::state::{Outcome, PoisonReason, Status};
use oncebox::store::{RescueParams, Route, Store as _};
use oncebox::time::Clock as _;
use oncebox::{Config, ErrorKind, HandlerKey, Memory, Policy, Running};
use oncebox_testkit::{Fault, TestClock, Verb};
use support::{Faulty, SECOND, World, in_time, quiet};

const LEASE: Duration = Duration::from_mins(5);

fn one_handler() -> World {
    World::new(|inbox, stage| inbox.on("t", stage.handler("h")))
}

/// Another worker on the same store, with a stage of its own.
fn beside(world: &World) -> World {
    World::over(world.store().clone(), world.clock.clone(), |inbox, stage| inbox.on("t", stage.handler("h")))
}

/// Lets a worker die with everything that it has in hand, and its leases run out.
async fn die(world: &World, running: Running<Faulty>) {
    drop(running);
    quiet().await;
    world.clock.advance(LEASE + SECOND);
}

#[tokio::test]
async fn a_lease_is_kept_as_long_as_its_handler_runs() {
    let world = one_handler();
    let other = beside(&world);
    let (running, others) = (world.inbox.start(), other.inbox.start());
    world.accept("1", "wait").await;
    let (here, there) = (world.stage.clone(), other.stage.clone());
    tokio::select! {
        () = here.started(1) => {}
        () = there.started(1) => {}
    }
    world.pass(10 * LEASE).await;
    world.stage.go(1);
    other.stage.go(1);
    quiet().await;
    let done = world.entry("1", "h").await;
    assert_eq!((done.status, done.crashes), (Status::Completed, 0));
    assert_eq!(world.stage.log().len() + other.stage.log().len(), 1);
    drop((running, others));
}

// FAULTS B6: told to stop before somebody else may begin, and nobody is blamed for it.
#[tokio::test]
async fn a_handler_whose_lease_cannot_be_renewed_is_stopped_in_time() {
    for fault in [Fault::ErrBefore(ErrorKind::Unavailable), Fault::Hang] {
        let world = one_handler();
        let running = world.inbox.start();
        world.accept("1", "wait").await;
        in_time(world.stage.started(1)).await;
        world.store().faults().always(Verb::Renew, fault);
        let begun = world.clock.monotonic();
        world.pass_until(async || world.stage.cut() == 1).await;
        assert!(world.clock.monotonic().saturating_sub(begun) < LEASE, "{fault:?}: stopped too late");
        quiet().await;
        let back = world.entry("1", "h").await;
        assert_eq!((back.attempts, back.crashes), (0, 0), "{fault:?}");
        assert_eq!(world.stage.log(), ["h 1 1", "h 1 1"], "{fault:?}: it came back at once");
        world.store().faults().clear();
        world.stage.go(1);
        world.pass(LEASE).await;
        assert_eq!(world.status("1", "h").await, Status::Completed);
        drop(running);
    }
}

// FAULTS B4, B8: the store's clock jumped, and another worker took the entry over though this one is in time.
#[tokio::test]
async fn a_handler_that_lost_its_lease_is_stopped_and_changes_nothing() {
    let of_store = TestClock::new();
    let store = Faulty::new(Memory::with_clock(of_store.shared()));
    let world = World::over(store, TestClock::new(), |inbox, stage| inbox.on("t", stage.handler("h")));
    let running = world.inbox.start();
    world.accept("1", "wait").await;
    in_time(world.stage.started(1)).await;
    of_store.advance(LEASE + SECOND);
    let route = Route::new(HandlerKey::new("h").unwrap());
    let rescue = RescueParams::new(world.inbox.name().clone(), vec![route], LEASE, 10);
    let rescued = world.store().rescue(&rescue).await.unwrap().remove(0).claim;
    world.pass(LEASE / 5).await;
    assert_eq!(world.stage.cut(), 1);
    assert_eq!((running.in_flight(), world.status("1", "h").await), (0, Status::Running));
    let crashed = rescued.settle(&Policy::default(), Outcome::Crashed);
    world.store().settle(&[crashed]).await.unwrap();
    world.stage.go(1);
    in_time(running.idle()).await;
    let done = world.entry("1", "h").await;
    assert_eq!((done.status, done.attempts, done.crashes), (Status::Completed, 0, 1));
}

// FAULTS B6: a worker that stood still while its claim was answered. Somebody else may have begun meanwhile.
#[tokio::test]
async fn what_was_claimed_so_long_ago_that_its_lease_is_over_is_not_begun() {
    for count in [1, 100] {
        let world = World::new(|inbox, stage| inbox.on("t", stage.handler("h").concurrency(200)));
        for id in 0..count {
            world.accept(&id.to_string(), "wait").await;
        }
        // The first looks for entries that crashed a worker.
        world.store().faults().script(Verb::Claim, [None, Some(Fault::Hang)]);
        let running = world.inbox.start();
        quiet().await;
        world.clock.advance(LEASE);
        let settled = world.store().faults().calls(Verb::Settle);
        world.store().faults().release();
        in_time(world.stage.started(count)).await;
        assert!(
            world.store().faults().calls(Verb::Settle) > settled,
            "they were given back before they began"
        );
        world.stage.go(count);
        in_time(running.idle()).await;
        assert_eq!(world.count(Status::Completed).await, count as u64);
        assert_eq!(world.stage.log().len(), count, "each ran once");
        drop(running);
    }
}

#[tokio::test]
async fn a_crash_is_counted_once_and_the_entry_comes_back() {
    let world = one_handler();
    let running = world.inbox.start();
    world.accept("1", "wait").await;
    in_time(world.stage.started(1)).await;
    die(&world, running).await;
    let workers = [beside(&world), beside(&world), beside(&world)];
    let running: Vec<_> = workers.iter().map(|worker| worker.inbox.start()).collect();
    for worker in &workers {
        worker.stage.go(1);
    }
    world.pass(SECOND).await;
    let done = world.entry("1", "h").await;
    assert_eq!((done.status, done.attempts, done.crashes), (Status::Completed, 0, 1));
    assert_eq!(workers.iter().map(|worker| worker.stage.log().len()).sum::<usize>(), 1);
    drop(running);
}

// FAULTS C3: the entry that kills its process is found out, and those beside it are not blamed for it.
#[tokio::test]
async fn a_process_killer_is_poisoned_and_its_neighbours_finish() {
    let world = one_handler();
    world.stage.says("h", "killer", "wait");
    world.accept("killer", "ok").await;
    for id in ["n1", "n2", "n3"] {
        world.stage.says("h", id, "wait");
        world.accept(id, "ok").await;
    }
    let running = world.inbox.start();
    in_time(world.stage.started(4)).await;
    die(&world, running).await;
    for round in 2..=3 {
        let worker = beside(&world);
        worker.stage.says("h", "killer", "wait");
        let running = worker.inbox.start();
        for id in ["h1", "h2", "h3"] {
            worker.accept(&format!("{id} of {round}"), "ok").await;
        }
        worker.pass_until(async || worker.stage.runs("h", "killer") == 1).await;
        assert_eq!(worker.stage.running(), 1, "nobody runs beside a suspect");
        worker.pass(9 * SECOND).await;
        assert_eq!(worker.stage.running(), 1, "nobody is put beside a suspect");
        die(&world, running).await;
    }
    let worker = beside(&world);
    let running = worker.inbox.start();
    worker.pass(Duration::from_mins(2)).await;
    let killer = world.entry("killer", "h").await;
    assert_eq!((killer.status, killer.attempts, killer.crashes), (Status::Poisoned, 0, 3));
    assert_eq!(killer.reason, Some(PoisonReason::Crashed));
    assert_eq!(worker.stage.runs("h", "killer"), 0);
    for id in ["n1", "n2", "n3"] {
        let neighbour = world.entry(id, "h").await;
        assert_eq!((neighbour.status, neighbour.crashes), (Status::Completed, 1), "{id}");
    }
    assert_eq!(world.count(Status::Completed).await, 3 + 6);
    drop(running);
}

// FAULTS C3: a long run cannot be blamed to death, though a suspect does not wait for it for ever.
#[tokio::test]
async fn a_long_neighbour_of_a_process_killer_is_not_poisoned() {
    let world = one_handler();
    world.accept("killer", "wait").await;
    world.accept("long", "wait").await;
    let running = world.inbox.start();
    in_time(world.stage.started(2)).await;
    die(&world, running).await;
    for _ in 0..4 {
        let worker = beside(&world);
        let running = worker.inbox.start();
        worker.pass(Duration::from_mins(3)).await;
        if worker.stage.runs("h", "killer") > 0 {
            die(&world, running).await;
        } else {
            worker.stage.go(2);
            worker.pass(SECOND).await;
            drop(running);
        }
    }
    let (killer, long) = (world.entry("killer", "h").await, world.entry("long", "h").await);
    assert_eq!(killer.reason, Some(PoisonReason::Crashed));
    assert_eq!(long.status, Status::Completed, "blamed {} times", long.crashes);
}

// A suspect that waits to be alone is in hand, and in hand means renewed.
#[tokio::test]
async fn a_suspect_that_waits_to_be_alone_keeps_its_lease() {
    let world = World::new(|inbox, stage| {
        let config = Config { lease: SECOND, rescue: 2 * SECOND, ..Config::default() };
        inbox.config(config).on("t", stage.handler("h"))
    });
    let running = world.inbox.start();
    world.accept("suspect", "wait").await;
    in_time(world.stage.started(1)).await;
    drop(running);
    world.stage.says("h", "suspect", "ok");
    world.stage.says("h", "long", "wait");
    world.accept("long", "wait").await;
    let running = world.inbox.start();
    in_time(world.stage.started(2)).await;
    world.pass(9 * SECOND).await;
    assert_eq!((running.in_flight(), world.stage.runs("h", "suspect")), (2, 1), "it waits");
    assert_eq!(world.entry("suspect", "h").await.crashes, 1);
    world.pass(20 * SECOND).await;
    let done = world.entry("suspect", "h").await;
    assert_eq!((done.status, done.crashes), (Status::Completed, 1), "it does not wait for ever");
    world.stage.go(1);
    in_time(running.idle()).await;
    assert_eq!(world.entry("long", "h").await.crashes, 0);
}

// FAULTS C5: what waits at shutdown has not begun, and does not begin any more.
#[tokio::test]
async fn a_suspect_that_waits_to_be_alone_is_given_back_at_shutdown() {
    let world = one_handler();
    let running = world.inbox.start();
    world.accept("suspect", "wait").await;
    in_time(world.stage.started(1)).await;
    die(&world, running).await;
    world.accept("long", "wait").await;
    let running = world.inbox.start();
    world.pass_until(async || running.in_flight() == 2).await;
    assert_eq!((world.stage.runs("h", "suspect"), world.stage.runs("h", "long")), (1, 1), "it waits");
    let end = tokio::spawn(running.shutdown());
    quiet().await;
    world.stage.go(1);
    in_time(end).await.unwrap();
    let back = world.entry("suspect", "h").await;
    assert_eq!((back.status, back.crashes, world.stage.runs("h", "suspect")), (Status::Pending, 1, 1));
    assert_eq!(world.status("long", "h").await, Status::Completed);
}

#[tokio::test]
async fn a_suspect_whose_lease_cannot_be_kept_while_it_waits_is_given_back() {
    let world = World::new(|inbox, stage| {
        let config = Config { lease: 3 * SECOND, rescue: SECOND, ..Config::default() };
        inbox.config(config).on("t", stage.handler("h")).on("u", stage.handler("beside"))
    });
    let running = world.inbox.start();
    world.accept("suspect", "wait").await;
    in_time(world.stage.started(1)).await;
    drop(running);
    world.stage.says("h", "suspect", "ok");
    let long = oncebox::Message::new("long", "u", "wait");
    world.inbox.accept(long).await.unwrap();
    let running = world.inbox.start();
    in_time(world.stage.started(2)).await;
    world.pass_until(async || running.in_flight() == 2).await;
    world.store().faults().always(Verb::Renew, Fault::ErrBefore(ErrorKind::Unavailable));
    world.pass_until(async || world.stage.cut() == 2).await;
    world.store().faults().clear();
    world.stage.go(1);
    world.pass(30 * SECOND).await;
    let done = world.entry("suspect", "h").await;
    assert_eq!((done.status, done.crashes, world.stage.runs("h", "suspect")), (Status::Completed, 1, 2));
    assert_eq!(running.in_flight(), 0);
}

// The retry of a suspect is found, however much else there is to do.
#[tokio::test]
async fn a_suspect_does_not_starve_under_steady_traffic() {
    let world = one_handler();
    let running = world.inbox.start();
    world.accept("suspect", "wait").await;
    in_time(world.stage.started(1)).await;
    die(&world, running).await;
    world.stage.says("h", "suspect", "fail no;ok");
    let running = world.inbox.start();
    in_time(world.stage.started(2)).await;
    for number in 0..80 {
        world.accept(&number.to_string(), "ok").await;
        world.clock.advance(SECOND / 10);
        quiet().await;
    }
    assert_eq!(world.status("suspect", "h").await, Status::Completed, "8 seconds have passed");
    drop(running);
}

// One crash with much in hand must not stop everything else for as long as all that takes one by one.
#[tokio::test]
async fn many_suspects_do_not_keep_the_healthy_from_running() {
    let world = one_handler();
    for number in 0..20 {
        world.accept(&format!("suspect{number}"), "wait").await;
    }
    let running = world.inbox.start();
    in_time(world.stage.started(20)).await;
    die(&world, running).await;
    let running = world.inbox.start();
    world.pass(SECOND).await;
    for number in 0..5 {
        world.accept(&format!("healthy{number}"), "ok").await;
    }
    world.pass(15 * SECOND).await;
    assert_eq!(world.count(Status::Completed).await, 5);
    world.stage.go(100);
    world.pass(Duration::from_mins(2)).await;
    assert_eq!(world.count(Status::Completed).await, 25);
    drop(running);
}

// FAULTS B11: more entries to rescue than one call takes.
#[tokio::test]
async fn everything_that_ran_out_is_rescued() {
    let world = World::new(|inbox, stage| inbox.on("t", stage.handler("h").concurrency(300)));
    for number in 0..250 {
        world.accept(&number.to_string(), "wait").await;
    }
    let running = world.inbox.start();
    in_time(world.stage.started(250)).await;
    die(&world, running).await;
    world.stage.go(1_000);
    let running = world.inbox.start();
    world.pass(2 * SECOND).await;
    in_time(running.idle()).await;
    assert_eq!(world.count(Status::Completed).await, 250);
    let crashes: u32 = world.entry("249", "h").await.crashes;
    assert_eq!((crashes, world.stage.log().len()), (1, 500));
}
