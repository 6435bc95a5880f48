//! An attacker with write access to the database, but without a key, changes stored data (FAULTS S19): no changed
//! message is delivered, and each attempt is reported.
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

use std::sync::Arc;
use std::time::Duration;

use oncebox::state::Status;
use oncebox::store::{ClaimParams, ClaimQuota, Claimed, Inspect, NewMessage, Route, Store as _};
use oncebox::time::Timestamp;
use oncebox::{HandlerKey, InboxName, Key, KeyStrategy, Message};
use oncebox_sealed::{Keyring, Sealed, SharedKeyring};
use oncebox_sqlite::Sqlite;
use rusqlite::Connection;

fn keys(id: &str, seed: u8) -> Keyring {
    let secret = |seed: u8| std::array::from_fn(|at| seed.wrapping_add(u8::try_from(at).unwrap()));
    Keyring::new(id, &secret(seed), &secret(100)).unwrap()
}

fn inbox() -> InboxName {
    InboxName::new("orders").unwrap()
}

fn message(id: &str) -> Message {
    Message::new(id.to_owned(), "order.placed", format!("payload of {id}"))
        .with_source("shop")
        .with_tenant("acme")
        .with_ordering_key(format!("customer of {id}"))
        .with_time(Timestamp::from_millis(1_000))
}

fn offer(message: Message) -> NewMessage {
    let key = KeyStrategy::MessageId.key(&inbox(), &message).unwrap();
    let route = Route::new(HandlerKey::new("h").unwrap());
    NewMessage::new(inbox(), key, Arc::new(message), Arc::new([route]))
}

fn key_of(id: &str) -> Key {
    KeyStrategy::MessageId.key(&inbox(), &message(id)).unwrap()
}

async fn claim(store: &impl oncebox::Store) -> Vec<Claimed> {
    let wants = vec![ClaimQuota { route: Route::new(HandlerKey::new("h").unwrap()), limit: 10 }];
    store.claim(&ClaimParams::new(inbox(), wants, Duration::from_mins(1))).await.unwrap()
}

struct AttackedFile {
    dir: tempfile::TempDir,
}

impl AttackedFile {
    /// Creates a file with the sealed messages "1" and "2".
    async fn new() -> Self {
        let file = Self { dir: tempfile::tempdir().unwrap() };
        file.open().accept(&[offer(message("1")), offer(message("2"))]).await.unwrap();
        file
    }

    fn open(&self) -> Sealed<Sqlite> {
        Sealed::new(self.plain(), keys("k1", 1))
    }

    fn plain(&self) -> Sqlite {
        Sqlite::options(self.dir.path().join("inbox.db")).open().unwrap()
    }

    /// Changes stored data, as an attacker with the file would.
    fn attack(&self, sql: &str) -> usize {
        let connection = Connection::open(self.dir.path().join("inbox.db")).unwrap();
        connection.busy_timeout(Duration::from_secs(10)).unwrap();
        connection.execute(sql, []).unwrap()
    }

    /// Checks that only the second message is delivered, and that the first is shown as unreadable.
    async fn first_is_refused(&self, attack: &str) {
        let store = self.open();
        let delivered: Vec<_> =
            claim(&store).await.into_iter().map(|one| one.message.id().to_vec()).collect();
        assert_eq!(delivered, [b"2".to_vec()], "{attack}");
        let view = store.show(&inbox(), &key_of("1")).await.unwrap().unwrap();
        let entry = &view.entries[0];
        assert_eq!(entry.status, Status::Poisoned, "{attack}");
        let error = entry.error.as_ref().unwrap().as_str();
        assert!(error.contains("changed") && error.contains("moved"), "{attack}: {error}");
        let shown = view.stored.unwrap().2;
        assert!(shown.payload().is_empty(), "{attack}");
        assert!(shown.headers().get("oncebox-unreadable").is_some(), "{attack}");
    }
}

// FAULTS S19
#[tokio::test]
async fn a_message_with_changed_metadata_is_not_delivered() {
    for change in [
        "type = 'order.refunded'",
        "id = x'39'",
        "source = 'bank'",
        "tenant = 'rival'",
        "tenant = NULL",
        "ordering_key = x'39'",
        "ordering_key = NULL",
        "time = 2000",
        "time = NULL",
        "payload = (SELECT payload FROM oncebox_message WHERE seq = 2)",
        "payload = substr(payload, 1, length(payload) - 1)",
    ] {
        let file = AttackedFile::new().await;
        assert_eq!(file.attack(&format!("UPDATE oncebox_message SET {change} WHERE seq = 1")), 1, "{change}");
        file.first_is_refused(change).await;
    }
}

