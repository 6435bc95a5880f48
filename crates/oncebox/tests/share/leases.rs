//! Leases that are lost while runs share a commit.

use oncebox::state::Status;
use oncebox::store::{RescueParams, Route, Store as _};
use oncebox::{HandlerKey, Memory};
use oncebox_testkit::{StoreFault, StoreVerb, TestClock};

use super::support::{Faulty, SECOND, World, in_time, quiet};
use super::{AWAY, LEASE, accept, calls, done, fate, sharing};

/// A worker on a clock of its own: it does not notice when the store's jumps.
async fn on_another_clock(plays: &[&str]) -> (World, TestClock) {
    let of_store = TestClock::new();
    let store = Faulty::new(Memory::with_clock(of_store.shared()));
    let world = World::over(store, TestClock::new(), |inbox, stage| {
        inbox.on("t", stage.handler("h").share_commit(64))
    });
    accept(&world, plays).await;
    (world, of_store)
}

/// Takes over the first entry of all whose leases ran out.
async fn rescue_one(world: &World, clock: &TestClock) {
    clock.advance(LEASE + SECOND);
    let route = Route::new(HandlerKey::new("h").expect("a good name"));
    let rescue = RescueParams::new(world.inbox.name().clone(), vec![route], LEASE, 1);
    assert_eq!(world.store().rescue(&rescue).await.expect("rescue").len(), 1);
}

// FAULTS B4
#[tokio::test]
async fn a_claim_that_was_lost_before_the_group_began_is_left_out() {
    let (world, of_store) = on_another_clock(&["ok"; 3]).await;
    world.store().faults().next(StoreVerb::Begin, StoreFault::Hang);
    let running = world.inbox.start();
    in_time(world.store().faults().wait_for_hanging(1)).await;
    rescue_one(&world, &of_store).await;
    world.store().faults().release();
    quiet().await;
    assert_eq!(fate(&world, "0").await, (Status::Running, 0, 0), "it belongs to somebody else");
    for id in ["1", "2"] {
        assert_eq!(fate(&world, id).await, done(1), "{id}");
    }
    assert_eq!(running.in_flight(), 0);
}

// FAULTS B4, C14: what the loser wrote is rolled back, and so is what the others did beside it; those run again.
#[tokio::test]
async fn a_claim_that_is_lost_while_the_group_runs_spoils_nothing() {
    let (world, of_store) = on_another_clock(&["ok", "wait", "ok"]).await;
    let running = world.inbox.start();
    in_time(world.stage.started(2)).await;
    rescue_one(&world, &of_store).await;
    world.stage.go(2);
    quiet().await;
    assert_eq!(fate(&world, "0").await, (Status::Running, 0, 1), "it belongs to somebody else");
    for id in ["1", "2"] {
        assert_eq!(fate(&world, id).await, done(2), "{id}");
    }
    assert_eq!((running.in_flight(), calls(&world, &[StoreVerb::Commit])), (0, vec![0]));
}

// FAULTS B4: lost between the completion and the commit, which only the commit can see.
#[tokio::test]
async fn a_claim_that_is_lost_at_the_last_moment_spoils_nothing() {
    let (world, of_store) = on_another_clock(&["ok"; 3]).await;
    world.store().faults().next(StoreVerb::Commit, StoreFault::Hang);
    let running = world.inbox.start();
    in_time(world.store().faults().wait_for_hanging(1)).await;
    rescue_one(&world, &of_store).await;
    world.store().faults().release();
    quiet().await;
    assert_eq!(world.status("0", "h").await, Status::Running, "it belongs to somebody else");
    for id in ["1", "2"] {
        assert_eq!(fate(&world, id).await, done(2), "{id}");
    }
    assert_eq!(running.in_flight(), 0);
}

// FAULTS B6: told to stop before somebody else may begin, and nobody is blamed for it.
#[tokio::test]
async fn a_group_whose_leases_cannot_be_renewed_is_given_back() {
    let world = sharing(64, &["fail x", "ok", "ok"]).await;
    world
        .store()
        .faults()
        .always(StoreVerb::Renew, AWAY)
        .script(StoreVerb::Savepoint, [None, None, Some(StoreFault::Hang)]);
    let running = world.inbox.start();
    in_time(world.store().faults().wait_for_hanging(1)).await;
    world.pass(9 * LEASE / 10).await;
    assert_eq!(fate(&world, "0").await, (Status::Pending, 1, 1), "what it said is kept");
    assert_eq!(fate(&world, "1").await, done(2));
    assert_eq!(fate(&world, "2").await, done(1));
    drop(running);
}
