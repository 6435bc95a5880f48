//! Operator actions are audited in their own transaction; `examine` reports the health of the server.

mod fixture;
mod support;

use fixture::{accept, claim_one, rejected, settle, status};
use oncebox::ErrorKind;
use oncebox::state::{Operation, Status};
use oncebox::store::{AuditFilter, Examine, ExamineParams, Inspect, Severity};
use oncebox::time::{Clock as _, SystemClock};
use oncebox_servers::{Cluster, PostgresVersion};
use oncebox_testkit::OperatorSteps as _;
use oncebox_testkit::TestClock;
use support::{Schema, handler, inbox, key};

// FAULTS J1, S13: the store writes an action and its audit record together, or neither.
#[tokio::test]
async fn what_cannot_be_recorded_is_not_done() {
    let schema = Schema::shared();
    let store = schema.open(&TestClock::new()).await;
    accept(&store, "1").await;
    let claimed = claim_one(&store, "h").await;
    settle(&store, &[claimed], &rejected()).await;
    schema
        .run(
            "CREATE FUNCTION @full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no room'; END $$;
             CREATE TRIGGER full_up BEFORE UPDATE ON @operation FOR EACH ROW EXECUTE FUNCTION @full()",
        )
        .await;
    assert!(store.operate(&inbox(), &key("1"), &handler("h"), Operation::Retry).await.is_err());
    assert!(store.pause(&inbox(), &handler("h")).await.is_err());
    assert_eq!(status(&store, "1", "h").await, Some(Status::Poisoned));
    assert!(store.count(&inbox(), None).await.expect("count").paused.is_empty());
    assert!(store.audit(&AuditFilter::new(inbox())).await.expect("audit").operations.is_empty());
    schema.run("DROP TRIGGER full_up ON @operation").await;
    store.operate(&inbox(), &key("1"), &handler("h"), Operation::Retry).await.expect("retry");
    assert_eq!(store.audit(&AuditFilter::new(inbox())).await.expect("audit").operations.len(), 1);
    schema.check().await;
}

