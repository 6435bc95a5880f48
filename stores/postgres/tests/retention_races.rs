//! Sweeps and drops of partitions during all other calls: no unfinished entry ever loses its key or its message.

mod fixture;
mod support;

use oncebox_testkit::OperatorSteps as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fastrand::Rng;
use fixture::{DAY, HOUR, accept_for, handler, inbox, key, rejected, route};
use oncebox::ErrorKind;
use oncebox::state::{ErrorText, Operation, Outcome};
use oncebox::store::{Accepted, ClaimParams, ClaimQuota, Settled, Store as _, SweepParams};
use oncebox::{Policy, Result};
use oncebox_postgres::Postgres;
use oncebox_postgres::sqlx::{AssertSqlSafe, Executor as _, PgConnection, raw_sql};
use oncebox_testkit::TestClock;
use support::Schema;

/// Number of keys: few, so that all tasks often use the same ones.
const KEYS: usize = 40;
/// Rounds of each task.
const ROUNDS: usize = 150;
const RETENTION: Duration = Duration::from_hours(3);
/// Longer than the test by its clock: no lease expires.
const LEASE: Duration = Duration::from_hours(24 * 365);

/// Counts unfinished entries without their key or message.
const BEREFT: &str = "
    SELECT count(*) FROM (
        SELECT seq FROM @entry UNION ALL SELECT seq FROM @scheduled UNION ALL SELECT seq FROM @poisoned
    ) e
    WHERE NOT EXISTS (SELECT 1 FROM @proof p WHERE p.seq = e.seq)
       OR NOT EXISTS (SELECT 1 FROM @message m WHERE m.lane = e.seq & 63 AND m.seq = e.seq)";

/// Lists these entries, and the rows that are left of each.
const WHICH: &str = "
    SELECT coalesce(string_agg(format('%s in %s, partition %s: proof %s, message %s, partitions %s', e.seq, e.place, e.seq >> 36,
        EXISTS (SELECT 1 FROM @proof p WHERE p.seq = e.seq), EXISTS (SELECT 1 FROM @message m WHERE m.seq = e.seq),
        ARRAY(SELECT (s.id, s.payload) FROM @partition s ORDER BY s.id)), '; '), 'none any more')
    FROM (
        SELECT seq, 'entry ' || e::text AS place FROM @entry e UNION ALL SELECT seq, 'later ' || e::text FROM @scheduled e
        UNION ALL SELECT seq, 'poisoned ' || e::text FROM @poisoned e
    ) e
    WHERE NOT EXISTS (SELECT 1 FROM @proof p WHERE p.seq = e.seq)
       OR NOT EXISTS (SELECT 1 FROM @message m WHERE m.lane = e.seq & 63 AND m.seq = e.seq)";

/// Counts kept rows of deleted keys: nothing would ever delete them.
const ORPHANS: &str = "
    SELECT count(*) FROM (SELECT seq FROM @message_kept UNION ALL SELECT seq FROM @outcome_kept) k
    WHERE NOT EXISTS (SELECT 1 FROM @proof p WHERE p.seq = k.seq)";

struct RaceFixture {
    schema: Schema,
    clock: TestClock,
    /// Counts of the events without which the test proves nothing.
    firsts: AtomicUsize,
    added: AtomicUsize,
    operated: AtomicUsize,
    swept: AtomicUsize,
}

fn id(rng: &mut Rng) -> String {
    rng.usize(..KEYS).to_string()
}

async fn accepts(world: Arc<RaceFixture>, store: Postgres, mut rng: Rng) {
    for _ in 0..ROUNDS {
        let handlers: &[&str] = if rng.bool() { &["h"] } else { &["h", "g"] };
        match accept_for(&store, &id(&mut rng), handlers).await {
            Accepted::First(_) => world.firsts.fetch_add(1, Ordering::Relaxed),
            Accepted::HandlersAdded(..) => world.added.fetch_add(1, Ordering::Relaxed),
            Accepted::Duplicate(_) => 0,
            other => panic!("{other:?}"),
        };
    }
}

