//! `once` on the caller's own connection: of any number of duplicates, one does the work, and a rollback undoes
//! everything.

mod support;

use std::sync::mpsc;
use std::time::Duration;

use oncebox::store::Mark;
use oncebox::{Error, ErrorKind, Inbox, Message};
use oncebox_sqlite::Sqlite;
use oncebox_sqlite::rusqlite::{Connection, TransactionBehavior};
use support::TestFile;

fn once(store: &Sqlite, tx: &Connection) -> Result<Mark, Error> {
    store.once(tx, "orders", "1", "charge")
}

fn marks(file: &TestFile) -> usize {
    file.count("oncebox_mark")
}

const KINDS: [TransactionBehavior; 3] =
    [TransactionBehavior::Deferred, TransactionBehavior::Immediate, TransactionBehavior::Exclusive];

#[test]
fn the_first_of_each_kind_of_transaction_is_first() {
    for kind in KINDS {
        let file = TestFile::new();
        let (store, mut shop) = (file.open(), file.connect());
        for delivery in 0..3 {
            let tx = shop.transaction_with_behavior(kind).expect("begin");
            assert_eq!(once(&store, &tx).expect("mark").is_first().expect("not busy"), delivery == 0);
            tx.commit().expect("commit");
        }
        assert_eq!(marks(&file), 1);
    }
}

#[test]
fn a_rollback_leaves_no_mark() {
    for kind in KINDS {
        let file = TestFile::new();
        let (store, mut shop) = (file.open(), file.connect());
        for _ in 0..3 {
            let tx = shop.transaction_with_behavior(kind).expect("begin");
            assert_eq!(once(&store, &tx).expect("mark"), Mark::First);
            assert_eq!(
                once(&store, &tx).expect("mark"),
                Mark::Duplicate,
                "within the transaction it is marked"
            );
            drop(tx);
        }
        let mut tx = shop.transaction_with_behavior(kind).expect("begin");
        let savepoint = tx.savepoint().expect("savepoint");
        assert_eq!(once(&store, &savepoint).expect("mark"), Mark::First);
        drop(savepoint);
        assert_eq!(once(&store, &tx).expect("mark"), Mark::First, "the savepoint took its mark with it");
        tx.commit().expect("commit");
        assert_eq!(marks(&file), 1);
    }
}

/// Marks in one transaction while another one is about to. Returns the result of the other one.
fn race(kind: TransactionBehavior, commit: bool) -> Mark {
    let file = TestFile::new();
    let store = file.open();
    let mut shop = file.connect();
    let tx = shop.transaction_with_behavior(kind).expect("begin");
    assert_eq!(once(&store, &tx).expect("mark"), Mark::First);
    let (about_to, waits) = mpsc::channel();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut shop = file.connect();
            about_to.send(()).expect("the test waits");
            let tx = shop.transaction_with_behavior(kind).expect("begin");
            let mark = once(&store, &tx).expect("it waits for the first");
            tx.commit().expect("commit");
            mark
        });
        waits.recv().expect("the other one");
        if commit {
            tx.commit().expect("commit");
        } else {
            drop(tx);
        }
        other.join().expect("no panic")
    })
}

#[test]
fn a_duplicate_at_the_same_time_waits_for_the_first() {
    for _ in 0..10 {
        for kind in KINDS {
            assert_eq!(race(kind, true), Mark::Duplicate);
            assert_eq!(race(kind, false), Mark::First);
        }
    }
}

#[test]
fn of_many_connections_one_is_first() {
    let file = TestFile::new();
    let store = file.open();
    let firsts: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut shop = file.connect();
                    let mut firsts = 0;
                    for n in 0..50 {
                        let tx = shop.transaction().expect("begin");
                        let mark = store.once(&tx, "orders", n.to_string(), "charge").expect("mark");
                        firsts += usize::from(mark.is_first().expect("not busy"));
                        tx.commit().expect("commit");
                    }
                    firsts
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!((firsts, marks(&file)), (50, 50));
}

// FAULTS E13
#[test]
fn a_lock_that_lasts_too_long_is_an_error_and_not_a_duplicate() {
    let file = TestFile::new();
    let (store, mut shop, other) = (file.open(), file.connect(), file.connect());
    shop.busy_timeout(Duration::from_millis(20)).expect("a setting");
    other.execute_batch("BEGIN IMMEDIATE").expect("another connection writes");
    let tx = shop.transaction().expect("begin");
    assert_eq!(once(&store, &tx).expect_err("it is locked").kind(), ErrorKind::Unavailable);
    drop(tx);
    other.execute_batch("ROLLBACK").expect("it ends");
    let tx = shop.transaction().expect("begin");
    assert_eq!(once(&store, &tx).expect("mark"), Mark::First);
}

