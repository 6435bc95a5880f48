//! Partitions: created ahead, ended in time, and dropped whole, but never with rows that are still needed.

mod fixture;
mod support;

use oncebox_testkit::OperatorSteps as _;
use std::time::{Duration, Instant};

use fixture::{
    DAY, HOUR, LEASE, RETENTION, accept, accept_for, accept_new, claim, claim_one, complete_all, inbox, key,
    offer, payload, rejected, route, settle, status, sweep,
};
use oncebox::ErrorKind;
use oncebox::state::{Operation, Outcome, Status};
use oncebox::store::{Accepted, Inspect, QuarantineReason, RescueParams, Store as _};
use oncebox_postgres::sqlx::{AssertSqlSafe, Executor as _, PgConnection, raw_sql};
use oncebox_postgres::{Postgres, PostgresOptions};
use oncebox_testkit::TestClock;
use support::Schema;

/// Much longer than a drop may wait for its lock, and much shorter than any other wait of the store.
const MOMENT: Duration = Duration::from_secs(10);

/// A schema on the shared server, and the clock of its stores.
struct RetentionFixture {
    schema: Schema,
    clock: TestClock,
}

impl RetentionFixture {
    fn new() -> Self {
        Self { schema: Schema::new(oncebox_servers::shared::debian_url()), clock: TestClock::new() }
    }

    /// Returns options with the test's clock and a new partition every day.
    fn options(&self) -> PostgresOptions {
        self.schema.options().clock(self.clock.shared())
    }

    async fn open(&self) -> Postgres {
        self.options().open().await.expect("the store opens")
    }

    async fn number(&self, sql: &str) -> i64 {
        self.schema.number(sql).await
    }

    /// Returns the partition of new messages.
    async fn partition(&self) -> i64 {
        self.number("SELECT partition_id FROM @meta").await
    }

    /// Counts the partitions of a table, without the default one.
    async fn partitions(&self, table: &str) -> i64 {
        let of = format!("SELECT count(*) - 1 FROM pg_inherits WHERE inhparent = '@{table}'::regclass");
        self.number(&of).await
    }

    /// Checks that the list of partitions and the existing partitions agree. One query reads all, because the store makes partitions
    /// in the background.
    async fn check(&self) {
        let children = |table: &str| {
            format!("(SELECT count(*) - 1 FROM pg_inherits WHERE inhparent = '@{table}'::regclass)")
        };
        let query = format!(
            "SELECT concat_ws(' ', {outcomes}, {messages}, (SELECT count(*) FROM @partition), \
             (SELECT count(*) FROM @partition WHERE payload), (SELECT count(*) FROM pg_tables \
             WHERE schemaname = '{schema}' AND tablename ~ '_(message|outcome)_[0-9]+$'))",
            outcomes = children("outcome"),
            messages = children("message"),
            schema = self.schema.name
        );
        let counts = self.schema.text(&query).await;
        let counts: Vec<i64> = counts.split(' ').map(|count| count.parse().expect("a count")).collect();
        let [outcomes, messages, listed, with_payload, tables] = counts[..] else { panic!("{counts:?}") };
        assert_eq!((outcomes, messages), (listed, with_payload));
        assert_eq!(tables, listed + with_payload, "a partition was left lying about");
    }
}

/// Ends the current partition: advances the clock by a day, and sweeps.
async fn next_day(place: &RetentionFixture, store: &Postgres) {
    place.clock.advance(DAY);
    sweep(store).await;
}

#[tokio::test]
async fn a_partition_is_there_before_it_is_needed_and_ends_with_its_day() {
    let place = RetentionFixture::new();
    let store = place.open().await;
    assert_eq!((place.partition().await, place.partitions("message").await), (1, 2));
    accept(&store, "first").await;
    // The first sweep starts the first day.
    sweep(&store).await;
    place.clock.advance(23 * HOUR);
    sweep(&store).await;
    assert_eq!(place.partition().await, 1, "its day is not over");
    place.clock.advance(HOUR);
    sweep(&store).await;
    assert_eq!((place.partition().await, place.partitions("message").await), (2, 3));
    next_day(&place, &store).await;
    assert_eq!(place.partition().await, 2, "a partition without a message does not end");
    accept(&store, "second").await;
    assert_eq!(place.number("SELECT count(*) FROM @message_2").await, 1);
    next_day(&place, &store).await;
    assert_eq!((place.partition().await, place.partitions("message").await), (3, 4));
    assert_eq!(complete_all(&store, "h").await, 2, "a claim looks into every partition");
    assert_eq!(place.number("SELECT count(*) FROM @message_kept").await, 0);
    place.check().await;
}

