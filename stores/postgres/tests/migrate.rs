//! The schema and its version for operators, the separation of stores in one database, and the privileges of a role.

mod fixture;
mod support;

use oncebox_testkit::OperatorSteps as _;
use std::path::Path;
use std::time::Duration;

use fixture::{
    DAY, RETENTION, accept, accept_new, claim_one, complete_all, key, rejected, settle, status, sweep,
};
use oncebox::ErrorKind;
use oncebox::state::{Operation, Status};
use oncebox::store::{Accepted, Inspect, Migrate as _, Transactional as _};
use oncebox_postgres::sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, raw_sql};
use oncebox_postgres::{Postgres, PostgresOptions};
use oncebox_servers::{Cluster, PostgresVersion};
use oncebox_testkit::TestClock;
use support::Schema;

fn schema() -> Schema {
    Schema::new(oncebox_servers::shared::debian_url())
}

#[tokio::test]
async fn a_schema_is_planned_then_migrated_then_opened() {
    let schema = schema();
    let options = schema.options().migrate(false);
    let error = options.clone().open().await.expect_err("no schema yet");
    assert_eq!(error.kind(), ErrorKind::SchemaOutdated);
    assert!(error.to_string().contains(&schema.name), "{error}");
    assert_eq!(options.current().await.expect("current"), 0);

    let plan = options.pending().await.expect("plan");
    let table = format!("CREATE TABLE \"{}\".\"oncebox_proof\"", schema.name);
    assert!(plan[0].sql.contains(&table), "the plan shows what will run");
    assert!(!plan[0].sql.contains(" oncebox_"), "every name is rendered");
    assert_eq!(options.current().await.expect("current"), 0, "planning changes nothing");

    assert_eq!(options.apply().await.expect("apply"), plan);
    assert_eq!(options.apply().await.expect("apply again"), [], "what is done is not done again");
    assert_eq!(options.current().await.expect("current"), 2);
    options.open().await.expect("an up-to-date schema opens");
}

// FAULTS I4
#[tokio::test]
async fn many_at_once_migrate_once() {
    let schema = schema();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let options = schema.options();
            tokio::spawn(async move { options.apply().await })
        })
        .collect();
    let mut applied = 0;
    for task in tasks {
        applied += usize::from(!task.await.expect("no panic").expect("apply").is_empty());
    }
    assert_eq!(applied, 1);
    assert_eq!(schema.number("SELECT count(*) FROM @schema").await, 1);
}

// FAULTS I7
#[tokio::test]
async fn a_newer_schema_is_left_alone() {
    let schema = schema();
    schema.options().apply().await.expect("apply");
    schema.run("INSERT INTO @schema (version, name) VALUES (1000, 'of another time')").await;
    for migrate in [true, false] {
        let error = schema.options().migrate(migrate).open().await.expect_err("it is too new");
        assert_eq!(error.kind(), ErrorKind::SchemaTooNew);
        assert!(error.to_string().contains("1000"), "{error}");
    }
    assert_eq!(schema.options().apply().await.expect_err("too new").kind(), ErrorKind::SchemaTooNew);
}

#[tokio::test]
async fn a_schema_of_an_unpublished_build_is_left_alone() {
    let schema = schema();
    schema.options().apply().await.expect("apply");
    schema.run("UPDATE @schema SET version = 1").await;
    for migrate in [true, false] {
        let error = schema.options().migrate(migrate).open().await.expect_err("it is too old");
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(error.to_string().contains("version 1 of an unpublished build"), "{error}");
    }
}

#[tokio::test]
async fn a_migration_that_fails_leaves_nothing() {
    let schema = schema();
    schema.run(&format!("CREATE SCHEMA {}; CREATE TABLE @scheduled (theirs integer)", schema.name)).await;
    schema.options().apply().await.expect_err("the name is taken");
    assert_eq!(schema.options().current().await.expect("current"), 0);
    let tables = format!("SELECT count(*) FROM pg_tables WHERE schemaname = '{}'", schema.name);
    assert_eq!(schema.number(&tables).await, 1, "only theirs");
}

