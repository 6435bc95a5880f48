//! Operator actions and their audit record. Tests: `tests/operations.rs`.

use oncebox_core::store::{
    Acted, Action, ActionKind, ActionResult, AuditFilter, AuditPage, OperationId, OperationView, SweepParams,
};
use oncebox_core::time::Timestamp;
use oncebox_core::{HandlerKey, InboxName, Key, Result, store};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::error::store_error;
use crate::names::NameMap;
use crate::order::OrderedEntries;
use crate::sql::SQL;
use crate::writer::WriteTx;
use crate::{admin, erase};

pub(crate) fn act(work: &mut WriteTx<'_>, action: &Action) -> Result<Acted> {
    let known: Option<(String, String, String)> = work
        .statement(SQL.operation_known)?
        .query_row([&action.id.as_bytes()[..]], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()
        .map_err(store_error)?;
    if let Some((body, reason, answer)) = known {
        return Acted::again(action, &body, &reason, &answer);
    }
    let inbox = &action.inbox;
    let answer = match &action.kind {
        ActionKind::Entry { key, handler, operation } => {
            ActionResult::Entry(Box::new(admin::operate(work, inbox, key, handler, *operation)?))
        }
        ActionKind::Pause { handler } => {
            ActionResult::Changed(admin::set_paused(work, inbox, handler, true)?)
        }
        ActionKind::Resume { handler } => {
            ActionResult::Changed(admin::set_paused(work, inbox, handler, false)?)
        }
        ActionKind::PauseKey { handler, line } => {
            ActionResult::Changed(pause_key(work, inbox, handler, line, true)?)
        }
        ActionKind::ResumeKey { handler, line } => {
            ActionResult::Changed(pause_key(work, inbox, handler, line, false)?)
        }
        ActionKind::Purge { age, limit } => ActionResult::Purged(admin::purge(work, inbox, *age, *limit)?),
        ActionKind::Erase { key, discard_unfinished } => {
            ActionResult::Erased(erase::erase(work, inbox, key, *discard_unfinished)?)
        }
        _ => ActionResult::Begun,
    };
    record(work, action, &answer)?;
    Ok(Acted::now(answer))
}

/// Pauses or resumes one ordering key of a handler. Returns true if that changed its state.
fn pause_key(
    work: &mut WriteTx<'_>,
    inbox: &InboxName,
    handler: &HandlerKey,
    line: &store::OrderQueue,
    paused: bool,
) -> Result<bool> {
    let Some(order) = line.order(inbox) else { return Ok(false) };
    let inbox = work.names.inbox(work.connection, inbox)?;
    let handler = work.names.handler(work.connection, inbox.id, handler)?;
    let held = OrderedEntries { connection: work.connection, handler, order };
    if paused {
        return held.stop(work.now, &line.encode());
    }
    *work.wake = true;
    held.go(work.now)
}

fn record(work: &mut WriteTx<'_>, action: &Action, answer: &ActionResult) -> Result<()> {
    let inbox = work.names.inbox(work.connection, &action.inbox)?.id;
    let record = OperationView::of(action, answer, 0, work.now);
    work.statement(SQL.operation_add)?
        .execute(params![
            &record.id.as_bytes()[..],
            record.parent.as_ref().map(|parent| &parent.as_bytes()[..]),
            inbox,
            record.at.as_millis(),
            &*record.actor,
            &*record.reason,
            &*record.verb,
            record.key.as_ref().map(|key| &key.as_bytes()[..]),
            record.handler.as_ref().map(HandlerKey::as_str),
            &*record.body,
            &*record.answer,
            record.token.as_deref(),
        ])
        .map_err(store_error)?;
    Ok(())
}

pub(crate) fn note(work: &WriteTx<'_>, id: OperationId, noted: u32, progress: &str) -> Result<bool> {
    let noted = work
        .statement(SQL.operation_note)?
        .execute(params![&id.as_bytes()[..], noted, progress])
        .map_err(store_error)?;
    Ok(noted == 1)
}

pub(crate) fn audit(connection: &Connection, names: &NameMap, filter: &AuditFilter) -> Result<AuditPage> {
    let mut page = AuditPage::default();
    let Some(inbox) = names.known_inbox(&filter.inbox) else { return Ok(page) };
    let sql = match (&filter.id, &filter.key, &filter.parent) {
        (Some(_), ..) => SQL.operation_audit_id,
        (None, Some(_), _) => SQL.operation_audit_key,
        (None, None, Some(_)) => SQL.operation_audit_parent,
        (None, None, None) => SQL.operation_audit,
    };
    // One extra row shows that there is another page.
    let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX).saturating_add(1);
    let values = params![
        inbox.id,
        filter.before.unwrap_or(i64::MAX),
        limit,
        filter.id.as_ref().map(|id| &id.as_bytes()[..]),
        filter.parent.as_ref().map(|parent| &parent.as_bytes()[..]),
        filter.key.as_ref().map(|key| &key.as_bytes()[..]),
        filter.actor.as_deref(),
        filter.token.as_deref(),
    ];
    page.operations = connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_map(values, read)?.collect())
        .map_err(store_error)?;
    if page.operations.len() > filter.limit {
        page.operations.truncate(filter.limit);
        page.next = page.operations.last().map(|last| last.number);
    }
    Ok(page)
}

fn read(row: &Row<'_>) -> rusqlite::Result<OperationView> {
    let (noted, progress): (u32, Option<Box<str>>) = (row.get(11)?, row.get(12)?);
    Ok(OperationView {
        number: row.get(0)?,
        id: OperationId::from_bytes(row.get(1)?),
        parent: row.get::<_, Option<[u8; 16]>>(2)?.map(OperationId::from_bytes),
        at: Timestamp::from_millis(row.get(3)?),
        actor: row.get(4)?,
        token: row.get(13)?,
        reason: row.get(5)?,
        verb: row.get(6)?,
        key: row.get::<_, Option<[u8; 32]>>(7)?.map(Key::from_bytes),
        handler: row.get::<_, Option<String>>(8)?.and_then(|key| HandlerKey::new(key).ok()),
        body: row.get(9)?,
        answer: row.get(10)?,
        progress: progress.map(|progress| (noted, progress)),
    })
}

/// Deletes records past their window, a bounded number per call. Returns the number of deleted records.
pub(crate) fn forget(work: &WriteTx<'_>, inbox: i64, params: &SweepParams) -> Result<usize> {
    let limit = i64::try_from(params.limit).unwrap_or(i64::MAX);
    work.statement(SQL.operation_forget)?
        .execute(params![inbox, work.now.before(params.audit).as_millis(), limit])
        .map_err(store_error)
}
