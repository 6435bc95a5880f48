//! Accept inside a transaction of the memory store. Tests: `conformance/accept_in.rs` in `oncebox-testkit`.

use std::collections::HashSet;
use std::sync::Arc;

use super::tables::{InboxTables, MemoryTables};
use super::{Memory, MemoryTx};
use crate::error::{Error, ErrorKind, Result};
use crate::key::{Fingerprint, Key, OrderKey};
use crate::name::HandlerKey;
use crate::store::{AcceptIn, Accepted, KnownMessage, NewMessage, QuarantineReason, Route, Seq};
use crate::time::Timestamp;

/// Messages that a transaction accepted and has not committed.
#[derive(Default)]
pub(super) struct StagedAccepts {
    accepts: Vec<StagedAccept>,
}

/// One accepted message.
struct StagedAccept {
    new: NewMessage,
    answer: Accepted,
    /// Handlers that get an entry at the commit.
    handlers: Vec<HandlerKey>,
    /// Ordering key that no other transaction may use until this one ends.
    order: Option<OrderKey>,
}

/// Keys and ordering keys of an inbox that open transactions use.
#[derive(Default)]
pub(super) struct ReservedKeys {
    keys: HashSet<Key>,
    orders: HashSet<OrderKey>,
}

impl ReservedKeys {
    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }
}

/// The message under a key, stored or accepted in the transaction.
struct StoredUnder {
    seq: Seq,
    fingerprint: Fingerprint,
    received_at: Timestamp,
    order: Option<OrderKey>,
    covered: Vec<HandlerKey>,
}

impl StagedAccepts {
    pub(super) fn len(&self) -> usize {
        self.accepts.len()
    }

    /// Undoes all but the first `kept`.
    pub(super) fn truncate(&mut self, tables: &mut MemoryTables, kept: usize) {
        for undone in self.accepts.drain(kept.min(self.accepts.len())..).rev() {
            // Another one of the transaction may have reserved the same: the last of them to go lets it go.
            undone.release(tables);
        }
        for left in &self.accepts {
            left.reserve(tables);
        }
    }

    /// Stores everything.
    pub(super) fn commit(&mut self, tables: &mut MemoryTables, now: Timestamp) {
        for staged in std::mem::take(&mut self.accepts) {
            staged.release(tables);
            let scope = tables.scope(&staged.new.inbox);
            match staged.answer {
                // A sweep may have removed a known message since.
                Accepted::First(seq) | Accepted::HandlersAdded(seq, _) => {
                    if !scope.messages.contains_key(&seq) {
                        scope.store(seq, &staged.new, now);
                    }
                    scope.add_entries(seq, &staged.new, now);
                }
                Accepted::Conflict(_) => scope.quarantine(&staged.new, QuarantineReason::Conflict, now),
                Accepted::Stale => scope.quarantine(&staged.new, QuarantineReason::Stale, now),
                _ => {}
            }
        }
    }

    /// Accepts one message, as far as other transactions allow.
    fn add(&mut self, tables: &mut MemoryTables, new: &NewMessage, now: Timestamp) -> Result<Accepted> {
        let scope = tables.scope(&new.inbox);
        for route in new.routes.iter() {
            scope.names.link(route);
        }
        let own = |staged: &&StagedAccept| staged.new.inbox == new.inbox && staged.new.key == new.key;
        if scope.reserved.keys.contains(&new.key) && !self.accepts.iter().any(|staged| own(&staged)) {
            return Err(held());
        }
        let known = self.known(scope, new, now);
        if let Some(known) = &known
            && known.fingerprint.is_erased()
        {
            return Ok(Accepted::Duplicate(KnownMessage::new(known.seq, now.since(known.received_at))));
        }
        let missing = scope.missing(new, known.as_ref().map_or(&[], |known| &known.covered));
        let stale = new.doubtful_since().zip(scope.forgotten_by(new, known.is_some(), &missing));
        let stale = stale.is_some_and(|(time, mark)| time <= mark);
        let answer = match &known {
            Some(known) if new.conflicts_with(&known.fingerprint) => Accepted::Conflict(known.seq),
            _ if stale => Accepted::Stale,
            None => Accepted::First(tables.next_seq()),
            Some(known) if missing.is_empty() => {
                let (age, varied) = (now.since(known.received_at), known.fingerprint != new.fingerprint);
                return Ok(Accepted::Duplicate(KnownMessage::new(known.seq, age).varied(varied)));
            }
            Some(known) => Accepted::HandlersAdded(known.seq, missing.len()),
        };
        let order = match answer {
            Accepted::First(_) => new.order,
            Accepted::HandlersAdded(..) => known.and_then(|known| known.order),
            _ => None,
        };
        let scope = tables.scope(&new.inbox);
        let own_order = |key: &OrderKey| self.accepts.iter().any(|staged| staged.order.as_ref() == Some(key));
        if order.is_some_and(|key| scope.reserved.orders.contains(&key) && !own_order(&key)) {
            return Err(held());
        }
        let staged = StagedAccept { new: new.clone(), answer, handlers: missing, order };
        staged.reserve(tables);
        self.accepts.push(staged);
        Ok(answer)
    }

