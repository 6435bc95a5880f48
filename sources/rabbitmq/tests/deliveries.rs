//! Deliveries of a real broker: stored, then acknowledged; settled once, with their channel.
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

mod support;

use std::time::Duration;

use lapin::types::AMQPValue;
use oncebox::source::Ack;
use oncebox::{ErrorKind, Memory};
use oncebox_rabbitmq::{ConnectionState, Field, Queue, RabbitMq};
use oncebox_servers::RabbitMqServer as Broker;
use oncebox_testkit::{FaultyStore, StoreFault, StoreVerb, TestClock};
use support::proxy::BrokerProxy;
use support::{Effects, QueueClient, in_time, inbox, next, properties, table, text, until};

// FAULTS A2, A9
#[tokio::test]
async fn messages_of_both_kinds_of_queues_are_stored_and_then_gone_from_the_broker() {
    for quorum in [true, false] {
        let client = QueueClient::new("stored").await;
        let queue = if quorum { client.quorum() } else { client.classic() };
        let source = client.source(queue).build().unwrap();
        source.check().await.unwrap();
        for number in 0..300 {
            client.publish(&number.to_string(), "t", "x").await;
        }
        // The publisher missed its first confirm.
        client.publish("7", "t", "x").await;
        let effects = Effects::default();
        let running = inbox(FaultyStore::new(Memory::new()), &effects).start();
        running.receive(source).unwrap();
        effects.wait_for(300).await;
        until("the queue is empty", || async { client.total().await == 0 }).await;
        in_time(running.shutdown()).await;
        effects.assert_once(0..300);
        client.assert_left(0, 0).await;
    }
}

// FAULTS A9
#[tokio::test]
async fn two_consumers_share_a_queue_and_an_inbox() {
    let client = QueueClient::new("two").await;
    let (effects, store) = (Effects::default(), FaultyStore::new(Memory::new()));
    let inboxes = [(), ()].map(|()| inbox(store.clone(), &effects).start());
    for running in &inboxes {
        running.receive(client.source(client.quorum()).prefetch(10).build().unwrap()).unwrap();
    }
    until("the queue is there", || async { client.exists(&client.queue).await }).await;
    for number in 0..200 {
        client.publish(&number.to_string(), "t", "x").await;
        client.publish(&number.to_string(), "t", "x").await;
    }
    effects.wait_for(200).await;
    until("the queue is empty", || async { client.total().await == 0 }).await;
    for running in inboxes {
        in_time(running.shutdown()).await;
    }
    effects.assert_once(0..200);
    client.assert_left(0, 0).await;
}

// FAULTS A1, A4: only deliveries known to be stored are acknowledged.
#[tokio::test]
async fn what_is_not_stored_stays_with_the_broker() {
    for fault in [StoreFault::Hang, StoreFault::ErrAfter, StoreFault::ErrBefore(ErrorKind::Unavailable)] {
        let client = QueueClient::new("unstored").await;
        let source = client.source(client.quorum()).build().unwrap();
        source.check().await.unwrap();
        client.publish("1", "t", "x").await;
        let (effects, store) = (Effects::default(), FaultyStore::new(Memory::new()));
        store.faults().always(StoreVerb::Accept, fault);
        let running = inbox(store.clone(), &effects).start();
        running.receive(source).unwrap();
        until("the store was asked", || async { store.faults().calls(StoreVerb::Accept) > 0 }).await;
        drop(running);
        client.assert_left(1, 0).await;
    }
}

