//! Order, through the runtime: what a handler's policy makes of a poisoned head, and order across a rename.

mod support;

use oncebox::state::{PoisonReason, Status};
use oncebox::store::{BlockedParams, Inspect};
use oncebox::{HandlerKey, KeyStrategy, Message, OnPoisoned};
use oncebox_testkit::OperatorSteps as _;
use oncebox_testkit::{FaultyStore, TestClock};
use support::{Testbed, in_time, message};

fn ordered(id: &str, play: &str) -> Message {
    message(id, play).with_ordering_key("k")
}

async fn with(on_poisoned: OnPoisoned) -> Testbed {
    let setup = Testbed::new(|inbox, script| inbox.on("t", script.handler("h").on_poisoned(on_poisoned)));
    for (id, play) in [("1", "reject bad"), ("2", "ok"), ("3", "ok")] {
        setup.inbox.accept(ordered(id, play)).await.expect("accept");
    }
    setup
}

// FAULTS B15
#[tokio::test]
async fn a_handler_may_skip_what_is_poisoned() {
    let setup = with(OnPoisoned::Skip).await;
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    assert_eq!(setup.script.log(), ["h 1 1", "h 2 1", "h 3 1"]);
    assert!(setup.entry("1", "h").await.is_skipped());
    assert_eq!(setup.count(Status::Pending).await, 0);
}

// FAULTS B15
#[tokio::test]
async fn a_handler_may_park_what_is_behind() {
    let setup = with(OnPoisoned::Park).await;
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    assert_eq!(setup.script.log(), ["h 1 1"]);
    assert_eq!((setup.count(Status::Pending).await, setup.count(Status::Poisoned).await), (0, 3));
    setup.inbox.accept(ordered("4", "ok")).await.unwrap();
    assert_eq!(setup.entry("4", "h").await.reason, Some(PoisonReason::Parked));
    unblock(&setup, "1").await;
    in_time(running.idle()).await;
    assert_eq!(setup.script.log(), ["h 1 1", "h 2 1", "h 3 1", "h 4 1"]);
}

#[tokio::test]
async fn an_unblocked_key_goes_on_at_once() {
    let setup = with(OnPoisoned::Block).await;
    let running = setup.inbox.start();
    in_time(running.idle()).await;
    assert_eq!(setup.script.log(), ["h 1 1"]);
    let blocked = setup.store().blocked(&BlockedParams::new(setup.inbox.name().clone())).await.unwrap();
    assert_eq!((blocked.len(), blocked[0].waiting, &blocked[0].ordering_key[..]), (1, 2, &b"k"[..]));
    unblock(&setup, "1").await;
    in_time(running.idle()).await;
    assert_eq!(setup.script.log(), ["h 1 1", "h 2 1", "h 3 1"]);
}

// FAULTS B14: nothing polls here, so the end of one entry has to wake the next under the other key.
#[tokio::test]
async fn a_renamed_handler_keeps_the_order() {
    let clock = TestClock::new();
    let store = FaultyStore::new(oncebox::Memory::with_clock(clock.shared()));
    let old =
        Testbed::over(store.clone(), clock.clone(), |inbox, script| inbox.on("t", script.handler("old")));
    for number in 0..3 {
        old.inbox.accept(ordered(&number.to_string(), "ok")).await.unwrap();
    }
    drop(old);
    let new = Testbed::over(store, clock, |inbox, script| inbox.on("t", script.handler("new").legacy("old")));
    for number in 3..6 {
        new.inbox.accept(ordered(&number.to_string(), "ok")).await.unwrap();
    }
    let running = new.inbox.start();
    in_time(running.idle()).await;
    let expected: Vec<String> = (0..6).map(|number| format!("new {number} 1")).collect();
    assert_eq!(new.script.log(), expected);
    assert_eq!(new.script.peak(), 1);
}

async fn unblock(setup: &Testbed, id: &str) {
    let key = KeyStrategy::MessageId.key(setup.inbox.name(), &message(id, "")).expect("a key");
    let handler = HandlerKey::new("h").expect("a handler key");
    setup.store().unblock(setup.inbox.name(), &key, &handler).await.expect("unblock");
}
