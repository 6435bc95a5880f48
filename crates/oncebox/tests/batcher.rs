//! Deliveries that have come together: stored in one call, and each settled by itself.

mod support;

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use oncebox::config::MissingKey;
use oncebox::source::{Ack, Delivery, Settle, Source};
use oncebox::{Config, ErrorKind, Inbox, KeyStrategy, Memory, Message, Result, Running};
use oncebox_testkit::{StoreFault, StoreVerb, TestClock};
use parking_lot::Mutex;
use support::panicky::Panicky;
use support::{FaultyMemory, RunScript, SECOND, Testbed, counts, in_time, message, pass, quiet};
use tokio::sync::Notify;

const AWAY: StoreFault = StoreFault::ErrBefore(ErrorKind::Unavailable);
/// Returns of a message before the broker dead-letters it, as a quorum queue does.
const LIMIT: u32 = 20;

/// A broker that hands out all it has at once, and counts what comes back.
#[derive(Clone, Default)]
struct BatchBroker(Arc<Shared>);

#[derive(Default)]
struct Shared {
    seen: Mutex<BatchBrokerState>,
    more: Notify,
}

#[derive(Default)]
struct BatchBrokerState {
    waiting: VecDeque<(Message, u32)>,
    taken: usize,
    acks: Vec<(String, Ack)>,
    came_back: u32,
    dead: Vec<String>,
    /// Deliveries until `ready` panics.
    panics_in: Option<u32>,
    /// The message whose acknowledgement panics.
    bad_ack: Option<&'static str>,
}

struct BatchQueue(BatchBroker);

struct BatchTag {
    broker: BatchBroker,
    message: Option<(Message, u32)>,
}

fn id(message: &Message) -> String {
    String::from_utf8_lossy(message.id()).into_owned()
}

impl BatchBroker {
    fn send(&self, messages: impl IntoIterator<Item = Message>) {
        self.seen().waiting.extend(messages.into_iter().map(|message| (message, 0)));
        self.0.more.notify_one();
    }

    fn seen(&self) -> parking_lot::MutexGuard<'_, BatchBrokerState> {
        self.0.seen.lock()
    }

    fn next(&self) -> Option<Delivery> {
        let mut seen = self.seen();
        let one = seen.waiting.pop_front()?;
        seen.taken += 1;
        Some(Delivery::new(one.0.clone(), BatchTag { broker: self.clone(), message: Some(one) }))
    }

    fn done(&self) -> usize {
        self.seen().acks.iter().filter(|(_, ack)| *ack == Ack::Done).count()
    }

    fn rejected(&self) -> Vec<String> {
        let seen = self.seen();
        let rejected = seen.acks.iter().filter(|(_, ack)| matches!(ack, Ack::Reject { .. }));
        rejected.map(|(id, _)| id.clone()).collect()
    }
}

#[async_trait]
impl Source for BatchQueue {
    fn name(&self) -> &'static str {
        "broker"
    }

    async fn recv(&mut self) -> Option<Delivery> {
        loop {
            if let Some(delivery) = self.0.next() {
                return Some(delivery);
            }
            self.0.0.more.notified().await;
        }
    }

    fn ready(&mut self) -> Option<Delivery> {
        let mut seen = self.0.seen();
        if seen.panics_in == Some(0) {
            seen.panics_in = None;
            drop(seen);
            panic!("the source has a bug");
        }
        seen.panics_in = seen.panics_in.map(|left| left - 1);
        drop(seen);
        self.0.next()
    }
}

#[async_trait]
impl Settle for BatchTag {
    async fn settle(mut self: Box<Self>, ack: Ack) -> Result<()> {
        let (message, _) = self.message.take().expect("settled once");
        tokio::task::yield_now().await;
        let mut seen = self.broker.seen();
        let bad = seen.bad_ack == Some(&id(&message));
        if bad {
            drop(seen);
            panic!("an acknowledgement with a bug");
        }
        seen.acks.push((id(&message), ack));
        Ok(())
    }
}

/// A dropped message comes back, and is dead-lettered after too many returns.
impl Drop for BatchTag {
    fn drop(&mut self) {
        let Some((message, count)) = self.message.take() else { return };
        let mut seen = self.broker.seen();
        seen.came_back += 1;
        if count == LIMIT {
            seen.dead.push(id(&message));
        } else {
            seen.waiting.push_front((message, count + 1));
            drop(seen);
            self.broker.0.more.notify_one();
        }
    }
}

fn messages(ids: std::ops::Range<usize>) -> impl Iterator<Item = Message> {
    ids.map(|id| message(&id.to_string(), "ok"))
}

