//! Runs that share a transaction and write to a business table: each takes effect exactly once, independent of the
//! others.

mod support;

use std::sync::Arc;
use std::time::Duration;

use oncebox::state::Status;
use oncebox::store::{Inspect, RescueParams, ShareIn as _, Store as _, Transactional as _};
use oncebox::{
    BoxError, Context, ErrorKind, Inbox, KeyStrategy, Message, Registration, Retry, Running, handler,
};
use oncebox_sqlite::Sqlite;
use oncebox_testkit::{FaultOdds, FaultyStore, StoreFault, StoreVerb};
use support::{LEASE, PAST_LEASE, TestFile, route};
use tokio::sync::{Notify, Semaphore};

type FaultySharedFile = FaultyStore<Sqlite>;

/// A worker with its business tables.
struct SharedShop {
    file: TestFile,
    inbox: Inbox<FaultySharedFile>,
    /// Notifies the test of each waiting run, and releases it.
    gate: Arc<(Notify, Semaphore)>,
}

impl SharedShop {
    /// Creates a worker with one message per play. Its id is its index.
    async fn new(plays: &[&str]) -> Self {
        Self::build(plays, |ship| ship).await
    }

    async fn build(
        plays: &[&str],
        set: impl FnOnce(Registration<FaultySharedFile>) -> Registration<FaultySharedFile>,
    ) -> Self {
        let file = TestFile::new();
        let store = FaultyStore::new(file.open());
        // `shipment` has no unique column, so that a repeated effect is visible.
        file.connect()
            .execute_batch(
                "CREATE TABLE shipment (id TEXT);
                 CREATE TABLE parent (id INTEGER PRIMARY KEY);
                 INSERT INTO parent VALUES (1);
                 CREATE TABLE child (parent INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)",
            )
            .expect("tables");
        let gate = Arc::new((Notify::new(), Semaphore::new(0)));
        let hour = Duration::from_hours(1);
        let shared = set(handler("h", ship).share_commit(64).retry(Retry::new(3, hour, hour)));
        // Longer than any test moves the clock: no lease expires, and no shared transaction drops a run.
        let config = oncebox::Config { lease: 5 * LEASE, ..oncebox::Config::default() };
        let inbox = Inbox::builder("orders", store).config(config).clock(file.clock.shared());
        let inbox = inbox.data(Arc::clone(&gate));
        let shop = Self { inbox: inbox.on("t", shared).build().expect("a valid inbox"), file, gate };
        for (n, play) in plays.iter().enumerate() {
            shop.accept(n, play).await;
        }
        shop
    }

    async fn accept(&self, n: usize, play: &str) {
        self.inbox.accept(message(n, play)).await.expect("accept");
    }

    /// Returns status, attempts and effects of a message.
    async fn fate(&self, n: usize) -> (Status, u32, usize) {
        let key = KeyStrategy::MessageId.key(self.inbox.name(), &message(n, "")).expect("an id");
        let view = self.inbox.store().show(self.inbox.name(), &key).await.expect("show").expect("stored");
        assert_eq!(view.entries[0].suspicion.stored(), 0);
        let effects = self.file.count(&format!("shipment WHERE id = '{n}'"));
        (view.entries[0].status, view.entries[0].attempts, effects)
    }

    async fn assert_done(&self, numbers: impl IntoIterator<Item = usize>) {
        for n in numbers {
            assert_eq!(self.fate(n).await, (Status::Completed, 0, 1), "{n}");
        }
        self.file.check();
    }

    fn calls(&self, verb: StoreVerb) -> u64 {
        self.inbox.store().faults().calls(verb)
    }
}

fn message(n: usize, play: &str) -> Message {
    Message::new(n.to_string(), "t", play.to_owned())
}

/// Writes, and then acts by the payload.
async fn ship(message: Message, cx: &mut Context<FaultySharedFile>) -> Result<(), BoxError> {
    let gate = cx.data::<Arc<(Notify, Semaphore)>>()?;
    let tx = cx.tx().await?;
    tx.execute("INSERT INTO shipment VALUES (?1)", [String::from_utf8_lossy(message.id())])?;
    match message.payload().as_ref() {
        b"ok" => Ok(()),
        b"fail" => Err("no truck".into()),
        b"panic" => panic!("no road"),
        b"wait" => {
            gate.0.notify_one();
            gate.1.acquire().await?.forget();
            Ok(())
        }
        // An error that rolls everything back, and that the handler does not return.
        b"abort" => {
            assert!(tx.execute("INSERT OR ROLLBACK INTO parent VALUES (1)", []).is_err());
            Ok(())
        }
        // An error that only the commit detects.
        b"orphan" => tx.execute("INSERT INTO child VALUES (7)", []).map(drop).map_err(Into::into),
        // The handler's own savepoints, left open.
        b"nest" => tx.execute_batch("SAVEPOINT a; SAVEPOINT b; ROLLBACK TO b").map_err(Into::into),
        // The release of a savepoint that is not the handler's.
        b"release" => tx.execute_batch("RELEASE oncebox_run").map_err(Into::into),
        other => panic!("no handler can play {other:?}"),
    }
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(3), what).await.expect("it ends by itself")
}

