//! Messages that cannot be accepted are neither lost without a trace nor redelivered for ever.

use super::stage::DURABLE;
use super::{SourceFixture, Transport};

// FAULTS A11
pub async fn a_message_without_an_id_is_rejected<T: Transport>(world: &SourceFixture<T>) {
    let instance = world.start().await;
    world.send("", DURABLE, "nameless").await;
    world.settled(0, 1).await;
    assert_eq!(world.counts().await.messages, 0, "no id is made up for it");
    world.send_many(0..1).await;
    world.settled(1, 1).await;
    world.until(async |world: &SourceFixture<T>| world.each_ran_once(1)).await;
    world.transport.stop(instance).await;
}

// FAULTS A10: the store quarantines it, so the transport may acknowledge or reject it.
pub async fn a_conflict_is_quarantined_and_comes_no_more<T: Transport>(world: &SourceFixture<T>) {
    let instance = world.start().await;
    world.send("m", DURABLE, "one").await;
    world.settled(1, 0).await;
    world.send("m", DURABLE, "other").await;
    world
        .until(async |world: &SourceFixture<T>| {
            let books = world.books().await;
            books.waiting == 0 && books.done + books.rejected == 2
        })
        .await;
    assert_eq!(world.counts().await.conflicts, 1);
    world.until(async |world: &SourceFixture<T>| world.runs("one") == 1).await;
    assert_eq!(world.runs("other"), 0);
    world.transport.stop(instance).await;
}

// FAULTS A8
pub async fn a_type_without_a_handler_is_kept<T: Transport>(world: &SourceFixture<T>) {
    let instance = world.start().await;
    world.send("m", "unhandled", "x").await;
    world.settled(1, 0).await;
    assert_eq!(world.counts().await.unrouted, 1);
    world.transport.stop(instance).await;
}
