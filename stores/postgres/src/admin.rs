//! Operator queries and actions on entries. Tests: `tests/operations.rs`, the testkit's conformance suite.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::state::{ErrorText, InLine, Operation, Status, operate as decide};
use oncebox_core::store::{
    BlockedKey, BlockedParams, EntryCursor, EntryFilter, EntryPage, EntryView, HandlerCount, InboxCounts,
    MessageLabel, MessageView, OrderQueue, PausedKey, QuarantineFilter, QuarantineId, QuarantinePage,
    QuarantineReason, Quarantined, QuarantinedView, Seq, content_erased,
};
use oncebox_core::time::Timestamp;
use oncebox_core::{Error, ErrorKind, Fingerprint, HandlerKey, InboxName, Key, Message, OrderKey, Result};
use sqlx::postgres::PgRow;

use crate::db::{Db, Released, TouchedQueues, lane, millis};
use crate::error::corrupt;
use crate::names::CachedHandler;
use crate::row::{self, get};
use crate::session::{PgSession, query};

pub(crate) async fn count(db: &Db, inbox: &InboxName, tenant: Option<&str>) -> Result<InboxCounts> {
    let mut counts = InboxCounts::default();
    let Some(inbox) = db.known_inbox(inbox).await?.filter(|_| can_be_stored(tenant)) else {
        return Ok(counts);
    };
    let (entries, totals) = match tenant.map(str::to_owned) {
        None => (query(&db.sql.admin_count).bind(inbox), query(&db.sql.admin_totals).bind(inbox)),
        Some(tenant) => (
            query(&db.sql.admin_count_tenant).bind(inbox).bind(tenant.clone()),
            query(&db.sql.admin_totals_tenant).bind(inbox).bind(tenant),
        ),
    };
    let mut session = db.reads().await?;
    for row in session.rows(entries).await? {
        let (handler, status) = (handler_key(&row, 0)?, status_of(get(&row, 1)?)?);
        counts.entries.push(HandlerCount { handler, status, count: get::<i64>(&row, 2)?.unsigned_abs() });
    }
    if let Some(row) = session.rows(totals).await?.first() {
        let total = |column| -> Result<u64> { Ok(get::<i64>(row, column)?.unsigned_abs()) };
        (counts.messages, counts.unrouted) = (total(0)?, total(1)?);
        (counts.quarantined, counts.stale) = (total(2)?, total(3)?);
        counts.conflicts = counts.quarantined - counts.stale;
    }
    for row in session.rows(query(&db.sql.admin_paused).bind(inbox)).await? {
        counts.paused.push(handler_key(&row, 0)?);
    }
    for (key, _) in paused_keys(db, &mut session, inbox).await? {
        if tenant.is_none() || key.line.tenant.as_deref() == tenant {
            counts.paused_keys.push(key);
        }
    }
    session.end().await?;
    counts.paused_keys.sort();
    counts.entries.sort_by(|a, b| (&a.handler, a.status).cmp(&(&b.handler, b.status)));
    Ok(counts)
}

/// Returns the ordering keys of an inbox that an operator paused, with their order keys.
pub(crate) async fn paused_keys(
    db: &Db,
    session: &mut PgSession,
    inbox: i16,
) -> Result<Vec<(PausedKey, Vec<u8>)>> {
    let rows = session.rows(query(&db.sql.admin_paused_keys).bind(inbox).bind(db.all_lanes())).await?;
    let read = |row: &PgRow| {
        let line = OrderQueue::decode(get::<Option<&str>>(row, 1)?.unwrap_or_default());
        let line = line.ok_or_else(|| corrupt("a paused ordering key cannot be read"))?;
        Ok((PausedKey { handler: handler_key(row, 0)?, line }, get(row, 2)?))
    };
    rows.iter().map(read).collect()
}

/// Text columns refuse NUL, so no stored tenant has one.
fn can_be_stored(tenant: Option<&str>) -> bool {
    tenant.is_none_or(|tenant| !tenant.contains('\0'))
}

pub(crate) fn handler_key(row: &PgRow, column: usize) -> Result<HandlerKey> {
    HandlerKey::new(get::<String>(row, column)?)
}

