//! Payloads on disk are sealed, and unreadable ones are rejected (FAULTS S19).
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

use oncebox_testkit::OperatorSteps as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use oncebox::operate::{BulkOperation, OperationState};
use oncebox::state::{ErrorText, Operation, Outcome, Status};
use oncebox::store::{
    Accepted, ClaimParams, ClaimQuota, Claimed, EntryFilter, Inspect, NewMessage, Route, Store as _,
};
use oncebox::{BoxError, Context, HandlerKey, Inbox, InboxName, Key, KeyStrategy, Message, Policy, handler};
use oncebox_sealed::{Keyring, Sealed};
use oncebox_sqlite::Sqlite;
use oncebox_testkit::{FaultyStore, StoreVerb, TestClock};

const CANARY: &str = "canary51c7";
const DAY: Duration = Duration::from_hours(24);

fn key(seed: u8) -> [u8; 32] {
    std::array::from_fn(|at| seed.wrapping_add(u8::try_from(at).unwrap()))
}

fn keys(id: &str, seed: u8) -> Keyring {
    Keyring::new(id, &key(seed), &key(100)).unwrap()
}

struct SealedFile {
    dir: tempfile::TempDir,
    clock: TestClock,
}

impl SealedFile {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), clock: TestClock::new() }
    }

    fn plain(&self) -> Sqlite {
        Sqlite::options(self.dir.path().join("inbox.db")).clock(self.clock.shared()).open().unwrap()
    }

    fn sealed(&self, keys: Keyring) -> Sealed<Sqlite> {
        Sealed::new(self.plain(), keys)
    }

    /// Returns true if the text is anywhere on the disk.
    fn holds(&self, text: &[u8]) -> bool {
        fn read(dir: &Path) -> std::io::Result<Vec<u8>> {
            let mut all = Vec::new();
            for file in std::fs::read_dir(dir)? {
                all.extend(std::fs::read(file?.path())?);
            }
            Ok(all)
        }
        // A dropped store may still close its files. The content of a missing file has moved to another one.
        let all = loop {
            match read(self.dir.path()) {
                Ok(all) => break all,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => panic!("{error}"),
            }
        };
        all.windows(text.len()).any(|part| part == text)
    }
}

fn inbox() -> InboxName {
    InboxName::new("orders").unwrap()
}

fn message(id: &str) -> Message {
    Message::new(id.to_owned(), "order.placed", format!("payload {CANARY}")).with_header("x-note", CANARY)
}

fn key_of(id: &str) -> Key {
    KeyStrategy::MessageId.key(&inbox(), &message(id)).unwrap()
}

fn offer(message: Message) -> NewMessage {
    let key = KeyStrategy::MessageId.key(&inbox(), &message).unwrap();
    let route = Route::new(HandlerKey::new("h").unwrap());
    NewMessage::new(inbox(), key, Arc::new(message), Arc::new([route]))
}

async fn accept(store: &impl oncebox::Store, message: Message) -> Accepted {
    store.accept(&[offer(message)]).await.unwrap()[0]
}

async fn claim(store: &impl oncebox::Store) -> Vec<Claimed> {
    let wants = vec![ClaimQuota { route: Route::new(HandlerKey::new("h").unwrap()), limit: 10 }];
    store.claim(&ClaimParams::new(inbox(), wants, Duration::from_mins(1))).await.unwrap()
}

async fn entry(store: &Sealed<Sqlite>, id: &str) -> (Status, String) {
    let view = store.show(&inbox(), &key_of(id)).await.unwrap().unwrap();
    let entry = view.entries.last().unwrap();
    (entry.status, entry.error.as_ref().map_or("", ErrorText::as_str).to_owned())
}

#[tokio::test]
async fn nothing_readable_is_on_the_disk() {
    async fn fails(_: Message, _: &mut Context<Sealed<Sqlite>>) -> Result<(), BoxError> {
        Err(format!("no {CANARY}").into())
    }
    async fn answers(_: Message, cx: &mut Context<Sealed<Sqlite>>) -> Result<(), BoxError> {
        cx.set_result(format!("result {CANARY}"))?;
        Ok(())
    }
    let file = SealedFile::new();
    {
        let inbox = Inbox::builder("orders", file.sealed(keys("k1", 1)))
            .on("order.placed", handler("h", fails))
            .on("asked", handler("i", answers).inline())
            .clock(file.clock.shared())
            .build()
            .unwrap();
        inbox.accept(message("1")).await.unwrap();
        inbox.accept(message("2")).await.unwrap();
        let other = Message::new("2", "order.placed", format!("other {CANARY}"));
        assert!(matches!(inbox.accept(other).await.unwrap(), Accepted::Conflict(_)));
        assert!(matches!(inbox.accept(message("2")).await.unwrap(), Accepted::Duplicate(_)));
        assert_eq!(inbox.drain().await.unwrap(), 2);
        let asked = || Message::new("3", "asked", CANARY);
        for _ in 0..2 {
            let (_, results) = inbox.process_with_results(asked()).await.unwrap();
            assert_eq!(results.get("i").unwrap(), &format!("result {CANARY}"));
        }
        assert!(!file.holds(CANARY.as_bytes()), "while it is open");
        let (_, error) = entry(inbox.store(), "1").await;
        assert_eq!(error, format!("no {CANARY}"), "an operator with the key reads it");
        let view = inbox.store().show(&self::inbox(), &key_of("2")).await.unwrap().unwrap();
        let (_, _, stored) = view.stored.unwrap();
        assert_eq!(*stored, message("2"));
        assert_eq!(view.quarantined[0].message.payload(), &format!("other {CANARY}"));
    }
    assert!(!file.holds(CANARY.as_bytes()), "after it was closed");
    // Prove that the search works.
    accept(&file.plain(), message("plain")).await;
    assert!(file.holds(CANARY.as_bytes()));
}

