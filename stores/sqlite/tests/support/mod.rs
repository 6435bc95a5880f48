//! Fixture of this store's tests: a file per test, and short helpers.
#![allow(dead_code, reason = "each test file uses a part of it")]

#[path = "../../src/sections.rs"]
pub(crate) mod sections;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use oncebox::state::{Settlement, Status};
use oncebox::store::{
    Accepted, ClaimParams, ClaimQuota, Claimed, Inspect, NewMessage, Route, Settled, Store as _, SweepParams,
};
use oncebox::{Error, HandlerKey, InboxName, Key, KeyStrategy, Message};
use oncebox_sqlite::rusqlite::Connection;
use oncebox_sqlite::{Sqlite, SqliteOptions, Synchronous};
use oncebox_testkit::TestClock;
use tempfile::TempDir;

pub(crate) const LEASE: Duration = Duration::from_mins(1);
/// A time after the lease: longer by the store's precision.
pub(crate) const PAST_LEASE: Duration = Duration::from_millis(60_001);
pub(crate) const RETENTION: Duration = Duration::from_hours(24);

/// A database file that is deleted after the test, and the clock of its stores.
pub(crate) struct TestFile {
    dir: TempDir,
    pub(crate) clock: TestClock,
}

impl TestFile {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary directory"), clock: TestClock::new() }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("inbox.db")
    }

    /// Returns options that do not wait for the disk, because the tests do not cut the power.
    pub(crate) fn options(&self) -> SqliteOptions {
        Sqlite::options(self.path()).synchronous(Synchronous::Normal).clock(self.clock.shared())
    }

    pub(crate) fn open(&self) -> Sqlite {
        self.options().open().expect("the file opens")
    }

    /// Opens another connection, to read the file or to block the store.
    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.path()).expect("another connection")
    }

    /// Returns the one number that a query finds.
    pub(crate) fn number(&self, sql: &str) -> i64 {
        number(&self.connect(), sql)
    }

    /// Counts the rows of a table, with an optional condition.
    pub(crate) fn count(&self, rows: &str) -> usize {
        let count = self.number(&format!("SELECT count(*) FROM {rows}"));
        usize::try_from(count).expect("a count")
    }

    /// Checks that SQLite finds the file intact, and that the tables are consistent.
    pub(crate) fn check(&self) {
        check(&self.connect());
    }
}

pub(crate) fn number(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// Checks the invariants of a file.
pub(crate) fn check(connection: &Connection) {
    let sound: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("a check");
    assert_eq!(sound, "ok");
    for (what, sql) in [
        ("a key is stored twice", "SELECT count(*) - count(DISTINCT digest) FROM oncebox_message"),
        (
            "an entry is in two places",
            "SELECT count(*) FROM (SELECT 1 FROM (SELECT seq, handler FROM oncebox_entry UNION ALL
             SELECT seq, handler FROM oncebox_running UNION ALL SELECT seq, handler FROM oncebox_poisoned)
             GROUP BY seq, handler HAVING count(*) > 1)",
        ),
        (
            "an entry has no message",
            "SELECT count(*) FROM (SELECT seq FROM oncebox_entry UNION ALL SELECT seq FROM oncebox_running
             UNION ALL SELECT seq FROM oncebox_poisoned WHERE seq > 0 UNION ALL SELECT seq FROM oncebox_outcome)
             WHERE seq NOT IN (SELECT seq FROM oncebox_message)",
        ),
        (
            "a message lacks one of its entries",
            "SELECT count(*) FROM oncebox_message m WHERE length(m.handlers) / 4 <>
             (SELECT count(DISTINCT handler) FROM (
                 SELECT handler FROM oncebox_entry WHERE seq = m.seq UNION ALL
                 SELECT handler FROM oncebox_running WHERE seq = m.seq UNION ALL
                 SELECT handler FROM oncebox_poisoned WHERE seq = m.seq UNION ALL
                 SELECT handler FROM oncebox_outcome WHERE seq = m.seq))",
        ),
        (
            "the one of a line that may go is neither due nor running",
            "SELECT count(*) FROM oncebox_line l WHERE seq <> 0
             AND NOT EXISTS (SELECT 1 FROM oncebox_entry e WHERE e.seq = l.seq AND e.handler = l.handler
                 AND e.order_key = l.order_key AND e.line = l.number AND e.due <> 9223372036854775807)
             AND NOT EXISTS (SELECT 1 FROM oncebox_running r WHERE r.seq = l.seq AND r.handler = l.handler
                 AND r.order_key = l.order_key)",
        ),
        (
            "one may go that its line does not know of",
            "SELECT count(*) FROM (SELECT seq, handler, order_key FROM oncebox_entry WHERE due <> 9223372036854775807
                 UNION ALL SELECT seq, handler, order_key FROM oncebox_running) e WHERE e.order_key IS NOT NULL
             AND NOT EXISTS (SELECT 1 FROM oncebox_line l WHERE l.seq = e.seq AND l.handler = e.handler
                 AND l.order_key = e.order_key)",
        ),
        (
            "one waits in no line",
            "SELECT count(*) FROM oncebox_entry e WHERE due = 9223372036854775807 AND order_key IS NOT NULL
             AND NOT EXISTS (SELECT 1 FROM oncebox_line l WHERE l.handler = e.handler AND l.order_key = e.order_key
                 AND l.number = e.line)",
        ),
        (
            "a line is not blocked, and none of its entries may run",
            "SELECT count(*) FROM oncebox_line l WHERE seq = 0 AND NOT EXISTS (SELECT 1 FROM oncebox_poisoned p
                 WHERE p.handler = l.handler AND p.order_key = l.order_key AND p.in_line IN ('blocks', 'parks')
                 AND p.seq < (SELECT min(seq) FROM oncebox_entry e WHERE e.handler = l.handler AND e.line = l.number))",
        ),
        (
            "two lines have one number",
            "SELECT count(*) - (SELECT count(*) FROM (SELECT DISTINCT handler, number FROM oncebox_line))
             FROM oncebox_line",
        ),
        (
            "a number was given out that the counter does not know of",
            "SELECT (SELECT coalesce(max(seq), 0) FROM oncebox_message) > seq FROM oncebox_counter",
        ),
        (
            "a merged key is not in the proof",
            "SELECT count(*) FROM oncebox_message m WHERE m.seq <= (SELECT merged FROM oncebox_counter)
             AND NOT EXISTS (SELECT 1 FROM oncebox_proof p WHERE p.digest = m.digest AND p.seq = m.seq)",
        ),
    ] {
        assert_eq!(number(connection, sql), 0, "{what}");
    }
}

