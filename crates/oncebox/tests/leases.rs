//! Leases: kept while a handler lives, given up before they end, and taken over when a worker died.

mod support;

use std::time::Duration;

use oncebox::state::{NextState, Outcome, PoisonReason, Status, Suspicion};
use oncebox::store::{ClaimParams, ClaimQuota, RescueParams, Route, Store as _};
use oncebox::time::Clock as _;
use oncebox::{Config, ErrorKind, HandlerKey, Memory, Policy, Running};
use oncebox_testkit::{StoreFault, StoreVerb, TestClock};
use support::{FaultyMemory, SECOND, Testbed, in_time, quiet};

const LEASE: Duration = Duration::from_secs(30);

fn one_handler() -> Testbed {
    Testbed::new(|inbox, script| inbox.on("t", script.handler("h")))
}

/// Another worker on the same store, with a script of its own.
fn beside(setup: &Testbed) -> Testbed {
    Testbed::over(setup.store().clone(), setup.clock.clone(), |inbox, script| {
        inbox.on("t", script.handler("h"))
    })
}

/// Lets a worker die with everything that it has in hand, and its leases run out.
async fn die(setup: &Testbed, running: Running<FaultyMemory>) {
    setup.die(running, LEASE).await;
}

#[tokio::test]
async fn a_lease_is_kept_as_long_as_its_handler_runs() {
    let setup = one_handler();
    let other = beside(&setup);
    let (running, others) = (setup.inbox.start(), other.inbox.start());
    setup.accept("1", "wait").await;
    let (here, there) = (setup.script.clone(), other.script.clone());
    tokio::select! {
        () = here.started(1) => {}
        () = there.started(1) => {}
    }
    setup.pass(10 * LEASE).await;
    setup.script.go(1);
    other.script.go(1);
    quiet().await;
    let done = setup.entry("1", "h").await;
    assert_eq!((done.status, done.suspicion.stored()), (Status::Completed, 0));
    assert_eq!(setup.script.log().len() + other.script.log().len(), 1);
    drop((running, others));
}

// FAULTS B6: stopped before another worker may begin, and counted as no failure.
#[tokio::test]
async fn a_handler_whose_lease_cannot_be_renewed_is_stopped_in_time() {
    for fault in [StoreFault::ErrBefore(ErrorKind::Unavailable), StoreFault::Hang] {
        let setup = one_handler();
        let running = setup.inbox.start();
        setup.accept("1", "wait").await;
        in_time(setup.script.started(1)).await;
        setup.store().faults().always(StoreVerb::Renew, fault);
        let begun = setup.clock.monotonic();
        setup.pass_until(async || setup.script.cut() == 1).await;
        assert!(setup.clock.monotonic().saturating_sub(begun) < LEASE, "{fault:?}: stopped too late");
        quiet().await;
        let back = setup.entry("1", "h").await;
        assert_eq!((back.attempts, back.suspicion.stored()), (0, 0), "{fault:?}");
        assert_eq!(setup.script.log(), ["h 1 1", "h 1 1"], "{fault:?}: it came back at once");
        setup.store().faults().clear();
        setup.script.go(1);
        setup.pass(LEASE).await;
        assert_eq!(setup.status("1", "h").await, Status::Completed);
        drop(running);
    }
}

// FAULTS B4, B8: the store's clock jumped, and another worker took the entry over though this one is in time.
#[tokio::test]
async fn a_handler_that_lost_its_lease_is_stopped_and_changes_nothing() {
    let of_store = TestClock::new();
    let store = FaultyMemory::new(Memory::with_clock(of_store.shared()));
    let setup = Testbed::over(store, TestClock::new(), |inbox, script| inbox.on("t", script.handler("h")));
    let running = setup.inbox.start();
    setup.accept("1", "wait").await;
    in_time(setup.script.started(1)).await;
    of_store.advance(LEASE + SECOND);
    let route = Route::new(HandlerKey::new("h").unwrap());
    let rescue = RescueParams::new(setup.inbox.name().clone(), vec![route], LEASE, 10);
    let rescued = setup.store().rescue(&rescue).await.unwrap().remove(0).claim;
    setup.pass(LEASE / 5).await;
    assert_eq!(setup.script.cut(), 1);
    assert_eq!((running.in_flight(), setup.status("1", "h").await), (0, Status::Running));
    let crashed = rescued.settle(&Policy::default(), Outcome::Crashed);
    setup.store().settle(&[crashed]).await.unwrap();
    setup.script.go(1);
    in_time(running.idle()).await;
    let done = setup.entry("1", "h").await;
    assert_eq!((done.status, done.attempts, done.suspicion.stored()), (Status::Completed, 0, 1));
}

