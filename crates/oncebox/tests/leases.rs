//! Leases: kept while a handler lives, given up before they end, and taken over when a worker died.

mod support;

use std::time::Duration;

use oncebox::state::{NextState, Outcome, PoisonReason, Status, Suspicion};
use oncebox::store::{ClaimParams, ClaimQuota, RescueParams, Route, Store as _};
use oncebox::time::Clock as _;
use oncebox::{Config, ErrorKind, HandlerKey, Memory, Policy, Running};
use oncebox_testkit::{StoreFault, StoreVerb, TestClock};
use support::{Faulty, SECOND, World, in_time, quiet};

const LEASE: Duration = Duration::from_secs(30);

fn one_handler() -> World {
    World::new(|inbox, stage| inbox.on("t", stage.handler("h")))
}

/// Another worker on the same store, with a stage of its own.
fn beside(world: &World) -> World {
    World::over(world.store().clone(), world.clock.clone(), |inbox, stage| inbox.on("t", stage.handler("h")))
}

/// Lets a worker die with everything that it has in hand, and its leases run out.
async fn die(world: &World, running: Running<Faulty>) {
    world.die(running, LEASE).await;
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
    assert_eq!((done.status, done.suspicion.stored()), (Status::Completed, 0));
    assert_eq!(world.stage.log().len() + other.stage.log().len(), 1);
    drop((running, others));
}

