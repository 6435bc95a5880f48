//! The schema and its version. Tests: `tests/migrate.rs`.

use std::borrow::Cow;

use oncebox_core::store::Migration;
use oncebox_core::time::Timestamp;
use oncebox_core::{Error, ErrorKind, Result};
use rusqlite::{Connection, TransactionBehavior, params};

use crate::error::store_error;
use crate::sql::SQL;

/// All migrations, in order. Migrations are only added. Version 1 belongs to unpublished builds.
pub(crate) const MIGRATIONS: &[Migration] = &[Migration {
    version: 2,
    name: "inbox",
    sql: Cow::Borrowed(include_str!("../migrations/0002_inbox.sql")),
}];

/// Returns the version of the schema. 0 if there is none.
pub(crate) fn current(connection: &Connection) -> Result<u32> {
    let exists: bool =
        connection.query_row(SQL.writer_schema_table, [], |row| row.get(0)).map_err(store_error)?;
    if !exists {
        return Ok(0);
    }
    let version: Option<u32> =
        connection.query_row(SQL.writer_schema_version, [], |row| row.get(0)).map_err(store_error)?;
    Ok(version.unwrap_or(0))
}

/// Returns the missing steps. Returns an error if the schema is newer than this build, or of an unpublished build.
pub(crate) fn pending(connection: &Connection) -> Result<Vec<Migration>> {
    let current = current(connection)?;
    let known = MIGRATIONS.last().map_or(0, |last| last.version);
    if current > known {
        let what = format!("the SQLite file has schema version {current}, this build knows {known}");
        return Err(Error::new(ErrorKind::SchemaTooNew, what));
    }
    if current != 0 && MIGRATIONS.first().is_some_and(|first| current < first.version) {
        let what = format!(
            "the SQLite file has schema version {current} of an unpublished build, which this build cannot read; use a new file"
        );
        return Err(Error::new(ErrorKind::InvalidConfig, what));
    }
    Ok(MIGRATIONS.iter().filter(|step| step.version > current).cloned().collect())
}

/// Checks that nothing is missing.
pub(crate) fn check(connection: &Connection) -> Result<()> {
    let missing = pending(connection)?;
    match missing.first() {
        None => Ok(()),
        Some(step) => {
            let what = format!("the SQLite file lacks schema version {} ({})", step.version, step.name);
            Err(Error::new(ErrorKind::SchemaOutdated, what))
        }
    }
}

/// Applies missing steps, in one transaction. Two processes that start at the same time apply them once.
pub(crate) fn apply(connection: &mut Connection, now: Timestamp) -> Result<Vec<Migration>> {
    // Checks without a lock first, so that a store can open an up-to-date file while another process writes.
    if pending(connection)?.is_empty() {
        return Ok(Vec::new());
    }
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(store_error)?;
    let missing = pending(&tx)?;
    tx.execute_batch(SQL.writer_schema_create).map_err(store_error)?;
    for step in &missing {
        tx.execute_batch(&step.sql).map_err(store_error)?;
        tx.execute(SQL.writer_schema_add, params![step.version, step.name, now.as_millis()])
            .map_err(store_error)?;
    }
    tx.commit().map_err(crate::error::commit_error)?;
    Ok(missing)
}
