//! All kinds of refusals by the server: the kind of the error, if a retry helps, and a text that helps.

mod support;

use std::time::Duration;

use oncebox::store::{Mark, Migrate as _, SettleIn as _, Settled, Store as _, Transactional as _};
use oncebox::{Error, ErrorKind};
use oncebox_postgres::sqlx::Connection as _;
use oncebox_postgres::{Postgres, PostgresOptions};
use oncebox_servers::{Cluster, PostgresVersion};
use support::{
    Schema, accept, claim, claim_one, claim_params, first, handler, in_time, inbox, key, offer, pid, run,
    ship,
};

/// Timeout of the store: long enough for a loaded machine, and short for a test.
const SHORT: Duration = Duration::from_secs(2);

/// Checks an error: its kind, its cause, and a text with the failure, the kept data and the advice.
fn assert_error(error: &Error, kind: ErrorKind, what: &str, cause: &str) {
    assert_eq!(error.kind(), kind, "{error:?}");
    let (text, debug) = (error.to_string(), format!("{error:?}"));
    assert!(error.what().contains(what), "{text}");
    assert!(text.contains(kind.kept()) && text.contains(kind.advice()), "{text}");
    assert!(debug.contains(cause), "{debug}");
    let retryable =
        matches!(kind, ErrorKind::Unavailable | ErrorKind::Full | ErrorKind::Handler | ErrorKind::Denied);
    assert_eq!(error.is_retryable(), retryable, "{text}");
}

