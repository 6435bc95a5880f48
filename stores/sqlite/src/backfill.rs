//! Backfill: adds entries for a handler to stored messages. Tests: the testkit's conformance suite.

use oncebox_core::store::{BackfillParams, Backfilled, Seq};
use oncebox_core::time::Timestamp;
use oncebox_core::{Fingerprint, Result};
use rusqlite::params;

use crate::accept::{decode_handlers, insert_entry, set_handlers, stored_order};
use crate::error::store_error;
use crate::sql::SQL;
use crate::writer::WriteTx;

/// The parts of a stored message that a backfill needs.
struct BackfillRow {
    seq: i64,
    inbox: i64,
    message_type: String,
    handlers: Vec<i64>,
    time: Option<Timestamp>,
    erased: bool,
}

pub(crate) fn backfill(work: &mut WriteTx<'_>, params: &BackfillParams) -> Result<Backfilled> {
    let Some(inbox) = work.names.known_inbox(&params.inbox) else { return Ok(Backfilled::default()) };
    let page = page(work, params)?;
    let (mut added, mut stale) = (0, 0);
    let ours = |stored: &&BackfillRow| {
        stored.inbox == inbox.id && !stored.erased && params.takes(&stored.message_type)
    };
    for stored in page.iter().filter(ours) {
        let names = work.names.link(work.connection, inbox.id, &params.route)?;
        if names.iter().any(|handler| stored.handlers.contains(handler)) {
            continue;
        }
        // The handler may have handled the message before: it was delivered again for other handlers after this one had
        // forgotten it.
        if stored.time.zip(work.names.watermark(&names)).is_some_and(|(time, mark)| time <= mark) {
            stale += 1;
            continue;
        }
        let handler = names[0];
        let order = params.route.order_of(stored_order(work, &params.inbox, stored.seq)?);
        insert_entry(work, handler, stored.seq, order, work.now)?;
        set_handlers(work, stored.seq, &[&stored.handlers[..], &[handler]].concat())?;
        added += 1;
    }
    let full = params.limit > 0 && page.len() >= params.limit;
    let next = page.last().map(|last| Seq(last.seq)).filter(|_| full);
    Ok(Backfilled::new(added, next).stale(stale))
}

fn page(work: &WriteTx<'_>, params: &BackfillParams) -> Result<Vec<BackfillRow>> {
    let after = params.after.map_or(0, |seq| seq.0);
    let limit = i64::try_from(params.limit).unwrap_or(i64::MAX);
    let mut statement = work.statement(SQL.backfill_page)?;
    let rows = statement
        .query_map(params![after, limit, &Fingerprint::ERASED.as_bytes()[..]], |row| {
            let handlers: Vec<u8> = row.get(3)?;
            Ok(BackfillRow {
                seq: row.get(0)?,
                inbox: row.get(1)?,
                message_type: row.get(2)?,
                handlers: decode_handlers(&handlers),
                time: row.get::<_, Option<i64>>(4)?.map(Timestamp::from_millis),
                erased: row.get(5)?,
            })
        })
        .map_err(store_error)?;
    rows.collect::<rusqlite::Result<_>>().map_err(store_error)
}
