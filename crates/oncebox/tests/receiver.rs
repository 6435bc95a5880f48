//! Deliveries from a source: acknowledged only once they are safe, and held while they cannot be.

mod support;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use oncebox::config::{Limits, Unrouted};
use oncebox::source::{Ack, ChannelSender, Delivery, Settle, Source, channel};
use oncebox::state::Status;
use oncebox::store::Transactional;
use oncebox::{Config, Error, ErrorKind, Message, Result, Retry};
use oncebox_testkit::{StoreFault, StoreVerb};
use parking_lot::Mutex;
use support::{SECOND, Testbed, counts, in_time, message, quiet};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

const AWAY: StoreFault = StoreFault::ErrBefore(ErrorKind::Unavailable);

fn one_handler() -> Testbed {
    Testbed::new(|inbox, script| inbox.on("t", script.handler("h")))
}

/// Delivers without waiting for the answer.
fn deliver(sender: &ChannelSender, message: Message) -> JoinHandle<Result<Ack>> {
    let sender = sender.clone();
    tokio::spawn(async move { sender.deliver(message).await })
}

// FAULTS A1
#[tokio::test]
async fn a_delivery_is_acknowledged_only_when_it_is_stored() {
    let setup = one_handler();
    let running = setup.inbox.start();
    let (sender, source) = channel("source", 10);
    running.receive(source).unwrap();
    setup.store().faults().next(StoreVerb::Accept, StoreFault::Hang);
    let delivery = deliver(&sender, message("1", "ok"));
    in_time(setup.store().faults().wait_for_hanging(1)).await;
    quiet().await;
    assert!(!delivery.is_finished());
    setup.store().faults().release();
    assert_eq!(in_time(delivery).await.unwrap().unwrap(), Ack::Done);
    assert_eq!(
        in_time(deliver(&sender, message("1", "ok"))).await.unwrap().unwrap(),
        Ack::Done,
        "a duplicate"
    );
    in_time(running.idle()).await;
    assert_eq!(setup.script.log(), ["h 1 1"]);
}

// FAULTS A4: an unknown commit is never an acknowledgement.
#[tokio::test]
async fn a_delivery_whose_commit_is_unknown_is_asked_for_again_before_it_is_acknowledged() {
    let setup = one_handler();
    let running = setup.inbox.start();
    let (sender, source) = channel("source", 10);
    running.receive(source).unwrap();
    setup
        .store()
        .faults()
        .script(StoreVerb::Accept, [Some(StoreFault::ErrAfter), Some(StoreFault::ErrAfter), Some(AWAY)]);
    let delivery = deliver(&sender, message("1", "ok"));
    quiet().await;
    assert_eq!(counts(&setup.inbox).await.messages, 1, "it is stored");
    assert!(!delivery.is_finished(), "and no answer arrived");
    setup.pass(SECOND).await;
    assert_eq!(in_time(delivery).await.unwrap().unwrap(), Ack::Done);
    assert_eq!(setup.store().faults().calls(StoreVerb::Accept), 4);
    in_time(running.idle()).await;
    assert_eq!(setup.script.log(), ["h 1 1"]);
}

// FAULTS A15, F1: no negative acknowledgements, which brokers count, and no more deliveries than can be held.
#[tokio::test]
async fn while_the_store_is_away_deliveries_are_held_and_no_more_are_taken() {
    for kind in [ErrorKind::Unavailable, ErrorKind::Full, ErrorKind::ReadOnly, ErrorKind::Corrupt] {
        let setup = Testbed::new(|inbox, script| {
            inbox.config(Config { prefetch: 3, ..Config::default() }).on("t", script.handler("h"))
        });
        let running = setup.inbox.start();
        let (broker, source) = FlakyBroker::new();
        running.receive(source).unwrap();
        setup.store().faults().always(StoreVerb::Accept, StoreFault::ErrBefore(kind));
        for number in 0..10 {
            broker.send(message(&number.to_string(), "ok"));
        }
        setup.pass(Duration::from_mins(5)).await;
        assert_eq!((broker.taken(), broker.acks()), (3, vec![]), "{kind:?}");
        setup.store().faults().clear();
        setup.pass(20 * SECOND).await;
        assert_eq!(broker.acks(), vec![Ack::Done; 10], "{kind:?}");
        in_time(running.idle()).await;
        assert_eq!(setup.script.log().len(), 10, "{kind:?}");
    }
}

