//! Operator actions and their audit record. Tests: `tests/operations.rs`.

use oncebox_core::store::{
    Acted, Action, ActionKind, ActionResult, AuditFilter, AuditPage, OperationId, OperationView, OrderQueue,
    SweepParams,
};
use oncebox_core::time::Timestamp;
use oncebox_core::{Error, ErrorKind, HandlerKey, InboxName, Key, Result};
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::admin::{self, Operating};
use crate::db::{Db, Released, TouchedQueues, millis};
use crate::erase::{self, Erasing};
use crate::row::{self, get};
use crate::session::{PgSession, query};

/// Maximum tries of an operation on an entry that a worker claims or settles at the same moment.
const RACES: usize = 20;

pub(crate) async fn act(db: &Db, action: &Action) -> Result<Acted> {
    for _ in 0..RACES {
        if let Some(acted) = attempt(db, action).await? {
            return Ok(acted);
        }
    }
    let what =
        format!("what {} of operation {} is about changes all the time", action.kind.verb(), action.id);
    Err(Error::new(ErrorKind::Unavailable, what))
}

/// Applies the action. Returns `None` if a worker or operator took the entry first.
async fn attempt(db: &Db, action: &Action) -> Result<Option<Acted>> {
    let control = db.control.knowing(db.timeline.changes());
    // Runs before it takes a connection: a caller that holds one must not wait for another.
    let names = match &action.kind {
        ActionKind::Erase { key, .. } => erase::unfinished(db, &action.inbox, key).await?,
        _ => Vec::new(),
    };
    let erasing = match &action.kind {
        ActionKind::Erase { key, discard_unfinished } => {
            let target = (key, *discard_unfinished);
            match Erasing::new(db, &action.inbox, target, &names).await {
                Ok(erasing) => Some(erasing),
                Err(error) => return known(db, action).await?.map(Some).ok_or(error),
            }
        }
        _ => None,
    };
    let operating = match &action.kind {
        ActionKind::Entry { key, handler, operation } => {
            // A repeated action returns its recorded result, even if the entry was deleted since.
            match Operating::new(db, &action.inbox, key, handler, *operation).await {
                Ok(operating) => Some(operating),
                Err(error) => return known(db, action).await?.map(Some).ok_or(error),
            }
        }
        _ => None,
    };
    let inbox = db.inbox(&action.inbox).await?;
    let handler = match &action.kind {
        ActionKind::Pause { handler }
        | ActionKind::Resume { handler }
        | ActionKind::PauseKey { handler, .. }
        | ActionKind::ResumeKey { handler, .. } => Some(db.handler(inbox, handler).await?),
        _ => None,
    };
    let mut session = control.transaction().await?;
    if !begin(db, &mut session, inbox, action).await? {
        session.undo().await;
        return known(db, action).await;
    }
    let mut released = Released::default();
    let done = match (&operating, &erasing) {
        (Some(operating), _) => {
            let done = operating.attempt(&mut session, &mut released).await;
            Some(done.map(|entry| entry.map(|entry| ActionResult::Entry(Box::new(entry)))))
        }
        (None, Some(erasing)) => Some(
            erasing.attempt(&mut session, &mut released).await.map(|counts| counts.map(ActionResult::Erased)),
        ),
        (None, None) => None,
    };
    let done = match done {
        None => None,
        Some(Ok(Some(answer))) => Some(answer),
        // A worker took the entry meanwhile, or the action was refused.
        Some(not_done) => {
            session.undo().await;
            return not_done.map(|_| None);
        }
    };
    let answer = match (&action.kind, done, handler) {
        (_, Some(answer), _) => answer,
        (ActionKind::Pause { .. }, _, Some(handler)) => {
            ActionResult::Changed(admin::set_paused(db, &mut session, handler, true).await?)
        }
        (ActionKind::Resume { .. }, _, Some(handler)) => {
            ActionResult::Changed(admin::set_paused(db, &mut session, handler, false).await?)
        }
        (ActionKind::PauseKey { line, .. }, _, Some(handler)) => ActionResult::Changed(
            pause_key(db, &mut session, (&action.inbox, handler), (line, true), &mut released).await?,
        ),
        (ActionKind::ResumeKey { line, .. }, _, Some(handler)) => ActionResult::Changed(
            pause_key(db, &mut session, (&action.inbox, handler), (line, false), &mut released).await?,
        ),
        (ActionKind::Purge { age, limit }, ..) => {
            ActionResult::Purged(admin::purge(db, &mut session, inbox, *age, *limit).await?)
        }
        _ => ActionResult::Begun,
    };
    session.run(query(&db.sql.operation_answer).bind(uuid(action.id)).bind(answer.encode())).await?;
    session.end().await?;
    released.notify(db);
    Ok(Some(Acted::now(answer)))
}

