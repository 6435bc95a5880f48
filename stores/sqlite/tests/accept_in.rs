//! Accept in a transaction of the caller's own connection.

mod support;

use std::time::Duration;

use oncebox::store::{
    AcceptIn as _, Accepted, Inspect, KnownMessage, NewMessage, QuarantineFilter, Seq, Store as _,
    Transactional as _,
};
use oncebox::{BoxError, Context, ErrorKind, Inbox, Message, handler};
use oncebox_sqlite::Sqlite;
use oncebox_sqlite::rusqlite::{Transaction, TransactionBehavior};
use support::{RETENTION, TestFile, claim, complete_all, inbox, offer, sweep};

const KINDS: [TransactionBehavior; 3] =
    [TransactionBehavior::Deferred, TransactionBehavior::Immediate, TransactionBehavior::Exclusive];

/// Real time after which a wake-up is late.
const SOON: Duration = Duration::from_mins(1);

async fn accept_in(store: &Sqlite, tx: &mut Transaction<'_>, id: &str) -> Accepted {
    store.accept_in(tx, &[offer(id)]).await.expect("accept in a transaction")[0]
}

fn first(accepted: Accepted) -> Seq {
    let Accepted::First(seq) = accepted else { panic!("expected a new message, got {accepted:?}") };
    seq
}

fn again(seq: Seq) -> Accepted {
    Accepted::Duplicate(KnownMessage::new(seq, Duration::ZERO))
}

#[tokio::test]
async fn a_message_and_the_callers_row_share_a_commit() {
    for kind in KINDS {
        let file = TestFile::new();
        let (store, mut shop) = (file.open(), file.connect());
        shop.execute_batch("CREATE TABLE charge (id TEXT)").expect("a table");
        for committed in [false, true] {
            let mut tx = shop.transaction_with_behavior(kind).expect("begin");
            tx.execute("INSERT INTO charge VALUES ('1')", []).expect("insert");
            let seq = first(accept_in(&store, &mut tx, "1").await);
            assert_eq!(accept_in(&store, &mut tx, "1").await, again(seq));
            if committed {
                tx.commit().expect("commit");
                assert_eq!(store.accept(&[offer("1")]).await.expect("accept"), [again(seq)]);
            }
        }
        assert_eq!((file.count("charge"), file.count("oncebox_message")), (1, 1));
        assert_eq!(claim(&store, 10).await.len(), 1);
        file.check();
    }
}

#[tokio::test]
async fn a_plain_connection_and_a_savepoint_do_too() {
    let file = TestFile::new();
    let (store, mut shop) = (file.open(), file.connect());
    shop.execute_batch("BEGIN IMMEDIATE").expect("begin");
    first(store.accept_in(&mut shop, &[offer("1")]).await.expect("accept")[0]);
    shop.execute_batch("SAVEPOINT part").expect("savepoint");
    first(store.accept_in(&mut shop, &[offer("2")]).await.expect("accept")[0]);
    shop.execute_batch("ROLLBACK TO part").expect("undo");
    let seq = first(store.accept_in(&mut shop, &[offer("2")]).await.expect("accept")[0]);
    shop.execute_batch("COMMIT").expect("commit");
    assert_eq!(store.accept(&[offer("2")]).await.expect("accept"), [again(seq)]);
    assert_eq!(claim(&store, 10).await.len(), 2);
    file.check();
}

#[tokio::test]
async fn the_keys_in_the_memory_of_every_store_are_known() {
    let file = TestFile::new();
    let (one, two, mut shop) = (file.open(), file.open(), file.connect());
    let batch: Vec<NewMessage> = (0..200).map(|n| offer(&n.to_string())).collect();
    one.accept(&batch[..100]).await.expect("accept");
    two.accept(&batch[100..]).await.expect("accept");
    assert_eq!(file.count("oncebox_proof"), 0, "they are in memory only");
    for store in [&one, &two, &file.open()] {
        let mut tx = shop.transaction().expect("begin");
        let answers = store.accept_in(&mut tx, &batch).await.expect("accept");
        assert!(answers.iter().all(|answer| matches!(answer, Accepted::Duplicate(_))), "{answers:?}");
        tx.commit().expect("commit");
    }
    assert_eq!(file.count("oncebox_message"), 200);
}

