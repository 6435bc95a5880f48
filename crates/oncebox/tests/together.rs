//! Deliveries that have come together: stored in one call, and each settled by itself.

mod support;

use oncebox::source::{Ack, ChannelSender, channel};
use oncebox::{Config, ErrorKind, Message, Result};
use oncebox_testkit::{Fault, Verb};
use support::{SECOND, World, counts, in_time, message, quiet};
use tokio::task::JoinHandle;

const AWAY: Fault = Fault::ErrBefore(ErrorKind::Unavailable);

type Deliveries = Vec<JoinHandle<Result<Ack>>>;

/// Delivers without waiting for answers; all of it has come when this returns.
async fn deliver(sender: &ChannelSender, messages: impl IntoIterator<Item = Message>) -> Deliveries {
    let deliver = |message| {
        let sender = sender.clone();
        tokio::spawn(async move { sender.deliver(message).await })
    };
    let deliveries = messages.into_iter().map(deliver).collect();
    quiet().await;
    deliveries
}

fn messages(ids: std::ops::Range<usize>) -> impl Iterator<Item = Message> {
    ids.map(|id| message(&id.to_string(), "ok"))
}

async fn acks(deliveries: Deliveries) -> Vec<Ack> {
    let mut acks = Vec::new();
    for delivery in deliveries {
        acks.push(in_time(delivery).await.unwrap().unwrap());
    }
    acks
}

/// An inbox that receives, and a sender whose first `ids` are in two batches that the store does not answer.
async fn busy(
    prefetch: usize,
    ids: std::ops::Range<usize>,
) -> (World, oncebox::Running<support::Faulty>, ChannelSender, Deliveries) {
    let world = World::new(|inbox, stage| {
        inbox.config(Config { prefetch, ..Config::default() }).on("t", stage.handler("h"))
    });
    let running = world.inbox.start();
    let (sender, source) = channel("source", 100);
    running.receive(source).unwrap();
    world.store().faults().script(Verb::Accept, [Some(Fault::Hang), Some(Fault::Hang)]);
    let mut deliveries = Vec::new();
    for (hanging, message) in messages(ids).enumerate() {
        deliveries.extend(deliver(&sender, [message]).await);
        in_time(world.store().faults().wait_for_hanging((hanging + 1).min(2))).await;
    }
    (world, running, sender, deliveries)
}

#[tokio::test]
async fn what_comes_while_two_batches_are_stored_shares_the_next_one() {
    let (world, running, sender, mut deliveries) = busy(100, 0..2).await;
    deliveries.extend(deliver(&sender, messages(2..40)).await);
    assert_eq!(world.store().faults().calls(Verb::Accept), 2, "nothing is asked for beside two batches");
    world.store().faults().release();
    assert_eq!(acks(deliveries).await, vec![Ack::Done; 40]);
    assert_eq!(world.store().faults().calls(Verb::Accept), 3, "the others were stored together");
    in_time(running.idle()).await;
    assert_eq!(world.stage.log().len(), 40);
}

#[tokio::test]
async fn no_more_are_taken_together_than_may_be_in_hand() {
    let (world, _running, sender, mut deliveries) = busy(10, 0..2).await;
    deliveries.extend(deliver(&sender, messages(2..40)).await);
    world.store().faults().script(Verb::Accept, [None, Some(Fault::Hang)]);
    world.store().faults().release();
    quiet().await;
    in_time(world.store().faults().wait_for_hanging(1)).await;
    let stored = counts(&world.inbox).await.messages;
    assert!((10..=12).contains(&stored), "the two from before and at most ten others: {stored}");
    world.store().faults().release();
    assert_eq!(acks(deliveries).await, vec![Ack::Done; 40]);
}

// FAULTS A4, A15: of several, too.
#[tokio::test]
async fn those_of_a_batch_whose_commit_is_unknown_are_asked_for_again_before_they_are_acknowledged() {
    for fault in [Fault::ErrAfter, AWAY, Fault::ErrBefore(ErrorKind::Corrupt)] {
        let (world, running, sender, deliveries) = busy(100, 0..2).await;
        let together = deliver(&sender, messages(2..10)).await;
        world.store().faults().script(Verb::Accept, [Some(fault)]);
        world.store().faults().release();
        assert_eq!(acks(deliveries).await, vec![Ack::Done; 2]);
        quiet().await;
        assert!(together.iter().all(|delivery| !delivery.is_finished()), "{fault:?}");
        let stored = counts(&world.inbox).await.messages;
        assert_eq!(stored, if matches!(fault, Fault::ErrAfter) { 10 } else { 2 }, "{fault:?}");
        world.pass(SECOND).await;
        assert_eq!(acks(together).await, vec![Ack::Done; 8], "{fault:?}");
        in_time(running.idle()).await;
        assert_eq!(world.stage.log().len(), 10, "{fault:?}");
    }
}

