//! Registers the handlers of a process and their windows. Tests: `tests/windows.rs`.

use std::time::Duration;

use oncebox_core::store::{RegisterParams, RegisteredWindow, RetentionWindows, SweepParams};
use oncebox_core::time::Timestamp;
use oncebox_core::{HandlerKey, Result};

use crate::db::{Db, FOREVER, millis};
use crate::row::get;
use crate::session::{PgSession, query};

pub(crate) async fn register(db: &Db, params: &RegisterParams) -> Result<()> {
    let control = db.control.knowing(db.timeline.changes());
    let inbox = db.inbox(&params.inbox).await?;
    record_tenants(db, inbox, params).await?;
    let mut groups = Vec::with_capacity(params.routes.len());
    for route in &params.routes {
        db.link(inbox, route).await?;
        groups.push(db.group_of(inbox, route));
    }
    params.refuse_shared(&groups)?;
    let (mut handlers, mut spans) = (Vec::new(), Vec::new());
    for (handler, window) in params.all() {
        handlers.push(handler.map_or("", HandlerKey::as_str).to_owned());
        spans.push(millis(window));
    }
    let register = query(&db.sql.register).bind(db.now()).bind(inbox).bind(millis(params.hold));
    let mut session = control.transaction().await?;
    session.run(register.bind(handlers).bind(spans)).await?;
    session.run(query(&db.sql.register_forget).bind(db.now()).bind(inbox)).await?;
    session.end().await
}

/// Records the tenant setting of the process, or refuses a different one. Also compares processes that register at the
/// same moment.
async fn record_tenants(db: &Db, inbox: i16, params: &RegisterParams) -> Result<()> {
    if params.tenancy.is_none() {
        return Ok(());
    }
    loop {
        let mut session = db.control.look().await?;
        let rows = session.rows(query(&db.sql.register_tenants).bind(inbox)).await?;
        session.end().await?;
        let recorded: Option<String> = rows.first().map(|row| get(row, 0)).transpose()?.flatten();
        let Some(tenants) = params.new_tenancy(recorded.as_deref())? else { return Ok(()) };
        let set = query(&db.sql.register_set_tenants).bind(inbox).bind(tenants.to_owned()).bind(recorded);
        let mut session = db.control.single().await?;
        let written = session.run(set).await?;
        session.end().await?;
        if written == 1 || rows.is_empty() {
            return Ok(());
        }
    }
}

/// Returns the windows for a sweep, and the time.
pub(crate) async fn windows(
    db: &Db,
    session: &mut PgSession,
    inbox: i16,
    params: &SweepParams,
) -> Result<(RetentionWindows, Timestamp)> {
    let (windows, now) = registered(db, session, inbox).await?;
    Ok((RetentionWindows::new(params, &windows, now), now))
}

/// Returns all registered windows of an inbox, and the time.
pub(crate) async fn registered(
    db: &Db,
    session: &mut PgSession,
    inbox: i16,
) -> Result<(Vec<RegisteredWindow>, Timestamp)> {
    let rows = session.rows(query(&db.sql.register_windows).bind(db.now()).bind(inbox)).await?;
    let (mut windows, mut now) = (Vec::new(), Timestamp::ZERO);
    for row in &rows {
        now = Timestamp::from_millis(get(row, 3)?);
        // Without registered windows, there is one row with only the time.
        let Some(handler) = get::<Option<String>>(row, 0)? else { continue };
        let handler = if handler.is_empty() { None } else { Some(HandlerKey::new(handler)?) };
        let until = Timestamp::from_millis(get(row, 2)?);
        windows.push(RegisteredWindow::new(handler, span(get(row, 1)?), until));
    }
    Ok((windows, now))
}

fn span(millis: i64) -> Duration {
    if millis >= FOREVER { Duration::MAX } else { Duration::from_millis(millis.unsigned_abs()) }
}
