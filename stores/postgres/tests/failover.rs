//! Failovers: fences never go back for a handler, and the store reports the losses of an asynchronous failover.

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use oncebox::store::{
    Accepted, Claimed, Examine, ExamineParams, Failover, Migrate as _, RegisterParams, Severity, Store as _,
};
use oncebox::time::Timestamp;
use oncebox::{Error, HealthStatus, Inbox};
use oncebox_postgres::Postgres;
use oncebox_servers::{Cluster, PostgresVersion};
use support::{Schema, accept, claim_params, first, in_time, inbox, offer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// An address that stays the same during a failover.
struct FailoverAddress {
    port: u16,
    leads_to: Arc<AtomicU16>,
    moved: watch::Sender<()>,
}

impl FailoverAddress {
    async fn of(cluster: &Cluster) -> Self {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let leads_to = Arc::new(AtomicU16::new(cluster.port()));
        let (moved, moves) = watch::channel(());
        let target = Arc::clone(&leads_to);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (target, mut moves) = (Arc::clone(&target), moves.clone());
                moves.mark_unchanged();
                tokio::spawn(async move {
                    let to = SocketAddr::from(([127, 0, 0, 1], target.load(Ordering::Relaxed)));
                    let Ok(mut server) = TcpStream::connect(to).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        _ = moves.changed() => {}
                    }
                });
            }
        });
        Self { port, leads_to, moved }
    }

    fn lead_to(&self, cluster: &Cluster) {
        self.leads_to.store(cluster.port(), Ordering::Relaxed);
        self.moved.send_replace(());
    }
}

