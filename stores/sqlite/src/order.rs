//! Order: of all entries with one order key and handler, only the first may be claimed, and only while none of them
//! runs. The others wait at a due time that never comes, so a claim does not have to look at them.

use oncebox::state::InLine;
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

/// The due time of those that wait behind another one.
const WAITING: i64 = i64::MAX;

/// What becomes of an entry that joins a line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joined {
    /// It is the first: it may be claimed when it is due.
    Due,
    /// Another one goes first.
    Waits,
    /// It is set aside with one that parks.
    Parked,
}

impl Line<'_> {
    /// The place of an entry that is about to join. One that waited before it and is younger steps back.
    pub(crate) fn join(&self, seq: i64) -> Result<Joined> {
        match self.held_back_by(seq)? {
            Some(InLine::Parks) => return Ok(Joined::Parked),
            Some(_) => return Ok(Joined::Waits),
            None if self.someone_runs()? => return Ok(Joined::Waits),
            None => {}
        }
        match self.head()? {
            Some(head) if head.seq < seq => {
                self.release_head(&head, Timestamp::from_millis(i64::MIN))?;
                Ok(Joined::Waits)
            }
            Some(head) => {
                if head.due != WAITING {
                    self.move_to(&head, WAITING, head.due)?;
                }
                Ok(Joined::Due)
            }
            None => Ok(Joined::Due),
        }
    }

    /// Sets aside those that wait behind an entry that parks.
    pub(crate) fn park(&self, seq: i64, now: Timestamp) -> Result<()> {
        let (handler, order) = (self.handler, &self.order.as_bytes()[..]);
        self.execute(include_str!("../sql/order/park.sql"), params![handler, order, seq, now.as_millis()])?;
        self.execute(include_str!("../sql/order/park_remove.sql"), params![handler, order, seq])
    }

    /// Makes those pending again that nothing parks any more.
    pub(crate) fn unpark(&self) -> Result<()> {
        for sql in [include_str!("../sql/order/unpark.sql"), include_str!("../sql/order/unpark_remove.sql")] {
            self.execute(sql, params![self.handler, &self.order.as_bytes()[..]])?;
        }
        Ok(())
    }

    /// Lets the next one go, if nothing stands in its way.
    pub(crate) fn release(&self, now: Timestamp) -> Result<()> {
        if self.someone_runs()? {
            return Ok(());
        }
        self.release_next(now)
    }

    /// The same, for whoever has just ended the one that ran: then none does.
    pub(crate) fn release_next(&self, now: Timestamp) -> Result<()> {
        let next = params![self.handler, &self.order.as_bytes()[..], now.as_millis()];
        self.execute(include_str!("../sql/order/release.sql"), next)
    }

    /// Holds the line back; says whether it was not before. Who was let go and does not run waits again.
    pub(crate) fn stop(&self, now: Timestamp, line: &str) -> Result<bool> {
        let stopped = self
            .connection
            .prepare_cached(include_str!("../sql/order/stop.sql"))
            .and_then(|mut stop| {
                stop.execute(params![self.handler, &self.order.as_bytes()[..], now.as_millis(), line])
            })
            .map_err(store_error)?;
        if let Some(head) = self.head()?
            && head.due != WAITING
        {
            self.move_to(&head, WAITING, head.due)?;
        }
        Ok(stopped == 1)
    }

    /// Lets the line go on; says whether it was held back.
    pub(crate) fn go(&self, now: Timestamp) -> Result<bool> {
        let gone = self
            .connection
            .prepare_cached(include_str!("../sql/order/go.sql"))
            .and_then(|mut go| go.execute(params![self.handler, &self.order.as_bytes()[..]]))
            .map_err(store_error)?;
        self.release(now)?;
        Ok(gone == 1)
    }

    /// Whether an operator holds the line back.
    pub(crate) fn is_stopped(&self) -> Result<bool> {
        self.connection
            .prepare_cached(include_str!("../sql/order/stopped.sql"))
            .and_then(|mut look| {
                look.query_row(params![self.handler, &self.order.as_bytes()[..]], |row| row.get(0))
            })
            .map_err(store_error)
    }

    fn release_head(&self, head: &Head, now: Timestamp) -> Result<()> {
        if head.due == WAITING {
            self.move_to(head, head.not_before.max(now.as_millis()), 0)?;
        }
        Ok(())
    }

    fn move_to(&self, head: &Head, due: i64, not_before: i64) -> Result<()> {
        let moved = params![self.handler, head.due, head.seq, due, not_before];
        self.execute(include_str!("../sql/order/move.sql"), moved)
    }

    fn execute(&self, sql: &'static str, params: impl rusqlite::Params) -> Result<()> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(params))
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

    /// What a poisoned one before the entry is to it.
    fn held_back_by(&self, seq: i64) -> Result<Option<InLine>> {
        let word: Option<String> = self
            .connection
            .prepare_cached(include_str!("../sql/order/poisoned_before.sql"))
            .and_then(|mut statement| {
                statement.query_row(params![self.handler, &self.order.as_bytes()[..], seq], |row| row.get(0))
            })
            .map_err(store_error)?;
        Ok(word.and_then(|word| InLine::from_word(&word)))
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
