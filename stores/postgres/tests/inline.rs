//! Inline handlers on PostgreSQL: duplicates of two processes, real deadlocks, and results.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oncebox::state::Status;
use oncebox::store::{Inspect, Mark, Store as _};
use oncebox::{BoxError, Context, Inbox, KeyStrategy, Message, Processed, Receipt, handler};
use oncebox_postgres::Postgres;
use oncebox_postgres::sqlx::{self, AssertSqlSafe, Connection as _, PgConnection};
use support::{Schema, in_time, run, ship};
use tokio::sync::{Barrier, Notify, Semaphore};

/// State that the handlers share with the test.
struct TransferFixture {
    schema: Schema,
    runs: AtomicUsize,
    begun: Notify,
    go: Semaphore,
    /// Meeting point of the first two runs of a transfer, each with one row locked.
    meet: Barrier,
}

async fn play() -> (Arc<TransferFixture>, Postgres) {
    let schema = Schema::shared();
    let store = schema.shop().await;
    schema.run("CREATE TABLE @account (id text PRIMARY KEY, sum bigint NOT NULL)").await;
    schema.run("INSERT INTO @account VALUES ('a', 0), ('b', 0)").await;
    let (runs, begun, go) = (AtomicUsize::new(0), Notify::new(), Semaphore::new(0));
    (Arc::new(TransferFixture { schema, runs, begun, go, meet: Barrier::new(2) }), store)
}

fn message(id: &str) -> Message {
    Message::new(id.to_owned(), "t", "")
}

async fn ship_slowly(message: Message, cx: &mut Context<Postgres>) -> Result<(), BoxError> {
    let play = cx.data::<Arc<TransferFixture>>()?;
    let run = play.runs.fetch_add(1, Ordering::Relaxed) + 1;
    ship(&play.schema, cx.tx().await?, &String::from_utf8_lossy(message.id())).await;
    cx.set_result(format!("run {run}"))?;
    play.begun.notify_one();
    play.go.acquire().await?.forget();
    Ok(())
}

// DESIGN rules 1 and 2, FAULTS A9: of two processes, one runs the body. The other one learns at once that it must wait.
#[tokio::test]
async fn a_duplicate_of_another_process_is_busy_and_its_body_does_not_run() {
    let (play, store) = play().await;
    let other = play.schema.options().open().await.expect("another store opens");
    let inbox = |store| {
        let inbox = Inbox::builder("orders", store).data(Arc::clone(&play));
        inbox.on("t", handler("ship", ship_slowly).inline()).build().expect("an inbox")
    };
    let (first, second) = (inbox(store), inbox(other));
    let working = tokio::spawn(async move { first.process_with_results(message("1")).await });
    in_time(play.begun.notified()).await;
    assert_eq!(in_time(second.process(message("1"))).await.expect("an answer"), Processed::Busy);
    assert_eq!(in_time(second.receive(message("1"))).await.expect("an answer"), Receipt::Busy);
    play.go.add_permits(1);
    let (processed, stored) = in_time(working).await.expect("no panic").expect("the first ends");
    assert_eq!(processed, Processed::Done);
    let (processed, again) = second.process_with_results(message("1")).await.expect("an answer");
    assert_eq!((processed, &again), (Processed::Duplicate, &stored));
    assert_eq!(again.get("ship").map(|result| &result[..]), Some(&b"run 1"[..]));
    assert_eq!((play.runs.load(Ordering::Relaxed), play.schema.count("@shipment").await), (1, 1));
}

// DESIGN rule 1: busy means that the work is being done. A duplicate that has not ended does no work.
#[tokio::test]
async fn duplicates_are_not_in_each_others_way() {
    let (play, store) = play().await;
    let (mut one, mut two) = (play.schema.connect().await, play.schema.connect().await);
    for (expected, committed) in [(Mark::First, true), (Mark::Duplicate, false)] {
        let mut tx = one.begin().await.expect("begin");
        assert_eq!(store.once(&mut tx, "orders", "1", "ship").await.expect("mark"), expected);
        if committed {
            tx.commit().await.expect("commit");
        } else {
            let mut other = two.begin().await.expect("begin");
            assert_eq!(store.once(&mut other, "orders", "1", "ship").await.expect("mark"), Mark::Duplicate);
        }
    }
}

/// Adds to two accounts, in the order of the message. The first two runs meet in between.
async fn transfer(message: Message, cx: &mut Context<Postgres>) -> Result<(), BoxError> {
    let play = cx.data::<Arc<TransferFixture>>()?;
    let run = play.runs.fetch_add(1, Ordering::Relaxed);
    let sql = play.schema.sql("UPDATE @account SET sum = sum + 1 WHERE id = $1");
    for (step, account) in message.id().iter().enumerate() {
        if step == 1 && run < 2 {
            play.meet.wait().await;
        }
        let update = sqlx::query(AssertSqlSafe(sql.clone())).bind(char::from(*account).to_string());
        let updated = update.execute(&mut **cx.tx().await?).await;
        // Context that a handler adds must not hide the driver's error.
        updated.map_err(|error| anyhow::Error::from(error).context("cannot transfer"))?;
    }
    Ok(())
}

