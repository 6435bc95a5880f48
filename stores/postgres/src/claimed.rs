//! Reads the rows of a claim: messages, and their entries. Tests: `tests/claims.rs`.

use std::collections::HashMap;

use oncebox_core::state::{ErrorText, Outcome, Policies, Suspicion};
use oncebox_core::store::{Claim, ClaimId, ClaimParams, Claimed, RescueParams, Route, Seq, Token};
use oncebox_core::time::Timestamp;
use oncebox_core::{HandlerKey, InboxName, OrderKey, Result};
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::db::{Db, lane};
use crate::error::corrupt;
use crate::row::{self, get};
use crate::settle::settle;

/// The columns of a row. It has a message, or entries in arrays, or how many rows were leased where they lay, or all of these.
mod column {
    pub(super) const SEQ: usize = 0;
    pub(super) const DIGEST: usize = 1;
    pub(super) const RECEIVED_AT: usize = 2;
    pub(super) const MESSAGE: usize = 3;
    pub(super) const HANDLER: usize = 11;
    pub(super) const TOKEN: usize = 12;
    pub(super) const CLAIMED_AT: usize = 13;
    pub(super) const SEQS: usize = 14;
    pub(super) const DUES: usize = 15;
    pub(super) const ORDER_KEYS: usize = 16;
    pub(super) const ATTEMPTS: usize = 17;
    pub(super) const CRASHES: usize = 18;
    pub(super) const GENERATIONS: usize = 19;
    pub(super) const LEASED: usize = 20;
    /// Only in rows that a claim id reads back: healthy entries never run alone.
    pub(super) const ALONE: usize = 21;
}

/// An entry that was leased.
pub(crate) struct LeasedEntry {
    pub(crate) seq: Seq,
    pub(crate) handler: i16,
    token: Token,
    claimed_at: Timestamp,
    due: i64,
    order: Option<OrderKey>,
    /// `None` for an entry that was leased in place and never waited.
    waited: Option<WaitedState>,
}

/// State of an entry that waited before: attempts, crashes and generation.
#[derive(Clone, Copy, Default)]
struct WaitedState {
    attempts: u32,
    suspicion: Suspicion,
    generation: u32,
    alone: bool,
}

impl LeasedEntry {
    pub(crate) fn place(&self) -> (i16, i16) {
        (lane(self.seq), self.handler)
    }

    pub(crate) const fn is_untouched(&self) -> bool {
        self.waited.is_none()
    }
}

/// Claiming call: its id, and the handler names that it knows.
pub(crate) struct Caller<'a> {
    pub(crate) id: ClaimId,
    inbox: &'a InboxName,
    routes: Vec<&'a Route>,
    policies: &'a Policies,
}

impl<'a> Caller<'a> {
    pub(crate) fn of_claim(params: &'a ClaimParams) -> Self {
        let ClaimParams { claim_id, inbox, wants, policies, .. } = params;
        Self { id: *claim_id, inbox, routes: wants.iter().map(|want| &want.route).collect(), policies }
    }

    pub(crate) fn of_rescue(params: &'a RescueParams) -> Self {
        let RescueParams { claim_id, inbox, routes, policies, .. } = params;
        Self { id: *claim_id, inbox, routes: routes.iter().collect(), policies }
    }

    /// Returns the inbox of a handler, the key that the caller knows, and the origin.
    async fn named(&self, db: &Db, handler: i16) -> Result<(InboxName, HandlerKey, HandlerKey)> {
        let (name, found) = db.by_handler(handler).await?;
        let known = match db.known_inbox(self.inbox).await? {
            Some(inbox) => db.key_in(inbox, &self.routes, handler),
            None => None,
        };
        Ok((name, known.unwrap_or(found.key), found.origin))
    }
}

/// Rows of one or several claim statements.
#[derive(Default)]
pub(crate) struct ClaimRows {
    pub(crate) entries: Vec<LeasedEntry>,
    messages: Vec<PgRow>,
    /// Number of rows leased in place. `None` if the claim id already held entries, or if the statement only read them.
    leased: Option<i64>,
}

impl ClaimRows {
    pub(crate) fn read(rows: Vec<PgRow>) -> Result<Self> {
        let mut answer = Self { messages: Vec::with_capacity(rows.len()), ..Self::default() };
        for row in rows {
            if let Some(seqs) = get::<Option<Vec<i64>>>(&row, column::SEQS)? {
                answer.add(&row, seqs)?;
            }
            if let Some(leased) = get::<Option<i64>>(&row, column::LEASED)? {
                *answer.leased.get_or_insert(0) += leased;
            }
            if get::<Option<i64>>(&row, column::SEQ)?.is_some() {
                answer.messages.push(row);
            }
        }
        Ok(answer)
    }

