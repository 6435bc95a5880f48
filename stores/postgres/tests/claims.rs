//! Contents of a claim: the messages of its own entries, each with its entry, and no others.

mod fixture;
mod support;

use oncebox_testkit::OperatorSteps as _;
use std::collections::BTreeSet;

use fixture::{LEASE, accept, accept_new, claim, handler, inbox, message, offer, route, settle};
use oncebox::state::Outcome;
use oncebox::store::{ClaimParams, ClaimQuota, Claimed, Store as _};
use oncebox_postgres::Postgres;
use support::{Schema, run};

async fn store() -> (Schema, Postgres) {
    let schema = Schema::new(oncebox_servers::shared::debian_url());
    let store = schema.options().open().await.expect("the store opens");
    (schema, store)
}

/// The ids of claims, each of which must have brought the message with that id.
fn ids(claimed: &[Claimed]) -> BTreeSet<String> {
    let id = |claimed: &Claimed| {
        let payload = String::from_utf8(claimed.message.payload().to_vec()).expect("text");
        assert_eq!(claimed.claim.key, fixture::key(&payload), "an entry has got the message of another one");
        payload
    };
    let ids: BTreeSet<String> = claimed.iter().map(id).collect();
    assert_eq!(ids.len(), claimed.len(), "an entry was claimed twice");
    ids
}

fn numbered(numbers: impl Iterator<Item = usize>) -> BTreeSet<String> {
    numbers.map(|number| number.to_string()).collect()
}

#[tokio::test]
async fn every_entry_gets_its_own_message_wherever_that_lies() {
    let (_schema, store) = store().await;
    // All in a row, then every other one, then few far apart: the store reads them in different ways.
    let handlers_of = |number: usize| match number {
        0..400 => vec!["h"],
        400..800 if number.is_multiple_of(2) => vec!["h"],
        400..800 => vec!["g"],
        800..1_200 if number.is_multiple_of(50) => vec!["g", "h"],
        _ => vec!["other"],
    };
    let offers: Vec<_> =
        (0..1_200).map(|number| offer(message(&number.to_string()), &handlers_of(number))).collect();
    for chunk in offers.chunks(300) {
        store.accept(chunk).await.expect("accept");
    }
    let of = |handler: &str| numbered((0..1_200).filter(|number| handlers_of(*number).contains(&handler)));
    let want = |name: &str, limit| ClaimQuota { route: route(name), limit };
    // Release some of them. From then on they are in another table.
    let back = claim(&store, "h", 100).await;
    settle(&store, &back, &Outcome::Released).await;
    let params = ClaimParams::new(inbox(), vec![want("h", 5_000), want("g", 5_000)], LEASE);
    let claimed = store.claim(&params).await.expect("claim");
    for name in ["h", "g"] {
        let of_handler: Vec<_> =
            claimed.iter().filter(|claimed| claimed.claim.handler == handler(name)).cloned().collect();
        assert_eq!(ids(&of_handler), of(name), "{name}");
    }
    // The same id again gets the same claims.
    let again = store.claim(&params).await.expect("claim");
    let holds = |claimed: &[Claimed]| -> BTreeSet<_> {
        claimed.iter().map(|one| (one.claim.seq, one.claim.handler.clone(), one.claim.token)).collect()
    };
    assert_eq!(holds(&again), holds(&claimed));
    assert_eq!(claim(&store, "other", 5_000).await.len(), of("other").len());
}

#[tokio::test]
async fn a_limit_is_kept_however_it_is_shared() {
    let (_schema, store) = store().await;
    accept_new(&store, (0..1_000).map(|number| number.to_string())).await;
    let first = claim(&store, "h", 300).await;
    settle(&store, &first, &Outcome::Released).await;
    let mut all = BTreeSet::new();
    for limit in [65, 70, 101, 7, 203, 333] {
        let claimed = claim(&store, "h", limit).await;
        assert_eq!(claimed.len(), limit);
        let before = all.len();
        all.extend(ids(&claimed));
        assert_eq!(all.len(), before + limit, "one was claimed twice");
    }
    assert_eq!(claim(&store, "h", 5_000).await.len(), 1_000 - all.len());
}