// FAULTS A11: what is wrong with one of them is not said of the others.
#[tokio::test]
async fn one_that_can_never_be_taken_takes_no_others_with_it() {
    let (world, running, sender, deliveries) = busy(100, 0..2).await;
    let bad = [message("3", "ok"), message("", "ok"), message("4", "ok")];
    let together = deliver(&sender, bad).await;
    // A store that finds something only when it looks closer refuses the whole call.
    let unfit = Fault::ErrBefore(ErrorKind::InvalidMessage);
    world.store().faults().script(Verb::Accept, [Some(unfit), Some(unfit)]);
    world.store().faults().release();
    assert_eq!(acks(deliveries).await, vec![Ack::Done; 2]);
    let acks = acks(together).await;
    assert!(matches!(&acks[1], Ack::Reject { reason } if reason.contains("has no id")), "{acks:?}");
    // Asked for by itself, one of the two was refused, and the other was not.
    let rejected = acks.iter().filter(|ack| matches!(ack, Ack::Reject { .. })).count();
    assert_eq!((rejected, acks.len()), (2, 3), "{acks:?}");
    assert_eq!(counts(&world.inbox).await.messages, 3);
    in_time(running.idle()).await;
}

#[tokio::test]
async fn one_that_has_to_wait_keeps_neither_room_nor_turns_from_others() {
    let (world, _running, sender, deliveries) = busy(4, 0..2).await;
    let together = deliver(&sender, messages(2..6)).await;
    let wrong = Some(Fault::ErrBefore(ErrorKind::Corrupt));
    // The batch; and then, one by one, three of the four that were in it.
    world.store().faults().script(Verb::Accept, [wrong, wrong, wrong, wrong]);
    world.store().faults().release();
    assert_eq!(acks(deliveries).await, vec![Ack::Done; 2]);
    quiet().await;
    world.store().faults().always(Verb::Accept, Fault::ErrBefore(ErrorKind::Corrupt));
    world.pass(SECOND).await;
    let waiting = together.iter().filter(|delivery| !delivery.is_finished()).count();
    assert!(waiting > 0, "some of them wait");
    world.store().faults().clear();
    let others = deliver(&sender, messages(6..9)).await;
    world.pass(60 * SECOND).await;
    assert_eq!(acks(others).await, vec![Ack::Done; 3]);
    assert_eq!(acks(together).await, vec![Ack::Done; 4]);
}

#[tokio::test]
async fn what_has_come_twice_is_stored_once() {
    let (world, running, sender, mut deliveries) = busy(100, 0..2).await;
    deliveries.extend(deliver(&sender, messages(2..5).chain(messages(2..5)).chain(messages(0..1))).await);
    world.store().faults().release();
    assert_eq!(acks(deliveries).await, vec![Ack::Done; 9]);
    in_time(running.idle()).await;
    assert_eq!((counts(&world.inbox).await.messages, world.stage.log().len()), (5, 5));
}

// What has more to be done than to be stored goes its own way, from the same batch.
#[tokio::test]
async fn inline_handlers_and_lines_are_not_delayed_by_those_that_are_only_stored() {
    let world = World::new(|inbox, stage| {
        inbox.on("t", stage.handler("h")).on("inline", stage.handler("now").inline())
    });
    let running = world.inbox.start();
    let (sender, source) = channel("source", 100);
    running.receive(source).unwrap();
    quiet().await;
    let ordered = |id: &str| message(id, "ok").with_ordering_key("a");
    let inline = Message::new("3", "inline", "wait");
    let mixed = [inline, message("1", "ok"), ordered("2"), ordered("4"), message("5", "ok")];
    let mut deliveries = deliver(&sender, mixed).await;
    let inline = deliveries.remove(0);
    assert_eq!(acks(deliveries).await, vec![Ack::Done; 4]);
    assert!(!inline.is_finished(), "its handler waits");
    world.stage.go(1);
    assert_eq!(acks(vec![inline]).await, [Ack::Done]);
    in_time(running.idle()).await;
    let log = world.stage.log();
    let place = |id: &str| log.iter().position(|line| line.starts_with(&format!("h {id} "))).unwrap();
    assert!(place("2") < place("4"), "{log:?}");
}
