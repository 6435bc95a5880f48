//! Settle, renew and complete: every write after a claim, under its fence. Tests: `tests/batch.rs`.

use oncebox_core::state::{InLine, NextState, Settlement, Status};
use oncebox_core::store::{Claim, RenewParams, Renewed, Settled};
use oncebox_core::time::Timestamp;
use oncebox_core::{OrderKey, Result};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::entry::Pending;
use crate::error::store_error;
use crate::history;
use crate::order::{FinishedEntry, OrderedEntries, order_key, release_next};
use crate::sql::SQL;
use crate::writer::WriteTx;

pub(crate) fn settle(work: &mut WriteTx<'_>, batch: &[Settlement]) -> Result<Vec<Settled>> {
    let mut ended = Vec::new();
    let settled =
        batch.iter().map(|settlement| settle_one(work, settlement, &mut ended)).collect::<Result<_>>()?;
    // Release the followers of all entries at once: no two entries of a line run, so none of them waits for another.
    release_next(work.connection, &ended, work.now)?;
    Ok(settled)
}

fn settle_one(
    work: &mut WriteTx<'_>,
    settlement: &Settlement,
    ended: &mut Vec<FinishedEntry>,
) -> Result<Settled> {
    let claim = &settlement.claim;
    let inbox = work.names.known_inbox(&claim.inbox);
    let Some(handler) = inbox.and_then(|inbox| work.names.known_handler(inbox.id, &claim.handler)) else {
        return Ok(Settled::LeaseLost);
    };
    let fenced = Fenced { connection: work.connection, claim, handler, now: work.now };
    let (settled, woke) = fenced.settle(settlement, ended)?;
    *work.wake |= woke;
    // Recognize the repeat of a settlement whose answer was lost. A handler's own transaction never counts as a repeat:
    // it holds writes that must not be applied twice.
    if settled == Settled::LeaseLost && fenced.settled_by(settlement.next.status())? {
        return Ok(Settled::Applied);
    }
    Ok(settled)
}

pub(crate) fn renew(work: &mut WriteTx<'_>, params: &RenewParams) -> Result<Vec<Renewed>> {
    let lease_until = work.now.after(params.lease).as_millis();
    let mut renewed = Vec::with_capacity(params.claims.len());
    for claim in &params.claims {
        let inbox = work.names.known_inbox(&claim.inbox);
        let handler = inbox.and_then(|inbox| work.names.known_handler(inbox.id, &claim.handler));
        let count = work
            .statement(SQL.renew)?
            .execute(params![
                &claim.claim_id.as_bytes()[..],
                claim.seq.0,
                handler,
                claim.token.0,
                lease_until,
                claim.alone
            ])
            .map_err(store_error)?;
        renewed.push(if count == 1 { Renewed::Extended } else { Renewed::LeaseLost });
    }
    Ok(renewed)
}

/// Completes a claim in the open transaction of a handler's connection.
pub(crate) fn complete(connection: &Connection, claim: &Claim, now: Timestamp) -> Result<Settled> {
    let Some(handler) = handler_id(connection, claim)? else { return Ok(Settled::LeaseLost) };
    let mut ended = Vec::new();
    let (settled, _) =
        Fenced { connection, claim, handler, now }.settle(&Settlement::done(claim), &mut ended)?;
    release_next(connection, &ended, now)?;
    Ok(settled)
}

/// Checks that a claim holds. On a connection with a write transaction, it then holds until the transaction ends.
pub(crate) fn holds(connection: &Connection, claim: &Claim) -> Result<Settled> {
    let Some(handler) = handler_id(connection, claim)? else { return Ok(Settled::LeaseLost) };
    let fence = params![&claim.claim_id.as_bytes()[..], claim.seq.0, handler, claim.token.0];
    let holds: bool = connection
        .prepare_cached(SQL.share_hold)
        .and_then(|mut find| find.query_row(fence, |row| row.get(0)))
        .map_err(store_error)?;
    Ok(if holds { Settled::Applied } else { Settled::LeaseLost })
}

fn handler_id(connection: &Connection, claim: &Claim) -> Result<Option<i64>> {
    connection
        .prepare_cached(SQL.settle_handler_id)
        .and_then(|mut find| {
            find.query_row(params![claim.inbox.as_str(), claim.handler.as_str()], |row| row.get(0)).optional()
        })
        .map_err(store_error)
}

/// A claim, for writes under its fence.
struct Fenced<'a> {
    connection: &'a Connection,
    claim: &'a Claim,
    handler: i64,
    now: Timestamp,
}