// FAULTS F2, A3: the first delivery is settled when its channel is long gone.
#[tokio::test]
async fn an_acknowledgement_for_a_lost_channel_reaches_no_other() {
    let client = QueueClient::new("stale").await;
    let proxy = BrokerProxy::start(Broker::shared().port()).await;
    let mut source = client.through(&proxy, client.quorum()).build().unwrap();
    source.check().await.unwrap();
    for id in ["1", "2", "3"] {
        client.publish(id, "t", "x").await;
    }
    let (first, second) = (next(&mut source).await, next(&mut source).await);
    let last = next(&mut source).await;
    proxy.cut();
    // On the new channel they have the same numbers, in another order.
    let mut again = vec![next(&mut source).await, next(&mut source).await, next(&mut source).await];
    again.sort_by(|a, b| a.message().id().cmp(b.message().id()));
    assert_eq!(first.message().id(), b"1");
    assert_eq!(again[0].message().id(), b"1");
    let error = first.settle(Ack::Done).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    second.settle(Ack::Reject { reason: "too late".into() }).await.unwrap_err();
    drop(last);
    let third = again.pop().unwrap();
    third.settle(Ack::Done).await.unwrap();
    assert_eq!(proxy.made(), 3, "the check and two sessions: nothing broke the second one");
    drop(again);
    drop(source);
    client.assert_left(2, 0).await;
}

// A dropped delivery is requeued, also while the session continues.
#[tokio::test]
async fn a_delivery_that_is_dropped_comes_again() {
    let client = QueueClient::new("dropped").await;
    let mut source = client.source(client.quorum()).build().unwrap();
    source.check().await.unwrap();
    client.publish("1", "t", "x").await;
    let first = next(&mut source).await;
    assert_eq!(text(first.message().headers(), "x-delivery-count"), None);
    drop(first);
    let second = next(&mut source).await;
    assert_eq!(text(second.message().headers(), "x-delivery-count").as_deref(), Some("1"), "and is counted");
    second.settle(Ack::Done).await.unwrap();
    drop(source);
    client.assert_left(0, 0).await;
}

// FAULTS A15, F1: five minutes without a store on the inbox's clock, while the connection is cut again and again. A
// quorum queue with a limit of 20 would dead-letter messages that returned as often.
#[tokio::test]
async fn an_outage_of_the_store_burns_no_deliveries() {
    let client = QueueClient::new("outage").await;
    let proxy = BrokerProxy::start(Broker::shared().port()).await;
    let source = client.through(&proxy, client.quorum());
    let short = Duration::from_millis(1);
    let source = source.backoff(short, 5 * short).reconnect_delay(short).build().unwrap();
    source.check().await.unwrap();
    for number in 0..50 {
        client.publish(&number.to_string(), "t", "x").await;
    }
    let (effects, clock) = (Effects::default(), TestClock::new());
    let store = FaultyStore::new(Memory::with_clock(clock.shared()));
    for verb in [StoreVerb::Accept, StoreVerb::Orphans, StoreVerb::Claim] {
        store.faults().always(verb, StoreFault::ErrBefore(ErrorKind::Unavailable));
    }
    let inbox = support::builder(store.clone(), &effects).clock(clock.shared()).build().unwrap();
    let running = inbox.start();
    running.receive(source).unwrap();
    // The source consumes nothing before the store has responded.
    until("the store was asked", || async { store.faults().calls(StoreVerb::Orphans) > 3 || step(&clock) })
        .await;
    assert_eq!(proxy.made(), 1, "the check");

    store.faults().clear();
    store.faults().always(StoreVerb::Accept, StoreFault::ErrBefore(ErrorKind::Unavailable));
    until("a delivery is in hand", || async { store.faults().calls(StoreVerb::Accept) > 0 || step(&clock) })
        .await;
    for verb in [StoreVerb::Orphans, StoreVerb::Claim] {
        store.faults().always(verb, StoreFault::ErrBefore(ErrorKind::Unavailable));
    }
    let before = store.faults().calls(StoreVerb::Accept);
    for _ in 0..25 {
        let made = proxy.made();
        proxy.cut();
        // A source that consumes again would do so within milliseconds.
        let _ = tokio::time::timeout(Duration::from_millis(100), proxy.wait_for(made + 1)).await;
        for _ in 0..12 {
            step(&clock);
            tokio::task::yield_now().await;
        }
    }
    assert!(store.faults().calls(StoreVerb::Accept) > before, "what is in hand was offered meanwhile");
    assert!(proxy.made() <= 3, "{} connections: it does not consume while the store is away", proxy.made());
    assert_eq!((effects.counts().len(), client.ready(&client.dead).await), (0, 0));

    store.faults().clear();
    until("everything is done", || async { effects.counts().len() == 50 || step(&clock) }).await;
    until("the queue is empty", || async { client.total().await == 0 || step(&clock) }).await;
    drop(running);
    effects.assert_once(0..50);
    client.assert_left(0, 0).await;
    for message in effects.messages() {
        let count = text(message.headers(), "x-delivery-count").map_or(0, |count| count.parse().unwrap());
        assert!(count <= 2, "delivered {count} times before");
    }
}

