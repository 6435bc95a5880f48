//! Sweep: remove what is finished and past its retention.

use std::collections::HashSet;

use oncebox::Result;
use oncebox::store::{Seq, SweepParams, Swept};
use oncebox::time::Timestamp;
use rusqlite::params;

use crate::error::store_error;
use crate::writer::Work;

pub(crate) fn sweep(work: &mut Work<'_>, params: &SweepParams) -> Result<Swept> {
    let inbox = work.names.inbox(work.connection, &params.inbox)?;
    let cutoff = work.now.before(params.retention);
    let limit = i64::try_from(params.limit).unwrap_or(i64::MAX);
    let candidates: Vec<(i64, i64, i64)> = {
        let mut statement = work.statement(include_str!("../sql/sweep/candidates.sql"))?;
        let after = params.after.map_or(0, |seq| seq.0);
        let rows = statement
            .query_map(params![after, limit], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .map_err(store_error)?;
        rows.collect::<rusqlite::Result<_>>().map_err(store_error)?
    };
    // No more than the workers have in hand; kept here, so that the table needs no index for this.
    let running: HashSet<i64> = {
        let mut statement = work.statement(include_str!("../sql/sweep/running.sql"))?;
        let rows = statement.query_map([], |row| row.get(0)).map_err(store_error)?;
        rows.collect::<rusqlite::Result<_>>().map_err(store_error)?
    };
    let mut removed = Removed::default();
    let mut old_enough = true;
    for (seq, owner, received_at) in &candidates {
        if *received_at > work.now.as_millis() {
            // From a time when the clock was wrong: it may stay, but must not keep the others from leaving.
            continue;
        }
        if *received_at > cutoff.as_millis() {
            old_enough = false;
            break;
        }
        if *owner == inbox.id && !running.contains(seq) && finished(work, *seq, cutoff)? {
            remove(work, *seq)?;
            removed.add(*seq, *received_at);
        }
    }
    if removed.count > 0 {
        work.counters.swept = work.counters.swept.max(removed.last_seq);
        let watermark = Timestamp::from_millis(removed.last_received_at);
        work.names.set_watermark(work.connection, &params.inbox, watermark)?;
    }
    let marks = work
        .statement(include_str!("../sql/sweep/marks.sql"))?
        .execute(params![params.inbox.as_str(), cutoff.as_millis(), limit])
        .map_err(store_error)?;
    let more = (candidates.len() >= params.limit && old_enough) || marks >= params.limit;
    // Marks have no sequence: when only they are left, the next page starts where this one did.
    let last = candidates.last().map(|(seq, _, _)| Seq(*seq)).or(params.after).unwrap_or(Seq(0));
    Ok(Swept::new(removed.count, marks, (more && params.limit > 0).then_some(last)))
}

struct Removed {
    count: usize,
    last_seq: i64,
    last_received_at: i64,
}

impl Default for Removed {
    fn default() -> Self {
        Self { count: 0, last_seq: 0, last_received_at: i64::MIN }
    }
}

impl Removed {
    fn add(&mut self, seq: i64, received_at: i64) {
        self.count += 1;
        self.last_seq = self.last_seq.max(seq);
        self.last_received_at = self.last_received_at.max(received_at);
    }
}

fn finished(work: &Work<'_>, seq: i64, cutoff: Timestamp) -> Result<bool> {
    let unfinished: bool = work
        .statement(include_str!("../sql/sweep/unfinished.sql"))?
        .query_row(params![seq, cutoff.as_millis()], |row| row.get(0))
        .map_err(store_error)?;
    Ok(!unfinished)
}

/// The proof row stays until the next merge passes it; without its message it counts as absent.
fn remove(work: &Work<'_>, seq: i64) -> Result<()> {
    for sql in [include_str!("../sql/sweep/outcomes.sql"), include_str!("../sql/sweep/message.sql")] {
        work.statement(sql)?.execute([seq]).map_err(store_error)?;
    }
    Ok(())
}