/// FAULTS A4: a lost read leaves nothing in doubt, on any connection.
async fn a_look_is_lost(schema: Schema) {
    let store = schema.open(&TestClock::new()).await;
    accept(&store, "1").await;
    for table in ["@handler", "@quarantine"] {
        let mut other = schema.connect().await;
        let lock = schema.sql(&format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"));
        support::run(&mut other, &lock).await.expect("the lock");
        let look = tokio::spawn({
            let store = store.clone();
            async move { store.show(&inbox(), &key("1")).await.map(|_| ()) }
        });
        let waits = format!(
            "FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{}%' AND pid <> pg_backend_pid()",
            schema.name
        );
        schema.wait_for(&format!("EXISTS (SELECT {waits})")).await;
        schema.run(&format!("SELECT pg_terminate_backend(pid) {waits}")).await;
        let lost = support::in_time(look).await.expect("no panic").expect_err("it is lost");
        assert_eq!(lost.kind(), ErrorKind::Unavailable, "{table}: {lost:?}");
        support::run(&mut other, "ROLLBACK").await.expect("no lock");
    }
    store.show(&inbox(), &key("1")).await.expect("show").expect("it is known");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_that_is_lost_leaves_nothing_in_doubt() {
    a_look_is_lost(Schema::shared()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nor_does_one_that_is_lost_behind_a_pooler() {
    a_look_is_lost(Schema::pooled()).await;
}

#[tokio::test]
async fn the_doctor_sees_what_is_missing() {
    let schema = Schema::shared();
    let store = schema.open(&TestClock::new()).await;
    let params = ExamineParams::new(inbox(), SystemClock::default().now());
    let indexes = async || {
        let findings = store.examine(&params).await.expect("examine");
        findings.into_iter().filter(|finding| finding.code == "index").collect::<Vec<_>>()
    };
    assert_eq!(indexes().await, []);
    schema.run("DROP INDEX @scheduled_head").await;
    let [missing] = &indexes().await[..] else { panic!("one index is missing") };
    assert_eq!(missing.severity, Severity::Danger);
    assert!(missing.what.contains("oncebox_scheduled_head"), "{missing}");
    let late = ExamineParams::new(inbox(), params.now.after(std::time::Duration::from_mins(1)));
    let findings = store.examine(&late).await.expect("examine");
    assert!(findings.iter().any(|finding| finding.code == "clock_skew"), "{findings:?}");
}

async fn codes(schema: &Schema, change: impl FnOnce(&mut ExamineParams)) -> Vec<&'static str> {
    let store = schema.open(&TestClock::new()).await;
    let mut params = ExamineParams::new(inbox(), SystemClock::default().now());
    change(&mut params);
    store.examine(&params).await.expect("examine").into_iter().map(|finding| finding.code).collect()
}

#[tokio::test]
async fn the_doctor_sees_settings_that_lose_what_was_acknowledged() {
    let risky = Cluster::builder(PostgresVersion::Debian)
        .set("synchronous_commit", "off")
        .set("autovacuum", "off")
        .start()
        .expect("a server");
    let schema = Schema::on(&risky);
    let mut found = codes(&schema, |_| {}).await;
    found.sort_unstable();
    assert_eq!(found, ["autovacuum_off", "fsync_off", "full_page_writes_off", "synchronous_commit_off"]);
    // Dead rows that no vacuum removes.
    schema
        .run(
            "INSERT INTO @mark (at, lane, digest, inbox, handler)
                 SELECT 0, 0, sha256(i::text::bytea), 'x', 'x' FROM generate_series(1, 100001) i;
             DELETE FROM @mark",
        )
        .await;
    schema
        .wait_for("(SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = '@mark'::regclass) > 100000")
        .await;
    assert!(codes(&schema, |_| {}).await.contains(&"dead_rows"));
    let safe = Cluster::builder(PostgresVersion::Debian).durable(true).start().expect("a server");
    assert_eq!(codes(&Schema::on(&safe), |_| {}).await, Vec::<&str>::new());
}

#[tokio::test]
async fn the_doctor_sees_a_transaction_that_does_not_end() {
    let cluster = Cluster::start(PostgresVersion::Debian).expect("a server");
    let schema = Schema::on(&cluster);
    let long = |params: &mut ExamineParams| params.long_transaction = std::time::Duration::ZERO;
    assert!(!codes(&schema, |_| {}).await.contains(&"long_transaction"));
    let mut open = schema.connect().await;
    support::run(&mut open, "BEGIN; SELECT 1").await.expect("a transaction");
    assert!(codes(&schema, long).await.contains(&"long_transaction"));
    assert!(!codes(&schema, |_| {}).await.contains(&"long_transaction"), "not for long enough");
    support::run(&mut open, "ROLLBACK").await.expect("its end");
}

// FAULTS S12: lost messages of a failover are listed by source and id, until the message is erased.
#[tokio::test]
async fn an_erased_message_leaves_the_lists_of_lost_ones() {
    let schema = Schema::shared();
    let store = schema.open(&TestClock::new()).await;
    accept(&store, "1").await;
    let lost =
        "INSERT INTO @timeline (epoch, noticed_at, former, timeline, lost_messages, lost_sources, lost_ids)
                VALUES (8, 0, 'a', 'b', 3, ARRAY['other', '', ''], ARRAY['1', '1', '2']::bytea[]),
                       (9, 0, 'b', 'c', 1, ARRAY[''], ARRAY['1']::bytea[])";
    schema.run(lost).await;
    store.erase(&inbox(), &key("1"), true).await.expect("erase");
    let left = "SELECT string_agg(concat_ws(' ', epoch, lost_messages, lost_sources, lost_ids::text), '; ' ORDER BY epoch) FROM @timeline";
    assert_eq!(schema.text(left).await, "8 3 {other,\"\"} {\"\\\\x31\",\"\\\\x32\"}; 9 1 {} {}");
}