impl Fenced<'_> {
    fn execute(&self, sql: &'static str, params: impl rusqlite::Params) -> Result<usize> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(params))
            .map_err(store_error)
    }

    /// Writes the settlement if the claim holds. The second value is true if an entry became claimable. The caller must
    /// release the followers of the `ended` entries.
    fn settle(&self, settlement: &Settlement, ended: &mut Vec<FinishedEntry>) -> Result<(Settled, bool)> {
        let claim = self.claim;
        if !matches!(settlement.next, NextState::Pending { .. } | NextState::Poisoned { .. }) {
            return self.end(settlement, ended);
        }
        let carried = self.carried()?;
        if !self.leave()? {
            return Ok((Settled::LeaseLost, false));
        }
        history::remember(self.connection, self.handler, settlement, self.now)?;
        let line = carried.order.map(|order| OrderedEntries {
            connection: self.connection,
            handler: self.handler,
            order,
        });
        if let Some(line) = &line {
            line.leave(claim.seq.0)?;
        }
        let mut woke = line.is_some();
        match settlement.next {
            NextState::Pending { delay } => {
                self.pending(settlement, &carried, self.now.after(delay))?;
                woke = true;
            }
            NextState::Poisoned { reason } => self.poisoned(settlement, &carried, reason.as_str())?,
            _ => {}
        }
        if let Some(line) = line {
            if settlement.in_line == Some(InLine::Parks) {
                line.park(claim.seq.0, self.now)?;
            }
            line.release(self.now)?;
        }
        Ok((Settled::Applied, woke))
    }

    /// Writes a settlement that ends the entry.
    fn end(&self, settlement: &Settlement, ended: &mut Vec<FinishedEntry>) -> Result<(Settled, bool)> {
        let claim = self.claim;
        if !self.outcome(settlement)? || !self.leave()? {
            return Ok((Settled::LeaseLost, false));
        }
        history::remember(self.connection, self.handler, settlement, self.now)?;
        ended.extend(claim.order.map(|order| FinishedEntry {
            handler: self.handler,
            order,
            seq: claim.seq.0,
        }));
        // The next entry of the line, or one that waits under another key of the handler, became claimable.
        Ok((Settled::Applied, claim.order.is_some()))
    }

    /// Deletes the claim's row, if the claim still holds.
    fn leave(&self) -> Result<bool> {
        let claim = self.claim;
        let left = self.execute(
            SQL.settle_finish,
            params![&claim.claim_id.as_bytes()[..], claim.seq.0, self.handler, claim.token.0],
        )?;
        Ok(left > 0)
    }

    fn carried(&self) -> Result<Carried> {
        let row: Option<(Option<Vec<u8>>, Option<String>)> = self
            .connection
            .prepare_cached(SQL.settle_carried)
            .and_then(|mut statement| {
                let claim = self.claim;
                statement
                    .query_row(
                        params![&claim.claim_id.as_bytes()[..], claim.seq.0, self.handler, claim.token.0],
                        |row| Ok((row.get(0)?, row.get(1)?)),
                    )
                    .optional()
            })
            .map_err(store_error)?;
        let (order, error) = row.unwrap_or_default();
        Ok(Carried { order: order_key(order)?, error })
    }

    /// Returns true if this claim brought the entry to `status` before.
    fn settled_by(&self, status: Status) -> Result<bool> {
        self.connection
            .prepare_cached(SQL.settle_settled_by)
            .and_then(|mut statement| {
                let claim = self.claim;
                statement
                    .query_row(params![claim.seq.0, self.handler, claim.token.0, status.as_str()], |row| {
                        row.get(0)
                    })
            })
            .map_err(store_error)
    }

    fn pending(&self, settlement: &Settlement, carried: &Carried, due: Timestamp) -> Result<()> {
        Pending {
            handler: self.handler,
            seq: self.claim.seq.0,
            due,
            now: self.now,
            attempts: settlement.attempts,
            crashes: settlement.suspicion.stored(),
            generation: self.claim.generation,
            token: self.claim.token.0,
            order: carried.order,
            error: carried.text(settlement),
        }
        .insert(self.connection)
    }

    fn poisoned(&self, settlement: &Settlement, carried: &Carried, reason: &str) -> Result<()> {
        let in_line = carried.order.map(|_| settlement.in_line.unwrap_or(InLine::Blocks).as_str());
        self.execute(
            SQL.settle_poisoned,
            params![
                self.claim.seq.0,
                self.handler,
                self.claim.generation,
                self.claim.token.0,
                self.now.as_millis(),
                settlement.attempts,
                settlement.suspicion.stored(),
                reason,
                carried.order.as_ref().map(|order| &order.as_bytes()[..]),
                in_line,
                0,
                carried.text(settlement),
            ],
        )?;
        Ok(())
    }

    /// Writes the outcome, if the claim still holds.
    fn outcome(&self, settlement: &Settlement) -> Result<bool> {
        let claim = self.claim;
        let written = self.execute(
            SQL.settle_outcome,
            params![
                &claim.claim_id.as_bytes()[..],
                claim.seq.0,
                self.handler,
                claim.token.0,
                settlement.next.status().as_str(),
                self.now.as_millis(),
                settlement.attempts,
                settlement.suspicion.stored(),
                settlement.error.as_ref().map(oncebox_core::state::ErrorText::as_str),
            ],
        )?;
        Ok(written > 0)
    }
}

/// State that an entry keeps when its running row is settled.
struct Carried {
    order: Option<OrderKey>,
    error: Option<String>,
}

impl Carried {
    /// Returns the handler's last error, of this run or an earlier one.
    fn text<'a>(&'a self, settlement: &'a Settlement) -> Option<&'a str> {
        settlement.error.as_ref().map(oncebox_core::state::ErrorText::as_str).or(self.error.as_deref())
    }
}