pub(crate) fn status_of(word: &str) -> Result<Status> {
    let known = Status::ALL.into_iter().find(|status| status.as_str() == word);
    known.ok_or_else(|| corrupt("a stored outcome has an unknown status"))
}

pub(crate) async fn list(db: &Db, filter: &EntryFilter) -> Result<EntryPage> {
    let Some(inbox) = db.known_inbox(&filter.inbox).await? else { return Ok(EntryPage::default()) };
    let handlers = db.handlers_of(inbox).await?;
    let filter = &filter.named(|key| db.name_of(inbox, key));
    let (after_seq, after_key) =
        filter.after.as_ref().map_or((0, ""), |after| (after.seq().0, after.handler().as_str()));
    let wanted: Vec<&str> =
        Status::ALL.into_iter().filter(|status| filter.wants(*status)).map(Status::as_str).collect();
    let question = query(&db.sql.admin_list)
        .bind(after_seq)
        .bind(after_key.to_owned())
        .bind(i64::try_from(EntryFilter::EXAMINED).unwrap_or(i64::MAX))
        .bind(wanted)
        .bind(db.all_lanes())
        .bind(handlers);
    let mut session = db.reads().await?;
    let rows = session.rows(question).await?;
    session.end().await?;
    filter.page(rows.iter().map(|row| listed(row, inbox)), rows.len() == EntryFilter::EXAMINED)
}

/// Reads a row of a list: its position, and its entry. No entry if it belongs to another inbox, was replayed, or is
/// deleted.
fn listed(row: &PgRow, inbox: i16) -> Result<(EntryCursor, Option<EntryView>)> {
    let cursor = EntryCursor::new(Seq(get(row, 0)?), handler_key(row, 1)?);
    let gone = get::<Option<&[u8]>>(row, 10)?.is_none();
    if gone || get(row, 18)? || get::<i16>(row, 17)? != inbox {
        return Ok((cursor, None));
    }
    let entry = row::entry(row, 19, row::key(row, 10)?)?;
    let tenant = get::<Option<&str>>(row, 12)?.map(Into::into);
    let label = get::<Option<&str>>(row, 13)?.map(|_| label(row, 13)).transpose()?;
    Ok((cursor, Some(entry.of_message(Timestamp::from_millis(get(row, 11)?), tenant, label))))
}

/// Reads the label in the columns from `first` on: source, id, type, ordering key.
fn label(row: &PgRow, first: usize) -> Result<MessageLabel> {
    let ordering_key = get::<Option<&[u8]>>(row, first + 3)?.map(Into::into);
    let (source, kind): (&str, &str) = (get(row, first)?, get(row, first + 2)?);
    Ok(MessageLabel::new(source, get::<&[u8]>(row, first + 1)?, kind, ordering_key))
}

pub(crate) async fn blocked(db: &Db, params: &BlockedParams) -> Result<Vec<BlockedKey>> {
    let tenant = params.tenant.clone().map(String::from);
    let Some(inbox) = db.known_inbox(&params.inbox).await?.filter(|_| can_be_stored(tenant.as_deref()))
    else {
        return Ok(Vec::new());
    };
    let limit = i64::try_from(params.limit).unwrap_or(i64::MAX);
    let mut session = db.reads().await?;
    let rows = session.rows(query(&db.sql.admin_blocked).bind(inbox).bind(limit).bind(tenant)).await?;
    session.end().await?;
    let blocked = |row: &PgRow| {
        let since = Timestamp::from_millis(get(row, 2)?);
        let mut key = BlockedKey::new(handler_key(row, 1)?, Seq(get(row, 0)?), row::key(row, 4)?, since);
        key.parks = get(row, 3)?;
        key.ordering_key = get::<Option<Vec<u8>>>(row, 5)?.unwrap_or_default();
        key.waiting = get::<i64>(row, 6)?.unsigned_abs();
        key.oldest = get::<Option<i64>>(row, 7)?.map(Timestamp::from_millis);
        Ok(key)
    };
    rows.iter().map(blocked).collect()
}