/// Pauses or resumes one ordering key of a handler. Returns true if that changed its state.
async fn pause_key(
    db: &Db,
    session: &mut PgSession,
    (inbox, handler): (&InboxName, i16),
    (line, paused): (&OrderQueue, bool),
    released: &mut Released,
) -> Result<bool> {
    let Some(order) = line.order(inbox) else { return Ok(false) };
    let (lane, bytes) = (db.home_of(&Key::from_bytes([0; 32]), Some(&order)), order.as_bytes().to_vec());
    let mut lines = TouchedQueues::default();
    lines.add(lane, handler, bytes.clone());
    lines.lock(db, session).await?;
    if paused {
        let stop = query(&db.sql.order_stop).bind(db.now()).bind(lane).bind(handler).bind(bytes.clone());
        let stopped = session.rows(stop.bind(line.encode())).await?;
        session.run(query(&db.sql.order_hold).bind(lane).bind(handler).bind(bytes)).await?;
        return Ok(!stopped.is_empty());
    }
    let gone = session.run(query(&db.sql.order_go).bind(lane).bind(handler).bind(bytes)).await?;
    released.extend(lines.release(db, session).await?);
    Ok(gone > 0)
}

/// Reserves the id of an action. Returns true if the id is new.
async fn begin(db: &Db, session: &mut PgSession, inbox: i16, action: &Action) -> Result<bool> {
    let record = OperationView::of(action, &ActionResult::Begun, 0, Timestamp::ZERO);
    let add = query(&db.sql.operation_add)
        .bind(db.now())
        .bind(uuid(action.id))
        .bind(action.parent.map(uuid))
        .bind(inbox)
        .bind(record.actor.into_string())
        .bind(record.reason.into_string())
        .bind(record.verb.into_string())
        .bind(record.key.map(|key| key.as_bytes().to_vec()))
        .bind(record.handler.map(|handler| handler.as_str().to_owned()))
        .bind(record.body.into_string())
        .bind(record.token.map(<str>::into_string));
    Ok(!session.rows(add).await?.is_empty())
}

/// Returns the recorded result of an action. `None` if no action with this id was done.
async fn known(db: &Db, action: &Action) -> Result<Option<Acted>> {
    let mut session = db.control.look().await?;
    let rows = session.rows(query(&db.sql.operation_known).bind(uuid(action.id))).await?;
    session.end().await?;
    rows.first().map(|row| Acted::again(action, get(row, 0)?, get(row, 1)?, get(row, 2)?)).transpose()
}

fn uuid(id: OperationId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

pub(crate) async fn note(db: &Db, id: OperationId, noted: u32, progress: &str) -> Result<bool> {
    let note = query(&db.sql.operation_note)
        .bind(uuid(id))
        .bind(i32::try_from(noted).unwrap_or(i32::MAX))
        .bind(progress.to_owned());
    let mut session = db.control.single().await?;
    let noted = session.run(note).await?;
    session.end().await?;
    Ok(noted == 1)
}

pub(crate) async fn audit(db: &Db, filter: &AuditFilter) -> Result<AuditPage> {
    let mut page = AuditPage::default();
    let Some(inbox) = db.known_inbox(&filter.inbox).await? else { return Ok(page) };
    let question = query(&db.sql.operation_audit)
        .bind(inbox)
        .bind(filter.before.unwrap_or(i64::MAX))
        // One extra row shows that there is another page.
        .bind(i64::try_from(filter.limit).unwrap_or(i64::MAX).saturating_add(1))
        .bind(filter.id.map(uuid))
        .bind(filter.parent.map(uuid))
        .bind(filter.key.map(|key| key.as_bytes().to_vec()))
        // Text columns take no NUL, so no name has one.
        .bind(filter.actor.as_ref().map(|actor| actor.replace('\0', "\u{fffd}")))
        .bind(filter.token.as_ref().map(|token| token.replace('\0', "\u{fffd}")));
    let mut session = db.reads().await?;
    let rows = session.rows(question).await?;
    session.end().await?;
    page.operations = rows.iter().take(filter.limit).map(read).collect::<Result<_>>()?;
    if rows.len() > filter.limit {
        page.next = page.operations.last().map(|last| last.number);
    }
    Ok(page)
}

fn read(row: &PgRow) -> Result<OperationView> {
    let text = |column| -> Result<Box<str>> { Ok(get::<&str>(row, column)?.into()) };
    let id = |uuid: Uuid| OperationId::from_bytes(*uuid.as_bytes());
    let key: Option<Key> = get::<Option<&[u8]>>(row, 7)?.map(|_| row::key(row, 7)).transpose()?;
    let progress = get::<Option<&str>>(row, 12)?.map(Into::into);
    let noted = row::count(row, 11)?;
    Ok(OperationView {
        number: get(row, 0)?,
        id: id(get(row, 1)?),
        parent: get::<Option<Uuid>>(row, 2)?.map(id),
        at: Timestamp::from_millis(get(row, 3)?),
        actor: text(4)?,
        token: get::<Option<&str>>(row, 13)?.map(Into::into),
        reason: text(5)?,
        verb: text(6)?,
        key,
        handler: get::<Option<&str>>(row, 8)?.and_then(|key| HandlerKey::new(key).ok()),
        body: text(9)?,
        answer: text(10)?,
        progress: progress.map(|progress| (noted, progress)),
    })
}

/// Deletes records past their window, a bounded number per call. Returns the number of deleted records.
pub(crate) async fn forget(
    db: &Db,
    session: &mut PgSession,
    inbox: i16,
    params: &SweepParams,
) -> Result<usize> {
    let forget = query(&db.sql.operation_forget)
        .bind(db.now())
        .bind(inbox)
        .bind(millis(params.audit))
        .bind(i64::try_from(params.limit).unwrap_or(i64::MAX));
    Ok(usize::try_from(session.run(forget).await?).unwrap_or(usize::MAX))
}
