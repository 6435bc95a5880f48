//! Connections whose user stopped halfway: none keeps a transaction open, and none passes one to the next user.

mod support;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use oncebox::state::{Settlement, Status};
use oncebox::store::{RenewParams, Renewed, SettleIn as _, Settled, Store as _, Transactional as _};
use oncebox::{BoxError, Context, ErrorKind, Inbox, Message, handler};
use oncebox_postgres::sqlx::{Connection as _, PgConnection, query_scalar};
use oncebox_postgres::{Postgres, PostgresTx};
use support::{
    LEASE, Schema, claim, claim_one, claim_params, first, in_time, message, offer, pid, run, ship, status,
};

/// Polls a future `polls` times, then drops it.
async fn cut<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Opens a store whose sessions are distinguishable from those of other tests.
async fn shop(schema: &Schema) -> Postgres {
    schema.run(&format!("CREATE ROLE {} LOGIN SUPERUSER", schema.name)).await;
    let url = schema.url().replace("oncebox@", &format!("{}@", schema.name));
    let options = Postgres::options(&url).expect("a good URL").schema(&schema.name).handler_connections(4);
    schema.shop_with(options).await
}

fn idle_in_transaction(schema: &Schema) -> String {
    let whose = format!("FROM pg_stat_activity WHERE usename = '{}'", schema.name);
    format!("NOT EXISTS (SELECT 1 {whose} AND state LIKE 'idle in transaction%')")
}

/// Drops the role together with the tables.
async fn clean(schema: &Schema, store: Postgres) {
    drop(store);
    schema.run(&format!("REASSIGN OWNED BY {0} TO oncebox; DROP ROLE {0}", schema.name)).await;
}

// FAULTS C6: if a driver returns a connection inside a transaction, the next user writes into that transaction.
#[tokio::test(flavor = "multi_thread")]
async fn begins_that_are_given_up_leave_no_transaction_open() {
    let schema = Schema::shared();
    let store = shop(&schema).await;
    for round in 0..300 {
        drop(cut(store.begin(), round % 7).await);
        if round % 10 == 0 {
            // Uncommitted writes of the next borrower are lost, on every connection that it can get.
            let mut tx = store.begin().await.expect("begin");
            ship(&schema, &mut tx, "dropped").await;
            drop(cut(tx.begin(), round % 3).await);
            drop(tx);
        }
    }
    let mut tx = store.begin().await.expect("begin");
    ship(&schema, &mut tx, "kept").await;
    store.commit(tx).await.expect("commit");
    schema.wait_for(&idle_in_transaction(&schema)).await;
    assert_eq!(schema.count("@shipment").await, 1);
    clean(&schema, store).await;
}

// FAULTS C6
#[tokio::test(flavor = "multi_thread")]
async fn verbs_that_are_given_up_leave_no_transaction_open_and_nothing_half_done() {
    let schema = Schema::shared();
    let store = shop(&schema).await;
    first(&store, "0").await;
    for round in 0..100_usize {
        let polls = round % 6;
        let ordered = support::offer_ordered(&format!("o{round}"), "k");
        let batch = [offer(&round.to_string()), ordered];
        drop(cut(store.accept(&batch), polls).await);
        if let Some(Ok(claimed)) = cut(store.claim(&claim_params(3)), polls).await {
            let done: Vec<_> = claimed.iter().map(|claimed| Settlement::done(&claimed.claim)).collect();
            drop(cut(store.settle(&done), polls).await);
            let claims = claimed.into_iter().map(|claimed| claimed.claim).collect();
            drop(cut(store.renew(&RenewParams::new(claims, LEASE)), polls).await);
        }
        drop(cut(store.rescue(&support::rescue_params()), polls).await);
    }
    first(&store, "last").await;
    schema.wait_for(&idle_in_transaction(&schema)).await;
    schema.check().await;
    clean(&schema, store).await;
}

