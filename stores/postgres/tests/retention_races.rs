//! Sweeping and dropping while everything else goes on: no entry that is not finished ever loses its key or its message.

mod fixture;
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fastrand::Rng;
use fixture::{DAY, HOUR, accept_for, handler, inbox, key, rejected, route};
use oncebox::ErrorKind;
use oncebox::state::{ErrorText, Operation, Outcome};
use oncebox::store::{Accepted, Admin as _, ClaimParams, Settled, Store as _, SweepParams, Want};
use oncebox::{Policy, Result};
use oncebox_postgres::Postgres;
use oncebox_testkit::TestClock;
use support::Schema;

/// How many keys there are: few, so that all tasks meet at the same ones, again and again.
const KEYS: usize = 40;
/// How often each task does what it does.
const ROUNDS: usize = 150;
const RETENTION: Duration = Duration::from_hours(3);
/// Longer than the test lasts by the clock it goes by: leases are not what is tested.
const LEASE: Duration = Duration::from_hours(24 * 365);

/// Entries that are not finished and whose key or message is gone.
const BEREFT: &str = "
    SELECT count(*) FROM (
        SELECT seq FROM @ready UNION ALL SELECT seq FROM @later
        UNION ALL SELECT seq FROM @running UNION ALL SELECT seq FROM @poisoned
    ) e
    WHERE NOT EXISTS (SELECT 1 FROM @proof p WHERE p.seq = e.seq)
       OR NOT EXISTS (SELECT 1 FROM @message m WHERE m.lane = e.seq & 63 AND m.seq = e.seq)";

/// Rows that were kept for a key that is forgotten: nothing would ever remove them.
const ORPHANS: &str = "
    SELECT count(*) FROM (SELECT seq FROM @message_kept UNION ALL SELECT seq FROM @outcome_kept) k
    WHERE NOT EXISTS (SELECT 1 FROM @proof p WHERE p.seq = k.seq)";

struct World {
    schema: Schema,
    clock: TestClock,
    /// How often each thing happened that must happen for the test to mean something.
    firsts: AtomicUsize,
    added: AtomicUsize,
    operated: AtomicUsize,
    swept: AtomicUsize,
}

fn id(rng: &mut Rng) -> String {
    rng.usize(..KEYS).to_string()
}

async fn accepts(world: Arc<World>, store: Postgres, mut rng: Rng) {
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
        let wants = ["h", "g"].map(|name| Want { route: route(name), limit: 4 });
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

async fn operates(world: Arc<World>, store: Postgres, mut rng: Rng) {
    for _ in 0..ROUNDS {
        let operation = [Operation::Replay, Operation::Retry, Operation::Discard][rng.usize(..3)];
        let name = handler(if rng.bool() { "h" } else { "g" });
        match store.operate(&inbox(), &key(&id(&mut rng)), &name, operation).await {
            Ok(_) => _ = world.operated.fetch_add(1, Ordering::Relaxed),
            // It is not there, or cannot be, in the state it is in.
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Refused), "{error:?}");
            }
        }
    }
}

async fn sweep(store: &Postgres) -> Result<usize> {
    // Small pages, so that a sweep is in many places at once.
    let mut params = SweepParams::new(inbox(), RETENTION, 16);
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

async fn sweeps(world: Arc<World>, store: Postgres) {
    for _ in 0..ROUNDS / 3 {
        world.clock.advance(HOUR);
        let swept = sweep(&store).await.expect("sweep");
        world.swept.fetch_add(swept, Ordering::Relaxed);
        assert_eq!(world.schema.number(BEREFT).await, 0, "an entry lost its key or its message");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sweeping_races_with_everything_and_takes_nothing_that_is_needed() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let world = Arc::new(World {
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
    assert!(world.schema.number("SELECT min(id) FROM @segment").await > 1, "nothing was dropped");

    // When all is done and over, nothing is left.
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
    assert!(world.schema.number("SELECT count(*) FROM @segment").await <= 3);
}
