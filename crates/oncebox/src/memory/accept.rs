//! Accept in the memory store: each message once per key, with one pending entry per handler.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::tables::{InboxTables, MemoryEntry, MemoryMessage, MemoryTables, QuarantinedMessage};
use crate::error::{Error, ErrorKind, Result};
use crate::key::Fingerprint;
use crate::store::{Accepted, KnownMessage, NewMessage, QuarantineId, QuarantineReason, Route, Seq};
use crate::time::Timestamp;

/// Relation of an offered message to the inbox.
enum Arrival {
    New,
    Known,
    Quarantined(QuarantineReason),
}

/// Decides the relation of a message to the inbox. `known` is the fingerprint stored under its key. `forgotten` is the watermark of
/// its missing handlers.
fn arrival(new: &NewMessage, known: Option<Fingerprint>, forgotten: Option<Timestamp>) -> Arrival {
    // A message as old as the watermark may be one that a sweep removed.
    let stale = new.doubtful_since().zip(forgotten).is_some_and(|(time, mark)| time <= mark);
    match known {
        Some(known) if known.is_erased() => Arrival::Known,
        Some(known) if new.conflicts_with(&known) => Arrival::Quarantined(QuarantineReason::Conflict),
        _ if stale => Arrival::Quarantined(QuarantineReason::Stale),
        Some(_) => Arrival::Known,
        None => Arrival::New,
    }
}

impl MemoryTables {
    pub(super) fn accept(&mut self, batch: &[NewMessage], now: Timestamp) -> Result<Vec<Accepted>> {
        self.check_reserved(batch)?;
        self.check_room(batch)?;
        Ok(batch.iter().map(|new| self.accept_one(new, now)).collect())
    }

    fn accept_one(&mut self, new: &NewMessage, now: Timestamp) -> Accepted {
        let scope = self.scope(&new.inbox);
        for route in new.routes.iter() {
            scope.names.link(route);
        }
        let known = scope.keys.get(&new.key).copied();
        match (arrival(new, scope.fingerprint(new), scope.forgotten(new)), known) {
            (Arrival::Known, Some(seq)) => match scope.add_entries(seq, new, now) {
                0 => Accepted::Duplicate(scope.known(seq, new, now)),
                added => Accepted::HandlersAdded(seq, added),
            },
            (Arrival::Quarantined(reason), seq) => {
                scope.quarantine(new, reason, now);
                match (reason, seq) {
                    (QuarantineReason::Conflict, Some(seq)) => Accepted::Conflict(seq),
                    _ => Accepted::Stale,
                }
            }
            (Arrival::New | Arrival::Known, _) => {
                let seq = self.next_seq();
                let scope = self.scope(&new.inbox);
                scope.store(seq, new, now);
                scope.add_entries(seq, new, now);
                Accepted::First(seq)
            }
        }
    }

    /// Refuses a batch that does not fit, before anything of it is stored.
    pub(super) fn check_room(&self, batch: &[NewMessage]) -> Result<()> {
        let stored = self.stored();
        let room = self.capacity.saturating_sub(stored);
        // Each message takes at most one slot, so only a nearly full store needs the exact count.
        if batch.len() <= room || self.growth(batch) <= room {
            return Ok(());
        }
        Err(self.full(stored))
    }

    /// Refuses a message for the quarantine that does not fit.
    pub(super) fn check_room_in_quarantine(&mut self, new: &NewMessage) -> Result<()> {
        let known = self.scope(&new.inbox).quarantined.contains_key(&(new.key, *new.fingerprint.as_bytes()));
        let stored = self.stored();
        if known || stored < self.capacity { Ok(()) } else { Err(self.full(stored)) }
    }

    /// Returns the number of slots that are taken, also by messages of open transactions.
    fn stored(&self) -> usize {
        let of = |scope: &InboxTables| scope.messages.len() + scope.quarantined.len() + scope.reserved.len();
        self.scopes.values().map(of).sum()
    }

    fn full(&self, stored: usize) -> Error {
        let what = format!("the memory store holds {stored} of at most {} messages", self.capacity);
        Error::new(ErrorKind::Full, what)
    }

