//! Accept in the caller's own transaction, through an inbox.

use std::time::Duration;

use oncebox::config::OnDuplicate;
use oncebox::store::Transactional as _;
use oncebox::{Accepted, BoxError, Config, Context, Dedupe, ErrorKind, Inbox, Memory, Message, handler};
use oncebox_testkit::TestClock;

async fn nothing(_: Message, _: &mut Context<Memory>) -> Result<(), BoxError> {
    Ok(())
}

fn message(id: &str) -> Message {
    Message::new(id.to_owned(), "t", "")
}

async fn inbox(config: Config) -> Inbox<Memory> {
    let builder = Inbox::builder("orders", Memory::new()).config(config).on("t", handler("h", nothing));
    let inbox = builder.build().expect("an inbox");
    inbox.register().await.expect("register");
    inbox
}

#[tokio::test]
async fn the_answers_are_those_of_accept() {
    let inbox = inbox(Config::default()).await;
    let mut tx = inbox.store().begin().await.expect("begin");
    assert!(matches!(inbox.accept_in(&mut tx, message("1")).await, Ok(Accepted::First(_))));
    let batch = inbox.accept_batch_in(&mut tx, [message("1"), message("2")]).await.expect("accept");
    assert!(matches!(batch[..], [Accepted::Duplicate(_), Accepted::First(_)]), "{batch:?}");
    assert_eq!(inbox.drain().await.expect("drain"), 0, "before the commit there is nothing");
    inbox.store().commit(tx).await.expect("commit");
    assert_eq!(inbox.drain().await.expect("drain"), 2);
    assert!(matches!(inbox.accept(message("1")).await, Ok(Accepted::Duplicate(_))));
}

#[tokio::test]
async fn a_message_is_stored_under_all_its_keys() {
    let builder = Inbox::builder("orders", Memory::new())
        .on("t", handler("by-id", nothing))
        .on("t", handler("always", nothing).dedupe(Dedupe::Off));
    let inbox = builder.build().expect("an inbox");
    inbox.register().await.expect("register");
    for deliveries in 1..3 {
        let mut tx = inbox.store().begin().await.expect("begin");
        inbox.accept_in(&mut tx, message("1")).await.expect("accept");
        inbox.store().commit(tx).await.expect("commit");
        let ran = inbox.drain().await.expect("drain");
        assert_eq!(ran, if deliveries == 1 { 2 } else { 1 });
    }
}

// A process that only accepts in transactions may be idle for a night.
#[tokio::test]
async fn an_expired_registration_is_renewed_and_the_transaction_repeated() {
    let clock = TestClock::new();
    let builder = Inbox::builder("orders", Memory::with_clock(clock.shared())).clock(clock.shared());
    let inbox = builder.on("t", handler("h", nothing)).build().expect("an inbox");
    inbox.register().await.expect("register");
    clock.advance(Duration::from_hours(13));
    let mut tx = inbox.store().begin().await.expect("begin");
    let error = inbox.accept_in(&mut tx, message("1")).await.expect_err("its registration has expired");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let mut tx = inbox.store().begin().await.expect("begin");
    while inbox.accept_in(&mut tx, message("1")).await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_process_registers_before_the_transaction() {
    let builder = Inbox::builder("orders", Memory::new()).on("t", handler("h", nothing));
    let inbox = builder.build().expect("an inbox");
    let mut tx = inbox.store().begin().await.expect("begin");
    let error = inbox.accept_in(&mut tx, message("1")).await.expect_err("it has not registered");
    assert_eq!(error.kind(), ErrorKind::Refused);
    inbox.register().await.expect("register");
    assert!(inbox.accept_in(&mut tx, message("1")).await.is_ok());
}

#[tokio::test]
async fn a_duplicate_is_an_error_where_the_inbox_says_so() {
    let config = Config { on_duplicate: OnDuplicate::Refuse, ..Config::default() };
    let inbox = inbox(config).await;
    inbox.accept(message("1")).await.expect("accept");
    let mut tx = inbox.store().begin().await.expect("begin");
    let error = inbox.accept_in(&mut tx, message("1")).await.expect_err("a duplicate");
    assert_eq!(error.kind(), ErrorKind::Duplicate);
}

#[tokio::test]
async fn a_handler_that_would_run_before_the_commit_is_unsupported() {
    let builder = Inbox::builder("orders", Memory::new()).on("t", handler("h", nothing).fire_and_forget());
    let inbox = builder.build().expect("an inbox");
    inbox.register().await.expect("register");
    let mut tx = inbox.store().begin().await.expect("begin");
    let error = inbox.accept_in(&mut tx, message("1")).await.expect_err("it would run too early");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn a_commit_and_a_wake_start_the_workers() {
    for of_the_store in [true, false] {
        let inbox = inbox(Config::default()).await;
        let running = inbox.start();
        running.idle().await;
        let mut tx = inbox.store().begin().await.expect("begin");
        inbox.accept_in(&mut tx, message("1")).await.expect("accept");
        inbox.store().commit(tx).await.expect("commit");
        if !of_the_store {
            inbox.wake();
        }
        running.idle().await;
        assert_eq!(inbox.drain().await.expect("drain"), 0, "it has run");
        running.shutdown().await;
    }
}
