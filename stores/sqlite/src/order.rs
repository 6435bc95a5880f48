//! Order: of all entries with one order key and handler, a claim takes only the first, and only while none of
//! them runs. The other entries have a due time that never comes, so a claim does not read them. Tests:
//! `tests/order.rs`.

use oncebox_core::state::InLine;
use oncebox_core::time::Timestamp;
use oncebox_core::{OrderKey, Result};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::error::{corrupt, store_error};
use crate::sql::SQL;

/// The entries of one handler and order key.
pub(crate) struct OrderedEntries<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) handler: i64,
    pub(crate) order: OrderKey,
}

/// The last due time of an entry that may run. Waiting entries have the time after it.
pub(crate) const LAST_DUE: Timestamp = Timestamp::from_millis(i64::MAX - 1);

/// Result for an entry that joins a line, with the number of the line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joined {
    /// The entry is the first. Workers may claim it when it is due.
    Due(i64),
    /// Another entry runs first.
    Waits(i64),
    /// The entry is parked behind an entry that parks.
    Parked,
}

/// State of a line when an entry joins it.
struct LineState {
    /// Effect of a poisoned entry before it.
    held_back: Option<InLine>,
    /// The number of the line, if there is one.
    number: Option<i64>,
    /// The entry that may run, or `NO_ENTRY`.
    gone: i64,
    /// The first waiting entry.
    first: Option<i64>,
}

/// Stored as the entry that may run, if none may.
const NO_ENTRY: i64 = 0;

impl OrderedEntries<'_> {
    /// Returns the position of an entry that joins the line. A younger entry that may run, but does not run
    /// yet, waits again.
    pub(crate) fn join(&self, seq: i64) -> Result<Joined> {
        let LineState { held_back, number, gone, first } = self.look(seq)?;
        if held_back == Some(InLine::Parks) {
            return Ok(Joined::Parked);
        }
        let Some(number) = number else {
            let goes = if held_back.is_none() { seq } else { NO_ENTRY };
            let begin = params![self.handler, self.key(), seq, goes];
            self.execute(SQL.order_begin, begin)?;
            return Ok(if held_back.is_none() { Joined::Due(seq) } else { Joined::Waits(seq) });
        };
        if held_back.is_some() {
            return Ok(Joined::Waits(number));
        }
        if gone == NO_ENTRY {
            if let Some(first) = first
                && first < seq
            {
                self.let_go(first, Timestamp::from_millis(i64::MIN))?;
                return Ok(Joined::Waits(number));
            }
        } else if gone < seq || !self.wait_turn(gone)? {
            return Ok(Joined::Waits(number));
        }
        self.pass_on(NO_ENTRY, seq)?;
        Ok(Joined::Due(number))
    }

    /// Records that an entry is no longer pending or running, if it was the entry that may run. The caller
    /// must then call `release`.
    pub(crate) fn leave(&self, seq: i64) -> Result<()> {
        self.pass_on(seq, NO_ENTRY)
    }

    /// Parks the entries that wait behind an entry that parks.
    pub(crate) fn park(&self, seq: i64, now: Timestamp) -> Result<()> {
        let (handler, order) = (self.handler, self.key());
        self.execute(SQL.order_park, params![handler, order, seq, now.as_millis()])?;
        self.execute(SQL.order_park_remove, params![handler, order, seq])?;
        Ok(())
    }

    /// Makes parked entries pending again if no entry parks them any more. The caller must then call
    /// `release`.
    pub(crate) fn unpark(&self) -> Result<()> {
        for sql in [SQL.order_unpark_begin, SQL.order_unpark, SQL.order_unpark_remove] {
            self.execute(sql, params![self.handler, self.key()])?;
        }
        Ok(())
    }

    /// Releases the next waiting entry, if no other entry blocks it. Deletes the line if no entry waits.
    pub(crate) fn release(&self, now: Timestamp) -> Result<()> {
        let LineState { number: Some(_), gone: NO_ENTRY, first, .. } = self.look(i64::MIN)? else {
            return Ok(());
        };
        let Some(first) = first else {
            self.execute(SQL.order_end, params![self.handler, self.key()])?;
            return Ok(());
        };
        if self.look(first)?.held_back.is_none() {
            self.let_go(first, now)?;
        }
        Ok(())
    }

    /// Pauses the line. Returns true if it was not paused before. A released entry that does not run yet
    /// waits again.
    pub(crate) fn stop(&self, now: Timestamp, line: &str) -> Result<bool> {
        let stop = params![self.handler, self.key(), now.as_millis(), line];
        let stopped = self.execute(SQL.order_stop, stop)?;
        let gone = self.look(i64::MIN)?.gone;
        if gone != NO_ENTRY {
            self.wait_turn(gone)?;
        }
        Ok(stopped == 1)
    }

    /// Resumes the line. Returns true if it was paused.
    pub(crate) fn go(&self, now: Timestamp) -> Result<bool> {
        let gone = self.execute(SQL.order_go, params![self.handler, self.key()])?;
        self.release(now)?;
        Ok(gone == 1)
    }

    /// Returns true if an operator paused the line.
    pub(crate) fn is_stopped(&self) -> Result<bool> {
        self.connection
            .prepare_cached(SQL.order_stopped)
            .and_then(|mut look| look.query_row(params![self.handler, self.key()], |row| row.get(0)))
            .map_err(store_error)
    }

    /// Releases a waiting entry in a line where no entry may run.
    fn let_go(&self, seq: i64, now: Timestamp) -> Result<()> {
        let next = params![seq, self.handler, now.as_millis()];
        if self.execute(SQL.order_let_go, next)? == 1 {
            self.pass_on(NO_ENTRY, seq)?;
        }
        Ok(())
    }

    /// Makes the released entry wait again. Returns false if it runs already.
    fn wait_turn(&self, seq: i64) -> Result<bool> {
        let back = self.execute(SQL.order_wait_turn, params![seq, self.handler])? == 1;
        if back {
            self.leave(seq)?;
        }
        Ok(back)
    }

    /// Replaces the entry that may run, if it is `from`, by `to`.
    fn pass_on(&self, from: i64, to: i64) -> Result<()> {
        let passed = params![self.handler, self.key(), to, from];
        self.execute(SQL.order_pass_on, passed)?;
        Ok(())
    }

    fn key(&self) -> &[u8] {
        &self.order.as_bytes()[..]
    }

    fn execute(&self, sql: &'static str, params: impl rusqlite::Params) -> Result<usize> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(params))
            .map_err(store_error)
    }

    /// Reads the state of the line for an entry with this number.
    fn look(&self, seq: i64) -> Result<LineState> {
        self.connection
            .prepare_cached(SQL.order_look)
            .and_then(|mut look| {
                look.query_row(params![self.handler, self.key(), seq], |row| {
                    let word = row.get_ref(0)?.as_str_or_null()?;
                    let held_back = word.and_then(InLine::from_word);
                    let gone = row.get::<_, Option<i64>>(2)?.unwrap_or(NO_ENTRY);
                    Ok(LineState { held_back, number: row.get(1)?, gone, first: row.get(3)? })
                })
            })
            .map_err(store_error)
    }
}

