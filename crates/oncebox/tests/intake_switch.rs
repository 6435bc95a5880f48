//! While the store is away, a source is not even asked: it would consume again after each connection that it loses, and
//! brokers count that.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use oncebox::ErrorKind;
use oncebox::source::{Ack, Delivery, Settle, Source};
use oncebox_testkit::{StoreFault, StoreVerb};
use support::{SECOND, World, in_time, message, quiet};
use tokio::sync::mpsc;

const AWAY: StoreFault = StoreFault::ErrBefore(ErrorKind::Unavailable);

/// How often a source was asked, and whether somebody waits for its answer.
#[derive(Clone, Default)]
struct Asked {
    times: Arc<AtomicUsize>,
    waiting: Arc<AtomicUsize>,
}

impl Asked {
    fn get(&self) -> (usize, usize) {
        (self.times.load(Ordering::SeqCst), self.waiting.load(Ordering::SeqCst))
    }
}

struct Counting {
    ids: mpsc::UnboundedReceiver<&'static str>,
    asked: Asked,
}

struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Ignored;

#[async_trait]
impl Settle for Ignored {
    async fn settle(self: Box<Self>, _: Ack) -> oncebox::Result<()> {
        Ok(())
    }
}

#[async_trait]
impl Source for Counting {
    fn name(&self) -> &'static str {
        "counting"
    }

    async fn recv(&mut self) -> Option<Delivery> {
        self.asked.times.fetch_add(1, Ordering::SeqCst);
        self.asked.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(Arc::clone(&self.asked.waiting));
        let id = self.ids.recv().await?;
        Some(Delivery::new(message(id, "ok"), Ignored))
    }
}

fn counting() -> (mpsc::UnboundedSender<&'static str>, Asked, Counting) {
    let (sender, ids) = mpsc::unbounded_channel();
    let asked = Asked::default();
    (sender, asked.clone(), Counting { ids, asked })
}

fn world() -> World {
    World::new(|inbox, stage| inbox.on("t", stage.handler("h")))
}

// FAULTS A15, F1: a process that is started again and again while its store is away takes nothing from the broker.
#[tokio::test]
async fn nothing_is_received_before_the_store_has_answered() {
    let world = world();
    world.store().faults().always(StoreVerb::Orphans, AWAY);
    let running = world.inbox.start();
    let (sender, asked, source) = counting();
    running.receive(source).unwrap();
    sender.send("1").unwrap();
    world.pass(Duration::from_mins(5)).await;
    assert_eq!(asked.get(), (0, 0));
    world.store().faults().clear();
    world.pass(10 * SECOND).await;
    in_time(running.idle()).await;
    assert_eq!((world.stage.log(), asked.get()), (vec!["h 1 1".into()], (2, 1)));
}

// FAULTS A15, F1: who waits for the next delivery is called back, and nobody asks again until the store takes one.
#[tokio::test]
async fn nothing_is_received_while_the_store_is_away() {
    let world = world();
    let running = world.inbox.start();
    let (sender, asked, source) = counting();
    running.receive(source).unwrap();
    quiet().await;
    assert_eq!(asked.get(), (1, 1), "it waits for a delivery");
    for verb in [StoreVerb::Accept, StoreVerb::Orphans] {
        world.store().faults().always(verb, AWAY);
    }
    sender.send("1").unwrap();
    quiet().await;
    let before = asked.get();
    assert_eq!(before.1, 0, "nobody waits any more");
    sender.send("2").unwrap();
    world.pass(Duration::from_mins(5)).await;
    assert_eq!(asked.get(), before);
    world.store().faults().clear();
    world.pass(10 * SECOND).await;
    in_time(running.idle()).await;
    assert_eq!(world.stage.log().len(), 2);
    assert_eq!(asked.get().1, 1, "it waits again");
}

// A store that answers and yet does not take a delivery may only have something against that one.
#[tokio::test]
async fn a_store_that_answers_is_tried_with_another_delivery_after_a_while() {
    let world = world();
    let running = world.inbox.start();
    let (sender, asked, source) = counting();
    running.receive(source).unwrap();
    world.store().faults().always(StoreVerb::Accept, AWAY);
    sender.send("1").unwrap();
    world.pass(20 * SECOND).await;
    let (times, waiting) = asked.get();
    assert_eq!(waiting, 0);
    world.pass(20 * SECOND).await;
    assert!(asked.get().0 > times, "it was asked again");
    sender.send("2").unwrap();
    world.store().faults().clear();
    world.pass(60 * SECOND).await;
    in_time(running.idle()).await;
    assert_eq!(world.stage.log().len(), 2);
}