// FAULTS B6: a worker stood still while its claim was answered. Another worker may have begun meanwhile.
#[tokio::test]
async fn what_was_claimed_so_long_ago_that_its_lease_is_over_is_not_begun() {
    for count in [1, 100] {
        let setup = Testbed::new(|inbox, script| inbox.on("t", script.handler("h").concurrency(200)));
        for id in 0..count {
            setup.accept(&id.to_string(), "wait").await;
        }
        // The first looks for entries that crashed a worker.
        setup.store().faults().script(StoreVerb::Claim, [None, Some(StoreFault::Hang)]);
        let running = setup.inbox.start();
        quiet().await;
        setup.clock.advance(LEASE);
        let settled = setup.store().faults().calls(StoreVerb::Settle);
        setup.store().faults().release();
        in_time(setup.script.started(count)).await;
        assert!(
            setup.store().faults().calls(StoreVerb::Settle) > settled,
            "they were given back before they began"
        );
        setup.script.go(count);
        in_time(running.idle()).await;
        assert_eq!(setup.count(Status::Completed).await, count as u64);
        assert_eq!(setup.script.log().len(), count, "each ran once");
        drop(running);
    }
}

#[tokio::test]
async fn a_crash_is_counted_once_and_the_entry_comes_back() {
    let setup = one_handler();
    let running = setup.inbox.start();
    setup.accept("1", "wait").await;
    in_time(setup.script.started(1)).await;
    die(&setup, running).await;
    let workers = [beside(&setup), beside(&setup), beside(&setup)];
    let running: Vec<_> = workers.iter().map(|worker| worker.inbox.start()).collect();
    for worker in &workers {
        worker.script.go(1);
    }
    setup.pass(SECOND).await;
    let done = setup.entry("1", "h").await;
    assert_eq!((done.status, done.attempts, done.suspicion.stored()), (Status::Completed, 0, 1));
    assert_eq!(workers.iter().map(|worker| worker.script.log().len()).sum::<usize>(), 1);
    drop(running);
}

/// A message whose workers have died: its entry is suspected as far as `stored` says, and due after `delay`.
async fn suspect(setup: &Testbed, id: &str, stored: u32, delay: Duration) {
    setup.accept(id, "ok").await;
    let want = ClaimQuota { route: Route::new(HandlerKey::new("h").expect("a name")), limit: 1 };
    let params = ClaimParams::new(setup.inbox.name().clone(), vec![want], LEASE);
    let claim = setup.store().claim(&params).await.expect("claim").remove(0).claim;
    let mut settlement = claim.settle(&Policy::default(), Outcome::Crashed);
    (settlement.suspicion, settlement.next) = (Suspicion::from_stored(stored), NextState::Pending { delay });
    setup.store().settle(&[settlement]).await.expect("settle");
}

