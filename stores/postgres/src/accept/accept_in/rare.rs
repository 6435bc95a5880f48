//! Rare cases of an accept in a transaction: quarantines a message, or adds entries to a known message. The same steps
//! as `rare_cases.rs`, in the caller's transaction. Tests: `tests/accept_in.rs`, `tests/accept_in_tokio.rs`.

use std::collections::HashMap;

use oncebox_core::store::{Accepted, QuarantineReason, Seq};
use oncebox_core::time::Timestamp;
use oncebox_core::{Fingerprint, OrderKey, Result};

use super::super::{Offered, RareCase, decode_handlers, encode_handlers, known_for, missing, order_of};
use super::driver::{SqlValue, TxConnection};
use crate::db::{Db, Released, TouchedQueues, lane, millis};

/// Handles rare cases. The caller must offer a case without an answer again.
pub(super) async fn handle(
    db: &Db,
    tx: &mut impl TxConnection,
    offers: &[Offered],
    rare_cases: &[(usize, RareCase)],
) -> Result<(Vec<Option<Accepted>>, Released)> {
    let (mut lines, mut places) = (TouchedQueues::default(), HashMap::new());
    for (index, _) in rare_cases.iter().filter(|(_, case)| matches!(case, RareCase::AddHandlers)) {
        let place = stored_order(db, tx, &offers[*index]).await?;
        if let Some((seq, Some(order))) = &place {
            for handler in offers[*index].keep_order() {
                lines.add(lane(*seq), handler, order.as_bytes().to_vec());
            }
        }
        places.insert(*index, place);
    }
    if !lines.is_empty() {
        let locks = lines.locks();
        tx.rows(&db.sql.order_lock, vec![SqlValue::Int4(db.lock_class), SqlValue::Int4s(locks)]).await?;
    }
    let mut answers = vec![None; rare_cases.len()];
    let mut quarantined = Vec::new();
    let mut order: Vec<usize> = (0..rare_cases.len()).collect();
    // Every statement locks known keys in the order of their numbers.
    let place = |index: usize| places.get(&index).copied().flatten();
    order.sort_by_key(|at| (place(rare_cases[*at].0).map(|(seq, _)| seq), *at));
    for at in order {
        let (index, rare_case) = rare_cases[at];
        let offer = &offers[index];
        answers[at] = match (rare_case, place(index)) {
            (RareCase::Quarantine(reason, seq), _) => {
                quarantined.push((offer, reason));
                Some(seq.map_or(Accepted::Stale, Accepted::Conflict))
            }
            (RareCase::AddHandlers, Some((seq, order))) => {
                let added = add_handlers(db, tx, offer, seq, order).await?;
                if matches!(added, Some(Accepted::Stale)) {
                    quarantined.push((offer, QuarantineReason::Stale));
                }
                added
            }
            (RareCase::AddHandlers, None) => None,
        };
    }
    quarantined.sort_by_key(|(offer, _)| (*offer.new.key.as_bytes(), *offer.new.fingerprint.as_bytes()));
    for (offer, reason) in quarantined {
        quarantine(db, tx, offer, reason).await?;
    }
    let mut released = Vec::new();
    if !lines.is_empty() {
        tx.rows(&db.sql.order_wait_turn, lines.values().into()).await?;
        let mut values = vec![SqlValue::Int8(db.now())];
        values.extend(lines.values());
        for row in tx.rows(&db.sql.order_release, values).await? {
            released.push(((row.get(0)?, row.get(1)?), row.get(2)?));
        }
    }
    Ok((answers, Released::new(released)))
}

async fn quarantine(
    db: &Db,
    tx: &mut impl TxConnection,
    offer: &Offered,
    reason: QuarantineReason,
) -> Result<()> {
    let mut values = vec![
        SqlValue::Int8(db.now()),
        SqlValue::Int2(offer.inbox),
        SqlValue::Text(Some(reason.as_str().to_owned())),
        digest(offer),
        SqlValue::Bytea(Some(offer.new.fingerprint.as_bytes().to_vec())),
    ];
    values.extend(message(offer));
    values
        .extend([SqlValue::Int2(offer.lane), SqlValue::Bytea(Some(Fingerprint::ERASED.as_bytes().to_vec()))]);
    tx.rows(&db.sql.accept_quarantine, values).await.map(drop)
}

