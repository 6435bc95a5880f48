//! Everything at once: three workers on one file, calls that fail or whose answers are lost, handlers that fail and
//! panic, workers that die. In the end every message took effect exactly once.

mod support;

use oncebox::store::Inspect;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use oncebox::state::Status;
use oncebox::time::{SharedClock, SystemClock};
use oncebox::{BoxError, Config, Context, Inbox, Message, Policy, Receipt, Retry, Running, handler};
use oncebox_testkit::{FaultOdds, StoreVerb};
use parking_lot::Mutex;
use support::books::{EffectsDatabase, FaultySqlite};
use support::{counts, in_time, message};

/// One for each worker: among how many runs it shares commits.
const SHARES: [usize; 3] = [1, 4, 64];
const MESSAGES: usize = 120;
const LEASE: Duration = Duration::from_millis(600);

/// State that the handlers of all workers share.
struct RandomFaults {
    chance: Mutex<fastrand::Rng>,
    /// No more failures.
    calm: std::sync::atomic::AtomicBool,
    /// Runs of the handler that has no transaction.
    plain: Mutex<HashMap<String, usize>>,
}

impl RandomFaults {
    /// One time in five something goes wrong.
    fn happens(&self) -> Result<(), BoxError> {
        if self.calm.load(std::sync::atomic::Ordering::SeqCst) {
            return Ok(());
        }
        let drawn = self.chance.lock().u8(..20);
        match drawn {
            0..2 => Err("bad luck".into()),
            2..4 => panic!("worse luck"),
            _ => Ok(()),
        }
    }
}

fn id(message: &Message) -> String {
    String::from_utf8_lossy(message.id()).into_owned()
}

async fn book_as(kind: &str, message: Message, cx: &mut Context<FaultySqlite>) -> Result<(), BoxError> {
    let random = cx.data::<Arc<RandomFaults>>()?;
    random.happens()?;
    let effect = format!("{kind} {}", id(&message));
    cx.tx().await?.execute("INSERT INTO effect VALUES (?1)", [effect])?;
    tokio::task::yield_now().await;
    random.happens()
}

async fn durable(message: Message, cx: &mut Context<FaultySqlite>) -> Result<(), BoxError> {
    book_as("durable", message, cx).await
}

async fn inline(message: Message, cx: &mut Context<FaultySqlite>) -> Result<(), BoxError> {
    book_as("inline", message, cx).await
}

async fn plain(message: Message, cx: &mut Context<FaultySqlite>) -> Result<(), BoxError> {
    let random = cx.data::<Arc<RandomFaults>>()?;
    random.happens()?;
    *random.plain.lock().entry(id(&message)).or_default() += 1;
    random.happens()
}

/// A worker whose transactional handler shares commits among so many runs.
fn worker(books: &EffectsDatabase, random: &Arc<RandomFaults>, share: usize) -> Inbox<FaultySqlite> {
    let mut policy = Policy::default();
    policy.retry = Retry::new(1_000, Duration::from_millis(5), Duration::from_millis(50));
    // With as many faults as here, being hit three times proves nothing.
    policy.crashes = 1_000;
    let config = Config {
        lease: LEASE,
        poll: Duration::from_millis(100),
        rescue: Duration::from_millis(100),
        restart: Duration::from_millis(50),
        grace: Duration::from_millis(200),
        ..Config::default()
    };
    Inbox::builder("chaos", books.store())
        .config(config)
        .data(Arc::clone(random))
        .on("t", handler("durable", durable).policy(policy.clone()).share_commit(share))
        .on("t", handler("plain", plain).policy(policy.clone()))
        .on("t", handler("inline", inline).inline().policy(policy))
        .build()
        .expect("a valid inbox")
}

/// Delivers every message until it is taken, as a broker would.
async fn deliver_all(inbox: Inbox<FaultySqlite>, clock: SharedClock, seed: u64) {
    let mut order: Vec<usize> = (0..MESSAGES).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut order);
    for number in order {
        let message = message(&number.to_string(), "ok").with_ordering_key((number % 40).to_string());
        // Anything but `Done` is delivered again: an acknowledgement must not come before its time.
        while !matches!(inbox.receive(message.clone()).await, Ok(Receipt::Done)) {
            clock.sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Lets workers die and come back for a while.
async fn kill_now_and_then(workers: &[Inbox<FaultySqlite>], clock: &SharedClock, seed: u64) {
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut running: Vec<Running<FaultySqlite>> = workers.iter().map(Inbox::start).collect();
    for _ in 0..12 {
        clock.sleep(Duration::from_millis(chance.u64(100..250))).await;
        let index = chance.usize(..workers.len());
        let died = std::mem::replace(&mut running[index], workers[index].start());
        if chance.bool() {
            died.shutdown().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_message_takes_effect_exactly_once() {
    let seed = std::env::var("ONCEBOX_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    eprintln!("ONCEBOX_SEED={seed}");
    let clock = SystemClock::shared();
    let books = EffectsDatabase::new();
    let random = Arc::new(RandomFaults {
        chance: Mutex::new(fastrand::Rng::with_seed(seed)),
        calm: false.into(),
        plain: Mutex::default(),
    });
    let workers: Vec<Inbox<FaultySqlite>> =
        SHARES.iter().map(|share| worker(&books, &random, *share)).collect();
    for (number, inbox) in (0..).zip(&workers) {
        inbox.store().faults().seed(seed.wrapping_add(number), FaultOdds { before: 0.04, after: 0.04 });
    }

    let deliveries: Vec<_> = (0..)
        .zip(&workers)
        .map(|(number, inbox)| {
            tokio::spawn(deliver_all(inbox.clone(), Arc::clone(&clock), seed.wrapping_add(number)))
        })
        .collect();
    in_time(kill_now_and_then(&workers, &clock, seed)).await;
    for delivery in deliveries {
        in_time(delivery).await.unwrap();
    }

    // Nothing fails any more: now everything must come to its end.
    random.calm.store(true, std::sync::atomic::Ordering::SeqCst);
    for inbox in &workers {
        let faults = inbox.store().faults();
        assert!(
            faults.calls(StoreVerb::Claim) > 10 && faults.calls(StoreVerb::Accept) > 100,
            "hardly anything happened"
        );
        faults.clear();
    }
    in_time(async {
        loop {
            let running = workers[0].start();
            running.idle().await;
            running.shutdown().await;
            let left = counts(&workers[0]).await;
            if left.with_status(Status::Pending) + left.with_status(Status::Running) == 0 {
                break;
            }
            clock.sleep(LEASE / 4).await;
        }
    })
    .await;

    let end = workers[0].store().inner().count(workers[0].name(), None).await.unwrap();
    let expected = u64::try_from(2 * MESSAGES).unwrap();
    assert_eq!(end.with_status(Status::Completed), expected, "seed {seed}: {end:?}");
    for number in 0..MESSAGES {
        for kind in ["durable", "inline"] {
            assert_eq!(books.effects(&format!("{kind} {number}")), 1, "seed {seed}: {kind} {number}");
        }
        let runs = random.plain.lock().get(&number.to_string()).copied();
        assert!(runs.is_some(), "seed {seed}: {number} never ran");
    }
}