// FAULTS C3: the entry that kills its process is found out, and those beside it are not blamed for it.
#[tokio::test]
async fn a_process_killer_is_poisoned_and_its_neighbours_finish() {
    let setup = one_handler();
    setup.script.says("h", "killer", "wait");
    setup.accept("killer", "ok").await;
    for id in ["n1", "n2", "n3"] {
        setup.script.says("h", id, "wait");
        setup.accept(id, "ok").await;
    }
    let running = setup.inbox.start();
    in_time(setup.script.started(4)).await;
    die(&setup, running).await;
    for round in 2..=5 {
        let worker = beside(&setup);
        worker.script.says("h", "killer", "wait");
        let running = worker.inbox.start();
        for id in ["h1", "h2", "h3"] {
            worker.accept(&format!("{id} of {round}"), "ok").await;
        }
        worker.pass_until(async || worker.script.runs("h", "killer") == 1).await;
        if round > 2 {
            assert_eq!(worker.script.running(), 1, "nothing runs beside a suspect");
            for id in ["h4", "h5"] {
                worker.accept(&format!("{id} of {round}"), "ok").await;
            }
            worker.pass(9 * SECOND).await;
            assert_eq!(worker.script.running(), 1, "nothing is put beside a suspect");
        }
        die(&setup, running).await;
    }
    let worker = beside(&setup);
    let running = worker.inbox.start();
    worker.pass(Duration::from_mins(2)).await;
    let killer = setup.entry("killer", "h").await;
    assert_eq!((killer.status, killer.attempts, killer.suspicion.own_crashes()), (Status::Poisoned, 0, 3));
    assert_eq!(killer.reason, Some(PoisonReason::Crashed));
    assert_eq!(worker.script.runs("h", "killer"), 0);
    for id in ["n1", "n2", "n3"] {
        let neighbour = setup.entry(id, "h").await;
        assert_eq!((neighbour.status, neighbour.suspicion.stored()), (Status::Completed, 1), "{id}");
    }
    assert_eq!(setup.count(Status::Completed).await, 3 + 4 * 3 + 3 * 2);
    drop(running);
}

// FAULTS C3: a node that is drained, a pod in a crash loop: whatever was in hand is not to blame, and comes again at once.
#[tokio::test]
async fn a_process_that_is_killed_again_and_again_poisons_nothing() {
    const COUNT: usize = 40;
    let setup = one_handler();
    for number in 0..COUNT {
        setup.accept(&number.to_string(), "ok").await;
    }
    for kill in 0..6 {
        let worker = beside(&setup);
        for number in 0..COUNT {
            worker.script.says("h", &number.to_string(), "wait");
        }
        let running = worker.inbox.start();
        let together = [COUNT, COUNT, 16, 16, 8, 1][kill];
        worker.pass(5 * SECOND).await;
        assert_eq!(worker.script.running(), together, "in hand at kill {kill}");
        die(&setup, running).await;
        quiet().await;
    }
    let worker = beside(&setup);
    let running = worker.inbox.start();
    worker.pass(Duration::from_mins(2)).await;
    assert_eq!(setup.count(Status::Poisoned).await, 0);
    assert_eq!(setup.count(Status::Completed).await, COUNT as u64);
    drop(running);
}

// FAULTS C3: two suspects that last long do not take each other down for ever: the guilty one is found.
#[tokio::test]
async fn a_long_neighbour_of_a_process_killer_is_not_poisoned() {
    let setup = one_handler();
    setup.accept("killer", "wait").await;
    setup.accept("long", "wait").await;
    let running = setup.inbox.start();
    in_time(setup.script.started(2)).await;
    die(&setup, running).await;
    for _ in 0..9 {
        let worker = beside(&setup);
        let running = worker.inbox.start();
        worker.pass(Duration::from_mins(2)).await;
        if worker.script.runs("h", "killer") > 0 {
            die(&setup, running).await;
        } else {
            worker.script.go(2);
            worker.pass(SECOND).await;
            drop(running);
        }
    }
    let (killer, long) = (setup.entry("killer", "h").await, setup.entry("long", "h").await);
    assert_eq!(killer.reason, Some(PoisonReason::Crashed));
    assert_eq!(long.status, Status::Completed, "{long:?}");
}