/// An inbox that receives from a broker.
fn receiving(config: Config) -> (Testbed, Running<FaultyMemory>, BatchBroker) {
    let setup = Testbed::new(|inbox, script| {
        inbox.config(config).on("t", script.handler("h")).on("inline", script.handler("now").inline())
    });
    let (running, broker) = (setup.inbox.start(), BatchBroker::default());
    running.receive(BatchQueue(broker.clone())).expect("a window that is long enough");
    (setup, running, broker)
}

/// The same, with message 0 in a call of the store that hangs.
async fn busy(config: Config) -> (Testbed, Running<FaultyMemory>, BatchBroker) {
    let (setup, running, broker) = receiving(config);
    setup.store().faults().next(StoreVerb::Accept, StoreFault::Hang);
    broker.send(messages(0..1));
    in_time(setup.store().faults().wait_for_hanging(1)).await;
    (setup, running, broker)
}

#[tokio::test]
async fn what_comes_while_a_batch_is_stored_shares_the_next_one() {
    let (setup, running, broker) = busy(Config::default()).await;
    broker.send(messages(1..40));
    quiet().await;
    assert_eq!((broker.seen().taken, setup.store().faults().calls(StoreVerb::Accept)), (40, 1));
    setup.store().faults().release();
    in_time(running.idle()).await;
    quiet().await;
    assert_eq!((broker.done(), setup.store().faults().calls(StoreVerb::Accept)), (40, 2));
    in_time(running.idle()).await;
    assert_eq!(setup.script.log().len(), 40);
}

#[tokio::test]
async fn no_more_are_taken_than_may_be_in_hand() {
    let (setup, _running, broker) = busy(Config { prefetch: 10, ..Config::default() }).await;
    broker.send(messages(1..40));
    quiet().await;
    assert_eq!(broker.seen().taken, 10);
    setup.store().faults().release();
    setup.pass(SECOND).await;
    assert_eq!(broker.done(), 40);
}

// FAULTS A4, A15: of several, too.
#[tokio::test]
async fn those_of_a_batch_whose_commit_is_unknown_are_asked_for_again_before_they_are_acknowledged() {
    for fault in [StoreFault::ErrAfter, AWAY, StoreFault::ErrBefore(ErrorKind::Full)] {
        let (setup, running, broker) = busy(Config::default()).await;
        broker.send(messages(1..10));
        quiet().await;
        setup.store().faults().next(StoreVerb::Accept, fault);
        setup.store().faults().release();
        quiet().await;
        assert_eq!(broker.done(), 1, "{fault:?}");
        let stored = counts(&setup.inbox).await.messages;
        assert_eq!(stored, if matches!(fault, StoreFault::ErrAfter) { 10 } else { 1 }, "{fault:?}");
        setup.pass(SECOND).await;
        assert_eq!(broker.done(), 10, "{fault:?}");
        in_time(running.idle()).await;
        assert_eq!((setup.script.log().len(), broker.seen().came_back), (10, 0), "{fault:?}");
    }
}

// FAULTS A4: what is compared with nothing is prepared once, and recognised.
#[tokio::test]
async fn messages_without_a_key_whose_commit_is_unknown_are_stored_once() {
    let config = Config { missing_key: MissingKey::Undeduplicated, ..Config::default() };
    let (setup, running, broker) = receiving(config);
    setup
        .store()
        .faults()
        .script(StoreVerb::Accept, [Some(StoreFault::ErrAfter), Some(StoreFault::ErrAfter)]);
    broker.send((0..10).map(|_| message("", "ok")));
    setup.pass(10 * SECOND).await;
    assert_eq!((broker.done(), counts(&setup.inbox).await.messages), (10, 10));
    in_time(running.idle()).await;
    assert_eq!(setup.script.log().len(), 10);
}

// FAULTS A11: what is wrong with one of them is not said of the others.
#[tokio::test]
async fn one_that_can_never_be_taken_takes_no_others_with_it() {
    let (setup, running, broker) = receiving(Config::default());
    setup.store().faults().next(StoreVerb::Accept, StoreFault::Hang);
    broker.send([message("0", "ok"), message("", "ok")]);
    in_time(setup.store().faults().wait_for_hanging(1)).await;
    quiet().await;
    assert_eq!(broker.rejected(), [""], "what is refused without the store does not wait for it");
    broker.send([message("1", "ok"), message("2", "ok")]);
    quiet().await;
    // A store that finds something only when it looks closer refuses the whole call.
    let unfit = Some(StoreFault::ErrBefore(ErrorKind::InvalidMessage));
    setup.store().faults().script(StoreVerb::Accept, [unfit, unfit]);
    setup.store().faults().release();
    quiet().await;
    // Asked for by itself, one of the two was refused, and the other was not.
    assert_eq!((broker.done(), broker.rejected().len()), (2, 2));
    assert_eq!(counts(&setup.inbox).await.messages, 2);
    in_time(running.idle()).await;
}

