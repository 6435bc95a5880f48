//! Windows of handlers and partitions, sweepers of several processes, and concurrent backfills.

mod fixture;
mod support;

use std::time::Duration;

use fixture::{
    DAY, HOUR, RETENTION, accept, accept_for, complete_all, handler, inbox, payload, route, status, sweep,
};
use oncebox::state::Status;
use oncebox::store::{Accepted, BackfillParams, Operate, Store as _, SweepParams, Swept};
use oncebox_postgres::Postgres;
use oncebox_postgres::sqlx::{AssertSqlSafe, Executor as _, raw_sql};
use oncebox_testkit::TestClock;
use support::Schema;

struct WindowsFixture {
    schema: Schema,
    clock: TestClock,
}

impl WindowsFixture {
    fn new() -> Self {
        Self { schema: Schema::new(oncebox_servers::shared::debian_url()), clock: TestClock::new() }
    }

    async fn open(&self) -> Postgres {
        self.schema.options().clock(self.clock.shared()).open().await.expect("the store opens")
    }

    async fn first_partition(&self) -> i64 {
        self.schema.number("SELECT min(id) FROM @partition").await
    }
}

/// Sweeps page after page, with a separate window for one handler.
async fn sweep_with(store: &Postgres, retention: Duration, name: &str, window: Duration) -> usize {
    let mut params = SweepParams::new(inbox(), retention, 1_000);
    params.windows = vec![(handler(name), window)];
    let mut messages = 0;
    loop {
        let swept = store.sweep(&params).await.expect("sweep");
        messages += swept.messages;
        match swept.next {
            None => return messages,
            next => params.after = next,
        }
    }
}

// FAULTS H1, H2
#[tokio::test]
async fn a_partition_stays_until_the_longest_window_is_over() {
    let place = WindowsFixture::new();
    let store = place.open().await;
    for n in 0..20 {
        accept(&store, &format!("short {n}")).await;
        accept_for(&store, &format!("long {n}"), &["long"]).await;
    }
    assert_eq!((complete_all(&store, "h").await, complete_all(&store, "long").await), (20, 20));
    let sweep = async || sweep_with(&store, RETENTION, "long", 30 * DAY).await;
    sweep().await;
    place.clock.advance(DAY);
    sweep().await;
    place.clock.advance(8 * DAY);
    assert_eq!(sweep().await, 20);
    assert_eq!(place.first_partition().await, 1, "half of it is still needed");
    assert_eq!(place.schema.number("SELECT count(*) FROM @message_kept").await, 0, "nothing was moved");
    assert_eq!(payload(&store, "long 7").await.as_deref(), Some(&b"long 7"[..]));
    place.clock.advance(20 * DAY);
    assert_eq!(sweep().await, 0);
    assert!(matches!(accept_for(&store, "long 7", &["long"]).await, Accepted::Duplicate(_)));
    place.clock.advance(2 * DAY);
    assert_eq!(sweep().await, 20);
    assert!(place.first_partition().await > 1);
    for table in ["message", "outcome", "proof"] {
        assert_eq!(place.schema.number(&format!("SELECT count(*) FROM @{table}")).await, 0, "{table}");
    }
}

#[tokio::test]
async fn what_is_kept_for_ever_does_not_keep_its_partition() {
    let place = WindowsFixture::new();
    let store = place.open().await;
    for n in 0..20 {
        accept_for(&store, &n.to_string(), &["short"]).await;
    }
    accept(&store, "kept").await;
    assert_eq!((complete_all(&store, "short").await, complete_all(&store, "h").await), (20, 1));
    let sweep = async || sweep_with(&store, Duration::MAX, "short", HOUR).await;
    sweep().await;
    place.clock.advance(DAY);
    assert_eq!(sweep().await, 20);
    place.clock.advance(2 * HOUR);
    assert_eq!(sweep().await, 0);
    assert!(place.first_partition().await > 1, "the partition is dropped");
    assert_eq!(payload(&store, "kept").await.as_deref(), Some(&b"kept"[..]), "and what is needed was moved");
    assert_eq!(status(&store, "kept", "h").await, Some(Status::Completed));
    assert_eq!(place.schema.number("SELECT count(*) FROM @message").await, 1);
}

