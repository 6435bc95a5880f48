//! A SQLite file with a business table beside the inbox, in which every effect of a handler can be counted.
#![allow(dead_code, reason = "no test file needs all of it")]
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

use oncebox::{BoxError, Context, Message};
use oncebox_sqlite::rusqlite::Connection;
use oncebox_sqlite::{Sqlite, SqliteOptions, Synchronous};
use oncebox_testkit::FaultyStore;

/// A store whose handlers can write to the business table in the transaction of their completion.
pub(crate) type FaultySqlite = FaultyStore<Sqlite>;

pub(crate) struct EffectsDatabase {
    dir: tempfile::TempDir,
}

impl EffectsDatabase {
    pub(crate) fn new() -> Self {
        let books = Self { dir: tempfile::tempdir().unwrap() };
        // Nothing is unique here: what happens twice must be seen twice.
        let table = "PRAGMA journal_mode = wal; CREATE TABLE effect (message TEXT NOT NULL)";
        books.connect().execute_batch(table).unwrap();
        books
    }

    /// Options of a store on the file. No test here depends on a power failure.
    pub(crate) fn options(&self) -> SqliteOptions {
        Sqlite::options(self.dir.path().join("books.db")).synchronous(Synchronous::Normal)
    }

    pub(crate) fn store(&self) -> FaultySqlite {
        FaultyStore::new(self.options().open().unwrap())
    }

    /// A connection of the caller's own.
    pub(crate) fn connect(&self) -> Connection {
        let connection = Connection::open(self.dir.path().join("books.db")).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
        connection
    }

    /// Returns the number of effects of a message.
    pub(crate) fn effects(&self, id: &str) -> i64 {
        let count = "SELECT count(*) FROM effect WHERE message = ?1";
        self.connect().query_row(count, [id], |row| row.get(0)).unwrap()
    }
}

/// Books a message in the transaction of its completion.
pub(crate) async fn book(message: Message, cx: &mut Context<FaultySqlite>) -> Result<(), BoxError> {
    let id = String::from_utf8_lossy(message.id()).into_owned();
    cx.tx().await?.execute("INSERT INTO effect VALUES (?1)", [id])?;
    Ok(())
}
