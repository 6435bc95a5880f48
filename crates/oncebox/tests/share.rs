//! Runs that share a commit: those that do well are done together, and nobody is blamed for a neighbour.

#[path = "share/leases.rs"]
mod leases;
mod support;

use std::time::Duration;

use oncebox::state::{PoisonReason, Status};
use oncebox::{BoxError, Config, Context, ErrorKind, Memory, Message, Retry, handler};
use oncebox_testkit::{StoreFault, StoreVerb, TestClock};
use support::{Faulty, SECOND, World, in_time, message, quiet};

/// So long that no run of these tests takes too much of it for a shared transaction.
const LEASE: Duration = Duration::from_mins(5);
const AWAY: StoreFault = StoreFault::ErrBefore(ErrorKind::Unavailable);

/// A handler whose runs share commits, and messages for it: `0`, `1` and so on, one for each play.
async fn sharing(max: usize, plays: &[&str]) -> World {
    let world = World::new(|inbox, stage| {
        let inbox = inbox.config(Config { lease: LEASE, ..Config::default() });
        inbox.on("t", stage.handler("h").share_commit(max).timeout(5 * SECOND).retry(hourly()))
    });
    accept(&world, plays).await;
    world
}

/// Nothing is tried again while a test looks on.
fn hourly() -> Retry {
    Retry::new(3, Duration::from_hours(1), Duration::from_hours(1))
}

async fn accept(world: &World, plays: &[&str]) {
    for (n, play) in plays.iter().enumerate() {
        world.accept(&n.to_string(), play).await;
    }
}

/// Status, attempts and runs of a message.
async fn fate(world: &World, id: &str) -> (Status, u32, usize) {
    let entry = world.entry(id, "h").await;
    assert_eq!(entry.suspicion.stored(), 0);
    (entry.status, entry.attempts, world.stage.runs("h", id))
}

/// Done, blamed for nothing, after so many runs.
const fn done(runs: usize) -> (Status, u32, usize) {
    (Status::Completed, 0, runs)
}

fn calls(world: &World, verbs: &[StoreVerb]) -> Vec<u64> {
    verbs.iter().map(|verb| world.store().faults().calls(*verb)).collect()
}

#[tokio::test]
async fn what_one_claim_brought_shares_commits_in_groups() {
    for (max, groups) in [(64, 1), (4, 3), (5, 2)] {
        let world = sharing(max, &["ok"; 10]).await;
        let running = world.inbox.start();
        in_time(running.idle()).await;
        assert_eq!(world.count(Status::Completed).await, 10);
        assert_eq!(
            calls(&world, &[StoreVerb::Begin, StoreVerb::Hold, StoreVerb::CompleteAll, StoreVerb::Commit]),
            [groups; 4]
        );
        assert_eq!(
            calls(&world, &[StoreVerb::Savepoint, StoreVerb::Settle, StoreVerb::Complete]),
            [10, 0, 0]
        );
        if groups == 1 {
            let log: Vec<String> = (0..10).map(|n| format!("h {n} 1")).collect();
            assert_eq!(world.stage.log(), log, "in the order of claims");
        }
        assert_eq!(running.in_flight(), 0);
    }
}

#[tokio::test]
async fn groups_run_beside_each_other_and_their_entries_one_by_one() {
    let world = sharing(3, &["wait"; 7]).await;
    let running = world.inbox.start();
    in_time(world.stage.started(3)).await;
    quiet().await;
    assert_eq!((world.stage.running(), running.in_flight()), (3, 7), "three groups, of 3, 3 and 1");
    world.stage.go(7);
    in_time(running.idle()).await;
    assert_eq!((world.count(Status::Completed).await, world.stage.peak()), (7, 3));
}

// A transaction, a hold and a savepoint are of no use to one who shares with nobody.
#[tokio::test]
async fn one_entry_is_not_a_group() {
    let world = sharing(64, &["ok"]).await;
    let running = world.inbox.start();
    in_time(running.idle()).await;
    assert_eq!(fate(&world, "0").await, done(1));
    assert_eq!(calls(&world, &[StoreVerb::Begin, StoreVerb::Hold, StoreVerb::Settle]), [0, 0, 1]);
}

