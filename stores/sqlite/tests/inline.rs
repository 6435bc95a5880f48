//! Inline handlers on SQLite: duplicates of two processes, busy locks, and results.

mod support;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oncebox::store::{Mark, Store as _};
use oncebox::{BoxError, Context, ErrorKind, Inbox, Message, Processed, handler};
use oncebox_sqlite::Sqlite;
use oncebox_sqlite::rusqlite::{Connection, Error, ffi};
use support::TestFile;
use tokio::sync::{Notify, Semaphore};

/// State that the handler shares with the test.
struct InlineFixture {
    path: PathBuf,
    runs: AtomicUsize,
    /// Number of runs that write through their own connection, which the inbox's transaction blocks.
    locked_out: AtomicUsize,
    begun: Notify,
    go: Semaphore,
}

impl InlineFixture {
    fn new(file: &TestFile, locked_out: usize, go: usize) -> Arc<Self> {
        Arc::new(Self {
            path: file.path(),
            runs: AtomicUsize::new(0),
            locked_out: AtomicUsize::new(locked_out),
            begun: Notify::new(),
            go: Semaphore::new(go),
        })
    }
}

async fn ship(message: Message, cx: &mut Context<Sqlite>) -> Result<(), BoxError> {
    let play = cx.data::<Arc<InlineFixture>>()?;
    let (id, run) =
        (String::from_utf8_lossy(message.id()).into_owned(), play.runs.fetch_add(1, Ordering::Relaxed) + 1);
    cx.tx().await?.execute("INSERT INTO shipment VALUES (?1)", [&id])?;
    cx.set_result(format!("run {run}"))?;
    play.begun.notify_one();
    play.go.acquire().await?.forget();
    let left = play.locked_out.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    if left.is_ok() {
        let other = Connection::open(&play.path)?;
        other.busy_timeout(Duration::ZERO)?;
        other.execute("INSERT INTO shipment VALUES ('elsewhere')", [])?;
    }
    Ok(())
}

fn inbox(store: Sqlite, play: &Arc<InlineFixture>) -> Inbox<Sqlite> {
    let inbox = Inbox::builder("orders", store).data(Arc::clone(play));
    inbox.on("order.placed", handler("ship", ship).inline()).build().expect("an inbox")
}

fn message() -> Message {
    Message::new("1", "order.placed", "")
}

fn shop() -> TestFile {
    let file = TestFile::new();
    drop(file.open());
    file.connect().execute_batch("CREATE TABLE shipment (id TEXT NOT NULL)").expect("a business table");
    file
}

// DESIGN rules 1 and 2, FAULTS A9: the wait is bounded, and ends in a retryable error, never in a result that would be
// acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_of_another_process_waits_and_its_body_does_not_run() {
    let file = shop();
    let play = InlineFixture::new(&file, 0, 0);
    let first = inbox(file.open(), &play);
    let impatient = file.options().busy_timeout(Duration::from_millis(20)).open().expect("the file opens");
    let second = inbox(impatient, &play);
    let working = tokio::spawn(async move { first.process_with_results(message()).await });
    play.begun.notified().await;
    let error = second.process(message()).await.expect_err("the first is at work");
    assert!(error.kind() == ErrorKind::Unavailable && error.is_retryable(), "{error}");
    play.go.add_permits(1);
    let (processed, stored) = working.await.expect("no panic").expect("the first ends");
    assert_eq!(processed, Processed::Done);
    let (processed, again) = second.process_with_results(message()).await.expect("an answer");
    assert_eq!((processed, &again), (Processed::Duplicate, &stored));
    assert_eq!(again.get("ship").map(|result| &result[..]), Some(&b"run 1"[..]));
    assert_eq!((play.runs.load(Ordering::Relaxed), file.count("shipment")), (1, 1));
}

// FAULTS E7, E13: a busy lock is not the handler's failure.
#[tokio::test]
async fn a_lock_that_is_taken_runs_the_unit_again() {
    let file = shop();
    let play = InlineFixture::new(&file, 2, 10);
    let inbox = inbox(file.open(), &play);
    assert_eq!(inbox.process(message()).await.expect("an answer"), Processed::Done);
    assert_eq!((play.runs.load(Ordering::Relaxed), file.count("shipment")), (3, 1));
}

#[test]
fn locks_and_old_snapshots_are_transient_and_nothing_else_is() {
    let (file, failure) = (TestFile::new(), |code| Error::SqliteFailure(ffi::Error::new(code), None));
    let store = file.open();
    for code in
        [ffi::SQLITE_BUSY, ffi::SQLITE_BUSY_SNAPSHOT, ffi::SQLITE_LOCKED, ffi::SQLITE_LOCKED_SHAREDCACHE]
    {
        assert!(store.is_transient(&failure(code)), "{code}");
        assert!(
            store.is_transient(&ffi::Error::new(code)),
            "{code}, as the cause of an error that was wrapped"
        );
    }
    for code in [ffi::SQLITE_CONSTRAINT, ffi::SQLITE_FULL, ffi::SQLITE_IOERR, ffi::SQLITE_CORRUPT] {
        assert!(!store.is_transient(&failure(code)), "{code}");
    }
    assert!(!store.is_transient(&std::io::Error::other("x")) && !store.is_transient(&Error::InvalidQuery));
}

#[test]
fn once_keeps_a_result_in_the_callers_own_transaction() {
    let file = shop();
    let (store, mut shop) = (file.open(), file.connect());
    let mut deliver = |result: &str, commit: bool| {
        let tx = shop.transaction().expect("begin");
        let stored = match store.once(&tx, "orders", "1", "ship").expect("mark") {
            Mark::First => {
                store.once_record(&tx, "orders", "1", "ship", result).expect("record");
                None
            }
            _ => store.once_recall(&tx, "orders", "1", "ship").expect("recall"),
        };
        if commit {
            tx.commit().expect("commit");
        }
        stored.map(|stored| String::from_utf8_lossy(&stored).into_owned())
    };
    assert_eq!(deliver("lost", false), None);
    assert_eq!(deliver("kept", true), None);
    assert_eq!(deliver("late", true).as_deref(), Some("kept"));
}
