//! A server that refuses logins, privileges or connections while an inbox runs: a temporary outage.

mod support;

use oncebox::store::Inspect;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oncebox::state::{Status, Suspicion};
use oncebox::{BoxError, Context, ErrorKind, HealthStatus, Inbox, KeyStrategy, Message, Running, handler};
use oncebox_postgres::Postgres;
use oncebox_servers::{Cluster, PgBouncer, PoolMode, PostgresVersion};
use support::{Schema, claim, first, in_time};
use tokio::sync::{Notify, Semaphore};

/// State that the handler shares with the test.
struct LoginFixture {
    runs: AtomicUsize,
    begun: Notify,
    go: Semaphore,
}

/// Returns when the test allows it, like an HTTP handler that answers 200.
async fn answer(_: Message, cx: &mut Context<Postgres>) -> Result<(), BoxError> {
    let play = cx.data::<Arc<LoginFixture>>()?;
    play.runs.fetch_add(1, Ordering::Relaxed);
    play.begun.notify_one();
    play.go.acquire().await?.forget();
    Ok(())
}

/// Waits until a verb of the store fails.
async fn failing(running: &Running<Postgres>, verb: &str) {
    let failing = async {
        loop {
            let health = running.health();
            let mut checks = health.checks.iter();
            if checks.any(|check| &*check.name == verb && check.status != HealthStatus::Healthy) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    in_time(failing).await;
}

// FAULTS E4, E5: a rotated password with terminated sessions, a revoked privilege, no connection left.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_or_privilege_loses_no_settlement() {
    let hba =
        "local all all trust\nhost all app 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
    let cluster = Cluster::builder(PostgresVersion::Debian).hba(hba).start().expect("the server obeys");
    let sql = |statement: &str| cluster.sql("postgres", statement).expect("the server obeys");
    sql("create role app login password 'old'");
    let schema = Schema::on(&cluster);
    let owner = schema.shop().await;
    let url = format!("postgres://app:old@127.0.0.1:{}/postgres", cluster.port());
    let options = Postgres::options(&url).expect("a good URL").schema(&schema.name);
    let grants = options.grants_sql("app").expect("a good name");
    sql(&grants);
    let terminate = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'app'";
    let revoke = format!("revoke all on all tables in schema {} from app", schema.name);
    for (refuse, ended, restore) in [
        ("alter role app password 'new'", true, "alter role app password 'old'"),
        ("alter role app nologin", true, "alter role app login"),
        ("alter role app connection limit 0", true, "alter role app connection limit -1"),
        (&*revoke, false, &*grants),
    ] {
        let play =
            Arc::new(LoginFixture { runs: AtomicUsize::new(0), begun: Notify::new(), go: Semaphore::new(0) });
        let store = options.clone().open().await.expect("the store opens");
        let inbox = Inbox::builder("orders", store).data(Arc::clone(&play));
        let inbox = inbox.on("t", handler("answer", answer)).build().expect("an inbox");
        let message = Message::new(refuse.to_owned(), "t", "");
        inbox.accept(message.clone()).await.expect("accept");
        let running = inbox.start();
        in_time(play.begun.notified()).await;
        sql(refuse);
        if ended {
            sql(terminate);
        }
        play.go.add_permits(1);
        failing(&running, "settle").await;
        let late = tokio::spawn({
            let inbox = inbox.clone();
            async move { inbox.accept(Message::new("late", "none", "")).await }
        });
        let error = in_time(late).await.expect("no panic").expect_err(refuse);
        assert!(error.is_retryable(), "{refuse}: {error:?}");
        sql(restore);
        in_time(running.shutdown()).await;
        let key = KeyStrategy::MessageId.key(inbox.name(), &message).expect("an id");
        let view = owner.show(inbox.name(), &key).await.expect("show").expect("it is stored");
        let entry = &view.entries[0];
        assert_eq!(
            (entry.status, entry.attempts, entry.suspicion),
            (Status::Completed, 0, Suspicion::NONE),
            "{refuse}"
        );
        assert_eq!(play.runs.load(Ordering::Relaxed), 1, "{refuse}");
    }
}

// FAULTS E4: new connections log in with the new password. Open connections continue.
#[tokio::test(flavor = "multi_thread")]
async fn a_login_can_be_replaced_while_the_store_is_open() {
    let hba =
        "local all all trust\nhost all app 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
    let cluster = Cluster::builder(PostgresVersion::Debian).hba(hba).start().expect("the server obeys");
    let sql = |statement: &str| cluster.sql("postgres", statement).expect("the server obeys");
    sql("create role app login password 'old'");
    let schema = Schema::on(&cluster);
    let _owner = schema.shop().await;
    let url = |password: &str, database: &str| {
        format!("postgres://app:{password}@127.0.0.1:{}/{database}", cluster.port())
    };
    let options = Postgres::options(&url("old", "postgres")).expect("a good URL").schema(&schema.name);
    sql(&options.grants_sql("app").expect("a good name"));
    let (store, other) = (options.clone().open().await.expect("open"), options.open().await.expect("open"));
    let inbox = Inbox::builder("orders", store.clone()).build().expect("an inbox");
    let beside = Inbox::builder("orders", other).build().expect("an inbox");
    let accept = async |inbox: &Inbox<Postgres>, id: &str| {
        inbox.accept(Message::new(id.to_owned(), "t", "")).await.map_err(|error| error.kind())
    };
    accept(&inbox, "1").await.expect("accept");
    accept(&beside, "2").await.expect("accept");

    sql("alter role app password 'new'");
    let refused = store.change_login(&url("old", "postgres")).await.expect_err("it is the old one");
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused:?}");
    let elsewhere = store.change_login(&url("new", "template1")).await.expect_err("another database");
    assert_eq!(elsewhere.kind(), ErrorKind::InvalidConfig, "{elsewhere:?}");
    accept(&inbox, "3").await.expect("its connections go on");
    store.change_login(&url("new", "postgres")).await.expect("the new one");
    accept(&inbox, "4").await.expect("its connections go on");
    sql("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'app'");
    let again = async {
        while accept(&inbox, "5").await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    in_time(again).await;
    let old = async { while accept(&beside, "6").await != Err(ErrorKind::Denied) {} };
    in_time(old).await;
}

/// A retry does not help against the configuration of a pooler.
// FAULTS E9
#[tokio::test]
async fn a_parameter_that_a_pooler_refuses_is_named_with_what_to_write() {
    let url = format!("{}?options[geqo]=off", oncebox_servers::shared::pgbouncer_url());
    for pooled in [true, false] {
        let options = Postgres::options(&url).expect("a good URL").pooled(pooled);
        let error = options.open().await.expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
        let text = error.to_string();
        assert!(text.contains("`[pgbouncer]`") && text.contains("`ignore_startup_parameters = "), "{text}");
    }
}

/// The sessions would lose their settings and prepared statements, which looks like an outage.
// FAULTS E9
#[tokio::test]
async fn a_pooler_in_transaction_mode_is_refused_unless_it_is_expected() {
    let schema = Schema::pooled();
    let options = || schema.options().pooled(false);
    // Repeat, because other tests may use the pooler at the same time.
    for _ in 0..5 {
        let error = in_time(Box::pin(options().open())).await.expect_err("it is refused");
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
        let text = error.to_string();
        assert!(text.contains("`[store.NAME]`") && text.contains("`pooled = true`"), "{text}");
    }
    options().pooled(true).open().await.expect("it is expected");
}

/// FAULTS E9: by default, `PgBouncer` keeps a session per client.
#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_with_its_default_mode_needs_no_setting() {
    let cluster = Cluster::builder(PostgresVersion::Debian).start().expect("a server");
    let pooler = PgBouncer::start(&cluster, PoolMode::Session).expect("a pooler");
    let schema = Schema::new(pooler.url("postgres"));
    let store = schema.options().open().await.expect("the store opens");
    for id in ["1", "2"] {
        first(&store, id).await;
    }
    assert_eq!(claim(&store, 10).await.len(), 2);
    // Another store wakes this one up, for which it needs its own session.
    let twin = schema.options().open().await.expect("another store opens");
    first(&twin, "3").await;
    assert_eq!(claim(&store, 10).await.len(), 1);
}