#[tokio::test]
async fn each_failure_is_its_own_and_the_others_share_the_commit() {
    let plays =
        ["ok", "fail a", "ok", "panic b", "reject c", "wait", "snooze 900", "discard d", "after 900", "ok"];
    let world = sharing(64, &plays).await;
    let running = world.inbox.start();
    in_time(world.stage.started(6)).await;
    world.pass(6 * SECOND).await;
    in_time(running.idle()).await;
    for id in ["0", "2", "9"] {
        assert_eq!(fate(&world, id).await, done(1), "{id}");
    }
    for (id, status, attempts) in [
        ("1", Status::Pending, 1),
        ("3", Status::Pending, 1),
        ("4", Status::Poisoned, 0),
        ("5", Status::Pending, 1),
        ("6", Status::Pending, 0),
        ("7", Status::Discarded, 0),
        ("8", Status::Pending, 1),
    ] {
        assert_eq!(fate(&world, id).await, (status, attempts, 1), "{id}");
    }
    assert_eq!(world.entry("4", "h").await.reason, Some(PoisonReason::Rejected));
    let error = world.entry("5", "h").await.error.expect("a timeout says so");
    assert!(error.as_str().contains("did not finish"), "{error:?}");
    assert_eq!(calls(&world, &[StoreVerb::RollbackToSavepoint, StoreVerb::Commit]), [7, 1]);
}

#[tokio::test]
async fn a_group_in_which_all_fail_commits_nothing() {
    let world = sharing(64, &["fail a", "reject b"]).await;
    let running = world.inbox.start();
    in_time(running.idle()).await;
    assert_eq!(fate(&world, "0").await, (Status::Pending, 1, 1));
    assert_eq!(fate(&world, "1").await, (Status::Poisoned, 0, 1));
    assert_eq!(calls(&world, &[StoreVerb::CompleteAll, StoreVerb::Commit]), [0, 0]);
}

#[tokio::test]
async fn a_payload_that_does_not_decode_is_no_harm_to_the_others() {
    async fn numbers(_: u64, _: &mut Context<Faulty>) -> Result<(), BoxError> {
        Ok(())
    }
    let world = World::new(|inbox, _| inbox.on("t", handler("h", numbers).share_commit(8)));
    accept(&world, &["1", "{", "3"]).await;
    let running = world.inbox.start();
    in_time(running.idle()).await;
    for (id, status) in [("0", Status::Completed), ("1", Status::Pending), ("2", Status::Completed)] {
        let entry = world.entry(id, "h").await;
        assert_eq!((entry.status, entry.attempts), (status, 0), "{id}");
    }
    assert_eq!(calls(&world, &[StoreVerb::Commit]), [1]);
}

// FAULTS C7: wherever the transaction breaks, and whatever the error is, the innocent run again and are not blamed.
#[tokio::test]
async fn nobody_is_blamed_for_a_transaction_that_breaks() {
    let errors = [ErrorKind::Unavailable, ErrorKind::Corrupt, ErrorKind::Handler, ErrorKind::LeaseLost];
    for fault in errors.map(StoreFault::ErrBefore).into_iter().chain([StoreFault::Panic]) {
        for (verb, calls_before, runs) in [
            (StoreVerb::Begin, 0, [1, 1, 1]),
            (StoreVerb::Hold, 0, [1, 1, 1]),
            (StoreVerb::Savepoint, 0, [1, 1, 1]),
            (StoreVerb::Savepoint, 1, [2, 1, 1]),
            (StoreVerb::Savepoint, 2, [2, 1, 1]),
            (StoreVerb::RollbackToSavepoint, 0, [2, 1, 1]),
            (StoreVerb::CompleteAll, 0, [2, 1, 2]),
            (StoreVerb::Commit, 0, [2, 1, 2]),
        ] {
            let what = format!("{verb:?} {calls_before} {fault:?}");
            let world = sharing(64, &["ok", "fail x", "ok"]).await;
            let passes = std::iter::repeat_n(None, calls_before);
            world.store().faults().script(verb, passes.chain([Some(fault)]));
            let running = world.inbox.start();
            in_time(running.idle()).await;
            assert_eq!(fate(&world, "0").await, done(runs[0]), "{what}");
            assert_eq!(fate(&world, "1").await, (Status::Pending, 1, runs[1]), "{what}");
            assert_eq!(fate(&world, "2").await, done(runs[2]), "{what}");
            assert_eq!(running.in_flight(), 0, "{what}");
        }
    }
}

