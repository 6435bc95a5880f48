//! The business table of the demo: a shipment is a row, and no constraint prevents a second one. Tests: `tests/demo.rs`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use oncebox_sqlite::rusqlite::Connection;

/// Returns the file of the inbox and the shipments.
pub(crate) fn file(dir: &Path) -> PathBuf {
    dir.join("shop.db")
}

/// Counts of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shipments {
    /// Rows.
    pub(crate) effects: u64,
    /// Different orders among them.
    pub(crate) orders: u64,
}

/// Creates the table.
pub(crate) fn create(dir: &Path) -> Result<()> {
    let connection = Connection::open(file(dir)).context("cannot create the SQLite file of the demo")?;
    connection.execute_batch("CREATE TABLE shipment (order_id INTEGER NOT NULL, worker INTEGER NOT NULL)")?;
    Ok(())
}

/// Writes a shipment in the transaction of the handler.
pub(crate) fn ship(connection: &Connection, order: u32, worker: u32) -> oncebox_sqlite::rusqlite::Result<()> {
    connection.execute("INSERT INTO shipment (order_id, worker) VALUES (?1, ?2)", (order, worker))?;
    Ok(())
}

/// Counts the shipments.
pub(crate) fn count(connection: &Connection) -> Result<Shipments> {
    let (effects, orders): (i64, i64) =
        connection.query_row("SELECT count(*), count(DISTINCT order_id) FROM shipment", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    Ok(Shipments { effects: effects.unsigned_abs(), orders: orders.unsigned_abs() })
}
