//! Tables of the memory store, one set per inbox.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::accept_in::ReservedKeys;
use super::index::Indexes;
use super::names::HandlerNames;
use super::operations::Operations;
use crate::key::{Fingerprint, Key, OrderKey};
use crate::message::Message;
use crate::name::{HandlerKey, InboxName};
use crate::state::{EntryEvent, ErrorText, InLine, PoisonReason, Status, Suspicion};
use crate::store::{
    Attempt, Claim, ClaimId, DuplicateCount, EntryView, PausedKey, QuarantineId, QuarantineReason,
    RegisteredWindow, Seq, SweepCursor, SweepId, Token,
};
use crate::time::Timestamp;

/// All tables.
pub(super) struct MemoryTables {
    pub(super) capacity: usize,
    pub(super) scopes: BTreeMap<InboxName, InboxTables>,
    pub(super) operations: Operations,
    last_seq: i64,
    last_token: i64,
}

/// Mark of a key for a handler.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum MemoryMark {
    /// Held by an open transaction.
    Open(Option<Fingerprint>),
    /// Committed, with its fingerprint and the stored result.
    Done(Option<Fingerprint>, Option<Bytes>),
}

/// Tables of one inbox. A handler is known by its origin, here and in the indexes. Marks have the key that made them.
#[derive(Default)]
pub(super) struct InboxTables {
    pub(super) names: HandlerNames,
    pub(super) messages: BTreeMap<Seq, MemoryMessage>,
    pub(super) keys: HashMap<Key, Seq>,
    /// Keys that open transactions accept messages under.
    pub(super) reserved: ReservedKeys,
    /// One row per payload under a key, so redeliveries do not pile up.
    pub(super) quarantined: BTreeMap<(Key, [u8; 16]), QuarantinedMessage>,
    pub(super) paused: BTreeSet<HandlerKey>,
    pub(super) paused_keys: BTreeSet<PausedKey>,
    /// Index by number, in the order of arrival.
    pub(super) quarantined_ids: BTreeMap<QuarantineId, (Key, [u8; 16])>,
    pub(super) last_quarantined: i64,
    /// Current sweep, and the time until which others are refused.
    pub(super) sweeper: Option<(SweepId, Timestamp)>,
    /// Arrival of the newest swept message without entries.
    pub(super) watermark: Option<Timestamp>,
    /// Arrival of the newest swept message with an entry, by handler.
    pub(super) watermarks: HashMap<HandlerKey, Timestamp>,
    pub(super) windows: Vec<RegisteredWindow>,
    /// Tenants setting, as first registered.
    pub(super) tenancy: Option<Box<str>>,
    /// Sweep cursors by window, valid for windows with this digest.
    pub(super) cursors: (i64, BTreeMap<Duration, SweepCursor>),
    pub(super) indexes: Indexes,
    pub(super) marks: HashMap<(Key, HandlerKey), MemoryMark>,
    /// Committed marks by handler and age.
    pub(super) mark_ages: BTreeMap<HandlerKey, BTreeSet<(Timestamp, Key)>>,
}

/// A message and its entries.
pub(super) struct MemoryMessage {
    pub(super) inbox: InboxName,
    pub(super) key: Key,
    pub(super) fingerprint: Fingerprint,
    pub(super) order: Option<OrderKey>,
    pub(super) message: Arc<Message>,
    pub(super) received_at: Timestamp,
    pub(super) entries: BTreeMap<HandlerKey, MemoryEntry>,
    /// Failed attempts, the oldest first.
    pub(super) attempts: Vec<Attempt>,
    /// Duplicate deliveries.
    pub(super) duplicates: Option<DuplicateCount>,
}

impl MemoryMessage {
    /// Adds the attributes of the message to an entry.
    pub(super) fn labelled(&self, entry: EntryView) -> EntryView {
        if self.fingerprint.is_erased() {
            return entry.of_message(self.received_at, self.message.tenant().map(Into::into), None);
        }
        entry.labelled(self.received_at, &self.message)
    }
}

/// A message that was quarantined.
pub(super) struct QuarantinedMessage {
    pub(super) id: QuarantineId,
    pub(super) reason: QuarantineReason,
    pub(super) received_at: Timestamp,
    pub(super) message: Arc<Message>,
}

/// An entry: one message for one handler.
#[derive(Clone)]
pub(super) struct MemoryEntry {
    pub(super) status: Status,
    /// Due time (pending), end of the lease (running) or time of the end.
    pub(super) at: Timestamp,
    pub(super) attempts: u32,
    pub(super) suspicion: Suspicion,
    /// True if nothing else ran in the process when its last run began.
    pub(super) alone: bool,
    pub(super) generation: u32,
    /// Last claim. It stays after its settlement, so that the store recognises a repeated one.
    pub(super) claim: Option<(Token, ClaimId)>,
    pub(super) claimed_at: Timestamp,
    pub(super) reason: Option<PoisonReason>,
    pub(super) error: Option<ErrorText>,
    /// Effect on the entries behind it, while it is poisoned and has an order key.
    pub(super) in_line: Option<InLine>,
    /// Its order queue, if its message has an ordering key and its handler keeps the order.
    pub(super) order: Option<OrderKey>,
    /// Due time of a parked entry.
    pub(super) not_before: Timestamp,
    /// Earlier generations, as they finished.
    pub(super) past: Vec<MemoryEntry>,
}

impl MemoryEntry {
    /// Returns an entry without attempts.
    pub(super) fn due(at: Timestamp) -> Self {
        Self {
            status: Status::Pending,
            at,
            attempts: 0,
            suspicion: Suspicion::NONE,
            alone: false,
            generation: 0,
            claim: None,
            claimed_at: Timestamp::ZERO,
            reason: None,
            error: None,
            in_line: None,
            order: None,
            not_before: Timestamp::ZERO,
            past: Vec::new(),
        }
    }

