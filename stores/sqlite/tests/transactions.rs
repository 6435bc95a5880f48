//! Transactions of handlers: their writes and their completion are stored together, or not at all, for everything that
//! a handler does and at every interruption.

mod support;

use std::sync::Arc;
use std::time::Duration;

use oncebox::ErrorKind;
use oncebox::state::Status;
use oncebox::store::{
    Accepted, Claim, Mark, MarkIn as _, RescueParams, SettleIn as _, Settled, Store as _, Transactional as _,
};
use oncebox_sqlite::{Sqlite, SqliteTx};
use support::{
    LEASE, PAST_LEASE, TestFile, accept, claim, claim_one, first, handler, inbox, key, offer, route, status,
};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// Opens a store, and creates a business table.
fn shop() -> (TestFile, Sqlite) {
    let file = TestFile::new();
    let store = file.open();
    file.connect().execute_batch("CREATE TABLE shipment (id TEXT)").expect("a table");
    (file, store)
}

fn ship(tx: &SqliteTx, id: &str) {
    tx.execute("INSERT INTO shipment VALUES (?1)", [id]).expect("a business write");
}

fn shipments(file: &TestFile) -> usize {
    file.count("shipment")
}

async fn complete(store: &Sqlite, tx: &mut SqliteTx, claim: &Claim) -> Settled {
    store.complete(tx, claim).await.expect("complete")
}

#[tokio::test]
async fn a_business_write_and_its_completion_are_stored_together() {
    let (file, store) = shop();
    first(&store, "1").await;
    let claimed = claim_one(&store).await;
    let mut tx = store.begin().await.expect("begin");
    ship(&tx, "1");
    assert_eq!(complete(&store, &mut tx, &claimed.claim).await, Settled::Applied);
    assert_eq!(shipments(&file), 0, "no reader sees half of it");
    store.commit(tx).await.expect("commit");
    assert_eq!((shipments(&file), status(&store, "1").await), (1, Some(Status::Completed)));
    file.check();
}

// FAULTS B4
#[tokio::test]
async fn a_lost_lease_takes_the_business_write_with_it() {
    let (file, store) = shop();
    first(&store, "1").await;
    let claimed = claim_one(&store).await;
    file.clock.advance(PAST_LEASE);
    let rescue = RescueParams::new(inbox(), vec![route("h")], LEASE, 10);
    assert_eq!(store.rescue(&rescue).await.expect("rescue").len(), 1);
    let mut tx = store.begin().await.expect("begin");
    ship(&tx, "1");
    assert_eq!(complete(&store, &mut tx, &claimed.claim).await, Settled::LeaseLost);
    drop(tx);
    assert_eq!((shipments(&file), status(&store, "1").await), (0, Some(Status::Running)));
}

#[tokio::test]
async fn a_dropped_transaction_leaves_nothing_and_the_next_one_works() {
    let (file, store) = shop();
    for round in 0..50 {
        let tx = store.begin().await.expect("begin");
        ship(&tx, "dropped");
        drop(tx);
        let tx = store.begin().await.expect("begin");
        ship(&tx, "committed");
        store.commit(tx).await.expect("commit");
        assert_eq!(shipments(&file), round + 1);
    }
    assert_eq!(file.count("shipment WHERE id = 'dropped'"), 0);
    assert_eq!(store.accept(&[offer("1")]).await.expect("the writer has its turn").len(), 1);
}

// FAULTS C8
#[tokio::test]
async fn a_handler_cannot_end_the_transaction() {
    let (file, store) = shop();
    let tx = store.begin().await.expect("begin");
    ship(&tx, "1");
    for sql in ["COMMIT", "END", "ROLLBACK", "BEGIN", "commit transaction", "; ; COMMIT"] {
        assert!(tx.execute_batch(sql).is_err(), "{sql}");
        assert!(tx.prepare_cached(sql).and_then(|mut statement| statement.execute([])).is_err(), "{sql}");
    }
    assert!(tx.unchecked_transaction().is_err());
    assert!(!tx.is_autocommit());
    tx.execute_batch("SAVEPOINT a").expect("savepoints are the handler's own");
    ship(&tx, "2");
    tx.execute_batch("ROLLBACK TO a; RELEASE a; SAVEPOINT left_open").expect("and so are their ends");
    ship(&tx, "3");
    assert_eq!(shipments(&file), 0);
    store.commit(tx).await.expect("commit");
    assert_eq!(file.number("SELECT sum(id) FROM shipment"), 4);
}

