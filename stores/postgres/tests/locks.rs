//! Lock order: all statements lock rows in the same order, so that no two deadlock.

mod fixture;
mod support;

use fixture::{DAY, RETENTION, accept_for, complete_all, inbox, message, offer, route};
use oncebox::store::{
    Accepted, BackfillParams, DuplicateCount, NewMessage, Operate, Seq, Store as _, SweepParams,
};
use oncebox::time::Timestamp;
use oncebox::{Message, Result};
use oncebox_postgres::Postgres;
use oncebox_testkit::TestClock;
use support::{Schema, in_time, run};

/// Number of messages.
const MANY: usize = 40;

struct LockFixture {
    schema: Schema,
    clock: TestClock,
    store: Postgres,
}

impl LockFixture {
    /// Stores finished messages for the handler `h`. The row of the first one is after the others, and so is its key.
    async fn new() -> Self {
        let (schema, clock) = (Schema::new(oncebox_servers::shared::debian_url()), TestClock::new());
        let store = schema.options().clock(clock.shared()).open().await.expect("the store opens");
        for n in 0..MANY {
            accept_for(&store, &n.to_string(), &["h"]).await;
        }
        complete_all(&store, "h").await;
        schema.run("UPDATE @proof SET handlers = handlers WHERE seq = (SELECT min(seq) FROM @proof)").await;
        for before in ["p.ctid < first.ctid", "(p.lane, p.digest) < (first.lane, first.digest)"] {
            let sql = format!(
                "SELECT count(*) FROM @proof p, @proof first WHERE first.seq = (SELECT min(seq) FROM @proof) AND {before}"
            );
            assert!(schema.number(&sql).await > 0, "or the test would say nothing");
        }
        Self { schema, clock, store }
    }

    /// Runs a call that locks many rows of a table while another transaction holds the first row. The call must not
    /// have locked any other row meanwhile: the other transaction gets them at once.
    async fn locks_in_order<T>(
        &self,
        table: &str,
        [first, others]: [&str; 2],
        locks_many: impl Future<Output = Result<T>>,
    ) -> T {
        let mut other = self.schema.connect().await;
        run(&mut other, &self.schema.sql(&format!("BEGIN; {first}"))).await.expect("a lock");
        let meanwhile = async {
            let waits = format!(
                "EXISTS (SELECT 1 FROM pg_locks w WHERE NOT w.granted \
                 AND w.pid IN (SELECT l.pid FROM pg_locks l WHERE l.relation = '@{table}'::regclass))"
            );
            self.schema.wait_for(&waits).await;
            let others = format!("SET LOCAL lock_timeout = 1; {others}; ROLLBACK");
            let others = run(&mut other, &self.schema.sql(&others)).await;
            others.expect("no transaction locks any of the others");
        };
        let (done, ()) = in_time(Box::pin(async { tokio::join!(locks_many, meanwhile) })).await;
        done.expect("it goes on")
    }

    /// Like `locks_in_order`, for known keys, which are locked by number.
    async fn locks_by_number<T>(&self, locks_many: impl Future<Output = Result<T>>) -> T {
        let first = "SELECT 1 FROM @proof ORDER BY seq LIMIT 1 FOR UPDATE";
        let others = "SELECT 1 FROM @proof ORDER BY seq OFFSET 1 FOR UPDATE";
        self.locks_in_order("proof", [first, others], locks_many).await
    }
}

#[tokio::test]
async fn a_sweep_locks_keys_by_number() {
    let place = LockFixture::new().await;
    place.clock.advance(RETENTION + DAY);
    let params = SweepParams::new(inbox(), RETENTION, 100);
    assert_eq!(place.locks_by_number(place.store.sweep(&params)).await.messages, MANY);
}

#[tokio::test]
async fn adding_a_handler_locks_keys_by_number() {
    let place = LockFixture::new().await;
    let offers: Vec<_> = (0..MANY).rev().map(|n| offer(message(&n.to_string()), &["h", "new"])).collect();
    let accepted = place.locks_by_number(place.store.accept(&offers)).await;
    assert!(
        accepted.iter().all(|accepted| matches!(accepted, Accepted::HandlersAdded(_, 1))),
        "{accepted:?}"
    );
}

#[tokio::test]
async fn a_backfill_locks_keys_by_number() {
    let place = LockFixture::new().await;
    let params = BackfillParams::new(inbox(), route("new"), vec!["order.placed".into()]);
    assert_eq!(place.locks_by_number(place.store.backfill(&params)).await.added, MANY);
}