/// Repeats a call until an outage ends.
async fn persist<T>(mut call: impl AsyncFnMut() -> Result<T, Error>) -> T {
    in_time(async {
        loop {
            match call().await {
                Ok(answer) => return answer,
                Err(error) => assert!(error.is_retryable(), "{error:?}"),
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

async fn claim_some(store: &Postgres, limit: usize) -> Vec<Claimed> {
    let params = claim_params(limit);
    persist(async || store.claim(&params).await).await
}

fn tokens(claimed: &[Claimed]) -> Vec<i64> {
    claimed.iter().map(|one| one.claim.token.0).collect()
}

/// A primary, its asynchronous replica, and a store that follows the failover.
struct ReplicatedPair {
    primary: Cluster,
    replica: Cluster,
    address: FailoverAddress,
    schema: Schema,
    store: Postgres,
}

impl ReplicatedPair {
    async fn start() -> Self {
        let primary = Cluster::start(PostgresVersion::Debian).expect("the server obeys");
        let schema = Schema::on(&primary);
        let replica = primary.replica().expect("the server obeys");
        let address = FailoverAddress::of(&primary).await;
        let url =
            primary.url("postgres").replace(&format!(":{}/", primary.port()), &format!(":{}/", address.port));
        let options = Postgres::options(&url).expect("a good URL").schema(&schema.name).checks(true);
        let store = options.open().await.expect("the store opens");
        Self { primary, replica, address, schema, store }
    }

    /// Stops the replication.
    fn cut(&self) {
        self.replica.wait_for_replay(&self.primary).expect("the server obeys");
        self.replica.configure("primary_conninfo", "").expect("the server obeys");
        let gone = "not exists (select from pg_stat_replication)";
        self.primary.wait_for("postgres", gone).expect("the server obeys");
    }

    fn fail_over(&self) {
        self.primary.kill9().expect("the server obeys");
        self.replica.promote().expect("the server obeys");
        self.address.lead_to(&self.replica);
    }

    async fn findings(&self, code: &str) -> Option<Severity> {
        let now = Timestamp::from_millis(self.now());
        let findings = self.store.examine(&ExamineParams::new(inbox(), now)).await.expect("examine");
        findings.iter().find(|finding| finding.code == code).map(|finding| finding.severity)
    }

    fn now(&self) -> i64 {
        let text = self.replica.sql("postgres", "select (extract(epoch from now()) * 1000)::bigint");
        text.expect("the server obeys").parse().expect("a number")
    }

    /// Returns the health that an inbox on this store reports for the failover.
    fn health(&self) -> Option<HealthStatus> {
        let health = Inbox::builder("orders", self.store.clone()).build().expect("an inbox").health();
        health.checks.iter().find(|check| &*check.name == "failover").map(|check| check.status)
    }
}

// FAULTS B4, E1: an asynchronous replica takes over, and lacks the latest commits.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_that_lost_history_is_reported_and_no_fence_goes_back() {
    let pair = ReplicatedPair::start().await;
    let ReplicatedPair { store, replica, .. } = &pair;
    first(store, "kept").await;
    assert_eq!(claim_some(store, 1).await.len(), 1);
    pair.cut();
    let mut greatest = 0;
    for id in 0..50 {
        first(store, &format!("lost-{id}")).await;
        greatest = tokens(&claim_some(store, 1).await)[0].max(greatest);
    }
    pair.fail_over();

    let again = persist(async || accept(store, "lost-0").await).await;
    assert!(matches!(again, Accepted::First(_)), "the new primary does not know it: {again:?}");
    let claimed = claim_some(store, 1).await;
    assert!(tokens(&claimed)[0] > greatest, "{:?} after {greatest}", tokens(&claimed));

    let failover: Failover = store.failover().expect("it was noticed");
    // One of them was accepted again, perhaps before the store searched for it.
    assert!((49..=50).contains(&failover.lost_messages), "{failover}");
    assert!(failover.lost_claims > 0 && failover.lost_between.is_some(), "{failover}");
    let named = pair.schema.sql("SELECT cardinality(lost_ids) FROM @timeline");
    assert_eq!(replica.sql("postgres", &named).expect("a row"), failover.lost_messages.to_string());
    let of_one =
        pair.schema.sql("SELECT 'lost-7' = ANY (lost_ids) AND NOT 'kept' = ANY (lost_ids) FROM @timeline");
    assert_eq!(replica.sql("postgres", &of_one).expect("a row"), "t", "it is named");
    assert_eq!(pair.findings("failover_lost_history").await, Some(Severity::Danger));
    assert_eq!(pair.health(), Some(HealthStatus::Degraded));
    // A process that starts later knows of it, too.
    let url = replica.url("postgres");
    let later = Postgres::options(&url).expect("a good URL").schema(&pair.schema.name).open().await;
    assert_eq!(later.expect("it opens").failover(), Some(failover));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_that_lost_nothing_is_no_alarm() {
    let pair = ReplicatedPair::start().await;
    let ReplicatedPair { store, .. } = &pair;
    first(store, "1").await;
    let claimed = claim_some(store, 1).await;
    assert_eq!(store.failover(), None);
    pair.replica.wait_for_replay(&pair.primary).expect("the server obeys");
    pair.fail_over();
    let known = persist(async || accept(store, "1").await).await;
    assert!(matches!(known, Accepted::Duplicate(_)), "{known:?}");
    persist(async || accept(store, "2").await).await;
    let later = claim_some(store, 1).await;
    assert!(tokens(&later) > tokens(&claimed));
    let failover = store.failover().expect("it was noticed");
    assert!(!failover.lost_history(), "{failover}");
    assert_eq!(pair.findings("failover").await, Some(Severity::Info));
    assert_eq!(pair.health(), Some(HealthStatus::Healthy));
}

/// Without a moving address, the store searches for the primary among the hosts of its URL.
#[tokio::test(flavor = "multi_thread")]
async fn of_several_hosts_the_store_finds_the_primary() {
    let primary = Cluster::start(PostgresVersion::Debian).expect("the server obeys");
    let schema = Schema::on(&primary);
    let replica = primary.replica().expect("the server obeys");
    let host = format!("127.0.0.1:{}/", primary.port());
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}/", replica.port(), primary.port());
    let url = format!("{}?target_session_attrs=read-write", primary.url("postgres").replace(&host, &hosts));
    let options = Postgres::options(&url).expect("a good URL").schema(&schema.name).checks(true);
    let store = options.clone().open().await.expect("the second host is the primary");
    first(&store, "1").await;
    let before = tokens(&claim_some(&store, 1).await);
    replica.wait_for_replay(&primary).expect("the server obeys");
    primary.kill9().expect("the server obeys");
    let error = options.open().await.expect_err("one is gone, the other a standby");
    assert!(error.is_retryable() && error.what().contains("a standby"), "{error:?}");
    replica.promote().expect("the server obeys");
    persist(async || accept(&store, "2").await).await;
    let after = tokens(&claim_some(&store, 1).await);
    assert!(after > before, "{after:?} after {before:?}");
    assert!(store.failover().is_some(), "it was noticed");
}

// FAULTS E23
/// A restored copy on the same server has the same timeline, but a live process knows the tokens of its claims.
#[tokio::test]
async fn tokens_that_went_back_go_on_in_a_new_epoch() {
    let schema = Schema::shared();
    let store = schema.options().open().await.expect("the store opens");
    for id in ["1", "2", "3"] {
        first(&store, id).await;
    }
    let before = tokens(&claim_some(&store, 2).await);
    // Each claim has taken a token. An earlier copy would have this value.
    schema.run("SELECT setval('@token', 1, false)").await;
    terminate(&schema).await;
    let after = tokens(&claim_some(&store, 1).await);
    assert!(after[0] > before[0] && after[0] >> 40 == 1, "{after:?} after {before:?}");
    assert!(store.failover().expect("it was noticed").lost_claims > 0);
    // The store stays on this host.
    terminate(&schema).await;
    first(&store, "4").await;
    assert_eq!(tokens(&claim_some(&store, 1).await)[0], after[0] + 1);
}

/// Ends the sessions of claims.
async fn terminate(schema: &Schema) {
    let sessions = format!(
        "FROM pg_stat_activity WHERE application_name = 'oncebox control' AND query LIKE '%\"{}\"%'",
        schema.name
    );
    schema.run(&format!("SELECT pg_terminate_backend(pid) {sessions}")).await;
    schema.wait_for(&format!("NOT EXISTS (SELECT {sessions})")).await;
}

/// Behind a pooler, a change of the server ends no connection, so each claim checks.
#[tokio::test]
async fn behind_a_pooler_each_claim_checks_the_timeline() {
    let schema = Schema::pooled();
    let store = schema.options().open().await.expect("the store opens");
    first(&store, "1").await;
    first(&store, "2").await;
    let before = tokens(&claim_some(&store, 1).await);
    schema.run("UPDATE @meta SET timeline = 'another/1'").await;
    let after = tokens(&claim_some(&store, 1).await);
    assert!(after[0] > before[0] && after[0] >> 40 > 0, "{after:?} after {before:?}");
    assert_eq!(store.failover().map(|failover| failover.lost_history()), Some(false));
}

/// Changes the history of the database, and ends every session.
async fn fail_over_to_another(schema: &Schema) {
    schema.run("UPDATE @meta SET timeline = 'another/1'").await;
    let sessions = format!(
        "FROM pg_stat_activity WHERE application_name LIKE 'oncebox %' AND query LIKE '%{}%'
         AND pid <> pg_backend_pid()",
        schema.name
    );
    schema.run(&format!("SELECT pg_terminate_backend(pid) {sessions}")).await;
    schema.wait_for(&format!("NOT EXISTS (SELECT {sessions})")).await;
}

/// Losses are counted once, though the first check fails halfway.
#[tokio::test]
async fn a_report_that_fails_halfway_counts_nothing_twice() {
    let schema = Schema::shared();
    schema.options().apply().await.expect("apply");
    let role = format!("{}_app", schema.name);
    let grants = schema.options().grants_sql(&role).expect("what to grant");
    schema.run(&format!("CREATE ROLE {role} LOGIN; {grants}")).await;
    let url = schema.url().replacen("oncebox@", &format!("{role}@"), 1);
    let store = Postgres::options(&url).expect("a good URL").schema(&schema.name).open().await;
    let store = store.expect("the store opens");
    first(&store, "lost").await;
    schema.run("DELETE FROM @proof").await;
    let columns = "epoch, lost_marks, lost_messages, lost_sources, lost_ids, lost_from, lost_until, unnamed, unnamed_since";
    // Enough privileges for the report, but not for the query after it.
    schema
        .run(&format!(
            "REVOKE SELECT ON @timeline FROM {role}; GRANT SELECT ({columns}) ON @timeline TO {role}"
        ))
        .await;
    fail_over_to_another(&schema).await;
    for _ in 0..2 {
        accept(&store, "2").await.expect_err("the failover cannot be read");
    }
    schema.run(&format!("GRANT SELECT ON @timeline TO {role}")).await;
    persist(async || accept(&store, "2").await).await;
    assert_eq!(store.failover().expect("it was noticed").lost_messages, 1);
    drop(store);
    schema.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

/// Name ids that a call read before a failover are void after it, also if another connection noticed it.
#[tokio::test]
async fn messages_that_waited_for_a_connection_go_to_their_handler_after_a_failover() {
    for schema in [Schema::shared(), Schema::pooled()] {
        let store = schema.options().open().await.expect("the store opens");
        first(&store, "1").await;
        assert_eq!(claim_some(&store, 1).await.len(), 1);
        // The new history gave the handler's id to another handler.
        schema.run("UPDATE @handler SET key = 'other', origin = 'other'").await;
        schema.run("UPDATE @handler_key SET key = 'other'").await;
        fail_over_to_another(&schema).await;
        let ids = ["2", "3", "4", "5"];
        let one = &store;
        let accepted = ids.map(|id| persist(async move || accept(one, id).await));
        futures_util::future::join_all(accepted).await;
        let of = |key: &str| {
            format!("@entry e JOIN @handler_key k ON k.handler = e.handler WHERE k.key = '{key}'")
        };
        assert_eq!((schema.count(&of("h")).await, schema.count(&of("other")).await), (4, 1));
    }
}

/// A message that retention deleted was not lost.
#[tokio::test]
async fn what_may_have_left_with_its_window_is_not_reported_as_lost() {
    let schema = Schema::shared();
    let store = schema.options().open().await.expect("the store opens");
    // Another process registers the windows: a process that only accepts does not know them.
    let worker = schema.options().open().await.expect("the store opens");
    let window = std::time::Duration::from_millis(1);
    worker.register(&RegisterParams::new(inbox(), window)).await.expect("register");
    drop(worker);
    first(&store, "waits").await;
    first(&store, "left").await;
    schema.run("DELETE FROM @proof p USING @message m WHERE m.seq = p.seq AND m.id = 'left'").await;
    fail_over_to_another(&schema).await;
    persist(async || accept(&store, "3").await).await;
    assert!(!store.failover().expect("it was noticed").lost_history());
}

/// The report counts the messages that a process no longer knows by name, if all that it knows are lost.
#[tokio::test]
async fn losses_beyond_the_memory_are_reported_by_number() {
    const COUNT: usize = 66_000;
    for all in [true, false] {
        let schema = Schema::shared();
        let store = schema.options().open().await.expect("the store opens");
        for chunk in (0..COUNT).collect::<Vec<_>>().chunks(6_000) {
            let offers: Vec<_> = chunk.iter().map(|number| offer(&number.to_string())).collect();
            store.accept(&offers).await.expect("accept");
        }
        let oldest = if all { "" } else { " p USING @message m WHERE m.seq = p.seq AND m.id <> '1000'" };
        schema.run(&format!("DELETE FROM @proof{oldest}")).await;
        fail_over_to_another(&schema).await;
        // The first claim of this store needs a new connection, which the store checks.
        persist(async || store.claim(&claim_params(1)).await).await;
        let failover = store.failover().expect("it was noticed");
        let unnamed = if all { COUNT as u64 - 65_536 } else { 0 };
        assert_eq!((failover.unnamed, failover.unnamed_since.is_some()), (unnamed, all), "{failover}");
        let text = failover.to_string();
        assert_eq!(text.contains("464 more acknowledged since"), all, "{text}");
        let finding = failover.finding(failover.noticed_at).expect("it is new");
        assert_eq!((finding.code, finding.what), ("failover_lost_history", text));
    }
}