// FAULTS H4
#[tokio::test]
async fn no_sweeper_waits_for_another() {
    let place = WindowsFixture::new();
    let store = place.open().await;
    accept_for(&store, "1", &[]).await;
    place.clock.advance(RETENTION);
    let mut other = place.schema.connect().await;
    let lock = place.schema.sql("BEGIN; SELECT 1 FROM @inbox FOR NO KEY UPDATE");
    other.execute(raw_sql(AssertSqlSafe(lock))).await.expect("another one sweeps");
    let swept = store.sweep(&SweepParams::new(inbox(), RETENTION, 10)).await.expect("sweep");
    assert_eq!(swept, Swept::NOTHING);
    // Accepting does not wait either, for new handlers or for others.
    assert!(matches!(accept_for(&store, "2", &["another"]).await, Accepted::First(_)));
    // The sweeper dies in the middle of a page. Nothing of its claim is left.
    drop(other);
    let mut left = 1;
    for _ in 0..1_000 {
        left -= sweep(&store).await;
        if left == 0 {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(left, 0, "the lock of one that is gone is gone");
}

// The sweep reads outcomes of adjacent messages in one query, and others one by one. Late outcomes count in both cases.
#[tokio::test]
async fn what_was_finished_late_stays_for_its_window() {
    for apart in [1, 1_000] {
        let place = WindowsFixture::new();
        let store = place.open().await;
        for n in 0..9 {
            let handler = if n % 3 == 0 { "late" } else { "h" };
            accept_for(&store, &n.to_string(), &[handler]).await;
            let leap = format!("SELECT setval('@counter', nextval('@counter') + {apart})");
            place.schema.number(&leap).await;
        }
        assert_eq!(complete_all(&store, "h").await, 6);
        place.clock.advance(DAY);
        assert_eq!(complete_all(&store, "late").await, 3);
        place.clock.advance(6 * DAY + 23 * HOUR);
        assert_eq!(sweep(&store).await, 6, "{apart} apart");
        assert!(matches!(accept_for(&store, "3", &["late"]).await, Accepted::Duplicate(_)), "{apart} apart");
        place.clock.advance(2 * HOUR);
        assert_eq!(sweep(&store).await, 3, "{apart} apart");
        assert_eq!(place.schema.number("SELECT count(*) FROM @proof").await, 0);
    }
}

// A process that checks for another sweeper may hold the row for a moment, although it is not its turn. The process
// whose turn it is must not mistake it for a sweeper, or neither sweeps.
#[tokio::test]
async fn a_sweeper_goes_on_though_another_looks_whether_it_may() {
    let place = WindowsFixture::new();
    let store = place.open().await;
    for n in 0..3 {
        accept_for(&store, &n.to_string(), &[]).await;
    }
    place.clock.advance(RETENTION);
    let mut params = SweepParams::new(inbox(), RETENTION, 2);
    params.after = store.sweep(&params).await.expect("sweep").next;
    assert!(params.after.is_some());
    let mut other = place.schema.connect().await;
    let lock = place.schema.sql("BEGIN; SELECT 1 FROM @inbox FOR NO KEY UPDATE");
    other.execute(raw_sql(AssertSqlSafe(lock))).await.expect("another one looks");
    let going_on = tokio::spawn({
        let store = store.clone();
        async move { store.sweep(&params).await.expect("sweep").messages }
    });
    let waits =
        "EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%:schema%')";
    place.schema.wait_for(&waits.replace(":schema", &place.schema.name)).await;
    other.execute(raw_sql("ROLLBACK")).await.expect("it was not its turn");
    assert_eq!(going_on.await.expect("no panic"), 1, "the last page");
}

#[tokio::test]
async fn a_sweeper_whose_turn_is_over_does_not_wait_for_its_successor() {
    let place = WindowsFixture::new();
    let store = place.open().await;
    for n in 0..3 {
        accept_for(&store, &n.to_string(), &[]).await;
    }
    place.clock.advance(RETENTION);
    let mut params = SweepParams::new(inbox(), RETENTION, 2);
    params.after = store.sweep(&params).await.expect("sweep").next;
    place.clock.advance(params.lease + Duration::from_millis(1));
    let mut other = place.schema.connect().await;
    let lock = place.schema.sql("BEGIN; SELECT 1 FROM @inbox FOR NO KEY UPDATE");
    other.execute(raw_sql(AssertSqlSafe(lock))).await.expect("another one sweeps");
    assert_eq!(store.sweep(&params).await.expect("sweep"), Swept::NOTHING);
}

#[tokio::test]
async fn a_message_whose_payload_has_left_is_not_backfilled() {
    let place = WindowsFixture::new();
    let options = place.schema.options().clock(place.clock.shared()).payload_retention(DAY);
    let store = options.open().await.expect("the store opens");
    accept(&store, "old").await;
    complete_all(&store, "h").await;
    for _ in 0..3 {
        sweep(&store).await;
        place.clock.advance(DAY);
    }
    sweep(&store).await;
    assert_eq!(payload(&store, "old").await, None, "its key is all that is left");
    accept(&store, "young").await;
    let params = BackfillParams::new(inbox(), route("new"), vec!["order.placed".into()]);
    assert_eq!(store.backfill(&params).await.expect("backfill").added, 1);
    assert_eq!(complete_all(&store, "new").await, 1);
    assert_eq!(status(&store, "old", "new").await, None);
    assert!(matches!(accept_for(&store, "old", &["h", "new"]).await, Accepted::HandlersAdded(_, 1)));
}

// FAULTS H2: in either order, a message with work keeps its payload.
#[tokio::test]
async fn a_drop_and_a_backfill_agree() {
    for round in 0..8 {
        let place = WindowsFixture::new();
        let options = place.schema.options().clock(place.clock.shared()).payload_retention(DAY);
        let store = options.open().await.expect("the store opens");
        for n in 0..50 {
            accept(&store, &n.to_string()).await;
        }
        complete_all(&store, "h").await;
        sweep(&store).await;
        place.clock.advance(DAY);
        sweep(&store).await;
        place.clock.advance(DAY + HOUR);
        let filling = tokio::spawn({
            let store = store.clone();
            async move {
                for _ in 0..round {
                    tokio::task::yield_now().await;
                }
                let params = BackfillParams::new(inbox(), route("new"), vec!["order.placed".into()]);
                store.backfill(&params).await.expect("backfill").added
            }
        });
        sweep(&store).await;
        let added = filling.await.expect("no panic");
        assert!(added == 0 || added == 50, "{added}");
        assert_eq!(complete_all(&store, "new").await, added, "each of them has its payload");
    }
}