#[tokio::test]
async fn keys_are_rotated_while_messages_wait() {
    let file = SealedFile::new();
    accept(&file.plain(), message("before")).await;
    accept(&file.sealed(keys("k1", 1)), message("old")).await;
    let rotated = file.sealed(keys("k2", 2).reads("k1", &key(1)).unwrap()).allow_plaintext();
    assert!(matches!(accept(&rotated, message("old")).await, Accepted::Duplicate(_)), "still recognised");
    accept(&rotated, message("new")).await;
    let claimed = claim(&rotated).await;
    assert_eq!(claimed.len(), 3, "plain, old and new");
    for Claimed { message: read, .. } in claimed {
        assert_eq!(read.payload(), &format!("payload {CANARY}"));
        assert_eq!(read.headers().get("x-note").unwrap(), CANARY);
    }
}

#[tokio::test]
async fn without_its_key_a_message_waits_and_is_poisoned_in_the_end_and_never_lost() {
    let file = SealedFile::new();
    accept(&file.sealed(keys("k2", 2)), message("1")).await;
    let behind = file.sealed(keys("k1", 1));
    assert!(claim(&behind).await.is_empty());
    let (status, error) = entry(&behind, "1").await;
    assert_eq!(status, Status::Pending, "a process that has the key may come: {error}");
    assert!(error.contains("\"k2\"") && error.contains("does not have"), "{error}");
    let view = behind.show(&inbox(), &key_of("1")).await.unwrap().unwrap();
    let (_, _, shown) = view.stored.unwrap();
    assert!(shown.payload().is_empty() && shown.headers().get("oncebox-unreadable").is_some());
    for _ in 0..1_000 {
        if entry(&behind, "1").await.0 == Status::Poisoned {
            break;
        }
        file.clock.advance(DAY);
        assert!(claim(&behind).await.is_empty());
    }
    assert_eq!(entry(&behind, "1").await.0, Status::Poisoned);
    // With the key, an operator lets it run.
    let able = file.sealed(keys("k1", 1).reads("k2", &key(2)).unwrap());
    let handler = HandlerKey::new("h").unwrap();
    able.operate(&inbox(), &key_of("1"), &handler, Operation::Retry).await.unwrap();
    let claimed = claim(&able).await;
    assert_eq!(claimed[0].message.payload(), &format!("payload {CANARY}"));
    let done = claimed[0].claim.settle(&Policy::default(), Outcome::Done);
    able.settle(&[done]).await.unwrap();
    assert_eq!(entry(&able, "1").await.0, Status::Completed);
}

// A message without its key waits for the grace that its handler sets for undecodable messages.
#[tokio::test]
async fn without_its_key_a_message_waits_as_long_as_its_handler_says() {
    async fn ship(_: Message, _: &mut Context<Sealed<Sqlite>>) -> Result<(), BoxError> {
        Ok(())
    }
    for (grace, expected) in [(Duration::ZERO, Status::Poisoned), (DAY, Status::Pending)] {
        let file = SealedFile::new();
        accept(&file.sealed(keys("k2", 2)), message("1")).await;
        let behind = file.sealed(keys("k1", 1));
        let mut policy = Policy::default();
        policy.decode_grace = grace;
        let builder = Inbox::builder("orders", behind.clone()).clock(file.clock.shared());
        let inbox = builder.on("order.placed", handler("h", ship).policy(policy)).build().unwrap();
        // Longer than the default grace.
        file.clock.advance(Duration::from_hours(if grace.is_zero() { 0 } else { 2 }));
        assert_eq!(inbox.drain().await.unwrap(), 0);
        assert_eq!(entry(&behind, "1").await.0, expected, "{grace:?}");
    }
}

