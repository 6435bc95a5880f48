//! The memory store: the conformance suite, and what is particular to it.
#![expect(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

use oncebox_testkit::OperatorSteps as _;
use std::sync::Arc;
use std::time::Duration;

use oncebox::state::{Outcome, Settlement, Status};
use oncebox::store::{
    Claim, ClaimParams, ClaimQuota, Inspect, Mark, MarkIn as _, NewMessage, RescueParams, Route,
    SettleIn as _, Settled, SweepParams, Transactional as _,
};
use oncebox::{
    Accepted, ErrorKind, HandlerKey, InboxName, Key, KeyStrategy, Memory, Message, Policy, Store as _,
};
use oncebox_testkit::{Harness, TestClock};

oncebox_testkit::store_conformance!(conformance, memory);

async fn memory() -> Harness<Memory> {
    let clock = TestClock::new();
    Harness::new(Memory::with_clock(clock.shared()), clock)
}

const LEASE: Duration = Duration::from_mins(1);

fn inbox() -> InboxName {
    InboxName::new("orders").unwrap()
}

fn handler() -> HandlerKey {
    HandlerKey::new("h").unwrap()
}

fn key(id: &str) -> Key {
    offer(id, "payload").key
}

fn offer(id: &str, payload: &str) -> NewMessage {
    let message = Message::new(id.to_owned(), "order.placed", payload.to_owned());
    let key = KeyStrategy::MessageId.key(&inbox(), &message).unwrap();
    NewMessage::new(inbox(), key, Arc::new(message), Arc::new([Route::new(handler())]))
}

async fn claim(store: &Memory) -> Claim {
    let want = ClaimQuota { route: Route::new(handler()), limit: 1 };
    store.claim(&ClaimParams::new(inbox(), vec![want], LEASE)).await.unwrap().remove(0).claim
}

async fn running(store: &Memory, id: &str) -> Claim {
    store.accept(&[offer(id, "payload")]).await.unwrap();
    claim(store).await
}

async fn status(store: &Memory, id: &str) -> Status {
    store.show(&inbox(), &key(id)).await.unwrap().unwrap().entries[0].status
}

#[test]
fn promises_no_more_than_the_life_of_the_process() {
    let capabilities = Memory::new().capabilities();
    assert_eq!(capabilities.name, "memory");
    assert!(!capabilities.durable && !capabilities.transactions && !capabilities.shared);
}

// FAULTS A15, DESIGN rule 9: capacity is an error that can be tried again, never a duplicate.
#[tokio::test]
async fn a_batch_that_does_not_fit_is_refused_whole() {
    let store = Memory::new().capacity(3);
    store.accept(&[offer("1", "payload"), offer("2", "payload")]).await.unwrap();
    let error = store.accept(&[offer("3", "payload"), offer("4", "payload")]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full);
    assert!(error.is_retryable());
    assert_eq!(store.count(&inbox(), None).await.unwrap().messages, 2);
    let fits = [offer("1", "payload"), offer("3", "payload"), offer("3", "payload"), offer("2", "payload")];
    let answers = store.accept(&fits).await.unwrap();
    assert!(matches!(
        answers[..],
        [Accepted::Duplicate(_), Accepted::First(_), Accepted::Duplicate(_), Accepted::Duplicate(_)]
    ));
    let full = [vec![offer("4", "payload")], vec![offer("1", "other")]];
    for batch in full {
        assert_eq!(store.accept(&batch).await.unwrap_err().kind(), ErrorKind::Full, "{batch:?}");
    }
    assert_eq!(store.count(&inbox(), None).await.unwrap().quarantined, 0);
}

#[tokio::test]
async fn a_sweep_makes_room() {
    let clock = TestClock::new();
    let store = Memory::with_clock(clock.shared()).capacity(1);
    let done = running(&store, "1").await;
    store.settle(&[Settlement::done(&done)]).await.unwrap();
    assert_eq!(store.accept(&[offer("2", "payload")]).await.unwrap_err().kind(), ErrorKind::Full);
    clock.advance(LEASE);
    store.sweep(&SweepParams::new(inbox(), LEASE, 10)).await.unwrap();
    assert!(matches!(store.accept(&[offer("2", "payload")]).await.unwrap()[..], [Accepted::First(_)]));
}

#[tokio::test]
async fn clones_are_the_same_store() {
    let store = Memory::default();
    store.clone().accept(&[offer("1", "payload")]).await.unwrap();
    assert!(matches!(store.accept(&[offer("1", "payload")]).await.unwrap()[..], [Accepted::Duplicate(_)]));
}

