//! Trying a stored message out, without doing anything.

use oncebox::store::Inspect;
use oncebox_testkit::OperatorSteps as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oncebox::state::{NextState, Outcome, PoisonReason, Status};
use oncebox::{BoxError, Context, ErrorKind, Inbox, Message, Reject, Retry, handler};
use oncebox_sqlite::Sqlite;
use oncebox_sqlite::rusqlite::Connection;
use oncebox_testkit::TestClock;

/// Behaviour of the handler of this build.
#[derive(Default)]
struct Build {
    /// Number of fixes so far.
    fixed: AtomicUsize,
}

async fn ship(message: Message, cx: &mut Context<Sqlite>) -> Result<(), BoxError> {
    let build = cx.data::<Arc<Build>>()?;
    let tx = cx.tx().await?;
    tx.execute("INSERT INTO shipment VALUES (?1)", [String::from_utf8_lossy(message.id())])?;
    match build.fixed.load(Ordering::SeqCst) {
        0 => Err(Reject("an order without a street".into()).into()),
        1 => Err("the depot is closed".into()),
        2 => panic!("a bug"),
        _ => Ok(()),
    }
}

async fn mail(_: Message, _: &mut Context<Sqlite>) -> Result<(), BoxError> {
    Ok(())
}

#[tokio::test]
async fn what_would_happen_is_told_and_does_not_happen() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("shop.db");
    let clock = TestClock::new();
    let store = Sqlite::options(&file).clock(clock.shared()).open().unwrap();
    let shop = Connection::open(&file).unwrap();
    shop.execute_batch("CREATE TABLE shipment (id TEXT)").unwrap();
    let shipped = || shop.query_row("SELECT count(*) FROM shipment", [], |row| row.get::<_, i64>(0)).unwrap();
    let build = Arc::new(Build::default());
    let inbox = Inbox::builder("orders", store)
        .data(Arc::clone(&build))
        .clock(clock.shared())
        .on("order.placed", handler("ship-order", ship).undoable().retry(Retry::never()))
        .on("order.placed", handler("mail", mail))
        .build()
        .unwrap();
    let message = Message::new("evt_1", "order.placed", "{}");
    inbox.accept(message.clone()).await.unwrap();
    inbox.drain().await.unwrap();
    let key = inbox.key_of(&message, "ship-order").unwrap().unwrap();
    let before = inbox.store().show(inbox.name(), &key).await.unwrap().unwrap().entries;
    assert_eq!(before.iter().find(|e| e.handler.as_str() == "ship-order").unwrap().status, Status::Poisoned);

    let dry_run = inbox.dry_run(&key, "ship-order").await.unwrap();
    assert!(matches!(dry_run.outcome, Outcome::Reject { .. }));
    assert_eq!(dry_run.next, NextState::Poisoned { reason: PoisonReason::Rejected });
    build.fixed.store(1, Ordering::SeqCst);
    let dry_run = inbox.dry_run(&key, "ship-order").await.unwrap();
    assert_eq!(dry_run.next, NextState::Poisoned { reason: PoisonReason::Exhausted }, "it has no second try");
    build.fixed.store(2, Ordering::SeqCst);
    let Outcome::Retry { error, .. } = inbox.dry_run(&key, "ship-order").await.unwrap().outcome else {
        panic!("a panic is a failed attempt");
    };
    assert!(error.as_str().contains("a bug"), "{error}");
    build.fixed.store(3, Ordering::SeqCst);
    let dry_run = inbox.dry_run(&key, "ship-order").await.unwrap();
    assert!(dry_run.is_done() && dry_run.next == NextState::Completed);

    assert_eq!(shipped(), 0, "nothing of it is left");
    let after = inbox.store().explain(inbox.name(), &key).await.unwrap().unwrap();
    assert_eq!((after.view.entries, after.history.attempts.len()), (before, 1), "no attempt is counted");

    let refused = inbox.dry_run(&key, "mail").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "what it does cannot be undone");
    assert_eq!(inbox.dry_run(&key, "unknown").await.unwrap_err().kind(), ErrorKind::NotFound);
    let unknown = oncebox::Key::from_bytes([0; 32]);
    assert_eq!(inbox.dry_run(&unknown, "ship-order").await.unwrap_err().kind(), ErrorKind::NotFound);

    // Then it is done, with what was promised.
    let retry = oncebox::state::Operation::Retry;
    let ship = oncebox::HandlerKey::new("ship-order").unwrap();
    inbox.store().operate(inbox.name(), &key, &ship, retry).await.unwrap();
    inbox.drain().await.unwrap();
    assert_eq!(shipped(), 1);
}
