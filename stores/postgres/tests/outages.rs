//! Servers that fail and return while an inbox runs: nothing is lost, and handlers' writes are stored once.

mod support;

use std::time::Duration;

use oncebox::store::{Accepted, Store as _, Transactional as _};
use oncebox::{Config, Context, ErrorKind, Inbox, Message, handler};
use oncebox_postgres::Postgres;
use oncebox_postgres::sqlx::{self, AssertSqlSafe};
use oncebox_servers::{Cluster, PostgresVersion};
use support::{Schema, accept, claim, first, in_time, message};

/// Statement of the handler, with the table's name.
struct Ship(String);

async fn ship(
    message: Message,
    cx: &mut Context<Postgres>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let sql = cx.data::<Ship>()?.0.clone();
    let id = String::from_utf8(message.id().to_vec())?;
    let tx = cx.tx().await?;
    sqlx::query(AssertSqlSafe(sql)).bind(id).execute(&mut **tx).await?;
    Ok(())
}

/// Leases last longer than any test: a test that needs one to expire fails by the clock.
fn inbox(schema: &Schema, store: Postgres) -> Inbox<Postgres> {
    let config = Config {
        poll: Duration::from_millis(100),
        restart: Duration::from_millis(100),
        lease: Duration::from_mins(10),
        ..Config::default()
    };
    let sql = Ship(schema.sql("INSERT INTO @shipment VALUES ($1)"));
    let shipping = handler("h", ship).concurrency(8).retry(oncebox::Retry::new(
        1_000,
        Duration::from_millis(20),
        Duration::from_millis(20),
    ));
    Inbox::builder("orders", store)
        .on("order.placed", shipping)
        .data(sql)
        .config(config)
        .build()
        .expect("an inbox")
}

/// Delivers like a broker: repeats until the message is accepted.
async fn deliver(inbox: Inbox<Postgres>, ids: std::ops::Range<usize>) -> usize {
    let mut failures = 0;
    for id in ids {
        while let Err(error) = inbox.accept(message(&id.to_string())).await {
            assert!(error.is_retryable(), "{error:?}");
            failures += 1;
            tokio::task::yield_now().await;
        }
    }
    failures
}

async fn assert_shipped_once(schema: &Schema, count: usize) {
    schema.wait_for(&format!("(SELECT count(*) FROM @outcome) >= {count}")).await;
    let count = i64::try_from(count).expect("a count");
    assert_eq!(schema.count("@outcome WHERE status = 'completed'").await, count);
    assert_eq!(schema.number("SELECT count(DISTINCT id) FROM @shipment").await, count, "nothing is lost");
    assert_eq!(schema.count("@shipment").await, count, "nothing is done twice");
    assert_eq!(
        schema.number("SELECT coalesce(sum(crashes), 0)::bigint FROM @outcome").await,
        0,
        "no lease ran out"
    );
    schema.check().await;
}

// FAULTS E4
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_storm_of_ended_sessions_loses_nothing_and_repeats_nothing() {
    const MESSAGES: usize = 400;
    let cluster = Cluster::start(PostgresVersion::Debian).expect("the server obeys");
    let schema = Schema::on(&cluster);
    let inbox = inbox(&schema, schema.shop().await);
    let running = inbox.start();
    let delivering = tokio::spawn(deliver(inbox.clone(), 0..MESSAGES));
    let mut storm = schema.connect().await;
    let end_one = "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity
                   WHERE application_name LIKE 'oncebox %' ORDER BY random() LIMIT 1) s";
    for ended in 0..150 {
        sqlx::query(end_one).execute(&mut storm).await.expect("the storm has a session of its own");
        // End the next session only after some work was done, so that the storm lasts as long as the work.
        schema.wait_for(&format!("(SELECT count(*) FROM @outcome) > {ended}")).await;
    }
    in_time(delivering).await.expect("no panic");
    assert_shipped_once(&schema, MESSAGES).await;
    in_time(running.shutdown()).await;
}

type Outage = fn(&Cluster) -> anyhow::Result<()>;

// FAULTS A15, E5
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_is_restarted_or_killed_goes_on_where_it_was() {
    let cluster = Cluster::start(PostgresVersion::Debian).expect("the server obeys");
    let schema = Schema::on(&cluster);
    let inbox = inbox(&schema, schema.shop().await);
    let running = inbox.start();
    let outages: [Outage; 3] = [Cluster::stop, Cluster::stop_immediate, Cluster::kill9];
    let mut delivered = 0;
    for outage in outages {
        let delivering = tokio::spawn(deliver(inbox.clone(), delivered..delivered + 150));
        delivered += 150;
        schema.wait_for(&format!("(SELECT count(*) FROM @proof) > {}", delivered - 100)).await;
        outage(&cluster).expect("the server obeys");
        cluster.start_again().expect("the server obeys");
        in_time(delivering).await.expect("no panic");
        assert_shipped_once(&schema, delivered).await;
    }
    in_time(running.shutdown()).await;
}