#[tokio::test]
async fn the_schema_can_be_applied_by_hand() {
    let schema = schema();
    let options = schema.options().migrate(false);
    let mut person = schema.connect().await;
    person
        .execute(raw_sql(AssertSqlSafe(options.schema_sql().expect("its SQL"))))
        .await
        .expect("it runs as it is");
    assert_eq!(options.current().await.expect("current"), 2);
    assert_eq!(options.pending().await.expect("plan"), []);
    let store = options.open().await.expect("the store opens");
    accept(&store, "a").await;
    assert_eq!(complete_all(&store, "h").await, 1);
}

/// Environment variable that makes the test write the documented default schema anew.
const WRITE: &str = "ONCEBOX_WRITE_SCHEMA";

#[test]
fn the_schema_file_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema.sql");
    let now =
        Postgres::options("postgres://localhost/shop").expect("a good URL").schema_sql().expect("its SQL");
    let header = "-- All tables with the default settings, as `PostgresOptions::schema_sql` prints them. The functions follow there; they \
                  have files of their own. Written by a test; do not edit.\n\n";
    let (tables, _) = now.split_once("\n-- Functions\n").expect("the functions follow");
    let now = format!("{header}{tables}");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &now).expect("the file can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == now,
        "stores/postgres/schema.sql is not what the migrations make; write it anew with\n  \
         {WRITE}=1 cargo test -p oncebox-postgres --test migrate the_schema_file_is_current"
    );
}

#[tokio::test]
async fn inboxes_in_other_schemas_and_under_other_prefixes_do_not_meet() {
    let (one, two) = (schema(), schema());
    let places: Vec<PostgresOptions> = vec![one.options(), two.options(), one.options().prefix("other_")];
    let mut stores = Vec::new();
    for options in &places {
        stores.push(options.clone().open().await.expect("the store opens"));
    }
    for store in &stores {
        assert!(matches!(accept(store, "a").await, Accepted::First(_)), "a key of one is news to another");
    }
    settle(&stores[0], &[claim_one(&stores[0], "h").await], &rejected()).await;
    assert_eq!(complete_all(&stores[1], "h").await, 1);
    let states = [Status::Poisoned, Status::Completed, Status::Pending];
    for (store, state) in stores.iter().zip(states) {
        assert_eq!(status(store, "a", "h").await, Some(state));
    }
    // Locks are separate, too: no store waits for a mark, a partition or a line of another.
    let mut open = Vec::new();
    for store in &stores {
        let mut tx = store.begin().await.expect("begin");
        assert!(store.once(&mut tx, "orders", "a", "h").await.expect("mark").is_first().expect("not busy"));
        open.push(tx);
    }
    for (store, tx) in stores.iter().zip(open) {
        store.commit(tx).await.expect("commit");
    }
}

// FAULTS S15
#[tokio::test]
async fn names_that_are_not_plain_are_refused_before_anything_is_sent() {
    // No server listens at this address.
    let options = || Postgres::options("postgres://127.0.0.1:1/shop").expect("a good URL");
    for name in ["", "a b", "a\"; DROP TABLE x; --", "1a", "ä", "a.b", &"x".repeat(33)] {
        for options in [options().schema(name), options().prefix(name)] {
            assert_eq!(options.schema_sql().expect_err(name).kind(), ErrorKind::InvalidConfig);
            assert_eq!(options.pending().await.expect_err(name).kind(), ErrorKind::InvalidConfig);
            assert_eq!(options.open().await.expect_err(name).kind(), ErrorKind::InvalidConfig);
        }
    }
}