// FAULTS E7
#[tokio::test]
async fn a_serialization_failure_is_worth_another_try() {
    let schema = Schema::shared();
    let store = schema.shop().await;
    let mut shop = schema.connect().await;
    run(&mut shop, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.expect("a snapshot");
    run(&mut shop, &schema.sql("SELECT count(*) FROM @mark")).await.expect("a snapshot");
    let mut other = schema.connect().await;
    let mut tx = other.begin().await.expect("begin");
    assert_eq!(store.once(&mut tx, "orders", "1", "charge").await.expect("mark"), Mark::First);
    tx.commit().await.expect("commit");
    let error = store.once(&mut shop, "orders", "1", "charge").await.expect_err("an old snapshot");
    assert_error(&error, ErrorKind::Unavailable, "could not serialize", "could not serialize access");
}

// FAULTS E7
#[tokio::test]
async fn a_deadlock_is_worth_another_try() {
    let schema = Schema::shared();
    let store = schema.shop().await;
    schema.run("INSERT INTO @shipment VALUES ('a'), ('b')").await;
    let lock = |id: &str| schema.sql(&format!("SELECT 1 FROM @shipment WHERE id = '{id}' FOR UPDATE"));
    first(&store, "1").await;
    let claimed = claim_one(&store).await;
    // One transaction holds the entry, the other one a shipment, and each waits for the other.
    let mut other = schema.connect().await;
    run(&mut other, "BEGIN; SET LOCAL deadlock_timeout = '1min'").await.expect("begin");
    run(&mut other, &schema.sql("SELECT 1 FROM @entry WHERE token IS NOT NULL FOR UPDATE"))
        .await
        .expect("the entry");
    let mut tx = store.begin().await.expect("begin");
    run(&mut tx, "SET LOCAL deadlock_timeout = '10ms'").await.expect("a setting");
    run(&mut tx, &lock("a")).await.expect("a shipment");
    let (wait, waiter) = (lock("a"), pid(&mut other).await);
    let waiting = tokio::spawn(async move {
        let waited = run(&mut other, &wait).await;
        (other, waited)
    });
    schema.wait_for(&format!("cardinality(pg_blocking_pids({waiter})) > 0")).await;
    let error = in_time(store.complete(&mut tx, &claimed.claim)).await.expect_err("a deadlock");
    assert_error(&error, ErrorKind::Unavailable, "deadlock", "deadlock detected");
    let cause = std::error::Error::source(&error).expect("what the server said");
    assert!(store.is_transient(cause) && cause.to_string() == "SQLSTATE 40P01", "{cause}");
    drop(tx);
    let (mut other, waited) = in_time(waiting).await.expect("no panic");
    waited.expect("it gets the shipment");
    run(&mut other, "ROLLBACK").await.expect("it ends");
    let mut tx = store.begin().await.expect("begin");
    assert_eq!(store.complete(&mut tx, &claimed.claim).await.expect("complete"), Settled::Applied);
    store.commit(tx).await.expect("commit");
}

/// The server times out before the store does, so it is known that nothing was stored.
// FAULTS E7
#[tokio::test]
async fn a_lock_that_lasts_too_long_is_worth_another_try() {
    let schema = Schema::shared();
    let store = schema.shop_with(schema.options().patience(SHORT)).await;
    first(&store, "0").await;
    let mut other = schema.connect().await;
    run(&mut other, &schema.sql("BEGIN; LOCK TABLE @entry IN ACCESS EXCLUSIVE MODE")).await.expect("a lock");
    let params = claim_params(1);
    let (accepted, claimed) =
        in_time(async { tokio::join!(accept(&store, "1"), store.claim(&params)) }).await;
    for error in [accepted.expect_err("locked"), claimed.expect_err("locked")] {
        assert_error(&error, ErrorKind::Unavailable, "", "canceling statement due to");
    }
    run(&mut other, "ROLLBACK").await.expect("it ends");
    first(&store, "1").await;
    assert_eq!(claim(&store, 10).await.len(), 2);
}

#[tokio::test]
async fn a_statement_that_a_person_cancels_is_worth_another_try() {
    let schema = Schema::shared();
    let store = schema.shop().await;
    first(&store, "0").await;
    let mut other = schema.connect().await;
    run(&mut other, &schema.sql("BEGIN; LOCK TABLE @entry IN ACCESS EXCLUSIVE MODE")).await.expect("a lock");
    let blocker = pid(&mut other).await;
    let accepting = tokio::spawn({
        let store = store.clone();
        async move { accept(&store, "1").await }
    });
    let cancelled = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity";
    schema.wait_for(&format!("({cancelled} WHERE {blocker} = ANY (pg_blocking_pids(pid))) > 0")).await;
    let error = in_time(accepting).await.expect("no panic").expect_err("cancelled");
    assert_error(&error, ErrorKind::Unavailable, "cancelled", "user request");
    run(&mut other, "ROLLBACK").await.expect("it ends");
    first(&store, "1").await;
}

// FAULTS A15
#[tokio::test]
async fn a_server_that_is_not_there_is_named_as_such() {
    let cluster = Cluster::start(PostgresVersion::Debian).expect("the server obeys");
    let schema = Schema::on(&cluster);
    let store = schema.shop_with(schema.options().patience(SHORT)).await;
    first(&store, "0").await;
    let mut tx = store.begin().await.expect("begin");
    cluster.stop().expect("the server obeys");
    let error = store.mark(&mut tx).await.expect_err("the session was ended");
    assert_error(&error, ErrorKind::Unavailable, "connection to PostgreSQL was lost", "");
    drop(tx);
    // The first call may find its idle connection dead; the next one finds no server.
    let _ = accept(&store, "1").await.expect_err("stopped");
    let error = accept(&store, "1").await.expect_err("stopped");
    assert_error(&error, ErrorKind::Unavailable, "not reachable", "refused");
    let error = schema.options().open().await.expect_err("stopped");
    assert_error(&error, ErrorKind::Unavailable, "not reachable", "refused");
    cluster.start_again().expect("the server obeys");
    first(&store, "1").await;
}

/// Short form of the mark of these tests.
trait MarkOne {
    async fn mark(&self, tx: &mut oncebox_postgres::PostgresTx) -> Result<Mark, Error>;
}

impl MarkOne for Postgres {
    async fn mark(&self, tx: &mut oncebox_postgres::PostgresTx) -> Result<Mark, Error> {
        oncebox::store::MarkIn::mark(self, tx, &inbox(), &key("1"), &handler("h"), None).await
    }
}

// FAULTS E10
#[tokio::test]
async fn a_full_disk_is_said_to_be_full_and_recovers_by_itself() {
    let cluster = match Cluster::builder(PostgresVersion::Debian)
        .tmpfs(160 << 20)
        .set("max_wal_size", "32MB")
        .start()
    {
        Ok(cluster) => cluster,
        // Without the right to mount, the error must name it.
        Err(error) => {
            assert!(format!("{error:#}").contains("mount"), "{error:#}");
            return;
        }
    };
    let schema = Schema::on(&cluster);
    let store = schema.shop().await;
    first(&store, "0").await;
    let ballast = cluster.fill_disk().expect("the server obeys");
    let large = |id: usize| {
        let mut new = offer(&format!("large {id}"));
        let payload = noise(id);
        new.message =
            std::sync::Arc::new(oncebox::Message::new(format!("large {id}"), "order.placed", payload));
        new
    };
    let mut stored = 0;
    let error = loop {
        match in_time(store.accept(&[large(stored)])).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 200, "the disk never got full");
    };
    assert_error(&error, ErrorKind::Full, "disk is full", "No space left on device");
    drop(ballast);
    assert_eq!(in_time(store.accept(&[large(stored)])).await.expect("there is room again").len(), 1);
    assert_eq!(claim(&store, 1_000).await.len(), stored + 2);
    schema.check().await;
}