/// Returns the number of a known message, and its order key.
async fn stored_order(
    db: &Db,
    tx: &mut impl TxConnection,
    offer: &Offered,
) -> Result<Option<(Seq, Option<OrderKey>)>> {
    let rows = tx.rows(&db.sql.accept_stored_order, vec![SqlValue::Int2(offer.lane), digest(offer)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let seq = Seq(row.get(0)?);
    let order = match row.get::<Option<String>>(1)? {
        Some(source) => {
            order_of(&offer.new.inbox, source, row.get(2)?, row.get::<Option<String>>(3)?.as_deref())
        }
        // The message is deleted, and this one takes its place, in its lane.
        None => offer.new.order.filter(|_| lane(seq) == offer.home),
    };
    Ok(Some((seq, order)))
}

/// Adds entries for handlers that a known message has none for. Returns `None` if the sweep has deleted the message.
async fn add_handlers(
    db: &Db,
    tx: &mut impl TxConnection,
    offer: &Offered,
    seq: Seq,
    order: Option<OrderKey>,
) -> Result<Option<Accepted>> {
    let known = vec![
        SqlValue::Int2(offer.lane),
        digest(offer),
        SqlValue::Int8(db.now()),
        SqlValue::Int8(Some(seq.0)),
    ];
    let rows = tx.rows(&db.sql.accept_known, known).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (age, fingerprint): (i64, Vec<u8>) = (row.get(1)?, row.get(2)?);
    if fingerprint == Fingerprint::ERASED.as_bytes() {
        // The content is erased, so there is nothing to give to another handler.
        return Ok(Some(Accepted::Duplicate(known_for(seq, age))));
    }
    let mut handlers = decode_handlers(&row.get::<Vec<u8>>(0)?);
    let mut routes = Vec::new();
    for ids in missing(offer, &handlers) {
        // Another process may have linked these handlers with others since this process read them.
        let mut linked = false;
        for row in tx.rows(&db.sql.names_group, vec![SqlValue::Int2s(ids.to_vec())]).await? {
            linked |= handlers.contains(&row.get::<i16>(0)?);
        }
        if !linked {
            routes.push(ids);
        }
    }
    if routes.is_empty() {
        let varied = fingerprint != offer.new.fingerprint.as_bytes();
        return Ok(Some(Accepted::Duplicate(known_for(seq, age).varied(varied))));
    }
    // The message was delivered again for other handlers after one of these had forgotten it.
    if let Some(time) = offer.new.doubtful_since() {
        let rows = tx.rows(&db.sql.accept_forgotten, vec![SqlValue::Int2s(routes.concat())]).await?;
        let forgotten: Option<i64> = rows.first().map_or(Ok(None), |row| row.get(0))?;
        if forgotten.is_some_and(|forgotten| time.as_millis() <= forgotten) {
            return Ok(Some(Accepted::Stale));
        }
    }
    let added: Vec<i16> = routes.iter().filter_map(|ids| ids.first().copied()).collect();
    handlers.extend(&added);
    handlers.sort_unstable();
    let count = added.len();
    let mut again = vec![SqlValue::Int8(Some(seq.0)), SqlValue::Int2(offer.inbox), digest(offer)];
    again.extend(message(offer));
    again.push(SqlValue::Int2(offer.lane));
    tx.rows(&db.sql.accept_message_again, again).await?;
    let order = order.map(|order| order.as_bytes().to_vec());
    for (added, order) in offer.split_by_order(added, order) {
        let add = vec![
            SqlValue::Int8(db.now()),
            SqlValue::Int2(offer.lane),
            digest(offer),
            SqlValue::Int8(Some(seq.0)),
            SqlValue::Bytea(Some(encode_handlers(&handlers))),
            SqlValue::Int2s(added),
            SqlValue::Bytea(order),
            SqlValue::Int8(Some(millis(offer.new.delay))),
        ];
        tx.rows(&db.sql.accept_add_handlers, add).await?;
    }
    Ok(Some(Accepted::HandlersAdded(seq, count)))
}

fn digest(offer: &Offered) -> SqlValue {
    SqlValue::Bytea(Some(offer.new.key.as_bytes().to_vec()))
}

/// Returns time, source, id, type, ordering key, headers, payload and tenant.
fn message(offer: &Offered) -> [SqlValue; 8] {
    let message = &offer.new.message;
    [
        SqlValue::Int8(message.time().map(Timestamp::as_millis)),
        SqlValue::Text(Some(message.source().to_owned())),
        SqlValue::Bytea(Some(message.id().to_vec())),
        SqlValue::Text(Some(message.message_type().to_owned())),
        SqlValue::Bytea(message.ordering_key().map(<[u8]>::to_vec)),
        SqlValue::Bytea(Some(message.headers().encode())),
        SqlValue::Bytea(Some(message.payload().to_vec())),
        SqlValue::Text(message.tenant().map(str::to_owned)),
    ]
}