// An error about a setting names the option, its value and what to do.
#[tokio::test]
async fn settings_that_cannot_work_are_refused_before_anything_is_sent() {
    let options = || Postgres::options("postgres://127.0.0.1:1/shop").expect("a good URL");
    for (options, words) in [
        (options().schema("a b"), ["`schema`", "\"a b\"", "use a letter"]),
        (options().prefix("1a"), ["`prefix`", "\"1a\"", "use a letter"]),
        (options().lanes(0), ["`lanes`", "is 0", "use 1 to 64"]),
        (options().lanes(65), ["`lanes`", "is 65", "use 1 to 64"]),
        (options().partitions(DAY, 0), ["`partitions`", "86400s and 0", "make both longer"]),
        (options().partitions(Duration::ZERO, 9), ["`partitions`", "0ns and 9", "make both longer"]),
        (options().partitions(DAY, u32::MAX), ["`partitions`", "4294967295", "use at most 536870912"]),
        (options().handler_connections(0), ["`handler_connections`", "is 0", "use at least 1"]),
        (options().patience(Duration::from_millis(99)), ["`patience`", "99ms", "use at least 100ms"]),
        (options().patience(Duration::from_secs(601)), ["`patience`", "601s", "use at most 600s"]),
    ] {
        let error = options.open().await.expect_err("no such thing");
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        for word in words {
            assert!(error.what().contains(word), "{error} does not say {word:?}");
        }
    }
}

#[tokio::test]
async fn one_lane_and_sixty_four_do_the_same() {
    for lanes in [1, 64] {
        let (schema, clock) = (schema(), TestClock::new());
        let options = schema.options().lanes(lanes).clock(clock.shared());
        let store = options.open().await.expect("the store opens");
        accept_new(&store, (0..200).map(|n| n.to_string())).await;
        assert!(matches!(accept(&store, "7").await, Accepted::Duplicate(_)));
        let used = schema.number("SELECT count(DISTINCT lane) FROM @message").await;
        assert!(used <= i64::from(lanes) && (lanes == 1 || used > 32), "{used} of {lanes} lanes");
        settle(&store, &fixture::claim(&store, "h", 1).await, &rejected()).await;
        assert_eq!(complete_all(&store, "h").await, 199);
        // Existing tables keep their lanes, although the options request others.
        let again = schema.options().lanes(3).clock(clock.shared()).open().await.expect("the store opens");
        assert!(
            matches!(accept(&again, "7").await, Accepted::Duplicate(_)),
            "the key is looked for where it is"
        );
        clock.advance(RETENTION);
        assert_eq!(sweep(&again).await, 199);
    }
}

/// The guide shows the printed grants, with the default names and without their quotes.
#[test]
fn the_guide_shows_what_is_granted() {
    let guide = include_str!("../../../docs/postgres.md");
    let (_, from) = guide.split_once("<!-- grants -->\n```sql\n").expect("the guide says what to grant");
    let (shown, _) = from.split_once("```").expect("an end");
    let options = Postgres::options("postgres://localhost/shop").expect("a good URL");
    let printed = options.grants_sql("shop_worker").expect("its SQL");
    let (granted, maintain) = printed.split_once("-- ").expect("a right that is not needed");
    assert_eq!(shown, granted.replace('"', ""));
    let maintain = maintain.replace('"', "");
    let (_, maintain) = maintain.trim_end().split_once(": ").expect("what it is good for");
    assert!(guide.contains(&format!("```sql\n{maintain}\n```")), "{maintain}");
    for role in ["", "x\n; DROP TABLE customers; --"] {
        options.grants_sql(role).expect_err("no role");
    }
}

/// A role without privileges on the shared server. It is dropped with the test.
struct TestRole {
    schema: Schema,
    name: String,
}

impl TestRole {
    async fn new() -> Self {
        let schema = schema();
        schema.options().apply().await.expect("apply");
        let name = format!("{}_worker", schema.name);
        schema.run(&format!("CREATE ROLE {name} LOGIN")).await;
        Self { schema, name }
    }