/// Returns a transaction that SQLite rolled back by itself, with an error that the handler ignored.
async fn rolled_back_inside(file: &TestFile, store: &Sqlite) -> SqliteTx {
    file.connect().execute_batch("CREATE TABLE one (id INTEGER PRIMARY KEY)").expect("a table");
    let tx = store.begin().await.expect("begin");
    ship(&tx, "lost");
    tx.execute("INSERT INTO one VALUES (1)", []).expect("the first");
    assert!(tx.execute("INSERT OR ROLLBACK INTO one VALUES (1)", []).is_err());
    tx
}

// FAULTS C7
#[tokio::test]
async fn what_sqlite_rolled_back_cannot_be_completed() {
    let (file, store) = shop();
    first(&store, "1").await;
    let claimed = claim_one(&store).await;
    let mut tx = rolled_back_inside(&file, &store).await;
    let error = store.complete(&mut tx, &claimed.claim).await.expect_err("its writes are gone");
    assert_eq!(error.kind(), ErrorKind::Handler, "{error}");
    assert!(store.commit(tx).await.is_err());
    assert_eq!((shipments(&file), status(&store, "1").await), (0, Some(Status::Running)));
}

// FAULTS C7
#[tokio::test]
async fn what_sqlite_rolled_back_is_not_marked() {
    let (file, store) = shop();
    let mut tx = rolled_back_inside(&file, &store).await;
    let error =
        store.mark(&mut tx, &inbox(), &key("1"), &handler("h"), None).await.expect_err("no transaction");
    assert_eq!(error.kind(), ErrorKind::Handler, "{error}");
    drop(tx);
    assert_eq!(file.count("oncebox_mark"), 0);
}

// FAULTS C7
#[tokio::test]
async fn what_is_written_after_sqlite_rolled_back_is_not_stored_bit_by_bit() {
    let (file, store) = shop();
    let tx = rolled_back_inside(&file, &store).await;
    assert!(tx.execute("INSERT INTO shipment VALUES ('torn')", []).is_err());
    assert!(store.commit(tx).await.is_err());
    assert_eq!(shipments(&file), 0);
    let tx = store.begin().await.expect("begin");
    ship(&tx, "whole");
    store.commit(tx).await.expect("commit");
    assert_eq!(shipments(&file), 1);
}

/// On a full file, SQLite rolls a transaction back by itself.
// FAULTS C7, E10
#[tokio::test]
async fn a_full_file_that_the_handler_ignores_completes_nothing() {
    let (file, store) = shop();
    first(&store, "1").await;
    drop(store);
    let size = std::fs::metadata(file.path()).expect("the file").len().max(200_000);
    let store = file.options().max_bytes(size).open().expect("reopened");
    let claimed = claim_one(&store).await;
    let mut tx = store.begin().await.expect("begin");
    ship(&tx, "1");
    let full = (0..10_000).find(|_| tx.execute("INSERT INTO shipment VALUES (zeroblob(3000))", []).is_err());
    assert!(full.is_some(), "the file never got full");
    match store.complete(&mut tx, &claimed.claim).await {
        // Only the failed statement is lost, or everything: never only the writes.
        Ok(settled) => assert_eq!(settled, Settled::Applied),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Handler, "{error}"),
    }
    let committed = store.commit(tx).await.is_ok();
    let completed = status(&store, "1").await == Some(Status::Completed);
    assert_eq!((committed, shipments(&file) > 0), (completed, completed));
    file.check();
}

