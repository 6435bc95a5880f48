//! Deliveries with one ordering key are accepted in the order in which the source brought them.

mod support;

use std::task::Poll;

use oncebox::config::OrderBy;
use oncebox::source::{Ack, ChannelSender, channel};
use oncebox::{Config, ErrorKind, Message, Result};
use oncebox_testkit::{StoreFault, StoreVerb};
use support::{SECOND, Testbed, counts, in_time, message, quiet};
use tokio::task::JoinHandle;

const AWAY: StoreFault = StoreFault::ErrBefore(ErrorKind::Unavailable);
/// An answer that is waited out, and that does not shut the door: those behind the one that got it are received meanwhile.
const ODD: StoreFault = StoreFault::ErrBefore(ErrorKind::Corrupt);

fn setup(config: Config) -> Testbed {
    Testbed::new(|inbox, script| inbox.config(config).on("t", script.handler("h")))
}

/// Delivers one after the other, without waiting for the answers.
async fn deliver(sender: &ChannelSender, messages: Vec<Message>) -> Vec<JoinHandle<Result<Ack>>> {
    let mut answers = Vec::new();
    for message in messages {
        let sender = sender.clone();
        answers.push(tokio::spawn(async move { sender.deliver(message).await }));
        quiet().await;
    }
    answers
}

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

fn ran(count: usize) -> Vec<String> {
    ids(count).iter().map(|id| format!("h {id} 1")).collect()
}

// FAULTS B14: the first one fails and waits; those behind it must not be accepted meanwhile.
#[tokio::test]
async fn deliveries_with_one_key_do_not_overtake_one_that_has_to_wait() {
    let setup = setup(Config::default());
    let running = setup.inbox.start();
    let (sender, source) = channel("source", 100);
    running.receive(source).unwrap();
    setup
        .store()
        .faults()
        .script(StoreVerb::Accept, [Some(AWAY), None, Some(AWAY), Some(StoreFault::ErrAfter)]);
    let all = ids(30).iter().map(|id| message(id, "ok").with_ordering_key("k")).collect();
    let answers = deliver(&sender, all).await;
    setup.pass(60 * SECOND).await;
    for answer in answers {
        assert_eq!(in_time(answer).await.unwrap().unwrap(), Ack::Done);
    }
    in_time(running.idle()).await;
    assert_eq!(setup.script.log(), ran(30));
}

// The key may be found by the inbox.
#[tokio::test]
async fn so_it_is_where_the_inbox_finds_the_key() {
    let setup = setup(Config { order: Some(OrderBy::Header("customer".into())), ..Config::default() });
    let running = setup.inbox.start();
    let (sender, source) = channel("source", 100);
    running.receive(source).unwrap();
    setup.store().faults().next(StoreVerb::Accept, ODD);
    let all = ids(20).iter().map(|id| message(id, "ok").with_header("customer", "7")).collect();
    let _answers = deliver(&sender, all).await;
    assert_eq!(setup.store().faults().calls(StoreVerb::Accept), 1, "all are in hand, and wait for the first");
    setup.pass(60 * SECOND).await;
    in_time(running.idle()).await;
    assert_eq!(setup.script.log(), ran(20));
}

// Many at once on several threads, each of which may be the first to reach the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn deliveries_with_one_key_are_accepted_in_their_order_on_many_threads() {
    let setup = setup(Config::default());
    let running = setup.inbox.start();
    let (sender, source) = channel("source", 2_000);
    running.receive(source).unwrap();
    let mut answers = Vec::new();
    for id in ids(500) {
        // Put into the channel when it is polled for the first time; the answer may be there at once.
        let mut delivery = Box::pin(sender.deliver(message(&id, "ok").with_ordering_key("k")));
        match std::future::poll_fn(|cx| Poll::Ready(delivery.as_mut().poll(cx))).await {
            Poll::Ready(answer) => assert_eq!(answer.unwrap(), Ack::Done),
            Poll::Pending => answers.push(delivery),
        }
    }
    for answer in answers {
        assert_eq!(in_time(answer).await.unwrap(), Ack::Done);
    }
    in_time(running.idle()).await;
    assert_eq!(setup.script.log(), ran(500));
}

#[tokio::test]
async fn other_keys_and_none_do_not_wait() {
    let setup = setup(Config::default());
    let running = setup.inbox.start();
    let (sender, source) = channel("source", 100);
    running.receive(source).unwrap();
    setup.store().faults().next(StoreVerb::Accept, StoreFault::Hang);
    let keyed = |id: &str, key: &'static str| message(id, "ok").with_ordering_key(key);
    let first = deliver(&sender, vec![keyed("1", "k"), keyed("2", "k")]).await;
    let others = deliver(&sender, vec![keyed("3", "other"), message("4", "ok")]).await;
    for answer in others {
        assert_eq!(in_time(answer).await.unwrap().unwrap(), Ack::Done);
    }
    assert!(first.iter().all(|answer| !answer.is_finished()));
    setup.store().faults().release();
    for answer in first {
        assert_eq!(in_time(answer).await.unwrap().unwrap(), Ack::Done);
    }
}

// A delivery that can never be taken delays no other.
#[tokio::test]
async fn what_is_rejected_is_not_waited_for() {
    let setup = setup(Config::default());
    let running = setup.inbox.start();
    let (sender, source) = channel("source", 100);
    running.receive(source).unwrap();
    let keyed = |id: &str| message(id, "ok").with_ordering_key("k");
    let mut answers = deliver(&sender, vec![keyed("1"), keyed(""), keyed("3")]).await.into_iter();
    for expected in ["done", "reject", "done"] {
        let ack = in_time(answers.next().unwrap()).await.unwrap().unwrap();
        assert_eq!(matches!(ack, Ack::Reject { .. }), expected == "reject", "{ack:?}");
    }
}

// What goes back to the broker at a shutdown comes again first, so nothing behind it may be accepted.
#[tokio::test]
async fn a_shutdown_leaves_the_line_with_the_broker() {
    let setup = setup(Config::default());
    let running = setup.inbox.start();
    let (sender, source) = channel("source", 100);
    running.receive(source).unwrap();
    setup.store().faults().next(StoreVerb::Accept, ODD);
    let all = ids(5).iter().map(|id| message(id, "ok").with_ordering_key("k")).collect();
    let answers = deliver(&sender, all).await;
    let offered = setup.store().faults().calls(StoreVerb::Accept);
    assert_eq!(offered, 1, "the first waits to be tried again, and the others for it");
    in_time(running.shutdown()).await;
    for answer in answers {
        assert!(in_time(answer).await.unwrap().is_err(), "the broker is told nothing");
    }
    assert_eq!(counts(&setup.inbox).await.messages, 0);
}
