//! The dedupe index at its real size: exact while keys move from memory to the table, for several stores at once.

mod support;

use std::ops::Range;
use std::sync::Arc;

use oncebox::store::{Accepted, NewMessage, Store as _};
use oncebox::{KeyStrategy, Message};
use oncebox_sqlite::Sqlite;
use support::{RETENTION, TestFile, inbox, sweep};

/// More messages than the store keeps in memory before a merge begins.
const MANY: usize = 34_000;
const BATCH: usize = 1_000;

/// Returns a message without a handler, which is finished when it arrives.
fn offer(id: usize) -> NewMessage {
    let message = Message::new(id.to_string(), "t", "");
    let key = KeyStrategy::MessageId.key(&inbox(), &message).expect("an id");
    NewMessage::new(inbox(), key, Arc::new(message), Arc::new([]))
}

/// Offers all ids, and returns how many were new.
async fn offer_all(store: &Sqlite, ids: impl IntoIterator<Item = usize>) -> usize {
    let batch: Vec<NewMessage> = ids.into_iter().map(offer).collect();
    let accepted = store.accept(&batch).await.expect("accept");
    accepted.iter().filter(|accepted| matches!(accepted, Accepted::First(_))).count()
}

/// Offers all ids in turns to two stores, and to each store some earlier ids of the other one.
async fn offer_in_turns(stores: [&Sqlite; 2], ids: Range<usize>) -> usize {
    let mut new = 0;
    for (turn, start) in ids.clone().step_by(BATCH).enumerate() {
        let again = start.saturating_sub(BATCH / 8);
        new += offer_all(stores[turn % 2], again..(start + BATCH).min(ids.end)).await;
    }
    new
}

#[tokio::test]
async fn keys_are_known_before_within_and_after_a_merge() {
    let file = TestFile::new();
    let (one, two) = (file.open(), file.open());
    assert_eq!(offer_in_turns([&one, &two], 0..MANY).await, MANY);
    let slice = || file.number("SELECT pass_slice FROM oncebox_counter");
    let merged = || file.number("SELECT merged FROM oncebox_counter");
    assert!(slice() > 0 && merged() == 0, "in the middle of a pass: {}", slice());
    // One store is dropped in the middle, and another one is opened.
    drop(one);
    let one = file.open();
    for store in [&one, &two] {
        assert_eq!(offer_all(store, (0..MANY).step_by(7)).await, 0, "all are known");
    }
    let mut known = MANY;
    while merged() == 0 {
        assert_eq!(offer_in_turns([&one, &two], known..known + 2 * BATCH).await, 2 * BATCH);
        known += 2 * BATCH;
    }
    for (n, store) in [&one, &two].into_iter().enumerate() {
        assert_eq!(offer_all(store, (n..known).step_by(5)).await, 0, "all are known");
    }
    file.check();

    file.clock.advance(RETENTION);
    assert_eq!(sweep(&two).await, known);
    assert_eq!(offer_all(&one, 0..10).await, 10, "a swept key is free");
    assert_eq!(offer_all(&two, 0..10).await, 0, "and taken again");
    file.check();
}
