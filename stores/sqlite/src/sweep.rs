//! Sweep: remove what is finished and past its retention.

use std::collections::{HashMap, HashSet};

use oncebox::store::{Seq, SweepId, SweepParams, Swept};
use oncebox::time::Timestamp;
use oncebox::{Error, ErrorKind, HandlerKey, Result};
use rusqlite::params;

use crate::error::store_error;
use crate::operation;
use crate::writer::Work;

pub(crate) fn sweep(work: &mut Work<'_>, params: &SweepParams) -> Result<Swept> {
    // A sweep that finds nothing writes nothing, and would not notice.
    if work.connection.is_readonly("main").map_err(store_error)? {
        return Err(Error::new(ErrorKind::ReadOnly, "the SQLite file cannot be written"));
    }
    let inbox = work.names.inbox(work.connection, &params.inbox)?;
    let sweeper = Sweeper::of(work, inbox.id)?;
    if !sweeper.lets(params, work.now) {
        return Ok(Swept::NOTHING);
    }
    let limit = i64::try_from(params.limit).unwrap_or(i64::MAX);
    let candidates: Vec<Candidate> = {
        let mut statement = work.statement(include_str!("../sql/sweep/candidates.sql"))?;
        let after = params.after.map_or(0, |seq| seq.0);
        let rows = statement
            .query_map(params![after, limit], |row| {
                let (seq, inbox) = (row.get(0)?, row.get(1)?);
                Ok(Candidate { seq, inbox, received_at: row.get(2)?, unrouted: row.get(3)? })
            })
            .map_err(store_error)?;
        rows.collect::<rusqlite::Result<_>>().map_err(store_error)?
    };
    // No more than the workers have in hand; kept here, so that the table needs no index for this.
    let running: HashSet<i64> = {
        let mut statement = work.statement(include_str!("../sql/sweep/running.sql"))?;
        let rows = statement.query_map([], |row| row.get(0)).map_err(store_error)?;
        rows.collect::<rusqlite::Result<_>>().map_err(store_error)?
    };
    let windows = Windows::new(work, params);
    let mut removed = Removed::default();
    let mut old_enough = true;
    for candidate in &candidates {
        let Candidate { seq, received_at, .. } = *candidate;
        if received_at > work.now.as_millis() {
            // From a time when the clock was wrong: it may stay, but must not keep the others from leaving.
            continue;
        }
        if received_at > windows.latest {
            old_enough = false;
            break;
        }
        let ours = candidate.inbox == inbox.id && !running.contains(&seq);
        if ours && windows.are_over(work, candidate)? {
            remove(work, seq)?;
            removed.add(seq, received_at);
        }
    }
    if removed.count > 0 {
        work.counters.swept = work.counters.swept.max(removed.last_seq);
        let watermark = Timestamp::from_millis(removed.last_received_at);
        work.names.set_watermark(work.connection, &params.inbox, watermark)?;
    }
    let marks = sweep_marks(work, params)?;
    operation::forget(work, inbox.id, params)?;
    let more = (candidates.len() >= params.limit && old_enough) || marks >= params.limit;
    // Marks have no sequence: when only they are left, the next page starts where this one did.
    let last = candidates.last().map(|last| Seq(last.seq)).or(params.after).unwrap_or(Seq(0));
    let next = (more && params.limit > 0).then_some(last);
    sweeper.hand_on(work, inbox.id, params, next.is_some())?;
    Ok(Swept::new(removed.count, marks, next))
}

/// Who sweeps an inbox from page to page, and until when nobody else does. Written only if there is another page: an
/// inbox with little to sweep leaves its file alone.
struct Sweeper(Option<(SweepId, Timestamp)>);

impl Sweeper {
    fn of(work: &Work<'_>, inbox: i64) -> Result<Self> {
        let (id, until): (Option<[u8; 16]>, i64) = work
            .statement(include_str!("../sql/sweep/sweeper.sql"))?
            .query_row([inbox], |row| Ok((row.get(0)?, row.get(1)?)))
            .map_err(store_error)?;
        Ok(Self(id.map(|id| (SweepId::from_bytes(id), Timestamp::from_millis(until)))))
    }

