//! Operator queries and actions on entries. Tests: `tests/operations.rs`, the testkit's conformance suite.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::state::{InLine, Operation, Status, operate as decide};
use oncebox_core::store::{
    BlockedKey, BlockedParams, EntryCursor, EntryFilter, EntryPage, EntryView, HandlerCount, InboxCounts,
    MessageLabel, MessageView, OrderQueue, PausedKey, QuarantineFilter, QuarantineId, QuarantinePage,
    QuarantineReason, Quarantined, QuarantinedView, Seq, content_erased,
};
use oncebox_core::time::Timestamp;
use oncebox_core::{Error, ErrorKind, Fingerprint, HandlerKey, InboxName, Key, Message, OrderKey, Result};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::entry::Pending;
use crate::error::{corrupt, store_error};
use crate::names::NameMap;
use crate::order::{self, order_key};
use crate::row;
use crate::sql::SQL;
use crate::writer::WriteTx;

pub(crate) fn count(connection: &Connection, names: &NameMap, inbox: &InboxName) -> Result<InboxCounts> {
    let mut counts = InboxCounts::default();
    let Some(inbox) = names.known_inbox(inbox) else { return Ok(counts) };
    let mut sums: BTreeMap<(HandlerKey, Status), i64> = BTreeMap::new();
    let by_handler = [
        (SQL.admin_count_pending, Some(Status::Pending), 1),
        (SQL.admin_count_running, Some(Status::Running), 1),
        (SQL.admin_count_poisoned, Some(Status::Poisoned), 1),
        (SQL.admin_count_finished, None, 1),
        (SQL.admin_count_replayed, None, -1),
    ];
    for (sql, status, sign) in by_handler {
        let mut statement = connection.prepare_cached(sql).map_err(store_error)?;
        let mut rows = statement.query([]).map_err(store_error)?;
        while let Some(row) = rows.next().map_err(store_error)? {
            let handler = names.by_id(row.get(0).map_err(store_error)?)?;
            if handler.inbox != inbox.id {
                continue;
            }
            let status = match status {
                Some(status) => status,
                None => status_of(&row.get::<_, String>(1).map_err(store_error)?)?,
            };
            let count: i64 = row.get(row.as_ref().column_count() - 1).map_err(store_error)?;
            *sums.entry((handler.key.clone(), status)).or_default() += sign * count;
        }
    }
    let counted = sums.into_iter().filter(|(_, count)| *count > 0);
    counts.entries = counted
        .map(|((handler, status), count)| HandlerCount { handler, status, count: count.unsigned_abs() })
        .collect();
    // All, and a part of them.
    let total = |sql| -> Result<(u64, u64)> {
        let (all, some): (i64, i64) = connection
            .prepare_cached(sql)
            .map_err(store_error)?
            .query_row([inbox.id], |row| Ok((row.get(0)?, row.get(1)?)))
            .map_err(store_error)?;
        Ok((all.unsigned_abs(), some.unsigned_abs()))
    };
    (counts.messages, counts.unrouted) = total(SQL.admin_count_messages)?;
    (counts.quarantined, counts.stale) = total(SQL.admin_count_quarantine)?;
    counts.conflicts = counts.quarantined - counts.stale;
    counts.paused = names.paused(inbox.id);
    counts.paused_keys = paused_keys(connection, names, inbox.id)?;
    Ok(counts)
}

/// Counts the messages and entries of one tenant.
pub(crate) fn count_tenant(
    connection: &Connection,
    names: &NameMap,
    inbox: &InboxName,
    tenant: &str,
) -> Result<InboxCounts> {
    let mut counts = InboxCounts::default();
    let Some(inbox) = names.known_inbox(inbox) else { return Ok(counts) };
    let mut statement = connection.prepare_cached(SQL.admin_count_tenant).map_err(store_error)?;
    let mut rows = statement.query(params![inbox.id, tenant]).map_err(store_error)?;
    while let Some(row) = rows.next().map_err(store_error)? {
        let handler = names.by_id(row.get(0).map_err(store_error)?)?.key.clone();
        let status = status_of(&row.get::<_, String>(1).map_err(store_error)?)?;
        let count: i64 = row.get(2).map_err(store_error)?;
        counts.entries.push(HandlerCount { handler, status, count: count.unsigned_abs() });
    }
    counts.entries.sort_by(|a, b| (&a.handler, a.status).cmp(&(&b.handler, b.status)));
    let totals: [i64; 4] = connection
        .prepare_cached(SQL.admin_totals_tenant)
        .map_err(store_error)?
        .query_row(params![inbox.id, tenant], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?]))
        .map_err(store_error)?;
    [counts.messages, counts.unrouted, counts.quarantined, counts.stale] = totals.map(i64::unsigned_abs);
    counts.conflicts = counts.quarantined - counts.stale;
    counts.paused = names.paused(inbox.id);
    counts.paused_keys = paused_keys(connection, names, inbox.id)?;
    counts.paused_keys.retain(|key| key.line.tenant.as_deref() == Some(tenant));
    Ok(counts)
}