async fn works(store: Postgres, mut rng: Rng) {
    for _ in 0..ROUNDS {
        let wants = ["h", "g"].map(|name| ClaimQuota { route: route(name), limit: 4 });
        let claimed = store.claim(&ClaimParams::new(inbox(), wants.to_vec(), LEASE)).await.expect("claim");
        let settlements: Vec<_> = claimed
            .iter()
            .map(|one| {
                assert_eq!(one.message.payload(), one.message.id(), "the message of another one");
                let outcome = match rng.u8(..10) {
                    0 => rejected(),
                    1 => Outcome::Snooze { delay: rng.u32(..8) * HOUR },
                    2 => Outcome::Discard { reason: ErrorText::new("enough") },
                    _ => Outcome::Done,
                };
                one.claim.settle(&Policy::default(), outcome)
            })
            .collect();
        let settled = store.settle(&settlements).await.expect("settle");
        assert!(settled.iter().all(|settled| *settled == Settled::Applied), "{settled:?}");
    }
}

async fn operates(world: Arc<RaceFixture>, store: Postgres, mut rng: Rng) {
    for _ in 0..ROUNDS {
        let operation = [Operation::Replay, Operation::Retry, Operation::Discard][rng.usize(..3)];
        let name = handler(if rng.bool() { "h" } else { "g" });
        match store.operate(&inbox(), &key(&id(&mut rng)), &name, operation).await {
            Ok(_) => _ = world.operated.fetch_add(1, Ordering::Relaxed),
            // The entry is missing, or its state does not allow the action.
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Refused), "{error:?}");
            }
        }
    }
}

async fn sweep(store: &Postgres) -> Result<usize> {
    sweep_for(store, RETENTION).await
}

async fn sweep_for(store: &Postgres, retention: Duration) -> Result<usize> {
    // Small pages, so that a sweep is in many places at once.
    let mut params = SweepParams::new(inbox(), retention, 16);
    let mut messages = 0;
    loop {
        let swept = store.sweep(&params).await?;
        messages += swept.messages;
        match swept.next {
            None => return Ok(messages),
            next => params.after = next,
        }
    }
}

async fn sweeps(world: Arc<RaceFixture>, store: Postgres) {
    for _ in 0..ROUNDS / 3 {
        world.clock.advance(HOUR);
        let swept = sweep(&store).await.expect("sweep");
        world.swept.fetch_add(swept, Ordering::Relaxed);
        let bereft = world.schema.number(BEREFT).await;
        let which = if bereft == 0 { String::new() } else { world.schema.text(WHICH).await };
        assert_eq!(bereft, 0, "an entry lost its key or its message: {which}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sweeping_races_with_everything_and_takes_nothing_that_is_needed() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let world = Arc::new(RaceFixture {
        schema: Schema::new(oncebox_servers::shared::debian_url()),
        clock: TestClock::new(),
        firsts: AtomicUsize::default(),
        added: AtomicUsize::default(),
        operated: AtomicUsize::default(),
        swept: AtomicUsize::default(),
    });
    let mut stores = Vec::new();
    for _ in 0..2 {
        let options = world.schema.options().clock(world.clock.shared());
        let options = options.partitions(2 * HOUR, 30).payload_retention(HOUR);
        stores.push(options.open().await.expect("the store opens"));
    }
    let mut tasks = Vec::new();
    for store in &stores {
        tasks.push(tokio::spawn(accepts(Arc::clone(&world), store.clone(), rng.fork())));
        tasks.push(tokio::spawn(accepts(Arc::clone(&world), store.clone(), rng.fork())));
        tasks.push(tokio::spawn(works(store.clone(), rng.fork())));
        tasks.push(tokio::spawn(operates(Arc::clone(&world), store.clone(), rng.fork())));
        tasks.push(tokio::spawn(sweeps(Arc::clone(&world), store.clone())));
    }
    for task in tasks {
        task.await.expect("no task fails");
    }
    let happened = [&world.firsts, &world.added, &world.operated, &world.swept]
        .map(|count| count.load(Ordering::Relaxed));
    println!("first, added, operated, swept: {happened:?}");
    assert!(happened.iter().all(|count| *count > 0), "a race without one of its runners: {happened:?}");
    let damaged = world.schema.number("SELECT count(*) FROM @poisoned WHERE error <> 'no'").await;
    assert_eq!(damaged, 0, "a claim found no message");
    assert!(world.schema.number("SELECT min(id) FROM @partition").await > 1, "nothing was dropped");

    // After all messages are finished and past their retention, nothing is left.
    let store = &stores[0];
    world.clock.advance(DAY);
    for name in ["h", "g"] {
        fixture::complete_all(store, name).await;
    }
    world.schema.run("DELETE FROM @poisoned").await;
    world.clock.advance(DAY);
    sweep(store).await.expect("sweep");
    accept_for(store, "last", &[]).await;
    world.clock.advance(DAY);
    for _ in 0..2 {
        sweep(store).await.expect("sweep");
        world.clock.advance(DAY);
    }
    assert_eq!(world.schema.number(ORPHANS).await, 0);
    assert_eq!(world.schema.number("SELECT count(*) FROM @proof").await, 0);
    assert!(world.schema.number("SELECT count(*) FROM @partition").await <= 3);
}

