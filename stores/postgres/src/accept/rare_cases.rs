//! Rare cases of accept: quarantines a message, or adds entries to a known message. Tests: `tests/accept_races.rs`,
//! `tests/locks.rs`.

use std::collections::HashMap;

use oncebox_core::store::{Accepted, QuarantineReason, Seq};
use oncebox_core::{Fingerprint, InboxName, Message, OrderKey, Result};
use sqlx::Row as _;

use super::{AcceptRow, Offered, RareCase, decode_handlers, encode_handlers, known_for, missing};
use crate::db::{Db, Released, TouchedQueues, lane, millis};
use crate::error::unreadable;
use crate::row::get;
use crate::session::{PgSession, Query, Sessions, query};

/// Handles rare cases: quarantines messages, and adds entries to known messages.
pub(super) async fn handle_rare_cases(
    db: &Db,
    sessions: &Sessions,
    offers: &[Offered],
    rare_cases: &[(usize, RareCase)],
) -> Result<Vec<Option<Accepted>>> {
    // A transaction that quarantines a message waits for the holder of its key. A transaction that adds entries holds
    // keys. No transaction does both, because two of them could deadlock.
    let (quarantined, adds): (Vec<_>, Vec<_>) =
        (0..rare_cases.len()).partition(|at| matches!(rare_cases[*at].1, RareCase::Quarantine(..)));
    if !quarantined.is_empty() && !adds.is_empty() {
        let mut answers = vec![None; rare_cases.len()];
        for part in [quarantined, adds] {
            let chosen: Vec<(usize, RareCase)> = part.iter().map(|at| rare_cases[*at]).collect();
            let found = Box::pin(handle_rare_cases(db, sessions, offers, &chosen)).await?;
            for (at, answer) in part.into_iter().zip(found) {
                answers[at] = answer;
            }
        }
        return Ok(answers);
    }
    let mut session = sessions.transaction().await?;
    let (mut lines, mut places) = (TouchedQueues::default(), HashMap::new());
    for (index, rare_case) in rare_cases {
        if matches!(rare_case, RareCase::AddHandlers) {
            let place = stored_order(db, &mut session, &offers[*index]).await?;
            if let Some((seq, Some(order))) = &place {
                for handler in offers[*index].keep_order() {
                    lines.add(lane(*seq), handler, order.as_bytes().to_vec());
                }
            }
            places.insert(*index, place);
        }
    }
    if !lines.is_empty() {
        lines.lock(db, &mut session).await?;
    }
    let mut answers = vec![None; rare_cases.len()];
    let mut quarantined = Vec::new();
    let mut order: Vec<usize> = (0..rare_cases.len()).collect();
    // Every caller locks known keys in the order of their numbers.
    let place = |index: usize| places.get(&index).copied().flatten();
    order.sort_by_key(|at| (place(rare_cases[*at].0).map(|(seq, _)| seq), *at));
    for at in order {
        let (index, rare_case) = rare_cases[at];
        let offer = &offers[index];
        answers[at] = match rare_case {
            RareCase::Quarantine(reason, seq) => {
                quarantined.push((offer, reason));
                Some(seq.map_or(Accepted::Stale, Accepted::Conflict))
            }
            RareCase::AddHandlers => {
                let added = match place(index) {
                    Some((seq, order)) => add_handlers(db, &mut session, offer, seq, order).await?,
                    None => None,
                };
                if matches!(added, Some(Accepted::Stale)) {
                    quarantined.push((offer, QuarantineReason::Stale));
                }
                added
            }
        };
    }
    // Quarantine after all keys are locked, and in one order: other processes may quarantine the same messages.
    quarantined.sort_by_key(|(offer, _)| (*offer.new.key.as_bytes(), *offer.new.fingerprint.as_bytes()));
    for (offer, reason) in quarantined {
        quarantine(db, &mut session, offer, reason).await?;
    }
    let released =
        if lines.is_empty() { Released::default() } else { lines.rearrange(db, &mut session).await? };
    session.end().await?;
    released.notify(db);
    Ok(answers)
}

async fn quarantine(
    db: &Db,
    session: &mut PgSession,
    offer: &Offered,
    reason: QuarantineReason,
) -> Result<()> {
    let insert = query(&db.sql.accept_quarantine)
        .bind(db.now())
        .bind(offer.inbox)
        .bind(reason.as_str())
        .bind(offer.new.key.as_bytes().to_vec())
        .bind(offer.new.fingerprint.as_bytes().to_vec());
    let erased = Fingerprint::ERASED.as_bytes().to_vec();
    session.run(bind_message(insert, offer).bind(offer.lane).bind(erased)).await?;
    Ok(())
}

/// Returns the number of a known message, and the order key of its first delivery. Runs before the first lock.
async fn stored_order(
    db: &Db,
    session: &mut PgSession,
    offer: &Offered,
) -> Result<Option<(Seq, Option<OrderKey>)>> {
    let digest = offer.new.key.as_bytes().to_vec();
    let rows = session.rows(query(&db.sql.accept_stored_order).bind(offer.lane).bind(digest)).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let seq = Seq(get(row, 0)?);
    let order = match get::<Option<String>>(row, 1)? {
        Some(source) => order_of(&offer.new.inbox, source, get(row, 2)?, get(row, 3)?),
        // The message is deleted, and this one takes its place. A line is in the lane of its messages, so a message
        // that was stored in another lane had another order.
        None => offer.new.order.filter(|_| lane(seq) == offer.home),
    };
    Ok(Some((seq, order)))
}

