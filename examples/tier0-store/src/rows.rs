//! The rows of the store. Each struct is a table of a database.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use oncebox_core::key::{Fingerprint, Key, OrderKey};
use oncebox_core::message::Message;
use oncebox_core::name::{HandlerKey, InboxName};
use oncebox_core::state::{ClaimId, ErrorText, InLine, PoisonReason, Seq, Status, Suspicion, Token};
use oncebox_core::store::{QuarantineReason, RegisteredWindow, SweepId};
use oncebox_core::time::Timestamp;

use crate::handlers::LinkedHandlers;

/// All inboxes. Inboxes share nothing except the counters.
#[derive(Default)]
pub(crate) struct Rows {
    inboxes: BTreeMap<InboxName, InboxRows>,
    /// Last message number of all inboxes: a number is unique in its store.
    last_seq: i64,
    /// Last token. It never repeats, so the store can refuse every earlier claim. A durable store keeps it durably.
    last_token: i64,
}

/// One inbox.
#[derive(Default)]
pub(crate) struct InboxRows {
    pub(crate) handlers: LinkedHandlers,
    /// Messages by number, which is the order of acceptance.
    pub(crate) messages: BTreeMap<Seq, MessageRow>,
    /// The unique index of a database: one message per key.
    pub(crate) keys: HashMap<Key, Seq>,
    /// One row per key and payload, so redeliveries of a conflict do not pile up.
    pub(crate) quarantined: HashMap<(Key, [u8; 16]), (QuarantineReason, Arc<Message>)>,
    /// Arrival of the newest swept message of each handler. `None`: of messages without an entry.
    pub(crate) watermarks: HashMap<Option<HandlerKey>, Timestamp>,
    pub(crate) windows: Vec<RegisteredWindow>,
    /// Tenants setting, as first registered.
    pub(crate) tenancy: Option<String>,
    /// Current sweep, and the time until which others are refused.
    pub(crate) sweeper: Option<(SweepId, Timestamp)>,
}

/// A message, with one entry per handler.
pub(crate) struct MessageRow {
    pub(crate) key: Key,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) order: Option<OrderKey>,
    pub(crate) message: Arc<Message>,
    pub(crate) received_at: Timestamp,
    /// Entries by the origin of their handler.
    pub(crate) entries: BTreeMap<HandlerKey, EntryRow>,
}

/// An entry: one message for one handler.
pub(crate) struct EntryRow {
    pub(crate) status: Status,
    /// Due time (pending), end of the lease (running) or time of the end.
    pub(crate) at: Timestamp,
    pub(crate) attempts: u32,
    pub(crate) suspicion: Suspicion,
    /// True if its last run began with nothing beside it. A rescue reports it.
    pub(crate) alone: bool,
    /// Last claim. It stays after its settlement, so that a repeated settlement is recognised.
    pub(crate) claim: Option<(Token, ClaimId)>,
    pub(crate) claimed_at: Timestamp,
    /// Its order queue, if its message has an ordering key and its handler keeps the order.
    pub(crate) order: Option<OrderKey>,
    pub(crate) in_line: Option<InLine>,
    pub(crate) reason: Option<PoisonReason>,
    pub(crate) error: Option<ErrorText>,
}

impl EntryRow {
    /// Returns a pending entry without attempts.
    pub(crate) fn due(at: Timestamp, order: Option<OrderKey>) -> Self {
        Self {
            status: Status::Pending,
            at,
            attempts: 0,
            suspicion: Suspicion::NONE,
            alone: false,
            claim: None,
            claimed_at: Timestamp::ZERO,
            order,
            in_line: None,
            reason: None,
            error: None,
        }
    }
}

impl Rows {
    /// Returns an inbox, and makes it at its first use.
    pub(crate) fn inbox(&mut self, name: &InboxName) -> &mut InboxRows {
        self.inboxes.entry(name.clone()).or_default()
    }

    pub(crate) fn next_seq(&mut self) -> Seq {
        self.last_seq += 1;
        Seq(self.last_seq)
    }

    pub(crate) fn next_token(&mut self) -> Token {
        self.last_token += 1;
        Token(self.last_token)
    }
}