// FAULTS E7: a real deadlock. The run that PostgreSQL ended is repeated.
#[tokio::test]
async fn two_inline_handlers_that_deadlock_are_both_done() {
    let (play, store) = play().await;
    let inbox = Inbox::builder("orders", store).data(Arc::clone(&play));
    let inbox = inbox.on("t", handler("transfer", transfer).inline()).build().expect("an inbox");
    let both = async { tokio::join!(inbox.process(message("ab")), inbox.process(message("ba"))) };
    let (one, two) = in_time(both).await;
    assert_eq!((one.expect("an answer"), two.expect("an answer")), (Processed::Done, Processed::Done));
    assert_eq!(play.schema.number("SELECT sum(sum)::bigint FROM @account").await, 4);
    assert_eq!(play.runs.load(Ordering::Relaxed), 3, "one of them twice");
}

// FAULTS E7: the same for stored messages: no attempt is counted.
#[tokio::test]
async fn two_stored_messages_that_deadlock_burn_no_attempt() {
    let (play, store) = play().await;
    let inbox = Inbox::builder("orders", store.clone()).data(Arc::clone(&play));
    let inbox = inbox.on("t", handler("transfer", transfer)).build().expect("an inbox");
    for id in ["ab", "ba"] {
        inbox.accept(message(id)).await.expect("accept");
    }
    let running = inbox.start();
    play.schema.wait_for("(SELECT count(*) FROM @outcome) = 2").await;
    for id in ["ab", "ba"] {
        let key = KeyStrategy::MessageId.key(inbox.name(), &message(id)).expect("an id");
        let view = store.show(inbox.name(), &key).await.expect("show").expect("it is stored");
        assert_eq!((view.entries[0].status, view.entries[0].attempts), (Status::Completed, 0), "{id}");
    }
    assert_eq!(play.runs.load(Ordering::Relaxed), 3, "one of them twice");
    in_time(running.shutdown()).await;
}

#[tokio::test]
async fn only_deadlocks_and_failed_serializations_are_transient() {
    let (play, store) = play().await;
    let mut connection = play.schema.connect().await;
    for (code, transient) in
        [("40001", true), ("40P01", true), ("23505", false), ("P0001", false), ("57014", false)]
    {
        let raise = format!("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '{code}'; END $$");
        let error = run(&mut connection, &raise).await.expect_err("it is raised");
        assert_eq!(store.is_transient(&error), transient, "{code}");
        let cause = std::error::Error::source(&error).expect("the server's own error");
        assert_eq!(store.is_transient(cause), transient, "{code}, as the cause of an error that was wrapped");
    }
    assert!(
        !store.is_transient(&sqlx::Error::RowNotFound) && !store.is_transient(&std::io::Error::other("x"))
    );
}

// A failed run ends before the call returns: the next delivery must not find the key taken by it.
#[tokio::test]
async fn a_failure_sets_the_key_free_at_once() {
    async fn fail(_: Message, cx: &mut Context<Postgres>) -> Result<(), BoxError> {
        cx.tx().await?;
        Err("no".into())
    }
    let (_play, store) = play().await;
    let inbox =
        Inbox::builder("orders", store).on("t", handler("fail", fail).inline()).build().expect("an inbox");
    for _ in 0..50 {
        let processed = inbox.process(message("1")).await.expect("an answer");
        assert!(matches!(processed, Processed::Failed(_)), "{processed:?}");
    }
}

async fn once(store: &Postgres, tx: &mut PgConnection, result: &str) -> Option<String> {
    if store.once(tx, "orders", "1", "ship").await.expect("mark").is_first().expect("not busy") {
        store.once_record(tx, "orders", "1", "ship", result).await.expect("record");
        return None;
    }
    let stored = store.once_recall(tx, "orders", "1", "ship").await.expect("recall");
    stored.map(|stored| String::from_utf8_lossy(&stored).into_owned())
}

#[tokio::test]
async fn once_keeps_a_result_in_the_callers_own_transaction() {
    for schema in [Schema::shared(), Schema::pooled()] {
        let store = schema.options().open().await.expect("the store opens");
        let mut shop = schema.connect().await;
        let mut tx = shop.begin().await.expect("begin");
        assert_eq!(once(&store, &mut tx, "lost").await, None);
        tx.rollback().await.expect("rollback");
        for (result, stored) in [("kept", None), ("late", Some("kept"))] {
            let mut tx = shop.begin().await.expect("begin");
            assert_eq!(once(&store, &mut tx, result).await.as_deref(), stored);
            tx.commit().await.expect("commit");
        }
    }
}
