//! Pending entries: the one place that adds them.

use oncebox::time::Timestamp;
use oncebox::{OrderKey, Result};
use rusqlite::{Connection, params};

use crate::error::store_error;
use crate::order::Line;

/// An entry on its way to being pending.
pub(crate) struct Pending<'a> {
    pub(crate) handler: i64,
    pub(crate) seq: i64,
    pub(crate) due: Timestamp,
    pub(crate) attempts: u32,
    pub(crate) crashes: u32,
    pub(crate) generation: u32,
    pub(crate) token: i64,
    pub(crate) order: Option<OrderKey>,
    pub(crate) error: Option<&'a str>,
}

impl Pending<'_> {
    /// An entry that was never tried.
    pub(crate) fn fresh(handler: i64, seq: i64, due: Timestamp, order: Option<OrderKey>) -> Self {
        Self { handler, seq, due, attempts: 0, crashes: 0, generation: 0, token: 0, order, error: None }
    }

    /// Adds it; returns when it is due, which is never while it waits behind another one.
    pub(crate) fn insert(&self, connection: &Connection) -> Result<Timestamp> {
        let due = match self.order {
            Some(order) => Line { connection, handler: self.handler, order }.join(self.seq, self.due)?,
            None => self.due,
        };
        let not_before = if due == self.due { 0 } else { self.due.as_millis() };
        connection
            .prepare_cached(include_str!("../sql/settle/pending.sql"))
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
                ])
            })
            .map_err(store_error)?;
        Ok(due)
    }
}
