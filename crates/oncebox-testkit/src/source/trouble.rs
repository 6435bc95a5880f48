//! Outages of the store and ends of the process: no message is lost, and none is acknowledged before it is safe.

use oncebox::ErrorKind;

use super::{SourceFixture, Transport};
use crate::{StoreFault, StoreVerb};

const AWAY: StoreFault = StoreFault::ErrBefore(ErrorKind::Unavailable);

// FAULTS A15
pub async fn while_the_store_is_away_nothing_is_acknowledged<T: Transport>(fixture: &SourceFixture<T>) {
    let instance = fixture.start().await;
    fixture.faults().always(StoreVerb::Accept, AWAY);
    fixture.send_many(0..5).await;
    // Each was retried, or its sender was asked to retry.
    fixture.until(async |fixture: &SourceFixture<T>| fixture.faults().calls(StoreVerb::Accept) >= 10).await;
    let ledger = fixture.ledger().await;
    assert_eq!((ledger.done, ledger.rejected, ledger.waiting), (0, 0, 5), "nothing is settled");
    if fixture.transport.holds() {
        // FAULTS F1: a transport that counts redeliveries dead-letters a message after so many.
        assert_eq!(ledger.again, 0, "deliveries are held, not handed back in a loop");
    }
    fixture.faults().clear();
    fixture.settled(5, 0).await;
    fixture.until(async |fixture: &SourceFixture<T>| fixture.each_ran_once(5)).await;
    fixture.transport.stop(instance).await;
}

// FAULTS A4
pub async fn an_unknown_commit_is_not_acknowledged<T: Transport>(fixture: &SourceFixture<T>) {
    let instance = fixture.start().await;
    // It is stored, but the response is lost. Then the store is unavailable, so no caller can find out.
    fixture.faults().script(
        StoreVerb::Accept,
        [Some(StoreFault::ErrAfter), Some(AWAY), Some(AWAY), Some(StoreFault::Hang)],
    );
    fixture.send_many(0..1).await;
    // A transport that cannot hold it has to redeliver it.
    fixture.until(async |fixture: &SourceFixture<T>| fixture.faults().calls(StoreVerb::Accept) >= 4).await;
    assert_eq!(fixture.counts().await.messages, 1, "it was stored the first time");
    let ledger = fixture.ledger().await;
    assert_eq!((ledger.done, ledger.rejected, ledger.waiting), (0, 0, 1), "an unknown commit is no commit");
    fixture.faults().clear();
    fixture.settled(1, 0).await;
    fixture.until(async |fixture: &SourceFixture<T>| fixture.each_ran_once(1)).await;
    fixture.transport.stop(instance).await;
}

// FAULTS A1
pub async fn what_a_crash_left_unsettled_comes_again<T: Transport>(fixture: &SourceFixture<T>) {
    let instance = fixture.start().await;
    fixture.faults().always(StoreVerb::Accept, StoreFault::Hang);
    fixture.send_many(0..3).await;
    fixture.faults().wait_for_hanging(1).await;
    fixture.transport.crash(instance).await;
    fixture.faults().clear();
    let ledger = fixture.ledger().await;
    assert_eq!((ledger.done, ledger.rejected, ledger.waiting), (0, 0, 3), "nothing was settled");
    let instance = fixture.start().await;
    fixture.settled(3, 0).await;
    fixture.until(async |fixture: &SourceFixture<T>| fixture.each_ran_once(3)).await;
    fixture.transport.stop(instance).await;
}

pub async fn a_shutdown_settles_what_is_in_hand_or_leaves_it<T: Transport>(fixture: &SourceFixture<T>) {
    let instance = fixture.start().await;
    fixture.faults().always(StoreVerb::Accept, StoreFault::Hang);
    fixture.send_many(0..5).await;
    fixture.faults().wait_for_hanging(1).await;
    let release = async {
        // The shutdown comes first: it is polled before this.
        tokio::task::yield_now().await;
        fixture.faults().clear();
    };
    tokio::join!(fixture.transport.stop(instance), release);
    let ledger = fixture.ledger().await;
    assert_eq!(
        (ledger.rejected, ledger.done + ledger.waiting),
        (0, 5),
        "nothing is refused or lost: {ledger:?}"
    );
    // FAULTS A1: an acknowledged message is stored.
    assert!(fixture.counts().await.messages >= ledger.done as u64, "{ledger:?}");
    let instance = fixture.start().await;
    fixture.settled(5, 0).await;
    fixture.until(async |fixture: &SourceFixture<T>| fixture.each_ran_once(5)).await;
    fixture.transport.stop(instance).await;
}

/// The store stays unavailable, and the process has to end.
pub async fn a_shutdown_does_not_wait_for_the_store<T: Transport>(fixture: &SourceFixture<T>) {
    let instance = fixture.start().await;
    fixture.faults().always(StoreVerb::Accept, AWAY);
    fixture.send_many(0..3).await;
    fixture.until(async |fixture: &SourceFixture<T>| fixture.faults().calls(StoreVerb::Accept) >= 3).await;
    fixture.transport.stop(instance).await;
    let ledger = fixture.ledger().await;
    assert_eq!((ledger.done, ledger.rejected, ledger.waiting), (0, 0, 3), "nothing is settled");
    fixture.faults().clear();
    let instance = fixture.start().await;
    fixture.settled(3, 0).await;
    fixture.until(async |fixture: &SourceFixture<T>| fixture.each_ran_once(3)).await;
    fixture.transport.stop(instance).await;
}
