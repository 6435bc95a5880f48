//! The business side of the demo: orders are shipped by writing a row. Nothing in the table prevents a second one.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use oncebox_sqlite::rusqlite::Connection;

/// The file that holds the inbox and the shipments.
pub(crate) fn file(dir: &Path) -> PathBuf {
    dir.join("shop.db")
}

/// What the table shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shipments {
    /// Rows.
    pub(crate) effects: u64,
    /// Different orders among them.
    pub(crate) orders: u64,
}

/// Makes the table.
pub(crate) fn create(dir: &Path) -> Result<()> {
    let connection = Connection::open(file(dir)).context("cannot make the demo's SQLite file")?;
    connection.execute_batch("CREATE TABLE shipment (order_id INTEGER NOT NULL, worker INTEGER NOT NULL)")?;
    Ok(())
}

/// Writes a shipment; called with the handler's own transaction.
pub(crate) fn ship(connection: &Connection, order: u32, worker: u32) -> oncebox_sqlite::rusqlite::Result<()> {
    connection.execute("INSERT INTO shipment (order_id, worker) VALUES (?1, ?2)", (order, worker))?;
    Ok(())
}

/// Counts what was shipped.
pub(crate) fn count(connection: &Connection) -> Result<Shipments> {
    let (effects, orders): (i64, i64) =
        connection.query_row("SELECT count(*), count(DISTINCT order_id) FROM shipment", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    Ok(Shipments { effects: effects.unsigned_abs(), orders: orders.unsigned_abs() })
}