/// An entry of a line that ran and is finished.
pub(crate) struct FinishedEntry {
    pub(crate) handler: i64,
    pub(crate) order: OrderKey,
    pub(crate) seq: i64,
}

/// Releases the next entry of each line in which an entry ended.
pub(crate) fn release_next(connection: &Connection, ended: &[FinishedEntry], now: Timestamp) -> Result<()> {
    if ended.is_empty() {
        return Ok(());
    }
    let mut next: Vec<(i64, i64)> = Vec::with_capacity(ended.len());
    let statement = |sql| connection.prepare_cached(sql).map_err(store_error);
    let mut find = statement(SQL.order_next)?;
    let mut pass_on = statement(SQL.order_pass_on)?;
    for FinishedEntry { handler, order, seq } in ended {
        let key = &order.as_bytes()[..];
        let found: Option<(i64, bool)> = find
            .query_row(params![handler, key, seq], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .map_err(store_error)?;
        let first = found.filter(|(_, held_back)| !held_back).map(|(first, _)| first);
        pass_on.execute(params![handler, key, first.unwrap_or(NO_ENTRY), seq]).map_err(store_error)?;
        next.extend(first.map(|first| (first, *handler)));
        if found.is_none() {
            let line = OrderedEntries { connection, handler: *handler, order: *order };
            line.execute(SQL.order_end, params![handler, key])?;
        }
    }
    // Update in the order in which the entries are stored.
    next.sort_unstable();
    let mut let_go = connection.prepare_cached(SQL.order_let_go).map_err(store_error)?;
    for (seq, handler) in next {
        let_go.execute(params![seq, handler, now.as_millis()]).map_err(store_error)?;
    }
    Ok(())
}

/// Returns the order key of a stored column.
pub(crate) fn order_key(bytes: Option<Vec<u8>>) -> Result<Option<OrderKey>> {
    bytes
        .map(|bytes| {
            bytes
                .try_into()
                .map(OrderKey::from_bytes)
                .map_err(|_| corrupt("a stored order key has a wrong length"))
        })
        .transpose()
}