#[tokio::test]
async fn another_key_of_the_same_name_and_a_moved_value_are_rejected_at_once() {
    let file = SealedFile::new();
    accept(&file.sealed(keys("k1", 1)), message("1")).await;
    // As if an attacker had copied the sealed message into another row.
    let sealed = file.plain().show(&inbox(), &key_of("1")).await.unwrap().unwrap().stored.unwrap().2;
    let moved =
        Message::new("2", "order.placed", sealed.payload().clone()).with_headers(sealed.headers().clone());
    accept(&file.plain(), moved).await;
    let store = file.sealed(keys("k1", 1));
    let claimed = claim(&store).await;
    assert_eq!(claimed.len(), 1, "only the one in its own place");
    let (status, error) = entry(&store, "2").await;
    assert_eq!(status, Status::Poisoned);
    assert!(error.contains("does not open"), "{error}");
    accept(&store, message("3")).await;
    let wrong = file.sealed(keys("k1", 9));
    assert!(claim(&wrong).await.is_empty());
    assert_eq!(entry(&store, "3").await.0, Status::Poisoned);
}

#[tokio::test]
async fn nothing_plain_is_read_unless_it_is_allowed() {
    let file = SealedFile::new();
    accept(&file.plain(), message("1")).await;
    let store = file.sealed(keys("k1", 1));
    assert!(claim(&store).await.is_empty());
    let (status, error) = entry(&store, "1").await;
    assert_eq!(status, Status::Poisoned);
    assert!(error.contains("not sealed"), "{error}");
}

// Fingerprints do not show equal payloads, and confirm no guess without the secret.
#[tokio::test]
async fn fingerprints_say_nothing_without_the_secret() {
    let file = SealedFile::new();
    let store = file.sealed(keys("k1", 1));
    let plain = |id: &str| Message::new(id.to_owned(), "t", "yes");
    accept(&store, plain("1")).await;
    accept(&store, plain("2")).await;
    drop(store);
    let fingerprint = offer(plain("1")).fingerprint;
    let guess: Vec<u8> = fingerprint.as_bytes().to_vec();
    assert!(!file.holds(&guess), "the fingerprint of a guess is not there");
}

#[test]
fn keys_are_not_shown_and_bad_ones_refused() {
    let keys = keys("k1", 1).reads("k0", &key(3)).unwrap();
    assert_eq!(format!("{keys:?}"), r#"Keyring { current: Some("k1"), others: ["k0"], .. }"#);
    assert!(Keyring::new("", &key(1), &key(2)).is_err());
    assert!(Keyring::new("k 1", &key(1), &key(2)).is_err());
    assert!(Keyring::new("k1", &[0; 32], &key(2)).is_err(), "all zeros");
    assert!(self::keys("k1", 1).reads("k1", &key(3)).is_err(), "two of one name");
}

/// Accepts `count` messages, and poisons each: every tenth with another error.
async fn poisoned(store: &impl oncebox::Store, count: usize) {
    let batch: Vec<NewMessage> = (0..count).map(|id| offer(message(&id.to_string()))).collect();
    store.accept(&batch).await.unwrap();
    let wants = vec![ClaimQuota { route: Route::new(HandlerKey::new("h").unwrap()), limit: count }];
    let claimed = store.claim(&ClaimParams::new(inbox(), wants, DAY)).await.unwrap();
    let settle = |(at, one): (usize, &Claimed)| {
        let error = ErrorText::new(if at % 10 == 9 { "no truck" } else { "no depot" });
        one.claim.settle(&Policy::default(), Outcome::Reject { error })
    };
    store.settle(&claimed.iter().enumerate().map(settle).collect::<Vec<_>>()).await.unwrap();
}

// The store inside cannot read errors: a filter by them must not query it once per entry.
#[tokio::test]
async fn a_filter_by_errors_looks_at_many_at_a_time() {
    let inner = FaultyStore::new(oncebox::Memory::new());
    let store = Sealed::new(inner.clone(), keys("k1", 1));
    poisoned(&store, 500).await;
    let mut filter = EntryFilter::new(inbox(), Status::Poisoned);
    (filter.error_contains, filter.limit) = (Some("truck".into()), 7);
    let mut found = Vec::new();
    loop {
        let page = store.list(&filter).await.unwrap();
        assert!(page.entries.len() <= 7);
        found.extend(page.entries.into_iter().map(|entry| entry.seq));
        match page.next {
            None => break,
            next => filter.after = next,
        }
    }
    assert_eq!(found.len(), 50, "each once, and no other");
    assert!(found.is_sorted_by(|a, b| a < b));
    assert!(inner.faults().calls(StoreVerb::List) <= 9, "{}", inner.faults().calls(StoreVerb::List));

    filter.error_contains = Some("no error has this".into());
    let before = inner.faults().calls(StoreVerb::List);
    let bulk = BulkOperation::new(Operation::Discard, filter).unwrap();
    let clock = TestClock::new();
    let report = bulk.run(&store, &clock.shared()).await.unwrap();
    assert_eq!((report.state, report.done), (OperationState::Finished, 0));
    assert_eq!(inner.faults().calls(StoreVerb::List), before + 1, "all of them are one page");
}
