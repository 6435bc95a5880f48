//! Sweep: deletes finished messages that are past their retention. Tests: `tests/sweep.rs`.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use oncebox_core::store::{RetentionWindows, Seq, SweepCursor, SweepId, SweepParams, SweepPosition, Swept};
use oncebox_core::time::Timestamp;
use oncebox_core::{Error, ErrorKind, HandlerKey, Result};
use rusqlite::{OptionalExtension as _, Row, params};

use crate::accept::decode_handlers;
use crate::error::store_error;
use crate::operation;
use crate::register::{self, millis};
use crate::sql::SQL;
use crate::writer::WriteTx;

pub(crate) fn sweep(work: &mut WriteTx<'_>, params: &SweepParams) -> Result<Swept> {
    // A sweep that finds nothing writes nothing, so it would not fail on a read-only file.
    if work.connection.is_readonly("main").map_err(store_error)? {
        return Err(Error::new(ErrorKind::ReadOnly, "the SQLite file cannot be written"));
    }
    let inbox = work.names.inbox(work.connection, &params.inbox)?.id;
    let sweeper = Sweeper::of(work, inbox)?;
    if !sweeper.lets(params, work.now) {
        return Ok(Swept::NOTHING);
    }
    let windows = RetentionWindows::new(params, &register::windows(work.connection, inbox)?, work.now);
    let windows = windows.over(work.names.aliases(inbox));
    let mut page = SweepPage::new(work, inbox, &windows)?;
    let start = params.after.unwrap_or(SweepPosition::START);
    let mut next = None;
    for window in windows.lengths().into_iter().filter(|window| *window >= start.window) {
        let after = if window == start.window { start.seq } else { Seq(0) };
        let limit = params.limit.saturating_sub(page.looked);
        next = page.scan_page(work, SweepPosition::new(window, after), limit)?;
        if next.is_some() {
            break;
        }
    }
    let (messages, entries, looked) = (page.removed.count, page.removed.entries, page.looked);
    page.removed.note(work, params)?;
    let marks = sweep_marks(work, params, &windows)?;
    if marks >= params.limit {
        // Marks have no sequence: when only they are left, the next page starts behind everything.
        next = next.or(Some(SweepPosition::new(windows.longest(), Seq(i64::MAX))));
    }
    let operations = operation::forget(work, inbox, params)?;
    let next = next.filter(|_| params.limit > 0);
    sweeper.renew_sweep(work, inbox, params, next.is_some())?;
    let mut swept = Swept::new(looked, next);
    (swept.messages, swept.entries, swept.marks, swept.operations) = (messages, entries, marks, operations);
    Ok(swept)
}

/// The process that sweeps an inbox from page to page, and the end of its turn. Written only if there is another page:
/// an inbox with little to sweep does not write its file.
struct Sweeper(Option<(SweepId, Timestamp)>);

impl Sweeper {
    fn of(work: &WriteTx<'_>, inbox: i64) -> Result<Self> {
        let (id, until): (Option<[u8; 16]>, i64) = work
            .statement(SQL.sweep_sweeper)?
            .query_row([inbox], |row| Ok((row.get(0)?, row.get(1)?)))
            .map_err(store_error)?;
        Ok(Self(id.map(|id| (SweepId::from_bytes(id), Timestamp::from_millis(until)))))
    }

    fn lets(&self, params: &SweepParams, now: Timestamp) -> bool {
        self.0.is_none_or(|(id, until)| id == params.sweep_id || until < now)
    }

    fn renew_sweep(&self, work: &WriteTx<'_>, inbox: i64, params: &SweepParams, more: bool) -> Result<()> {
        if !more && self.0.is_none() {
            return Ok(());
        }
        let id = more.then(|| &params.sweep_id.as_bytes()[..]);
        work.statement(SQL.sweep_set_sweeper)?
            .execute(params![inbox, id, work.now.after(params.lease).as_millis()])
            .map_err(store_error)?;
        Ok(())
    }
}

/// A message that the sweep may delete.
struct Candidate {
    seq: Seq,
    inbox: i64,
    received_at: Timestamp,
    handlers: Vec<i64>,
}

impl Candidate {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let handlers: Vec<u8> = row.get(3)?;
        Ok(Self {
            seq: Seq(row.get(0)?),
            inbox: row.get(1)?,
            received_at: Timestamp::from_millis(row.get(2)?),
            handlers: decode_handlers(&handlers),
        })
    }
}

/// Result for one message.
enum SweepVerdict {
    Gone,
    /// An entry or window of the message is not over.
    Stays,
    /// The message has a longer window, whose scan checks it; or it belongs to another inbox.
    Later,
}