async fn idle(running: &Running<FaultySharedFile>) {
    in_time(running.idle()).await;
}

#[tokio::test]
async fn many_runs_share_one_commit() {
    let shop = SharedShop::new(&["ok"; 64]).await;
    let running = shop.inbox.start();
    idle(&running).await;
    shop.assert_done(0..64).await;
    assert_eq!((shop.calls(StoreVerb::Begin), shop.calls(StoreVerb::Commit)), (1, 1));
}

// FAULTS C2, C7: only the failed run is blamed and rolled back, at any position.
#[tokio::test]
async fn a_bad_neighbour_harms_no_other_run() {
    for (culprit, whole) in [("fail", true), ("panic", true), ("abort", false), ("orphan", false)] {
        for place in [0, 2, 4] {
            let mut plays = ["ok"; 5];
            plays[place] = culprit;
            let shop = SharedShop::new(&plays).await;
            let running = shop.inbox.start();
            idle(&running).await;
            shop.assert_done((0..5).filter(|n| *n != place)).await;
            let blamed = (Status::Pending, 1, 0);
            assert_eq!(shop.fate(place).await, blamed, "{culprit} at {place}");
            assert_eq!(shop.calls(StoreVerb::Commit) == 1, whole, "{culprit} at {place}");
            assert_eq!((shop.file.count("child"), running.in_flight()), (0, 0));
        }
    }
}

// FAULTS C7: the next step reports the reason of a repeat.
#[tokio::test]
async fn what_sqlite_rolled_back_is_told_at_the_next_step() {
    let shop = SharedShop::new(&[]).await;
    let store = shop.inbox.store().inner();
    let mut tx = store.begin().await.expect("begin");
    store.savepoint(&mut tx).await.expect("savepoint");
    assert!(tx.execute("INSERT OR ROLLBACK INTO parent VALUES (1)", []).is_err());
    for step in [
        store.savepoint(&mut tx).await,
        store.rollback_to_savepoint(&mut tx).await,
        store.complete_all(&mut tx, &[]).await.map(drop),
    ] {
        assert_eq!(step.expect_err("nothing is left of it").kind(), ErrorKind::Handler);
    }
}

#[tokio::test]
async fn a_neighbour_that_times_out_harms_no_other_run() {
    let shop = SharedShop::build(&["ok", "wait", "ok"], |ship| ship.timeout(Duration::from_secs(5))).await;
    let running = shop.inbox.start();
    in_time(shop.gate.0.notified()).await;
    shop.file.clock.advance(Duration::from_secs(6));
    idle(&running).await;
    shop.assert_done([0, 2]).await;
    assert_eq!(shop.fate(1).await, (Status::Pending, 1, 0));
    assert_eq!(shop.calls(StoreVerb::Commit), 1);
}

#[tokio::test]
async fn savepoints_of_a_handler_are_its_own_affair() {
    let shop = SharedShop::new(&["nest", "ok", "nest", "fail", "nest", "release", "ok"]).await;
    let running = shop.inbox.start();
    idle(&running).await;
    shop.assert_done([0, 1, 2, 4, 6]).await;
    assert_eq!(shop.fate(3).await, (Status::Pending, 1, 0));
    // A single run has no such savepoint: that is the handler's error.
    assert_eq!(shop.fate(5).await, (Status::Pending, 1, 0));
}

// FAULTS D2
#[tokio::test]
async fn an_unknown_commit_takes_effect_once() {
    for fault in [StoreFault::ErrAfter, StoreFault::ErrBefore(ErrorKind::CommitUnknown)] {
        let shop = SharedShop::new(&["ok", "fail", "ok"]).await;
        shop.inbox.store().faults().next(StoreVerb::Commit, fault);
        let running = shop.inbox.start();
        idle(&running).await;
        shop.file.clock.advance(Duration::from_secs(2));
        idle(&running).await;
        shop.assert_done([0, 2]).await;
        assert_eq!(shop.fate(1).await, (Status::Pending, 1, 0), "{fault:?}");
        assert_eq!(running.in_flight(), 0, "{fault:?}");
    }
}

