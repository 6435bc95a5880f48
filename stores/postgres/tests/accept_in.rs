//! Accept in a transaction of the caller's own connection.

mod support;

use std::sync::Arc;
use std::time::Duration;

use oncebox::state::Settlement;
use oncebox::store::{
    AcceptIn as _, Accepted, Inspect, KnownMessage, NewMessage, Seq, Store as _, SweepParams,
    Transactional as _,
};
use oncebox::{BoxError, Context, ErrorKind, Inbox, Message, handler};
use oncebox_postgres::Postgres;
use oncebox_postgres::sqlx::{self, Connection as _, PgConnection};
use oncebox_testkit::TestClock;
use support::{Schema, claim, claim_one, in_time, inbox, key, message, offer, offer_ordered, run, ship};

const RETENTION: Duration = Duration::from_hours(7 * 24);

fn first(accepted: &[Accepted]) -> Seq {
    let [Accepted::First(seq)] = accepted else { panic!("expected a new message, got {accepted:?}") };
    *seq
}

fn is_duplicate_of(accepted: &[Accepted], seq: Seq) -> bool {
    matches!(accepted, [Accepted::Duplicate(KnownMessage { seq: known, .. })] if *known == seq)
}

async fn shop() -> (Schema, Postgres) {
    let schema = Schema::shared();
    let store = schema.shop().await;
    (schema, store)
}

async fn settle_all(store: &Postgres, limit: usize) -> Vec<String> {
    let claimed = claim(store, limit).await;
    let done: Vec<Settlement> = claimed.iter().map(|one| Settlement::done(&one.claim)).collect();
    store.settle(&done).await.expect("settle");
    claimed.iter().map(|one| String::from_utf8_lossy(one.message.id()).into_owned()).collect()
}

#[tokio::test]
async fn a_message_and_the_callers_row_share_a_commit() {
    for schema in [Schema::shared(), Schema::pooled()] {
        let store = schema.shop().await;
        let mut shop = schema.connect().await;
        for committed in [false, true] {
            let mut tx = shop.begin().await.expect("begin");
            ship(&schema, &mut tx, "1").await;
            let seq = first(&store.accept_in(&mut tx, &[offer("1")]).await.expect("accept"));
            assert!(is_duplicate_of(&store.accept_in(&mut tx, &[offer("1")]).await.expect("accept"), seq));
            assert!(claim(&store, 10).await.is_empty(), "it is not committed");
            if committed {
                tx.commit().await.expect("commit");
                assert!(is_duplicate_of(&store.accept(&[offer("1")]).await.expect("accept"), seq));
            } else {
                tx.rollback().await.expect("rollback");
            }
        }
        assert_eq!((schema.count("@shipment").await, schema.count("@message").await), (1, 1));
        claim_one(&store).await;
        schema.check().await;
    }
}

#[tokio::test]
async fn a_connection_with_a_transaction_and_a_savepoint_do_too() {
    let (schema, store) = shop().await;
    let mut shop: PgConnection = schema.connect().await;
    let refused = store.accept_in(&mut shop, &[offer("1")]).await.expect_err("no transaction is open");
    assert_eq!(refused.kind(), ErrorKind::Refused);
    run(&mut shop, "BEGIN").await.expect("begin");
    first(&store.accept_in(&mut shop, &[offer("1")]).await.expect("accept"));
    run(&mut shop, "SAVEPOINT part").await.expect("savepoint");
    first(&store.accept_in(&mut shop, &[offer("2")]).await.expect("accept"));
    run(&mut shop, "ROLLBACK TO part").await.expect("undo");
    first(&store.accept_in(&mut shop, &[offer("2")]).await.expect("accept"));
    run(&mut shop, "COMMIT").await.expect("commit");
    assert_eq!(claim(&store, 10).await.len(), 2);
    schema.check().await;
}

