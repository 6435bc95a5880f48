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
use support::{SECOND, Testbed, in_time, message, quiet};
use tokio::sync::mpsc;

const AWAY: StoreFault = StoreFault::ErrBefore(ErrorKind::Unavailable);

/// Calls of a source, and calls that wait for its answer.
#[derive(Clone, Default)]
struct SourcePolls {
    times: Arc<AtomicUsize>,
    waiting: Arc<AtomicUsize>,
}

impl SourcePolls {
    fn get(&self) -> (usize, usize) {
        (self.times.load(Ordering::SeqCst), self.waiting.load(Ordering::SeqCst))
    }
}

struct Counting {
    ids: mpsc::UnboundedReceiver<&'static str>,
    asked: SourcePolls,
}

struct PendingPoll(Arc<AtomicUsize>);

impl Drop for PendingPoll {
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
        let _waiting = PendingPoll(Arc::clone(&self.asked.waiting));
        let id = self.ids.recv().await?;
        Some(Delivery::new(message(id, "ok"), Ignored))
    }
}

fn counting() -> (mpsc::UnboundedSender<&'static str>, SourcePolls, Counting) {
    let (sender, ids) = mpsc::unbounded_channel();
    let asked = SourcePolls::default();
    (sender, asked.clone(), Counting { ids, asked })
}

fn setup() -> Testbed {
    Testbed::new(|inbox, script| inbox.on("t", script.handler("h")))
}

// FAULTS A15, F1: a process that is started again and again while its store is away takes nothing from the broker.
#[tokio::test]
async fn nothing_is_received_before_the_store_has_answered() {
    let setup = setup();
    setup.store().faults().always(StoreVerb::Orphans, AWAY);
    let running = setup.inbox.start();
    let (sender, asked, source) = counting();
    running.receive(source).unwrap();
    sender.send("1").unwrap();
    setup.pass(Duration::from_mins(5)).await;
    assert_eq!(asked.get(), (0, 0));
    setup.store().faults().clear();
    setup.pass(10 * SECOND).await;
    in_time(running.idle()).await;
    assert_eq!((setup.script.log(), asked.get()), (vec!["h 1 1".into()], (2, 1)));
}

// FAULTS A15, F1: the wait for a delivery is cancelled, and the receiver asks again only when the store takes one.
#[tokio::test]
async fn nothing_is_received_while_the_store_is_away() {
    let setup = setup();
    let running = setup.inbox.start();
    let (sender, asked, source) = counting();
    running.receive(source).unwrap();
    quiet().await;
    assert_eq!(asked.get(), (1, 1), "it waits for a delivery");
    for verb in [StoreVerb::Accept, StoreVerb::Orphans] {
        setup.store().faults().always(verb, AWAY);
    }
    sender.send("1").unwrap();
    quiet().await;
    let before = asked.get();
    assert_eq!(before.1, 0, "the receiver no longer waits");
    sender.send("2").unwrap();
    setup.pass(Duration::from_mins(5)).await;
    assert_eq!(asked.get(), before);
    setup.store().faults().clear();
    setup.pass(10 * SECOND).await;
    in_time(running.idle()).await;
    assert_eq!(setup.script.log().len(), 2);
    assert_eq!(asked.get().1, 1, "it waits again");
}

// A store that answers and yet does not take a delivery may only have something against that one.
#[tokio::test]
async fn a_store_that_answers_is_tried_with_another_delivery_after_a_while() {
    let setup = setup();
    let running = setup.inbox.start();
    let (sender, asked, source) = counting();
    running.receive(source).unwrap();
    setup.store().faults().always(StoreVerb::Accept, AWAY);
    sender.send("1").unwrap();
    setup.pass(20 * SECOND).await;
    let (times, waiting) = asked.get();
    assert_eq!(waiting, 0);
    setup.pass(20 * SECOND).await;
    assert!(asked.get().0 > times, "it was asked again");
    sender.send("2").unwrap();
    setup.store().faults().clear();
    setup.pass(60 * SECOND).await;
    in_time(running.idle()).await;
    assert_eq!(setup.script.log().len(), 2);
}