// The way out must not lead back in.
#[tokio::test]
async fn a_store_whose_transactions_never_work_is_no_obstacle() {
    for verb in
        [StoreVerb::Begin, StoreVerb::Hold, StoreVerb::Savepoint, StoreVerb::CompleteAll, StoreVerb::Commit]
    {
        for fault in [AWAY, StoreFault::Panic] {
            let world = sharing(64, &["ok"; 3]).await;
            world.store().faults().always(verb, fault);
            let running = world.inbox.start();
            in_time(running.idle()).await;
            let (completed, begun) =
                (world.count(Status::Completed).await, calls(&world, &[StoreVerb::Begin]));
            assert_eq!((completed, begun), (3, vec![1]), "{verb:?} {fault:?}");
        }
    }
}

// FAULTS C8: what others wrote may be committed with it. A person has to see what is there, before it is written once more.
#[tokio::test]
async fn nobody_runs_again_whose_transaction_the_handler_ended() {
    let ended = StoreFault::ErrBefore(ErrorKind::TransactionEnded);
    for (verb, calls_before, poisoned) in
        [(StoreVerb::Savepoint, 2, 2), (StoreVerb::CompleteAll, 0, 4), (StoreVerb::Commit, 0, 4)]
    {
        let world = sharing(64, &["ok"; 4]).await;
        world.store().faults().script(verb, std::iter::repeat_n(None, calls_before).chain([Some(ended)]));
        let running = world.inbox.start();
        in_time(running.idle()).await;
        for n in 0..4 {
            let status = if n < poisoned { Status::Poisoned } else { Status::Completed };
            assert_eq!(fate(&world, &n.to_string()).await, (status, 0, 1), "{verb:?} {n}");
        }
    }
}

// FAULTS D2: the answer was lost, and the completions are there. Giving back is refused, and nobody runs again.
#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_not_made_twice() {
    let world = sharing(64, &["ok", "fail x", "ok"]).await;
    world.store().faults().next(StoreVerb::Commit, StoreFault::ErrAfter);
    let running = world.inbox.start();
    in_time(running.idle()).await;
    world.pass(LEASE).await;
    for id in ["0", "2"] {
        assert_eq!(fate(&world, id).await, done(1), "{id}");
    }
    assert_eq!(fate(&world, "1").await, (Status::Pending, 1, 1));
    assert_eq!(running.in_flight(), 0);
}

// FAULTS D2: the answer was lost, and so was the commit.
#[tokio::test]
async fn a_commit_that_was_lost_is_made_up_for() {
    for verb in [StoreVerb::CompleteAll, StoreVerb::Commit] {
        let world = sharing(64, &["ok", "fail x", "ok"]).await;
        world.store().faults().next(verb, StoreFault::ErrBefore(ErrorKind::CommitUnknown));
        let running = world.inbox.start();
        in_time(running.idle()).await;
        for id in ["0", "2"] {
            assert_eq!(fate(&world, id).await, (Status::Pending, 0, 1), "{id}: it waits a moment");
        }
        world.pass(2 * SECOND).await;
        for id in ["0", "2"] {
            assert_eq!(fate(&world, id).await, done(2), "{id}");
        }
        assert_eq!(fate(&world, "1").await, (Status::Pending, 1, 1));
        drop(running);
    }
}

