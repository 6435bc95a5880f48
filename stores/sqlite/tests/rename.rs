//! A rolling rename: a process with the old name and one with the new name use the same file, and no effect happens
//! twice.

mod support;

use oncebox::store::{Accepted, Inspect};
use oncebox::{BoxError, Context, Inbox, KeyStrategy, Message, Registration, Status, handler};
use oncebox_sqlite::Sqlite;
use support::TestFile;

/// Stores one effect per run, with the key that another system would see.
async fn ship(message: Message, cx: &mut Context<Sqlite>) -> Result<(), BoxError> {
    let (id, key) = (String::from_utf8_lossy(message.id()).into_owned(), cx.idempotency_key("charge"));
    // `shipment` has no unique column, so that a repeated effect is visible.
    cx.tx().await?.execute("INSERT INTO shipment (id, key) VALUES (?1, ?2)", (id, key))?;
    Ok(())
}

fn message(n: usize) -> Message {
    Message::new(n.to_string(), "t", "")
}

fn process(file: &TestFile, registration: Registration<Sqlite>) -> Inbox<Sqlite> {
    let inbox = Inbox::builder("orders", file.open()).clock(file.clock.shared()).on("t", registration);
    inbox.build().expect("a valid inbox")
}

fn before(file: &TestFile) -> Inbox<Sqlite> {
    process(file, handler("three", ship))
}

fn after(file: &TestFile) -> Inbox<Sqlite> {
    process(file, handler("drei", ship).legacy("three"))
}

fn file() -> TestFile {
    let file = TestFile::new();
    drop(file.open());
    file.connect().execute_batch("CREATE TABLE shipment (id TEXT, key TEXT)").expect("a table");
    file
}

// FAULTS I1: forty messages. Twenty of them arrive first at the new process, and all of them again at the other one.
#[tokio::test]
async fn a_rolling_rename_doubles_no_effect() {
    let file = file();
    let (old, new) = (before(&file), after(&file));
    for n in 0..40 {
        let (first, second) = if n % 2 == 0 { (&new, &old) } else { (&old, &new) };
        assert!(matches!(first.accept(message(n)).await.expect("accept"), Accepted::First(_)));
        if n % 4 < 2 {
            assert_eq!(first.drain().await.expect("drain"), 1);
        }
        let again = second.accept(message(n)).await.expect("accept");
        assert!(matches!(again, Accepted::Duplicate(_)), "{n}: {again:?}");
        assert_eq!(second.drain().await.expect("drain"), usize::from(n % 4 >= 2), "{n}");
        assert_eq!(first.drain().await.expect("drain"), 0, "{n}");
    }
    assert_eq!(file.count("shipment"), 40);
    file.check();
}

// FAULTS I1: the deployment is rolled back, and the former version handles the messages that the new one accepted.
#[tokio::test]
async fn a_rollback_of_the_deploy_loses_and_doubles_nothing() {
    let file = file();
    let new = after(&file);
    for n in 0..10 {
        new.accept(message(n)).await.expect("accept");
    }
    assert_eq!(new.process_pending(4).await.expect("process"), 4);
    drop(new);
    let old = before(&file);
    assert_eq!(old.drain().await.expect("drain"), 6);
    for n in 0..10 {
        let again = old.accept(message(n)).await.expect("accept");
        assert!(matches!(again, Accepted::Duplicate(_)), "{n}: {again:?}");
    }
    assert_eq!((old.drain().await.expect("drain"), file.count("shipment")), (0, 10));
    let key = KeyStrategy::MessageId.key(old.name(), &message(0)).expect("an id");
    let entries = old.store().show(old.name(), &key).await.expect("show").expect("stored").entries;
    assert_eq!(entries.iter().map(|entry| entry.status).collect::<Vec<_>>(), [Status::Completed]);
}

#[tokio::test]
async fn an_idempotency_key_is_the_same_in_every_process() {
    let mut keys = Vec::new();
    for new_first in [false, true] {
        let file = file();
        let (old, new) = (before(&file), after(&file));
        for n in 0..2 {
            if new_first { &new } else { &old }.accept(message(n)).await.expect("accept");
        }
        assert_eq!(old.process_pending(1).await.expect("process"), 1);
        assert_eq!(new.process_pending(1).await.expect("process"), 1);
        let read = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
        let connection = file.connect();
        let mut rows = connection.prepare("SELECT key FROM shipment ORDER BY id").expect("a query");
        keys.push(rows.query_map([], read).expect("rows").collect::<Result<Vec<_>, _>>().expect("keys"));
    }
    assert_eq!(keys[0].len(), 2);
    assert_eq!(keys[0], keys[1], "under the first key and under the one that ran it");
}