/// A page of a sweep.
struct SweepPage {
    inbox: i64,
    /// Window by handler.
    windows: HashMap<i64, Duration>,
    /// Window of messages without entries, and of unregistered handlers.
    default: Duration,
    digest: i64,
    running: HashSet<i64>,
    removed: Removed,
    looked: usize,
}

impl SweepPage {
    fn new(work: &WriteTx<'_>, inbox: i64, windows: &RetentionWindows) -> Result<Self> {
        // As many rows as workers have running entries. Kept in memory, so that the table needs no index for this.
        let mut statement = work.statement(SQL.sweep_running)?;
        let running = statement.query_map([], |row| row.get(0)).map_err(store_error)?;
        let own = work.names.of_inbox(inbox).map(|(id, handler)| (id, windows.of(&handler.key)));
        Ok(Self {
            inbox,
            windows: own.collect(),
            default: windows.default_window(),
            digest: windows.digest(),
            running: running.collect::<rusqlite::Result<_>>().map_err(store_error)?,
            removed: Removed::default(),
            looked: 0,
        })
    }

    /// Checks messages that may be past one window. Returns the next position.
    fn scan_page(
        &mut self,
        work: &WriteTx<'_>,
        at: SweepPosition,
        limit: usize,
    ) -> Result<Option<SweepPosition>> {
        let before = self.load(work, at.window)?;
        let mut cursor = before.clone();
        let (again, from) = (cursor.again(at.seq, limit), cursor.from(at.seq));
        let (mut gone, mut stays, mut passed, mut last) = (Vec::new(), Vec::new(), from, at.seq);
        for seq in &again {
            last = *seq;
            let mut statement = work.statement(SQL.sweep_candidate)?;
            let found = statement.query_row([seq.0], Candidate::read).optional().map_err(store_error)?;
            let stays = found.map(|candidate| self.look(work, &candidate, at.window)).transpose()?;
            if matches!(stays, None | Some(SweepVerdict::Gone)) {
                gone.push(*seq);
            }
        }
        let settled = work.now.before(at.window.max(SweepCursor::SETTLED));
        let mut looked = again.len();
        for candidate in candidates(work, from, limit - looked)? {
            let Candidate { seq, received_at, .. } = candidate;
            // A message from a time when the clock was wrong stays, but does not stop the scan.
            let ahead = received_at > work.now;
            if received_at > work.now.before(at.window) && !ahead {
                break;
            }
            (last, looked) = (seq, looked + 1);
            let fate = self.look(work, &candidate, at.window)?;
            // Numbers follow the order of acceptance, so all messages before a settled one are settled.
            if received_at <= settled || ahead {
                passed = seq;
                if matches!(fate, SweepVerdict::Stays) {
                    stays.push(seq);
                }
            }
        }
        cursor.gone(&gone);
        cursor.pass(from, passed, &stays);
        if cursor != before {
            self.save(work, at.window, &cursor)?;
        }
        self.looked += looked;
        Ok((looked >= limit).then_some(SweepPosition::new(at.window, last)))
    }

    /// Checks a message, and deletes it if it is past its retention.
    fn look(&mut self, work: &WriteTx<'_>, candidate: &Candidate, window: Duration) -> Result<SweepVerdict> {
        let longest = candidate.handlers.iter().map(|id| self.window(*id)).max().unwrap_or(self.default);
        if candidate.inbox != self.inbox || longest > window {
            return Ok(SweepVerdict::Later);
        }
        if !self.is_over(work, candidate)? {
            return Ok(SweepVerdict::Stays);
        }
        remove(work, candidate.seq.0)?;
        self.removed.add(candidate);
        Ok(SweepVerdict::Gone)
    }

    fn window(&self, handler: i64) -> Duration {
        self.windows.get(&handler).copied().unwrap_or(self.default)
    }