#[tokio::test]
async fn a_partition_ends_when_it_is_full() {
    let place = RetentionFixture::new();
    let store = place.options().partitions(DAY, 10).open().await.expect("the store opens");
    for round in 1..=6 {
        assert_eq!(place.partition().await, round);
        accept_new(&store, (0..10).map(|n| format!("{round}-{n}"))).await;
        let mut sweeps = 0;
        // Accepting ends a full partition, too. Then one of the two leaves it to the other.
        while place.partition().await == round {
            sweep(&store).await;
            sweeps += 1;
            assert!(sweeps < 1_000, "partition {round} does not end");
        }
    }
    assert_eq!(
        place.number("SELECT max(n) FROM (SELECT count(*) AS n FROM @message GROUP BY seq >> 36) s").await,
        10
    );
    assert_eq!(complete_all(&store, "h").await, 60);
    place.check().await;
}

#[tokio::test]
async fn accepting_alone_ends_a_full_partition() {
    let place = RetentionFixture::new();
    let store = place.options().partitions(DAY, 10).open().await.expect("the store opens");
    let mut rounds = 0;
    while place.partition().await < 4 {
        accept_new(&store, (0..10).map(|n| format!("{rounds}-{n}"))).await;
        rounds += 1;
        assert!(rounds < 1_000, "no partition ended");
    }
    place.check().await;
}

#[tokio::test]
async fn what_is_swept_leaves_with_its_partition() {
    let place = RetentionFixture::new();
    let store = place.open().await;
    accept_new(&store, (0..100).map(|n| n.to_string())).await;
    assert_eq!(complete_all(&store, "h").await, 100);
    sweep(&store).await;
    next_day(&place, &store).await;
    place.clock.advance(6 * DAY);
    assert_eq!(sweep(&store).await, 100, "the keys leave");
    assert_eq!(place.number("SELECT count(*) FROM @message").await, 100, "its partition ended six days ago");
    // Some duplicates are counted while a sweep runs, which does not see them.
    place.schema.run("INSERT INTO @duplicate SELECT seq, 1, 0, 0, lane FROM @message LIMIT 7").await;
    place.clock.advance(DAY);
    assert_eq!(sweep(&store).await, 0);
    for table in ["message", "outcome", "proof", "duplicate"] {
        assert_eq!(place.number(&format!("SELECT count(*) FROM @{table}")).await, 0, "{table}");
    }
    assert!(matches!(accept(&store, "1").await, Accepted::First(_)), "a forgotten key is new");
    place.check().await;
}

/// One message in each state that must outlive its partition: `pending`, `later`, `running`, `poisoned`, and `quarantined`.
async fn one_of_each(store: &Postgres) {
    for id in ["running", "poisoned", "later"] {
        accept(store, id).await;
        let claimed = claim_one(store, "h").await;
        match id {
            "poisoned" => settle(store, &[claimed], &rejected()).await,
            "later" => settle(store, &[claimed], &Outcome::Snooze { delay: 400 * DAY }).await,
            _ => {}
        }
    }
    accept(store, "pending").await;
    accept_for(store, "quarantined", &[]).await;
    let other = oncebox::Message::new("quarantined", "order.placed", "another payload");
    let kept = store.accept(&[offer(other, &[])]).await.expect("accept");
    assert!(matches!(kept[0], Accepted::Conflict(_)));
}

async fn check_one_of_each(store: &Postgres) {
    let states = [
        ("pending", Status::Pending),
        ("later", Status::Pending),
        ("running", Status::Running),
        ("poisoned", Status::Poisoned),
    ];
    for (id, state) in states {
        assert_eq!(status(store, id, "h").await, Some(state), "{id}");
        assert_eq!(payload(store, id).await.as_deref(), Some(id.as_bytes()), "{id}");
        assert!(matches!(accept(store, id).await, Accepted::Duplicate(_)), "{id}");
    }
    let item =
        store.show(&inbox(), &key("quarantined")).await.expect("show").expect("it is kept").quarantined;
    assert_eq!(
        (item[0].reason, item[0].message.payload().as_ref()),
        (QuarantineReason::Conflict, &b"another payload"[..])
    );
}

