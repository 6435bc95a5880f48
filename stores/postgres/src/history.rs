//! History of a message: attempts, duplicates, and the entries that block its entries. Tests: the testkit's conformance
//! suite.

use oncebox_core::state::{ErrorText, Status, Suspicion};
use oncebox_core::store::{Attempt, ClaimId, DuplicateCount, EntryAhead, LeaseHolder, MessageHistory, Seq};
use oncebox_core::time::Timestamp;
use oncebox_core::{InboxName, Key, OrderKey, Result};
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::admin::{self, ProofRow, handler_key};
use crate::db::Db;
use crate::error::corrupt;
use crate::row::{self, get};
use crate::session::{PgSession, query};

pub(crate) async fn count_duplicates(db: &Db, batch: &[DuplicateCount]) -> Result<()> {
    let count = query(&db.sql.history_count_duplicates)
        .bind(batch.iter().map(|one| one.seq.0).collect::<Vec<_>>())
        .bind(batch.iter().map(|one| i64::try_from(one.count).unwrap_or(i64::MAX)).collect::<Vec<_>>())
        .bind(batch.iter().map(|one| one.first.as_millis()).collect::<Vec<_>>())
        .bind(batch.iter().map(|one| one.last.as_millis()).collect::<Vec<_>>())
        .bind(batch.iter().map(|one| i64::try_from(one.varied).unwrap_or(i64::MAX)).collect::<Vec<_>>());
    let mut session = db.control.single().await?;
    session.run(count).await?;
    session.end().await
}

pub(crate) async fn history(db: &Db, name: &InboxName, key: &Key) -> Result<Option<MessageHistory>> {
    let Some(inbox) = db.known_inbox(name).await? else { return Ok(None) };
    // Runs before it takes a connection: a caller that holds one must not wait for another.
    let handlers = db.handlers_of(inbox).await?;
    let mut session = db.reads().await?;
    let Some(ProofRow { seq, .. }) = admin::find(db, &mut session, inbox, key).await? else {
        session.end().await?;
        return Ok(None);
    };
    let mut history = MessageHistory::default();
    let attempts = session.rows(query(&db.sql.history_attempts).bind(seq.0)).await?;
    history.attempts = attempts.iter().map(attempt).collect::<Result<_>>()?;
    let duplicates = session.rows(query(&db.sql.history_duplicates).bind(seq.0)).await?;
    history.duplicates = duplicates.first().map(|row| read_duplicates(row, seq)).transpose()?;
    for row in
        session.rows(query(&db.sql.history_holders).bind(seq.0).bind(handlers.clone()).bind(db.now())).await?
    {
        match get::<Option<Uuid>>(&row, 1)? {
            None => history.now = Timestamp::from_millis(get(&row, 2)?),
            Some(claim_id) => history.holders.push(LeaseHolder {
                handler: handler_key(&row, 0)?,
                claim_id: ClaimId::from_bytes(*claim_id.as_bytes()),
                claimed_at: Timestamp::from_millis(get(&row, 2)?),
                lease_until: Timestamp::from_millis(get(&row, 3)?),
            }),
        }
    }
    for row in session.rows(query(&db.sql.admin_paused).bind(inbox)).await? {
        history.paused.push(handler_key(&row, 0)?);
    }
    ahead(db, &mut session, (name, inbox), &handlers, (seq, key), &mut history).await?;
    session.end().await?;
    Ok(Some(history))
}

fn attempt(row: &PgRow) -> Result<Attempt> {
    let event = Attempt::event_of(get(row, 3)?);
    Ok(Attempt {
        handler: handler_key(row, 0)?,
        origin: handler_key(row, 8)?,
        generation: row::count(row, 1)?,
        at: Timestamp::from_millis(get(row, 2)?),
        event: event.ok_or_else(|| corrupt("a stored attempt has an unknown event"))?,
        attempts: row::count(row, 4)?,
        suspicion: Suspicion::from_stored(row::count(row, 5)?),
        error: get::<Option<&str>>(row, 6)?.map(ErrorText::stored),
        claim_id: ClaimId::from_bytes(*get::<Uuid>(row, 7)?.as_bytes()),
    })
}

fn read_duplicates(row: &PgRow, seq: Seq) -> Result<DuplicateCount> {
    let (first, last) = (Timestamp::from_millis(get(row, 1)?), Timestamp::from_millis(get(row, 2)?));
    let number = |at| get::<i64>(row, at).map(i64::unsigned_abs);
    Ok(DuplicateCount { seq, count: number(0)?, first, last, varied: number(3)? })
}

/// Finds the entry that each waiting entry of a message waits for.
async fn ahead(
    db: &Db,
    session: &mut PgSession,
    (name, inbox): (&InboxName, i16),
    handlers: &[i16],
    (seq, key): (Seq, &Key),
    history: &mut MessageHistory,
) -> Result<()> {
    // An unreadable message does not hide the rest of its history.
    let message = admin::unless_damaged(admin::message(db, session, seq).await)?.unwrap_or_default();
    let Some(order) = message.and_then(|message| OrderKey::of(name, &message)) else { return Ok(()) };
    for (key, of) in admin::paused_keys(db, session, inbox).await? {
        if of == order.as_bytes() {
            history.key_paused.push(key.handler);
        }
    }
    history.key_paused.sort();
    for entry in admin::entries(db, session, handlers, seq, key).await? {
        let Some(handler) = db.known_handler_id(inbox, &entry.origin) else { continue };
        if !matches!(entry.status, Status::Pending | Status::Poisoned) {
            continue;
        }
        let question = query(&db.sql.history_ahead).bind(seq.0).bind(handler).bind(order.as_bytes().to_vec());
        for row in session.rows(question).await? {
            let status = admin::status_of(get(&row, 1)?)?;
            let handler = entry.handler.clone();
            history.ahead.push(EntryAhead {
                handler,
                seq: Seq(get(&row, 0)?),
                key: row::key(&row, 2)?,
                status,
            });
        }
    }
    Ok(())
}
