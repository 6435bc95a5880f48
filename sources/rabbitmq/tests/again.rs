//! Rejected messages are kept, and retried messages come again: without the broker counting, and without loss.
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lapin::types::{AMQPValue, FieldTable};
use oncebox::source::Ack;
use oncebox::{BoxError, Config, Context, Inbox, Memory, Message, Reject, RetryAfter, handler};
use oncebox_rabbitmq::{Field, Queue};
use oncebox_testkit::{FaultyStore, TestClock};
use support::{
    Effects, FaultyInbox, QueueClient, SECOND, in_time, inbox, next, properties, table, text, until,
};
use tokio::sync::Notify;

fn header(table: &FieldTable, name: &str) -> String {
    match table.inner().get(name) {
        Some(AMQPValue::LongString(text)) => String::from_utf8_lossy(text.as_bytes()).into_owned(),
        other => panic!("{name}: {other:?}"),
    }
}

/// Lets the broker route a copy to another key.
fn with_copies(mut headers: FieldTable) -> FieldTable {
    let keys = vec![AMQPValue::LongString("nowhere".into())];
    headers.insert("CC".into(), AMQPValue::FieldArray(keys.into()));
    headers
}

// FAULTS A11, F11
#[tokio::test]
async fn what_can_never_be_taken_goes_to_the_dead_letters_and_nothing_waits_behind_it() {
    for quorum in [true, false] {
        let client = QueueClient::new("rejected").await;
        let queue = if quorum { client.quorum() } else { client.classic() };
        let source = client.source(queue).cloud_events().build().unwrap();
        source.check().await.unwrap();
        client.publish("1", "t", "x").await;
        client.publish("", "t", "no id").await;
        client.publish("2", "", "no type").await;
        let broken = properties("3", "t").with_headers(table(&[("cloudEvents:specversion", "1.0")]));
        client.publish_as(&client.queue, broken, b"no event").await;
        client.publish("4", "t", "x").await;
        let effects = Effects::default();
        let running = inbox(FaultyStore::new(Memory::new()), &effects).start();
        running.receive(source).unwrap();
        effects.wait_for(2).await;
        let mut dead: Vec<Vec<u8>> =
            client.take(&client.dead, 3).await.into_iter().map(|(_, body)| body).collect();
        dead.sort();
        assert_eq!(dead, [b"no event".to_vec(), b"no id".to_vec(), b"no type".to_vec()]);
        in_time(running.shutdown()).await;
        effects.assert_once(["1", "4"]);
        client.assert_left(0, 0).await;
    }
}

#[tokio::test]
async fn rejected_messages_go_where_they_are_told_to_with_the_reason() {
    let client = QueueClient::new("rejected").await;
    let rejected = support::unique("rejected.kept");
    let declare = Queue::classic(&*rejected).dead_letter_exchange("amq.fanout");
    client.source(declare).build().unwrap().check().await.unwrap();
    let queue = Queue::classic(&*client.queue).bind("amq.direct", &*client.queue);
    let builder = client.source(queue).rejected_to("", &*rejected);
    let mut source = builder.build().unwrap();
    source.check().await.unwrap();
    // A time to live, another user and copies would act on the broker when the source publishes it again.
    let headers = with_copies(table(&[("kept", "yes")]));
    let properties = properties("1", "t").with_headers(headers).with_user_id("guest".into());
    client.publish_to("amq.direct", &client.queue, properties.with_expiration("60000".into()), b"body").await;
    next(&mut source).await.settle(Ack::Reject { reason: "it is bad".into() }).await.unwrap();
    let [(found, body)] = client.take(&rejected, 1).await.try_into().unwrap();
    assert_eq!(body, b"body");
    assert_eq!(found.message_id().as_ref().unwrap().as_str(), "1");
    assert_eq!((found.user_id(), found.expiration(), found.delivery_mode()), (&None, &None, &Some(2)));
    let headers = found.headers().as_ref().unwrap();
    assert_eq!(header(headers, "oncebox-reason"), "it is bad");
    assert_eq!(header(headers, "oncebox-routing-key"), client.queue);
    assert_eq!(
        (header(headers, "oncebox-exchange"), header(headers, "kept")),
        ("amq.direct".into(), "yes".into())
    );
    assert!(!headers.contains_key("CC"));
    drop(source);
    client.assert_left(0, 0).await;
}