    fn options(&self) -> PostgresOptions {
        let url = self.schema.url().replacen("oncebox@", &format!("{}@", self.name), 1);
        assert!(url.contains(&self.name), "{url}");
        Postgres::options(&url).expect("a good URL").schema(&self.schema.name)
    }

    async fn grant(&self, keep: impl Fn(&str) -> bool) {
        let grants = self.schema.options().grants_sql(&self.name).expect("what to grant");
        let statements = grants.split_inclusive(';').filter(|statement| keep(statement));
        let mut owner = self.schema.connect().await;
        owner
            .execute(raw_sql(AssertSqlSafe(statements.collect::<String>())))
            .await
            .expect("the grants are good SQL");
    }

    async fn leave(self) {
        let mut owner = PgConnection::connect(self.schema.url()).await.expect("another connection");
        let leave = format!("DROP OWNED BY {0}; DROP ROLE {0}", self.name);
        owner.execute(raw_sql(AssertSqlSafe(leave))).await.expect("the role leaves");
    }
}

// FAULTS S21
#[tokio::test]
async fn a_role_without_any_right_to_change_the_schema_can_do_everything() {
    let role = TestRole::new().await;
    role.grant(|_| true).await;
    let clock = TestClock::new();
    let store = role.options().clock(clock.shared()).open().await.expect("migrated already");
    let create = role.schema.sql("CREATE TABLE @theirs (a integer)");
    let url = role.schema.url().replacen("oncebox@", &format!("{}@", role.name), 1);
    let mut as_role = PgConnection::connect(&url).await.expect("the role may log in");
    as_role.execute(raw_sql(AssertSqlSafe(create))).await.expect_err("the role may not make tables");

    let registered = oncebox::store::RegisterParams::new(fixture::inbox(), RETENTION);
    oncebox::store::Store::register(&store, &registered).await.expect("register");
    accept_new(&store, (0..10).map(|n| n.to_string())).await;
    // After so many batches without known keys, the store skips the lookup and uses another statement.
    for batch in 0..40 {
        accept_new(&store, ["a", "b"].into_iter().map(|name| format!("{name}{batch}"))).await;
    }
    let ordered = fixture::message("ordered").with_ordering_key("k");
    oncebox::store::Store::accept(&store, &[fixture::offer(ordered, &["h"])]).await.expect("accept");
    let other = oncebox::Message::new("7", "order.placed", "another payload");
    oncebox::store::Store::accept(&store, &[fixture::offer(other, &["h"])]).await.expect("accept");
    settle(&store, &fixture::claim(&store, "h", 1).await, &rejected()).await;
    assert_eq!(complete_all(&store, "h").await, 90);
    sweep(&store).await;
    for day in 0..12 {
        clock.advance(DAY);
        accept(&store, &format!("day {day}")).await;
        assert_eq!(complete_all(&store, "h").await, 1);
        sweep(&store).await;
    }
    assert!(
        role.schema.number("SELECT min(id) FROM @partition").await > 1,
        "partitions were made and dropped"
    );
    let poisoned = oncebox::store::EntryFilter::new(fixture::inbox(), Status::Poisoned);
    let poisoned = store.list(&poisoned).await.expect("list").entries.remove(0);
    store
        .operate(&fixture::inbox(), &poisoned.key, &poisoned.handler, Operation::Retry)
        .await
        .expect("retry");
    assert_eq!(complete_all(&store, "h").await, 1);
    store.pause(&fixture::inbox(), &fixture::handler("h")).await.expect("pause");
    store.count(&fixture::inbox(), None).await.expect("count");
    store.show(&fixture::inbox(), &key("7")).await.expect("show");
    assert_eq!(store.purge(&fixture::inbox(), DAY, 10).await.expect("purge"), 1);
    let mut tx = store.begin().await.expect("begin");
    assert!(store.once(&mut tx, "orders", "a", "h").await.expect("mark").is_first().expect("not busy"));
    store.commit(tx).await.expect("commit");
    drop((store, as_role));
    role.leave().await;
}