// FAULTS S19: the same, with all fields of the other message except its key.
#[tokio::test]
async fn a_message_in_the_place_of_another_is_not_delivered() {
    let file = AttackedFile::new().await;
    let swap = "UPDATE oncebox_message SET (id, ordering_key, payload) = \
                (SELECT id, ordering_key, payload FROM oncebox_message WHERE seq = 2) WHERE seq = 1";
    assert_eq!(file.attack(swap), 1);
    file.first_is_refused(swap).await;
}

// FAULTS S19
#[tokio::test]
async fn plaintext_is_not_delivered_unless_it_is_allowed() {
    let file = AttackedFile::new().await;
    let plain = "UPDATE oncebox_message SET payload = CAST('forged' AS BLOB), headers = x'' WHERE seq = 1";
    assert_eq!(file.attack(plain), 1);
    let store = file.open();
    let delivered = claim(&store).await;
    assert_eq!(delivered.len(), 1);
    assert_eq!(delivered[0].message.id(), b"2");
    let entry = store.show(&inbox(), &key_of("1")).await.unwrap().unwrap().entries.remove(0);
    assert_eq!(entry.status, Status::Poisoned);
    assert!(entry.error.unwrap().as_str().contains("not sealed"));
    let before = file.open().allow_plaintext();
    let view = before.show(&inbox(), &key_of("1")).await.unwrap().unwrap();
    assert_eq!(view.stored.unwrap().2.payload(), "forged", "a store that is told to read it shows it");
}

// An error that an attacker wrote into the database is not shown as the handler's.
#[tokio::test]
async fn an_error_that_is_not_sealed_says_so() {
    let file = AttackedFile::new().await;
    file.attack("UPDATE oncebox_message SET type = 'other' WHERE seq = 1");
    assert_eq!(claim(&file.open()).await.len(), 1);
    assert_eq!(file.attack("UPDATE oncebox_poisoned SET error = 'all is well'"), 1);
    let entry = file.open().show(&inbox(), &key_of("1")).await.unwrap().unwrap().entries.remove(0);
    assert_eq!(entry.error.unwrap().as_str(), "(not sealed) all is well");
}

// FAULTS I8: keys are replaced while the store is used, and older messages stay readable.
#[tokio::test]
async fn keys_are_replaced_while_a_store_is_used() {
    let file = AttackedFile::new().await;
    let shared = SharedKeyring::new(keys("k1", 1));
    let store = Sealed::new(file.plain(), shared.clone());
    let secret = |seed: u8| std::array::from_fn(|at| seed.wrapping_add(u8::try_from(at).unwrap()));
    let old = secret(1);
    shared.replace(keys("k2", 2).reads("k1", &old).unwrap()).unwrap();
    store.accept(&[offer(message("3"))]).await.unwrap();
    assert!(claim(&file.open()).await.iter().all(|one| one.message.id() != b"3"), "sealed with the new key");
    // The other store has claimed the old messages.
    let view = store.show(&inbox(), &key_of("3")).await.unwrap().unwrap();
    assert_eq!(view.stored.unwrap().2.payload(), "payload of 3");
    let view = store.show(&inbox(), &key_of("1")).await.unwrap().unwrap();
    assert_eq!(view.stored.unwrap().2.payload(), "payload of 1");
    // With another secret for fingerprints, all repeats would be conflicts.
    let other = Keyring::new("k3", &secret(3), &secret(101)).unwrap();
    assert!(shared.replace(other).unwrap_err().what().contains("fingerprints"));
    let view = store.show(&inbox(), &key_of("3")).await.unwrap().unwrap();
    assert_eq!(view.stored.unwrap().2.payload(), "payload of 3", "the former keys stay");
}

// An operator without a key sees that a message is sealed, and can act on it.
#[tokio::test]
async fn without_a_key_an_operator_sees_what_is_sealed() {
    let file = AttackedFile::new().await;
    file.attack("UPDATE oncebox_message SET type = 'other' WHERE seq = 1");
    assert_eq!(claim(&file.open()).await.len(), 1);
    let locked = Sealed::new(file.plain(), Keyring::locked()).allow_plaintext();
    let view = locked.show(&inbox(), &key_of("1")).await.unwrap().unwrap();
    let error = view.entries[0].error.as_ref().unwrap().as_str();
    assert!(error.contains("\"k1\"") && error.contains("does not have"), "{error}");
    assert!(locked.accept(&[offer(message("3"))]).await.is_err(), "nothing can be written");
    assert!(locked.inner().show(&inbox(), &key_of("3")).await.unwrap().is_none());
}