// A message that cannot be dead-lettered stays unacknowledged: the broker would drop it.
#[tokio::test]
async fn a_rejected_message_that_cannot_be_dead_lettered_is_held() {
    let client = QueueClient::new("nowhere").await;
    let clock = TestClock::new();
    // No queue is bound to this exchange under that key.
    let builder = client.source(client.classic()).rejected_to("amq.direct", "unbound").clock(clock.shared());
    let mut source = builder.build().unwrap();
    source.check().await.unwrap();
    client.publish("1", "t", "x").await;
    let delivery = next(&mut source).await;
    delivery.settle(Ack::Reject { reason: "bad".into() }).await.unwrap();
    clock.advance(5 * SECOND);
    let again = next(&mut source).await;
    assert_eq!(text(again.message().headers(), "x-delivery-count"), None, "it was in hand all the time");
    drop(again);
    drop(source);
    client.assert_left(1, 0).await;
}

// The broker closes a channel that holds a delivery too long, and counts all unsettled ones.
#[tokio::test]
async fn a_busy_delivery_is_held_no_longer_than_it_may_be() {
    let client = QueueClient::new("busy").await;
    let clock = TestClock::new();
    let builder = client.source(client.classic()).max_hold(60 * SECOND).clock(clock.shared());
    let mut source = builder.build().unwrap();
    source.check().await.unwrap();
    client.publish("1", "t", "x").await;
    next(&mut source).await.settle(Ack::Busy { after: 86_400 * SECOND }).await.unwrap();
    clock.advance(60 * SECOND);
    drop(next(&mut source).await);
    drop(source);
    client.assert_left(1, 0).await;
}

// Ids are unique within a queue only, so two queues of one inbox have separate ids.
#[tokio::test]
async fn two_queues_with_producers_of_their_own_may_have_the_same_ids() {
    let (seen, mut see) = tokio::sync::mpsc::unbounded_channel();
    let keep = move |message: Message, _: &mut Context<Memory>| {
        let told = seen.send(message.source().to_owned());
        async move { told.map_err(BoxError::from) }
    };
    let running =
        Inbox::builder("test", Memory::new()).on("t", handler("keep", keep)).build().unwrap().start();
    for name in ["stock", "bills"] {
        let client = QueueClient::new(name).await;
        let source = client.source(client.classic()).producer(Field::fixed(name)).build().unwrap();
        source.check().await.unwrap();
        client.publish("1", "t", "x").await;
        running.receive(source).unwrap();
        assert_eq!(in_time(see.recv()).await.as_deref(), Some(name));
    }
    in_time(running.shutdown()).await;
}

// FAULTS J4: a stored message has no credentials, whatever transport it used.
#[tokio::test]
async fn credentials_in_headers_are_not_stored() {
    let client = QueueClient::new("private").await;
    let source = client.source(client.classic()).build().unwrap();
    source.check().await.unwrap();
    let headers = table(&[("Authorization", "Bearer canary"), ("cookie", "canary"), ("kept", "yes")]);
    client.publish_as(&client.queue, properties("1", "t").with_headers(headers), b"x").await;
    let (seen, mut see) = tokio::sync::mpsc::unbounded_channel();
    let keep = move |message: Message, _: &mut Context<Memory>| {
        let told = seen.send(message.headers().clone());
        async move { told.map_err(BoxError::from) }
    };
    let running =
        Inbox::builder("test", Memory::new()).on("t", handler("keep", keep)).build().unwrap().start();
    running.receive(source).unwrap();
    let headers = in_time(see.recv()).await.unwrap();
    assert_eq!(text(&headers, "kept").as_deref(), Some("yes"));
    assert!(
        headers.iter().all(|(_, value)| !String::from_utf8_lossy(value).contains("canary")),
        "{headers:?}"
    );
    in_time(running.shutdown()).await;
}

