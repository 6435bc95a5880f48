//! A claim that is completed and committed in one round trip, because a caller waits for the connection. The store does
//! all or nothing, and the caller gets a clean transaction.

mod support;

use oncebox::state::Status;
use oncebox::store::{Claim, Settled, Store as _, Transactional as _};
use oncebox::{Error, ErrorKind};
use oncebox_postgres::sqlx::{PgConnection, query_scalar};
use oncebox_postgres::{Postgres, PostgresTx};
use oncebox_testkit::TestClock;
use support::{PAST_LEASE, Schema, claim_one, first, in_time, pid, rescue_params, run, ship, status};

/// Opens a store with one connection for handlers.
async fn shop(schema: &Schema) -> Postgres {
    schema.shop_with(schema.options().handler_connections(1)).await
}

/// Returns a running claim, and its transaction with a shipment.
async fn running(schema: &Schema, store: &Postgres) -> (Claim, PostgresTx) {
    first(store, "1").await;
    let claim = claim_one(store).await.claim;
    let mut tx = store.begin().await.expect("begin");
    ship(schema, &mut tx, "1").await;
    (claim, tx)
}

/// Finishes while a caller waits for the connection. The caller must get a working one.
async fn finish(
    schema: &Schema,
    store: &Postgres,
    tx: PostgresTx,
    claim: &Claim,
) -> (Result<Settled, Error>, PostgresTx) {
    let both = Box::pin(async { tokio::join!(store.begin(), store.finish(tx, claim)) });
    let (next, finished) = in_time(both).await;
    let mut next = next.expect("begin");
    ship(schema, &mut next, "next").await;
    (finished, next)
}

/// Returns the number of claims that this connection completed together with their commit.
async fn finished_on(connection: &mut PgConnection) -> i64 {
    let sql = "SELECT generic_plans + custom_plans FROM pg_prepared_statements WHERE name = 'finish_oncebox'";
    query_scalar(sql).fetch_one(connection).await.expect("it is prepared")
}

/// Checks that nothing of the transaction is stored, and that the waiting caller's transaction commits.
async fn assert_not_done(schema: &Schema, store: &Postgres, next: PostgresTx) {
    assert_eq!((schema.count("@shipment").await, status(store, "1").await), (0, Some(Status::Running)));
    store.commit(next).await.expect("commit");
    assert_eq!(schema.count("@shipment WHERE id = 'next'").await, 1);
    schema.check().await;
}

#[tokio::test]
async fn it_is_done_and_a_waiting_caller_gets_a_transaction_of_its_own() {
    let schema = Schema::shared();
    let store = shop(&schema).await;
    let (claim, mut tx) = running(&schema, &store).await;
    let session = pid(&mut tx).await;
    let (finished, mut next) = finish(&schema, &store, tx, &claim).await;
    assert_eq!(finished.expect("finish"), Settled::Applied);
    assert_eq!((pid(&mut next).await, finished_on(&mut next).await), (session, 1), "in one round trip");
    assert_eq!((schema.count("@shipment").await, status(&store, "1").await), (1, Some(Status::Completed)));
    drop(next);
    let last = store.begin().await.expect("begin");
    store.commit(last).await.expect("commit");
    assert_eq!(schema.count("@shipment").await, 1, "the next one was dropped");
    schema.check().await;
}

// FAULTS D1: another worker has the claim.
#[tokio::test]
async fn a_claim_that_is_lost_commits_nothing() {
    let schema = Schema::shared();
    let clock = TestClock::default();
    let options = schema.options().handler_connections(1).clock(clock.shared());
    let store = schema.shop_with(options).await;
    let (claim, tx) = running(&schema, &store).await;
    clock.advance(PAST_LEASE);
    let rescued = store.rescue(&rescue_params()).await.expect("rescue");
    let (finished, next) = finish(&schema, &store, tx, &claim).await;
    assert_eq!(finished.expect("finish"), Settled::LeaseLost);
    assert_not_done(&schema, &store, next).await;

    let mut tx = store.begin().await.expect("begin");
    ship(&schema, &mut tx, "1").await;
    for (settled, what) in [(Settled::Applied, "its owner completes it"), (Settled::LeaseLost, "once")] {
        let (finished, next) = finish(&schema, &store, tx, &rescued[0].claim).await;
        assert_eq!(finished.expect("finish"), settled, "{what}");
        tx = next;
    }
    store.rollback(tx).await;
}

// FAULTS C7, C8
#[tokio::test]
async fn what_a_handler_did_to_its_transaction_keeps_it_from_being_done() {
    for (sql, kind) in [
        ("SELECT 1 / 0", ErrorKind::Handler),
        ("ROLLBACK", ErrorKind::TransactionEnded),
        ("ROLLBACK; BEGIN", ErrorKind::TransactionEnded),
        ("ROLLBACK AND CHAIN", ErrorKind::TransactionEnded),
        ("ROLLBACK; BEGIN; SELECT 1 / 0", ErrorKind::Handler),
        ("SET LOCAL ROLE pg_monitor", ErrorKind::Denied),
        ("SET LOCAL transaction_read_only = on", ErrorKind::ReadOnly),
        // The prepared statements are gone, and the connection is useless.
        ("DEALLOCATE ALL", ErrorKind::Unavailable),
    ] {
        let schema = Schema::shared();
        let store = shop(&schema).await;
        let (claim, mut tx) = running(&schema, &store).await;
        let _ = run(&mut tx, sql).await;
        let (finished, next) = finish(&schema, &store, tx, &claim).await;
        let error = finished.expect_err(sql);
        assert_eq!(error.kind(), kind, "{sql}: {error}");
        assert_not_done(&schema, &store, next).await;
    }
}

/// Also a constraint with a name like the store's, on another table.
#[tokio::test]
async fn a_constraint_that_is_checked_at_the_commit_is_the_handlers_to_mend() {
    let schema = Schema::shared();
    let store = shop(&schema).await;
    schema
        .run(
            "CREATE TABLE @late (seq int NOT NULL);
             CREATE FUNCTION @refuse() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN INSERT INTO @late VALUES (NULL); RETURN NULL; END $$;
             CREATE CONSTRAINT TRIGGER late AFTER INSERT ON @shipment DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW WHEN (NEW.id = '1') EXECUTE FUNCTION @refuse()",
        )
        .await;
    let (claim, tx) = running(&schema, &store).await;
    let (finished, next) = finish(&schema, &store, tx, &claim).await;
    let error = finished.expect_err("it was refused");
    assert_eq!(error.kind(), ErrorKind::Handler, "{error}");
    assert_not_done(&schema, &store, next).await;
}

#[tokio::test]
async fn a_transaction_left_open_within_it_is_not_committed() {
    use oncebox_postgres::sqlx::Connection as _;
    let schema = Schema::shared();
    let store = shop(&schema).await;
    let (claim, mut tx) = running(&schema, &store).await;
    // It is never dropped, so its savepoint does not end.
    std::mem::forget(tx.begin().await.expect("a savepoint"));
    let (finished, next) = finish(&schema, &store, tx, &claim).await;
    assert_eq!(finished.expect_err("half of it may be meant to be undone").kind(), ErrorKind::Handler);
    assert_not_done(&schema, &store, next).await;
}