// FAULTS C5
#[tokio::test]
async fn shutdown_commits_what_ran_and_gives_back_what_did_not() {
    let world = sharing(64, &["ok", "fail x", "wait", "ok", "ok"]).await;
    let running = world.inbox.start();
    in_time(world.stage.started(3)).await;
    let end = tokio::spawn(running.shutdown());
    quiet().await;
    assert!(!end.is_finished());
    world.stage.go(1);
    in_time(end).await.unwrap();
    for id in ["0", "2"] {
        assert_eq!(fate(&world, id).await, done(1), "{id}");
    }
    assert_eq!(fate(&world, "1").await, (Status::Pending, 1, 1));
    for id in ["3", "4"] {
        assert_eq!(fate(&world, id).await, (Status::Pending, 0, 0), "{id}");
    }
    quiet().await;
    assert_eq!(world.clock.sleepers(), 0, "nothing of it is left");
}

// FAULTS C5: the grace is over.
#[tokio::test]
async fn shutdown_cuts_a_run_and_commits_those_before_it() {
    let world = World::new(|inbox, stage| {
        inbox
            .config(Config { lease: LEASE, ..Config::default() })
            .on("t", stage.handler("h").share_commit(64))
    });
    accept(&world, &["ok", "wait", "ok"]).await;
    let running = world.inbox.start();
    in_time(world.stage.started(2)).await;
    let end = tokio::spawn(running.shutdown());
    world.pass(31 * SECOND).await;
    in_time(end).await.unwrap();
    assert_eq!(world.stage.cut(), 1);
    assert_eq!(fate(&world, "0").await, done(1));
    assert_eq!(fate(&world, "1").await, (Status::Pending, 0, 1));
    assert_eq!(fate(&world, "2").await, (Status::Pending, 0, 0));
}

// FAULTS C5
#[tokio::test]
async fn shutdown_does_not_wait_for_a_transaction_that_does_not_open() {
    let world = sharing(64, &["ok"; 3]).await;
    world.store().faults().always(StoreVerb::Begin, StoreFault::Hang);
    let running = world.inbox.start();
    in_time(world.store().faults().wait_for_hanging(1)).await;
    let end = tokio::spawn(running.shutdown());
    world.pass(31 * SECOND).await;
    in_time(end).await.unwrap();
    for id in ["0", "1", "2"] {
        assert_eq!(fate(&world, id).await, (Status::Pending, 0, 0), "{id}");
    }
}

// FAULTS C6: a commit that was sent is not torn.
#[tokio::test]
async fn a_commit_goes_on_though_its_worker_is_gone() {
    let world = sharing(64, &["ok"; 3]).await;
    world.store().faults().next(StoreVerb::Commit, StoreFault::Hang);
    let running = world.inbox.start();
    in_time(world.store().faults().wait_for_hanging(1)).await;
    drop(running);
    quiet().await;
    world.store().faults().release();
    quiet().await;
    assert_eq!(world.count(Status::Completed).await, 3);
}

// FAULTS B6: those who ran, and those who wait for their turn, do not wait for ever.
#[tokio::test]
async fn a_run_that_takes_too_long_is_left_to_itself() {
    let world = World::new(|inbox, stage| {
        inbox
            .config(Config { lease: LEASE, ..Config::default() })
            .on("t", stage.handler("h").share_commit(64))
    });
    accept(&world, &["ok", "wait", "ok", "wait", "ok"]).await;
    let running = world.inbox.start();
    in_time(world.stage.started(2)).await;
    // It, and another one like it, are waited for no longer than that.
    world.pass(LEASE / 2).await;
    for (id, runs) in [("0", 2), ("2", 1), ("4", 1)] {
        assert_eq!(fate(&world, id).await, done(runs), "{id}");
    }
    assert_eq!((world.stage.running(), running.in_flight()), (2, 2));
    world.pass(3 * LEASE).await;
    world.stage.go(2);
    in_time(running.idle()).await;
    assert_eq!(fate(&world, "1").await, done(2));
    assert_eq!(fate(&world, "3").await, done(1));
}

// A transaction that is in the way of renewals must not be open as long as 64 slow runs take.
#[tokio::test]
async fn slow_runs_share_several_transactions() {
    let world = World::new(|inbox, stage| {
        inbox
            .config(Config { lease: LEASE, ..Config::default() })
            .on("t", stage.handler("h").share_commit(64))
    });
    accept(&world, &["wait"; 6]).await;
    let running = world.inbox.start();
    for n in 1..=6 {
        in_time(world.stage.started(n)).await;
        world.pass(LEASE / 20).await;
        world.stage.go(1);
    }
    in_time(running.idle()).await;
    for n in 0..6 {
        assert_eq!(fate(&world, &n.to_string()).await, done(1), "{n}");
    }
    assert_eq!(calls(&world, &[StoreVerb::Begin, StoreVerb::Commit]), [3, 3]);
}

