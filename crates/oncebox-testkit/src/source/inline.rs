//! Messages that are handled before they are acknowledged.

use super::stage::{BAD, FLAKY, INLINE, SLOW};
use super::{SourceFixture, Transport};
use crate::{StoreFault, StoreVerb};

pub async fn it_is_acknowledged_when_its_handler_is_done<T: Transport>(world: &SourceFixture<T>) {
    let instance = world.start().await;
    world.send("m", INLINE, SLOW).await;
    world.entered(1).await;
    let books = world.books().await;
    assert_eq!((books.done, books.waiting), (0, 1), "its handler is not done");
    world.open_gate();
    world.settled(1, 0).await;
    assert_eq!(world.runs(SLOW), 1);
    world.transport.stop(instance).await;
}

/// Busy is not a duplicate: the other run may still fail.
pub async fn a_busy_message_is_not_acknowledged<T: Transport>(world: &SourceFixture<T>) {
    let (one, other) = (world.start().await, world.start().await);
    world.send("m", INLINE, SLOW).await;
    world.entered(1).await;
    world.send("m", INLINE, SLOW).await;
    world.until(async |world: &SourceFixture<T>| world.faults().calls(StoreVerb::Mark) >= 2).await;
    let books = world.books().await;
    assert_eq!((books.done, books.rejected, books.waiting), (0, 0, 2), "neither is done");
    world.open_gate();
    world.settled(2, 0).await;
    assert_eq!(world.runs(SLOW), 1);
    world.transport.stop(one).await;
    world.transport.stop(other).await;
}

pub async fn what_failed_comes_again<T: Transport>(world: &SourceFixture<T>) {
    let instance = world.start().await;
    world.send("m", INLINE, FLAKY).await;
    world.settled(1, 0).await;
    assert_eq!(world.runs(FLAKY), 2);
    world.transport.stop(instance).await;
}

pub async fn what_its_handler_refuses_is_rejected<T: Transport>(world: &SourceFixture<T>) {
    let instance = world.start().await;
    world.send("m", INLINE, BAD).await;
    world.settled(0, 1).await;
    assert_eq!(world.runs(BAD), 1);
    world.transport.stop(instance).await;
}

// FAULTS A10: like a message that conflicts with a stored one.
pub async fn another_message_under_its_key_is_quarantined_and_comes_no_more<T: Transport>(
    world: &SourceFixture<T>,
) {
    let instance = world.start().await;
    world.send("m", INLINE, "one").await;
    world.settled(1, 0).await;
    world.send("m", INLINE, "other").await;
    world
        .until(async |world: &SourceFixture<T>| {
            let books = world.books().await;
            books.waiting == 0 && books.done + books.rejected == 2
        })
        .await;
    assert_eq!((world.counts().await.conflicts, world.runs("one"), world.runs("other")), (1, 1, 0));
    world.transport.stop(instance).await;
}

// FAULTS A4
pub async fn an_unknown_commit_of_its_handler_is_not_acknowledged<T: Transport>(world: &SourceFixture<T>) {
    let instance = world.start().await;
    world.faults().script(StoreVerb::Commit, [Some(StoreFault::ErrAfter)]);
    world.send("m", INLINE, "once").await;
    // Its mark shows that it is done, so it does not run again.
    world.settled(1, 0).await;
    assert_eq!(world.runs("once"), 1);
    assert!(world.faults().calls(StoreVerb::Mark) >= 2, "it was asked for again before it was acknowledged");
    world.transport.stop(instance).await;
}
