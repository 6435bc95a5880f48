//! `once` in a transaction of `tokio-postgres`.

mod support;

use oncebox::store::{Mark, MarkIn as _, Store as _};
use oncebox::{Error, ErrorKind, Inbox, Message};
use oncebox_postgres::Postgres;
use oncebox_postgres::sqlx::Connection as _;
use support::{Schema, handler, inbox, key};
use tokio_postgres::{Client, IsolationLevel, NoTls, Transaction};

/// Opens the caller's own connection, directly to the server or through a pooler.
async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    // The task ends with the client.
    tokio::spawn(connection);
    client
}

async fn once(store: &Postgres, tx: &Transaction<'_>) -> Result<Mark, Error> {
    store.once_tokio(tx, "orders", "1", "charge").await
}

#[tokio::test]
async fn the_first_does_the_work_and_a_rollback_undoes_it() {
    for url in [oncebox_servers::shared::debian_url(), oncebox_servers::shared::pgbouncer_url()] {
        let schema = Schema::shared();
        let store = schema.shop().await;
        let mut shop = connect(&url).await;
        let tx = shop.transaction().await.expect("begin");
        assert_eq!(once(&store, &tx).await.expect("mark"), Mark::First);
        assert_eq!(once(&store, &tx).await.expect("mark"), Mark::Duplicate, "within it is marked");
        tx.rollback().await.expect("rollback");
        for delivery in 0..3 {
            let tx = shop.transaction().await.expect("begin");
            assert_eq!(once(&store, &tx).await.expect("mark").is_first().expect("not busy"), delivery == 0);
            tx.commit().await.expect("commit");
        }
        assert_eq!(schema.count("@mark").await, 1);
    }
}

#[tokio::test]
async fn both_drivers_mark_the_same_and_wait_for_each_other() {
    let schema = Schema::shared();
    let store = schema.shop().await;
    let (mut ours, mut theirs) = (schema.connect().await, connect(schema.url()).await);
    let mut tx = theirs.transaction().await.expect("begin");
    let mark = store.mark(&mut tx, &inbox(), &key("1"), &handler("charge"), None).await.expect("mark");
    assert_eq!(mark, Mark::First);
    let mut other = ours.begin().await.expect("begin");
    assert_eq!(store.once(&mut other, "orders", "1", "charge").await.expect("mark"), Mark::Busy);
    let connection: &mut sqlx::PgConnection = &mut other;
    let mark = store.mark(connection, &inbox(), &key("1"), &handler("charge"), None).await.expect("mark");
    assert_eq!(mark, Mark::Busy);
    let mut third = connect(schema.url()).await;
    let third = third.transaction().await.expect("begin");
    assert_eq!(once(&store, &third).await.expect("mark"), Mark::Busy);
    third.rollback().await.expect("rollback");
    tx.commit().await.expect("commit");
    assert_eq!(store.once(&mut other, "orders", "1", "charge").await.expect("mark"), Mark::Duplicate);
    other.rollback().await.expect("rollback");
    let tx = theirs.transaction().await.expect("begin");
    assert_eq!(once(&store, &tx).await.expect("mark"), Mark::Duplicate);
    tx.rollback().await.expect("rollback");
}

#[tokio::test]
async fn a_result_is_kept_in_a_transaction_of_either_driver() {
    let schema = Schema::shared();
    let store = schema.shop().await;
    let (mut ours, mut theirs) = (schema.connect().await, connect(schema.url()).await);
    let (inbox, key, handler) = (inbox(), key("1"), handler("charge"));
    let mut tx = theirs.transaction().await.expect("begin");
    let early = store.record(&mut tx, &inbox, &key, &handler, b"early").await;
    assert_eq!(early.expect_err("there is no mark").kind(), ErrorKind::Refused);
    assert_eq!(store.mark(&mut tx, &inbox, &key, &handler, None).await.expect("mark"), Mark::First);
    assert_eq!(store.recall(&mut tx, &inbox, &key, &handler).await.expect("recall"), None);
    store.record(&mut tx, &inbox, &key, &handler, b"kept").await.expect("record");
    tx.commit().await.expect("commit");
    let mut tx = theirs.transaction().await.expect("begin");
    let stored = store.recall(&mut tx, &inbox, &key, &handler).await.expect("recall");
    assert_eq!(stored.as_deref(), Some(&b"kept"[..]));
    let mut tx = ours.begin().await.expect("begin");
    let stored = store.once_recall(&mut tx, "orders", "1", "charge").await.expect("recall");
    assert_eq!(stored.as_deref(), Some(&b"kept"[..]));
}

#[tokio::test]
async fn errors_are_told_apart() {
    let schema = Schema::shared();
    let store = schema.shop().await;
    let (mut one, mut two) = (connect(schema.url()).await, connect(schema.url()).await);
    let old =
        one.build_transaction().isolation_level(IsolationLevel::RepeatableRead).start().await.expect("begin");
    old.query("SELECT 1", &[]).await.expect("a snapshot");
    let tx = two.transaction().await.expect("begin");
    assert_eq!(once(&store, &tx).await.expect("mark"), Mark::First);
    tx.commit().await.expect("commit");
    let error = once(&store, &old).await.expect_err("an old snapshot");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    // FAULTS E7: each error in the driver's chain is transient.
    let driver = std::error::Error::source(&error).expect("the driver's error");
    let server = std::error::Error::source(driver).expect("the server's error");
    assert!(store.is_transient(driver) && store.is_transient(server) && !store.is_transient(&error));
    let error = once(&store, &old).await.expect_err("it is aborted");
    assert_eq!(error.kind(), ErrorKind::Handler, "{error}");
    old.rollback().await.expect("rollback");

    let tx = two.transaction().await.expect("begin");
    let pid: i32 = tx.query_one("SELECT pg_backend_pid()", &[]).await.expect("a number").get(0);
    schema.run(&format!("SELECT pg_terminate_backend({pid})")).await;
    schema.wait_for(&format!("NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = {pid})")).await;
    let error = once(&store, &tx).await.expect_err("its session is gone");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("lost"), "{error}");
}

// FAULTS A10
#[tokio::test]
async fn another_message_is_quarantined_and_another_database_refused() {
    let schema = Schema::shared();
    let store = schema.shop().await;
    let orders = Inbox::builder("orders", store.clone()).build().expect("an inbox");
    let mut shop = connect(schema.url()).await;
    for (payload, expected) in [("x", "first"), ("x", "duplicate"), ("y", "conflict"), ("y", "conflict")] {
        let mut tx = shop.transaction().await.expect("begin");
        let message = Message::new("1", "order.placed", payload)
            .with_header("a", "b")
            .with_ordering_key("k")
            .with_time(oncebox::time::Timestamp::from_millis(7));
        let mark = orders.once(&mut tx, &message, "charge").await.expect("mark");
        assert_eq!(mark.as_str(), expected);
        tx.commit().await.expect("commit");
    }
    assert_eq!(
        schema.count("@quarantine WHERE reason = 'conflict' AND time = 7 AND tenant IS NULL").await,
        1
    );
    let twin = schema.twin();
    let _there = twin.shop().await;
    let mut shop = connect(twin.url()).await;
    let tx = shop.transaction().await.expect("begin");
    assert_eq!(once(&store, &tx).await.expect_err("another database").kind(), ErrorKind::Refused);
}
