//! Orphans: entries that wait for a handler that no running process registered. Tests: the testkit's conformance suite.

use std::collections::HashSet;

use oncebox_core::Result;
use oncebox_core::store::{Orphan, OrphanParams};
use oncebox_core::time::Timestamp;
use rusqlite::{Connection, params};

use crate::error::store_error;
use crate::names::NameMap;
use crate::sql::SQL;

pub(crate) fn orphans(
    connection: &Connection,
    names: &NameMap,
    params: &OrphanParams,
    now: Timestamp,
) -> Result<Vec<Orphan>> {
    let Some(inbox) = names.known_inbox(&params.inbox) else { return Ok(Vec::new()) };
    let missed = now.before(params.grace);
    let mut orphans = Vec::new();
    let known: HashSet<i64> =
        params.known.iter().filter_map(|key| names.known_handler(inbox.id, key)).collect();
    for (id, handler) in names.of_inbox(inbox.id) {
        if known.contains(&id) {
            continue;
        }
        let Some((count, oldest)) = waiting(connection, id, now).map_err(store_error)? else { continue };
        if oldest <= missed {
            orphans.push(Orphan::new(handler.key.clone(), count, oldest));
        }
    }
    orphans.sort_by(|a, b| (a.oldest, &a.handler).cmp(&(b.oldest, &b.handler)));
    orphans.truncate(params.limit);
    Ok(orphans)
}

/// Counts the waiting entries of a handler, and reads the first due time. Returns `None` if a worker holds one of them.
fn waiting(
    connection: &Connection,
    handler: i64,
    now: Timestamp,
) -> rusqlite::Result<Option<(u64, Timestamp)>> {
    let (running, since, until): (i64, Option<i64>, Option<i64>) = connection
        .prepare_cached(SQL.orphans_running)?
        .query_row([handler], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    if until.is_some_and(|until| until >= now.as_millis()) {
        return Ok(None);
    }
    let due: Option<i64> =
        connection.prepare_cached(SQL.orphans_oldest)?.query_row([handler], |row| row.get(0))?;
    let Some(oldest) = since.into_iter().chain(due).min() else { return Ok(None) };
    let max = i64::try_from(OrphanParams::COUNTED).unwrap_or(i64::MAX);
    let pending: i64 =
        connection.prepare_cached(SQL.orphans_waiting)?.query_row(params![handler, max], |row| row.get(0))?;
    let count = (running + pending).min(max).unsigned_abs();
    Ok(Some((count, Timestamp::from_millis(oldest))))
}