    /// Returns the number of slots that a batch takes.
    fn growth(&self, batch: &[NewMessage]) -> usize {
        let empty = InboxTables::default();
        let mut keys = HashMap::new();
        let mut quarantined = HashSet::new();
        for new in batch {
            let scope = self.scopes.get(&new.inbox).unwrap_or(&empty);
            let id = (&new.inbox, new.key);
            let known = scope.fingerprint(new).or_else(|| keys.get(&id).copied());
            match arrival(new, known, scope.forgotten(new)) {
                Arrival::New => {
                    keys.insert(id, new.fingerprint);
                }
                Arrival::Quarantined(_)
                    if !scope.quarantined.contains_key(&(new.key, *new.fingerprint.as_bytes())) =>
                {
                    quarantined.insert((id, new.fingerprint));
                }
                Arrival::Known | Arrival::Quarantined(_) => {}
            }
        }
        keys.len() + quarantined.len()
    }
}

impl InboxTables {
    /// Returns the fingerprint stored under the key of `new`.
    fn fingerprint(&self, new: &NewMessage) -> Option<Fingerprint> {
        self.keys.get(&new.key).and_then(|seq| self.messages.get(seq)).map(|stored| stored.fingerprint)
    }

    /// Returns the watermark of the handlers for which the message has no entry.
    fn forgotten(&self, new: &NewMessage) -> Option<Timestamp> {
        let stored = self.keys.get(&new.key).and_then(|seq| self.messages.get(seq));
        if new.routes.is_empty() {
            return self.watermark.filter(|_| stored.is_none());
        }
        let missing = new.routes.iter().map(|route| self.names.group(route)).filter(|handlers| {
            stored.is_none_or(|stored| !handlers.iter().any(|handler| stored.entries.contains_key(handler)))
        });
        missing.flatten().filter_map(|handler| self.watermarks.get(&handler).copied()).max()
    }

    pub(super) fn store(&mut self, seq: Seq, new: &NewMessage, now: Timestamp) {
        self.keys.insert(new.key, seq);
        let stored = MemoryMessage {
            inbox: new.inbox.clone(),
            key: new.key,
            fingerprint: new.fingerprint,
            order: new.order,
            message: Arc::clone(&new.message),
            received_at: now,
            entries: std::collections::BTreeMap::new(),
            attempts: Vec::new(),
            duplicates: None,
        };
        self.messages.insert(seq, stored);
    }

    /// Adds the missing entries of a message, and returns their number.
    pub(super) fn add_entries(&mut self, seq: Seq, new: &NewMessage, now: Timestamp) -> usize {
        let due = now.after(new.delay);
        new.routes.iter().filter(|route| self.add_entry(seq, route, due, now)).count()
    }

    /// Adds the entry of a handler unless the message has one. Returns true if it did.
    pub(super) fn add_entry(&mut self, seq: Seq, route: &Route, due: Timestamp, now: Timestamp) -> bool {
        // The content was erased, so a handler would get nothing.
        if self.messages.get(&seq).is_some_and(|stored| stored.fingerprint.is_erased()) {
            return false;
        }
        let handler = self.names.link(route).swap_remove(0);
        let entries = self.messages.get(&seq).map(|stored| &stored.entries);
        let covered = |handler| entries.is_some_and(|entries| entries.contains_key(handler));
        let missing = !covered(&handler) && !self.names.group(route).iter().any(covered);
        if missing {
            let order = route.order_of(self.messages.get(&seq).and_then(|stored| stored.order));
            self.add(seq, &handler, MemoryEntry { order, ..MemoryEntry::due(due) });
            self.arrange(seq, &handler, now);
        }
        missing
    }

    /// Returns the stored message that a duplicate repeats.
    fn known(&self, seq: Seq, new: &NewMessage, now: Timestamp) -> KnownMessage {
        let Some(stored) = self.messages.get(&seq) else { return KnownMessage::new(seq, Duration::ZERO) };
        KnownMessage::new(seq, now.since(stored.received_at)).varied(stored.fingerprint != new.fingerprint)
    }

    pub(super) fn quarantine(&mut self, new: &NewMessage, reason: QuarantineReason, now: Timestamp) {
        let under = (new.key, *new.fingerprint.as_bytes());
        if self.quarantined.contains_key(&under) {
            return;
        }
        self.last_quarantined += 1;
        let id = QuarantineId(self.last_quarantined);
        let message = Arc::clone(&new.message);
        self.quarantined.insert(under, QuarantinedMessage { id, reason, received_at: now, message });
        self.quarantined_ids.insert(id, under);
    }
}