/// It is known that nothing was stored, and that the handler caused the error: neither unknown nor worth endless
/// retries.
#[tokio::test]
async fn a_constraint_that_fails_at_the_commit_is_the_handlers_failure() {
    let (file, store) = shop();
    file.connect()
        .execute_batch(
            "CREATE TABLE parent (id INTEGER PRIMARY KEY);
             CREATE TABLE child (parent INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)",
        )
        .expect("tables");
    first(&store, "1").await;
    let claimed = claim_one(&store).await;
    let mut tx = store.begin().await.expect("begin");
    tx.execute("INSERT INTO child VALUES (7)", []).expect("checked at the commit");
    assert_eq!(complete(&store, &mut tx, &claimed.claim).await, Settled::Applied);
    let error = store.commit(tx).await.expect_err("no such parent");
    assert_eq!(error.kind(), ErrorKind::Handler, "{error}");
    assert_eq!(file.count("child"), 0);
    assert_eq!(status(&store, "1").await, Some(Status::Running));
    assert_eq!(
        store.settle(&[oncebox::state::Settlement::done(&claimed.claim)]).await.expect("settle").len(),
        1
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_transactions_and_accepts_take_turns() {
    const EACH: usize = 64;
    let (file, store) = shop();
    for n in 0..EACH {
        first(&store, &n.to_string()).await;
    }
    let barrier = Arc::new(Barrier::new(2 * EACH));
    let mut tasks = JoinSet::new();
    for claimed in claim(&store, EACH).await {
        let (store, barrier) = (store.clone(), Arc::clone(&barrier));
        tasks.spawn(async move {
            barrier.wait().await;
            let mut tx = store.begin().await.expect("begin");
            ship(&tx, "1");
            tokio::task::yield_now().await;
            assert_eq!(complete(&store, &mut tx, &claimed.claim).await, Settled::Applied);
            store.commit(tx).await.expect("commit");
        });
    }
    for n in EACH..2 * EACH {
        let (store, barrier) = (store.clone(), Arc::clone(&barrier));
        tasks.spawn(async move {
            barrier.wait().await;
            first(&store, &n.to_string()).await;
        });
    }
    tasks.join_all().await;
    assert_eq!(shipments(&file), EACH);
    assert_eq!(file.count("oncebox_outcome"), EACH);
    assert_eq!(claim(&store, 2 * EACH).await.len(), EACH);
    file.check();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accept_waits_for_an_open_transaction() {
    let (_file, store) = shop();
    let tx = store.begin().await.expect("begin");
    let accepting = tokio::spawn({
        let store = store.clone();
        async move { accept(&store, "1").await }
    });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!accepting.is_finished());
    store.commit(tx).await.expect("commit");
    assert!(matches!(accepting.await.expect("no panic").expect("accept"), Accepted::First(_)));
}

/// A handler that requests its transaction and then uses the inbox waits for itself. The wait must end.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_waits_for_itself_is_told_so() {
    let file = TestFile::new();
    let store = file.options().busy_timeout(Duration::ZERO).open().expect("the file opens");
    let tx = store.begin().await.expect("begin");
    let inside =
        async { (accept(&store, "1").await.expect_err("locked"), store.begin().await.expect_err("locked")) };
    let (accepted, begun) = tokio::time::timeout(Duration::from_mins(3), inside).await.expect("it ends");
    for error in [accepted, begun] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("transaction of this process has been open"), "{error}");
    }
    store.commit(tx).await.expect("commit");
    first(&store, "1").await;
}

// FAULTS C2
#[tokio::test(flavor = "multi_thread")]
async fn a_panic_rolls_back_and_frees_the_way() {
    let (file, store) = shop();
    let panicking = tokio::spawn({
        let store = store.clone();
        async move {
            let tx = store.begin().await.expect("begin");
            ship(&tx, "1");
            panic!("a handler that panics");
        }
    });
    assert!(panicking.await.expect_err("it panics").is_panic());
    assert_eq!(shipments(&file), 0);
    first(&store, "1").await;
    store.commit(store.begin().await.expect("begin")).await.expect("commit");
}

#[tokio::test]
async fn marks_and_completions_of_one_transaction_share_its_fate() {
    let (file, store) = shop();
    let mut tx = store.begin().await.expect("begin");
    let mark = store.mark(&mut tx, &inbox(), &key("1"), &handler("h"), None).await.expect("mark");
    assert_eq!(mark, Mark::First);
    drop(tx);
    assert_eq!(file.count("oncebox_mark"), 0);
}
