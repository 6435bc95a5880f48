//! Runs that share a commit: successful runs complete together, and none is blamed for another.

#[path = "share/leases.rs"]
mod leases;
mod support;

use std::time::Duration;

use oncebox::state::{PoisonReason, Status};
use oncebox::{BoxError, Config, Context, ErrorKind, Memory, Message, Retry, handler};
use oncebox_testkit::{StoreFault, StoreVerb, TestClock};
use support::{FaultyMemory, SECOND, Testbed, in_time, message, quiet};

/// So long that no run of these tests takes too much of it for a shared transaction.
const LEASE: Duration = Duration::from_mins(5);
const AWAY: StoreFault = StoreFault::ErrBefore(ErrorKind::Unavailable);

/// A handler whose runs share commits, and messages for it: `0`, `1` and so on, one for each play.
async fn sharing(max: usize, plays: &[&str]) -> Testbed {
    let setup = Testbed::new(|inbox, script| {
        let inbox = inbox.config(Config { lease: LEASE, ..Config::default() });
        inbox.on("t", script.handler("h").share_commit(max).timeout(5 * SECOND).retry(hourly()))
    });
    accept(&setup, plays).await;
    setup
}

/// Nothing is tried again while a test looks on.
fn hourly() -> Retry {
    Retry::new(3, Duration::from_hours(1), Duration::from_hours(1))
}

async fn accept(setup: &Testbed, plays: &[&str]) {
    for (n, play) in plays.iter().enumerate() {
        setup.accept(&n.to_string(), play).await;
    }
}

/// Status, attempts and runs of a message.
async fn fate(setup: &Testbed, id: &str) -> (Status, u32, usize) {
    let entry = setup.entry(id, "h").await;
    assert_eq!(entry.suspicion.stored(), 0);
    (entry.status, entry.attempts, setup.script.runs("h", id))
}

/// Done, blamed for nothing, after so many runs.
const fn done(runs: usize) -> (Status, u32, usize) {
    (Status::Completed, 0, runs)
}

fn calls(setup: &Testbed, verbs: &[StoreVerb]) -> Vec<u64> {
    verbs.iter().map(|verb| setup.store().faults().calls(*verb)).collect()
}

#[tokio::test]
async fn what_one_claim_brought_shares_commits_in_groups() {
    for (max, groups) in [(64, 1), (4, 3), (5, 2)] {
        let setup = sharing(max, &["ok"; 10]).await;
        let running = setup.inbox.start();
        in_time(running.idle()).await;
        assert_eq!(setup.count(Status::Completed).await, 10);
        assert_eq!(
            calls(&setup, &[StoreVerb::Begin, StoreVerb::Hold, StoreVerb::CompleteAll, StoreVerb::Commit]),
            [groups; 4]
        );
        assert_eq!(
            calls(&setup, &[StoreVerb::Savepoint, StoreVerb::Settle, StoreVerb::Complete]),
            [10, 0, 0]
        );
        if groups == 1 {
            let log: Vec<String> = (0..10).map(|n| format!("h {n} 1")).collect();
            assert_eq!(setup.script.log(), log, "in the order of claims");
        }
        assert_eq!(running.in_flight(), 0);
    }
}

#[tokio::test]
async fn groups_run_beside_each_other_and_their_entries_one_by_one() {
    let setup = sharing(3, &["wait"; 7]).await;
    let running = setup.inbox.start();
    in_time(setup.script.started(3)).await;
    quiet().await;
    assert_eq!((setup.script.running(), running.in_flight()), (3, 7), "three groups, of 3, 3 and 1");
    setup.script.go(7);
    in_time(running.idle()).await;
    assert_eq!((setup.count(Status::Completed).await, setup.script.peak()), (7, 3));
}

// A single entry needs no shared transaction, hold or savepoint.
#[tokio::test]
async fn one_entry_is_not_a_group() {
    let setup = sharing(64, &["ok"]).await;
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    assert_eq!(fate(&setup, "0").await, done(1));
    assert_eq!(calls(&setup, &[StoreVerb::Begin, StoreVerb::Hold, StoreVerb::Settle]), [0, 0, 1]);
}

#[tokio::test]
async fn each_failure_is_its_own_and_the_others_share_the_commit() {
    let plays =
        ["ok", "fail a", "ok", "panic b", "reject c", "wait", "snooze 900", "discard d", "after 900", "ok"];
    let setup = sharing(64, &plays).await;
    let running = setup.inbox.start();
    in_time(setup.script.started(6)).await;
    setup.pass(6 * SECOND).await;
    in_time(running.idle()).await;
    for id in ["0", "2", "9"] {
        assert_eq!(fate(&setup, id).await, done(1), "{id}");
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
        assert_eq!(fate(&setup, id).await, (status, attempts, 1), "{id}");
    }
    assert_eq!(setup.entry("4", "h").await.reason, Some(PoisonReason::Rejected));
    let error = setup.entry("5", "h").await.error.expect("a timeout says so");
    assert!(error.as_str().contains("did not finish"), "{error:?}");
    assert_eq!(calls(&setup, &[StoreVerb::RollbackToSavepoint, StoreVerb::Commit]), [7, 1]);
}