// FAULTS B4
#[tokio::test]
async fn a_lost_claim_takes_no_effect_here() {
    let shop = SharedShop::new(&["ok"; 3]).await;
    let store = shop.inbox.store();
    store
        .faults()
        .next(StoreVerb::Begin, StoreFault::Hang)
        .always(StoreVerb::Rescue, StoreFault::ErrBefore(ErrorKind::Unavailable));
    let running = shop.inbox.start();
    in_time(store.faults().wait_for_hanging(1)).await;
    // Another store, with a clock that is ahead.
    let ahead = oncebox_testkit::TestClock::new();
    ahead.advance(5 * PAST_LEASE + LEASE);
    let other = shop.file.options().clock(ahead.shared()).open().expect("another worker");
    let rescue = RescueParams::new(shop.inbox.name().clone(), vec![route("h")], LEASE, 1);
    assert_eq!(other.rescue(&rescue).await.expect("rescue").len(), 1);
    store.faults().release();
    in_time(async {
        while running.in_flight() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(shop.fate(0).await, (Status::Running, 0, 0), "another worker holds it");
    shop.assert_done([1, 2]).await;
}

// FAULTS C5
#[tokio::test]
async fn shutdown_in_the_middle_takes_effect_for_those_who_ran() {
    let shop = SharedShop::new(&["ok", "wait", "ok", "ok"]).await;
    let running = shop.inbox.start();
    in_time(shop.gate.0.notified()).await;
    let end = tokio::spawn(running.shutdown());
    tokio::task::yield_now().await;
    shop.gate.1.add_permits(1);
    in_time(end).await.expect("no panic");
    shop.assert_done([0, 1]).await;
    for n in [2, 3] {
        assert_eq!(shop.fate(n).await, (Status::Pending, 0, 0), "{n}");
    }
    let running = shop.inbox.start();
    idle(&running).await;
    shop.assert_done(0..4).await;
}

// FAULTS C5: a worker that is dropped in the middle commits the finished runs, and releases the others.
#[tokio::test]
async fn a_group_that_is_dropped_commits_what_ran_and_releases_the_rest() {
    let shop = SharedShop::new(&["ok", "wait", "ok"]).await;
    let running = shop.inbox.start();
    in_time(shop.gate.0.notified()).await;
    drop(running);
    in_time(async {
        while shop.fate(1).await.0 == Status::Running || shop.fate(2).await.0 == Status::Running {
            tokio::task::yield_now().await;
        }
    })
    .await;
    shop.assert_done([0]).await;
    for n in [1, 2] {
        assert_eq!(shop.fate(n).await, (Status::Pending, 0, 0), "{n}");
    }
}

// FAULTS A4, C7, D2 together: any call of the store may fail, before or after its effect.
#[tokio::test]
async fn a_storm_of_faults_takes_effect_once() {
    const MESSAGES: usize = 150;
    let seed = std::env::var("ONCEBOX_SEED")
        .map_or_else(|_| fastrand::u64(..), |seed| seed.parse().expect("a seed"));
    eprintln!("ONCEBOX_SEED={seed}");
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut plays = vec!["ok"; MESSAGES];
    for play in &mut plays {
        *play = ["ok", "ok", "ok", "ok", "nest", "fail", "abort", "orphan"][chance.usize(..8)];
    }
    let shop = SharedShop::new(&plays).await;
    let faults = shop.inbox.store().faults().clone();
    faults.seed(seed, FaultOdds { before: 0.03, after: 0.03 });
    let running = shop.inbox.start();
    for round in 0..60 {
        if round == 30 {
            faults.clear();
        }
        for _ in 0..2_000 {
            tokio::task::yield_now().await;
        }
        shop.file.clock.advance(Duration::from_secs(2));
    }
    idle(&running).await;
    // A run that shared a transaction with a failed one is delayed for some seconds, also in the last round of a busy
    // machine.
    for _ in 0..100 {
        let mut waiting = 0;
        for (n, _) in plays.iter().enumerate().filter(|(_, play)| ["ok", "nest"].contains(play)) {
            waiting += usize::from(shop.fate(n).await.0 != Status::Completed);
        }
        if waiting == 0 {
            break;
        }
        shop.file.clock.advance(Duration::from_secs(2));
        idle(&running).await;
    }
    for (n, play) in plays.iter().enumerate() {
        let (status, attempts, effects) = shop.fate(n).await;
        let expected = match *play {
            "ok" | "nest" => (Status::Completed, 0, 1),
            _ => (Status::Pending, 1, 0),
        };
        assert_eq!((status, attempts, effects), expected, "{n} {play}");
    }
    shop.file.check();
}