#[tokio::test]
async fn what_is_not_finished_outlives_every_drop() {
    let place = RetentionFixture::new();
    let store = place.options().payload_retention(2 * DAY).open().await.expect("the store opens");
    accept_new(&store, (0..50).map(|n| format!("done-{n}"))).await;
    complete_all(&store, "h").await;
    one_of_each(&store).await;
    sweep(&store).await;
    for day in 0..12 {
        next_day(&place, &store).await;
        accept_for(&store, &format!("day {day}"), &[]).await;
        check_one_of_each(&store).await;
    }
    assert!(place.number("SELECT min(id) FROM @partition").await > 1, "the first partition is gone");
    assert_eq!(
        place.number("SELECT count(*) FROM @message_kept").await,
        4,
        "what is not finished was moved out of it"
    );
    assert!(matches!(accept(&store, "done-7").await, Accepted::First(_)), "what was finished was forgotten");

    // All of them can still be handled.
    store.operate(&inbox(), &key("poisoned"), &fixture::handler("h"), Operation::Retry).await.expect("retry");
    let again = store.rescue(&RescueParams::new(inbox(), vec![route("h")], LEASE, 10)).await.expect("rescue");
    settle(&store, &again, &Outcome::Done).await;
    place.clock.advance(400 * DAY);
    let rest = claim(&store, "h", 10).await;
    let mut ids: Vec<_> = again.iter().chain(&rest).map(|one| one.message.payload().to_vec()).collect();
    ids.sort();
    assert_eq!(ids, ["done-7", "later", "pending", "poisoned", "running"].map(|id| id.as_bytes().to_vec()));
    settle(&store, &rest, &Outcome::Done).await;
    for id in ["later", "pending", "poisoned", "running"] {
        assert_eq!(status(&store, id, "h").await, Some(Status::Completed), "{id}");
    }

    // Then the sweep deletes them like all others.
    place.clock.advance(RETENTION);
    sweep(&store).await;
    for table in ["message_kept", "outcome_kept", "proof"] {
        assert_eq!(place.number(&format!("SELECT count(*) FROM @{table}")).await, 0, "{table}");
    }
    place.check().await;
}

/// Stores a finished message, and deletes its payload but not its key.
async fn without_payload(place: &RetentionFixture, id: &str) -> Postgres {
    let store = place.options().payload_retention(DAY).open().await.expect("the store opens");
    accept(&store, id).await;
    complete_all(&store, "h").await;
    sweep(&store).await;
    next_day(place, &store).await;
    assert_eq!(
        payload(&store, id).await.as_deref(),
        Some(id.as_bytes()),
        "its partition has only just ended"
    );
    next_day(place, &store).await;
    assert_eq!(payload(&store, id).await, None, "it has left");
    store
}

#[tokio::test]
async fn a_payload_may_leave_before_its_key() {
    let place = RetentionFixture::new();
    let store = without_payload(&place, "a").await;
    assert_eq!((place.partitions("message").await, place.partitions("outcome").await), (2, 3));
    assert_eq!(status(&store, "a", "h").await, Some(Status::Completed), "its history is there");
    assert!(matches!(accept(&store, "a").await, Accepted::Duplicate(_)), "the key is remembered");
    let replay = store.operate(&inbox(), &key("a"), &fixture::handler("h"), Operation::Replay).await;
    let refused = replay.expect_err("there is nothing to run");
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.to_string().contains("payload") && refused.to_string().contains("has left"), "{refused}");
    assert_eq!(status(&store, "a", "h").await, Some(Status::Completed), "a refusal changes nothing");
    assert!(claim(&store, "h", 1).await.is_empty());
    place.check().await;
}

#[tokio::test]
async fn a_delivery_for_another_handler_brings_the_payload_back() {
    let place = RetentionFixture::new();
    let store = without_payload(&place, "a").await;
    let added = accept_for(&store, "a", &["h", "late"]).await;
    assert!(matches!(added, Accepted::HandlersAdded(_, 1)), "{added:?}");
    let claimed = claim_one(&store, "late").await;
    assert_eq!(claimed.message.payload().as_ref(), b"a");
    // The message stays as long as it is needed, and is deleted with its key.
    for _ in 0..10 {
        next_day(&place, &store).await;
        accept_for(&store, &format!("{:?}", place.number("SELECT last_value FROM @counter").await), &[])
            .await;
    }
    assert_eq!(payload(&store, "a").await.as_deref(), Some(&b"a"[..]));
    settle(&store, &[claimed], &Outcome::Done).await;
    assert_eq!(status(&store, "a", "h").await, Some(Status::Completed), "the older history was kept, too");
    let replayed =
        store.operate(&inbox(), &key("a"), &fixture::handler("h"), Operation::Replay).await.expect("replay");
    assert_eq!(replayed.generation, 1);
    assert_eq!(complete_all(&store, "h").await, 1, "a replay has its payload again");
    place.clock.advance(RETENTION);
    sweep(&store).await;
    assert_eq!(place.number("SELECT count(*) FROM @message_kept").await, 0);
    assert_eq!(place.number("SELECT count(*) FROM @outcome_kept").await, 0);
    place.check().await;
}