/// Returns a store with a finished message `a` that the next sweep deletes.
async fn with_something_to_sweep(schema: &Schema, clock: &TestClock, payload: Duration) -> Postgres {
    let options = schema.options().clock(clock.shared()).payload_retention(payload);
    let store = options.open().await.expect("the store opens");
    accept_for(&store, "a", &["h"]).await;
    fixture::complete_all(&store, "h").await;
    sweep(&store).await.expect("sweep");
    clock.advance(DAY);
    store
}

/// Gives new work to the message, as a replay does, and leaves the transaction open.
async fn replay_half(schema: &Schema) -> PgConnection {
    let mut replay = schema.connect().await;
    let sql = schema.sql(
        "BEGIN; SELECT payload FROM @message; UPDATE @proof SET handlers = handlers; \
         INSERT INTO @scheduled (seq, due, not_before, generation, lane, handler) \
         SELECT seq, 0, 0, 1, seq & 63, (SELECT id FROM @handler) FROM @proof",
    );
    replay.execute(raw_sql(AssertSqlSafe(sql))).await.expect("half a replay");
    replay
}

/// Waits until a statement waits for a lock: of a transaction that holds a row, or of a table.
async fn until_a_lock_is_waited_for(schema: &Schema, table: &str) {
    let waits = format!(
        "SELECT count(*) FROM pg_locks w WHERE NOT w.granted AND (w.relation = '@{table}'::regclass OR \
         w.locktype = 'transactionid' AND w.pid IN (SELECT pid FROM pg_locks WHERE relation = '@{table}'::regclass))"
    );
    while schema.number(&waits).await == 0 {}
}

// FAULTS H3
#[tokio::test]
async fn a_key_that_gets_work_while_it_is_swept_stays() {
    let (schema, clock) = (Schema::new(oncebox_servers::shared::debian_url()), TestClock::new());
    let store = with_something_to_sweep(&schema, &clock, 400 * DAY).await;
    let mut replay = replay_half(&schema).await;
    let sweeping = tokio::spawn({
        let store = store.clone();
        async move { sweep(&store).await }
    });
    // The sweep has checked by now, and found nothing unfinished.
    until_a_lock_is_waited_for(&schema, "proof").await;
    replay.execute("COMMIT").await.expect("commit");
    assert_eq!(sweeping.await.expect("no panic").expect("sweep"), 0, "the key has work again");
    assert_eq!(schema.number(BEREFT).await, 0);
    assert_eq!(fixture::complete_all(&store, "h").await, 1);
}

// FAULTS H2
#[tokio::test]
async fn a_message_that_gets_work_while_its_partition_is_dropped_stays() {
    let (schema, clock) = (Schema::new(oncebox_servers::shared::debian_url()), TestClock::new());
    let store = with_something_to_sweep(&schema, &clock, HOUR).await;
    // End the partition. Its payload may be dropped an hour later, but not yet the key.
    sweep_for(&store, 400 * DAY).await.expect("sweep");
    clock.advance(HOUR);
    let mut replay = replay_half(&schema).await;
    let sweeping = tokio::spawn({
        let store = store.clone();
        async move { sweep_for(&store, 400 * DAY).await }
    });
    until_a_lock_is_waited_for(&schema, "message").await;
    replay.execute("COMMIT").await.expect("commit");
    sweeping.await.expect("no panic").expect("sweep");
    sweep_for(&store, 400 * DAY).await.expect("sweep");
    assert_eq!(
        schema.number("SELECT count(*) FROM @partition WHERE id = 1 AND payload").await,
        0,
        "it was dropped"
    );
    assert_eq!(schema.number(BEREFT).await, 0);
    assert_eq!(fixture::complete_all(&store, "h").await, 1, "it has its payload");
}
