//! `once` on the caller's own connection: of any number of duplicates, one does the work, and a rollback undoes
//! everything.

mod support;

use oncebox::store::{Mark, MarkIn as _};
use oncebox::{Error, ErrorKind, Inbox, Message};
use oncebox_postgres::Postgres;
use oncebox_postgres::sqlx::{Connection as _, PgConnection};
use support::{Schema, handler, inbox, key, run};

async fn once(store: &Postgres, tx: &mut PgConnection) -> Result<Mark, Error> {
    store.once(tx, "orders", "1", "charge").await
}

async fn shop() -> (Schema, Postgres) {
    let schema = Schema::shared();
    let store = schema.shop().await;
    (schema, store)
}

#[tokio::test]
async fn the_first_does_the_work_and_those_after_it_do_not() {
    for schema in [Schema::shared(), Schema::pooled()] {
        let store = schema.shop().await;
        let mut shop = schema.connect().await;
        for delivery in 0..3 {
            let mut tx = shop.begin().await.expect("begin");
            assert_eq!(
                once(&store, &mut tx).await.expect("mark").is_first().expect("not busy"),
                delivery == 0
            );
            tx.commit().await.expect("commit");
        }
        assert_eq!(schema.count("@mark").await, 1);
    }
}

#[tokio::test]
async fn a_rollback_leaves_no_mark() {
    let (schema, store) = shop().await;
    let mut shop = schema.connect().await;
    for _ in 0..3 {
        let mut tx = shop.begin().await.expect("begin");
        assert_eq!(once(&store, &mut tx).await.expect("mark"), Mark::First);
        assert_eq!(once(&store, &mut tx).await.expect("mark"), Mark::Duplicate, "within it is marked");
        tx.rollback().await.expect("rollback");
    }
    let mut tx = shop.begin().await.expect("begin");
    let mut savepoint = tx.begin().await.expect("savepoint");
    assert_eq!(once(&store, &mut savepoint).await.expect("mark"), Mark::First);
    savepoint.rollback().await.expect("rollback");
    assert_eq!(once(&store, &mut tx).await.expect("mark"), Mark::First, "the savepoint took its mark along");
    tx.commit().await.expect("commit");
    assert_eq!(schema.count("@mark").await, 1);
}

// FAULTS A9
#[tokio::test]
async fn a_duplicate_at_the_same_time_is_busy_until_the_first_has_ended() {
    let (schema, store) = shop().await;
    let (mut one, mut two) = (schema.connect().await, schema.connect().await);
    for commit in [false, true] {
        let mut tx = one.begin().await.expect("begin");
        assert_eq!(once(&store, &mut tx).await.expect("mark"), Mark::First);
        let mut other = two.begin().await.expect("begin");
        let mark = once(&store, &mut other).await.expect("mark");
        assert_eq!(mark, Mark::Busy);
        // `false` would let the caller acknowledge work that may still roll back.
        let busy = mark.is_first().expect_err("the first has not ended");
        assert!(busy.is_retryable() && busy.to_string().contains("has not ended"), "{busy}");
        // Another handler, id or inbox is another work.
        for (inbox, id, handler) in
            [("orders", "1", "mail"), ("orders", "2", "charge"), ("refunds", "1", "charge")]
        {
            assert_eq!(store.once(&mut other, inbox, id, handler).await.expect("mark"), Mark::First);
        }
        let after = if commit {
            tx.commit().await.expect("commit");
            Mark::Duplicate
        } else {
            tx.rollback().await.expect("rollback");
            Mark::First
        };
        assert_eq!(once(&store, &mut other).await.expect("mark"), after);
        other.rollback().await.expect("rollback");
    }
    assert_eq!(schema.count("@mark").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_connections_one_is_first() {
    let (schema, store) = shop().await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (store, mut shop) = (store.clone(), schema.connect().await);
        tasks.spawn(async move {
            let mut firsts = 0;
            for n in 0..50 {
                // Like a broker: deliver a busy message again.
                loop {
                    let mut tx = shop.begin().await.expect("begin");
                    match store.once(&mut tx, "orders", n.to_string(), "charge").await {
                        Ok(Mark::Busy) => tx.rollback().await.expect("rollback"),
                        Ok(mark) => {
                            firsts += i64::from(mark.is_first().expect("not busy"));
                            tx.commit().await.expect("commit");
                            break;
                        }
                        Err(busy) => {
                            assert!(busy.is_retryable(), "{busy}");
                            tx.rollback().await.expect("rollback");
                        }
                    }
                }
            }
            firsts
        });
    }
    let firsts: i64 = tasks.join_all().await.into_iter().sum();
    assert_eq!((firsts, schema.count("@mark").await), (50, 50));
}

/// FAULTS E3 of the probes: with an old snapshot, the store cannot return `Duplicate`, and must not return `First`.
#[tokio::test]
async fn a_mark_on_an_old_snapshot_may_fail_but_never_lies() {
    let (schema, store) = shop().await;
    let (mut one, mut two) = (schema.connect().await, schema.connect().await);
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let mut old = one.begin().await.expect("begin");
        run(&mut old, &format!("SET TRANSACTION ISOLATION LEVEL {level}; SELECT 1")).await.expect("a level");
        run(&mut old, &schema.sql("SELECT count(*) FROM @mark")).await.expect("a snapshot");
        let mut tx = two.begin().await.expect("begin");
        let mark = store.once(&mut tx, "orders", level, "charge").await.expect("mark");
        assert_eq!(mark, Mark::First);
        tx.commit().await.expect("commit");
        let error = store.once(&mut old, "orders", level, "charge").await.expect_err("an old snapshot");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.is_retryable(), "{error}");
        old.rollback().await.expect("rollback");
        let mut again = one.begin().await.expect("begin");
        let mark = store.once(&mut again, "orders", level, "charge").await.expect("mark");
        assert_eq!(mark, Mark::Duplicate);
        again.rollback().await.expect("rollback");
    }
}

