//! Batches that are stored without a lookup of known keys: only after a while without any, and with the same results.

mod fixture;
mod support;

use fixture::{accept_new, claim, message, offer};
use oncebox::Message;
use oncebox::store::{Accepted, NewMessage, Store as _};
use oncebox_postgres::Postgres;
use support::{Schema, in_time};

/// More batches than the store looks up known keys for after a duplicate.
const QUIET: usize = 40;

async fn store() -> (Schema, Postgres) {
    let schema = Schema::new(oncebox_servers::shared::debian_url());
    let store = schema.options().open().await.expect("the store opens");
    (schema, store)
}

/// Stores batches of new messages.
async fn quiet(store: &Postgres, name: &str) {
    for batch in 0..QUIET {
        accept_new(store, (0..2).map(|number| format!("{name}-{batch}-{number}"))).await;
    }
}

/// Renames the function that stores without a lookup: a call of it fails.
async fn forbid(schema: &Schema) {
    schema.run("ALTER FUNCTION @accept_new_v1 RENAME TO oncebox_gone").await;
}

async fn pair(store: &Postgres, ids: [&str; 2]) -> oncebox::Result<Vec<Accepted>> {
    let offers: Vec<NewMessage> = ids.iter().map(|id| offer(message(id), &["h"])).collect();
    store.accept(&offers).await
}

#[tokio::test]
async fn known_keys_are_looked_for_after_a_start_and_after_each_that_was_found() {
    let (schema, store) = store().await;
    quiet(&store, "first").await;
    let answers = pair(&store, ["first-0-0", "new"]).await.expect("accept");
    assert!(matches!(answers[..], [Accepted::Duplicate(_), Accepted::First(_)]), "{answers:?}");
    forbid(&schema).await;
    // Each store is about to skip the lookup, and then gets a known key.
    for round in 0..3 {
        for batch in 0..30 {
            let ids = [format!("{round}-{batch}-a"), format!("{round}-{batch}-b")];
            pair(&store, [&ids[0], &ids[1]]).await.expect("it looks first");
        }
        store.accept(&[offer(message("new"), &["h"])]).await.expect("a single one always looks");
    }
    let mut looked = 0_usize;
    while pair(&store, [&format!("{looked}-x"), &format!("{looked}-y")]).await.is_ok() {
        looked += 1;
        assert!(looked < 100, "it never stops looking");
    }
    assert!(looked > 0);
    let stored = i64::try_from(2 * (QUIET + 90 + looked) + 1).expect("few");
    assert_eq!(schema.number("SELECT count(*) FROM @message").await, stored);

    let again = schema.options().open().await.expect("the store opens");
    let answers =
        pair(&again, ["first-0-0", "last"]).await.expect("a store that was just opened looks first");
    assert!(matches!(answers[..], [Accepted::Duplicate(_), Accepted::First(_)]), "{answers:?}");
}

#[tokio::test]
async fn a_batch_that_did_not_look_tells_all_its_messages_apart() {
    tells_apart(&Schema::shared()).await;
}

#[tokio::test]
async fn a_batch_that_did_not_look_tells_all_its_messages_apart_through_a_pooler() {
    tells_apart(&Schema::pooled()).await;
}

async fn tells_apart(schema: &Schema) {
    let store = schema.options().open().await.expect("the store opens");
    quiet(&store, "quiet").await;
    let other = Message::new("quiet-1-0", "order.placed", "another payload");
    let batch: Vec<NewMessage> = vec![
        offer(message("fresh-0"), &["h"]),
        offer(message("quiet-0-0"), &["h"]),
        offer(other, &["h"]),
        offer(message("fresh-1"), &["h"]),
    ];
    let answers = store.accept(&batch).await.expect("accept");
    assert!(
        matches!(
            answers[..],
            [Accepted::First(_), Accepted::Duplicate(_), Accepted::Conflict(_), Accepted::First(_)]
        ),
        "{answers:?}"
    );
    quiet(&store, "again").await;
    let added: Vec<NewMessage> = ["quiet-2-0", "fresh-2"].map(|id| offer(message(id), &["g", "h"])).to_vec();
    let answers = store.accept(&added).await.expect("accept");
    assert!(matches!(answers[..], [Accepted::HandlersAdded(..), Accepted::First(_)]), "{answers:?}");
    let messages = i64::try_from(2 * 2 * QUIET + 3).expect("few");
    for table in ["message", "proof"] {
        assert_eq!(schema.number(&format!("SELECT count(*) FROM @{table}")).await, messages, "{table}");
    }
    assert_eq!(claim(&store, "h", 10_000).await.len(), usize::try_from(messages).expect("few"));
    assert_eq!(claim(&store, "g", 10_000).await.len(), 2);
}

#[tokio::test]
async fn batches_that_share_keys_store_each_once_without_looking() {
    const KEYS: usize = 300;
    const ROUNDS: usize = 4;
    let (schema, store) = store().await;
    let other = schema.options().open().await.expect("the store opens");
    for round in 0..ROUNDS {
        quiet(&store, &format!("{round}-one")).await;
        quiet(&other, &format!("{round}-other")).await;
        // The same keys in the opposite order: the two do not deadlock.
        let mut batch: Vec<NewMessage> =
            (0..KEYS).map(|number| offer(message(&format!("{round}-{number}")), &["h"])).collect();
        let forwards = batch.clone();
        batch.reverse();
        let (one, another) =
            in_time(Box::pin(async { tokio::join!(store.accept(&forwards), other.accept(&batch)) })).await;
        let answers = [one.expect("accept"), another.expect("accept")].concat();
        let count = |first: bool| {
            answers.iter().filter(|answer| matches!(answer, Accepted::First(_)) == first).count()
        };
        assert_eq!((count(true), count(false)), (KEYS, KEYS), "each key is new once");
    }
    let all = i64::try_from(ROUNDS * (4 * QUIET + KEYS)).expect("few");
    for table in ["message", "proof", "entry"] {
        assert_eq!(schema.number(&format!("SELECT count(*) FROM @{table}")).await, all, "{table}");
    }
}
