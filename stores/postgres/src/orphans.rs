//! Orphans: entries that wait for a handler that no running process registered. Tests: the testkit's conformance suite.

use oncebox_core::store::{Orphan, OrphanParams};
use oncebox_core::time::Timestamp;
use oncebox_core::{HandlerKey, Result};

use crate::db::{Db, millis};
use crate::row::get;
use crate::session::query;

pub(crate) async fn orphans(db: &Db, params: &OrphanParams) -> Result<Vec<Orphan>> {
    let Some(inbox) = db.known_inbox(&params.inbox).await? else { return Ok(Vec::new()) };
    let known: Vec<String> = params.known.iter().map(|key| key.as_str().to_owned()).collect();
    let question = query(&db.sql.orphans)
        .bind(db.now())
        .bind(inbox)
        .bind(known)
        .bind(millis(params.grace))
        .bind(i64::try_from(params.limit).unwrap_or(i64::MAX))
        .bind(db.all_lanes())
        .bind(i64::try_from(OrphanParams::COUNTED).unwrap_or(i64::MAX));
    let mut session = db.control.look().await?;
    let rows = session.rows(question).await?;
    session.end().await?;
    rows.iter()
        .map(|row| {
            let handler = HandlerKey::new(get::<String>(row, 0)?)?;
            let (count, oldest): (i64, i64) = (get(row, 1)?, get(row, 2)?);
            Ok(Orphan::new(handler, count.unsigned_abs(), Timestamp::from_millis(oldest)))
        })
        .collect()
}