/// Advances the clock by a second; never completes the condition.
fn step(clock: &TestClock) -> bool {
    clock.advance(Duration::from_secs(1));
    false
}

// FAULTS F9: a missing, deleted or mismatched queue is reported, and consumed once it is right.
#[tokio::test]
async fn what_is_wrong_with_the_queue_is_said_and_it_goes_on() {
    let client = QueueClient::new("missing").await;
    let existing = || Queue::existing(&*client.queue).dead_letter_exchange("amq.fanout");
    let mut source = client.source(existing()).build().unwrap();
    let error = source.check().await.unwrap_err();
    assert!(error.to_string().contains("NOT_FOUND"), "{error}");

    let monitor = source.monitor();
    assert_eq!(monitor.connection(), ConnectionState::Idle);
    let says = |words: &'static str| {
        let monitor = monitor.clone();
        async move {
            let said = |state: &ConnectionState| matches!(state, ConnectionState::Away { error } if error.contains(words));
            in_time(monitor.wait_for(said)).await;
        }
    };
    tokio::select! {
        delivery = support::receive(&mut source) => panic!("{delivery:?}"),
        () = says("no queue") => {}
    }
    client.source(client.quorum()).build().unwrap().check().await.unwrap();
    client.publish("1", "t", "x").await;
    let delivery = next(&mut source).await;
    assert_eq!(monitor.connection(), ConnectionState::Connected);
    client.delete_queue().await;
    tokio::select! {
        delivery = support::receive(&mut source) => panic!("{delivery:?}"),
        () = says("cancelled the consumer") => {}
    }
    drop(delivery);

    // The same name, but another queue.
    let classic = Queue::classic(&*client.queue).dead_letter_exchange("amq.fanout");
    client.source(classic).build().unwrap().check().await.unwrap();
    let other = client.source(client.quorum()).build().unwrap();
    let error = other.check().await.unwrap_err().to_string();
    assert!(error.contains("PRECONDITION_FAILED") && error.contains("inequivalent arg"), "{error}");
    let lost = Queue::existing(&*client.queue).dead_letter_exchange("nowhere");
    let error = client.source(lost).build().unwrap().check().await.unwrap_err().to_string();
    assert!(error.contains("where rejected messages go") && error.contains("nowhere"), "{error}");
    client.publish("2", "t", "x").await;
    next(&mut source).await.settle(Ack::Done).await.unwrap();
}

#[tokio::test]
async fn a_wrong_password_is_said_without_the_password() {
    let client = QueueClient::new("password").await;
    let url = client.url.replace("guest:guest", "guest:wrong-secret");
    let source = RabbitMq::builder(&url).queue(client.quorum()).build().unwrap();
    let error = source.check().await.unwrap_err();
    let text = format!("{error} {error:?} {source:?}");
    assert!(text.contains("ACCESS_REFUSED") && !text.contains("wrong-secret"), "{text}");
}