#[tokio::test]
async fn a_group_in_which_all_fail_commits_nothing() {
    let setup = sharing(64, &["fail a", "reject b"]).await;
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    assert_eq!(fate(&setup, "0").await, (Status::Pending, 1, 1));
    assert_eq!(fate(&setup, "1").await, (Status::Poisoned, 0, 1));
    assert_eq!(calls(&setup, &[StoreVerb::CompleteAll, StoreVerb::Commit]), [0, 0]);
}

#[tokio::test]
async fn a_payload_that_does_not_decode_is_no_harm_to_the_others() {
    async fn numbers(_: u64, _: &mut Context<FaultyMemory>) -> Result<(), BoxError> {
        Ok(())
    }
    let setup = Testbed::new(|inbox, _| inbox.on("t", handler("h", numbers).share_commit(8)));
    accept(&setup, &["1", "{", "3"]).await;
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    for (id, status) in [("0", Status::Completed), ("1", Status::Pending), ("2", Status::Completed)] {
        let entry = setup.entry(id, "h").await;
        assert_eq!((entry.status, entry.attempts), (status, 0), "{id}");
    }
    assert_eq!(calls(&setup, &[StoreVerb::Commit]), [1]);
}

// FAULTS C7: wherever the transaction breaks, and whatever the error is, the innocent run again and are not blamed.
#[tokio::test]
async fn no_run_is_blamed_for_a_transaction_that_breaks() {
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
            let setup = sharing(64, &["ok", "fail x", "ok"]).await;
            let passes = std::iter::repeat_n(None, calls_before);
            setup.store().faults().script(verb, passes.chain([Some(fault)]));
            let running = setup.inbox.start();
            in_time(running.idle()).await;
            assert_eq!(fate(&setup, "0").await, done(runs[0]), "{what}");
            assert_eq!(fate(&setup, "1").await, (Status::Pending, 1, runs[1]), "{what}");
            assert_eq!(fate(&setup, "2").await, done(runs[2]), "{what}");
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
            let setup = sharing(64, &["ok"; 3]).await;
            setup.store().faults().always(verb, fault);
            let running = setup.inbox.start();
            in_time(running.idle()).await;
            let (completed, begun) =
                (setup.count(Status::Completed).await, calls(&setup, &[StoreVerb::Begin]));
            assert_eq!((completed, begun), (3, vec![1]), "{verb:?} {fault:?}");
        }
    }
}

// FAULTS C8: the writes of others may be committed with it. An operator must check them before another run.
#[tokio::test]
async fn no_run_repeats_whose_transaction_the_handler_ended() {
    let ended = StoreFault::ErrBefore(ErrorKind::TransactionEnded);
    for (verb, calls_before, poisoned) in
        [(StoreVerb::Savepoint, 2, 2), (StoreVerb::CompleteAll, 0, 4), (StoreVerb::Commit, 0, 4)]
    {
        let setup = sharing(64, &["ok"; 4]).await;
        setup.store().faults().script(verb, std::iter::repeat_n(None, calls_before).chain([Some(ended)]));
        let running = setup.inbox.start();
        in_time(running.idle()).await;
        for n in 0..4 {
            let status = if n < poisoned { Status::Poisoned } else { Status::Completed };
            assert_eq!(fate(&setup, &n.to_string()).await, (status, 0, 1), "{verb:?} {n}");
        }
    }
}

// FAULTS D2: the answer was lost, and the completions are there. The release is refused, and no entry runs again.
#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_not_made_twice() {
    let setup = sharing(64, &["ok", "fail x", "ok"]).await;
    setup.store().faults().next(StoreVerb::Commit, StoreFault::ErrAfter);
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    setup.pass(LEASE).await;
    for id in ["0", "2"] {
        assert_eq!(fate(&setup, id).await, done(1), "{id}");
    }
    assert_eq!(fate(&setup, "1").await, (Status::Pending, 1, 1));
    assert_eq!(running.in_flight(), 0);
}

