//! Commits whose answer is lost: the store reports an unknown outcome, and a repeat of the call finds out.
//!
//! A commit that waits for a missing replica is stored, but not answered. If the test then ends its session, only the
//! answer is lost.

mod support;

use std::time::{Duration, Instant};

use oncebox::state::{Settlement, Status};
use oncebox::store::{Accepted, SettleIn as _, Settled, Store as _, Transactional as _};
use oncebox::{Error, ErrorKind};
use oncebox_postgres::sqlx;
use oncebox_servers::{Cluster, PostgresVersion};
use support::{
    Schema, accept, claim_one, claim_params, first, in_time, offer_ordered, rescue_params, run, ship, status,
};

/// A server whose commits can be made to hang.
struct HangingServer {
    cluster: Cluster,
    schema: Schema,
}

const HANGS: &str = "from pg_stat_activity where wait_event = 'SyncRep'";

impl HangingServer {
    fn start() -> Self {
        let cluster =
            Cluster::builder(PostgresVersion::Debian).durable(true).start().expect("the server obeys");
        let schema = Schema::on(&cluster);
        Self { cluster, schema }
    }

    /// Makes commits wait for a replica that does not exist.
    async fn hang(&self) {
        self.cluster.configure("synchronous_standby_names", "ghost").expect("the server obeys");
        // The server applies a setting with a delay. Wait until a commit hangs.
        let mut other = self.schema.connect().await;
        let probe = tokio::spawn(async move {
            run(&mut other, "create table if not exists probe (a int)").await?;
            loop {
                run(&mut other, "insert into probe values (1)").await?;
            }
        });
        self.cut("");
        let ended: sqlx::Result<()> = probe.await.expect("no panic");
        ended.expect_err("its session was ended");
    }

    /// Waits until a commit hangs, and ends its session.
    fn cut(&self, name: &str) {
        let whose = format!("{HANGS} and application_name like '{name}%'");
        self.cluster.wait_for("postgres", &format!("exists (select {whose})")).expect("the server obeys");
        self.cluster
            .sql("postgres", &format!("select pg_terminate_backend(pid) {whose}"))
            .expect("the server obeys");
    }

    fn mend(&self) {
        self.cluster.configure("synchronous_standby_names", "").expect("the server obeys");
    }

    /// Makes a call whose commit hangs, ends the session of this name, and returns the caller's error.
    async fn lose<T: std::fmt::Debug + Send + 'static>(
        &self,
        name: &str,
        call: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Error {
        self.hang().await;
        let call = tokio::spawn(call);
        self.cut(name);
        let error = in_time(call).await.expect("no panic").expect_err("its answer was lost");
        self.mend();
        error
    }
}

fn assert_unknown(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::CommitUnknown, "{error:?}");
    let text = error.to_string();
    assert!(text.contains("not known") && text.contains("repeat the call"), "{text}");
}

// FAULTS A4
#[tokio::test(flavor = "multi_thread")]
async fn an_accept_whose_answer_is_lost_is_a_duplicate_when_it_is_repeated() {
    let server = HangingServer::start();
    let store = server.schema.shop().await;
    first(&store, "0").await;
    let (other, id) = (store.clone(), "1");
    let error = server.lose("oncebox ingest", async move { accept(&other, id).await }).await;
    assert_unknown(&error);
    assert_eq!(server.schema.count("@proof").await, 2, "it was stored");
    let again = accept(&store, "1").await.expect("accept");
    assert!(matches!(again, Accepted::Duplicate(_)), "{again:?}");

    // An ordering key needs a transaction instead of one statement.
    let (other, batch) = (store.clone(), [offer_ordered("2", "k")]);
    let error = server.lose("oncebox ingest", async move { other.accept(&batch).await }).await;
    assert_unknown(&error);
    let again = store.accept(&[offer_ordered("2", "k")]).await.expect("accept")[0];
    assert!(matches!(again, Accepted::Duplicate(_)), "{again:?}");
    server.schema.check().await;
}

// FAULTS B3
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_answer_is_lost_is_found_by_its_id() {
    let server = HangingServer::start();
    let store = server.schema.shop().await;
    first(&store, "1").await;
    let params = claim_params(10);
    let (other, same) = (store.clone(), params.clone());
    let error = server.lose("oncebox control", async move { other.claim(&same).await }).await;
    assert_unknown(&error);
    assert_eq!(server.schema.count("@entry WHERE token IS NOT NULL").await, 1, "it was claimed");
    assert!(store.claim(&claim_params(10)).await.expect("claim").is_empty(), "and no other claim holds it");
    let claimed = store.claim(&params).await.expect("claim");
    let token = server.schema.number("SELECT token FROM @entry WHERE token IS NOT NULL").await;
    assert_eq!(claimed.iter().map(|claimed| claimed.claim.token.0).collect::<Vec<_>>(), [token]);
    let settled = store.settle(&[Settlement::done(&claimed[0].claim)]).await.expect("settle");
    assert_eq!(settled, [Settled::Applied]);
}

// FAULTS D2
#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_whose_answer_is_lost_is_applied_when_it_is_repeated() {
    let server = HangingServer::start();
    let store = server.schema.shop().await;
    first(&store, "1").await;
    let claimed = claim_one(&store).await;
    let settlement = [Settlement::done(&claimed.claim)];
    let (other, same) = (store.clone(), settlement.clone());
    let error = server.lose("oncebox control", async move { other.settle(&same).await }).await;
    assert_unknown(&error);
    assert_eq!(status(&store, "1").await, Some(Status::Completed));
    assert_eq!(store.settle(&settlement).await.expect("settle"), [Settled::Applied]);
    assert_eq!(server.schema.count("@outcome").await, 1);
    server.schema.check().await;
}