// FAULTS A11: what is wrong with the message itself never gets better.
#[tokio::test]
async fn a_message_that_can_never_be_taken_is_rejected_with_a_reason() {
    let setup = Testbed::new(|inbox, script| {
        let limits = Limits { id: 8, payload: 8, ..Limits::default() };
        let config = Config { limits, unrouted: Unrouted::Refuse, ..Config::default() };
        inbox.config(config).on("t", script.handler("h"))
    });
    let running = setup.inbox.start();
    let (sender, source) = channel("source", 10);
    running.receive(source).unwrap();
    let bad = [
        (message("", "ok"), "has no id"),
        (message("123456789", "ok"), "the message id has 9 bytes, the limit is 8"),
        (message("1", "123456789"), "the payload has 9 bytes, the limit is 8"),
        (Message::new("1", "unknown", ""), "no handler is registered for messages of type \"unknown\""),
        (Message::new("1", "", ""), "the message type is empty"),
    ];
    for (message, why) in bad {
        let ack = in_time(deliver(&sender, message)).await.unwrap().unwrap();
        assert!(
            matches!(&ack, Ack::Reject { reason } if reason.contains(why)),
            "{ack:?} does not say: {why}"
        );
    }
    assert_eq!(counts(&setup.inbox).await.messages, 0);
    assert_eq!(setup.store().faults().calls(StoreVerb::Accept), 0, "the store was not even asked");
    assert_eq!(in_time(deliver(&sender, message("1", "ok"))).await.unwrap().unwrap(), Ack::Done);
}

#[tokio::test]
async fn inline_handlers_decide_what_the_broker_is_told() {
    let setup = Testbed::new(|inbox, script| {
        inbox.on("t", script.handler("h").inline().retry(Retry::new(3, 7 * SECOND, 9 * SECOND)))
    });
    let running = setup.inbox.start();
    let (sender, source) = channel("source", 10);
    running.receive(source).unwrap();
    let answers = [
        ("ok", Ack::Done),
        ("discard old", Ack::Done),
        ("fail no", Ack::Redeliver { after: 7 * SECOND }),
        ("panic no", Ack::Redeliver { after: 7 * SECOND }),
        ("snooze 3", Ack::Busy { after: 3 * SECOND }),
        ("reject bad", Ack::Reject { reason: "bad".into() }),
    ];
    for (play, expected) in answers {
        let ack = in_time(deliver(&sender, message(play, play))).await.unwrap().unwrap();
        assert_eq!(ack, expected, "{play}");
    }
}

// DESIGN rule 1: busy elsewhere is held back, never acknowledged, never dead-lettered, and nothing the broker counts.
#[tokio::test]
async fn a_delivery_that_is_busy_elsewhere_is_held_until_it_is_a_duplicate() {
    let setup = Testbed::new(|inbox, script| inbox.on("t", script.handler("h").inline()));
    let running = setup.inbox.start();
    let (sender, source) = channel("source", 10);
    running.receive(source).unwrap();
    let first = deliver(&sender, message("twice", "wait"));
    in_time(setup.script.started(1)).await;
    let second = deliver(&sender, message("twice", "wait"));
    setup.pass(20 * SECOND).await;
    assert!(!first.is_finished() && !second.is_finished(), "the broker is told nothing yet");
    assert!(setup.store().faults().calls(StoreVerb::Mark) > 2, "it was looked at meanwhile");
    setup.script.go(1);
    assert_eq!(in_time(first).await.unwrap().unwrap(), Ack::Done);
    setup.pass(10 * SECOND).await;
    assert_eq!(in_time(second).await.unwrap().unwrap(), Ack::Done);
    assert_eq!(setup.script.log(), ["h twice 1"]);
}