/// Returns the number of ranges that the last claim stored. The short statement, for few entries, stores one per entry.
async fn pieces(schema: &Schema) -> i64 {
    schema.number("SELECT cardinality(lanes)::int8 FROM @claim ORDER BY until DESC LIMIT 1").await
}

/// Returns a store whose last claim found almost nothing, so that it tries the short statement first.
async fn idle_store() -> (Schema, Postgres) {
    let (schema, store) = store().await;
    accept(&store, "first").await;
    settle(&store, &claim(&store, "h", 100).await, &Outcome::Done).await;
    (schema, store)
}

fn in_order(claimed: &[Claimed]) -> Vec<&[u8]> {
    claimed.iter().map(|one| one.message.payload().as_ref()).collect()
}

#[tokio::test]
async fn a_few_are_claimed_at_once_and_in_order() {
    let (schema, store) = idle_store().await;
    accept_new(&store, (0..8).map(|number| number.to_string())).await;
    let params = ClaimParams::new(inbox(), vec![ClaimQuota { route: route("h"), limit: 100 }], LEASE);
    let claimed = store.claim(&params).await.expect("claim");
    assert_eq!((ids(&claimed), pieces(&schema).await), (numbered(0..8), 8), "by the short statement");
    assert!(claimed.is_sorted_by_key(|one| one.claim.seq));
    let again = store.claim(&params).await.expect("claim");
    assert_eq!(ids(&again), numbered(0..8), "the same id gets the same");
    assert!(claim(&store, "h", 100).await.is_empty());
    settle(&store, &claimed, &Outcome::Done).await;
    accept_new(&store, (10..19).map(|number| number.to_string())).await;
    assert_eq!(ids(&claim(&store, "h", 100).await), numbered(10..19));
    assert!(pieces(&schema).await <= 4, "nine are more than a few: a piece for each lane");
}

#[tokio::test]
async fn a_few_are_no_more_than_was_asked_for() {
    let (_schema, store) = idle_store().await;
    for number in 0..3 {
        accept(&store, &number.to_string()).await;
    }
    assert_eq!(in_order(&claim(&store, "h", 2).await), [b"0", b"1"], "the oldest of all lanes");
    assert_eq!(in_order(&claim(&store, "h", 2).await), [b"2"]);
    // One handler has many, the other has few: each gets its own.
    let offers: Vec<_> = (10..30)
        .map(|number| offer(message(&number.to_string()), if number == 20 { &["h", "g"] } else { &["h"] }))
        .collect();
    claim(&store, "g", 1).await;
    store.accept(&offers).await.expect("accept");
    let want = |name: &str| ClaimQuota { route: route(name), limit: 3 };
    let params = ClaimParams::new(inbox(), vec![want("h"), want("g")], LEASE);
    let claimed = store.claim(&params).await.expect("claim");
    let of = |name: &str| claimed.iter().filter(|one| one.claim.handler == handler(name)).count();
    assert_eq!((of("h"), of("g")), (3, 1));
}

#[tokio::test]
async fn a_few_do_not_overtake_what_has_waited() {
    let (_schema, store) = idle_store().await;
    accept(&store, "1").await;
    settle(&store, &claim(&store, "h", 100).await, &Outcome::Released).await;
    accept(&store, "2").await;
    assert_eq!(in_order(&claim(&store, "h", 1).await), [b"1"]);
    assert_eq!(in_order(&claim(&store, "h", 1).await), [b"2"]);
}

