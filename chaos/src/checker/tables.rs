//! Reads the stores' tables for the checker, with its own SQL. Tests: tests/short.rs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use oncebox_servers::Cluster;
use parking_lot::Mutex;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

/// A row, as text.
pub(crate) type TableRow = Vec<String>;

/// Queries of the checker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TableQuery {
    Effects,
    Doubled,
    Messages,
    Outcomes,
    Poisoned,
    Unfinished,
    Quarantine,
    Marks,
    Operations,
    /// Messages and marks that the store reports as lost.
    Lost,
    LostMarks,
}

/// The tables of a round.
pub(crate) trait RoundTables: Send + Sync {
    /// Runs a query.
    fn query(&self, query: TableQuery) -> Result<Vec<TableRow>>;

    /// Returns the number of sessions left after the last worker is gone, if any.
    fn sessions(&self) -> Result<Option<u64>>;

    /// Deletes the round's data outside its directory.
    fn forget(&self);

    /// Returns the number of waiting or running entries.
    fn unfinished(&self) -> Result<u64> {
        self.number(TableQuery::Unfinished)
    }

    /// Returns the single number of a query.
    fn number(&self, query: TableQuery) -> Result<u64> {
        let rows = self.query(query)?;
        let text = rows.first().and_then(|row| row.first()).context("there is no answer")?;
        Ok(text.parse()?)
    }
}

/// A SQLite file.
pub(crate) struct SqliteTables {
    file: PathBuf,
}

impl SqliteTables {
    pub(crate) fn new(file: &Path) -> Self {
        Self { file: file.to_owned() }
    }

    pub(crate) fn create(&self) -> Result<()> {
        let connection = Connection::open(&self.file)?;
        connection.execute_batch(include_str!("../../sql/sqlite/create.sql"))?;
        Ok(())
    }
}

impl RoundTables for SqliteTables {
    fn query(&self, query: TableQuery) -> Result<Vec<TableRow>> {
        let sql = match query {
            TableQuery::Effects => include_str!("../../sql/sqlite/effects.sql"),
            TableQuery::Doubled => include_str!("../../sql/sqlite/doubled.sql"),
            TableQuery::Messages => include_str!("../../sql/sqlite/messages.sql"),
            TableQuery::Outcomes => include_str!("../../sql/sqlite/outcomes.sql"),
            TableQuery::Poisoned => include_str!("../../sql/sqlite/poisoned.sql"),
            TableQuery::Unfinished => include_str!("../../sql/sqlite/unfinished.sql"),
            TableQuery::Quarantine => include_str!("../../sql/sqlite/quarantine.sql"),
            TableQuery::Marks => include_str!("../../sql/sqlite/marks.sql"),
            TableQuery::Operations => include_str!("../../sql/sqlite/operations.sql"),
            TableQuery::Lost => include_str!("../../sql/sqlite/lost.sql"),
            TableQuery::LostMarks => include_str!("../../sql/sqlite/lost_marks.sql"),
        };
        let connection = Connection::open_with_flags(&self.file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.busy_timeout(Duration::from_secs(10))?;
        let mut statement = connection.prepare(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let cell = |index| -> Result<String> { Ok(text(row.get_ref(index)?)) };
            found.push((0..columns).map(cell).collect::<Result<TableRow>>()?);
        }
        Ok(found)
    }

    fn sessions(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn forget(&self) {}
}

fn text(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => String::new(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// The server that takes writes; a failover replaces it.
pub(crate) struct Primary(Mutex<Arc<Cluster>>);

impl Primary {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self(Mutex::new(Arc::new(cluster)))
    }

    pub(crate) fn now(&self) -> Arc<Cluster> {
        Arc::clone(&self.0.lock())
    }

    pub(crate) fn set(&self, cluster: Cluster) {
        // Drop the old one outside the lock, with all its data.
        let before = std::mem::replace(&mut *self.0.lock(), Arc::new(cluster));
        drop(before);
    }
}

/// A PostgreSQL database, queried with `psql`.
pub(crate) struct PostgresTables {
    primary: Arc<Primary>,
    database: String,
}

impl PostgresTables {
    pub(crate) fn new(primary: Arc<Primary>, database: &str) -> Self {
        Self { primary, database: database.to_owned() }
    }

    pub(crate) fn create(&self) -> Result<()> {
        self.primary.now().sql(&self.database, include_str!("../../sql/postgres/create.sql")).map(drop)
    }
}

impl RoundTables for PostgresTables {
    fn query(&self, query: TableQuery) -> Result<Vec<TableRow>> {
        let sql = match query {
            TableQuery::Effects => include_str!("../../sql/postgres/effects.sql"),
            TableQuery::Doubled => include_str!("../../sql/postgres/doubled.sql"),
            TableQuery::Messages => include_str!("../../sql/postgres/messages.sql"),
            TableQuery::Outcomes => include_str!("../../sql/postgres/outcomes.sql"),
            TableQuery::Poisoned => include_str!("../../sql/postgres/poisoned.sql"),
            TableQuery::Unfinished => include_str!("../../sql/postgres/unfinished.sql"),
            TableQuery::Quarantine => include_str!("../../sql/postgres/quarantine.sql"),
            TableQuery::Marks => include_str!("../../sql/postgres/marks.sql"),
            TableQuery::Operations => include_str!("../../sql/postgres/operations.sql"),
            TableQuery::Lost => include_str!("../../sql/postgres/lost.sql"),
            TableQuery::LostMarks => include_str!("../../sql/postgres/lost_marks.sql"),
        };
        let answer = self.primary.now().sql(&self.database, sql)?;
        Ok(answer.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect())
    }

    fn sessions(&self) -> Result<Option<u64>> {
        let start = Instant::now();
        loop {
            // A server notices a closed connection only when it checks.
            let left =
                self.primary.now().sql(&self.database, include_str!("../../sql/postgres/sessions.sql"))?;
            let left: u64 = left.parse()?;
            if left == 0 {
                return Ok(None);
            }
            if start.elapsed() > Duration::from_secs(15) {
                return Ok(Some(left));
            }
        }
    }

    fn forget(&self) {
        let _ =
            self.primary.now().sql("postgres", &format!("drop database \"{}\" with (force)", self.database));
    }
}