// FAULTS E13: the earlier snapshot is outdated, so SQLite refuses the write at once.
#[test]
fn a_mark_that_does_not_come_first_may_fail_but_never_lies() {
    let file = TestFile::new();
    let (store, mut shop, mut other) = (file.open(), file.connect(), file.connect());
    let tx = shop.transaction().expect("begin");
    let _seen: i64 = tx.query_row("SELECT count(*) FROM oncebox_mark", [], |row| row.get(0)).expect("a read");
    let first = other.transaction().expect("begin");
    assert_eq!(once(&store, &first).expect("mark"), Mark::First);
    first.commit().expect("commit");
    assert_eq!(once(&store, &tx).expect_err("an outdated snapshot").kind(), ErrorKind::Unavailable);
    drop(tx);
    let tx = shop.transaction().expect("begin");
    assert_eq!(once(&store, &tx).expect("mark"), Mark::Duplicate);
}

#[test]
fn a_mark_outside_a_transaction_is_refused() {
    let file = TestFile::new();
    let (store, shop) = (file.open(), file.connect());
    let error = once(&store, &shop).expect_err("there is nothing to roll back");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("transaction"), "{error}");
    assert_eq!(marks(&file), 0);
}

#[test]
fn a_connection_to_another_file_is_told_so() {
    let (file, elsewhere) = (TestFile::new(), TestFile::new());
    let (store, mut shop) = (file.open(), elsewhere.connect());
    let tx = shop.transaction().expect("begin");
    let error = once(&store, &tx).expect_err("no inbox there");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.what().contains("the file of the inbox"), "{error}");
}

#[test]
fn names_are_checked() {
    let file = TestFile::new();
    let (store, mut shop) = (file.open(), file.connect());
    let tx = shop.transaction().expect("begin");
    for (inbox, id, handler, kind) in [
        ("", "1", "charge", ErrorKind::InvalidConfig),
        ("orders", "", "charge", ErrorKind::MissingKey),
        ("orders", "1", "", ErrorKind::InvalidHandler),
    ] {
        assert_eq!(store.once(&tx, inbox, id, handler).expect_err("a bad name").kind(), kind);
    }
}

#[test]
fn a_connection_to_another_file_is_refused_though_it_has_such_tables() {
    let (file, other) = (TestFile::new(), TestFile::new());
    let (store, there) = (file.open(), other.open());
    let mut wrong = other.connect();
    let tx = wrong.transaction().expect("begin");
    let error = once(&store, &tx).expect_err("it is another file");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.what().contains("nothing was marked"), "{error}");
    assert_eq!(once(&there, &tx).expect("mark"), Mark::First, "nothing was marked before");
    tx.commit().expect("commit");
    // SQLite commits the files of one transaction one by one.
    let mut memory = Connection::open_in_memory().expect("a connection");
    let attach = format!("ATTACH DATABASE '{}' AS inbox", file.path().display());
    memory.execute_batch(&attach).expect("attached");
    let tx = memory.transaction().expect("begin");
    assert_eq!(once(&store, &tx).expect_err("it is no file").kind(), ErrorKind::Refused);
    drop(tx);
    assert_eq!((marks(&file), marks(&other)), (0, 1));
}

#[cfg(unix)]
#[test]
fn a_link_to_the_file_leads_to_the_same_inbox() {
    let file = TestFile::new();
    let store = file.open();
    let dir = tempfile::tempdir().expect("a directory");
    let link = dir.path().join("link.db");
    std::os::unix::fs::symlink(file.path(), &link).expect("a link");
    let mut shop = Connection::open(&link).expect("a connection");
    let tx = shop.transaction().expect("begin");
    assert_eq!(once(&store, &tx).expect("mark"), Mark::First);
    tx.commit().expect("commit");
    assert_eq!(marks(&file), 1);
}

// FAULTS A10
#[tokio::test]
async fn another_message_is_quarantined_with_the_callers_commit() {
    let file = TestFile::new();
    let inbox = Inbox::builder("orders", file.open()).build().expect("an inbox");
    let mut shop = file.connect();
    for (payload, expected) in [("x", "first"), ("x", "duplicate"), ("y", "conflict"), ("y", "conflict")] {
        let message = Message::new("1", "order.placed", payload);
        let mut tx = shop.transaction().expect("begin");
        assert_eq!(
            inbox.is_marked(&mut tx, &message, "charge").await.expect("is_marked"),
            expected != "first"
        );
        let mark = inbox.once(&mut tx, &message, "charge").await;
        assert_eq!(mark.expect("mark").as_str(), expected);
        assert!(inbox.is_marked(&mut tx, &message, "charge").await.expect("is_marked"));
        tx.commit().expect("commit");
        // A connection with an open transaction works, too.
        shop.execute_batch("BEGIN").expect("begin");
        let mark = inbox.once(&mut shop, &Message::new("1", "order.placed", "x"), "charge").await;
        assert_eq!(mark.expect("mark"), Mark::Duplicate);
        shop.execute_batch("COMMIT").expect("commit");
    }
    assert_eq!((marks(&file), file.count("oncebox_quarantine")), (1, 1));
}
