//! Dead rows: claims vacuum them, and miss no entry when they scan over them.

mod fixture;
mod support;

use std::time::{Duration, Instant};

use fixture::{accept_new, claim, complete_all, settle};
use futures_util::FutureExt as _;
use oncebox::state::Outcome;
use oncebox::store::{Claimed, Migrate as _, Store as _};
use oncebox_postgres::Postgres;
use oncebox_postgres::sqlx::{AssertSqlSafe, Executor as _, Row as _, raw_sql};
use oncebox_servers::shared;
use oncebox_testkit::TestClock;
use support::{Schema, in_time};

/// Entries of one slow minute, inserted and deleted. Autovacuum is off and removes none of the dead rows.
const GONE: &str = "ALTER TABLE @entry SET (autovacuum_enabled = off);
    INSERT INTO @entry (seq, due, lane, handler) SELECT i << 6, 0, 0, 1 FROM generate_series(1, 30000) i;
    DELETE FROM @entry";
/// Twice the time within which a claim finds late entries without a full scan.
const LATE: Duration = Duration::from_millis(600);
const LOOKS_EVERY: Duration = Duration::from_secs(5);

fn vacuums(times: i64) -> String {
    format!("(SELECT vacuum_count FROM pg_stat_user_tables WHERE relid = '@entry'::regclass) = {times}")
}

// FAULTS E15
#[tokio::test]
async fn a_claim_removes_the_remains_of_deleted_rows() {
    // Also through a pooler, where most statements run in a transaction. VACUUM cannot.
    for schema in [Schema::shared(), Schema::new(shared::newest_url()), Schema::pooled()] {
        let clock = TestClock::new();
        let store = schema.open(&clock).await;
        accept_new(&store, ["1".to_owned()].into_iter()).await;
        schema.run(GONE).await;
        schema
            .wait_for("(SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = '@entry'::regclass) > 20000")
            .await;
        clock.advance(LOOKS_EVERY);
        claim(&store, "h", 1).await;
        schema.wait_for(&vacuums(1)).await;
    }
}

#[tokio::test]
async fn only_who_may_vacuum_tries_to() {
    let due = support::statement("vacuum_due").sql;
    for (url, grants) in [
        (shared::debian_url(), [None, Some("GRANT oncebox TO role")]),
        (shared::newest_url(), [None, Some("GRANT MAINTAIN ON @entry TO role")]),
    ] {
        let schema = Schema::new(url);
        schema.options().apply().await.expect("apply");
        let role = format!("{}_worker", schema.name);
        schema.run(&format!("CREATE ROLE {role}; GRANT USAGE ON SCHEMA {} TO {role}", schema.name)).await;
        for (grant, may) in grants.into_iter().zip([false, true]) {
            if let Some(grant) = grant {
                schema.run(&grant.replace("role", &role)).await;
            }
            let mut session = schema.connect().await;
            support::run(&mut session, &format!("SET ROLE {role}")).await.expect("the role");
            let row = session.fetch_one(raw_sql(AssertSqlSafe(schema.sql(&due)))).await.expect("an answer");
            assert_eq!(row.get::<bool, _>(0), may, "{grant:?}");
        }
        schema.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    }
}

fn ids(claimed: &[Claimed]) -> Vec<String> {
    claimed.iter().map(|one| String::from_utf8_lossy(one.message.id()).into_owned()).collect()
}

/// Handles so many entries that claims skip most full scans.
async fn handle_many(store: &Postgres) {
    for first in [0, 5_000] {
        accept_new(store, (first..first + 5_000).map(|number| format!("many {number}"))).await;
        complete_all(store, "h").await;
    }
}

/// Handles other entries for longer than the expected delay of late ones.
async fn handle_others(store: &Postgres, round: usize) {
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < LATE {
        accept_new(store, (count..count + 10).map(|number| format!("other {round} {number}"))).await;
        assert_eq!(complete_all(store, "h").await, 10);
        count += 10;
    }
}

/// Removes an entry, and inserts it again after later ones were handled, as if it were committed late.
async fn one_comes_late(schema: &Schema, store: &Postgres, round: usize) {
    accept_new(store, [format!("late {round}")].into_iter()).await;
    let take =
        "DROP TABLE IF EXISTS @taken; CREATE TABLE @taken AS SELECT * FROM @entry ORDER BY seq LIMIT 1;
         DELETE FROM @entry WHERE seq IN (SELECT seq FROM @taken)";
    schema.run(take).await;
    handle_others(store, round).await;
    schema.run("INSERT INTO @entry SELECT * FROM @taken").await;
}

// FAULTS B13
#[tokio::test(flavor = "multi_thread")]
async fn what_is_committed_late_is_found_by_who_finds_nothing_else() {
    let schema = Schema::shared();
    let store = schema.options().lanes(1).open().await.expect("the store opens");
    let mut wakeup = store.wakeups().expect("it has some").subscribe();
    handle_many(&store).await;
    for round in 0..5 {
        one_comes_late(&schema, &store, round).await;
        while wakeup.woken().now_or_never().is_some() {}
        let mut late = claim(&store, "h", 100).await;
        if late.is_empty() {
            // A full scan takes long on this machine, so it is delayed, but not for ever.
            in_time(wakeup.woken()).await;
            late = claim(&store, "h", 100).await;
        }
        assert_eq!(ids(&late), [format!("late {round}")]);
        settle(&store, &late, &Outcome::Done).await;
    }
}

// FAULTS B13
#[tokio::test(flavor = "multi_thread")]
async fn what_is_committed_late_is_found_beside_others_that_come() {
    let schema = Schema::shared();
    let store = schema.options().lanes(1).open().await.expect("the store opens");
    let mut wakeup = store.wakeups().expect("it has some").subscribe();
    handle_many(&store).await;
    for round in 0..5 {
        one_comes_late(&schema, &store, round).await;
        accept_new(&store, [format!("new {round}")].into_iter()).await;
        while wakeup.woken().now_or_never().is_some() {}
        let mut found = Vec::new();
        loop {
            let claimed = claim(&store, "h", 100).await;
            settle(&store, &claimed, &Outcome::Done).await;
            found.extend(ids(&claimed));
            if found.len() == 2 {
                break;
            }
            // The claim passed it: then a wake-up announces that there may be more.
            in_time(wakeup.woken()).await;
        }
        found.sort_unstable();
        assert_eq!(found, [format!("late {round}"), format!("new {round}")]);
    }
}