#[tokio::test]
async fn what_a_transaction_stored_is_known_to_every_store() {
    let file = TestFile::new();
    let (one, two, mut shop) = (file.open(), file.open(), file.connect());
    // Both stores have read all messages.
    one.accept(&[offer("before")]).await.expect("accept");
    two.accept(&[offer("before")]).await.expect("accept");
    let mut seqs = Vec::new();
    for n in 0..20 {
        let id = n.to_string();
        let mut tx = shop.transaction().expect("begin");
        let seq = first(accept_in(if n % 2 == 0 { &one } else { &two }, &mut tx, &id).await);
        tx.commit().expect("commit");
        for store in [&two, &one] {
            assert_eq!(store.accept(&[offer(&id)]).await.expect("accept"), [again(seq)]);
        }
        let beside = one.accept(&[offer(&format!("{n} beside"))]).await.expect("accept");
        seqs.extend([seq, first(beside[0])]);
    }
    assert!(seqs.is_sorted_by(|a, b| a < b), "no number is given twice: {seqs:?}");
    file.check();
}

#[tokio::test]
async fn a_rollback_is_forgotten_by_every_store() {
    let file = TestFile::new();
    let (one, two, mut shop) = (file.open(), file.open(), file.connect());
    for store in [&one, &two] {
        let mut tx = shop.transaction().expect("begin");
        first(accept_in(store, &mut tx, "1").await);
        tx.rollback().expect("rollback");
    }
    assert_eq!((file.count("oncebox_message"), file.count("oncebox_proof")), (0, 0));
    let seq = first(two.accept(&[offer("1")]).await.expect("accept")[0]);
    assert_eq!(one.accept(&[offer("1")]).await.expect("accept"), [again(seq)]);
    let mut tx = shop.transaction().expect("begin");
    assert_eq!(accept_in(&one, &mut tx, "1").await, again(seq));
}

#[tokio::test]
async fn a_swept_key_is_free_and_taken_again() {
    let file = TestFile::new();
    let (store, mut shop) = (file.open(), file.connect());
    store.accept(&[offer("1")]).await.expect("accept");
    complete_all(&store).await;
    file.clock.advance(RETENTION);
    assert_eq!(sweep(&store).await, 1);
    let mut tx = shop.transaction().expect("begin");
    let seq = first(accept_in(&store, &mut tx, "1").await);
    assert_eq!(accept_in(&store, &mut tx, "1").await, again(seq), "not the one that was swept");
    tx.commit().expect("commit");
    assert_eq!(store.accept(&[offer("1")]).await.expect("accept"), [again(seq)]);
    file.check();
}

#[tokio::test]
async fn a_call_that_fails_leaves_nothing_in_the_transaction() {
    let file = TestFile::new();
    let (store, mut shop) =
        (file.options().max_bytes(600_000).open().expect("the file opens"), file.connect());
    let large = |id: &str| {
        let mut new = offer(id);
        new.message = std::sync::Arc::new(Message::new(id.to_owned(), "t", vec![1; 100_000]));
        new
    };
    let mut tx = shop.transaction().expect("begin");
    let batch: Vec<NewMessage> = (0..10).map(|n| large(&n.to_string())).collect();
    assert_eq!(store.accept_in(&mut tx, &batch).await.expect_err("too much").kind(), ErrorKind::Full);
    tx.commit().expect("commit");
    assert_eq!((file.count("oncebox_message"), file.count("oncebox_proof")), (0, 0));
    first(store.accept(&[offer("0")]).await.expect("accept")[0]);
}

#[tokio::test]
async fn without_a_transaction_or_in_another_file_it_is_refused() {
    let (file, other) = (TestFile::new(), TestFile::new());
    let (store, mut shop) = (file.open(), file.connect());
    let refused = store.accept_in(&mut shop, &[offer("1")]).await.expect_err("no transaction");
    assert_eq!(refused.kind(), ErrorKind::Refused);
    other.open();
    let mut elsewhere = other.connect();
    let mut tx = elsewhere.transaction().expect("begin");
    let refused = store.accept_in(&mut tx, &[offer("1")]).await.expect_err("another file");
    assert_eq!(refused.kind(), ErrorKind::Refused);
    let mut tx = other.open().begin().await.expect("begin");
    let refused = store.accept_in(&mut tx, &[offer("1")]).await.expect_err("another file");
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert_eq!((file.count("oncebox_message"), other.count("oncebox_message")), (0, 0));
}

