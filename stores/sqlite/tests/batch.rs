//! Batch handlers that write to a business table: each message takes effect exactly once, independent of the others in
//! its batch.

mod support;

use std::time::Duration;

use oncebox::state::Status;
use oncebox::store::{Inspect, RescueParams, Store as _};
use oncebox::{
    BatchContext, BoxError, ErrorKind, Inbox, KeyStrategy, Message, Registration, Retry, batch_handler,
};
use oncebox_sqlite::Sqlite;
use oncebox_testkit::{FaultOdds, FaultyStore, StoreFault, StoreVerb, TestClock};
use support::{LEASE, PAST_LEASE, TestFile, route};

type FaultyFile = FaultyStore<Sqlite>;

/// A worker with its business tables.
struct BatchShop {
    file: TestFile,
    inbox: Inbox<FaultyFile>,
}

impl BatchShop {
    /// Creates a worker with one message per play. Its id is its index.
    async fn new(batch: Registration<FaultyFile>, plays: &[&str]) -> Self {
        let file = TestFile::new();
        let clock = file.clock.clone();
        Self::on(clock, file, batch, plays).await
    }

    /// Creates a worker with its own clock.
    async fn on(clock: TestClock, file: TestFile, batch: Registration<FaultyFile>, plays: &[&str]) -> Self {
        let store = FaultyStore::new(file.open());
        // `shipment` has no unique column, so that a repeated effect is visible.
        file.connect()
            .execute_batch(
                "CREATE TABLE shipment (id TEXT);
                 CREATE TABLE parent (id INTEGER PRIMARY KEY);
                 CREATE TABLE child (parent INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)",
            )
            .expect("tables");
        let batch = batch.retry(Retry::fixed(3, Duration::from_hours(1)));
        let inbox = Inbox::builder("orders", store).clock(clock.shared()).on("t", batch);
        let inbox = inbox.config(oncebox::Config { lease: LEASE, ..oncebox::Config::default() });
        let shop = Self { inbox: inbox.build().expect("a valid inbox"), file };
        for (n, play) in plays.iter().enumerate() {
            shop.inbox.accept(message(n, play)).await.expect("accept");
        }
        shop
    }

    /// Returns status, attempts and effects of a message.
    async fn fate(&self, n: usize) -> (Status, u32, usize) {
        let key = KeyStrategy::MessageId.key(self.inbox.name(), &message(n, "")).expect("an id");
        let view = self.inbox.store().show(self.inbox.name(), &key).await.expect("show").expect("stored");
        let effects = self.file.count(&format!("shipment WHERE id = '{n}'"));
        (view.entries[0].status, view.entries[0].attempts, effects)
    }

    async fn assert_done(&self, numbers: impl IntoIterator<Item = usize>) {
        for n in numbers {
            assert_eq!(self.fate(n).await, (Status::Completed, 0, 1), "{n}");
        }
        self.file.check();
    }

    async fn run(&self, by_hand: bool) {
        if by_hand {
            self.inbox.drain().await.expect("drain");
        } else {
            let running = self.inbox.start();
            let idle = tokio::time::timeout(Duration::from_mins(3), running.idle());
            idle.await.expect("it ends by itself");
        }
    }

    fn calls(&self, verb: StoreVerb) -> u64 {
        self.inbox.store().faults().calls(verb)
    }
}

fn message(n: usize, play: &str) -> Message {
    Message::new(n.to_string(), "t", play.to_owned())
}

fn id(message: &Message) -> String {
    String::from_utf8_lossy(message.id()).into_owned()
}

/// Writes all messages, and then acts by their payloads.
async fn ship(messages: Vec<Message>, cx: &mut BatchContext<FaultyFile>) -> Result<(), BoxError> {
    let tx = cx.tx().await?;
    for message in &messages {
        tx.execute("INSERT INTO shipment VALUES (?1)", [id(message)])?;
    }
    for message in &messages {
        match message.payload().as_ref() {
            b"fail" => return Err("no truck".into()),
            b"panic" => panic!("no road"),
            // An error that only the commit detects.
            b"orphan" => drop(tx.execute("INSERT INTO child VALUES (7)", [])?),
            _ => {}
        }
    }
    Ok(())
}

/// Writes the valid messages, and returns a result for each.
async fn ship_some(
    messages: Vec<Message>,
    cx: &mut BatchContext<FaultyFile>,
) -> Result<Vec<Result<(), BoxError>>, BoxError> {
    let tx = cx.tx().await?;
    let mut answers = Vec::new();
    for message in &messages {
        answers.push(if message.payload() == "fail" {
            Err("no truck".into())
        } else {
            tx.execute("INSERT INTO shipment VALUES (?1)", [id(message)])?;
            Ok(())
        });
    }
    Ok(answers)
}