// What a killed process had in hand comes again at once, also beside work that lasts.
#[tokio::test]
async fn suspects_of_the_first_level_run_beside_others() {
    let setup = one_handler();
    for number in 0..10 {
        suspect(&setup, &number.to_string(), 1, LEASE).await;
    }
    setup.accept("long", "wait").await;
    let running = setup.inbox.start();
    in_time(setup.script.started(1)).await;
    setup.pass(LEASE + 31 * SECOND).await;
    assert_eq!((setup.count(Status::Completed).await, setup.script.running()), (10, 1));
    drop(running);
}

// A run that began alone and lasts gets company: from then on the death of its process is not its own.
#[tokio::test]
async fn a_suspect_that_got_company_is_not_blamed() {
    for (company, own) in [(false, 1), (true, 0)] {
        let setup = one_handler();
        suspect(&setup, "suspect", 3, Duration::ZERO).await;
        setup.script.says("h", "suspect", "wait");
        let running = setup.inbox.start();
        in_time(setup.script.started(1)).await;
        setup.pass(SECOND).await;
        setup.accept("healthy", "wait").await;
        setup.pass(8 * SECOND).await;
        assert_eq!(setup.script.running(), 1, "healthy work waits");
        if company {
            setup.pass(3 * SECOND).await;
            assert_eq!(setup.script.running(), 2, "but not for ever");
        }
        die(&setup, running).await;
        let worker = beside(&setup);
        let running = worker.inbox.start();
        worker.pass(SECOND).await;
        assert_eq!(setup.entry("suspect", "h").await.suspicion.own_crashes(), own, "company {company}");
        drop(running);
    }
}

// The store must know of company before there is any.
#[tokio::test]
async fn nothing_is_put_beside_a_suspect_that_the_store_takes_for_alone() {
    let setup = one_handler();
    suspect(&setup, "suspect", 3, Duration::ZERO).await;
    setup.script.says("h", "suspect", "wait");
    let running = setup.inbox.start();
    in_time(setup.script.started(1)).await;
    setup.accept("healthy", "wait").await;
    setup.store().faults().always(StoreVerb::Renew, StoreFault::ErrBefore(ErrorKind::Unavailable));
    setup.pass(12 * SECOND).await;
    assert_eq!(setup.script.runs("h", "healthy"), 0);
    setup.store().faults().clear();
    setup.pass(10 * SECOND).await;
    assert_eq!(setup.script.runs("h", "healthy"), 1);
    drop(running);
}

/// A worker with a long run in hand, and a suspect that has just been claimed and waits to be alone.
async fn waits_to_be_alone(setup: &Testbed) -> Running<FaultyMemory> {
    suspect(setup, "suspect", 2, LEASE).await;
    setup.accept("long", "wait").await;
    let running = setup.inbox.start();
    in_time(setup.script.started(1)).await;
    setup.pass_until(async || running.in_flight() == 2).await;
    assert_eq!(setup.script.runs("h", "suspect"), 0, "it waits");
    running
}

// A suspect that waits to be alone is in hand, and in hand means renewed.
#[tokio::test]
async fn a_suspect_that_waits_to_be_alone_keeps_its_lease() {
    let setup = Testbed::new(|inbox, script| {
        let config = Config { lease: SECOND, rescue: 2 * SECOND, ..Config::default() };
        inbox.config(config).on("t", script.handler("h"))
    });
    let running = waits_to_be_alone(&setup).await;
    setup.pass(8 * SECOND).await;
    assert_eq!((running.in_flight(), setup.script.runs("h", "suspect")), (2, 0), "it waits");
    assert_eq!(setup.entry("suspect", "h").await.suspicion.stored(), 2);
    setup.pass(Duration::from_mins(5)).await;
    assert_eq!(setup.script.runs("h", "suspect"), 0, "it never runs beside another");
    setup.script.go(1);
    setup.pass(SECOND).await;
    let done = setup.entry("suspect", "h").await;
    assert_eq!((done.status, done.suspicion.stored()), (Status::Completed, 2));
    in_time(running.idle()).await;
    assert_eq!(setup.entry("long", "h").await.suspicion.stored(), 0);
}