// FAULTS E4: a claim is repeated while its first try, which its caller considers lost, is not committed yet.
#[tokio::test]
async fn a_claim_repeated_too_early_gets_what_both_tries_have_leased() {
    let (schema, store) = idle_store().await;
    accept(&store, "1").await;
    let params = ClaimParams::new(inbox(), vec![ClaimQuota { route: route("h"), limit: 100 }], LEASE);
    let id = uuid::Uuid::from_bytes(*params.claim_id.as_bytes()).to_string();
    let first_try = "BEGIN; \
         UPDATE @entry SET token = nextval('@token'), claimed_at = due, lease_until = due + 60000, claim_id = ':id'; \
         INSERT INTO @claim SELECT claim_id, lease_until, ARRAY[lane], ARRAY[handler], ARRAY[seq], ARRAY[seq] FROM @entry";
    let mut other = schema.connect().await;
    run(&mut other, &schema.sql(first_try).replace(":id", &id)).await.expect("the first try");
    accept(&store, "2").await;
    let repeated = tokio::spawn({
        let store = store.clone();
        async move { store.claim(&params).await.expect("claim") }
    });
    let waits =
        "EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%:schema%')";
    schema.wait_for(&waits.replace(":schema", &schema.name)).await;
    run(&mut other, "COMMIT").await.expect("the first try is committed");
    assert_eq!(ids(&repeated.await.expect("no panic")), numbered(1..3));
}

#[tokio::test]
async fn none_of_a_few_is_claimed_for_a_handler_that_is_paused() {
    let (_schema, store) = idle_store().await;
    accept(&store, "1").await;
    store.pause(&inbox(), &handler("h")).await.expect("paused");
    assert!(claim(&store, "h", 100).await.is_empty());
    store.resume(&inbox(), &handler("h")).await.expect("resumed");
    assert_eq!(in_order(&claim(&store, "h", 100).await), [b"1"]);
}

#[tokio::test]
async fn one_of_a_few_that_cannot_be_read_keeps_no_other_waiting() {
    let (schema, store) = idle_store().await;
    accept_new(&store, (0..5).map(|number| number.to_string())).await;
    schema
        .run("UPDATE @message SET headers = '\\xff' WHERE id = '2'; DELETE FROM @message WHERE id = '3'")
        .await;
    assert_eq!(ids(&claim(&store, "h", 200).await), numbered([0, 1, 4].into_iter()));
    assert_eq!((pieces(&schema).await, schema.number("SELECT count(*) FROM @poisoned").await), (5, 2));
}

#[tokio::test]
async fn what_was_found_but_could_not_be_leased_is_not_handed_out() {
    let (schema, store) = store().await;
    accept_new(&store, (0..100).map(|number| number.to_string())).await;
    // As if another transaction had changed these rows between find and lease.
    schema
        .run(
            "CREATE FUNCTION @refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             RETURN CASE WHEN NEW.seq >> 6 & 3 > 0 THEN NEW END; END $$;
             CREATE TRIGGER refuse BEFORE UPDATE ON @entry FOR EACH ROW EXECUTE FUNCTION @refuse()",
        )
        .await;
    for limit in [90, 40] {
        let claimed = claim(&store, "h", limit).await;
        let leased: BTreeSet<i64> = claimed.iter().map(|one| one.claim.seq.0).collect();
        let sql = "SELECT count(*) FROM @entry WHERE token IS NOT NULL";
        assert_eq!(schema.number(sql).await, i64::try_from(leased.len()).expect("few"));
        assert!(!leased.is_empty() && leased.iter().all(|seq| seq >> 6 & 3 > 0), "{leased:?}");
        settle(&store, &claimed, &Outcome::Done).await;
    }
}

#[tokio::test]
async fn a_message_that_cannot_be_read_or_is_gone_keeps_no_other_waiting() {
    let (schema, store) = store().await;
    accept_new(&store, (0..100).map(|number| number.to_string())).await;
    schema
        .run("UPDATE @message SET headers = '\\xff' WHERE id = '7'; DELETE FROM @message WHERE id = '8'")
        .await;
    let expected = numbered((0..100).filter(|number| ![7, 8].contains(number)));
    assert_eq!(ids(&claim(&store, "h", 200).await), expected);
    let rejected = "SELECT count(*) FROM @poisoned WHERE error LIKE 'the stored message is damaged: %'";
    assert_eq!(schema.number(rejected).await, 2);
}