#[tokio::test]
async fn one_that_has_to_wait_keeps_neither_room_nor_turns_from_others() {
    let (setup, _running, broker) = busy(Config { prefetch: 5, ..Config::default() }).await;
    broker.send(messages(1..5));
    quiet().await;
    // The batch, and then one of the four that were in it.
    let wrong = Some(StoreFault::ErrBefore(ErrorKind::Corrupt));
    setup.store().faults().script(StoreVerb::Accept, [wrong, wrong]);
    setup.store().faults().release();
    quiet().await;
    assert_eq!(broker.done(), 4);
    broker.send(messages(5..30));
    quiet().await;
    assert_eq!(broker.done(), 29, "all but the one that waits");
    setup.pass(SECOND).await;
    assert_eq!(broker.done(), 30);
}

#[tokio::test]
async fn what_has_come_twice_is_stored_once() {
    let (setup, running, broker) = busy(Config::default()).await;
    broker.send(messages(1..5).chain(messages(1..5)).chain(messages(0..1)));
    quiet().await;
    setup.store().faults().release();
    in_time(running.idle()).await;
    quiet().await;
    assert_eq!((broker.done(), counts(&setup.inbox).await.messages), (10, 5));
    in_time(running.idle()).await;
    assert_eq!(setup.script.log().len(), 5);
}

// What has more to be done than to be stored goes its own way.
#[tokio::test]
async fn inline_handlers_and_lines_do_not_wait_for_those_that_are_only_stored() {
    let (setup, running, broker) = busy(Config::default()).await;
    let ordered = |id: &str| message(id, "ok").with_ordering_key("a");
    broker.send([ordered("1"), Message::new("2", "inline", "wait"), ordered("3"), message("4", "ok")]);
    in_time(setup.script.started(1)).await;
    quiet().await;
    assert_eq!(broker.done(), 2, "the ordered ones");
    setup.script.go(1);
    quiet().await;
    assert_eq!(broker.done(), 3, "and the one that was handled");
    setup.store().faults().release();
    in_time(running.idle()).await;
    let log = setup.script.log();
    let place = |id: &str| log.iter().position(|line| line.starts_with(&format!("h {id} "))).unwrap();
    assert!(place("1") < place("3"), "{log:?}");
}

#[tokio::test]
async fn lines_keep_their_order_beside_batches() {
    for seed in 0..30_usize {
        let (setup, running, broker) = receiving(Config { prefetch: 7, ..Config::default() });
        let faults = [StoreFault::ErrAfter, AWAY, StoreFault::ErrBefore(ErrorKind::Corrupt)];
        let fault = |call: usize| faults.get((call * 7_919 + seed * 104_729) % 7).copied();
        setup.store().faults().script(StoreVerb::Accept, (0..60).map(fault));
        broker.send((0..60).map(|number| {
            let one = message(&format!("{number:03}"), "ok");
            if number % 3 == 0 { one } else { one.with_ordering_key(format!("line {}", number % 3)) }
        }));
        setup.pass(120 * SECOND).await;
        in_time(running.idle()).await;
        assert_eq!((broker.done(), setup.script.log().len()), (60, 60));
        for line in 1..3 {
            let log = setup.script.log();
            let of = |log: &&String| log[2..5].parse::<usize>().unwrap() % 3 == line;
            assert!(log.iter().filter(of).is_sorted(), "{log:?}");
        }
    }
}

// FAULTS F1: a bug that one message meets does not cost others their deliveries.
#[tokio::test]
async fn a_message_that_makes_its_key_panic_takes_no_others_with_it() {
    let key = KeyStrategy::custom(|message| {
        assert!(message.payload() != "poison", "a key function with a bug");
        None
    });
    let (setup, _running, broker) = receiving(Config { key, ..Config::default() });
    broker.send(messages(0..5).chain([message("bad", "poison")]).chain(messages(5..10)));
    setup.pass(60 * SECOND).await;
    assert_eq!((broker.done(), broker.seen().dead.clone()), (10, vec!["bad".to_owned()]));
}

#[tokio::test]
async fn a_store_that_panics_gives_back_no_more_than_one_message_for_it() {
    for panics in [1, 2, 7] {
        let clock = TestClock::new();
        let store = Panicky::new(Memory::with_clock(clock.shared()));
        let script = RunScript::default();
        let builder = Inbox::builder("test", store.clone()).on("t", script.handler("h"));
        let inbox = builder.clock(clock.shared()).build().unwrap();
        let (running, broker) = (inbox.start(), BatchBroker::default());
        for _ in 0..panics {
            store.panic_at(StoreVerb::Accept);
        }
        broker.send(messages(0..10));
        running.receive(BatchQueue(broker.clone())).unwrap();
        pass(&clock, 10 * SECOND).await;
        assert_eq!(broker.done(), 10);
        // The first one met all of them; then each of them at most one.
        assert!(broker.seen().came_back < panics.max(2), "{} of {panics}", broker.seen().came_back);
        in_time(running.shutdown()).await;
    }
}

