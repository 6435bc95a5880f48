//! Backlog: counts the waiting entries of each handler. Tests: the testkit's conformance suite.

use std::time::Duration;

use oncebox_core::store::{Backlog, BacklogParams, BlockedBacklog};
use oncebox_core::{HandlerKey, Result};

use crate::db::Db;
use crate::row::get;
use crate::session::query;

pub(crate) async fn backlog(db: &Db, params: &BacklogParams) -> Result<Vec<Backlog>> {
    let Some(inbox) = db.known_inbox(&params.inbox).await? else { return Ok(Vec::new()) };
    let question = query(&db.sql.backlog)
        .bind(db.now())
        .bind(inbox)
        .bind(db.all_lanes())
        .bind(BacklogParams::COUNTED.cast_signed());
    let mut session = db.control.look().await?;
    let rows = session.rows(question).await?;
    session.end().await?;
    rows.iter()
        .map(|row| {
            let handler = HandlerKey::new(get::<String>(row, 0)?)?;
            let (pending, poisoned): (i64, i64) = (get(row, 1)?, get(row, 2)?);
            let due = get::<Option<i64>>(row, 3)?.map(|due| Duration::from_millis(due.max(0).unsigned_abs()));
            let (keys, waiting): (i64, i64) = (get(row, 4)?, get(row, 5)?);
            let oldest =
                get::<Option<i64>>(row, 6)?.map(|age| Duration::from_millis(age.max(0).unsigned_abs()));
            let blocked = BlockedBacklog::new(keys.unsigned_abs(), waiting.unsigned_abs(), oldest);
            Ok(Backlog::new(handler, pending.unsigned_abs(), poisoned.unsigned_abs(), due).held_back(blocked))
        })
        .collect()
}
