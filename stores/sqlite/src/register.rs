//! Registers the handlers of a process and their windows. Tests: the testkit's conformance suite.

use std::time::Duration;

use oncebox_core::store::{RegisterParams, RegisteredWindow};
use oncebox_core::time::Timestamp;
use oncebox_core::{HandlerKey, Result};
use rusqlite::{Connection, params};

use crate::error::store_error;
use crate::sql::SQL;
use crate::writer::WriteTx;

/// Longest window in milliseconds; longer ones count as endless. Its sum with any time does not overflow.
pub(crate) const FOREVER: i64 = i64::MAX / 4;

pub(crate) fn register(work: &mut WriteTx<'_>, params: &RegisterParams) -> Result<()> {
    let inbox = work.names.inbox(work.connection, &params.inbox)?.id;
    if params.tenancy.is_some() {
        let recorded: Option<String> = work
            .statement(SQL.register_tenants)?
            .query_row([inbox], |row| row.get(0))
            .map_err(store_error)?;
        if let Some(tenants) = params.new_tenancy(recorded.as_deref())? {
            work.statement(SQL.register_set_tenants)?
                .execute(params![inbox, tenants])
                .map_err(store_error)?;
        }
    }
    let mut ids = Vec::with_capacity(params.routes.len());
    for route in &params.routes {
        ids.push(work.names.link(work.connection, inbox, route)?);
    }
    params.refuse_shared(&ids)?;
    let known = windows(work.connection, inbox)?;
    let (fresh, until) = (work.now.after(params.hold / 2), work.now.after(params.hold));
    for (handler, window) in params.all() {
        // Skip windows that a process registered recently.
        let is_registered = |one: &RegisteredWindow| {
            (one.handler.as_ref(), millis(one.window)) == (handler, millis(window)) && one.until >= fresh
        };
        if !known.iter().any(is_registered) {
            let handler = handler.map_or("", HandlerKey::as_str);
            work.statement(SQL.register)?
                .execute(params![inbox, handler, millis(window), until.as_millis()])
                .map_err(store_error)?;
        }
    }
    if known.iter().any(|one| one.until < work.now) {
        work.statement(SQL.register_forget)?
            .execute(params![inbox, work.now.as_millis()])
            .map_err(store_error)?;
    }
    Ok(())
}

/// Returns all registered windows of an inbox.
pub(crate) fn windows(connection: &Connection, inbox: i64) -> Result<Vec<RegisteredWindow>> {
    let mut statement = connection.prepare_cached(SQL.register_windows).map_err(store_error)?;
    let mut rows = statement.query([inbox]).map_err(store_error)?;
    let mut windows = Vec::new();
    while let Some(row) = rows.next().map_err(store_error)? {
        let handler: String = row.get(0).map_err(store_error)?;
        let handler = if handler.is_empty() { None } else { Some(HandlerKey::new(handler)?) };
        let until = Timestamp::from_millis(row.get(2).map_err(store_error)?);
        windows.push(RegisteredWindow::new(handler, span(row.get(1).map_err(store_error)?), until));
    }
    Ok(windows)
}

/// Converts a window to milliseconds, the unit of the tables.
pub(crate) fn millis(window: Duration) -> i64 {
    i64::try_from(window.as_millis()).map_or(FOREVER, |millis| millis.min(FOREVER))
}

fn span(millis: i64) -> Duration {
    if millis >= FOREVER { Duration::MAX } else { Duration::from_millis(millis.unsigned_abs()) }
}
