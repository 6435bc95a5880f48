//! An inbox works on a store of tier 0 alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oncebox::source::{Ack, channel};
use oncebox::{Accepted, BoxError, Context, Inbox, Message, handler};
use oncebox_example_store::SmallStore;
use oncebox_testkit::TestClock;

async fn ship(_: Message, cx: &mut Context<SmallStore>) -> Result<(), BoxError> {
    cx.data::<Arc<AtomicUsize>>()?.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

#[tokio::test]
async fn a_message_that_comes_twice_runs_once() -> Result<(), BoxError> {
    let (clock, shipped) = (TestClock::new(), Arc::<AtomicUsize>::default());
    let inbox = Inbox::builder("orders", SmallStore::new(clock.shared()))
        .clock(clock.shared())
        .data(Arc::clone(&shipped))
        .on("order.placed", handler("ship", ship))
        .build()?;
    let message = Message::new("evt_1", "order.placed", "{}");
    assert!(matches!(inbox.accept(message.clone()).await?, Accepted::First(_)));
    assert!(matches!(inbox.accept(message).await?, Accepted::Duplicate(_)));
    inbox.drain().await?;
    inbox.drain().await?;
    assert_eq!(shipped.load(Ordering::Relaxed), 1);
    Ok(())
}

#[tokio::test]
async fn a_source_delivers_to_it() -> Result<(), BoxError> {
    let (clock, shipped) = (TestClock::new(), Arc::<AtomicUsize>::default());
    let inbox = Inbox::builder("orders", SmallStore::new(clock.shared()))
        .clock(clock.shared())
        .data(Arc::clone(&shipped))
        .on("order.placed", handler("ship", ship))
        .build()?;
    let (sender, source) = channel("shop", 1);
    let running = inbox.start();
    running.receive(source)?;
    assert_eq!(sender.deliver(Message::new("evt_1", "order.placed", "{}")).await?, Ack::Done);
    running.shutdown().await;
    Ok(())
}
