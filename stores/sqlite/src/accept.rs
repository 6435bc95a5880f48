//! Accept: stores each message once, with one entry per handler. Tests: `tests/input.rs`.

use oncebox_core::store::{Accepted, NewMessage, QuarantineReason, Seq};
use oncebox_core::time::Timestamp;
use oncebox_core::{Error, ErrorKind, Fingerprint, InboxName, Message, OrderKey, Result};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::entry::Pending;
use crate::error::store_error;
use crate::sql::SQL;
use crate::writer::WriteTx;

/// Maximum bytes that are kept free in a limited file. Running work needs little room, and a finished message takes
/// about as much as it took while it was pending.
const MAX_RESERVED: u64 = 16 * 1024 * 1024;

pub(crate) fn accept(work: &mut WriteTx<'_>, batch: &[NewMessage]) -> Result<Vec<Accepted>> {
    batch.iter().map(|message| accept_one(work, message)).collect()
}

fn accept_one(work: &mut WriteTx<'_>, new: &NewMessage) -> Result<Accepted> {
    let inbox = work.names.inbox(work.connection, &new.inbox)?;
    if let Some(seq) = work.tail.find(work.connection, &new.key)?
        && let Some(known) = known(work, seq)?
    {
        return repeat(work, inbox.id, new, seq, &known);
    }
    check_room(work)?;
    let mut handlers = Vec::with_capacity(new.routes.len());
    let mut orders = Vec::with_capacity(new.routes.len());
    let mut forgotten = if new.routes.is_empty() { Some(inbox.watermark) } else { None };
    for route in new.routes.iter() {
        let ids = work.names.link(work.connection, inbox.id, route)?;
        forgotten = forgotten.max(work.names.watermark(&ids));
        if !handlers.contains(&ids[0]) {
            handlers.push(ids[0]);
            orders.push(route.order_of(new.order));
        }
    }
    if is_stale(new, forgotten) {
        quarantine(work, inbox.id, new, QuarantineReason::Stale)?;
        return Ok(Accepted::Stale);
    }
    let seq = work.next_seq();
    insert_message(work, inbox.id, new, seq, &handlers)?;
    for (handler, order) in handlers.into_iter().zip(orders) {
        insert_entry(work, handler, seq, order, work.now.after(new.delay))?;
    }
    work.tail.add(&new.key, seq);
    Ok(Accepted::First(Seq(seq)))
}

/// Returns true if the message may have been swept. A message as old as the watermark may be the swept one itself.
fn is_stale(new: &NewMessage, forgotten: Option<Timestamp>) -> bool {
    new.doubtful_since().zip(forgotten).is_some_and(|(time, mark)| time <= mark)
}

/// Refuses new messages a little before the file is full. Without room for claims and outcomes, no stored message could
/// be handled, and the sweep would never free room.
fn check_room(work: &WriteTx<'_>) -> Result<()> {
    let Some(max) = work.max_bytes else { return Ok(()) };
    let pragma = |name| -> Result<u64> {
        let value = work.connection.pragma_query_value(None, name, |row| row.get(0).map(i64::unsigned_abs));
        value.map_err(store_error)
    };
    let used = pragma("page_count")?.saturating_sub(pragma("freelist_count")?) * pragma("page_size")?;
    if used > max - (max / 8).min(MAX_RESERVED) {
        let what = format!("the SQLite file holds {used} bytes, and may grow to {max}");
        return Err(Error::new(ErrorKind::Full, what));
    }
    Ok(())
}

/// Stored fingerprint, handlers and receive time of an earlier message.
struct AcceptedBefore {
    fingerprint: Fingerprint,
    handlers: Vec<i64>,
    received_at: Timestamp,
}