pub(crate) async fn show(db: &Db, inbox: &InboxName, key: &Key) -> Result<Option<MessageView>> {
    let Some(inbox) = db.known_inbox(inbox).await? else { return Ok(None) };
    let handlers = db.handlers_of(inbox).await?;
    let mut view = MessageView::new(*key);
    let mut session = db.reads().await?;
    if let Some(found) = find(db, &mut session, inbox, key).await? {
        // Retention may delete a message before its key, or the message may be damaged. Show the rest.
        let message = unless_damaged(message(db, &mut session, found.seq).await)?;
        let message = message.unwrap_or_else(|error| {
            tracing::error!(seq = found.seq.0, %error, "a stored message is damaged");
            None
        });
        let entries = entries(db, &mut session, &handlers, found.seq, key).await?;
        view.entries = entries.into_iter().map(|entry| found.label(entry, message.as_deref())).collect();
        view.stored = message.map(|message| (found.seq, found.received_at, message));
        (view.tenant, view.erased) = (found.tenant, found.erased);
    }
    let max = i64::try_from(MessageView::MAX_QUARANTINED).unwrap_or(i64::MAX);
    let quarantined =
        query(&db.sql.admin_show_quarantine).bind(key.as_bytes().to_vec()).bind(inbox).bind(max);
    for row in session.rows(quarantined).await? {
        view.quarantined.push(Quarantined {
            reason: reason_of(get(&row, 0)?)?,
            received_at: Timestamp::from_millis(get(&row, 1)?),
            message: row::message(&row, 2)?,
        });
    }
    session.end().await?;
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

pub(crate) async fn quarantined(db: &Db, filter: &QuarantineFilter) -> Result<QuarantinePage> {
    let mut page = QuarantinePage::default();
    let tenant = filter.tenant.clone().map(String::from);
    let Some(inbox) = db.known_inbox(&filter.inbox).await?.filter(|_| can_be_stored(tenant.as_deref()))
    else {
        return Ok(page);
    };
    let question = query(&db.sql.admin_list_quarantine)
        .bind(inbox)
        .bind(filter.reason.map(QuarantineReason::as_str))
        .bind(filter.after.map_or(0, |id| id.0))
        // One extra row shows that there is another page.
        .bind(i64::try_from(filter.limit).unwrap_or(i64::MAX).saturating_add(1))
        .bind(tenant);
    let mut session = db.reads().await?;
    let rows = session.rows(question).await?;
    session.end().await?;
    for row in rows.iter().take(filter.limit) {
        let (id, reason) = (QuarantineId(get(row, 0)?), reason_of(get(row, 1)?)?);
        let received_at = Timestamp::from_millis(get(row, 2)?);
        let mut view = QuarantinedView::new(id, reason, row::key(row, 3)?, received_at, label(row, 5)?);
        view.tenant = get::<Option<&str>>(row, 4)?.map(Into::into);
        view.payload_bytes = get::<i32>(row, 9)?.unsigned_abs().into();
        page.quarantined.push(view);
    }
    if rows.len() > filter.limit {
        page.next = page.quarantined.last().map(|last| last.id);
    }
    Ok(page)
}

/// Turns the error of an unreadable message into a value, so that its entries are still shown. Returns other errors.
pub(crate) fn unless_damaged<T>(found: Result<T>) -> Result<Result<T>> {
    match found {
        Err(error) if error.kind() != ErrorKind::Corrupt => Err(error),
        found => Ok(found),
    }
}

/// Columns of a key's proof.
pub(crate) struct ProofRow {
    pub(crate) seq: Seq,
    received_at: Timestamp,
    tenant: Option<Box<str>>,
    erased: bool,
}

impl ProofRow {
    /// Adds the known parts of the message to an entry.
    fn label(&self, entry: EntryView, message: Option<&Message>) -> EntryView {
        entry.of_message(self.received_at, self.tenant.clone(), message.map(MessageLabel::of))
    }
}

pub(crate) async fn find(
    db: &Db,
    session: &mut PgSession,
    inbox: i16,
    key: &Key,
) -> Result<Option<ProofRow>> {
    let question = query(&db.sql.admin_find).bind(db.lane_of(key)).bind(key.as_bytes().to_vec()).bind(inbox);
    let rows = session.rows(question).await?;
    let found = |row: &PgRow| {
        let (seq, received_at) = (Seq(get(row, 0)?), Timestamp::from_millis(get(row, 1)?));
        let erased = get::<&[u8]>(row, 3)? == Fingerprint::ERASED.as_bytes();
        Ok(ProofRow { seq, received_at, tenant: get::<Option<&str>>(row, 2)?.map(Into::into), erased })
    };
    rows.first().map(found).transpose()
}

pub(crate) async fn message(db: &Db, session: &mut PgSession, seq: Seq) -> Result<Option<Arc<Message>>> {
    let rows = session.rows(query(&db.sql.admin_show_message).bind(seq.0)).await?;
    rows.first().map(|row| row::message(row, 0)).transpose()
}

pub(crate) async fn entries(
    db: &Db,
    session: &mut PgSession,
    handlers: &[i16],
    seq: Seq,
    key: &Key,
) -> Result<Vec<EntryView>> {
    let rows = session.rows(query(&db.sql.admin_show_entries).bind(seq.0).bind(handlers.to_vec())).await?;
    rows.iter().map(|row| row::entry(row, 10, *key)).collect()
}

/// One operation on one entry.
pub(crate) struct Operating<'a> {
    db: &'a Db,
    inbox: &'a InboxName,
    key: &'a Key,
    name: &'a HandlerKey,
    operation: Operation,
    inbox_id: i16,
    handler: i16,
    origin: HandlerKey,
    handlers: Vec<i16>,
}

