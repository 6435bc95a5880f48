//! Backlog: counts the waiting entries of each handler. Tests: the testkit's conformance suite.

use std::collections::HashMap;

use oncebox_core::Result;
use oncebox_core::store::{Backlog, BacklogParams, BlockedBacklog};
use oncebox_core::time::Timestamp;
use rusqlite::{Connection, params};

use crate::error::store_error;
use crate::names::NameMap;
use crate::sql::SQL;

const COUNTED: i64 = BacklogParams::COUNTED.cast_signed();

pub(crate) fn backlog(
    connection: &Connection,
    names: &NameMap,
    params: &BacklogParams,
    now: Timestamp,
) -> Result<Vec<Backlog>> {
    let Some(inbox) = names.known_inbox(&params.inbox) else { return Ok(Vec::new()) };
    let poisoned = poisoned(connection).map_err(store_error)?;
    let mut backlog = Vec::new();
    for (id, handler) in names.of_inbox(inbox.id) {
        let (pending, first) = pending(connection, id, now).map_err(store_error)?;
        let poisoned = poisoned.get(&id).copied().unwrap_or(0);
        let blocked = blocked(connection, id, now).map_err(store_error)?;
        if pending > 0 || poisoned > 0 || blocked.keys > 0 {
            let due = first.map(|due| now.since(due));
            backlog.push(Backlog::new(handler.key.clone(), pending, poisoned, due).held_back(blocked));
        }
    }
    backlog.sort_by(|a, b| a.handler.cmp(&b.handler));
    Ok(backlog)
}

/// Counts the waiting entries, and reads the due time of the first.
fn pending(
    connection: &Connection,
    handler: i64,
    now: Timestamp,
) -> rusqlite::Result<(u64, Option<Timestamp>)> {
    let count: i64 = connection
        .prepare_cached(SQL.backlog_pending)?
        .query_row(params![handler, COUNTED], |row| row.get(0))?;
    let first: Option<i64> = connection
        .prepare_cached(SQL.backlog_first)?
        .query_row(params![handler, now.as_millis()], |row| row.get(0))?;
    Ok((count.unsigned_abs(), first.map(Timestamp::from_millis)))
}

/// Counts the entries that poisoned entries of a handler block.
fn blocked(connection: &Connection, handler: i64, now: Timestamp) -> rusqlite::Result<BlockedBacklog> {
    let mut count = connection.prepare_cached(SQL.backlog_blocked)?;
    count.query_row(params![handler, COUNTED], |row| {
        let (keys, waiting): (i64, i64) = (row.get(0)?, row.get(1)?);
        let oldest = row.get::<_, Option<i64>>(2)?.map(|at| now.since(Timestamp::from_millis(at)));
        Ok(BlockedBacklog::new(keys.unsigned_abs(), waiting.unsigned_abs(), oldest))
    })
}

fn poisoned(connection: &Connection) -> rusqlite::Result<HashMap<i64, u64>> {
    let mut statement = connection.prepare_cached(SQL.backlog_poisoned)?;
    let rows =
        statement.query_map([COUNTED], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs())))?;
    rows.collect()
}