/// If many connections die while idle, the calls fail at most once in total.
// FAULTS E5
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_died_idle_are_no_storm_of_errors() {
    let cluster = Cluster::start(PostgresVersion::Debian).expect("the server obeys");
    let schema = Schema::on(&cluster);
    let store = schema.shop_with(schema.options().handler_connections(6)).await;
    first(&store, "0").await;
    for _ in 0..2 {
        let mut open = Vec::new();
        for _ in 0..6 {
            open.push(store.begin().await.expect("begin"));
        }
        for tx in open {
            store.commit(tx).await.expect("commit");
        }
        cluster.restart().expect("the server obeys");
        let mut errors = 0;
        for _ in 0..6 {
            match store.begin().await {
                Ok(tx) => store.commit(tx).await.expect("commit"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                    errors += 1;
                }
            }
        }
        assert!(errors <= 1, "{errors} errors for one restart");
    }
    // The pool checks a connection that was idle for a while before it lends it.
    let idle = "(SELECT max(state_change) FROM pg_stat_activity WHERE application_name LIKE 'oncebox %') < now() - interval '1.1 s'";
    schema.wait_for(idle).await;
    cluster.restart().expect("the server obeys");
    store.commit(store.begin().await.expect("no error at all")).await.expect("commit");
    first(&store, "1").await;
    assert_eq!(claim(&store, 10).await.len(), 2);
}

/// Callers wait once for a hanging machine, for any number of connections to it.
// FAULTS A6, E6
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_costs_the_patience_and_no_more() {
    let patience = Duration::from_secs(2);
    let cluster = Cluster::start(PostgresVersion::Debian).expect("the server obeys");
    let schema = Schema::on(&cluster);
    let store = schema.shop_with(schema.options().patience(patience)).await;
    let mut open = Vec::new();
    for _ in 0..6 {
        open.push(store.begin().await.expect("begin"));
    }
    for tx in open {
        store.commit(tx).await.expect("commit");
    }
    let idle = "(SELECT max(state_change) FROM pg_stat_activity WHERE application_name LIKE 'oncebox %') < now() - interval '1.1 s'";
    schema.wait_for(idle).await;
    cluster.suspend_all().expect("the server obeys");
    let start = std::time::Instant::now();
    let error = in_time(store.begin()).await.expect_err("it hangs");
    let took = start.elapsed();
    cluster.resume().expect("the server obeys");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    // Waiting for six connections one by one would take six times as long.
    assert!(took < 5 * patience, "{took:?}");
    store.commit(store.begin().await.expect("begin")).await.expect("commit");
}

// FAULTS E1, E3
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_refused_until_it_is_promoted() {
    let primary = Cluster::start(PostgresVersion::Debian).expect("the server obeys");
    let schema = Schema::on(&primary);
    let store = schema.shop().await;
    first(&store, "1").await;
    let replica = primary.replica().expect("the server obeys");
    let there = || Postgres::options(&replica.url("postgres")).expect("a good URL").schema(&schema.name);
    let error = there().open().await.expect_err("it takes no writes");
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error:?}");
    let text = error.to_string();
    assert!(text.contains("standby") && text.contains("connect to the primary"), "{text}");
    let error = there().schema("elsewhere").open().await.expect_err("nor can tables be made");
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error:?}");

    first(&store, "2").await;
    let claimed = claim(&store, 1).await.remove(0);
    replica.wait_for_replay(&primary).expect("the server obeys");
    primary.stop().expect("the server obeys");
    replica.promote().expect("the server obeys");
    let promoted = there().open().await.expect("it is the primary now");
    let again = accept(&promoted, "2").await.expect("accept");
    assert!(matches!(again, Accepted::Duplicate(_)), "{again:?}");
    first(&promoted, "3").await;
    let settled = promoted.settle(&[oncebox::state::Settlement::done(&claimed.claim)]).await.expect("settle");
    assert_eq!(settled, [oncebox::store::Settled::Applied], "the claim went along");
    assert_eq!(claim(&promoted, 10).await.len(), 2);
}