/// Returns the order key of a stored message.
pub(crate) fn order_of(
    inbox: &InboxName,
    source: String,
    key: Option<Vec<u8>>,
    tenant: Option<&str>,
) -> Option<OrderKey> {
    let mut message = Message::new("", "", "").with_source(source);
    if let Some(tenant) = tenant {
        message = message.with_tenant(tenant);
    }
    OrderKey::of(inbox, &message.with_ordering_key(key?))
}

/// Returns these handlers and all handlers that are linked with one of them.
pub(crate) async fn group_of(db: &Db, session: &mut PgSession, handlers: &[i16]) -> Result<Vec<i16>> {
    let rows = session.rows(query(&db.sql.names_group).bind(handlers.to_vec())).await?;
    rows.iter().map(|row| get(row, 0)).collect()
}

/// Adds entries for handlers that a known message has none for. Returns `None` if the sweep has deleted the
/// message; the caller must still quarantine a stale message.
async fn add_handlers(
    db: &Db,
    session: &mut PgSession,
    offer: &Offered,
    seq: Seq,
    order: Option<OrderKey>,
) -> Result<Option<Accepted>> {
    let digest = offer.new.key.as_bytes().to_vec();
    let known = query(&db.sql.accept_known).bind(offer.lane).bind(digest.clone()).bind(db.now()).bind(seq.0);
    let rows = session.rows(known).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    if get::<&[u8]>(row, 2)? == Fingerprint::ERASED.as_bytes() {
        // The content is erased, so there is nothing to give to another handler.
        return Ok(Some(Accepted::Duplicate(known_for(seq, get(row, 1)?))));
    }
    let mut handlers = decode_handlers(get(row, 0)?);
    let mut routes = Vec::new();
    for ids in missing(offer, &handlers) {
        // Another process may have linked these handlers with others since this process read them.
        let group = group_of(db, session, ids).await?;
        if !group.iter().any(|id| handlers.contains(id)) {
            routes.push(ids);
        }
    }
    if routes.is_empty() {
        let varied = get::<Vec<u8>>(row, 2)? != offer.new.fingerprint.as_bytes();
        return Ok(Some(Accepted::Duplicate(known_for(seq, get(row, 1)?).varied(varied))));
    }
    // The message was delivered again for other handlers after one of these had forgotten it.
    if let Some(time) = offer.new.doubtful_since() {
        let forgotten = session.rows(query(&db.sql.accept_forgotten).bind(routes.concat())).await?;
        let forgotten: Option<i64> =
            forgotten.first().map_or(Ok(None), |row| row.try_get(0)).map_err(unreadable)?;
        if forgotten.is_some_and(|forgotten| time.as_millis() <= forgotten) {
            return Ok(Some(Accepted::Stale));
        }
    }
    let added: Vec<i16> = routes.iter().filter_map(|ids| ids.first().copied()).collect();
    handlers.extend(&added);
    handlers.sort_unstable();
    let count = added.len();
    let again = query(&db.sql.accept_message_again).bind(seq.0).bind(offer.inbox).bind(digest.clone());
    session.run(bind_message(again, offer).bind(offer.lane)).await?;
    let order = order.map(|order| order.as_bytes().to_vec());
    for (added, order) in offer.split_by_order(added, order) {
        let add = query(&db.sql.accept_add_handlers)
            .bind(db.now())
            .bind(offer.lane)
            .bind(digest.clone())
            .bind(seq.0)
            .bind(encode_handlers(&handlers))
            .bind(added)
            .bind(order)
            .bind(millis(offer.new.delay));
        session.run(add).await?;
    }
    Ok(Some(Accepted::HandlersAdded(seq, count)))
}

/// Adds the entries of new messages whose handlers ignore the ordering key.
pub(super) async fn add_unordered(
    db: &Db,
    session: &mut PgSession,
    offers: &[Offered],
    rows: &[AcceptRow],
) -> Result<()> {
    let (seqs, handlers, delays) = unordered_entries(offers, rows);
    if seqs.is_empty() {
        return Ok(());
    }
    let add = query(&db.sql.accept_unordered).bind(db.now()).bind(seqs).bind(handlers).bind(delays);
    session.run(add).await.map(drop)
}

/// Returns numbers, handlers and delays of the entries of new messages whose handlers ignore the ordering key.
pub(super) fn unordered_entries(offers: &[Offered], rows: &[AcceptRow]) -> (Vec<i64>, Vec<i16>, Vec<i64>) {
    let (mut seqs, mut handlers, mut delays) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows.iter().filter(|row| row.is_new) {
        let offer = usize::try_from(row.place).ok().and_then(|place| offers.get(place));
        let (Some(seq), Some(offer)) = (row.seq, offer) else { continue };
        for handler in offer.unordered() {
            seqs.push(seq);
            handlers.push(*handler);
            delays.push(millis(offer.new.delay));
        }
    }
    (seqs, handlers, delays)
}

/// Binds time, source, id, type, ordering key, headers, payload and tenant.
fn bind_message<'a>(query: Query<'a>, offer: &'a Offered) -> Query<'a> {
    let message = &offer.new.message;
    query
        .bind(message.time().map(oncebox_core::time::Timestamp::as_millis))
        .bind(message.source())
        .bind(message.id())
        .bind(message.message_type())
        .bind(message.ordering_key())
        .bind(message.headers().encode())
        .bind(&message.payload()[..])
        .bind(message.tenant())
}
