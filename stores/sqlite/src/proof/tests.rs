//! The index with a fast pace: every few messages are merged.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::store::{Accepted, NewMessage, Store as _, SweepParams};
use oncebox_core::time::{Clock as _, Timestamp};
use oncebox_core::{Error, ErrorKind, InboxName, KeyStrategy, Message, Result};
use oncebox_testkit::TestClock;
use rusqlite::Connection;
use tempfile::TempDir;

use super::Pace;
use crate::sections::section;
use crate::{Sqlite, Synchronous, accept};

const RETENTION: Duration = Duration::from_hours(1);

struct ProofFile {
    dir: TempDir,
    clock: TestClock,
}

impl ProofFile {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary directory"), clock: TestClock::new() }
    }

    fn open(&self) -> Sqlite {
        let mut options = Sqlite::options(self.dir.path().join("inbox.db"))
            .synchronous(Synchronous::Normal)
            .clock(self.clock.shared());
        options.pace = Pace { least: 16, max: 64 };
        options.open().expect("the file opens")
    }

    /// Returns the number that a statement of `tests.sql` finds.
    fn number(&self, name: &str) -> i64 {
        let sql = section(include_str!("tests.sql"), name);
        let connection = Connection::open(self.dir.path().join("inbox.db")).expect("another connection");
        connection.query_row(sql, [], |row| row.get(0)).expect("a number")
    }

    /// Checks that the proof has every merged message, and that it does not contradict the messages.
    fn check(&self) {
        for name in ["lost", "wrong", "doubled"] {
            assert_eq!(self.number(name), 0, "{name}");
        }
    }
}

fn inbox() -> InboxName {
    InboxName::new("i").expect("a good name")
}

/// Returns a message without a handler, which is finished when it arrives.
fn offer(id: usize) -> NewMessage {
    let message = Message::new(id.to_string(), "t", "");
    let key = KeyStrategy::MessageId.key(&inbox(), &message).expect("an id");
    NewMessage::new(inbox(), key, Arc::new(message), Arc::new([]))
}

async fn offer_all(store: &Sqlite, ids: impl IntoIterator<Item = usize>) -> Vec<Accepted> {
    let batch: Vec<NewMessage> = ids.into_iter().map(offer).collect();
    store.accept(&batch).await.expect("accept")
}

fn is_first(accepted: &Accepted) -> bool {
    matches!(accepted, Accepted::First(_))
}

/// Returns the number of digests that a store holds in memory.
async fn in_memory(store: &Sqlite) -> i64 {
    store.call(|work| Ok(work.tail.len)).await.expect("a look")
}

async fn sweep(store: &Sqlite) -> usize {
    let params = SweepParams::new(inbox(), RETENTION, usize::MAX);
    store.sweep(&params).await.expect("sweep").messages
}

/// Accepts messages one by one until a pass has begun.
async fn into_a_pass(file: &ProofFile, store: &Sqlite, from: usize) -> usize {
    for id in from.. {
        assert!(is_first(&offer_all(store, [id]).await[0]));
        let slice = file.number("pass_slice");
        if slice > 0 && slice < 128 {
            return id + 1;
        }
    }
    unreachable!("it takes a few messages");
}

#[tokio::test]
async fn every_key_is_known_wherever_it_is() {
    let (file, mut known) = (ProofFile::new(), 0);
    let store = file.open();
    for _ in 0..40 {
        assert!(offer_all(&store, known..known + 7).await.iter().all(is_first));
        known += 7;
        assert!(!offer_all(&store, 0..known).await.iter().any(is_first));
    }
    assert!(file.number("count") > 200, "most are merged");
    assert!(in_memory(&store).await < 80, "and leave the memory");
    file.check();
}

#[tokio::test]
async fn a_pass_goes_on_where_another_store_left_it() {
    let (file, mut known) = (ProofFile::new(), 0);
    for _ in 0..10 {
        let store = file.open();
        known = into_a_pass(&file, &store, known).await;
        drop(store);
        let store = file.open();
        assert!(!offer_all(&store, 0..known).await.iter().any(is_first));
        let merged = file.number("merged");
        while file.number("merged") == merged {
            assert!(is_first(&offer_all(&store, [known]).await[0]));
            known += 1;
        }
        let unmerged = file.number("unmerged");
        // Fewer, because a slice also merges keys added after the pass began.
        assert!(in_memory(&store).await <= unmerged, "nothing stays in memory for being merged by another");
        let proofs = file.number("count");
        assert_eq!(file.number("proofs"), proofs, "nothing is counted twice");
        file.check();
    }
}

