//! Order, through the runtime: what a handler's policy makes of a poisoned head, and order across a rename.

mod support;

use oncebox::state::{PoisonReason, Status};
use oncebox::store::{Admin as _, BlockedParams};
use oncebox::{HandlerKey, KeyStrategy, Message, OnPoisoned};
use oncebox_testkit::{FaultyStore, TestClock};
use support::{World, in_time, message};

fn ordered(id: &str, play: &str) -> Message {
    message(id, play).with_ordering_key("k")
}

async fn with(on_poisoned: OnPoisoned) -> World {
    let world = World::new(|inbox, stage| inbox.on("t", stage.handler("h").on_poisoned(on_poisoned)));
    for (id, play) in [("1", "reject bad"), ("2", "ok"), ("3", "ok")] {
        world.inbox.accept(ordered(id, play)).await.expect("accept");
    }
    world
}

// FAULTS B15
#[tokio::test]
async fn a_handler_may_skip_what_is_poisoned() {
    let world = with(OnPoisoned::Skip).await;
    let running = world.inbox.start();
    in_time(running.idle()).await;
    assert_eq!(world.stage.log(), ["h 1 1", "h 2 1", "h 3 1"]);
    assert!(world.entry("1", "h").await.is_skipped());
    assert_eq!(world.count(Status::Pending).await, 0);
}

// FAULTS B15
#[tokio::test]
async fn a_handler_may_park_what_is_behind() {
    let world = with(OnPoisoned::Park).await;
    let running = world.inbox.start();
    in_time(running.idle()).await;
    assert_eq!(world.stage.log(), ["h 1 1"]);
    assert_eq!((world.count(Status::Pending).await, world.count(Status::Poisoned).await), (0, 3));
    world.inbox.accept(ordered("4", "ok")).await.unwrap();
    assert_eq!(world.entry("4", "h").await.reason, Some(PoisonReason::Parked));
    unblock(&world, "1").await;
    in_time(running.idle()).await;
    assert_eq!(world.stage.log(), ["h 1 1", "h 2 1", "h 3 1", "h 4 1"]);
}

#[tokio::test]
async fn an_unblocked_key_goes_on_at_once() {
    let world = with(OnPoisoned::Block).await;
    let running = world.inbox.start();
    in_time(running.idle()).await;
    assert_eq!(world.stage.log(), ["h 1 1"]);
    let blocked = world.store().blocked(&BlockedParams::new(world.inbox.name().clone())).await.unwrap();
    assert_eq!((blocked.len(), blocked[0].waiting, &blocked[0].ordering_key[..]), (1, 2, &b"k"[..]));
    unblock(&world, "1").await;
    in_time(running.idle()).await;
    assert_eq!(world.stage.log(), ["h 1 1", "h 2 1", "h 3 1"]);
}

// FAULTS B14: nobody polls here, so the end of one has to wake whoever waits under the other key.
#[tokio::test]
async fn a_renamed_handler_keeps_the_order() {
    let clock = TestClock::new();
    let store = FaultyStore::new(oncebox::Memory::with_clock(clock.shared()));
    let old = World::over(store.clone(), clock.clone(), |inbox, stage| inbox.on("t", stage.handler("old")));
    for number in 0..3 {
        old.inbox.accept(ordered(&number.to_string(), "ok")).await.unwrap();
    }
    drop(old);
    let new = World::over(store, clock, |inbox, stage| inbox.on("t", stage.handler("new").legacy("old")));
    for number in 3..6 {
        new.inbox.accept(ordered(&number.to_string(), "ok")).await.unwrap();
    }
    let running = new.inbox.start();
    in_time(running.idle()).await;
    let expected: Vec<String> = (0..6).map(|number| format!("new {number} 1")).collect();
    assert_eq!(new.stage.log(), expected);
    assert_eq!(new.stage.peak(), 1);
}

async fn unblock(world: &World, id: &str) {
    let key = KeyStrategy::MessageId.key(world.inbox.name(), &message(id, "")).expect("a key");
    let handler = HandlerKey::new("h").expect("a handler key");
    world.store().unblock(world.inbox.name(), &key, &handler).await.expect("unblock");
}