pub(crate) fn inbox() -> InboxName {
    InboxName::new("orders").expect("a good name")
}

pub(crate) fn handler(name: &str) -> HandlerKey {
    HandlerKey::new(name).expect("a good name")
}

pub(crate) fn route(name: &str) -> Route {
    Route::new(handler(name))
}

pub(crate) fn message(id: &str) -> Message {
    Message::new(id.to_owned(), "order.placed", id.to_owned())
}

pub(crate) fn key(id: &str) -> Key {
    KeyStrategy::MessageId.key(&inbox(), &message(id)).expect("an id")
}

/// Returns an offer of a message for the handler `h`.
pub(crate) fn offer(id: &str) -> NewMessage {
    offer_message(message(id), &["h"])
}

pub(crate) fn offer_message(message: Message, handlers: &[&str]) -> NewMessage {
    let key = KeyStrategy::MessageId.key(&inbox(), &message).expect("an id");
    NewMessage::new(inbox(), key, Arc::new(message), handlers.iter().copied().map(route).collect())
}

/// Offers one message.
pub(crate) async fn accept(store: &Sqlite, id: &str) -> Result<Accepted, Error> {
    store.accept(&[offer(id)]).await.map(|accepted| accepted[0])
}

/// Offers one message that must be new.
pub(crate) async fn first(store: &Sqlite, id: &str) {
    let accepted = accept(store, id).await.expect("accept");
    assert!(matches!(accepted, Accepted::First(_)), "{id} is {accepted:?}");
}

pub(crate) fn claim_params(limit: usize) -> ClaimParams {
    ClaimParams::new(inbox(), vec![ClaimQuota { route: route("h"), limit }], LEASE)
}

pub(crate) async fn claim(store: &Sqlite, limit: usize) -> Vec<Claimed> {
    store.claim(&claim_params(limit)).await.expect("claim")
}

/// Claims the only claimable entry.
pub(crate) async fn claim_one(store: &Sqlite) -> Claimed {
    let mut claimed = claim(store, 2).await;
    assert_eq!(claimed.len(), 1, "{claimed:?}");
    claimed.remove(0)
}

/// Claims and completes all entries.
pub(crate) async fn complete_all(store: &Sqlite) {
    let settlements: Vec<Settlement> =
        claim(store, usize::MAX).await.iter().map(|claimed| Settlement::done(&claimed.claim)).collect();
    let settled = store.settle(&settlements).await.expect("settle");
    assert!(settled.iter().all(|settled| *settled == Settled::Applied));
}

/// Sweeps page after page. Returns the number of deleted messages.
pub(crate) async fn sweep(store: &Sqlite) -> usize {
    let mut params = SweepParams::new(inbox(), RETENTION, 1_000);
    let mut messages = 0;
    loop {
        let swept = store.sweep(&params).await.expect("sweep");
        messages += swept.messages;
        match swept.next {
            None => return messages,
            next => params.after = next,
        }
    }
}

/// Returns the status of the entry of `h`. `None` if the message is not stored.
pub(crate) async fn status(store: &Sqlite, id: &str) -> Option<Status> {
    let view = store.show(&inbox(), &key(id)).await.expect("show")?;
    view.entries.iter().filter(|entry| entry.handler == handler("h")).map(|entry| entry.status).next_back()
}

/// Returns the texts of the files in `sql`.
pub(crate) fn sql_files() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
    let files = std::fs::read_dir(root).expect("the folder of statements");
    let read =
        |file: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(file.expect("a file").path());
    files.map(|file| read(file).expect("a file of statements")).collect()
}

/// Returns the names of the statements of a file.
pub(crate) fn names(file: &str) -> impl Iterator<Item = &str> {
    file.lines().filter_map(|line| line.strip_prefix("-- name: "))
}

/// Returns all statements with their names.
pub(crate) fn statements() -> Vec<(String, String)> {
    let of = |file: &String| -> Vec<_> {
        names(file).map(|name| (name.to_owned(), sections::section(file, name).to_owned())).collect()
    };
    sql_files().iter().flat_map(of).collect()
}

/// Returns the statement with a name.
pub(crate) fn statement(name: &str) -> String {
    let found = statements().into_iter().find(|(known, _)| known == name);
    found.unwrap_or_else(|| panic!("there is no statement {name}")).1
}
