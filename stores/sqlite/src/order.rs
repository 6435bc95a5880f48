//! Order: of all entries with one order key and handler, only the first may be claimed, and only while none of them
//! runs. The others are parked at a due time that never comes, so a claim does not have to look at them.

use oncebox::time::Timestamp;
use oncebox::{OrderKey, Result};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::error::{corrupt, store_error};

/// The entries of one handler and order key.
pub(crate) struct Line<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) handler: i64,
    pub(crate) order: OrderKey,
}

/// The first of them that waits.
struct Head {
    seq: i64,
    due: i64,
    not_before: i64,
}

const PARKED: i64 = i64::MAX;

impl Line<'_> {
    /// The due time for an entry that is about to join, which asked for `due`. One that waited before it and is
    /// younger steps back.
    pub(crate) fn join(&self, seq: i64, due: Timestamp) -> Result<Timestamp> {
        if self.someone_runs()? || self.poisoned_before(seq)? {
            return Ok(Timestamp::MAX);
        }
        match self.head()? {
            Some(head) if head.seq < seq => {
                self.release_head(&head, Timestamp::from_millis(i64::MIN))?;
                Ok(Timestamp::MAX)
            }
            Some(head) => {
                if head.due != PARKED {
                    self.move_to(&head, PARKED, head.due)?;
                }
                Ok(due)
            }
            None => Ok(due),
        }
    }

    /// Lets the next one go, if nothing stands in its way; says whether there is one that may go.
    pub(crate) fn release(&self, now: Timestamp) -> Result<bool> {
        if self.someone_runs()? {
            return Ok(false);
        }
        let Some(head) = self.head()? else { return Ok(false) };
        if self.poisoned_before(head.seq)? {
            return Ok(false);
        }
        self.release_head(&head, now)?;
        Ok(true)
    }

    fn release_head(&self, head: &Head, now: Timestamp) -> Result<()> {
        if head.due == PARKED {
            self.move_to(head, head.not_before.max(now.as_millis()), 0)?;
        }
        Ok(())
    }

    fn move_to(&self, head: &Head, due: i64, not_before: i64) -> Result<()> {
        self.connection
            .prepare_cached(include_str!("../sql/order/move.sql"))
            .and_then(|mut statement| {
                statement.execute(params![self.handler, head.due, head.seq, due, not_before])
            })
            .map_err(store_error)?;
        Ok(())
    }

    fn someone_runs(&self) -> Result<bool> {
        self.connection
            .prepare_cached(include_str!("../sql/order/running.sql"))
            .and_then(|mut statement| {
                statement.query_row(params![self.handler, &self.order.as_bytes()[..]], |row| row.get(0))
            })
            .map_err(store_error)
    }

    fn poisoned_before(&self, seq: i64) -> Result<bool> {
        self.connection
            .prepare_cached(include_str!("../sql/order/poisoned_before.sql"))
            .and_then(|mut statement| {
                statement.query_row(params![self.handler, &self.order.as_bytes()[..], seq], |row| row.get(0))
            })
            .map_err(store_error)
    }

    fn head(&self) -> Result<Option<Head>> {
        self.connection
            .prepare_cached(include_str!("../sql/order/head.sql"))
            .and_then(|mut statement| {
                statement
                    .query_row(params![self.handler, &self.order.as_bytes()[..]], |row| {
                        Ok(Head { seq: row.get(0)?, due: row.get(1)?, not_before: row.get(2)? })
                    })
                    .optional()
            })
            .map_err(store_error)
    }
}

/// The order key a stored column holds.
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