    /// Starts the next generation of a finished entry, and keeps this one in its past.
    pub(super) fn replayed(&mut self, now: Timestamp) {
        let next = Self { generation: self.generation.saturating_add(1), ..Self::due(now) };
        let mut finished = std::mem::replace(self, next);
        self.past = std::mem::take(&mut finished.past);
        self.past.push(finished);
    }

    /// Applies the decision of [`follow`](crate::state::follow).
    fn followed(&mut self, event: EntryEvent, next: Status, now: Timestamp) {
        self.status = next;
        if event == EntryEvent::Park {
            (self.reason, self.in_line) = (Some(PoisonReason::Parked), Some(InLine::Parked));
            (self.not_before, self.at) = (self.at, now);
        } else {
            (self.reason, self.in_line) = (None, None);
            self.at = self.not_before;
        }
    }

    /// Returns true if `claim` is its last claim.
    pub(super) fn is_claim(&self, claim: &Claim) -> bool {
        self.generation == claim.generation && self.claim == Some((claim.token, claim.claim_id))
    }

    /// Returns true if `claim` holds it: the fence of every write after a claim.
    pub(super) fn is_held_by(&self, claim: &Claim) -> bool {
        self.status == Status::Running && self.is_claim(claim)
    }

    /// Returns it as operators see it. `name` is the name of the handler.
    pub(super) fn view(&self, seq: Seq, key: Key, origin: &HandlerKey, name: HandlerKey) -> EntryView {
        let mut view = EntryView::new(seq, key, name, self.status, self.at);
        (view.origin, view.attempts) = (origin.clone(), self.attempts);
        (view.suspicion, view.generation) = (self.suspicion, self.generation);
        (view.reason, view.error, view.in_line) = (self.reason, self.error.clone(), self.in_line);
        view
    }
}

impl MemoryTables {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            scopes: BTreeMap::new(),
            operations: Operations::default(),
            last_seq: 0,
            last_token: 0,
        }
    }

    /// Returns the tables of an inbox, and makes them at its first use.
    pub(super) fn scope(&mut self, inbox: &InboxName) -> &mut InboxTables {
        self.scopes.entry(inbox.clone()).or_default()
    }

    /// Returns the tables that hold a claimed entry.
    pub(super) fn scope_of(&mut self, claim: &Claim) -> Option<&mut InboxTables> {
        self.scopes.get_mut(&claim.inbox)
    }

    pub(super) fn next_seq(&mut self) -> Seq {
        self.last_seq += 1;
        Seq(self.last_seq)
    }

    pub(super) fn next_token(&mut self) -> Token {
        self.last_token += 1;
        Token(self.last_token)
    }

    /// Returns true if work became claimable since the last call.
    pub(super) fn take_work(&mut self) -> bool {
        self.scopes.values_mut().fold(false, |work, scope| scope.indexes.take_work() | work)
    }
}

impl InboxTables {
    pub(super) fn entry(&self, seq: Seq, handler: &HandlerKey) -> Option<&MemoryEntry> {
        self.messages.get(&seq)?.entries.get(handler)
    }

    /// Adds an entry to a stored message.
    pub(super) fn add(&mut self, seq: Seq, handler: &HandlerKey, entry: MemoryEntry) {
        if let Some(stored) = self.messages.get_mut(&seq) {
            self.indexes.moved(seq, handler, entry.order, None, Some(entry.place()));
            stored.entries.insert(handler.clone(), entry);
        }
    }

    /// Changes an entry and its indexes. Every change goes through it.
    pub(super) fn change(&mut self, seq: Seq, handler: &HandlerKey, change: impl FnOnce(&mut MemoryEntry)) {
        let Some(stored) = self.messages.get_mut(&seq) else { return };
        let Some(entry) = stored.entries.get_mut(handler) else { return };
        let (order, before) = (entry.order, entry.place());
        change(entry);
        if entry.order == order {
            self.indexes.moved(seq, handler, order, Some(before), Some(entry.place()));
        } else {
            self.indexes.moved(seq, handler, order, Some(before), None);
            self.indexes.moved(seq, handler, entry.order, None, Some(entry.place()));
        }
    }

    /// Parks and unparks the entries behind a changed one.
    pub(super) fn arrange(&mut self, seq: Seq, handler: &HandlerKey, now: Timestamp) {
        let Some(order) = self.entry(seq, handler).and_then(|entry| entry.order) else { return };
        while let Some((seq, event, next)) = self.indexes.misplaced(handler, order) {
            self.change(seq, handler, |entry| entry.followed(event, next, now));
        }
    }

    /// Removes a message with its key and entries.
    pub(super) fn remove(&mut self, seq: Seq) {
        let Some(stored) = self.messages.remove(&seq) else { return };
        for (handler, entry) in &stored.entries {
            self.indexes.moved(seq, handler, entry.order, Some(entry.place()), None);
        }
        self.keys.remove(&stored.key);
    }

    /// Returns an entry as operators see it, with its wait for an earlier one.
    pub(super) fn view(&self, seq: Seq, handler: &HandlerKey) -> Option<EntryView> {
        let stored = self.messages.get(&seq)?;
        let entry = stored.entries.get(handler)?;
        let mut view = stored.labelled(entry.view(seq, stored.key, handler, self.names.name(handler)));
        if view.status == Status::Pending && !self.indexes.is_in_turn(seq, handler, entry.order) {
            view.at = Timestamp::MAX;
        }
        Some(view)
    }
}