/// Returns the ordering keys of an inbox that an operator paused.
fn paused_keys(connection: &Connection, names: &NameMap, inbox: i64) -> Result<Vec<PausedKey>> {
    let rows: Vec<(i64, String)> = connection
        .prepare_cached(SQL.admin_paused_keys)
        .and_then(|mut look| look.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect())
        .map_err(store_error)?;
    let mut keys = Vec::new();
    for (handler, line) in rows {
        let handler = names.by_id(handler)?;
        let line =
            OrderQueue::decode(&line).ok_or_else(|| corrupt("a paused ordering key cannot be read"))?;
        if handler.inbox == inbox {
            keys.push(PausedKey { handler: handler.key.clone(), line });
        }
    }
    keys.sort();
    Ok(keys)
}

pub(crate) fn status_of(word: &str) -> Result<Status> {
    let known = Status::ALL.into_iter().find(|status| status.as_str() == word);
    known.ok_or_else(|| corrupt("a stored outcome has an unknown status"))
}

pub(crate) fn list(connection: &Connection, names: &NameMap, filter: &EntryFilter) -> Result<EntryPage> {
    let Some(inbox) = names.known_inbox(&filter.inbox) else { return Ok(EntryPage::default()) };
    let filter = &filter.named(|key| names.name_of(inbox.id, key));
    let examined = i64::try_from(EntryFilter::EXAMINED).unwrap_or(i64::MAX);
    let wanted: Vec<&str> =
        Status::ALL.into_iter().filter(|status| filter.wants(*status)).map(Status::as_str).collect();
    let (after_seq, after_key) =
        filter.after.as_ref().map_or((0, ""), |after| (after.seq().0, after.handler().as_str()));
    let mut statement = connection.prepare_cached(SQL.admin_list).map_err(store_error)?;
    let found = statement
        .query_map(params![after_seq, after_key, format!("{wanted:?}"), examined], |row| {
            Ok(listed(row, names, inbox.id))
        })
        .and_then(Iterator::collect::<rusqlite::Result<Vec<_>>>)
        .map_err(store_error)?;
    let more = found.len() == EntryFilter::EXAMINED;
    filter.page(found, more)
}

/// Reads a row of a list: its position, and its entry. No entry if it belongs to another inbox or was replayed.
fn listed(row: &Row<'_>, names: &NameMap, inbox: i64) -> Result<(EntryCursor, Option<EntryView>)> {
    let handler = names.by_id(row.get(1).map_err(store_error)?)?;
    let cursor = EntryCursor::new(Seq(row.get(0).map_err(store_error)?), handler.key.clone());
    let gone = row.get_ref(10).map_err(store_error)? == rusqlite::types::ValueRef::Null;
    if row.get(17).map_err(store_error)? || handler.inbox != inbox {
        return Ok((cursor, None));
    }
    let key = row::key_of(row, 10, cursor.seq().0).map_err(store_error)?;
    let entry = row::entry(row, handler, key)?;
    if gone && matches!(entry.status, Status::Completed | Status::Discarded) {
        return Ok((cursor, None));
    }
    // List a damaged message without its label: the operator searches for the damage.
    let label = label(row, 13).ok().filter(|_| !is_erased(row, 18));
    let received_at = row.get::<_, Option<i64>>(11).map_err(store_error)?.unwrap_or_default();
    let received_at = Timestamp::from_millis(received_at);
    let tenant = row.get::<_, Option<String>>(12).ok().flatten().map(Into::into);
    Ok((cursor, Some(entry.of_message(received_at, tenant, label))))
}

/// Returns true if the fingerprint is that of erased content.
fn is_erased(row: &Row<'_>, column: usize) -> bool {
    row.get(column).is_ok_and(|bytes: [u8; 16]| Fingerprint::from_bytes(bytes).is_erased())
}