// FAULTS D2: the answer was lost, and so was the commit.
#[tokio::test]
async fn a_commit_that_was_lost_is_made_up_for() {
    for verb in [StoreVerb::CompleteAll, StoreVerb::Commit] {
        let setup = sharing(64, &["ok", "fail x", "ok"]).await;
        setup.store().faults().next(verb, StoreFault::ErrBefore(ErrorKind::CommitUnknown));
        let running = setup.inbox.start();
        in_time(running.idle()).await;
        for id in ["0", "2"] {
            assert_eq!(fate(&setup, id).await, (Status::Pending, 0, 1), "{id}: it waits a moment");
        }
        setup.pass(2 * SECOND).await;
        for id in ["0", "2"] {
            assert_eq!(fate(&setup, id).await, done(2), "{id}");
        }
        assert_eq!(fate(&setup, "1").await, (Status::Pending, 1, 1));
        drop(running);
    }
}

// FAULTS C5
#[tokio::test]
async fn shutdown_commits_what_ran_and_gives_back_what_did_not() {
    let setup = sharing(64, &["ok", "fail x", "wait", "ok", "ok"]).await;
    let running = setup.inbox.start();
    in_time(setup.script.started(3)).await;
    let end = tokio::spawn(running.shutdown());
    quiet().await;
    assert!(!end.is_finished());
    setup.script.go(1);
    in_time(end).await.unwrap();
    for id in ["0", "2"] {
        assert_eq!(fate(&setup, id).await, done(1), "{id}");
    }
    assert_eq!(fate(&setup, "1").await, (Status::Pending, 1, 1));
    for id in ["3", "4"] {
        assert_eq!(fate(&setup, id).await, (Status::Pending, 0, 0), "{id}");
    }
    quiet().await;
    assert_eq!(setup.clock.sleepers(), 0, "nothing of it is left");
}

// FAULTS C5: the grace is over.
#[tokio::test]
async fn shutdown_cuts_a_run_and_commits_those_before_it() {
    let setup = Testbed::new(|inbox, script| {
        inbox
            .config(Config { lease: LEASE, ..Config::default() })
            .on("t", script.handler("h").share_commit(64))
    });
    accept(&setup, &["ok", "wait", "ok"]).await;
    let running = setup.inbox.start();
    in_time(setup.script.started(2)).await;
    let end = tokio::spawn(running.shutdown());
    setup.pass(31 * SECOND).await;
    in_time(end).await.unwrap();
    assert_eq!(setup.script.cut(), 1);
    assert_eq!(fate(&setup, "0").await, done(1));
    assert_eq!(fate(&setup, "1").await, (Status::Pending, 0, 1));
    assert_eq!(fate(&setup, "2").await, (Status::Pending, 0, 0));
}

// FAULTS C5
#[tokio::test]
async fn shutdown_does_not_wait_for_a_transaction_that_does_not_open() {
    let setup = sharing(64, &["ok"; 3]).await;
    setup.store().faults().always(StoreVerb::Begin, StoreFault::Hang);
    let running = setup.inbox.start();
    in_time(setup.store().faults().wait_for_hanging(1)).await;
    let end = tokio::spawn(running.shutdown());
    setup.pass(31 * SECOND).await;
    in_time(end).await.unwrap();
    for id in ["0", "1", "2"] {
        assert_eq!(fate(&setup, id).await, (Status::Pending, 0, 0), "{id}");
    }
}

// FAULTS C6: a commit that was sent is not torn.
#[tokio::test]
async fn a_commit_goes_on_though_its_worker_is_gone() {
    let setup = sharing(64, &["ok"; 3]).await;
    setup.store().faults().next(StoreVerb::Commit, StoreFault::Hang);
    let running = setup.inbox.start();
    in_time(setup.store().faults().wait_for_hanging(1)).await;
    drop(running);
    quiet().await;
    setup.store().faults().release();
    quiet().await;
    assert_eq!(setup.count(Status::Completed).await, 3);
}

// FAULTS B6: those who ran, and those who wait for their turn, do not wait for ever.
#[tokio::test]
async fn a_run_that_takes_too_long_is_left_to_itself() {
    let setup = Testbed::new(|inbox, script| {
        inbox
            .config(Config { lease: LEASE, ..Config::default() })
            .on("t", script.handler("h").share_commit(64))
    });
    accept(&setup, &["ok", "wait", "ok", "wait", "ok"]).await;
    let running = setup.inbox.start();
    in_time(setup.script.started(2)).await;
    // It, and another one like it, are waited for no longer than that.
    setup.pass(LEASE / 2).await;
    for (id, runs) in [("0", 2), ("2", 1), ("4", 1)] {
        assert_eq!(fate(&setup, id).await, done(runs), "{id}");
    }
    assert_eq!((setup.script.running(), running.in_flight()), (2, 2));
    setup.pass(3 * LEASE).await;
    setup.script.go(2);
    in_time(running.idle()).await;
    assert_eq!(fate(&setup, "1").await, done(2));
    assert_eq!(fate(&setup, "3").await, done(1));
}