/// Returns `None` if the message was swept. Then its key is free again.
fn known(work: &WriteTx<'_>, seq: i64) -> Result<Option<AcceptedBefore>> {
    let mut statement = work.statement(SQL.accept_known)?;
    let row: Option<([u8; 16], Vec<u8>, i64)> = statement
        .query_row([seq], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()
        .map_err(store_error)?;
    Ok(row.map(|(fingerprint, handlers, received_at)| AcceptedBefore {
        fingerprint: Fingerprint::from_bytes(fingerprint),
        handlers: decode_handlers(&handlers),
        received_at: Timestamp::from_millis(received_at),
    }))
}

fn repeat(
    work: &mut WriteTx<'_>,
    inbox: i64,
    new: &NewMessage,
    seq: i64,
    known: &AcceptedBefore,
) -> Result<Accepted> {
    if known.fingerprint.is_erased() {
        // The content is erased, so there is nothing to give to another handler or to compare with.
        let age = work.now.since(known.received_at);
        return Ok(Accepted::Duplicate(oncebox_core::store::KnownMessage::new(Seq(seq), age)));
    }
    if new.conflicts_with(&known.fingerprint) {
        quarantine(work, inbox, new, QuarantineReason::Conflict)?;
        return Ok(Accepted::Conflict(Seq(seq)));
    }
    let (mut handlers, mut routes) = (known.handlers.clone(), Vec::new());
    for route in new.routes.iter() {
        let names = work.names.link(work.connection, inbox, route)?;
        if !names.iter().any(|handler| handlers.contains(handler)) {
            // The message was delivered again for other handlers after this one had forgotten it.
            if is_stale(new, work.names.watermark(&names)) {
                quarantine(work, inbox, new, QuarantineReason::Stale)?;
                return Ok(Accepted::Stale);
            }
            handlers.push(names[0]);
            routes.push(route);
        }
    }
    let added = handlers.len() - known.handlers.len();
    if added == 0 {
        let age = work.now.since(known.received_at);
        let varied = known.fingerprint != new.fingerprint;
        return Ok(Accepted::Duplicate(oncebox_core::store::KnownMessage::new(Seq(seq), age).varied(varied)));
    }
    let order = stored_order(work, &new.inbox, seq)?;
    for (handler, route) in handlers[known.handlers.len()..].iter().zip(routes) {
        insert_entry(work, *handler, seq, route.order_of(order), work.now.after(new.delay))?;
    }
    set_handlers(work, seq, &handlers)?;
    Ok(Accepted::HandlersAdded(Seq(seq), added))
}

/// Stores the handlers that a message has entries for.
pub(crate) fn set_handlers(work: &WriteTx<'_>, seq: i64, handlers: &[i64]) -> Result<()> {
    work.statement(SQL.accept_add_handlers)?
        .execute(params![seq, encode_handlers(handlers)])
        .map_err(store_error)?;
    Ok(())
}

/// Returns the order key of a message's first delivery.
pub(crate) fn stored_order(work: &WriteTx<'_>, inbox: &InboxName, seq: i64) -> Result<Option<OrderKey>> {
    let (tenant, source, key): (Option<String>, String, Option<Vec<u8>>) = work
        .statement(SQL.accept_order)?
        .query_row([seq], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .map_err(store_error)?;
    let mut message = Message::new("", "", "").with_source(source);
    if let Some(tenant) = tenant {
        message = message.with_tenant(tenant);
    }
    Ok(key.and_then(|key| OrderKey::of(inbox, &message.with_ordering_key(key))))
}

fn insert_message(
    work: &WriteTx<'_>,
    inbox: i64,
    new: &NewMessage,
    seq: i64,
    handlers: &[i64],
) -> Result<()> {
    let message = &new.message;
    work.statement(SQL.accept_message)?
        .execute(params![
            seq,
            inbox,
            &new.key.as_bytes()[..],
            &new.fingerprint.as_bytes()[..],
            encode_handlers(handlers),
            work.now.as_millis(),
            message.time().map(Timestamp::as_millis),
            message.tenant(),
            message.source(),
            message.id(),
            message.message_type(),
            message.ordering_key(),
            message.headers().encode(),
            &message.payload()[..],
        ])
        .map_err(store_error)?;
    Ok(())
}

/// Adds an entry. Most messages have no order, for which there is a short path.
pub(crate) fn insert_entry(
    work: &mut WriteTx<'_>,
    handler: i64,
    seq: i64,
    order: Option<OrderKey>,
    due: Timestamp,
) -> Result<()> {
    *work.wake = true;
    if order.is_some() {
        return Pending::fresh(handler, seq, (due, work.now), order).insert(work.connection);
    }
    work.statement(SQL.accept_entry)?.execute(params![handler, due.as_millis(), seq]).map_err(store_error)?;
    Ok(())
}

fn quarantine(work: &WriteTx<'_>, inbox: i64, new: &NewMessage, reason: QuarantineReason) -> Result<()> {
    insert_quarantined(work.connection, inbox, new, reason, work.now)
}

/// Quarantines a message, on any connection.
pub(crate) fn insert_quarantined(
    connection: &Connection,
    inbox: i64,
    new: &NewMessage,
    reason: QuarantineReason,
    now: Timestamp,
) -> Result<()> {
    let message = &new.message;
    connection
        .prepare_cached(SQL.accept_quarantine)
        .map_err(store_error)?
        .execute(params![
            inbox,
            &new.key.as_bytes()[..],
            &new.fingerprint.as_bytes()[..],
            reason.as_str(),
            now.as_millis(),
            message.time().map(Timestamp::as_millis),
            message.tenant(),
            message.source(),
            message.id(),
            message.message_type(),
            message.ordering_key(),
            message.headers().encode(),
            &message.payload()[..],
        ])
        .map_err(store_error)?;
    Ok(())
}

/// Encodes handler ids in four bytes each. Ids count up from 1, one per registered name.
fn encode_handlers(handlers: &[i64]) -> Vec<u8> {
    handlers.iter().flat_map(|id| u32::try_from(*id).unwrap_or(u32::MAX).to_le_bytes()).collect()
}

pub(crate) fn decode_handlers(bytes: &[u8]) -> Vec<i64> {
    bytes.as_chunks::<4>().0.iter().map(|id| i64::from(u32::from_le_bytes(*id))).collect()
}