#[tokio::test]
async fn a_batch_is_one_transaction() {
    for by_hand in [false, true] {
        let shop = BatchShop::new(batch_handler("h", ship), &["ok"; 64]).await;
        shop.run(by_hand).await;
        shop.assert_done(0..64).await;
        assert_eq!((shop.calls(StoreVerb::Begin), shop.calls(StoreVerb::Commit)), (1, 1));
    }
}

// FAULTS C2, C7: only the failed run is blamed and rolled back, at any position.
#[tokio::test]
async fn a_bad_neighbour_harms_no_other_run() {
    for by_hand in [false, true] {
        for culprit in ["fail", "panic", "orphan"] {
            for place in [0, 2, 4] {
                let mut plays = ["ok"; 5];
                plays[place] = culprit;
                let shop = BatchShop::new(batch_handler("h", ship), &plays).await;
                shop.run(by_hand).await;
                shop.assert_done((0..5).filter(|n| *n != place)).await;
                assert_eq!(shop.fate(place).await, (Status::Pending, 1, 0), "{culprit} at {place}");
                assert_eq!(shop.file.count("child"), 0);
            }
        }
    }
}

// FAULTS C12
#[tokio::test]
async fn answers_and_effects_agree() {
    for by_hand in [false, true] {
        let shop = BatchShop::new(batch_handler("h", ship_some), &["ok", "fail", "ok", "fail"]).await;
        shop.run(by_hand).await;
        shop.assert_done([0, 2]).await;
        for n in [1, 3] {
            assert_eq!(shop.fate(n).await, (Status::Pending, 1, 0), "{n}");
        }
        assert_eq!(shop.calls(StoreVerb::Commit), 1);
        let none = BatchShop::new(batch_handler("h", ship_some), &["fail", "fail"]).await;
        none.run(by_hand).await;
        assert_eq!(none.calls(StoreVerb::Commit), 0, "no run is committed");
    }
}

// FAULTS D2: if the answer of a commit is lost, each message takes effect once, stored or not.
#[tokio::test]
async fn an_unknown_commit_takes_effect_once() {
    for fault in [StoreFault::ErrAfter, StoreFault::ErrBefore(ErrorKind::CommitUnknown)] {
        let shop = BatchShop::new(batch_handler("h", ship), &["ok"; 5]).await;
        shop.inbox.store().faults().next(StoreVerb::Commit, fault);
        shop.run(true).await;
        shop.file.clock.advance(Duration::from_secs(2));
        shop.run(true).await;
        shop.assert_done(0..5).await;
    }
}

// FAULTS B4: the writes of a run with a lost claim are rolled back. The others run again and take effect once.
#[tokio::test]
async fn a_claim_that_is_lost_meanwhile_spoils_nothing() {
    let shop = BatchShop::on(TestClock::new(), TestFile::new(), batch_handler("h", ship), &["ok"; 3]).await;
    // The first scan of this worker's own rescuer may be as late as the other worker's.
    let faults = shop.inbox.store().faults();
    faults
        .next(StoreVerb::Begin, StoreFault::Hang)
        .always(StoreVerb::Rescue, StoreFault::ErrBefore(ErrorKind::Unavailable));
    let running = shop.inbox.start();
    faults.wait_for_hanging(1).await;
    // The worker's own clock does not move, so it does not notice.
    shop.file.clock.advance(PAST_LEASE);
    let rescue = RescueParams::new(shop.inbox.name().clone(), vec![route("h")], LEASE, 1);
    assert_eq!(shop.inbox.store().inner().rescue(&rescue).await.expect("rescue").len(), 1);
    faults.release();
    let idle = tokio::time::timeout(Duration::from_mins(3), running.idle());
    idle.await.expect("it ends by itself");
    assert_eq!(shop.fate(0).await, (Status::Running, 0, 0), "another worker holds it");
    shop.assert_done([1, 2]).await;
}

// Every message takes effect exactly once, for every sequence of store failures.
#[tokio::test]
async fn each_takes_effect_once_over_a_store_that_fails_at_random() {
    for seed in 0..6 {
        let plays: Vec<&str> = (0..40).map(|n| if n % 13 == 5 { "fail" } else { "ok" }).collect();
        let shop = BatchShop::new(batch_handler("h", ship).max_batch(8), &plays).await;
        shop.inbox.store().faults().seed(seed, FaultOdds { before: 0.1, after: 0.1 });
        for _ in 0..60 {
            // Errors are expected. The next round handles the remaining messages.
            let _ = shop.inbox.drain().await;
            shop.file.clock.advance(Duration::from_mins(2));
        }
        shop.inbox.store().faults().clear();
        shop.file.clock.advance(PAST_LEASE);
        shop.run(true).await;
        for (n, play) in plays.iter().enumerate() {
            let (status, _, effects) = shop.fate(n).await;
            let expected = usize::from(*play != "fail");
            assert_eq!(effects, expected, "{n} with seed {seed} is {status}");
        }
        shop.file.check();
    }
}