    /// Returns what is stored under the key, or staged in this transaction.
    fn known(&self, scope: &InboxTables, new: &NewMessage, now: Timestamp) -> Option<StoredUnder> {
        let mut known = scope.keys.get(&new.key).and_then(|seq| Some((*seq, scope.messages.get(seq)?))).map(
            |(seq, stored)| StoredUnder {
                seq,
                fingerprint: stored.fingerprint,
                received_at: stored.received_at,
                order: stored.order,
                covered: stored.entries.keys().cloned().collect(),
            },
        );
        let own = self.accepts.iter().filter(|one| one.new.inbox == new.inbox && one.new.key == new.key);
        for staged in own {
            match (staged.answer, &mut known) {
                (Accepted::First(seq), None) => {
                    known = Some(StoredUnder {
                        seq,
                        fingerprint: staged.new.fingerprint,
                        received_at: now,
                        order: staged.new.order,
                        covered: staged.handlers.clone(),
                    });
                }
                (Accepted::HandlersAdded(..), Some(known)) => {
                    known.covered.extend_from_slice(&staged.handlers);
                }
                _ => {}
            }
        }
        known
    }
}

impl StagedAccept {
    /// Returns true if the commit writes to the message of the key.
    fn reserves(&self) -> bool {
        matches!(self.answer, Accepted::First(_) | Accepted::HandlersAdded(..))
    }

    fn reserve(&self, tables: &mut MemoryTables) {
        if self.reserves() {
            let reserved = &mut tables.scope(&self.new.inbox).reserved;
            reserved.keys.insert(self.new.key);
            reserved.orders.extend(self.order);
        }
    }

    fn release(&self, tables: &mut MemoryTables) {
        if self.reserves() {
            let reserved = &mut tables.scope(&self.new.inbox).reserved;
            reserved.keys.remove(&self.new.key);
            if let Some(order) = &self.order {
                reserved.orders.remove(order);
            }
        }
    }
}

impl MemoryTables {
    /// Refuses a batch that an open transaction has to end for.
    pub(super) fn check_reserved(&self, batch: &[NewMessage]) -> Result<()> {
        let reserved = |new: &NewMessage| {
            self.scopes.get(&new.inbox).is_some_and(|scope| {
                scope.reserved.keys.contains(&new.key)
                    || new.order.is_some_and(|order| scope.reserved.orders.contains(&order))
            })
        };
        if batch.iter().any(reserved) { Err(held()) } else { Ok(()) }
    }
}

impl InboxTables {
    /// Returns the handlers of the message that have no entry.
    fn missing(&mut self, new: &NewMessage, covered: &[HandlerKey]) -> Vec<HandlerKey> {
        let mut missing: Vec<HandlerKey> = Vec::new();
        for route in new.routes.iter() {
            let handler = self.names.link(route).swap_remove(0);
            let has_entry = |handler: &HandlerKey| covered.contains(handler) || missing.contains(handler);
            if !has_entry(&handler) && !self.names.group(route).iter().any(has_entry) {
                missing.push(handler);
            }
        }
        missing
    }

    /// Returns the watermark of the missing handlers, or that of the inbox for a new message without handlers.
    fn forgotten_by(&self, new: &NewMessage, known: bool, missing: &[HandlerKey]) -> Option<Timestamp> {
        if new.routes.is_empty() {
            return self.watermark.filter(|_| !known);
        }
        let of = |route: &&Route| self.names.group(route).iter().any(|handler| missing.contains(handler));
        let handlers = new.routes.iter().filter(of).flat_map(|route| self.names.group(route));
        handlers.filter_map(|handler| self.watermarks.get(&handler).copied()).max()
    }
}

fn held() -> Error {
    let what = "an open transaction accepts a message under the same key or ordering key; nothing was stored; try again when it has ended";
    Error::new(ErrorKind::Unavailable, what)
}

impl AcceptIn<MemoryTx> for Memory {
    async fn accept_in(&self, tx: &mut MemoryTx, batch: &[NewMessage]) -> Result<Vec<Accepted>> {
        tx.is_of(self)?;
        let shared = Arc::clone(&self.shared);
        let mut tables = shared.tables.lock();
        let now = shared.clock.now();
        tables.check_room(batch)?;
        let before = tx.staged.len();
        let accepted: Result<Vec<Accepted>> =
            batch.iter().map(|new| tx.staged.add(&mut tables, new, now)).collect();
        if accepted.is_err() {
            tx.staged.truncate(&mut tables, before);
        }
        accepted
    }
}