// FAULTS B6: told to stop before somebody else may begin, and nobody is blamed for it.
#[tokio::test]
async fn a_handler_whose_lease_cannot_be_renewed_is_stopped_in_time() {
    for fault in [StoreFault::ErrBefore(ErrorKind::Unavailable), StoreFault::Hang] {
        let world = one_handler();
        let running = world.inbox.start();
        world.accept("1", "wait").await;
        in_time(world.stage.started(1)).await;
        world.store().faults().always(StoreVerb::Renew, fault);
        let begun = world.clock.monotonic();
        world.pass_until(async || world.stage.cut() == 1).await;
        assert!(world.clock.monotonic().saturating_sub(begun) < LEASE, "{fault:?}: stopped too late");
        quiet().await;
        let back = world.entry("1", "h").await;
        assert_eq!((back.attempts, back.suspicion.stored()), (0, 0), "{fault:?}");
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
    assert_eq!((done.status, done.attempts, done.suspicion.stored()), (Status::Completed, 0, 1));
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
        world.store().faults().script(StoreVerb::Claim, [None, Some(StoreFault::Hang)]);
        let running = world.inbox.start();
        quiet().await;
        world.clock.advance(LEASE);
        let settled = world.store().faults().calls(StoreVerb::Settle);
        world.store().faults().release();
        in_time(world.stage.started(count)).await;
        assert!(
            world.store().faults().calls(StoreVerb::Settle) > settled,
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
    assert_eq!((done.status, done.attempts, done.suspicion.stored()), (Status::Completed, 0, 1));
    assert_eq!(workers.iter().map(|worker| worker.stage.log().len()).sum::<usize>(), 1);
    drop(running);
}

/// A message whose workers have died: its entry is suspected as far as `stored` says, and due after `delay`.
async fn suspect(world: &World, id: &str, stored: u32, delay: Duration) {
    world.accept(id, "ok").await;
    let want = ClaimQuota { route: Route::new(HandlerKey::new("h").expect("a name")), limit: 1 };
    let params = ClaimParams::new(world.inbox.name().clone(), vec![want], LEASE);
    let claim = world.store().claim(&params).await.expect("claim").remove(0).claim;
    let mut settlement = claim.settle(&Policy::default(), Outcome::Crashed);
    (settlement.suspicion, settlement.next) = (Suspicion::from_stored(stored), NextState::Pending { delay });
    world.store().settle(&[settlement]).await.expect("settle");
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
    for round in 2..=5 {
        let worker = beside(&world);
        worker.stage.says("h", "killer", "wait");
        let running = worker.inbox.start();
        for id in ["h1", "h2", "h3"] {
            worker.accept(&format!("{id} of {round}"), "ok").await;
        }
        worker.pass_until(async || worker.stage.runs("h", "killer") == 1).await;
        if round > 2 {
            assert_eq!(worker.stage.running(), 1, "nothing runs beside a suspect");
            for id in ["h4", "h5"] {
                worker.accept(&format!("{id} of {round}"), "ok").await;
            }
            worker.pass(9 * SECOND).await;
            assert_eq!(worker.stage.running(), 1, "nothing is put beside a suspect");
        }
        die(&world, running).await;
    }
    let worker = beside(&world);
    let running = worker.inbox.start();
    worker.pass(Duration::from_mins(2)).await;
    let killer = world.entry("killer", "h").await;
    assert_eq!((killer.status, killer.attempts, killer.suspicion.own_crashes()), (Status::Poisoned, 0, 3));
    assert_eq!(killer.reason, Some(PoisonReason::Crashed));
    assert_eq!(worker.stage.runs("h", "killer"), 0);
    for id in ["n1", "n2", "n3"] {
        let neighbour = world.entry(id, "h").await;
        assert_eq!((neighbour.status, neighbour.suspicion.stored()), (Status::Completed, 1), "{id}");
    }
    assert_eq!(world.count(Status::Completed).await, 3 + 4 * 3 + 3 * 2);
    drop(running);
}

// FAULTS C3: a node that is drained, a pod in a crash loop: whatever was in hand is not to blame, and comes again at once.
#[tokio::test]
async fn a_process_that_is_killed_again_and_again_poisons_nothing() {
    const COUNT: usize = 40;
    let world = one_handler();
    for number in 0..COUNT {
        world.accept(&number.to_string(), "ok").await;
    }
    for kill in 0..6 {
        let worker = beside(&world);
        for number in 0..COUNT {
            worker.stage.says("h", &number.to_string(), "wait");
        }
        let running = worker.inbox.start();
        let together = [COUNT, COUNT, 16, 16, 8, 1][kill];
        worker.pass(5 * SECOND).await;
        assert_eq!(worker.stage.running(), together, "in hand at kill {kill}");
        die(&world, running).await;
        quiet().await;
    }
    let worker = beside(&world);
    let running = worker.inbox.start();
    worker.pass(Duration::from_mins(2)).await;
    assert_eq!(world.count(Status::Poisoned).await, 0);
    assert_eq!(world.count(Status::Completed).await, COUNT as u64);
    drop(running);
}

// FAULTS C3: two suspects that last long do not take each other down for ever: the guilty one is found.
#[tokio::test]
async fn a_long_neighbour_of_a_process_killer_is_not_poisoned() {
    let world = one_handler();
    world.accept("killer", "wait").await;
    world.accept("long", "wait").await;
    let running = world.inbox.start();
    in_time(world.stage.started(2)).await;
    die(&world, running).await;
    for _ in 0..9 {
        let worker = beside(&world);
        let running = worker.inbox.start();
        worker.pass(Duration::from_mins(2)).await;
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
    assert_eq!(long.status, Status::Completed, "{long:?}");
}

// What a killed process had in hand comes again at once, also beside work that lasts.
#[tokio::test]
async fn suspects_of_the_first_level_run_beside_others() {
    let world = one_handler();
    for number in 0..10 {
        suspect(&world, &number.to_string(), 1, LEASE).await;
    }
    world.accept("long", "wait").await;
    let running = world.inbox.start();
    in_time(world.stage.started(1)).await;
    world.pass(LEASE + 31 * SECOND).await;
    assert_eq!((world.count(Status::Completed).await, world.stage.running()), (10, 1));
    drop(running);
}

// A run that began alone and lasts gets company: from then on the death of its process is not its own.
#[tokio::test]
async fn a_suspect_that_got_company_is_not_blamed() {
    for (company, own) in [(false, 1), (true, 0)] {
        let world = one_handler();
        suspect(&world, "suspect", 3, Duration::ZERO).await;
        world.stage.says("h", "suspect", "wait");
        let running = world.inbox.start();
        in_time(world.stage.started(1)).await;
        world.pass(SECOND).await;
        world.accept("healthy", "wait").await;
        world.pass(8 * SECOND).await;
        assert_eq!(world.stage.running(), 1, "healthy work waits");
        if company {
            world.pass(3 * SECOND).await;
            assert_eq!(world.stage.running(), 2, "but not for ever");
        }
        die(&world, running).await;
        let worker = beside(&world);
        let running = worker.inbox.start();
        worker.pass(SECOND).await;
        assert_eq!(world.entry("suspect", "h").await.suspicion.own_crashes(), own, "company {company}");
        drop(running);
    }
}

// The store must know of company before there is any.
#[tokio::test]
async fn nothing_is_put_beside_a_suspect_that_the_store_takes_for_alone() {
    let world = one_handler();
    suspect(&world, "suspect", 3, Duration::ZERO).await;
    world.stage.says("h", "suspect", "wait");
    let running = world.inbox.start();
    in_time(world.stage.started(1)).await;
    world.accept("healthy", "wait").await;
    world.store().faults().always(StoreVerb::Renew, StoreFault::ErrBefore(ErrorKind::Unavailable));
    world.pass(12 * SECOND).await;
    assert_eq!(world.stage.runs("h", "healthy"), 0);
    world.store().faults().clear();
    world.pass(10 * SECOND).await;
    assert_eq!(world.stage.runs("h", "healthy"), 1);
    drop(running);
}

/// A worker with a long run in hand, and a suspect that has just been claimed and waits to be alone.
async fn waits_to_be_alone(world: &World) -> Running<Faulty> {
    suspect(world, "suspect", 2, LEASE).await;
    world.accept("long", "wait").await;
    let running = world.inbox.start();
    in_time(world.stage.started(1)).await;
    world.pass_until(async || running.in_flight() == 2).await;
    assert_eq!(world.stage.runs("h", "suspect"), 0, "it waits");
    running
}

// A suspect that waits to be alone is in hand, and in hand means renewed.
#[tokio::test]
async fn a_suspect_that_waits_to_be_alone_keeps_its_lease() {
    let world = World::new(|inbox, stage| {
        let config = Config { lease: SECOND, rescue: 2 * SECOND, ..Config::default() };
        inbox.config(config).on("t", stage.handler("h"))
    });
    let running = waits_to_be_alone(&world).await;
    world.pass(8 * SECOND).await;
    assert_eq!((running.in_flight(), world.stage.runs("h", "suspect")), (2, 0), "it waits");
    assert_eq!(world.entry("suspect", "h").await.suspicion.stored(), 2);
    world.pass(10 * SECOND).await;
    let done = world.entry("suspect", "h").await;
    assert_eq!((done.status, done.suspicion.stored()), (Status::Completed, 2), "it does not wait for ever");
    world.stage.go(1);
    in_time(running.idle()).await;
    assert_eq!(world.entry("long", "h").await.suspicion.stored(), 0);
}

// FAULTS C5: what waits at shutdown has not begun, and does not begin any more.
#[tokio::test]
async fn a_suspect_that_waits_to_be_alone_is_given_back_at_shutdown() {
    let world = one_handler();
    let running = waits_to_be_alone(&world).await;
    let end = tokio::spawn(running.shutdown());
    quiet().await;
    world.stage.go(1);
    in_time(end).await.unwrap();
    let back = world.entry("suspect", "h").await;
    assert_eq!((back.status, back.suspicion.stored()), (Status::Pending, 2));
    assert_eq!(world.stage.runs("h", "suspect"), 0);
    assert_eq!(world.status("long", "h").await, Status::Completed);
}

#[tokio::test]
async fn a_suspect_whose_lease_cannot_be_kept_while_it_waits_is_given_back() {
    let world = World::new(|inbox, stage| {
        let config = Config { lease: 3 * SECOND, rescue: SECOND, ..Config::default() };
        inbox.config(config).on("t", stage.handler("h"))
    });
    let running = waits_to_be_alone(&world).await;
    world.store().faults().always(StoreVerb::Renew, StoreFault::ErrBefore(ErrorKind::Unavailable));
    world.pass_until(async || world.stage.cut() == 1).await;
    world.store().faults().clear();
    world.stage.go(1);
    world.pass(60 * SECOND).await;
    let done = world.entry("suspect", "h").await;
    assert_eq!((done.status, done.suspicion.stored()), (Status::Completed, 2));
    assert_eq!((world.stage.runs("h", "suspect"), running.in_flight()), (1, 0));
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
    let crashes: u32 = world.entry("249", "h").await.suspicion.stored();
    assert_eq!((crashes, world.stage.log().len()), (1, 500));
}