#[tokio::test]
async fn a_transaction_of_another_database_is_refused() {
    let schema = Schema::shared();
    let twin = schema.twin();
    let (store, _there) = (schema.shop().await, twin.shop().await);
    let mut connection = twin.connect().await;
    let mut tx = connection.begin().await.expect("begin");
    let error = store.accept_in(&mut tx, &[offer("1")]).await.expect_err("another database");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    tx.commit().await.expect("commit");
    assert_eq!((schema.count("@message").await, twin.count("@message").await), (0, 0));
}

// The numbers of an open transaction are lower than those of messages that a sweep has passed.
#[tokio::test]
async fn a_sweep_does_not_pass_the_numbers_of_an_open_transaction() {
    let (schema, clock) = (Schema::shared(), TestClock::new());
    let store = schema.open(&clock).await;
    let mut shop = schema.connect().await;
    let sweep = async || {
        let mut params = SweepParams::new(inbox(), RETENTION, 100);
        let mut messages = 0;
        loop {
            let swept = store.sweep(&params).await.expect("sweep");
            messages += swept.messages;
            match swept.next {
                None => return messages,
                next => params.after = next,
            }
        }
    };
    let mut tx = shop.begin().await.expect("begin");
    first(&store.accept_in(&mut tx, &[offer("late")]).await.expect("accept"));
    store.accept(&[offer("other")]).await.expect("accept");
    assert_eq!(settle_all(&store, 10).await, ["other"]);
    clock.advance(RETENTION + Duration::from_hours(1));
    assert_eq!(sweep().await, 1);
    tx.commit().await.expect("commit");
    assert_eq!(sweep().await, 0, "it is not finished");
    assert!(matches!(store.accept(&[offer("late")]).await.expect("accept")[..], [Accepted::Duplicate(_)]));
    assert_eq!(in_time(found(&store)).await, "late");
    clock.advance(RETENTION + Duration::from_hours(1));
    assert_eq!(sweep().await, 1, "it leaves as the others do");
    assert_eq!(schema.count("@proof").await, 0);
}

/// Claims until there is a message, completes it, and returns its id.
async fn found(store: &Postgres) -> String {
    loop {
        if let Some(id) = settle_all(store, 10).await.pop() {
            return id;
        }
        tokio::task::yield_now().await;
    }
}