/// Without a transaction there is nothing to roll back: failed work would never be repeated.
#[tokio::test]
async fn a_mark_outside_a_transaction_is_refused() {
    let (schema, store) = shop().await;
    let mut shop = schema.connect().await;
    let error = once(&store, &mut shop).await.expect_err("there is nothing to roll back");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("transaction"), "{error}");
    assert_eq!(schema.count("@mark").await, 0);
    // A transaction that the driver does not know of.
    run(&mut shop, "BEGIN").await.expect("begin");
    assert_eq!(once(&store, &mut shop).await.expect("mark"), Mark::First);
    run(&mut shop, "COMMIT").await.expect("commit");
    assert_eq!(schema.count("@mark").await, 1);
}

#[tokio::test]
async fn a_connection_to_another_database_is_told_so() {
    let (_schema, store) = shop().await;
    let elsewhere = Schema::new(oncebox_servers::shared::newest_url());
    let mut shop = elsewhere.connect().await;
    let mut tx = shop.begin().await.expect("begin");
    let error = once(&store, &mut tx).await.expect_err("no inbox there");
    assert_eq!(error.kind(), ErrorKind::SchemaOutdated, "{error}");
}

#[tokio::test]
async fn names_are_checked() {
    let (schema, store) = shop().await;
    let mut shop = schema.connect().await;
    let mut tx = shop.begin().await.expect("begin");
    for (inbox, id, handler, kind) in [
        ("", "1", "charge", ErrorKind::InvalidConfig),
        ("orders", "", "charge", ErrorKind::MissingKey),
        ("orders", "1", "", ErrorKind::InvalidHandler),
    ] {
        let error = store.once(&mut tx, inbox, id, handler).await.expect_err("a bad name");
        assert_eq!(error.kind(), kind, "{error}");
    }
    assert_eq!(once(&store, &mut tx).await.expect("the transaction goes on"), Mark::First);
}

/// All names are equal there: only the identity in the tables differs.
#[tokio::test]
async fn a_transaction_of_another_database_is_refused_though_it_has_such_tables() {
    let (schema, store) = shop().await;
    let twin = schema.twin();
    let there = twin.shop().await;
    let mut connection = twin.connect().await;
    let mut tx = connection.begin().await.expect("begin");
    for _ in 0..2 {
        let error = once(&store, &mut tx).await.expect_err("it is another database");
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(error.what().contains("another database"), "{error}");
    }
    assert_eq!(once(&there, &mut tx).await.expect("mark"), Mark::First, "nothing was marked before");
    tx.commit().await.expect("commit");
    let mut tx = oncebox::store::Transactional::begin(&there).await.expect("begin");
    let error =
        store.mark(&mut tx, &inbox(), &key("1"), &handler("h"), None).await.expect_err("another database");
    assert_eq!(error.kind(), ErrorKind::Refused, "a handler's transaction is no other");
    assert_eq!((schema.count("@mark").await, twin.count("@mark").await), (0, 1));
    let mut own = schema.connect().await;
    let mut tx = own.begin().await.expect("begin");
    assert_eq!(once(&store, &mut tx).await.expect("mark"), Mark::First);
}

// FAULTS A10: in the caller's own transaction, of which the inbox knows nothing else.
#[tokio::test]
async fn another_message_is_quarantined_with_the_callers_commit() {
    let (schema, store) = shop().await;
    let inbox = Inbox::builder("orders", store).build().expect("an inbox");
    let mut connection = schema.connect().await;
    let quarantined = async || schema.count("@quarantine WHERE reason = 'conflict'").await;
    for (payload, commit, expected) in
        [("x", true, "first"), ("y", false, "conflict"), ("y", true, "conflict")]
    {
        let mut tx = connection.begin().await.expect("begin");
        let message = Message::new("1", "order.placed", payload);
        let mark = inbox.once(&mut tx, &message, "charge").await.expect("mark");
        assert_eq!(mark.as_str(), expected);
        assert!(inbox.is_marked(&mut tx, &message, "charge").await.expect("is_marked"));
        assert!(!inbox.is_marked(&mut *tx, &message, "mail").await.expect("is_marked"));
        assert_eq!(quarantined().await, 0, "it is not committed");
        if commit {
            tx.commit().await.expect("commit");
        } else {
            tx.rollback().await.expect("rollback");
        }
    }
    assert_eq!(quarantined().await, 1);
}
