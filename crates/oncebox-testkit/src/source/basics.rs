//! Each message is accepted once.

use super::fixture::DURABLE;
use super::{SourceFixture, Transport};

pub async fn a_message_is_stored_and_then_acknowledged<T: Transport>(fixture: &SourceFixture<T>) {
    let instance = fixture.start().await;
    fixture.send("m", DURABLE, "payload").await;
    fixture.settled(1, 0).await;
    // FAULTS A1: an acknowledged message is stored.
    assert_eq!(fixture.counts().await.messages, 1);
    fixture.until(async |fixture: &SourceFixture<T>| fixture.runs("payload") == 1).await;
    fixture.transport.stop(instance).await;
}

/// With many transports, a second settlement would end the connection, or settle another delivery.
pub async fn each_of_many_is_settled_once<T: Transport>(fixture: &SourceFixture<T>) {
    let instance = fixture.start().await;
    fixture.send_many(0..100).await;
    fixture.settled(100, 0).await;
    fixture.send_many(100..101).await;
    fixture.settled(101, 0).await;
    fixture.until(async |fixture: &SourceFixture<T>| fixture.each_ran_once(101)).await;
    fixture.transport.stop(instance).await;
}

// FAULTS A2, A13
pub async fn what_comes_twice_is_done_twice_and_runs_once<T: Transport>(fixture: &SourceFixture<T>) {
    let instance = fixture.start().await;
    for _ in 0..5 {
        fixture.send_many(0..10).await;
    }
    fixture.settled(50, 0).await;
    fixture.until(async |fixture: &SourceFixture<T>| fixture.each_ran_once(10)).await;
    assert_eq!(fixture.counts().await.messages, 10);
    fixture.transport.stop(instance).await;
}

// FAULTS A9
pub async fn two_instances_share_the_work<T: Transport>(fixture: &SourceFixture<T>) {
    let (one, other) = (fixture.start().await, fixture.start().await);
    fixture.send_many(0..50).await;
    fixture.send_many(0..50).await;
    fixture.settled(100, 0).await;
    fixture.until(async |fixture: &SourceFixture<T>| fixture.each_ran_once(50)).await;
    fixture.transport.stop(one).await;
    // The remaining instance takes over.
    fixture.send_many(50..60).await;
    fixture.settled(110, 0).await;
    fixture.until(async |fixture: &SourceFixture<T>| fixture.each_ran_once(60)).await;
    fixture.transport.stop(other).await;
}

// FAULTS G1
pub async fn payloads_are_any_bytes<T: Transport>(fixture: &SourceFixture<T>) {
    let instance = fixture.start().await;
    let payloads: [Vec<u8>; 5] =
        [(0..=255).collect(), vec![0], b"\xff\xfe\"{".to_vec(), vec![b'x'; 100_000], "\u{feff}{}".into()];
    for (number, payload) in payloads.iter().enumerate() {
        fixture.send(&format!("m{number}"), DURABLE, payload.clone()).await;
    }
    fixture.settled(payloads.len(), 0).await;
    fixture
        .until(async |fixture: &SourceFixture<T>| payloads.iter().all(|payload| fixture.runs(payload) == 1))
        .await;
    fixture.transport.stop(instance).await;
}

pub async fn what_was_sent_before_the_start_is_not_lost<T: Transport>(fixture: &SourceFixture<T>) {
    fixture.send_many(0..3).await;
    let ledger = fixture.ledger().await;
    assert_eq!((ledger.done, ledger.rejected, ledger.waiting), (0, 0, 3), "no instance ran to settle it");
    let instance = fixture.start().await;
    fixture.settled(3, 0).await;
    fixture.until(async |fixture: &SourceFixture<T>| fixture.each_ran_once(3)).await;
    fixture.transport.stop(instance).await;
}