// FAULTS D2: the handler must not run again, and its claim must not stay open.
#[tokio::test(flavor = "multi_thread")]
async fn a_handlers_commit_whose_answer_is_lost_happened_once() {
    let server = HangingServer::start();
    let store = server.schema.shop().await;
    first(&store, "1").await;
    let claimed = claim_one(&store).await;
    let mut tx = store.begin().await.expect("begin");
    ship(&server.schema, &mut tx, "1").await;
    assert_eq!(store.complete(&mut tx, &claimed.claim).await.expect("complete"), Settled::Applied);
    let other = store.clone();
    let error = server.lose("oncebox handlers", async move { other.commit(tx).await }).await;
    assert_unknown(&error);
    assert_eq!(server.schema.count("@shipment").await, 1);
    assert_eq!(status(&store, "1").await, Some(Status::Completed));
    // A second run in its own transaction is refused: its writes would be applied twice.
    let mut tx = store.begin().await.expect("begin");
    ship(&server.schema, &mut tx, "1").await;
    assert_eq!(store.complete(&mut tx, &claimed.claim).await.expect("complete"), Settled::LeaseLost);
    drop(tx);
    assert_eq!(server.schema.count("@shipment").await, 1);
}

// FAULTS D2: the same if the completion is sent with the commit, because a caller waits for the connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_finished_and_whose_answer_is_lost_happened_once() {
    let server = HangingServer::start();
    let store = server.schema.shop_with(server.schema.options().handler_connections(1)).await;
    first(&store, "1").await;
    let claim = claim_one(&store).await.claim;
    let mut tx = store.begin().await.expect("begin");
    ship(&server.schema, &mut tx, "1").await;
    let (other, lost) = (store.clone(), claim.clone());
    let finish = async move { tokio::join!(other.begin(), other.finish(tx, &lost)).1 };
    let error = Box::pin(server.lose("oncebox handlers", finish)).await;
    assert_unknown(&error);
    assert_eq!(server.schema.count("@shipment").await, 1);
    assert_eq!(status(&store, "1").await, Some(Status::Completed));
    let mut tx = store.begin().await.expect("begin");
    ship(&server.schema, &mut tx, "1").await;
    assert_eq!(store.finish(tx, &claim).await.expect("finish"), Settled::LeaseLost);
    assert_eq!(server.schema.count("@shipment").await, 1);
}

// FAULTS A6: the server's own timeouts do not end a commit that waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_hangs_is_given_up_and_unknown() {
    const PATIENCE: Duration = Duration::from_secs(3);
    let server = HangingServer::start();
    let store = server.schema.shop_with(server.schema.options().patience(PATIENCE)).await;
    first(&store, "0").await;
    first(&store, "1").await;
    let claimed = store.claim(&claim_params(1)).await.expect("claim").remove(0);
    let mut tx = store.begin().await.expect("begin");
    ship(&server.schema, &mut tx, "0").await;
    assert_eq!(store.complete(&mut tx, &claimed.claim).await.expect("complete"), Settled::Applied);
    server.hang().await;
    let (start, params) = (Instant::now(), claim_params(1));
    let (accepted, claimed, committed) =
        in_time(async { tokio::join!(accept(&store, "2"), store.claim(&params), store.commit(tx)) }).await;
    assert!(start.elapsed() >= PATIENCE, "{:?}", start.elapsed());
    for error in [accepted.unwrap_err(), claimed.unwrap_err(), committed.unwrap_err()] {
        assert_unknown(&error);
    }
    server.mend();
    assert!(matches!(accept(&store, "2").await.expect("accept"), Accepted::Duplicate(_)));
    assert_eq!(store.claim(&params).await.expect("claim").len(), 1);
    assert_eq!(server.schema.count("@shipment").await, 1);
    server.schema.check().await;
}

/// A rescue is a write and a query: the store keeps the effect of the write if the query fails.
// FAULTS B3
#[tokio::test(flavor = "multi_thread")]
async fn a_rescue_that_cannot_be_read_back_is_unknown_and_found_by_its_id() {
    let schema = Schema::shared();
    let clock = oncebox_testkit::TestClock::new();
    let patience = Duration::from_secs(2);
    let store = schema.shop_with(schema.options().clock(clock.shared()).patience(patience)).await;
    first(&store, "1").await;
    claim_one(&store).await;
    clock.advance(support::PAST_LEASE);
    let mut other = schema.connect().await;
    run(&mut other, &schema.sql("BEGIN; LOCK TABLE @message IN ACCESS EXCLUSIVE MODE"))
        .await
        .expect("a lock");
    let params = rescue_params();
    let error = in_time(store.rescue(&params)).await.expect_err("the messages are locked");
    assert_unknown(&error);
    run(&mut other, "ROLLBACK").await.expect("it ends");
    let rescued = store.rescue(&params).await.expect("rescue");
    assert_eq!(rescued.len(), 1, "what was taken over is found again");
    let settled = store.settle(&[Settlement::done(&rescued[0].claim)]).await.expect("settle");
    assert_eq!(settled, [Settled::Applied]);
}
