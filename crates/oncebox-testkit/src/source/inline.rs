//! Messages that are handled before they are acknowledged.

use super::fixture::{BAD, FLAKY, INLINE, SLOW};
use super::{SourceFixture, Transport};
use crate::{StoreFault, StoreVerb};

pub async fn it_is_acknowledged_when_its_handler_is_done<T: Transport>(fixture: &SourceFixture<T>) {
    let instance = fixture.start().await;
    fixture.send("m", INLINE, SLOW).await;
    fixture.entered(1).await;
    let ledger = fixture.ledger().await;
    assert_eq!((ledger.done, ledger.waiting), (0, 1), "its handler is not done");
    fixture.open_gate();
    fixture.settled(1, 0).await;
    assert_eq!(fixture.runs(SLOW), 1);
    fixture.transport.stop(instance).await;
}

/// Busy is not a duplicate: the other run may still fail.
pub async fn a_busy_message_is_not_acknowledged<T: Transport>(fixture: &SourceFixture<T>) {
    let (one, other) = (fixture.start().await, fixture.start().await);
    fixture.send("m", INLINE, SLOW).await;
    fixture.entered(1).await;
    fixture.send("m", INLINE, SLOW).await;
    fixture.until(async |fixture: &SourceFixture<T>| fixture.faults().calls(StoreVerb::Mark) >= 2).await;
    let ledger = fixture.ledger().await;
    assert_eq!((ledger.done, ledger.rejected, ledger.waiting), (0, 0, 2), "neither is done");
    fixture.open_gate();
    fixture.settled(2, 0).await;
    assert_eq!(fixture.runs(SLOW), 1);
    fixture.transport.stop(one).await;
    fixture.transport.stop(other).await;
}

pub async fn what_failed_comes_again<T: Transport>(fixture: &SourceFixture<T>) {
    let instance = fixture.start().await;
    fixture.send("m", INLINE, FLAKY).await;
    fixture.settled(1, 0).await;
    assert_eq!(fixture.runs(FLAKY), 2);
    fixture.transport.stop(instance).await;
}

pub async fn what_its_handler_refuses_is_rejected<T: Transport>(fixture: &SourceFixture<T>) {
    let instance = fixture.start().await;
    fixture.send("m", INLINE, BAD).await;
    fixture.settled(0, 1).await;
    assert_eq!(fixture.runs(BAD), 1);
    fixture.transport.stop(instance).await;
}

// FAULTS A10: like a message that conflicts with a stored one.
pub async fn another_message_under_its_key_is_quarantined_and_comes_no_more<T: Transport>(
    fixture: &SourceFixture<T>,
) {
    let instance = fixture.start().await;
    fixture.send("m", INLINE, "one").await;
    fixture.settled(1, 0).await;
    fixture.send("m", INLINE, "other").await;
    fixture
        .until(async |fixture: &SourceFixture<T>| {
            let ledger = fixture.ledger().await;
            ledger.waiting == 0 && ledger.done + ledger.rejected == 2
        })
        .await;
    assert_eq!((fixture.counts().await.conflicts, fixture.runs("one"), fixture.runs("other")), (1, 1, 0));
    fixture.transport.stop(instance).await;
}

// FAULTS A4
pub async fn an_unknown_commit_of_its_handler_is_not_acknowledged<T: Transport>(fixture: &SourceFixture<T>) {
    let instance = fixture.start().await;
    fixture.faults().script(StoreVerb::Commit, [Some(StoreFault::ErrAfter)]);
    fixture.send("m", INLINE, "once").await;
    // Its mark shows that it is done, so it does not run again.
    fixture.settled(1, 0).await;
    assert_eq!(fixture.runs("once"), 1);
    assert!(
        fixture.faults().calls(StoreVerb::Mark) >= 2,
        "it was asked for again before it was acknowledged"
    );
    fixture.transport.stop(instance).await;
}