#[tokio::test]
async fn who_may_not_make_the_tables_is_told_who_has_to() {
    let role = TestRole::new().await;
    role.schema.run(&format!("GRANT USAGE ON SCHEMA {} TO {}", role.schema.name, role.name)).await;
    let error = role.options().prefix("other_").open().await.expect_err("it may not make tables");
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
    for part in
        ["could not be made", "may CREATE there runs `oncebox migrate apply`", "permission denied for schema"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("migrate grants"), "they hold no right to make anything: {text}");
    role.leave().await;
}

#[tokio::test]
async fn a_missing_privilege_is_named() {
    let role = TestRole::new().await;
    let error = role.options().open().await.expect_err("nothing is granted");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
    let text = format!("{error:?}");
    assert!(text.contains("oncebox migrate grants --role"), "{text}");
    assert_eq!(text.matches("permission denied").count(), 1, "it is said once: {text}");
    assert!(text.ends_with("caused by: SQLSTATE 42501") && !text.contains("at line"), "{text}");

    role.grant(|statement| !statement.contains("FUNCTION")).await;
    let clock = TestClock::new();
    let store = role.options().partitions(DAY, 5).clock(clock.shared()).open().await.expect("it opens");
    accept_new(&store, (0..10).map(|n| n.to_string())).await;
    let params = oncebox::store::SweepParams::new(fixture::inbox(), RETENTION, 100);
    // The store itself tries at the same time, because a partition is full. If one finds it busy, it skips it.
    let error = loop {
        match oncebox::store::Store::sweep(&store, &params).await {
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(
        format!("{error:?}").contains("permission denied for function oncebox_make_partition_v1"),
        "{error:?}"
    );
    assert_eq!(complete_all(&store, "h").await, 10, "everything else goes on");
    drop(store);
    role.leave().await;
}

/// A role that takes tokens must begin epochs, so the store refuses it without that privilege.
#[tokio::test]
async fn a_role_that_takes_tokens_but_may_not_read_them_is_refused() {
    let role = TestRole::new().await;
    role.grant(|statement| !statement.contains("SEQUENCE")).await;
    let refused = |error: &oncebox::Error| {
        error.kind() == ErrorKind::InvalidConfig && error.what().contains("oncebox_token")
    };
    drop(role.options().open().await.expect("it only reads"));
    let sequence = role.schema.sql(&format!("GRANT USAGE ON SEQUENCE @token TO {}", role.name));
    role.schema.run(&sequence).await;
    let error = role.options().open().await.expect_err("it may claim and begins no epoch");
    assert!(refused(&error), "{error:?}");
    role.leave().await;
}

// FAULTS A6: the standby that commits wait for is missing when the tables are created.
#[tokio::test]
async fn a_missing_standby_is_named_as_what_the_first_start_waits_for() {
    let cluster = Cluster::start(PostgresVersion::Debian).expect("the server obeys");
    cluster.configure("synchronous_standby_names", "ghost").expect("the server obeys");
    let schema = Schema::on(&cluster);
    // Long enough for a busy machine to create the tables, so that only the commit waits.
    let options = || schema.options().patience(Duration::from_secs(8));
    // The second one finds the lock of the first.
    for attempt in ["commit", "lock"] {
        let error = options().open().await.expect_err("no commit is confirmed");
        assert!(error.is_retryable(), "{attempt}: {error:?}");
        let text = error.to_string();
        assert!(
            text.contains("synchronous replication") && text.contains("synchronous_standby_names = 'ghost'"),
            "{attempt}: {text}"
        );
    }
    cluster.configure("synchronous_standby_names", "").expect("the server obeys");
    options().open().await.expect("nothing is waited for any more");
}