/// Bytes that do not compress.
fn noise(seed: usize) -> Vec<u8> {
    let mut state = u64::try_from(seed).expect("a number") + 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..32_768).flat_map(|_| next()).collect()
}

// FAULTS E3
#[tokio::test]
async fn a_server_that_only_reads_says_so() {
    let cluster = Cluster::start(PostgresVersion::Debian).expect("the server obeys");
    let schema = Schema::on(&cluster);
    let store = schema.shop().await;
    first(&store, "0").await;
    first(&store, "1").await;
    let claimed = store.claim(&claim_params(1)).await.expect("claim").remove(0);
    cluster.configure("default_transaction_read_only", "on").expect("the server obeys");
    // New sessions have the setting at once. Existing sessions get it with their next statement.
    cluster
        .wait_for("postgres", "current_setting('default_transaction_read_only') = 'on'")
        .expect("the server obeys");
    let settlement = [oncebox::state::Settlement::done(&claimed.claim)];
    let error = loop {
        match accept(&store, "2").await {
            Err(error) => break error,
            Ok(_) => tokio::task::yield_now().await,
        }
    };
    let errors = [
        error,
        store.claim(&claim_params(1)).await.expect_err("no writes"),
        store.settle(&settlement).await.expect_err("no writes"),
    ];
    for error in errors {
        assert_error(&error, ErrorKind::ReadOnly, "takes no writes", "read-only transaction");
    }
    cluster.configure("default_transaction_read_only", "off").expect("the server obeys");
    schema.wait_for("current_setting('default_transaction_read_only') = 'off'").await;
    assert_eq!(store.settle(&settlement).await.expect("settle"), [Settled::Applied]);
    first(&store, "3").await;
}

/// Starts a server that requires a password, with a role that has one.
fn guarded() -> (Cluster, Schema) {
    let hba =
        "local all all trust\nhost all app 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
    let cluster = Cluster::builder(PostgresVersion::Debian).hba(hba).start().expect("the server obeys");
    cluster.sql("postgres", "create role app login password 's3cret-pass'").expect("the server obeys");
    let schema = Schema::on(&cluster);
    (cluster, schema)
}

fn as_app(cluster: &Cluster, schema: &Schema, password: &str, database: &str) -> PostgresOptions {
    let url = format!("postgres://app:{password}@127.0.0.1:{}/{database}", cluster.port());
    Postgres::options(&url).expect("a good URL").schema(&schema.name)
}