// FAULTS C5: what waits at shutdown has not begun, and does not begin any more.
#[tokio::test]
async fn a_suspect_that_waits_to_be_alone_is_given_back_at_shutdown() {
    let setup = one_handler();
    let running = waits_to_be_alone(&setup).await;
    let end = tokio::spawn(running.shutdown());
    quiet().await;
    setup.script.go(1);
    in_time(end).await.unwrap();
    let back = setup.entry("suspect", "h").await;
    assert_eq!((back.status, back.suspicion.stored()), (Status::Pending, 2));
    assert_eq!(setup.script.runs("h", "suspect"), 0);
    assert_eq!(setup.status("long", "h").await, Status::Completed);
}

#[tokio::test]
async fn a_suspect_whose_lease_cannot_be_kept_while_it_waits_is_given_back() {
    let setup = Testbed::new(|inbox, script| {
        let config = Config { lease: 3 * SECOND, rescue: SECOND, ..Config::default() };
        inbox.config(config).on("t", script.handler("h"))
    });
    let running = waits_to_be_alone(&setup).await;
    setup.store().faults().always(StoreVerb::Renew, StoreFault::ErrBefore(ErrorKind::Unavailable));
    setup.pass_until(async || setup.script.cut() == 1).await;
    setup.store().faults().clear();
    setup.script.go(1);
    setup.pass(60 * SECOND).await;
    let done = setup.entry("suspect", "h").await;
    assert_eq!((done.status, done.suspicion.stored()), (Status::Completed, 2));
    assert_eq!((setup.script.runs("h", "suspect"), running.in_flight()), (1, 0));
}

// The retry of a suspect is found, however much else there is to do.
#[tokio::test]
async fn a_suspect_does_not_starve_under_steady_traffic() {
    let setup = one_handler();
    let running = setup.inbox.start();
    setup.accept("suspect", "wait").await;
    in_time(setup.script.started(1)).await;
    die(&setup, running).await;
    setup.script.says("h", "suspect", "fail no;ok");
    let running = setup.inbox.start();
    in_time(setup.script.started(2)).await;
    for number in 0..80 {
        setup.accept(&number.to_string(), "ok").await;
        setup.clock.advance(SECOND / 10);
        quiet().await;
    }
    assert_eq!(setup.status("suspect", "h").await, Status::Completed, "8 seconds have passed");
    drop(running);
}

// One crash with much in hand must not stop everything else for as long as all that takes one by one.
#[tokio::test]
async fn many_suspects_do_not_keep_the_healthy_from_running() {
    let setup = one_handler();
    for number in 0..20 {
        setup.accept(&format!("suspect{number}"), "wait").await;
    }
    let running = setup.inbox.start();
    in_time(setup.script.started(20)).await;
    die(&setup, running).await;
    let running = setup.inbox.start();
    setup.pass(SECOND).await;
    for number in 0..5 {
        setup.accept(&format!("healthy{number}"), "ok").await;
    }
    setup.pass(15 * SECOND).await;
    assert_eq!(setup.count(Status::Completed).await, 5);
    setup.script.go(100);
    setup.pass(Duration::from_mins(2)).await;
    assert_eq!(setup.count(Status::Completed).await, 25);
    drop(running);
}

// FAULTS B11: more entries to rescue than one call takes.
#[tokio::test]
async fn everything_that_ran_out_is_rescued() {
    let setup = Testbed::new(|inbox, script| inbox.on("t", script.handler("h").concurrency(300)));
    for number in 0..250 {
        setup.accept(&number.to_string(), "wait").await;
    }
    let running = setup.inbox.start();
    in_time(setup.script.started(250)).await;
    die(&setup, running).await;
    setup.script.go(1_000);
    let running = setup.inbox.start();
    setup.pass(2 * SECOND).await;
    in_time(running.idle()).await;
    assert_eq!(setup.count(Status::Completed).await, 250);
    let crashes: u32 = setup.entry("249", "h").await.suspicion.stored();
    assert_eq!((crashes, setup.script.log().len()), (1, 500));
}