// FAULTS J8
#[tokio::test]
async fn what_was_taken_before_a_source_panics_stays_in_hand() {
    let (setup, _running, broker) = busy(Config::default()).await;
    for round in 0..5 {
        broker.seen().panics_in = Some(3);
        broker.send(messages(10 * round + 1..10 * round + 11));
        setup.pass(10 * SECOND).await;
    }
    setup.store().faults().release();
    setup.pass(SECOND).await;
    assert_eq!((broker.done(), broker.seen().came_back), (51, 0));
}

#[tokio::test]
async fn an_acknowledgement_that_panics_keeps_no_others_from_the_broker() {
    let (setup, _running, broker) = busy(Config::default()).await;
    broker.seen().bad_ack = Some("3");
    broker.send(messages(1..10));
    quiet().await;
    setup.store().faults().release();
    setup.pass(SECOND).await;
    assert_eq!(broker.done(), 9);
}

#[tokio::test]
async fn at_a_shutdown_what_is_stored_is_acknowledged_and_the_rest_goes_back() {
    // The store answers within the grace, or not.
    for answers in [true, false] {
        let (setup, running, broker) = busy(Config { prefetch: 4, ..Config::default() }).await;
        setup.store().faults().always(StoreVerb::Accept, StoreFault::Hang);
        broker.send(messages(1..20));
        quiet().await;
        let end = tokio::spawn(running.shutdown());
        quiet().await;
        assert!(!end.is_finished());
        if answers {
            setup.store().faults().clear();
        }
        setup.pass(120 * SECOND).await;
        in_time(end).await.unwrap();
        let stored = usize::try_from(counts(&setup.inbox).await.messages).unwrap();
        assert_eq!(broker.done(), stored, "{answers}");
        assert_eq!((stored > 0, stored + broker.seen().waiting.len()), (answers, 20), "{answers}");
    }
}

// FAULTS A15, F1: no delivery is burned, however long it takes.
#[tokio::test]
async fn those_of_a_batch_that_wait_go_back_once_and_only_at_a_stop() {
    for kind in [ErrorKind::Unavailable, ErrorKind::Corrupt, ErrorKind::CommitUnknown] {
        let (setup, running, broker) = receiving(Config::default());
        setup.store().faults().always(StoreVerb::Accept, StoreFault::ErrBefore(kind));
        broker.send(messages(0..50));
        setup.pass(300 * SECOND).await;
        assert_eq!((broker.done(), broker.seen().came_back), (0, 0), "{kind:?}");
        in_time(running.shutdown()).await;
        assert_eq!(broker.seen().waiting.len(), 50, "{kind:?}");
    }
}

// Messages of several senders, as a source of the program's own would bring them.
#[tokio::test]
async fn what_is_wrong_with_one_message_is_not_said_of_those_of_other_senders() {
    let key = KeyStrategy::custom(|message| {
        assert!(message.payload() != "poison", "a key function with a bug");
        Some(message.id().to_vec())
    });
    let setup = Testbed::new(|inbox, script| {
        inbox.config(Config { key, ..Config::default() }).on("t", script.handler("h"))
    });
    let kinds = async |messages: Vec<Message>| {
        let received = setup.inbox.receive_each(messages).await;
        received.into_iter().map(|one| one.err().map(|error| error.kind())).collect::<Vec<_>>()
    };
    let (unfit, unknown) = (ErrorKind::InvalidMessage, ErrorKind::CommitUnknown);
    let four =
        || vec![message("1", "ok"), message("2", "poison"), Message::new("3", "", ""), message("4", "ok")];
    setup.store().faults().next(StoreVerb::Accept, StoreFault::ErrBefore(unfit));
    assert_eq!(kinds(four()).await, [None, Some(unknown), Some(unfit), None], "each is asked for by itself");
    setup.store().faults().next(StoreVerb::Accept, StoreFault::Panic);
    assert_eq!(kinds(four()).await, [None, Some(unknown), Some(unfit), None]);
    setup.store().faults().next(StoreVerb::Accept, AWAY);
    let away = Some(ErrorKind::Unavailable);
    assert_eq!(kinds(four()).await, [away, Some(unknown), Some(unfit), away], "that is said of all of them");
    assert!(kinds(Vec::new()).await.is_empty());
    assert_eq!(counts(&setup.inbox).await.messages, 2);
}