/// An inbox whose inline handler fails as often as the body says, and then keeps a list.
fn failing(store: FaultyInbox, effects: &Effects, runs: &Arc<AtomicU32>) -> Inbox<FaultyInbox> {
    let (effects, runs) = (effects.clone(), Arc::clone(runs));
    let fail = move |message: Message, _: &mut Context<FaultyInbox>| {
        let (effects, runs) = (effects.clone(), Arc::clone(&runs));
        async move {
            let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
            let failures: u32 = String::from_utf8_lossy(message.payload()).parse().unwrap_or(0);
            if run <= failures {
                return Err(BoxError::from("not yet"));
            }
            effects.add(&message);
            Ok(())
        }
    };
    Inbox::builder("test", store).on("t", handler("fail", fail).inline()).build().unwrap()
}

// The source holds failed inline deliveries, with growing waits, and the broker counts nothing.
#[tokio::test]
async fn a_delivery_that_failed_is_held_and_tried_again() {
    let client = QueueClient::new("failed").await;
    let clock = TestClock::new();
    // A counting broker would dead-letter it at the second delivery.
    let queue = client.quorum().delivery_limit(1);
    let source = client.source(queue).clock(clock.shared()).build().unwrap();
    source.check().await.unwrap();
    client.publish("1", "t", "6").await;
    let (effects, runs) = (Effects::default(), Arc::default());
    let running = failing(FaultyStore::new(Memory::new()), &effects, &runs).start();
    running.receive(source).unwrap();
    for run in 1..=7 {
        until("the handler ran", || async { runs.load(Ordering::SeqCst) >= run }).await;
        assert_eq!(runs.load(Ordering::SeqCst), run, "no sooner than its time");
        clock.wait_for_sleepers(usize::from(run < 7)).await;
        clock.advance(Duration::from_mins(5));
    }
    effects.wait_for(1).await;
    in_time(running.shutdown()).await;
    effects.assert_once(["1"]);
    assert_eq!(text(effects.messages()[0].headers(), "x-delivery-count"), None);
    client.assert_left(0, 0).await;
}

#[tokio::test]
async fn a_delivery_that_fails_for_good_is_rejected() {
    let client = QueueClient::new("for-good").await;
    let clock = TestClock::new();
    let source = client.source(client.quorum()).attempts(3).clock(clock.shared()).build().unwrap();
    source.check().await.unwrap();
    client.publish("1", "t", "1000").await;
    let (effects, runs) = (Effects::default(), Arc::new(AtomicU32::new(0)));
    let running = failing(FaultyStore::new(Memory::new()), &effects, &runs).start();
    running.receive(source).unwrap();
    for run in 1..3 {
        until("the handler ran", || async { runs.load(Ordering::SeqCst) >= run }).await;
        clock.wait_for_sleepers(1).await;
        clock.advance(Duration::from_mins(5));
    }
    assert_eq!(client.take(&client.dead, 1).await.len(), 1);
    in_time(running.shutdown()).await;
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    client.assert_left(0, 0).await;
}

// Too long a wait happens in a queue of the broker. The source acknowledges after the confirm.
#[tokio::test]
async fn a_long_wait_is_spent_in_the_retry_queue() {
    let client = QueueClient::new("retry").await;
    let retry = format!("{}.retry", client.queue);
    let queue = client.quorum().bind("amq.direct", &*client.queue);
    let builder = client.source(queue).max_hold(Duration::ZERO).retry_queue(&*retry);
    let mut source = builder.build().unwrap();
    source.check().await.unwrap();
    let headers = with_copies(table(&[("kept", "yes")]));
    client.publish_to("amq.direct", &client.queue, properties("1", "t").with_headers(headers), b"body").await;
    let first = next(&mut source).await;
    first.settle(Ack::Redeliver { after: Duration::ZERO }).await.unwrap();
    assert_eq!(client.ready(&client.queue).await, 0);
    let again = next(&mut source).await;
    let message = again.message();
    assert_eq!((message.id(), &message.payload()[..]), (&b"1"[..], &b"body"[..]));
    assert_eq!(text(message.headers(), "kept").as_deref(), Some("yes"));
    assert!(text(message.headers(), "x-death").unwrap().contains("expired"), "{message:?}");
    assert_eq!(text(message.headers(), "x-delivery-count"), None, "it is a new delivery");
    assert_eq!(text(message.headers(), "CC"), None, "no copies are made");
    again.settle(Ack::Done).await.unwrap();
    drop(source);
    client.assert_left(0, 0).await;
    assert_eq!(client.ready(&format!("{retry}.2s")).await, 0);
}

