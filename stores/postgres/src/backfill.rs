//! Backfill: adds entries for a handler to stored messages. Tests: the testkit's conformance suite.

use std::collections::HashMap;

use oncebox_core::store::{BackfillParams, Backfilled, Seq};
use oncebox_core::{Fingerprint, Result};
use sqlx::postgres::PgRow;

use crate::accept::{decode_handlers, encode_handlers, group_of, order_of};
use crate::db::{Db, Released, TouchedQueues, lane};
use crate::row::get;
use crate::session::{PgSession, query};

/// A message that has no entry for the handler yet.
struct Missing {
    seq: i64,
    /// Lane of the key.
    lane: i16,
    digest: Vec<u8>,
    order: Option<Vec<u8>>,
    handlers: Vec<i16>,
    time: Option<i64>,
}

pub(crate) async fn backfill(db: &Db, params: &BackfillParams) -> Result<Backfilled> {
    let control = db.control.knowing(db.timeline.changes());
    let Some(inbox) = db.known_inbox(&params.inbox).await? else { return Ok(Backfilled::default()) };
    // Runs before it takes a connection: a caller that holds one must not wait for another.
    let route = db.link(inbox, &params.route).await?;
    let limit = i64::try_from(params.limit).unwrap_or(i64::MAX);
    let page = query(&db.sql.backfill_page).bind(params.after.map_or(0, |seq| seq.0)).bind(limit);
    // One transaction: its read locks keep the partitions of the messages from being dropped.
    let mut session = control.transaction().await?;
    let rows = session.rows(page).await?;
    let group = group_of(db, &mut session, &route).await?;
    let mut chosen = Vec::new();
    for row in &rows {
        if get::<i16>(row, 1)? == inbox {
            chosen.extend(missing(row, params, &group)?);
        }
    }
    // Query after the messages: each sweep before a redelivery of one of them is visible by now.
    let forgotten = session.rows(query(&db.sql.accept_forgotten).bind(group.clone())).await?;
    let forgotten: Option<i64> = forgotten.first().map_or(Ok(None), |row| get(row, 0))?;
    let all = chosen.len();
    chosen.retain(|message| message.time.zip(forgotten).is_none_or(|(time, mark)| time > mark));
    let stale = all - chosen.len();
    let (added, released) = add(db, &mut session, route[0], &group, chosen).await?;
    session.end().await?;
    released.notify(db);
    let last = rows.last().map(|row| Ok(Seq(get(row, 0)?))).transpose()?;
    let full = params.limit > 0 && rows.len() >= params.limit;
    Ok(Backfilled::new(added, last.filter(|_| full)).stale(stale))
}

/// Returns a message of the page if it is for the handler and has no entry for it.
fn missing(row: &PgRow, params: &BackfillParams, group: &[i16]) -> Result<Option<Missing>> {
    // Retention may delete a message before its key. Then there is nothing to handle.
    let Some(kind) = get::<Option<&str>>(row, 5)? else { return Ok(None) };
    let handlers = decode_handlers(get(row, 4)?);
    if !params.takes(kind) || group.iter().any(|id| handlers.contains(id)) {
        return Ok(None);
    }
    let order = order_of(&params.inbox, get(row, 6)?, get(row, 7)?, get(row, 8)?);
    let order = params.route.order_of(order);
    Ok(Some(Missing {
        seq: get(row, 0)?,
        lane: get(row, 2)?,
        digest: get(row, 3)?,
        order: order.map(|order| order.as_bytes().to_vec()),
        handlers,
        time: get(row, 9)?,
    }))
}

/// Adds the entries and returns their number. Lock order as in accept: first lines, then keys.
async fn add(
    db: &Db,
    session: &mut PgSession,
    handler: i16,
    group: &[i16],
    chosen: Vec<Missing>,
) -> Result<(usize, Released)> {
    if chosen.is_empty() {
        return Ok((0, Released::default()));
    }
    let mut lines = TouchedQueues::default();
    for message in &chosen {
        if let Some(order) = &message.order {
            lines.add(lane(Seq(message.seq)), handler, order.clone());
        }
    }
    if !lines.is_empty() {
        lines.lock(db, session).await?;
    }
    // A page is in the order of the numbers.
    let seqs: Vec<i64> = chosen.iter().map(|message| message.seq).collect();
    let erased = Fingerprint::ERASED.as_bytes().to_vec();
    let rows = session.rows(query(&db.sql.backfill_hold).bind(seqs).bind(erased)).await?;
    let mut known = HashMap::with_capacity(rows.len());
    for row in &rows {
        known.insert(get::<i64>(row, 0)?, decode_handlers(get(row, 1)?));
    }
    // Skip messages that were swept meanwhile. A message that was delivered again may have its entry already.
    let chosen: Vec<Missing> = chosen
        .into_iter()
        .filter_map(|message| {
            let mut handlers = known.remove(&message.seq)?;
            let missing = !group.iter().any(|id| handlers.contains(id));
            handlers.push(handler);
            handlers.sort_unstable();
            missing.then_some(Missing { handlers, ..message })
        })
        .collect();
    let add = query(&db.sql.backfill_add)
        .bind(db.now())
        .bind(handler)
        .bind(chosen.iter().map(|message| message.lane).collect::<Vec<_>>())
        .bind(chosen.iter().map(|message| message.digest.clone()).collect::<Vec<_>>())
        .bind(chosen.iter().map(|message| message.seq).collect::<Vec<_>>())
        .bind(chosen.iter().map(|message| encode_handlers(&message.handlers)).collect::<Vec<_>>())
        .bind(chosen.iter().map(|message| message.order.clone()).collect::<Vec<_>>());
    session.run(add).await?;
    let released = if lines.is_empty() { Released::default() } else { lines.rearrange(db, session).await? };
    Ok((chosen.len(), released))
}