/// Released before the lease ends, and without a crash count: no worker ran it.
#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_claim_is_released_at_once() {
    let schema = Schema::shared();
    let store = schema.shop().await;
    first(&store, "1").await;
    // The claim waits for a lock, so that it certainly runs when it is cancelled.
    let mut other = schema.connect().await;
    run(&mut other, &schema.sql("BEGIN; LOCK TABLE @entry IN ACCESS EXCLUSIVE MODE")).await.expect("a lock");
    let blocker = pid(&mut other).await;
    let claiming = tokio::spawn({
        let store = store.clone();
        async move { store.claim(&claim_params(10)).await }
    });
    let blocked =
        format!("EXISTS (SELECT 1 FROM pg_stat_activity WHERE {blocker} = ANY (pg_blocking_pids(pid)))");
    schema.wait_for(&blocked).await;
    claiming.abort();
    assert!(claiming.await.expect_err("given up").is_cancelled());
    run(&mut other, "ROLLBACK").await.expect("it ends");
    schema
        .wait_for("EXISTS (SELECT 1 FROM @scheduled WHERE token > 0) AND NOT EXISTS (SELECT 1 FROM @entry)")
        .await;
    let claimed = claim_one(&store).await;
    assert_eq!((claimed.claim.attempts, claimed.claim.suspicion.stored()), (0, 0));
}

// FAULTS E6
#[tokio::test(flavor = "multi_thread")]
async fn handlers_that_hold_all_their_connections_do_not_stop_the_store() {
    let schema = Schema::shared();
    let patience = Duration::from_secs(2);
    let options = schema.options().handler_connections(2).patience(patience);
    let store = schema.shop_with(options).await;
    first(&store, "1").await;
    let claimed = claim_one(&store).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut tx = store.begin().await.expect("begin");
        ship(&schema, &mut tx, "held").await;
        held.push(tx);
    }
    let error = in_time(store.begin()).await.expect_err("all are in use");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("for handlers stayed in use"), "{error}");
    let renewed = store.renew(&RenewParams::new(vec![claimed.claim.clone()], LEASE)).await.expect("renew");
    assert_eq!(renewed, [Renewed::Extended]);
    first(&store, "2").await;
    assert_eq!(claim(&store, 10).await.len(), 1);
    let settled = store.settle(&[Settlement::done(&claimed.claim)]).await.expect("settle");
    assert_eq!(settled, [Settled::Applied]);
    // As soon as one is free, the waiting caller gets it.
    let (begun, ()) = in_time(async {
        tokio::join!(store.begin(), async {
            tokio::task::yield_now().await;
            held.pop();
        })
    })
    .await;
    store.commit(begun.expect("begin")).await.expect("commit");
}