// A transaction that is in the way of renewals must not be open as long as 64 slow runs take.
#[tokio::test]
async fn slow_runs_share_several_transactions() {
    let setup = Testbed::new(|inbox, script| {
        inbox
            .config(Config { lease: LEASE, ..Config::default() })
            .on("t", script.handler("h").share_commit(64))
    });
    accept(&setup, &["wait"; 6]).await;
    let running = setup.inbox.start();
    for n in 1..=6 {
        in_time(setup.script.started(n)).await;
        setup.pass(LEASE / 20).await;
        setup.script.go(1);
    }
    in_time(running.idle()).await;
    for n in 0..6 {
        assert_eq!(fate(&setup, &n.to_string()).await, done(1), "{n}");
    }
    assert_eq!(calls(&setup, &[StoreVerb::Begin, StoreVerb::Commit]), [3, 3]);
}

// FAULTS C3: an entry that may kill its process has no neighbours.
#[tokio::test]
async fn a_suspect_shares_with_no_other() {
    let setup = sharing(64, &["wait", "ok", "ok"]).await;
    let running = setup.inbox.start();
    in_time(setup.script.started(1)).await;
    setup.die(running, LEASE).await;
    let held = calls(&setup, &[StoreVerb::Hold]);
    let running = setup.inbox.start();
    setup.script.go(1);
    setup.pass(LEASE / 5).await;
    for id in ["0", "1", "2"] {
        let entry = setup.entry(id, "h").await;
        assert_eq!(
            (entry.status, entry.attempts, entry.suspicion.stored()),
            (Status::Completed, 0, 1),
            "{id}"
        );
    }
    assert_eq!(calls(&setup, &[StoreVerb::Hold]), held);
    drop(running);
}

// FAULTS B14: no wakeup of the store comes before the poll.
#[tokio::test]
async fn the_next_in_order_follows_the_shared_commit() {
    let clock = TestClock::new();
    let store = FaultyMemory::new(Memory::with_clock(clock.shared())).without_wakeups();
    let setup =
        Testbed::over(store, clock, |inbox, script| inbox.on("t", script.handler("h").share_commit(64)));
    for n in 0..5 {
        for order in ["x", "y", "z"] {
            let message = message(&format!("{order}{n}"), "ok").with_ordering_key(order.to_owned());
            setup.inbox.accept(message).await.unwrap();
        }
    }
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    assert_eq!(setup.count(Status::Completed).await, 15);
    for order in ["x", "y", "z"] {
        let expected: Vec<String> = (0..5).map(|n| format!("h {order}{n} 1")).collect();
        let mut log = setup.script.log();
        log.retain(|line| line.starts_with(&format!("h {order}")));
        assert_eq!(log, expected);
    }
    assert_eq!(calls(&setup, &[StoreVerb::Commit]), [5]);
}

#[tokio::test]
async fn handlers_share_with_their_own_kind_only() {
    let setup = Testbed::new(|inbox, script| {
        let shared = script.handler("a").legacy("old").share_commit(8);
        inbox.on("t", shared).on("t", script.handler("b").share_commit(8)).on("t", script.handler("c"))
    });
    accept(&setup, &["ok"; 4]).await;
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    assert_eq!(setup.count(Status::Completed).await, 12);
    assert_eq!(calls(&setup, &[StoreVerb::Commit]), [2]);
}

// By hand each entry has a transaction of its own.
#[tokio::test]
async fn nothing_is_shared_by_hand() {
    let setup = sharing(64, &["ok"; 3]).await;
    assert_eq!(setup.inbox.drain().await.unwrap(), 3);
    assert_eq!((setup.count(Status::Completed).await, calls(&setup, &[StoreVerb::Hold])), (3, vec![0]));
}

#[tokio::test]
async fn the_transaction_of_the_context_is_the_shared_one() {
    async fn write(message: Message, cx: &mut Context<FaultyMemory>) -> Result<(), BoxError> {
        cx.tx().await?;
        if message.payload() == "fail" { Err("no".into()) } else { Ok(()) }
    }
    let setup = Testbed::new(|inbox, _| inbox.on("t", handler("h", write).share_commit(64).retry(hourly())));
    accept(&setup, &["ok", "fail", "ok"]).await;
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    assert_eq!((setup.count(Status::Completed).await, setup.count(Status::Pending).await), (2, 1));
    assert_eq!(calls(&setup, &[StoreVerb::Begin, StoreVerb::Commit]), [1, 1]);
}