impl<'a> Operating<'a> {
    /// Reads the names, before the caller takes a connection.
    pub(crate) async fn new(
        db: &'a Db,
        inbox: &'a InboxName,
        key: &'a Key,
        name: &'a HandlerKey,
        operation: Operation,
    ) -> Result<Self> {
        let inbox_id = db.known_inbox(inbox).await?.ok_or_else(|| missing(key, name))?;
        let handler = db.known_handler(inbox_id, name).await?.ok_or_else(|| missing(key, name))?;
        let handlers = db.handlers_of(inbox_id).await?;
        let (_, CachedHandler { origin, .. }) = db.by_handler(handler).await?;
        Ok(Self { db, inbox, key, name, operation, inbox_id, handler, origin, handlers })
    }

    /// Returns true if the action targets this entry.
    pub(crate) fn is_for(&self, entry: &EntryView) -> bool {
        self.origin == entry.origin
    }

    /// Returns lane, handler and order key of an unfinished entry with an ordering key.
    pub(crate) async fn line(
        &self,
        session: &mut PgSession,
        seq: Seq,
    ) -> Result<Option<(i16, i16, Vec<u8>)>> {
        let rows = session.rows(query(&self.db.sql.admin_order).bind(seq.0).bind(self.handler)).await?;
        let order = rows.first().map_or(Ok(None), |row| row::order(row, 0))?;
        Ok(order.map(|order| (lane(seq), self.handler, order.as_bytes().to_vec())))
    }