// Fields of a message, as the producer set them.
#[tokio::test]
async fn a_message_is_read_as_it_was_meant() {
    let client = QueueClient::new("read").await;
    let builder = client.source(client.quorum().bind("amq.topic", format!("{}.#", client.queue)));
    let mut source = builder
        .id(Field::header("Order-Id"))
        .message_type(Field::RoutingKey)
        .producer(Field::AppId)
        .ordering_key(Field::header("customer"))
        .tenant(Field::UserId)
        .build()
        .unwrap();
    source.check().await.unwrap();
    let mut headers =
        table(&[("order-id", "o-1"), ("customer", "c-1"), ("user-id", "forged"), ("traceparent", "00-a")]);
    headers.insert("number".into(), AMQPValue::LongLongInt(-7));
    headers.insert("table".into(), AMQPValue::FieldTable(table(&[("a", "b\"")])));
    let properties = properties("ignored", "ignored")
        .with_headers(headers)
        .with_app_id("shop".into())
        .with_user_id("guest".into())
        .with_correlation_id("corr".into())
        .with_timestamp(1_700_000_000);
    let key = format!("{}.placed", client.queue);
    client.publish_to("amq.topic", &key, properties, &[0, 159, 146, 150]).await;
    let delivery = next(&mut source).await;
    let message = delivery.message();
    assert_eq!((message.id(), message.message_type(), message.source()), (&b"o-1"[..], &*key, "shop"));
    assert_eq!((message.tenant(), message.ordering_key()), (Some("guest"), Some(&b"c-1"[..])));
    assert_eq!(message.payload()[..], [0, 159, 146, 150]);
    assert_eq!(message.time().unwrap().as_millis(), 1_700_000_000_000);
    let header = |name: &str| text(message.headers(), name);
    assert_eq!(header("user-id").as_deref(), Some("guest"), "not what a header of that name says");
    assert_eq!(header("number").as_deref(), Some("-7"));
    assert_eq!(header("table").as_deref(), Some(r#"{"a":"b\""}"#));
    for (name, value) in [("traceparent", "00-a"), ("correlation-id", "corr"), ("message-id", "ignored")] {
        assert_eq!(header(name).as_deref(), Some(value), "{name}");
    }
    delivery.settle(Ack::Done).await.unwrap();
}

// FAULTS A18: the source bounds unsettled bytes; one delivery is always allowed, however large.
#[tokio::test]
async fn no_more_bytes_are_handed_out_than_allowed() {
    let client = QueueClient::new("bytes").await;
    let mut source = client.source(client.quorum()).prefetch_bytes(1_000).build().unwrap();
    source.check().await.unwrap();
    for id in ["1", "2", "3"] {
        client.publish(id, "t", &"x".repeat(600)).await;
    }
    client.publish("4", "t", &"x".repeat(5_000)).await;
    let (first, second) = (next(&mut source).await, next(&mut source).await);
    let patience = Duration::from_millis(300);
    let third = tokio::time::timeout(patience, support::receive(&mut source)).await;
    assert!(third.is_err(), "1,200 bytes are in hand");
    first.settle(Ack::Done).await.unwrap();
    let third = next(&mut source).await;
    for delivery in [second, third] {
        delivery.settle(Ack::Done).await.unwrap();
    }
    next(&mut source).await.settle(Ack::Done).await.unwrap();
    drop(source);
    client.assert_left(0, 0).await;
}

#[tokio::test]
async fn a_connection_with_tls_needs_the_right_authority() {
    let broker = tokio::task::spawn_blocking(Broker::shared).await.unwrap();
    let client = QueueClient::new("tls").await;
    let (url, ca) = (broker.tls_url().unwrap(), std::fs::read_to_string(broker.ca_file().unwrap()).unwrap());
    let builder = RabbitMq::builder(&url).queue(client.quorum());
    let mut source = builder.clone().ca_certificates(ca).build().unwrap();
    source.check().await.unwrap();
    client.publish("1", "t", "x").await;
    next(&mut source).await.settle(Ack::Done).await.unwrap();
    let error = builder.build().unwrap().check().await.unwrap_err().to_string();
    assert!(error.contains("cannot connect") && error.contains("ertificate"), "{error}");
}
