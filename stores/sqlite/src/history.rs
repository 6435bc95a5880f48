//! History of a message: attempts, duplicates, and the entries that block its entries. Tests: the testkit's conformance
//! suite.

use oncebox_core::state::{ErrorText, Settlement, Status, Suspicion};
use oncebox_core::store::{Attempt, ClaimId, DuplicateCount, EntryAhead, LeaseHolder, MessageHistory, Seq};
use oncebox_core::time::Timestamp;
use oncebox_core::{HandlerKey, InboxName, Key, OrderKey, Result};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::admin;
use crate::error::{corrupt, store_error};
use crate::order::OrderedEntries;
use crate::row;
use crate::sql::SQL;
use crate::writer::WriteTx;

/// Stores the history of a settlement.
pub(crate) fn remember(
    connection: &Connection,
    handler: i64,
    settlement: &Settlement,
    now: Timestamp,
) -> Result<()> {
    let Some(event) = settlement.failure() else { return Ok(()) };
    let claim = &settlement.claim;
    connection
        .prepare_cached(SQL.history_attempt)
        .and_then(|mut statement| {
            statement.execute(params![
                claim.seq.0,
                handler,
                claim.token.0,
                claim.generation,
                now.as_millis(),
                event.as_str(),
                settlement.attempts,
                settlement.suspicion.stored(),
                &claim.claim_id.as_bytes()[..],
                settlement.error.as_ref().map(ErrorText::as_str),
            ])
        })
        .map_err(store_error)?;
    Ok(())
}

pub(crate) fn count_duplicates(work: &WriteTx<'_>, batch: &[DuplicateCount]) -> Result<()> {
    let mut statement = work.statement(SQL.history_count_duplicates)?;
    for DuplicateCount { seq, count, first, last, varied } in batch {
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        let varied = i64::try_from(*varied).unwrap_or(i64::MAX);
        statement
            .execute(params![seq.0, count, first.as_millis(), last.as_millis(), varied])
            .map_err(store_error)?;
    }
    Ok(())
}

pub(crate) fn history(work: &WriteTx<'_>, inbox: &InboxName, key: &Key) -> Result<Option<MessageHistory>> {
    let Some(known) = work.names.known_inbox(inbox) else { return Ok(None) };
    let Some(admin::StoredMessage { seq, message, .. }) = admin::stored(work, known.id, key)? else {
        return Ok(None);
    };
    let mut history = MessageHistory::default();
    (history.now, history.paused) = (work.now, work.names.paused(known.id));
    history.paused.sort();
    history.attempts = attempts(work, seq)?;
    history.duplicates = work
        .statement(SQL.history_duplicates)?
        .query_row([seq.0], |row| {
            let (first, last) = (Timestamp::from_millis(row.get(1)?), Timestamp::from_millis(row.get(2)?));
            let number = |at| row.get::<_, i64>(at).map(i64::unsigned_abs);
            Ok(DuplicateCount { seq, count: number(0)?, first, last, varied: number(3)? })
        })
        .optional()
        .map_err(store_error)?;
    history.holders = holders(work, seq)?;
    let order = message.ok().and_then(|message| OrderKey::of(inbox, &message));
    if let Some(order) = order {
        for (handler, known) in work.names.of_inbox(known.id) {
            if (OrderedEntries { connection: work.connection, handler, order }).is_stopped()? {
                history.key_paused.push(known.key.clone());
            }
        }
        history.key_paused.sort();
        for entry in admin::entries(work, seq.0, key)? {
            if matches!(entry.status, Status::Pending | Status::Poisoned) {
                history.ahead.extend(ahead(work, known.id, &entry.handler, order, seq)?);
            }
        }
    }
    Ok(Some(history))
}

fn attempts(work: &WriteTx<'_>, seq: Seq) -> Result<Vec<Attempt>> {
    let mut statement = work.statement(SQL.history_attempts)?;
    let mut rows = statement.query([seq.0]).map_err(store_error)?;
    let mut attempts = Vec::new();
    while let Some(row) = rows.next().map_err(store_error)? {
        let handler = work.names.by_id(row.get(0).map_err(store_error)?)?;
        let word: String = row.get(3).map_err(store_error)?;
        let event =
            Attempt::event_of(&word).ok_or_else(|| corrupt("a stored attempt has an unknown event"))?;
        let read = || -> rusqlite::Result<Attempt> {
            Ok(Attempt {
                handler: handler.key.clone(),
                origin: handler.origin.clone(),
                generation: row.get(1)?,
                at: Timestamp::from_millis(row.get(2)?),
                event,
                attempts: row.get(4)?,
                suspicion: Suspicion::from_stored(row.get(5)?),
                error: row.get::<_, Option<String>>(6)?.map(ErrorText::stored),
                claim_id: ClaimId::from_bytes(row.get(7)?),
            })
        };
        attempts.push(read().map_err(store_error)?);
    }
    Ok(attempts)
}

fn holders(work: &WriteTx<'_>, seq: Seq) -> Result<Vec<LeaseHolder>> {
    let mut statement = work.statement(SQL.history_holders)?;
    let mut rows = statement.query([seq.0]).map_err(store_error)?;
    let mut holders = Vec::new();
    while let Some(row) = rows.next().map_err(store_error)? {
        let handler = work.names.by_id(row.get(0).map_err(store_error)?)?.key.clone();
        let read = || -> rusqlite::Result<LeaseHolder> {
            let time =
                |column| -> rusqlite::Result<Timestamp> { Ok(Timestamp::from_millis(row.get(column)?)) };
            let claim_id = ClaimId::from_bytes(row.get(1)?);
            Ok(LeaseHolder { handler, claim_id, claimed_at: time(2)?, lease_until: time(3)? })
        };
        holders.push(read().map_err(store_error)?);
    }
    Ok(holders)
}

fn ahead(
    work: &WriteTx<'_>,
    inbox: i64,
    handler: &HandlerKey,
    order: OrderKey,
    seq: Seq,
) -> Result<Option<EntryAhead>> {
    let id = work.names.known_handler(inbox, handler);
    let found: Option<(i64, String, Key)> = work
        .statement(SQL.history_ahead)?
        .query_row(params![id, &order.as_bytes()[..], seq.0], |row| {
            Ok((row.get(0)?, row.get(1)?, row::key(row, 2)?))
        })
        .optional()
        .map_err(store_error)?;
    let Some((seq, word, key)) = found else { return Ok(None) };
    let status = admin::status_of(&word)?;
    Ok(Some(EntryAhead { handler: handler.clone(), seq: Seq(seq), key, status }))
}