// The worker's process does not see the commit, and its claims have passed the number.
#[tokio::test(flavor = "multi_thread")]
async fn a_number_that_claims_have_passed_is_claimed() {
    let (schema, store) = shop().await;
    let (worker, mut shop) = (schema.options().open().await.expect("a worker"), schema.connect().await);
    let mut tx = shop.begin().await.expect("begin");
    first(&store.accept_in(&mut tx, &[offer("late")]).await.expect("accept"));
    for round in 0..5 {
        let batch: Vec<NewMessage> = (0..200).map(|n| offer(&format!("{round}-{n}"))).collect();
        store.accept(&batch).await.expect("accept");
        let mut done = 0;
        while done < batch.len() {
            done += settle_all(&worker, 50).await.len();
        }
    }
    tx.commit().await.expect("commit");
    assert_eq!(in_time(found(&worker)).await, "late");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rival_waits_for_the_callers_transaction() {
    let (schema, store) = shop().await;
    let mut shop = schema.connect().await;
    for (id, order) in [("key", None), ("order", Some("k"))] {
        let new = |id: &str| order.map_or_else(|| offer(id), |order| offer_ordered(id, order));
        let mut tx = shop.begin().await.expect("begin");
        let seq = first(&store.accept_in(&mut tx, &[new(id)]).await.expect("accept"));
        let rival = tokio::spawn({
            let (store, new) = (store.clone(), new(if order.is_some() { "second" } else { id }));
            async move { store.accept(&[new]).await.expect("accept") }
        });
        schema.wait_for("EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)").await;
        tx.commit().await.expect("commit");
        let answer = in_time(rival).await.expect("no panic");
        match order {
            None => assert!(is_duplicate_of(&answer, seq)),
            Some(_) => assert!(first(&answer) > seq, "numbers go by the commits"),
        }
    }
    schema.check().await;
}

#[tokio::test]
async fn under_another_isolation_a_race_is_an_error_and_no_second_first() {
    let (schema, store) = shop().await;
    let mut shop = schema.connect().await;
    let mut tx = shop.begin().await.expect("begin");
    run(&mut tx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.expect("a level");
    first(&store.accept_in(&mut tx, &[offer("1")]).await.expect("accept"));
    store.accept(&[offer("2")]).await.expect("accept");
    let error = store.accept_in(&mut tx, &[offer("2")]).await.expect_err("it cannot see the first");
    assert!(error.is_retryable(), "{error}");
    tx.rollback().await.expect("rollback");
    let mut tx = shop.begin().await.expect("begin");
    run(&mut tx, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").await.expect("a level");
    let error = store.accept_in(&mut tx, &[offer_ordered("3", "k")]).await.expect_err("order needs more");
    assert!(error.to_string().contains("READ COMMITTED"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_callers_commit_wakes_the_workers_of_every_process() {
    let (schema, store) = shop().await;
    let other = schema.options().open().await.expect("another process");
    let mut shop = schema.connect().await;
    for listener in [&store, &other] {
        let mut wakeup = listener.wakeups().expect("wake-ups").subscribe();
        let listening = format!(
            "EXISTS (SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN \"{}.oncebox_work\"%')",
            schema.name
        );
        schema.wait_for(&listening).await;
        // The start of the listener is an event, too.
        in_time(wakeup.woken()).await;
        let mut tx = shop.begin().await.expect("begin");
        let id = format!("{:p}", std::ptr::from_ref(listener));
        first(&store.accept_in(&mut tx, &[offer(&id)]).await.expect("accept"));
        tx.commit().await.expect("commit");
        in_time(wakeup.woken()).await;
    }
}

async fn nothing(_: Message, _: &mut Context<Postgres>) -> Result<(), BoxError> {
    Ok(())
}

#[tokio::test]
async fn an_inbox_takes_each_type_of_transaction() {
    let (schema, store) = shop().await;
    let inbox = Inbox::builder("orders", store).on("order.placed", handler("h", nothing)).build();
    let inbox = inbox.expect("an inbox");
    inbox.register().await.expect("register");
    let mut shop = schema.connect().await;
    let mut tx: sqlx::Transaction<'_, sqlx::Postgres> = shop.begin().await.expect("begin");
    inbox.accept_in(&mut tx, message("1")).await.expect("a transaction of sqlx");
    inbox.accept_in(&mut *tx, message("2")).await.expect("its connection");
    tx.commit().await.expect("commit");
    let mut tx = inbox.store().begin().await.expect("begin");
    inbox.accept_in(&mut tx, message("3")).await.expect("a transaction of the store");
    inbox.store().commit(tx).await.expect("commit");
    assert_eq!(inbox.drain().await.expect("drain"), 3);
}

#[tokio::test]
async fn what_a_transaction_does_not_commit_costs_no_later_message() {
    let (schema, store) = shop().await;
    let mut shop = schema.connect().await;
    for _ in 0..3 {
        let mut tx = shop.begin().await.expect("begin");
        let mut other = offer("1");
        other.message = Arc::new(Message::new("1", "order.placed", "other"));
        other.fingerprint = oncebox::Fingerprint::of(&other.message);
        let answers = store.accept_in(&mut tx, &[offer("1"), other, offer_ordered("2", "k")]).await;
        assert!(matches!(
            answers.expect("accept")[..],
            [Accepted::First(_), Accepted::Conflict(_), Accepted::First(_)]
        ));
        tx.rollback().await.expect("rollback");
    }
    assert_eq!((schema.count("@message").await, schema.count("@quarantine").await), (0, 0));
    assert!(store.show(&inbox(), &key("1")).await.expect("show").is_none());
    first(&store.accept(&[offer_ordered("2", "k")]).await.expect("accept"));
    claim_one(&store).await;
}
