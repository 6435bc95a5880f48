//! Outages of the store and ends of the process: no message is lost, and none is acknowledged before it is safe.

use oncebox::ErrorKind;

use super::{SourceFixture, Transport};
use crate::{StoreFault, StoreVerb};

const AWAY: StoreFault = StoreFault::ErrBefore(ErrorKind::Unavailable);

// FAULTS A15
pub async fn while_the_store_is_away_nothing_is_acknowledged<T: Transport>(world: &SourceFixture<T>) {
    let instance = world.start().await;
    world.faults().always(StoreVerb::Accept, AWAY);
    world.send_many(0..5).await;
    // Each was retried, or its sender was asked to retry.
    world.until(async |world: &SourceFixture<T>| world.faults().calls(StoreVerb::Accept) >= 10).await;
    let books = world.books().await;
    assert_eq!((books.done, books.rejected, books.waiting), (0, 0, 5), "nothing is settled");
    if world.transport.holds() {
        // FAULTS F1: a transport that counts redeliveries dead-letters a message after so many.
        assert_eq!(books.again, 0, "deliveries are held, not handed back in a loop");
    }
    world.faults().clear();
    world.settled(5, 0).await;
    world.until(async |world: &SourceFixture<T>| world.each_ran_once(5)).await;
    world.transport.stop(instance).await;
}

// FAULTS A4
pub async fn an_unknown_commit_is_not_acknowledged<T: Transport>(world: &SourceFixture<T>) {
    let instance = world.start().await;
    // It is stored, but the response is lost. Then the store is unavailable, so no caller can find out.
    world.faults().script(
        StoreVerb::Accept,
        [Some(StoreFault::ErrAfter), Some(AWAY), Some(AWAY), Some(StoreFault::Hang)],
    );
    world.send_many(0..1).await;
    // A transport that cannot hold it has to redeliver it.
    world.until(async |world: &SourceFixture<T>| world.faults().calls(StoreVerb::Accept) >= 4).await;
    assert_eq!(world.counts().await.messages, 1, "it was stored the first time");
    let books = world.books().await;
    assert_eq!((books.done, books.rejected, books.waiting), (0, 0, 1), "an unknown commit is no commit");
    world.faults().clear();
    world.settled(1, 0).await;
    world.until(async |world: &SourceFixture<T>| world.each_ran_once(1)).await;
    world.transport.stop(instance).await;
}

// FAULTS A1
pub async fn what_a_crash_left_unsettled_comes_again<T: Transport>(world: &SourceFixture<T>) {
    let instance = world.start().await;
    world.faults().always(StoreVerb::Accept, StoreFault::Hang);
    world.send_many(0..3).await;
    world.faults().wait_for_hanging(1).await;
    world.transport.crash(instance).await;
    world.faults().clear();
    let books = world.books().await;
    assert_eq!((books.done, books.rejected, books.waiting), (0, 0, 3), "nothing was settled");
    let instance = world.start().await;
    world.settled(3, 0).await;
    world.until(async |world: &SourceFixture<T>| world.each_ran_once(3)).await;
    world.transport.stop(instance).await;
}

pub async fn a_shutdown_settles_what_is_in_hand_or_leaves_it<T: Transport>(world: &SourceFixture<T>) {
    let instance = world.start().await;
    world.faults().always(StoreVerb::Accept, StoreFault::Hang);
    world.send_many(0..5).await;
    world.faults().wait_for_hanging(1).await;
    let release = async {
        // The shutdown comes first: it is polled before this.
        tokio::task::yield_now().await;
        world.faults().clear();
    };
    tokio::join!(world.transport.stop(instance), release);
    let books = world.books().await;
    assert_eq!((books.rejected, books.done + books.waiting), (0, 5), "nothing is refused or lost: {books:?}");
    // FAULTS A1: an acknowledged message is stored.
    assert!(world.counts().await.messages >= books.done as u64, "{books:?}");
    let instance = world.start().await;
    world.settled(5, 0).await;
    world.until(async |world: &SourceFixture<T>| world.each_ran_once(5)).await;
    world.transport.stop(instance).await;
}

/// The store stays unavailable, and the process has to end.
pub async fn a_shutdown_does_not_wait_for_the_store<T: Transport>(world: &SourceFixture<T>) {
    let instance = world.start().await;
    world.faults().always(StoreVerb::Accept, AWAY);
    world.send_many(0..3).await;
    world.until(async |world: &SourceFixture<T>| world.faults().calls(StoreVerb::Accept) >= 3).await;
    world.transport.stop(instance).await;
    let books = world.books().await;
    assert_eq!((books.done, books.rejected, books.waiting), (0, 0, 3), "nothing is settled");
    world.faults().clear();
    let instance = world.start().await;
    world.settled(3, 0).await;
    world.until(async |world: &SourceFixture<T>| world.each_ran_once(3)).await;
    world.transport.stop(instance).await;
}