    fn add(&mut self, row: &PgRow, seqs: Vec<i64>) -> Result<()> {
        let handler = get(row, column::HANDLER)?;
        let token = Token(get(row, column::TOKEN)?);
        let claimed_at = Timestamp::from_millis(get(row, column::CLAIMED_AT)?);
        let dues: Vec<i64> = get(row, column::DUES)?;
        let order_keys: Vec<Option<Vec<u8>>> = get(row, column::ORDER_KEYS)?;
        let waited = waited(row)?;
        let as_many = dues.len() == seqs.len() && order_keys.len() == seqs.len();
        if !as_many || waited.as_ref().is_some_and(|waited| waited.len() != seqs.len()) {
            return Err(corrupt("the entries of a claim are not as many as their times"));
        }
        let found = seqs.into_iter().zip(dues).zip(order_keys).enumerate();
        for (at, ((seq, due), order)) in found {
            let order = order.as_deref().map(row::order_key).transpose()?;
            let waited = waited.as_ref().map(|waited| waited[at]);
            self.entries.push(LeasedEntry { seq: Seq(seq), handler, token, claimed_at, due, order, waited });
        }
        Ok(())
    }

    /// Returns true if the rows are all that the claim id holds. They are not if the id held entries before, or if another
    /// transaction changed a row between find and lease.
    pub(crate) fn is_all(&self) -> bool {
        let untouched = self.entries.iter().filter(|entry| entry.is_untouched()).count();
        self.leased.is_some_and(|leased| usize::try_from(leased) == Ok(untouched))
    }

    /// Adds the rows of the claim's next statement.
    pub(crate) fn extend(&mut self, other: Self) {
        self.entries.extend(other.entries);
        self.messages.extend(other.messages);
    }

    /// Returns the claims, oldest due first. Rejects an entry with an unreadable message: it must not delay the others.
    pub(crate) async fn claimed(mut self, db: &Db, caller: &Caller<'_>) -> Result<Vec<Claimed>> {
        let Caller { id, policies, .. } = *caller;
        debug_assert!(self.messages.len() <= self.entries.len(), "messages of others were read");
        self.entries.sort_unstable_by_key(|entry| (entry.due, entry.seq));
        let mut rows = HashMap::with_capacity(self.messages.len());
        for row in &self.messages {
            rows.insert(get::<i64>(row, column::SEQ)?, row);
        }
        let (mut claimed, mut damaged) = (Vec::with_capacity(self.entries.len()), Vec::new());
        let mut names = HashMap::new();
        for entry in &self.entries {
            if let std::collections::hash_map::Entry::Vacant(vacant) = names.entry(entry.handler) {
                vacant.insert(caller.named(db, entry.handler).await?);
            }
            let (inbox, handler, origin) = &names[&entry.handler];
            let (row, waited) = (rows.get(&entry.seq.0).copied(), entry.waited.unwrap_or_default());
            let row_of = || row.ok_or_else(|| corrupt("it is not there"));
            let (key, message) = (
                row_of().and_then(|row| row::key(row, column::DIGEST)),
                row_of().and_then(|row| row::message(row, column::MESSAGE)),
            );
            let received_at = row.map_or(Ok(0), |row| get(row, column::RECEIVED_AT))?;
            let claim = Claim {
                inbox: inbox.clone(),
                seq: entry.seq,
                handler: handler.clone(),
                origin: origin.clone(),
                key: key.as_ref().map_or_else(|_| no_key(), |key| *key),
                token: entry.token,
                claim_id: id,
                attempts: waited.attempts,
                suspicion: waited.suspicion,
                alone: waited.alone,
                generation: waited.generation,
                order: entry.order,
                received_at: Timestamp::from_millis(received_at),
                claimed_at: entry.claimed_at,
            };
            match key.and(message) {
                Ok(message) => claimed.push(Claimed { claim, message }),
                Err(error) => {
                    tracing::error!(seq = claim.seq.0, %error, "a stored message is damaged");
                    let error = ErrorText::new(format!("the stored message is damaged: {}", error.what()));
                    damaged.push(claim.settle(&policies.of(&claim.handler), Outcome::Reject { error }));
                }
            }
        }
        db.timeline.given(&claimed);
        if !damaged.is_empty() {
            settle(db, &damaged).await?;
        }
        Ok(claimed)
    }
}

/// Reads the state of a row's entries. Returns `None` if the row was leased in place, and a state for every row
/// that a claim id reads back.
fn waited(row: &PgRow) -> Result<Option<Vec<WaitedState>>> {
    let Some(attempts) = get::<Option<Vec<i32>>>(row, column::ATTEMPTS)? else { return Ok(None) };
    let crashes: Vec<i32> = get(row, column::CRASHES)?;
    let generations: Vec<i32> = get(row, column::GENERATIONS)?;
    let alone: Option<bool> = if row.len() > column::ALONE { get(row, column::ALONE)? } else { None };
    let counts = attempts.into_iter().zip(crashes).zip(generations);
    let waited = |((attempts, crashes), generation): ((i32, i32), i32)| WaitedState {
        attempts: attempts.unsigned_abs(),
        suspicion: Suspicion::from_stored(crashes.unsigned_abs()),
        generation: generation.unsigned_abs(),
        alone: alone.unwrap_or(false),
    };
    Ok(Some(counts.map(waited).collect()))
}

/// Returns a placeholder for the key of an unreadable message.
fn no_key() -> oncebox_core::Key {
    oncebox_core::Key::from_bytes([0; 32])
}