// FAULTS I, and the rule that no text shows a secret.
#[tokio::test]
async fn a_login_that_is_refused_says_why_and_keeps_the_password() {
    let (cluster, schema) = guarded();
    let wrong = as_app(&cluster, &schema, "wr0ng-pass", "postgres");
    let nowhere = as_app(&cluster, &schema, "s3cret-pass", "nowhere");
    let forbidden = as_app(&cluster, &schema, "s3cret-pass", "postgres");
    let mut texts = vec![format!("{wrong:?} {nowhere:?} {forbidden:?}")];
    for (options, what, cause) in [
        (&wrong, "refused the login", "password authentication failed"),
        (&nowhere, "refused the login", "does not exist"),
        (&forbidden, "lacks a privilege", "permission denied"),
    ] {
        let error = options.clone().open().await.expect_err(what);
        assert_error(&error, ErrorKind::InvalidConfig, what, cause);
        texts.push(format!("{error} {error:?}"));
    }

    // Another role creates the tables. The test grants the service's privileges one by one.
    let owner = schema.shop().await;
    first(&owner, "1").await;
    let n = &schema.name;
    let grant = format!("grant usage on schema {n} to app; grant select on all tables in schema {n} to app");
    cluster.sql("postgres", &grant).expect("the server obeys");
    let store = forbidden.clone().open().await.expect("it may look");
    let error = accept(&store, "2").await.expect_err("it may not write");
    assert_error(&error, ErrorKind::Denied, "lacks a privilege", "permission denied");
    texts.push(format!("{store:?} {error} {error:?}"));
    let grant = format!(
        "grant insert, update, delete on all tables in schema {n} to app;
         grant usage, select on all sequences in schema {n} to app"
    );
    cluster.sql("postgres", &grant).expect("the server obeys");
    first(&store, "2").await;
    assert_eq!(claim(&store, 10).await.len(), 2);

    for url in [
        "postgres://app:s3cret-pass@[::1/x",
        "postgres://app:s3cret-pass@host:port/x",
        "mysql://app:s3cret-pass@h/x",
    ] {
        let error = Postgres::options(url).expect_err("not a URL");
        assert_error(&error, ErrorKind::InvalidConfig, "PostgreSQL URL", "");
        texts.push(format!("{error} {error:?}"));
    }
    for text in texts {
        assert!(!text.contains("s3cret-pass") && !text.contains("wr0ng-pass"), "{text}");
    }
}

// FAULTS I
#[tokio::test]
async fn missing_tables_are_named_with_the_cure() {
    let schema = Schema::shared();
    let error = schema.options().migrate(false).open().await.expect_err("no tables");
    assert_error(&error, ErrorKind::SchemaOutdated, &schema.name, "");
    let store = schema.shop().await;
    first(&store, "1").await;
    schema.run("ALTER TABLE @entry RENAME TO elsewhere").await;
    let error = accept(&store, "2").await.expect_err("a table is gone");
    assert_error(&error, ErrorKind::SchemaOutdated, "lacks a table", "does not exist");
    schema.run(&format!("ALTER TABLE {}.elsewhere RENAME TO oncebox_entry", schema.name)).await;
    first(&store, "2").await;
    schema.run("INSERT INTO @schema (version, name) VALUES (9999, 'from the future')").await;
    let error = schema.options().open().await.expect_err("a newer schema");
    assert_error(&error, ErrorKind::SchemaTooNew, "9999", "");
    assert_eq!(schema.options().current().await.expect("a version"), 9999);
}

/// It is known that nothing was stored, and that the handler caused the error: the store is fine.
// FAULTS C7
#[tokio::test]
async fn a_constraint_that_fails_at_the_commit_is_the_handlers_failure() {
    let schema = Schema::shared();
    let store = schema.shop().await;
    schema
        .run(
            "CREATE TABLE @parent (id int PRIMARY KEY);
             CREATE TABLE @child (parent int REFERENCES @parent DEFERRABLE INITIALLY DEFERRED)",
        )
        .await;
    first(&store, "1").await;
    let claimed = claim_one(&store).await;
    let mut tx = store.begin().await.expect("begin");
    run(&mut tx, &schema.sql("INSERT INTO @child VALUES (7)")).await.expect("checked at the commit");
    assert_eq!(store.complete(&mut tx, &claimed.claim).await.expect("complete"), Settled::Applied);
    let error = store.commit(tx).await.expect_err("no such parent");
    assert_error(&error, ErrorKind::Handler, "", "violates foreign key");
    assert_eq!(schema.count("@child").await, 0);
    let mut tx = store.begin().await.expect("begin");
    ship(&schema, &mut tx, "1").await;
    assert_eq!(store.complete(&mut tx, &claimed.claim).await.expect("it is still claimed"), Settled::Applied);
    store.commit(tx).await.expect("commit");
}