#[tokio::test]
async fn a_store_that_only_looks_on_keeps_up() {
    let (file, mut known) = (ProofFile::new(), 0);
    let (writer, looker) = (file.open(), file.open());
    for _ in 0..60 {
        offer_all(&writer, known..known + 10).await;
        known += 10;
        // A key is known to be merged at the end of the pass that began after it: after two passes at most.
        assert!(in_memory(&looker).await < 2 * 64 + 20, "what another merged leaves this one's memory too");
        assert!(!offer_all(&looker, 0..known).await.iter().any(is_first));
    }
}

#[tokio::test]
async fn what_is_swept_is_forgotten() {
    let file = ProofFile::new();
    let (store, other) = (file.open(), file.open());
    offer_all(&store, 0..100).await;
    offer_all(&other, 100..200).await;
    file.clock.advance(RETENTION);
    assert_eq!(sweep(&store).await, 200);
    assert!(offer_all(&other, [0, 150]).await.iter().all(is_first), "a swept key is free");
    assert!(!offer_all(&store, [0, 150]).await.iter().any(is_first), "and taken again at once");
    // Two passes see every slice after the sweep.
    for id in 1_000..1_200 {
        offer_all(&store, [id]).await;
    }
    assert_eq!(file.number("bereft"), 0);
    file.check();
}

/// Does the work of an accept, merging included, and then fails.
async fn spoil(store: &Sqlite, ids: Vec<usize>) {
    let batch: Vec<NewMessage> = ids.into_iter().map(offer).collect();
    let spoiled: Result<()> = store
        .call(move |work| {
            accept::accept(work, &batch)?;
            work.tail.merge(work.connection, work.counters)?;
            Err(Error::new(ErrorKind::Full, "spoiled"))
        })
        .await;
    assert!(spoiled.is_err());
}

#[tokio::test]
async fn what_is_rolled_back_was_never_there() {
    let (file, mut known) = (ProofFile::new(), 0);
    let store = file.open();
    for _ in 0..50 {
        let before = file.number("seq");
        spoil(&store, (known..known + 9).collect()).await;
        assert_eq!(file.number("seq"), before);
        assert!(offer_all(&store, known..known + 9).await.iter().all(is_first));
        known += 9;
    }
    assert!(!offer_all(&store, 0..known).await.iter().any(is_first));
    file.check();
}

/// Random accepts through three stores on one file, with reopenings, sweeps and rollbacks in between, compared with a
/// map. A failure names its seed; `ONCEBOX_SEED=<seed>` runs that one alone.
#[tokio::test]
async fn random_stores_agree_with_a_map() {
    let only = std::env::var("ONCEBOX_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in only.map_or(0..25, |seed: u64| seed..seed + 1) {
        let (file, mut rng) = (ProofFile::new(), fastrand::Rng::with_seed(seed));
        let mut stores = [file.open(), file.open(), file.open()];
        let mut model: HashMap<usize, Timestamp> = HashMap::new();
        for step in 0..120 {
            let which = rng.usize(..3);
            match rng.u8(..100) {
                0..75 => {
                    let ids: Vec<usize> = (0..rng.usize(1..12)).map(|_| rng.usize(..150)).collect();
                    let accepted = offer_all(&stores[which], ids.iter().copied()).await;
                    for (id, accepted) in ids.into_iter().zip(accepted) {
                        let new = !model.contains_key(&id);
                        model.entry(id).or_insert(file.clock.now());
                        assert_eq!(
                            is_first(&accepted),
                            new,
                            "seed {seed}, step {step}: {id} is {accepted:?}"
                        );
                    }
                }
                75..83 => stores[which] = file.open(),
                83..91 => spoil(&stores[which], (0..8).map(|_| rng.usize(..150)).collect()).await,
                91..95 => file.clock.advance(RETENTION / 4),
                _ => {
                    let horizon = file.clock.now().before(RETENTION);
                    let before = model.len();
                    model.retain(|_, received_at| *received_at > horizon);
                    let swept = sweep(&stores[which]).await;
                    assert_eq!(swept, before - model.len(), "seed {seed}, step {step}");
                }
            }
        }
        let accepted = offer_all(&stores[0], 0..150).await;
        for (id, accepted) in accepted.iter().enumerate() {
            assert_eq!(is_first(accepted), !model.contains_key(&id), "seed {seed}: {id}");
        }
        assert!(file.number("merged") > 0, "seed {seed}: nothing was merged");
        file.check();
    }
}