#[tokio::test]
async fn a_transaction_that_read_an_older_state_tries_again() {
    let file = TestFile::new();
    let (store, mut shop) = (file.open(), file.connect());
    let mut tx = shop.transaction().expect("begin");
    let _: i64 = tx.query_row("SELECT count(*) FROM oncebox_message", [], |row| row.get(0)).expect("a look");
    store.accept(&[offer("1")]).await.expect("accept");
    let error = store.accept_in(&mut tx, &[offer("1")]).await.expect_err("its view is outdated");
    assert!(error.is_retryable(), "{error}");
    tx.rollback().expect("rollback");
    let mut tx = shop.transaction().expect("begin");
    assert!(matches!(accept_in(&store, &mut tx, "1").await, Accepted::Duplicate(_)));
}

#[tokio::test]
async fn the_commit_of_another_connection_wakes_workers() {
    let file = TestFile::new();
    let (store, mut shop) = (file.open(), file.connect());
    let mut wakeup = store.wakeups().expect("wake-ups").subscribe();
    // The watcher's first check may be one of the events.
    for n in 0..3 {
        let mut tx = shop.transaction().expect("begin");
        first(accept_in(&store, &mut tx, &n.to_string()).await);
        tx.commit().expect("commit");
        tokio::time::timeout(SOON, wakeup.woken()).await.expect("the commit wakes it");
    }
}

/// Stages a message for the next inbox, and fails at its first attempt.
async fn charge(message: Message, cx: &mut Context<Sqlite>) -> Result<(), BoxError> {
    let shipping = cx.data::<Inbox<Sqlite>>()?.clone();
    let id = cx.idempotency_key("ship");
    let follow_up = Message::new(id, "ship", message.payload().clone());
    let attempt = cx.attempt();
    shipping.accept_in(cx.tx().await?, follow_up).await?;
    if attempt == 1 { Err("the first attempt fails".into()) } else { Ok(()) }
}

async fn ship(_: Message, _: &mut Context<Sqlite>) -> Result<(), BoxError> {
    Ok(())
}

#[tokio::test]
async fn a_handler_emits_a_message_with_its_completion() {
    let file = TestFile::new();
    let store = file.open();
    let clock = || file.clock.shared();
    let shipping = Inbox::builder("shipping", store.clone()).on("ship", handler("ship", ship)).clock(clock());
    let shipping = shipping.build().expect("an inbox");
    let charging = Inbox::builder("charging", store).on("charge", handler("charge", charge)).clock(clock());
    let charging = charging.data(shipping.clone()).build().expect("an inbox");
    shipping.register().await.expect("register");
    charging.accept(Message::new("1", "charge", "")).await.expect("accept");
    assert_eq!(charging.drain().await.expect("drain"), 1);
    assert_eq!(shipping.drain().await.expect("drain"), 0, "the failed attempt left nothing");
    file.clock.advance(Duration::from_hours(1));
    assert_eq!(charging.drain().await.expect("drain"), 1);
    assert_eq!(shipping.drain().await.expect("drain"), 1);
    file.check();
}

#[tokio::test]
async fn a_conflict_is_quarantined_with_the_callers_commit() {
    let file = TestFile::new();
    let (store, mut shop) = (file.open(), file.connect());
    let seq = first(store.accept(&[offer("1")]).await.expect("accept")[0]);
    let mut other = offer("1");
    other.message = std::sync::Arc::new(Message::new("1", "t", "other"));
    other.fingerprint = oncebox::Fingerprint::of(&other.message);
    let mut tx = shop.transaction().expect("begin");
    assert_eq!(store.accept_in(&mut tx, &[other]).await.expect("accept"), [Accepted::Conflict(seq)]);
    tx.commit().expect("commit");
    let page = store.quarantined(&QuarantineFilter::new(inbox())).await.expect("a page");
    assert_eq!(page.quarantined.len(), 1);
}
