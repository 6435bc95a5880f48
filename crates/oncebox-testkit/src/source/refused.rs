//! Messages that cannot be accepted are neither lost without a trace nor redelivered for ever.

use super::fixture::DURABLE;
use super::{SourceFixture, Transport};

// FAULTS A11
pub async fn a_message_without_an_id_is_rejected<T: Transport>(fixture: &SourceFixture<T>) {
    let instance = fixture.start().await;
    fixture.send("", DURABLE, "nameless").await;
    fixture.settled(0, 1).await;
    assert_eq!(fixture.counts().await.messages, 0, "no id is made up for it");
    fixture.send_many(0..1).await;
    fixture.settled(1, 1).await;
    fixture.until(async |fixture: &SourceFixture<T>| fixture.each_ran_once(1)).await;
    fixture.transport.stop(instance).await;
}

// FAULTS A10: the store quarantines it, so the transport may acknowledge or reject it.
pub async fn a_conflict_is_quarantined_and_comes_no_more<T: Transport>(fixture: &SourceFixture<T>) {
    let instance = fixture.start().await;
    fixture.send("m", DURABLE, "one").await;
    fixture.settled(1, 0).await;
    fixture.send("m", DURABLE, "other").await;
    fixture
        .until(async |fixture: &SourceFixture<T>| {
            let ledger = fixture.ledger().await;
            ledger.waiting == 0 && ledger.done + ledger.rejected == 2
        })
        .await;
    assert_eq!(fixture.counts().await.conflicts, 1);
    fixture.until(async |fixture: &SourceFixture<T>| fixture.runs("one") == 1).await;
    assert_eq!(fixture.runs("other"), 0);
    fixture.transport.stop(instance).await;
}

// FAULTS A8
pub async fn a_type_without_a_handler_is_kept<T: Transport>(fixture: &SourceFixture<T>) {
    let instance = fixture.start().await;
    fixture.send("m", "unhandled", "x").await;
    fixture.settled(1, 0).await;
    assert_eq!(fixture.counts().await.unrouted, 1);
    fixture.transport.stop(instance).await;
}
