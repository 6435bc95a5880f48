//! Leases that are lost while runs share a commit.

use oncebox::state::Status;
use oncebox::store::{RescueParams, Route, Store as _};
use oncebox::{HandlerKey, Memory};
use oncebox_testkit::{StoreFault, StoreVerb, TestClock};

use super::support::{FaultyMemory, SECOND, Testbed, in_time, quiet};
use super::{AWAY, LEASE, accept, calls, done, fate, sharing};

/// A worker on a clock of its own: it does not notice when the store's jumps.
async fn on_another_clock(plays: &[&str]) -> (Testbed, TestClock) {
    let of_store = TestClock::new();
    let store = FaultyMemory::new(Memory::with_clock(of_store.shared()));
    let setup = Testbed::over(store, TestClock::new(), |inbox, script| {
        inbox.on("t", script.handler("h").share_commit(64))
    });
    accept(&setup, plays).await;
    (setup, of_store)
}

/// Takes over the first entry of all whose leases ran out.
async fn rescue_one(setup: &Testbed, clock: &TestClock) {
    clock.advance(LEASE + SECOND);
    let route = Route::new(HandlerKey::new("h").expect("a good name"));
    let rescue = RescueParams::new(setup.inbox.name().clone(), vec![route], LEASE, 1);
    assert_eq!(setup.store().rescue(&rescue).await.expect("rescue").len(), 1);
}

// FAULTS B4
#[tokio::test]
async fn a_claim_that_was_lost_before_the_group_began_is_left_out() {
    let (setup, of_store) = on_another_clock(&["ok"; 3]).await;
    setup.store().faults().next(StoreVerb::Begin, StoreFault::Hang);
    let running = setup.inbox.start();
    in_time(setup.store().faults().wait_for_hanging(1)).await;
    rescue_one(&setup, &of_store).await;
    setup.store().faults().release();
    quiet().await;
    assert_eq!(fate(&setup, "0").await, (Status::Running, 0, 0), "another worker has it");
    for id in ["1", "2"] {
        assert_eq!(fate(&setup, id).await, done(1), "{id}");
    }
    assert_eq!(running.in_flight(), 0);
}

// FAULTS B4, C14: what the loser wrote is rolled back, and so is what the others did beside it; those run again.
#[tokio::test]
async fn a_claim_that_is_lost_while_the_group_runs_spoils_nothing() {
    let (setup, of_store) = on_another_clock(&["ok", "wait", "ok"]).await;
    let running = setup.inbox.start();
    in_time(setup.script.started(2)).await;
    rescue_one(&setup, &of_store).await;
    setup.script.go(2);
    quiet().await;
    assert_eq!(fate(&setup, "0").await, (Status::Running, 0, 1), "another worker has it");
    for id in ["1", "2"] {
        assert_eq!(fate(&setup, id).await, done(2), "{id}");
    }
    assert_eq!((running.in_flight(), calls(&setup, &[StoreVerb::Commit])), (0, vec![0]));
}

// FAULTS B4: lost between the completion and the commit, which only the commit can see.
#[tokio::test]
async fn a_claim_that_is_lost_at_the_last_moment_spoils_nothing() {
    let (setup, of_store) = on_another_clock(&["ok"; 3]).await;
    setup.store().faults().next(StoreVerb::Commit, StoreFault::Hang);
    let running = setup.inbox.start();
    in_time(setup.store().faults().wait_for_hanging(1)).await;
    rescue_one(&setup, &of_store).await;
    setup.store().faults().release();
    quiet().await;
    assert_eq!(setup.status("0", "h").await, Status::Running, "another worker has it");
    for id in ["1", "2"] {
        assert_eq!(fate(&setup, id).await, done(2), "{id}");
    }
    assert_eq!(running.in_flight(), 0);
}

// FAULTS B6: stopped before another worker may begin, and counted as no failure.
#[tokio::test]
async fn a_group_whose_leases_cannot_be_renewed_is_given_back() {
    let setup = sharing(64, &["fail x", "ok", "ok"]).await;
    setup
        .store()
        .faults()
        .always(StoreVerb::Renew, AWAY)
        .script(StoreVerb::Savepoint, [None, None, Some(StoreFault::Hang)]);
    let running = setup.inbox.start();
    in_time(setup.store().faults().wait_for_hanging(1)).await;
    setup.pass(9 * LEASE / 10).await;
    assert_eq!(fate(&setup, "0").await, (Status::Pending, 1, 1), "what it said is kept");
    assert_eq!(fate(&setup, "1").await, done(2));
    assert_eq!(fate(&setup, "2").await, done(1));
    drop(running);
}