// DESIGN rule 1: busy is not acknowledged, not dead-lettered, and not counted by the broker.
#[tokio::test]
async fn a_delivery_that_is_busy_elsewhere_waits_and_is_not_counted() {
    let client = QueueClient::new("busy").await;
    let source = client.source(client.quorum().delivery_limit(1)).build().unwrap();
    source.check().await.unwrap();
    let (effects, go) = (Effects::default(), Arc::new(Notify::new()));
    let store = FaultyStore::new(Memory::new());
    let (kept, gate) = (effects.clone(), Arc::clone(&go));
    let wait = move |message: Message, _: &mut Context<FaultyInbox>| {
        let (effects, go) = (kept.clone(), Arc::clone(&gate));
        async move {
            go.notified().await;
            effects.add(&message);
            Ok::<(), BoxError>(())
        }
    };
    // Report it at once, so that the source waits, and not the inbox.
    let config = Config { busy_wait: Duration::ZERO, ..Config::default() };
    let inbox = Inbox::builder("test", store.clone()).config(config).on("t", handler("wait", wait).inline());
    let inbox = inbox.build().unwrap();
    let running = inbox.start();
    running.receive(source).unwrap();
    client.publish("twice", "t", "x").await;
    client.publish("twice", "t", "x").await;
    let marks = || async { store.faults().calls(oncebox_testkit::StoreVerb::Mark) };
    until("the second was told to wait, more than once", || async { marks().await >= 4 }).await;
    assert_eq!((client.ready(&client.queue).await, client.ready(&client.dead).await), (0, 0));
    go.notify_one();
    effects.wait_for(1).await;
    let so_far = marks().await;
    until("the second was looked at again", || async { marks().await > so_far }).await;
    in_time(running.shutdown()).await;
    effects.assert_once(["twice"]);
    client.assert_left(0, 0).await;
}

// An inline handler can reject, and choose its retry time.
#[tokio::test]
async fn an_inline_handler_says_what_becomes_of_a_delivery() {
    let client = QueueClient::new("words").await;
    let clock = TestClock::new();
    let source = client.source(client.quorum()).clock(clock.shared()).build().unwrap();
    source.check().await.unwrap();
    let runs = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&runs);
    let say = move |message: Message, _: &mut Context<FaultyInbox>| {
        let run = counter.fetch_add(1, Ordering::SeqCst);
        async move {
            match &message.payload()[..] {
                b"no" => Err(BoxError::from(Reject("never".into()))),
                _ if run < 2 => Err(BoxError::from(RetryAfter(9 * 60 * SECOND, "later".into()))),
                _ => Ok(()),
            }
        }
    };
    let store = FaultyStore::new(Memory::new());
    let inbox = Inbox::builder("test", store).on("t", handler("say", say).inline()).build().unwrap();
    let running = inbox.start();
    running.receive(source).unwrap();
    client.publish("1", "t", "no").await;
    assert_eq!(client.take(&client.dead, 1).await.len(), 1);
    client.publish("2", "t", "later").await;
    until("it ran", || async { runs.load(Ordering::SeqCst) == 2 }).await;
    clock.wait_for_sleepers(1).await;
    clock.advance(8 * 60 * SECOND);
    clock.wait_for_sleepers(1).await;
    assert_eq!(runs.load(Ordering::SeqCst), 2, "not before its time");
    clock.advance(2 * 60 * SECOND);
    until("it ran again", || async { runs.load(Ordering::SeqCst) == 3 }).await;
    in_time(running.shutdown()).await;
    client.assert_left(0, 0).await;
}