    /// Applies the action. Returns `None` if a worker or operator took the entry first.
    pub(crate) async fn attempt(
        &self,
        session: &mut PgSession,
        released: &mut Released,
    ) -> Result<Option<EntryView>> {
        let Self { db, key, name, handler, .. } = *self;
        let missing = || missing(key, name);
        let found = find(db, session, self.inbox_id, key).await?.ok_or_else(missing)?;
        let seq = found.seq;
        let message = unless_damaged(message(db, session, seq).await)?;
        let rows = session.rows(query(&db.sql.admin_order).bind(seq.0).bind(handler)).await?;
        // A finished entry gets the order key of its message.
        let order = match rows.first() {
            Some(row) => row::order(row, 0)?,
            None => message.as_ref().ok().and_then(|message| OrderKey::of(self.inbox, message.as_ref()?)),
        };
        let mut lines = TouchedQueues::default();
        if let Some(order) = &order {
            lines.add(lane(seq), handler, order.as_bytes().to_vec());
            lines.lock(db, session).await?;
        }
        let hold = query(&db.sql.admin_hold).bind(db.lane_of(key)).bind(key.as_bytes().to_vec());
        match session.rows(hold).await?.first() {
            None => return Err(missing()),
            // The key was forgotten and accepted again since the lookup: no handler may run the rest of the old message.
            Some(row) if get::<i64>(row, 0)? != seq.0 => return Ok(None),
            Some(_) => {}
        }
        // Operators can act only on the latest generation.
        let current = entries(db, session, &self.handlers, seq, key).await?;
        let current = current.into_iter().filter(|entry| entry.origin == self.origin);
        let mut entry = current.max_by_key(|entry| entry.generation).ok_or_else(missing)?;
        let next = decide(entry.status, entry.in_line, self.operation)?;
        let unblock = self.operation == Operation::Unblock;
        let taken = if unblock { &db.sql.admin_unblock } else { &db.sql.admin_remove };
        if matches!(entry.status, Status::Pending | Status::Poisoned)
            && session.rows(query(taken).bind(seq.0).bind(handler)).await?.is_empty()
        {
            return Ok(None);
        }
        if next == Status::Pending {
            if found.erased {
                return Err(content_erased(key));
            }
            if message.as_ref().map_err(Error::to_shared)?.is_none() {
                let what = format!("the payload of {key} has left; only its key is remembered");
                return Err(Error::new(ErrorKind::Refused, what));
            }
            entry.generation += u32::from(self.operation == Operation::Replay);
            self.pend(session, &entry, handler, order).await?;
        } else if !unblock {
            self.discard(session, &entry, handler).await?;
        }
        if entry.in_line == Some(InLine::Parks) {
            lines.unpark(db, session).await?;
        }
        if !lines.is_empty() {
            released.extend(lines.rearrange(db, session).await?);
        }
        let changed = entries(db, session, &self.handlers, seq, key).await?;
        let changed = changed.into_iter().filter(|entry| entry.origin == self.origin);
        let changed = changed.max_by_key(|entry| entry.generation).ok_or_else(missing)?;
        Ok(Some(found.label(changed, message.ok().flatten().as_deref())))
    }

    async fn pend(
        &self,
        session: &mut PgSession,
        entry: &EntryView,
        handler: i16,
        order: Option<OrderKey>,
    ) -> Result<()> {
        let pending = query(&self.db.sql.admin_pending)
            .bind(self.db.now())
            .bind(entry.seq.0)
            .bind(handler)
            .bind(i32::try_from(entry.generation).unwrap_or(i32::MAX))
            .bind(order.map(|order| order.as_bytes().to_vec()))
            .bind(text(entry));
        session.run(pending).await?;
        Ok(())
    }

    async fn discard(&self, session: &mut PgSession, entry: &EntryView, handler: i16) -> Result<()> {
        let count = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        let discarded = query(&self.db.sql.admin_discarded)
            .bind(self.db.now())
            .bind(entry.seq.0)
            .bind(handler)
            .bind(count(entry.generation))
            .bind(count(entry.attempts))
            .bind(count(entry.suspicion.stored()))
            .bind(text(entry));
        session.run(discarded).await?;
        Ok(())
    }
}

fn text(entry: &EntryView) -> Option<String> {
    entry.error.as_ref().map(ErrorText::as_str).map(str::to_owned)
}

fn missing(key: &Key, handler: &HandlerKey) -> Error {
    Error::new(ErrorKind::NotFound, format!("no entry of handler {handler:?} is stored for key {key}"))
}

/// Pauses or resumes a handler. Returns true if that changed its state.
pub(crate) async fn set_paused(db: &Db, session: &mut PgSession, handler: i16, paused: bool) -> Result<bool> {
    Ok(session.run(query(&db.sql.admin_set_paused).bind(handler).bind(paused)).await? == 1)
}

pub(crate) async fn purge(
    db: &Db,
    session: &mut PgSession,
    inbox: i16,
    age: Duration,
    limit: usize,
) -> Result<usize> {
    let purge = query(&db.sql.admin_purge_quarantine)
        .bind(db.now())
        .bind(inbox)
        .bind(millis(age))
        .bind(i64::try_from(limit).unwrap_or(i64::MAX));
    Ok(usize::try_from(session.run(purge).await?).unwrap_or(usize::MAX))
}