// FAULTS C3: an entry that may kill its process has no neighbours.
#[tokio::test]
async fn a_suspect_shares_with_nobody() {
    let world = sharing(64, &["wait", "ok", "ok"]).await;
    let running = world.inbox.start();
    in_time(world.stage.started(1)).await;
    world.die(running, LEASE).await;
    let held = calls(&world, &[StoreVerb::Hold]);
    let running = world.inbox.start();
    world.stage.go(1);
    world.pass(LEASE / 5).await;
    for id in ["0", "1", "2"] {
        let entry = world.entry(id, "h").await;
        assert_eq!(
            (entry.status, entry.attempts, entry.suspicion.stored()),
            (Status::Completed, 0, 1),
            "{id}"
        );
    }
    assert_eq!(calls(&world, &[StoreVerb::Hold]), held);
    drop(running);
}

// FAULTS B14: nobody looks again by himself before the poll.
#[tokio::test]
async fn the_next_in_order_follows_the_shared_commit() {
    let clock = TestClock::new();
    let store = Faulty::new(Memory::with_clock(clock.shared())).without_wakeups();
    let world = World::over(store, clock, |inbox, stage| inbox.on("t", stage.handler("h").share_commit(64)));
    for n in 0..5 {
        for order in ["x", "y", "z"] {
            let message = message(&format!("{order}{n}"), "ok").with_ordering_key(order.to_owned());
            world.inbox.accept(message).await.unwrap();
        }
    }
    let running = world.inbox.start();
    in_time(running.idle()).await;
    assert_eq!(world.count(Status::Completed).await, 15);
    for order in ["x", "y", "z"] {
        let expected: Vec<String> = (0..5).map(|n| format!("h {order}{n} 1")).collect();
        let mut log = world.stage.log();
        log.retain(|line| line.starts_with(&format!("h {order}")));
        assert_eq!(log, expected);
    }
    assert_eq!(calls(&world, &[StoreVerb::Commit]), [5]);
}

#[tokio::test]
async fn handlers_share_with_their_own_kind_only() {
    let world = World::new(|inbox, stage| {
        let shared = stage.handler("a").legacy("old").share_commit(8);
        inbox.on("t", shared).on("t", stage.handler("b").share_commit(8)).on("t", stage.handler("c"))
    });
    accept(&world, &["ok"; 4]).await;
    let running = world.inbox.start();
    in_time(running.idle()).await;
    assert_eq!(world.count(Status::Completed).await, 12);
    assert_eq!(calls(&world, &[StoreVerb::Commit]), [2]);
}

// By hand each entry has a transaction of its own.
#[tokio::test]
async fn nothing_is_shared_by_hand() {
    let world = sharing(64, &["ok"; 3]).await;
    assert_eq!(world.inbox.drain().await.unwrap(), 3);
    assert_eq!((world.count(Status::Completed).await, calls(&world, &[StoreVerb::Hold])), (3, vec![0]));
}

#[tokio::test]
async fn the_transaction_of_the_context_is_the_shared_one() {
    async fn write(message: Message, cx: &mut Context<Faulty>) -> Result<(), BoxError> {
        cx.tx().await?;
        if message.payload() == "fail" { Err("no".into()) } else { Ok(()) }
    }
    let world = World::new(|inbox, _| inbox.on("t", handler("h", write).share_commit(64).retry(hourly())));
    accept(&world, &["ok", "fail", "ok"]).await;
    let running = world.inbox.start();
    in_time(running.idle()).await;
    assert_eq!((world.count(Status::Completed).await, world.count(Status::Pending).await), (2, 1));
    assert_eq!(calls(&world, &[StoreVerb::Begin, StoreVerb::Commit]), [1, 1]);
}