// DESIGN rule 1: not held for ever either; the wait is a setting.
#[tokio::test]
async fn a_delivery_that_stays_busy_is_brought_again_later() {
    for (wait, passed) in [(SECOND, 2 * SECOND), (Duration::ZERO, Duration::ZERO)] {
        let setup = Testbed::new(|inbox, script| {
            let config = Config { busy_wait: wait, ..Config::default() };
            inbox.config(config).on("t", script.handler("h").inline())
        });
        let running = setup.inbox.start();
        let (sender, source) = channel("source", 10);
        running.receive(source).unwrap();
        let first = deliver(&sender, message("twice", "wait"));
        in_time(setup.script.started(1)).await;
        let second = deliver(&sender, message("twice", "wait"));
        setup.pass(passed).await;
        let second = in_time(second).await.unwrap().unwrap();
        assert!(matches!(second, Ack::Busy { .. }), "not a failure: {second:?}");
        setup.script.go(1);
        assert_eq!(in_time(first).await.unwrap().unwrap(), Ack::Done);
    }
}

// A shutdown does not wait for another worker. A held delivery goes back to the broker unsettled.
#[tokio::test]
async fn a_delivery_that_is_busy_is_let_go_at_shutdown() {
    let setup = Testbed::new(|inbox, script| inbox.on("t", script.handler("h").inline()));
    let mut tx = Transactional::begin(setup.store()).await.unwrap();
    assert!(setup.inbox.once(&mut tx, &message("1", ""), "h").await.unwrap().is_first().unwrap());
    let running = setup.inbox.start();
    let (sender, source) = channel("source", 10);
    running.receive(source).unwrap();
    let held = deliver(&sender, message("1", "ok"));
    setup.clock.wait_for_sleepers(1).await;
    quiet().await;
    in_time(running.shutdown()).await;
    assert!(in_time(held).await.unwrap().is_err(), "the broker is told nothing");
    assert!(setup.script.log().is_empty());
}

#[tokio::test]
async fn a_source_that_is_over_ends_its_receiver_and_nothing_else() {
    let setup = one_handler();
    let running = setup.inbox.start();
    let (sender, source) = channel("source", 10);
    running.receive(source).unwrap();
    let delivery = deliver(&sender, message("1", "ok"));
    in_time(delivery).await.unwrap().unwrap();
    drop(sender);
    quiet().await;
    setup.accept("2", "ok").await;
    in_time(running.idle()).await;
    assert_eq!(setup.script.log().len(), 2);
    in_time(running.shutdown()).await;
}

#[tokio::test]
async fn shutdown_settles_what_it_can_and_drops_the_rest_unsettled() {
    let setup = one_handler();
    let running = setup.inbox.start();
    let (sender, source) = channel("source", 10);
    running.receive(source).unwrap();
    setup.store().faults().script(StoreVerb::Accept, [Some(StoreFault::Hang), Some(AWAY)]);
    let stored = deliver(&sender, message("1", "ok"));
    in_time(setup.store().faults().wait_for_hanging(1)).await;
    let held = deliver(&sender, message("2", "ok"));
    quiet().await;
    let end = tokio::spawn(running.shutdown());
    quiet().await;
    let late = deliver(&sender, message("3", "ok"));
    quiet().await;
    assert!(!end.is_finished());
    setup.store().faults().release();
    assert_eq!(in_time(stored).await.unwrap().unwrap(), Ack::Done);
    assert!(in_time(held).await.unwrap().is_err(), "the broker keeps it");
    in_time(end).await.unwrap();
    assert!(in_time(late).await.unwrap().is_err());
    assert_eq!(counts(&setup.inbox).await.messages, 1);
    assert_eq!(setup.status("1", "h").await, Status::Pending);
}

/// A broker that counts what is taken from it, and can fail in its own ways.
#[derive(Clone)]
struct FlakyBroker {
    sender: mpsc::UnboundedSender<Message>,
    seen: Arc<Mutex<FlakyBrokerState>>,
}

#[derive(Default)]
struct FlakyBrokerState {
    taken: usize,
    acks: Vec<Ack>,
    /// Acknowledgements that fail.
    deaf: bool,
    /// Deliveries until the source panics.
    panics_in: Option<usize>,
}

