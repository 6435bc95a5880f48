//! Each message is accepted once.

use super::stage::DURABLE;
use super::{SourceFixture, Transport};

pub async fn a_message_is_stored_and_then_acknowledged<T: Transport>(world: &SourceFixture<T>) {
    let instance = world.start().await;
    world.send("m", DURABLE, "payload").await;
    world.settled(1, 0).await;
    // FAULTS A1: an acknowledged message is stored.
    assert_eq!(world.counts().await.messages, 1);
    world.until(async |world: &SourceFixture<T>| world.runs("payload") == 1).await;
    world.transport.stop(instance).await;
}

/// With many transports, a second settlement would end the connection, or settle another delivery.
pub async fn each_of_many_is_settled_once<T: Transport>(world: &SourceFixture<T>) {
    let instance = world.start().await;
    world.send_many(0..100).await;
    world.settled(100, 0).await;
    world.send_many(100..101).await;
    world.settled(101, 0).await;
    world.until(async |world: &SourceFixture<T>| world.each_ran_once(101)).await;
    world.transport.stop(instance).await;
}

// FAULTS A2, A13
pub async fn what_comes_twice_is_done_twice_and_runs_once<T: Transport>(world: &SourceFixture<T>) {
    let instance = world.start().await;
    for _ in 0..5 {
        world.send_many(0..10).await;
    }
    world.settled(50, 0).await;
    world.until(async |world: &SourceFixture<T>| world.each_ran_once(10)).await;
    assert_eq!(world.counts().await.messages, 10);
    world.transport.stop(instance).await;
}

// FAULTS A9
pub async fn two_instances_share_the_work<T: Transport>(world: &SourceFixture<T>) {
    let (one, other) = (world.start().await, world.start().await);
    world.send_many(0..50).await;
    world.send_many(0..50).await;
    world.settled(100, 0).await;
    world.until(async |world: &SourceFixture<T>| world.each_ran_once(50)).await;
    world.transport.stop(one).await;
    // The remaining instance takes over.
    world.send_many(50..60).await;
    world.settled(110, 0).await;
    world.until(async |world: &SourceFixture<T>| world.each_ran_once(60)).await;
    world.transport.stop(other).await;
}

// FAULTS G1
pub async fn payloads_are_any_bytes<T: Transport>(world: &SourceFixture<T>) {
    let instance = world.start().await;
    let payloads: [Vec<u8>; 5] =
        [(0..=255).collect(), vec![0], b"\xff\xfe\"{".to_vec(), vec![b'x'; 100_000], "\u{feff}{}".into()];
    for (number, payload) in payloads.iter().enumerate() {
        world.send(&format!("m{number}"), DURABLE, payload.clone()).await;
    }
    world.settled(payloads.len(), 0).await;
    world
        .until(async |world: &SourceFixture<T>| payloads.iter().all(|payload| world.runs(payload) == 1))
        .await;
    world.transport.stop(instance).await;
}

pub async fn what_was_sent_before_the_start_is_not_lost<T: Transport>(world: &SourceFixture<T>) {
    world.send_many(0..3).await;
    let books = world.books().await;
    assert_eq!((books.done, books.rejected, books.waiting), (0, 0, 3), "no instance ran to settle it");
    let instance = world.start().await;
    world.settled(3, 0).await;
    world.until(async |world: &SourceFixture<T>| world.each_ran_once(3)).await;
    world.transport.stop(instance).await;
}