/// Returns a store with a partition that the next sweep drops.
async fn with_something_to_drop(place: &RetentionFixture) -> Postgres {
    let store = place.open().await;
    accept_new(&store, (0..20).map(|n| format!("old-{n}"))).await;
    complete_all(&store, "h").await;
    sweep(&store).await;
    next_day(place, &store).await;
    place.clock.advance(RETENTION);
    store
}

/// Opens a transaction that uses a table.
async fn stand_in_the_way(place: &RetentionFixture, table: &str) -> PgConnection {
    let mut other = place.schema.connect().await;
    let hold = format!("BEGIN; {}", place.schema.sql(&format!("LOCK TABLE @{table} IN ACCESS SHARE MODE")));
    other.execute(raw_sql(AssertSqlSafe(hold))).await.expect("a lock");
    other
}

#[tokio::test]
async fn a_drop_that_gets_no_lock_changes_nothing_and_comes_later() {
    for table in ["message", "message_1", "outcome", "outcome_1", "message_kept"] {
        let place = RetentionFixture::new();
        let store = with_something_to_drop(&place).await;
        let mut other = stand_in_the_way(&place, table).await;
        let begun = Instant::now();
        let (swept, accepted) = tokio::join!(sweep(&store), accept(&store, "meanwhile"));
        assert!(begun.elapsed() < MOMENT, "everybody waited behind the drop for {:?}", begun.elapsed());
        assert_eq!(swept, 20, "the keys leave all the same");
        assert!(matches!(accepted, Accepted::First(_)), "accepting goes on");
        assert_eq!(place.number("SELECT min(id) FROM @partition").await, 1, "{table} was locked");
        assert_eq!(place.number("SELECT count(*) FROM @message_1").await, 20);
        assert_eq!(complete_all(&store, "h").await, 1, "so does everything else");
        place.check().await;
        other.execute("COMMIT").await.expect("commit");
        sweep(&store).await;
        assert!(place.number("SELECT min(id) FROM @partition").await > 1, "{table} is free");
        assert_eq!(status(&store, "meanwhile", "h").await, Some(Status::Completed));
        place.check().await;
    }
}

#[tokio::test]
async fn sweepers_at_once_drop_once() {
    let place = RetentionFixture::new();
    let store = with_something_to_drop(&place).await;
    let others = [place.open().await, place.open().await, place.open().await];
    let (a, b, c, d) = tokio::join!(sweep(&store), sweep(&others[0]), sweep(&others[1]), sweep(&others[2]));
    assert_eq!(a + b + c + d, 20, "each key leaves once");
    // The second one did not wait for the first.
    sweep(&store).await;
    assert!(place.number("SELECT min(id) FROM @partition").await > 1);
    place.check().await;
}

#[tokio::test]
async fn a_partition_that_was_made_but_never_used_is_used_later() {
    let place = RetentionFixture::new();
    let store = place.open().await;
    // The state after a process that ended between the two steps.
    place.schema.run("SELECT @make_partition_v1(3)").await;
    accept(&store, "a").await;
    sweep(&store).await;
    for (day, partition) in [(0, 2), (1, 3), (2, 4)] {
        next_day(&place, &store).await;
        assert_eq!(place.partition().await, partition);
        accept(&store, &format!("day {day}")).await;
        place.check().await;
    }
    assert_eq!(complete_all(&store, "h").await, 4);
}

#[tokio::test]
async fn nothing_grows_over_fifty_days() {
    let place = RetentionFixture::new();
    let store = place.options().payload_retention(2 * DAY).open().await.expect("the store opens");
    accept(&store, "poisoned").await;
    settle(&store, &[claim_one(&store, "h").await], &rejected()).await;
    let mut peak = (0, 0);
    for day in 0..50 {
        accept_new(&store, (0..20).map(|n| format!("{day}-{n}"))).await;
        assert_eq!(complete_all(&store, "h").await, 20);
        next_day(&place, &store).await;
        peak.0 = peak.0.max(place.partitions("message").await);
        peak.1 = peak.1.max(place.partitions("outcome").await);
        place.check().await;
    }
    // The current partition, the next two, and those within the retention.
    assert!(peak.0 <= 6 && peak.1 <= 11, "{peak:?}");
    assert!(place.number("SELECT count(*) FROM @proof").await <= 8 * 20 + 1);
    assert_eq!(place.number("SELECT count(*) FROM @message_kept").await, 1, "only the poisoned one");
    assert_eq!(payload(&store, "poisoned").await.as_deref(), Some(&b"poisoned"[..]));
}