struct FlakyQueue {
    messages: mpsc::UnboundedReceiver<Message>,
    seen: Arc<Mutex<FlakyBrokerState>>,
}

impl FlakyBroker {
    fn new() -> (Self, FlakyQueue) {
        let (sender, messages) = mpsc::unbounded_channel();
        let seen = Arc::<Mutex<FlakyBrokerState>>::default();
        (Self { sender, seen: Arc::clone(&seen) }, FlakyQueue { messages, seen })
    }

    fn send(&self, message: Message) {
        assert!(self.sender.send(message).is_ok(), "the source was dropped");
    }

    fn taken(&self) -> usize {
        self.seen.lock().taken
    }

    fn acks(&self) -> Vec<Ack> {
        self.seen.lock().acks.clone()
    }
}

#[async_trait]
impl Source for FlakyQueue {
    fn name(&self) -> &'static str {
        "broker"
    }

    async fn recv(&mut self) -> Option<Delivery> {
        let panics = match &mut self.seen.lock().panics_in {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        };
        if panics {
            self.seen.lock().panics_in = None;
            panic!("the source has a bug");
        }
        let message = self.messages.recv().await?;
        self.seen.lock().taken += 1;
        Some(Delivery::new(message, FlakyTag(Arc::clone(&self.seen))))
    }
}

struct FlakyTag(Arc<Mutex<FlakyBrokerState>>);

#[async_trait]
impl Settle for FlakyTag {
    async fn settle(self: Box<Self>, ack: Ack) -> Result<()> {
        let mut seen = self.0.lock();
        if seen.deaf {
            return Err(Error::new(ErrorKind::Unavailable, "the channel is closed"));
        }
        seen.acks.push(ack);
        Ok(())
    }
}

// FAULTS A3: the broker brings it again, and it is a duplicate.
#[tokio::test]
async fn an_acknowledgement_that_fails_is_no_error() {
    let setup = one_handler();
    let running = setup.inbox.start();
    let (broker, source) = FlakyBroker::new();
    running.receive(source).unwrap();
    broker.seen.lock().deaf = true;
    broker.send(message("1", "ok"));
    quiet().await;
    broker.seen.lock().deaf = false;
    broker.send(message("1", "ok"));
    quiet().await;
    assert_eq!((broker.taken(), broker.acks()), (2, vec![Ack::Done]));
    in_time(running.idle()).await;
    assert_eq!(setup.script.log(), ["h 1 1"]);
}

// FAULTS J8
#[tokio::test]
async fn a_source_that_panics_is_received_from_again_after_a_pause() {
    let setup = one_handler();
    let running = setup.inbox.start();
    let (broker, source) = FlakyBroker::new();
    broker.seen.lock().panics_in = Some(1);
    running.receive(source).unwrap();
    for id in ["1", "2", "3"] {
        broker.send(message(id, "ok"));
    }
    setup.pass(4 * SECOND).await;
    assert_eq!(broker.taken(), 1);
    setup.pass(2 * SECOND).await;
    assert_eq!(broker.taken(), 3);
    in_time(running.idle()).await;
    assert_eq!(broker.acks(), vec![Ack::Done; 3], "what was in hand when it panicked is not forgotten");
    assert_eq!(setup.count(Status::Completed).await, 3);
}

#[tokio::test]
async fn several_sources_are_received_from_side_by_side() {
    let setup = one_handler();
    let running = setup.inbox.start();
    let brokers: Vec<FlakyBroker> = (0..3)
        .map(|_| {
            let (broker, source) = FlakyBroker::new();
            running.receive(source).unwrap();
            broker
        })
        .collect();
    for (number, broker) in brokers.iter().enumerate() {
        for id in 0..10 {
            broker.send(message(&id.to_string(), "ok").with_source(number.to_string()));
        }
    }
    quiet().await;
    in_time(running.idle()).await;
    assert_eq!(setup.script.log().len(), 30, "an id is unique within its source only");
    for broker in brokers {
        assert_eq!(broker.acks(), vec![Ack::Done; 10]);
    }
}