/// Reads the label in the columns from `first` on: source, id, type, ordering key.
fn label(row: &Row<'_>, first: usize) -> rusqlite::Result<MessageLabel> {
    let ordering_key = row.get::<_, Option<Vec<u8>>>(first + 3)?.map(Into::into);
    let (source, kind): (String, String) = (row.get(first)?, row.get(first + 2)?);
    Ok(MessageLabel::new(source, row.get::<_, Vec<u8>>(first + 1)?, kind, ordering_key))
}

pub(crate) fn blocked(
    connection: &Connection,
    names: &NameMap,
    params: &BlockedParams,
) -> Result<Vec<BlockedKey>> {
    let Some(inbox) = names.known_inbox(&params.inbox) else { return Ok(Vec::new()) };
    let limit = i64::try_from(params.limit).unwrap_or(i64::MAX);
    let prepare = |sql| connection.prepare_cached(sql).map_err(store_error);
    let mut heads = prepare(SQL.admin_blocked)?;
    let mut behind = prepare(SQL.admin_behind)?;
    let mut rows = heads.query(params![inbox.id, limit, params.tenant.as_deref()]).map_err(store_error)?;
    let mut blocked = Vec::new();
    while let Some(row) = rows.next().map_err(store_error)? {
        let handler = names.by_id(row.get(1).map_err(store_error)?)?.key.clone();
        let mut read = || -> rusqlite::Result<BlockedKey> {
            let (seq, since) = (Seq(row.get(0)?), Timestamp::from_millis(row.get(2)?));
            let mut key = BlockedKey::new(handler.clone(), seq, row::key_of(row, 5, seq.0)?, since);
            key.parks = row.get(3)?;
            key.ordering_key = row.get::<_, Option<Vec<u8>>>(6)?.unwrap_or_default();
            let line = params![row.get::<_, i64>(1)?, row.get::<_, Vec<u8>>(4)?, seq.0];
            let (count, oldest): (i64, Option<i64>) =
                behind.query_row(line, |row| Ok((row.get(0)?, row.get(1)?)))?;
            (key.waiting, key.oldest) = (count.unsigned_abs(), oldest.map(Timestamp::from_millis));
            Ok(key)
        };
        blocked.push(read().map_err(store_error)?);
    }
    Ok(blocked)
}

pub(crate) fn show(work: &WriteTx<'_>, inbox: &InboxName, key: &Key) -> Result<Option<MessageView>> {
    let Some(inbox) = work.names.known_inbox(inbox) else { return Ok(None) };
    let mut view = MessageView::new(*key);
    if let Some(StoredMessage { seq, received_at, message, tenant, erased }) = stored(work, inbox.id, key)? {
        view.entries = entries(work, seq.0, key)?;
        (view.tenant, view.erased) = (tenant, erased);
        match message {
            _ if erased => {
                let tenant = || view.tenant.clone();
                let entries = std::mem::take(&mut view.entries).into_iter();
                view.entries = entries.map(|entry| entry.of_message(received_at, tenant(), None)).collect();
            }
            Ok(message) => {
                let label = |entry: EntryView| entry.labelled(received_at, &message);
                view.entries = std::mem::take(&mut view.entries).into_iter().map(label).collect();
                view.stored = Some((seq, received_at, message));
            }
            // Show the rest.
            Err(error) => tracing::error!(seq = seq.0, %error, "a stored message is damaged"),
        }
    }
    let mut statement = work.statement(SQL.admin_show_quarantine)?;
    let max = i64::try_from(MessageView::MAX_QUARANTINED).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![&key.as_bytes()[..], inbox.id, max]).map_err(store_error)?;
    while let Some(row) = rows.next().map_err(store_error)? {
        let reason = reason_of(&row.get::<_, String>(0).map_err(store_error)?)?;
        let received_at = Timestamp::from_millis(row.get(1).map_err(store_error)?);
        view.quarantined.push(Quarantined { reason, received_at, message: row::message(row, 2)? });
    }
    if let (None, Some(item)) = (&view.tenant, view.quarantined.first()) {
        view.tenant = item.message.tenant().map(Into::into);
    }
    let known =
        view.stored.is_some() || view.erased || !view.entries.is_empty() || !view.quarantined.is_empty();
    Ok(known.then_some(view))
}

fn reason_of(word: &str) -> Result<QuarantineReason> {
    let known = QuarantineReason::ALL.into_iter().find(|reason| reason.as_str() == word);
    known.ok_or_else(|| corrupt("a message is quarantined for an unknown reason"))
}

