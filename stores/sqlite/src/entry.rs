//! Inserts pending entries; no other module does. Tests: `tests/order.rs`, the testkit's conformance suite.

use oncebox_core::state::{InLine, PoisonReason};
use oncebox_core::time::Timestamp;
use oncebox_core::{OrderKey, Result};
use rusqlite::{Connection, params};

use crate::error::store_error;
use crate::order::{self, Joined, OrderedEntries};
use crate::sql::SQL;

/// An entry that becomes pending.
pub(crate) struct Pending<'a> {
    pub(crate) handler: i64,
    pub(crate) seq: i64,
    pub(crate) due: Timestamp,
    pub(crate) now: Timestamp,
    pub(crate) attempts: u32,
    pub(crate) crashes: u32,
    pub(crate) generation: u32,
    pub(crate) token: i64,
    pub(crate) order: Option<OrderKey>,
    pub(crate) error: Option<&'a str>,
}

impl Pending<'_> {
    /// Returns an entry that no handler has tried.
    pub(crate) fn fresh(
        handler: i64,
        seq: i64,
        (due, now): (Timestamp, Timestamp),
        order: Option<OrderKey>,
    ) -> Self {
        Self { handler, seq, due, now, attempts: 0, crashes: 0, generation: 0, token: 0, order, error: None }
    }

    /// Inserts the entry: claimable, waiting behind another one, or parked behind an earlier one that parks.
    pub(crate) fn insert(&self, connection: &Connection) -> Result<()> {
        let (due, not_before, line) = match self.order {
            None => (self.due, 0, None),
            Some(order) => {
                match (OrderedEntries { connection, handler: self.handler, order }).join(self.seq)? {
                    // Waiting entries have the last of all times.
                    Joined::Due(line) => (self.due.min(order::LAST_DUE), 0, Some(line)),
                    Joined::Waits(line) => (Timestamp::MAX, self.due.as_millis(), Some(line)),
                    Joined::Parked => return self.park(connection),
                }
            }
        };
        connection
            .prepare_cached(SQL.settle_pending)
            .and_then(|mut statement| {
                statement.execute(params![
                    self.handler,
                    due.as_millis(),
                    self.seq,
                    not_before,
                    self.attempts,
                    self.crashes,
                    self.generation,
                    self.token,
                    self.order.as_ref().map(|order| &order.as_bytes()[..]),
                    self.error,
                    line,
                ])
            })
            .map_err(store_error)?;
        Ok(())
    }

    fn park(&self, connection: &Connection) -> Result<()> {
        connection
            .prepare_cached(SQL.settle_poisoned)
            .and_then(|mut statement| {
                statement.execute(params![
                    self.seq,
                    self.handler,
                    self.generation,
                    self.token,
                    self.now.as_millis(),
                    self.attempts,
                    self.crashes,
                    PoisonReason::Parked.as_str(),
                    self.order.as_ref().map(|order| &order.as_bytes()[..]),
                    InLine::Parked.as_str(),
                    self.due.as_millis(),
                    self.error,
                ])
            })
            .map_err(store_error)?;
        Ok(())
    }
}