    /// Returns true if the message is finished and the window of each of its handlers is over.
    fn is_over(&self, work: &WriteTx<'_>, candidate: &Candidate) -> Result<bool> {
        let cutoff = |window| work.now.before(window).as_millis();
        let seq = candidate.seq.0;
        if candidate.handlers.is_empty() {
            return Ok(candidate.received_at.as_millis() <= cutoff(self.default));
        }
        let all = || candidate.handlers.iter().map(|id| self.window(*id));
        let shortest = all().min().unwrap_or(self.default);
        let unfinished: bool = work
            .statement(SQL.sweep_unfinished)?
            .query_row(params![seq, cutoff(shortest)], |row| row.get(0))
            .map_err(store_error)?;
        // Most messages have one window for all.
        if unfinished || self.running.contains(&seq) || all().all(|window| window == shortest) {
            return Ok(!unfinished && !self.running.contains(&seq));
        }
        let mut statement = work.statement(SQL.sweep_ends)?;
        let mut rows = statement.query([seq]).map_err(store_error)?;
        while let Some(row) = rows.next().map_err(store_error)? {
            let (handler, at): (i64, i64) =
                (row.get(0).map_err(store_error)?, row.get(1).map_err(store_error)?);
            if at > cutoff(self.window(handler)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads the sweep cursor of a window.
    fn load(&self, work: &WriteTx<'_>, window: Duration) -> Result<SweepCursor> {
        let cursor = work
            .statement(SQL.sweep_cursor)?
            .query_row(params![self.inbox, millis(window), self.digest], |row| {
                let behind: Vec<u8> = row.get(1)?;
                let behind = behind.as_chunks::<8>().0.iter().map(|seq| Seq(i64::from_le_bytes(*seq)));
                Ok(SweepCursor::new(Seq(row.get(0)?), behind.collect()))
            })
            .optional()
            .map_err(store_error)?;
        Ok(cursor.unwrap_or_default())
    }

    fn save(&self, work: &WriteTx<'_>, window: Duration, cursor: &SweepCursor) -> Result<()> {
        let behind: Vec<u8> = cursor.left.iter().flat_map(|seq| seq.0.to_le_bytes()).collect();
        work.statement(SQL.sweep_delete_cursors)?
            .execute(params![self.inbox, self.digest])
            .map_err(store_error)?;
        work.statement(SQL.sweep_set_cursor)?
            .execute(params![self.inbox, millis(window), self.digest, cursor.upto.0, behind])
            .map_err(store_error)?;
        Ok(())
    }
}

/// Returns messages of all inboxes in the order of acceptance.
fn candidates(work: &WriteTx<'_>, after: Seq, limit: usize) -> Result<Vec<Candidate>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = work.statement(SQL.sweep_candidates)?;
    let rows = statement.query_map(params![after.0, limit], Candidate::read).map_err(store_error)?;
    rows.collect::<rusqlite::Result<_>>().map_err(store_error)
}

/// Deletes marks past the window of their handler. Returns the number of deleted marks.
fn sweep_marks(work: &WriteTx<'_>, params: &SweepParams, windows: &RetentionWindows) -> Result<usize> {
    let (mut gone, mut last) = (0, String::new());
    while gone < params.limit {
        let next: Option<String> = work
            .statement(SQL.sweep_mark_handler)?
            .query_row(params![params.inbox.as_str(), last], |row| row.get(0))
            .map_err(store_error)?;
        let Some(handler) = next else { break };
        let cutoff = work.now.before(windows.of(&HandlerKey::new(&handler)?));
        let max = i64::try_from(params.limit - gone).unwrap_or(i64::MAX);
        gone += work
            .statement(SQL.sweep_marks)?
            .execute(params![params.inbox.as_str(), handler, cutoff.as_millis(), max])
            .map_err(store_error)?;
        last = handler;
    }
    Ok(gone)
}

/// Counts of what a page deleted.
#[derive(Default)]
struct Removed {
    count: usize,
    entries: usize,
    last_seq: i64,
    /// Receive time of the newest deleted message, by handler. Messages without entries count under 0, which is no
    /// handler's id.
    newest: HashMap<i64, Timestamp>,
}

impl Removed {
    fn add(&mut self, candidate: &Candidate) {
        self.count += 1;
        self.entries += candidate.handlers.len();
        self.last_seq = self.last_seq.max(candidate.seq.0);
        let unrouted: &[i64] = &[0];
        let handlers = if candidate.handlers.is_empty() { unrouted } else { &candidate.handlers };
        for handler in handlers {
            let newest = self.newest.entry(*handler).or_insert(candidate.received_at);
            *newest = candidate.received_at.max(*newest);
        }
    }

    /// Stores, by handler, the time up to which messages may have been swept.
    fn note(self, work: &mut WriteTx<'_>, params: &SweepParams) -> Result<()> {
        work.counters.swept = work.counters.swept.max(self.last_seq);
        for (handler, watermark) in self.newest {
            if handler == 0 {
                work.names.set_watermark(work.connection, &params.inbox, watermark)?;
            } else {
                work.names.set_handler_watermark(work.connection, handler, watermark)?;
            }
        }
        Ok(())
    }
}

/// Deletes a message. Its proof row stays until the next merge of its slice; without the message it counts as absent.
fn remove(work: &WriteTx<'_>, seq: i64) -> Result<()> {
    let all =
        [SQL.sweep_outcomes, SQL.history_forget_attempts, SQL.history_delete_duplicates, SQL.sweep_message];
    for sql in all {
        work.statement(sql)?.execute([seq]).map_err(store_error)?;
    }
    Ok(())
}