pub(crate) fn quarantined(
    connection: &Connection,
    names: &NameMap,
    filter: &QuarantineFilter,
) -> Result<QuarantinePage> {
    let mut page = QuarantinePage::default();
    let Some(inbox) = names.known_inbox(&filter.inbox) else { return Ok(page) };
    let mut statement = connection.prepare_cached(SQL.admin_list_quarantine).map_err(store_error)?;
    let reason = filter.reason.map(QuarantineReason::as_str);
    let after = filter.after.map_or(0, |id| id.0);
    // One extra row shows that there is another page.
    let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX).saturating_add(1);
    let values = params![inbox.id, reason, after, limit, filter.tenant.as_deref()];
    let mut rows = statement.query(values).map_err(store_error)?;
    while let Some(row) = rows.next().map_err(store_error)? {
        if page.quarantined.len() == filter.limit {
            page.next = page.quarantined.last().map(|last| last.id);
            break;
        }
        let id = QuarantineId(row.get(0).map_err(store_error)?);
        let reason = reason_of(&row.get::<_, String>(1).map_err(store_error)?)?;
        let received_at = Timestamp::from_millis(row.get(2).map_err(store_error)?);
        let key = row::key(row, 3).map_err(store_error)?;
        let read = || -> rusqlite::Result<QuarantinedView> {
            let mut view = QuarantinedView::new(id, reason, key, received_at, label(row, 5)?);
            (view.tenant, view.payload_bytes) = (row.get(4)?, row.get::<_, i64>(9)?.unsigned_abs());
            Ok(view)
        };
        page.quarantined.push(read().map_err(store_error)?);
    }
    Ok(page)
}

/// A stored message.
pub(crate) struct StoredMessage {
    pub(crate) seq: Seq,
    pub(crate) received_at: Timestamp,
    /// The message, or the error if it is erased or unreadable.
    pub(crate) message: Result<Arc<Message>>,
    pub(crate) tenant: Option<Box<str>>,
    pub(crate) erased: bool,
}

pub(crate) fn stored(work: &WriteTx<'_>, inbox: i64, key: &Key) -> Result<Option<StoredMessage>> {
    let Some(seq) = work.tail.find(work.connection, key)?.or_else(|| row::lost_seq(key)) else {
        return Ok(None);
    };
    let mut statement = work.statement(SQL.admin_show_message)?;
    let mut rows = statement.query(params![seq, inbox]).map_err(store_error)?;
    let Some(row) = rows.next().map_err(store_error)? else {
        // A swept message has no entries.
        let mut entries = entries(work, seq, key)?.into_iter();
        let is_ours = |entry: EntryView| work.names.known_handler(inbox, &entry.handler).is_some();
        let lost = StoredMessage {
            seq: Seq(seq),
            received_at: Timestamp::from_millis(0),
            message: Err(corrupt("it is not there")),
            tenant: None,
            erased: false,
        };
        return Ok(entries.any(is_ours).then_some(lost));
    };
    let received_at = Timestamp::from_millis(row.get(1).map_err(store_error)?);
    let erased = is_erased(row, 10);
    let message = if erased { Err(content_erased(key)) } else { row::message(row, 2) };
    // Show the readable parts of a damaged row.
    let tenant = row.get::<_, Option<String>>(3).ok().flatten().map(Into::into);
    Ok(Some(StoredMessage { seq: Seq(seq), received_at, message, tenant, erased }))
}

pub(crate) fn entries(work: &WriteTx<'_>, seq: i64, key: &Key) -> Result<Vec<EntryView>> {
    let mut statement = work.statement(SQL.admin_show_entries)?;
    let mut rows = statement.query([seq]).map_err(store_error)?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next().map_err(store_error)? {
        let handler = work.names.by_id(row.get(1).map_err(store_error)?)?;
        entries.push(row::entry(row, handler, *key)?);
    }
    Ok(entries)
}