/// A batch of several statements: all of them store keys in one order.
#[tokio::test]
async fn a_batch_of_several_statements_locks_new_keys_by_key() {
    let place = LockFixture::new().await;
    let (schema, store) = (&place.schema, &place.store);
    let new = |id: &str| offer(message(id), &["h"]);
    let ids: Vec<String> = (0..2_500).map(|n| format!("new {n}")).collect();
    store.accept(&ids.iter().map(|id| new(id)).collect::<Vec<_>>()).await.expect("accept");
    let ids = "SELECT string_agg(convert_from(m.id, 'UTF8'), ',' ORDER BY p.lane DESC, p.digest DESC) \
               FROM @proof p JOIN @message m USING (seq)";
    let ids = schema.text(&format!("{ids} WHERE convert_from(m.id, 'UTF8') LIKE 'new %'")).await;
    let offers: Vec<NewMessage> = ids.split(',').map(new).collect();
    let hide = "CREATE TABLE @known AS SELECT * FROM @proof WHERE seq NOT IN (SELECT seq FROM @outcome); \
                TRUNCATE @proof, @message, @entry";
    schema.run(hide).await;
    let again = "INSERT INTO @proof SELECT * FROM @known ORDER BY lane, digest";
    let (first, others) = (format!("{again} LIMIT 1"), format!("{again} OFFSET 1"));
    let accepted = place.locks_in_order("proof", [&first, &others], store.accept(&offers)).await;
    assert!(accepted.iter().all(|accepted| matches!(accepted, Accepted::First(_))), "{accepted:?}");
}

#[tokio::test]
async fn what_is_quarantined_is_locked_by_key() {
    let place = LockFixture::new().await;
    let (schema, store) = (&place.schema, &place.store);
    let conflict = |n: usize| offer(Message::new(n.to_string(), "order.placed", "another one"), &["h"]);
    let mut offers: Vec<NewMessage> = (0..MANY).map(conflict).collect();
    offers.sort_by_key(|offer| std::cmp::Reverse(*offer.key.as_bytes()));
    store.accept(&offers).await.expect("accept");
    schema.run("CREATE TABLE @known AS SELECT * FROM @quarantine; DELETE FROM @quarantine").await;
    let again = "INSERT INTO @quarantine OVERRIDING SYSTEM VALUE SELECT * FROM @known ORDER BY digest";
    let (first, others) = (format!("{again} LIMIT 1"), format!("{again} OFFSET 1"));
    let accepted = place.locks_in_order("quarantine", [&first, &others], store.accept(&offers)).await;
    assert!(accepted.iter().all(|accepted| matches!(accepted, Accepted::Conflict(_))), "{accepted:?}");
    assert_eq!(schema.number("SELECT count(*) FROM @quarantine").await, 40);
}

#[tokio::test]
async fn duplicates_are_counted_in_the_order_in_which_sweeps_remove_them() {
    let place = LockFixture::new().await;
    let mut batch = Vec::new();
    for n in 0..MANY {
        let Accepted::Duplicate(known) = accept_for(&place.store, &n.to_string(), &["h"]).await else {
            panic!("it is known");
        };
        let at = Timestamp::from_millis(1);
        batch.push(DuplicateCount { seq: Seq(known.seq.0), count: 1, first: at, last: at, varied: 0 });
    }
    place.store.count_duplicates(&batch).await.expect("count_duplicates");
    let first = "SELECT 1 FROM @duplicate ORDER BY lane, seq LIMIT 1 FOR UPDATE";
    let others = "SELECT 1 FROM @duplicate ORDER BY lane, seq OFFSET 1 FOR UPDATE";
    let before =
        "SELECT count(*) FROM @duplicate WHERE seq < (SELECT seq FROM @duplicate ORDER BY lane, seq LIMIT 1)";
    assert!(place.schema.number(before).await > 0, "or the test would say nothing");
    place.locks_in_order("duplicate", [first, others], place.store.count_duplicates(&batch)).await;
    place.clock.advance(RETENTION + DAY);
    let params = SweepParams::new(inbox(), RETENTION, 100);
    let swept = place.locks_in_order("duplicate", [first, others], place.store.sweep(&params)).await;
    assert_eq!(swept.messages, MANY);
    assert_eq!(place.schema.number("SELECT count(*) FROM @duplicate").await, 0);
}
