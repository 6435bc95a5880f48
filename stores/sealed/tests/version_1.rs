//! Values sealed in version 1 stay readable until a store requires version 2. The fixtures were created outside this
//! crate, from the description of version 1: HKDF-SHA256, AES-256-GCM, the place as additional data.
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use oncebox::state::{ErrorText, Outcome, Status};
use oncebox::store::{
    ClaimParams, ClaimQuota, Claimed, Inspect, Mark, MarkIn as _, NewMessage, Route, Store as _,
    Transactional as _,
};
use oncebox::{HandlerKey, InboxName, Key, Message, Policy};
use oncebox_sealed::{Keyring, Sealed};
use oncebox_sqlite::Sqlite;

/// The payload "the old payload" with the header "x-note: fine".
const MESSAGE: &str = "AQJrMSgpKissLS4vMDEyMzQ1Njc4OTo7PD0-P_uYB29ftuKQ4tDGH5vlf_mGOB8rkzzwU2X3E4BiaR9ZXpH2AFLglx1V1ZA_uFClE9OsW7cE2HQuuQ";
/// The error "no truck" of the handler "h".
const ERROR: &str = "AQJrMVBRUlNUVVZXWFlaW1xdXl9gYWJjZGVmZ9hO5__8cLahDGXBKs8Tsp-yEFAc3DlROg";
/// The result "the result" of the handler "h".
const RESULT: &str = "AQJrMXh5ent8fX5_gIGCg4SFhoeIiYqLjI2Oj8PwpSLLU6OyxtOGaGaSUedVULU0gElHucu7";

fn keys() -> Keyring {
    let secret = |seed: u8| std::array::from_fn(|at| seed.wrapping_add(u8::try_from(at).unwrap()));
    // The key of the fixtures was rotated since.
    Keyring::new("k2", &secret(2), &secret(100)).unwrap().reads("k1", &secret(1)).unwrap()
}

fn inbox() -> InboxName {
    InboxName::new("orders").unwrap()
}

const KEY: Key = Key::from_bytes([0x11; 32]);

fn handler() -> HandlerKey {
    HandlerKey::new("h").unwrap()
}

struct OldFile {
    dir: tempfile::TempDir,
}

impl OldFile {
    /// Creates a file with one message that was sealed in version 1.
    async fn new() -> Self {
        let file = Self { dir: tempfile::tempdir().unwrap() };
        let sealed = URL_SAFE_NO_PAD.decode(MESSAGE).unwrap();
        let message = Message::new("old", "order.placed", sealed).with_header("oncebox-sealed", "1");
        let offer = NewMessage::new(inbox(), KEY, Arc::new(message), Arc::new([Route::new(handler())]));
        file.plain().accept(&[offer]).await.unwrap();
        file
    }

    fn plain(&self) -> Sqlite {
        Sqlite::options(self.dir.path().join("inbox.db")).open().unwrap()
    }

    fn sealed(&self) -> Sealed<Sqlite> {
        Sealed::new(self.plain(), keys())
    }
}

async fn claim(store: &impl oncebox::Store) -> Vec<Claimed> {
    let wants = vec![ClaimQuota { route: Route::new(handler()), limit: 10 }];
    store.claim(&ClaimParams::new(inbox(), wants, Duration::from_mins(1))).await.unwrap()
}

#[tokio::test]
async fn a_message_of_version_1_is_delivered() {
    let file = OldFile::new().await;
    let claimed = claim(&file.sealed()).await;
    assert_eq!(claimed.len(), 1);
    let message = &claimed[0].message;
    assert_eq!(message.payload(), "the old payload");
    assert_eq!(message.headers().get("x-note").unwrap(), "fine");
    assert_eq!((message.id(), message.message_type()), (&b"old"[..], "order.placed"));
}

#[tokio::test]
async fn a_store_that_requires_version_2_reports_version_1_and_does_not_deliver_it() {
    let file = OldFile::new().await;
    let store = file.sealed().require_version_2();
    assert!(claim(&store).await.is_empty());
    let entry = store.show(&inbox(), &KEY).await.unwrap().unwrap().entries.remove(0);
    assert_eq!(entry.status, Status::Poisoned);
    let error = entry.error.unwrap();
    assert!(error.as_str().contains("version 1"), "{error}");
    // It is not lost: a store that still reads version 1 runs it.
    assert_eq!(
        file.sealed().show(&inbox(), &KEY).await.unwrap().unwrap().stored.unwrap().2.payload(),
        "the old payload"
    );
}

#[tokio::test]
async fn an_error_and_a_result_of_version_1_are_shown() {
    let file = OldFile::new().await;
    let plain = file.plain();
    let claimed = claim(&plain).await;
    let error = ErrorText::stored(format!("oncebox-sealed:{ERROR}"));
    plain.settle(&[claimed[0].claim.settle(&Policy::default(), Outcome::Reject { error })]).await.unwrap();
    let mut result = b"oncebox-sealed\0".to_vec();
    result.extend(URL_SAFE_NO_PAD.decode(RESULT).unwrap());
    let mut tx = plain.begin().await.unwrap();
    assert!(matches!(plain.mark(&mut tx, &inbox(), &KEY, &handler(), None).await.unwrap(), Mark::First));
    plain.record(&mut tx, &inbox(), &KEY, &handler(), &result).await.unwrap();
    plain.commit(tx).await.unwrap();
    let store = file.sealed();
    let entry = store.show(&inbox(), &KEY).await.unwrap().unwrap().entries.remove(0);
    assert_eq!(entry.error.unwrap().as_str(), "no truck");
    let mut tx = store.begin().await.unwrap();
    assert_eq!(store.recall(&mut tx, &inbox(), &KEY, &handler()).await.unwrap().unwrap(), "the result");
    store.rollback(tx).await;
}