pub(crate) fn operate(
    work: &mut WriteTx<'_>,
    inbox: &InboxName,
    key: &Key,
    handler: &HandlerKey,
    operation: Operation,
) -> Result<EntryView> {
    let missing = || {
        Error::new(ErrorKind::NotFound, format!("no entry of handler {handler:?} is stored for key {key}"))
    };
    let inbox_id = work.names.known_inbox(inbox).ok_or_else(missing)?.id;
    let name = work.names.name_of(inbox_id, handler);
    let found = stored(work, inbox_id, key)?.ok_or_else(missing)?;
    let StoredMessage { seq, received_at, message, tenant, erased } = found;
    // Operators can act only on the latest generation.
    let current = entries(work, seq.0, key)?.into_iter().filter(|entry| entry.handler == name);
    let mut entry = current.max_by_key(|entry| entry.generation).ok_or_else(missing)?;
    let next = decide(entry.status, entry.in_line, operation)?;
    let handler_id = work.names.handler(work.connection, inbox_id, handler)?;
    let order = match (entry.status, operation) {
        (_, Operation::Unblock) => take(work, SQL.admin_unblock, seq, handler_id)?,
        (Status::Pending, _) => take(work, SQL.admin_remove_pending, seq, handler_id)?,
        (Status::Poisoned, _) => take(work, SQL.admin_remove_poisoned, seq, handler_id)?,
        _ => None,
    };
    if let Some(order) = order {
        order::OrderedEntries { connection: work.connection, handler: handler_id, order }.leave(seq.0)?;
    }
    if next == Status::Pending {
        entry.generation += u32::from(operation == Operation::Replay);
        let message = message.as_ref().map_err(Error::to_shared)?;
        // A finished entry gets the order key of its message.
        let unfinished = matches!(entry.status, Status::Pending | Status::Poisoned);
        let place = if unfinished { order } else { OrderKey::of(inbox, message) };
        pend(work, &entry, handler_id, place)?;
    } else if next == Status::Discarded {
        discard(work, &entry, handler_id)?;
    }
    if let Some(order) = order {
        let line = order::OrderedEntries { connection: work.connection, handler: handler_id, order };
        if entry.in_line == Some(InLine::Parks) {
            line.unpark()?;
        }
        line.release(work.now)?;
        *work.wake = true;
    }
    let changed = entries(work, seq.0, key)?.into_iter().filter(|entry| entry.handler == name);
    let changed = changed.max_by_key(|entry| entry.generation).ok_or_else(missing)?;
    if erased {
        return Ok(changed.of_message(received_at, tenant, None));
    }
    Ok(message.map_or_else(|_| changed.clone(), |message| changed.clone().labelled(received_at, &message)))
}

/// Runs a statement that removes an entry, or makes its line skip it. Returns its order key.
fn take(work: &WriteTx<'_>, sql: &'static str, seq: Seq, handler: i64) -> Result<Option<OrderKey>> {
    let order: Option<Option<Vec<u8>>> = work
        .statement(sql)?
        .query_row(params![seq.0, handler], |row| row.get(0))
        .optional()
        .map_err(store_error)?;
    order_key(order.flatten())
}

/// Makes an entry pending now.
fn pend(work: &mut WriteTx<'_>, entry: &EntryView, handler: i64, order: Option<OrderKey>) -> Result<()> {
    *work.wake = true;
    Pending {
        handler,
        seq: entry.seq.0,
        due: work.now,
        now: work.now,
        attempts: 0,
        crashes: 0,
        generation: entry.generation,
        token: 0,
        order,
        error: entry.error.as_ref().map(oncebox_core::state::ErrorText::as_str),
    }
    .insert(work.connection)
}

fn discard(work: &WriteTx<'_>, entry: &EntryView, handler: i64) -> Result<()> {
    work.statement(SQL.admin_add_outcome)?
        .execute(params![
            entry.seq.0,
            handler,
            entry.generation,
            Status::Discarded.as_str(),
            0,
            work.now.as_millis(),
            entry.attempts,
            entry.suspicion.stored(),
            entry.error.as_ref().map(oncebox_core::state::ErrorText::as_str),
        ])
        .map_err(store_error)?;
    Ok(())
}

/// Pauses or resumes a handler. Returns true if that changed its state.
pub(crate) fn set_paused(
    work: &mut WriteTx<'_>,
    inbox: &InboxName,
    handler: &HandlerKey,
    paused: bool,
) -> Result<bool> {
    let inbox = work.names.inbox(work.connection, inbox)?;
    let handler = work.names.handler(work.connection, inbox.id, handler)?;
    let changed = work.names.by_id(handler)?.paused != paused;
    work.names.set_paused(work.connection, handler, paused)?;
    *work.wake |= !paused;
    Ok(changed)
}

pub(crate) fn purge(work: &WriteTx<'_>, inbox: &InboxName, age: Duration, limit: usize) -> Result<usize> {
    let Some(inbox) = work.names.known_inbox(inbox) else { return Ok(0) };
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    work.statement(SQL.admin_purge_quarantine)?
        .execute(params![inbox.id, work.now.before(age).as_millis(), limit])
        .map_err(store_error)
}