#[tokio::test]
async fn an_open_mark_is_busy_and_a_rollback_frees_it() {
    let store = Memory::new();
    let mut first = store.begin().await.unwrap();
    let mut second = store.begin().await.unwrap();
    assert_eq!(store.mark(&mut first, &inbox(), &key("1"), &handler(), None).await.unwrap(), Mark::First);
    assert_eq!(store.mark(&mut second, &inbox(), &key("1"), &handler(), None).await.unwrap(), Mark::Busy);
    drop(first);
    assert_eq!(store.mark(&mut second, &inbox(), &key("1"), &handler(), None).await.unwrap(), Mark::First);
    store.commit(second).await.unwrap();
    let mut third = store.begin().await.unwrap();
    assert_eq!(store.mark(&mut third, &inbox(), &key("1"), &handler(), None).await.unwrap(), Mark::Duplicate);
}

#[tokio::test]
async fn an_open_mark_is_not_swept() {
    let clock = TestClock::new();
    let store = Memory::with_clock(clock.shared());
    let mut tx = store.begin().await.unwrap();
    assert_eq!(store.mark(&mut tx, &inbox(), &key("1"), &handler(), None).await.unwrap(), Mark::First);
    clock.advance(10 * LEASE);
    assert_eq!(store.sweep(&SweepParams::new(inbox(), LEASE, 10)).await.unwrap().marks, 0);
    let mut rival = store.begin().await.unwrap();
    assert_eq!(store.mark(&mut rival, &inbox(), &key("1"), &handler(), None).await.unwrap(), Mark::Busy);
}

// FAULTS B4: the claim is lost between the completion and the commit.
#[tokio::test]
async fn a_commit_under_a_lost_claim_applies_nothing() {
    let clock = TestClock::new();
    let store = Memory::with_clock(clock.shared());
    let zombie = running(&store, "1").await;
    let held = running(&store, "2").await;
    let mut tx = store.begin().await.unwrap();
    assert_eq!(store.mark(&mut tx, &inbox(), &key("3"), &handler(), None).await.unwrap(), Mark::First);
    for claim in [&held, &zombie] {
        assert_eq!(store.complete(&mut tx, claim).await.unwrap(), Settled::Applied);
    }
    clock.advance(2 * LEASE);
    let rescued =
        store.rescue(&RescueParams::new(inbox(), vec![Route::new(handler())], LEASE, 1)).await.unwrap();
    assert_eq!(rescued[0].claim.seq, zombie.seq);
    assert_eq!(store.commit(tx).await.unwrap_err().kind(), ErrorKind::LeaseLost);
    assert_eq!((status(&store, "1").await, status(&store, "2").await), (Status::Running, Status::Running));
    let mut tx = store.begin().await.unwrap();
    assert_eq!(store.mark(&mut tx, &inbox(), &key("3"), &handler(), None).await.unwrap(), Mark::First);
}

#[tokio::test]
async fn a_transaction_of_another_store_is_refused() {
    let (store, other) = (Memory::new(), Memory::new());
    let claim = running(&store, "1").await;
    let mut tx = other.begin().await.unwrap();
    let refused = store.mark(&mut tx, &inbox(), &key("1"), &handler(), None).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert_eq!(store.complete(&mut tx, &claim).await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(store.commit(tx).await.unwrap_err().kind(), ErrorKind::Unsupported);
}

// Wake-ups are told when work becomes claimable, and not for every call.
#[tokio::test]
async fn listeners_are_woken_when_there_may_be_work() {
    let clock = TestClock::new();
    let store = Memory::with_clock(clock.shared());
    let mut wakeup = store.wakeups().unwrap().subscribe();
    let mut woken = || {
        let mut waiting = std::pin::pin!(wakeup.woken());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        waiting.as_mut().poll(&mut cx).is_ready()
    };
    assert!(!woken());
    store.accept(&[offer("1", "payload")]).await.unwrap();
    assert!(woken());
    store.accept(&[offer("1", "payload")]).await.unwrap();
    assert!(!woken(), "a duplicate is no work");
    let first = claim(&store).await;
    assert!(!woken());
    store.settle(&[first.settle(&Policy::default(), Outcome::Released)]).await.unwrap();
    assert!(woken());
    let second = claim(&store).await;
    store.settle(&[Settlement::done(&second)]).await.unwrap();
    assert!(!woken());
    store.pause(&inbox(), &handler()).await.unwrap();
    assert!(!woken());
    store.resume(&inbox(), &handler()).await.unwrap();
    assert!(woken());
}