/// A waiting caller gets a transaction that began with the last commit, and no other state.
// FAULTS C6
#[tokio::test]
async fn a_connection_that_is_handed_on_brings_a_transaction_of_its_own() {
    let schema = Schema::shared();
    let store = schema.shop_with(schema.options().handler_connections(1)).await;
    let mut first = store.begin().await.expect("begin");
    run(&mut first, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; SET LOCAL work_mem = '7MB'")
        .await
        .expect("a setting");
    ship(&schema, &mut first, "1").await;
    let (session, transaction) = (pid(&mut first).await, xid(&mut first).await);
    let (second, committed) = in_time(async { tokio::join!(store.begin(), store.commit(first)) }).await;
    committed.expect("commit");
    let mut second = second.expect("begin");
    assert_eq!(pid(&mut second).await, session);
    assert_ne!(xid(&mut second).await, transaction);
    assert_eq!(schema.count("@shipment").await, 1, "the first is committed");
    for (setting, value) in [("transaction_isolation", "read committed"), ("work_mem", "4MB")] {
        assert_eq!(setting_of(&mut second, setting).await, value);
    }
    ship(&schema, &mut second, "2").await;
    drop(second);
    let third = store.begin().await.expect("begin");
    store.commit(third).await.expect("commit");
    assert_eq!(schema.count("@shipment").await, 1, "the second was dropped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_without_a_waiting_caller_is_not_left_open() {
    let schema = Schema::shared();
    let store = shop(&schema).await;
    for polls in 0..200 {
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(store.begin().await.expect("begin"));
        }
        let commits = futures_util::future::join_all(held.into_iter().map(|tx| store.commit(tx)));
        let waiting = futures_util::future::join_all((0..4).map(|_| cut(store.begin(), 1 + polls % 4)));
        let (committed, begun) = in_time(async { tokio::join!(commits, waiting) }).await;
        for commit in committed {
            commit.expect("commit");
        }
        drop(begun);
    }
    schema.wait_for(&idle_in_transaction(&schema)).await;
    clean(&schema, store).await;
}

async fn xid(connection: &mut PgConnection) -> String {
    let xid = query_scalar("SELECT pg_current_xact_id()::text");
    xid.fetch_one(connection).await.expect("a number")
}

async fn setting_of(connection: &mut PgConnection, name: &str) -> String {
    let setting = query_scalar("SELECT current_setting($1)").bind(name.to_owned());
    setting.fetch_one(connection).await.expect("a setting")
}

/// Returns a running claim, and its transaction with a shipment.
async fn running(schema: &Schema, store: &Postgres) -> (oncebox::store::Claim, PostgresTx) {
    first(store, "1").await;
    let claim = claim_one(store).await.claim;
    let mut tx = store.begin().await.expect("begin");
    ship(schema, &mut tx, "1").await;
    (claim, tx)
}

async fn assert_not_done(schema: &Schema, store: &Postgres) {
    assert_eq!((schema.count("@shipment").await, status(store, "1").await), (0, Some(Status::Running)));
    // The connection is clean.
    let tx = store.begin().await.expect("begin");
    store.commit(tx).await.expect("commit");
}

#[tokio::test]
async fn a_handler_that_leaves_a_transaction_open_within_its_own_is_not_completed() {
    let schema = Schema::shared();
    let store = schema.shop_with(schema.options().handler_connections(1)).await;
    let (claim, mut tx) = running(&schema, &store).await;
    let mut nested = tx.begin().await.expect("a savepoint");
    ship(&schema, &mut nested, "2").await;
    // It is never dropped, so its transaction does not end.
    std::mem::forget(nested);
    assert_eq!(store.complete(&mut tx, &claim).await.expect("complete"), Settled::Applied);
    let error = store.commit(tx).await.expect_err("half of it may be meant to be undone");
    assert_eq!(error.kind(), ErrorKind::Handler, "{error}");
    assert_not_done(&schema, &store).await;
}

#[tokio::test]
async fn a_transaction_that_a_handler_dropped_within_its_own_is_undone_alone() {
    let schema = Schema::shared();
    let store = schema.shop().await;
    let (claim, mut tx) = running(&schema, &store).await;
    let mut nested = tx.begin().await.expect("a savepoint");
    ship(&schema, &mut nested, "2").await;
    drop(nested);
    assert_eq!(store.complete(&mut tx, &claim).await.expect("complete"), Settled::Applied);
    store.commit(tx).await.expect("commit");
    assert_eq!(schema.count("@shipment").await, 1);
    assert_eq!(status(&store, "1").await, Some(Status::Completed));
}

// FAULTS C7: the COMMIT of an aborted transaction is a rollback that looks like a success.
#[tokio::test]
async fn a_handler_that_swallows_an_error_is_not_completed() {
    let schema = Schema::shared();
    let store = schema.shop().await;
    let (claim, mut tx) = running(&schema, &store).await;
    run(&mut tx, "SELECT 1 / 0").await.expect_err("an error that is ignored");
    let error = store.complete(&mut tx, &claim).await.expect_err("its writes are gone");
    assert_eq!(error.kind(), ErrorKind::Handler, "{error}");
    drop(tx);
    assert_not_done(&schema, &store).await;

    // The same after the completion, and for a transaction with only a mark.
    let mut tx = store.begin().await.expect("begin");
    assert_eq!(store.complete(&mut tx, &claim).await.expect("complete"), Settled::Applied);
    run(&mut tx, "SELECT 1 / 0").await.expect_err("an error that is ignored");
    let error = store.commit(tx).await.expect_err("its writes are gone");
    assert_eq!(error.kind(), ErrorKind::Handler, "{error}");
    assert_not_done(&schema, &store).await;
}

// FAULTS C8: no driver can keep a handler from sending these statements.
#[tokio::test]
async fn a_handler_that_ends_the_transaction_itself_is_not_completed() {
    let schema = Schema::shared();
    let store = schema.shop().await;
    first(&store, "1").await;
    let claim = claim_one(&store).await.claim;
    for sql in ["ROLLBACK", "COMMIT", "ROLLBACK; BEGIN", "COMMIT AND CHAIN"] {
        let mut tx = store.begin().await.expect("begin");
        run(&mut tx, sql).await.expect("it is allowed to the server");
        let error = store.complete(&mut tx, &claim).await.expect_err(sql);
        assert_eq!(error.kind(), ErrorKind::TransactionEnded, "{sql}: {error}");
        drop(tx);
        assert_not_done(&schema, &store).await;
    }
}

/// End of a shared transaction, and the runs so far.
struct Ending {
    schema: Schema,
    sql: &'static str,
    ran: Mutex<Vec<String>>,
}

/// Ships. The third run ends the transaction.
async fn ship_and_end(message: Message, cx: &mut Context<Postgres>) -> Result<(), BoxError> {
    let ending = cx.data::<Arc<Ending>>()?;
    let id = String::from_utf8_lossy(message.id()).into_owned();
    let tx = cx.tx().await?;
    ship(&ending.schema, tx, &id).await;
    let ran = {
        let mut ran = ending.ran.lock().expect("no holder panicked");
        ran.push(id);
        ran.len()
    };
    if ran == 3 {
        run(tx, ending.sql).await?;
    }
    Ok(())
}

// FAULTS C8
#[tokio::test]
async fn those_whose_shared_transaction_was_ended_are_not_run_again() {
    let ends = ["COMMIT", "COMMIT AND CHAIN", "COMMIT; BEGIN", "ROLLBACK"];
    // With and without messages after the one that ends the transaction.
    for (sql, messages) in ends.into_iter().flat_map(|sql| [(sql, 5), (sql, 3)]) {
        let ending = Arc::new(Ending { schema: Schema::shared(), sql, ran: Mutex::default() });
        let inbox = Inbox::builder("orders", ending.schema.shop().await).data(Arc::clone(&ending));
        let inbox = inbox.on("order.placed", handler("h", ship_and_end).share_commit(64)).build();
        let inbox = inbox.expect("an inbox");
        for n in 0..messages {
            inbox.accept(message(&n.to_string())).await.expect("accept");
        }
        let running = inbox.start();
        in_time(running.idle()).await;
        running.shutdown().await;
        let doubled = "SELECT count(*) - count(DISTINCT id) FROM @shipment";
        assert_eq!(ending.schema.number(doubled).await, 0, "{sql}");
        let ran = ending.ran.lock().expect("no holder panicked").clone();
        for id in &ran[..3] {
            let status = status(inbox.store(), id).await;
            assert_eq!(status, Some(Status::Poisoned), "{sql}: {id} may be committed");
        }
    }
}

/// The server ends a session that is idle in a transaction for too long. Its lock is free then.
// FAULTS E8
#[tokio::test]
async fn a_handler_that_sleeps_in_its_transaction_is_ended_by_the_server() {
    let schema = Schema::shared();
    let store = schema.shop_with(schema.options().idle_handlers(Duration::from_millis(50))).await;
    let (claim, mut tx) = running(&schema, &store).await;
    let session = pid(&mut tx).await;
    schema.wait_for(&format!("NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = {session})")).await;
    let error = store.complete(&mut tx, &claim).await.expect_err("its session is gone");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    drop(tx);
    assert_not_done(&schema, &store).await;
}

/// Another client's connection inherits nothing, either.
#[tokio::test]
async fn a_store_that_is_dropped_closes_its_connections() {
    let schema = Schema::shared();
    let store = shop(&schema).await;
    first(&store, "1").await;
    let mut wakeup = store.wakeups().expect("it has some").subscribe();
    in_time(wakeup.woken()).await;
    let running: Arc<str> =
        format!("SELECT count(*) FROM pg_stat_activity WHERE usename = '{}'", schema.name).into();
    assert!(schema.number(&running).await > 0);
    drop(store);
    schema.wait_for(&format!("({running}) = 0")).await;
    let mut other: PgConnection = schema.connect().await;
    run(&mut other, &format!("REASSIGN OWNED BY {0} TO oncebox; DROP ROLE {0}", schema.name))
        .await
        .expect("a role");
}