    fn lets(&self, params: &SweepParams, now: Timestamp) -> bool {
        self.0.is_none_or(|(id, until)| id == params.sweep_id || until < now)
    }

    fn hand_on(&self, work: &Work<'_>, inbox: i64, params: &SweepParams, more: bool) -> Result<()> {
        if !more && self.0.is_none() {
            return Ok(());
        }
        let id = more.then(|| &params.sweep_id.as_bytes()[..]);
        work.statement(include_str!("../sql/sweep/set_sweeper.sql"))?
            .execute(params![inbox, id, work.now.after(params.hold).as_millis()])
            .map_err(store_error)?;
        Ok(())
    }
}

/// A message that may leave.
struct Candidate {
    seq: i64,
    inbox: i64,
    received_at: i64,
    unrouted: bool,
}

/// Up to when entries must have been finished to leave.
struct Windows {
    /// Of handlers with a window of their own.
    own: HashMap<i64, i64>,
    /// Of the others, and of messages without entries.
    default: i64,
    /// The latest of them all: what is younger has not left any window.
    latest: i64,
}

impl Windows {
    fn new(work: &Work<'_>, params: &SweepParams) -> Self {
        let cutoff = |window| work.now.before(window).as_millis();
        let inbox = work.names.known_inbox(&params.inbox);
        let id = |handler| work.names.known_handler(inbox?.id, handler);
        let own = params.windows.iter().filter_map(|(handler, window)| Some((id(handler)?, cutoff(*window))));
        Self { own: own.collect(), default: cutoff(params.retention), latest: cutoff(params.shortest()) }
    }

    /// Whether a message is finished, and the window of each of its handlers over.
    fn are_over(&self, work: &Work<'_>, candidate: &Candidate) -> Result<bool> {
        if candidate.unrouted {
            return Ok(candidate.received_at <= self.default);
        }
        let unfinished: bool = work
            .statement(include_str!("../sql/sweep/unfinished.sql"))?
            .query_row(params![candidate.seq, self.latest], |row| row.get(0))
            .map_err(store_error)?;
        // Most inboxes have one window for all.
        if unfinished || (self.own.is_empty() && self.latest == self.default) {
            return Ok(!unfinished);
        }
        let mut statement = work.statement(include_str!("../sql/sweep/ends.sql"))?;
        let mut rows = statement.query([candidate.seq]).map_err(store_error)?;
        while let Some(row) = rows.next().map_err(store_error)? {
            let (handler, at): (i64, i64) =
                (row.get(0).map_err(store_error)?, row.get(1).map_err(store_error)?);
            if at > self.own.get(&handler).copied().unwrap_or(self.default) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Removes marks past the window of their handler; returns how many.
fn sweep_marks(work: &Work<'_>, params: &SweepParams) -> Result<usize> {
    let (mut gone, mut last) = (0, String::new());
    while gone < params.limit {
        let next: Option<String> = work
            .statement(include_str!("../sql/sweep/mark_handler.sql"))?
            .query_row(params![params.inbox.as_str(), last], |row| row.get(0))
            .map_err(store_error)?;
        let Some(handler) = next else { break };
        let cutoff = work.now.before(params.window(&HandlerKey::new(&handler)?));
        let most = i64::try_from(params.limit - gone).unwrap_or(i64::MAX);
        gone += work
            .statement(include_str!("../sql/sweep/marks.sql"))?
            .execute(params![params.inbox.as_str(), handler, cutoff.as_millis(), most])
            .map_err(store_error)?;
        last = handler;
    }
    Ok(gone)
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

/// The proof row stays until the next merge passes it; without its message it counts as absent.
fn remove(work: &Work<'_>, seq: i64) -> Result<()> {
    let all = [
        include_str!("../sql/sweep/outcomes.sql"),
        include_str!("../sql/history/forget_attempts.sql"),
        include_str!("../sql/history/forget_absorbed.sql"),
        include_str!("../sql/sweep/message.sql"),
    ];
    for sql in all {
        work.statement(sql)?.execute([seq]).map_err(store_error)?;
    }
    Ok(())
}
