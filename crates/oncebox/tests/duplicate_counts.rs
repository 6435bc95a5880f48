//! Duplicates are written down now and then, and told.

use std::time::Duration;

use oncebox::store::{DuplicateCount, Inspect};
use oncebox::{BoxError, Context, Inbox, Memory, Message, handler};
use oncebox_testkit::{FaultyStore, StoreFault, StoreVerb, TestClock};

async fn ship(_: Message, _: &mut Context<FaultyStore<Memory>>) -> Result<(), BoxError> {
    Ok(())
}

#[tokio::test]
async fn a_flood_of_duplicates_costs_one_write() {
    let clock = TestClock::new();
    let store = FaultyStore::new(Memory::with_clock(clock.shared()));
    let inbox = Inbox::builder("orders", store)
        .clock(clock.shared())
        .on("order.placed", handler("ship-order", ship))
        .build()
        .unwrap();
    let message = |id: &'static str| Message::new(id, "order.placed", "{}");
    let start = oncebox::time::Clock::now(&clock);
    inbox.accept(message("1")).await.unwrap();
    inbox.accept(message("2")).await.unwrap();
    for _ in 0..500 {
        inbox.accept(message("1")).await.unwrap();
    }
    assert_eq!(inbox.store().faults().calls(StoreVerb::CountDuplicates), 0, "no duplicate writes by itself");
    inbox.drain().await.unwrap();
    inbox.drain().await.unwrap();
    assert_eq!(
        inbox.store().faults().calls(StoreVerb::CountDuplicates),
        1,
        "all of them in one, and nothing without any"
    );
    let duplicates = async |id| {
        let key = inbox.key_of(&message(id), "ship-order").unwrap().unwrap();
        inbox.store().explain(inbox.name(), &key).await.unwrap().unwrap().history.duplicates
    };
    let Some(DuplicateCount { count, first, last, .. }) = duplicates("1").await else {
        panic!("it was duplicates")
    };
    assert_eq!((count, first, last), (500, start, start));
    assert_eq!(duplicates("2").await, None);
}

// They are written every now and then, and a program may end before.
#[tokio::test]
async fn a_shutdown_writes_down_duplicate_counts() {
    let store = FaultyStore::new(Memory::new());
    let inbox =
        Inbox::builder("orders", store).on("order.placed", handler("ship-order", ship)).build().unwrap();
    let message = || Message::new("1", "order.placed", "{}");
    let running = inbox.start();
    inbox.accept(message()).await.unwrap();
    running.idle().await;
    for _ in 0..3 {
        inbox.accept(message()).await.unwrap();
    }
    // It takes the store a moment.
    inbox.store().faults().next(StoreVerb::CountDuplicates, StoreFault::Hang);
    let writing = async {
        inbox.store().faults().wait_for_hanging(1).await;
        // A shutdown that does not wait for the write would be over by then.
        tokio::task::yield_now().await;
        inbox.store().faults().release();
    };
    tokio::join!(running.shutdown(), writing);
    let key = inbox.key_of(&message(), "ship-order").unwrap().unwrap();
    let explained = inbox.store().explain(inbox.name(), &key).await.unwrap().unwrap();
    assert_eq!(explained.history.duplicates.map(|duplicates| duplicates.count), Some(3));
}

// A service that is told to stop while its database is away has only so long to live.
#[tokio::test]
async fn a_store_that_does_not_answer_does_not_hold_up_a_shutdown_for_it() {
    let clock = TestClock::new();
    let store = FaultyStore::new(Memory::with_clock(clock.shared()));
    let inbox = Inbox::builder("orders", store).clock(clock.shared());
    let inbox = inbox.on("order.placed", handler("ship-order", ship)).build().unwrap();
    let running = inbox.start();
    for _ in 0..2 {
        inbox.accept(Message::new("1", "order.placed", "{}")).await.unwrap();
    }
    running.idle().await;
    inbox.accept(Message::new("1", "order.placed", "{}")).await.unwrap();
    inbox.store().faults().always(StoreVerb::CountDuplicates, StoreFault::Hang);
    let passing = async {
        inbox.store().faults().wait_for_hanging(1).await;
        clock.advance(Duration::from_secs(5));
    };
    let both = async { tokio::join!(running.shutdown(), passing) };
    tokio::time::timeout(Duration::from_mins(3), both).await.expect("five seconds are enough");
}
