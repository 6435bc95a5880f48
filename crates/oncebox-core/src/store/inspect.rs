//! Tier 1 of a store: what operators, health and the dashboard read. Tests: the tier `inspect` of the conformance suite in
//! `oncebox-testkit`.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    AuditFilter, AuditPage, EntryCursor, EntryFilter, EntryPage, Explanation, HandlerCount, MessageHistory,
    MessageLabel, PausedKey, QuarantineFilter, QuarantinePage, Quarantined, Seq, Store,
};
use crate::error::Result;
use crate::key::Key;
use crate::message::Message;
use crate::name::{HandlerKey, InboxName};
use crate::state::{ErrorText, InLine, PoisonReason, Status, Suspicion};
use crate::time::Timestamp;

/// Counts of an inbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InboxCounts {
    /// Entries by handler and status, without zeros.
    pub entries: Vec<HandlerCount>,
    /// Stored messages.
    pub messages: u64,
    /// Stored messages without an entry: their type had no durable handler.
    pub unrouted: u64,
    /// Quarantined messages.
    pub quarantined: u64,
    /// Quarantined messages whose key was known with another payload.
    pub conflicts: u64,
    /// Quarantined messages that were older than the watermark.
    pub stale: u64,
    /// Handlers that are paused.
    pub paused: Vec<HandlerKey>,
    /// Ordering keys that are paused.
    pub paused_keys: Vec<PausedKey>,
}

impl InboxCounts {
    /// Returns the number of entries with a status, over all handlers.
    pub fn with_status(&self, status: Status) -> u64 {
        self.entries.iter().filter(|entry| entry.status == status).map(|entry| entry.count).sum()
    }
}

/// An entry as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryView {
    /// Number of its message.
    pub seq: Seq,
    /// Dedupe key of its message. Operators show and change the entry by it.
    pub key: Key,
    /// The handler, under the newest of its keys.
    pub handler: HandlerKey,
    /// First key under which the store knew the handler.
    pub origin: HandlerKey,
    /// Status.
    pub status: Status,
    /// Failed attempts.
    pub attempts: u32,
    /// Suspicion that the entry crashes its worker.
    pub suspicion: Suspicion,
    /// Number of replays.
    pub generation: u32,
    /// Due time (pending), end of the lease (running) or time of the end. [`Timestamp::MAX`] for an entry that waits for an earlier
    /// one with the same ordering key.
    pub at: Timestamp,
    /// Reason for being poisoned.
    pub reason: Option<PoisonReason>,
    /// Last error text of the handler.
    pub error: Option<ErrorText>,
    /// Effect on the entries behind it, if it is poisoned and has an ordering key.
    pub in_line: Option<InLine>,
    /// Time when its message was received.
    pub received_at: Timestamp,
    /// Tenant of its message.
    pub tenant: Option<Box<str>>,
    /// Attributes of its message. `None` after the message was removed, while its key is still known.
    pub label: Option<MessageLabel>,
}

impl EntryView {
    /// Returns a pending entry without attempts, for a store to fill in.
    pub fn new(seq: Seq, key: Key, handler: HandlerKey, status: Status, at: Timestamp) -> Self {
        Self {
            seq,
            key,
            origin: handler.clone(),
            handler,
            status,
            attempts: 0,
            suspicion: Suspicion::NONE,
            generation: 0,
            at,
            reason: None,
            error: None,
            in_line: None,
            received_at: Timestamp::ZERO,
            tenant: None,
            label: None,
        }
    }

    /// Sets time, tenant and attributes of its message.
    #[must_use]
    pub fn of_message(
        mut self,
        received_at: Timestamp,
        tenant: Option<Box<str>>,
        label: Option<MessageLabel>,
    ) -> Self {
        (self.received_at, self.tenant, self.label) = (received_at, tenant, label);
        self
    }

    /// Sets time, tenant and attributes from its message.
    #[must_use]
    pub fn labelled(self, received_at: Timestamp, message: &Message) -> Self {
        self.of_message(received_at, message.tenant().map(Into::into), Some(MessageLabel::of(message)))
    }

    /// Returns its position in lists.
    pub fn cursor(&self) -> EntryCursor {
        EntryCursor::new(self.seq, self.handler.clone())
    }

    /// Returns true if it is poisoned and the entries behind it with its ordering key continued without it.
    pub fn is_skipped(&self) -> bool {
        self.in_line == Some(InLine::Skipped)
    }
}

/// Conditions for listing blocked keys.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BlockedParams {
    /// The inbox.
    pub inbox: InboxName,
    /// Only keys of this tenant.
    pub tenant: Option<Box<str>>,
    /// Maximum number of keys. Default: 100.
    pub limit: usize,
}

impl BlockedParams {
    /// Returns parameters for the 100 keys whose blocking message is oldest.
    pub fn new(inbox: InboxName) -> Self {
        Self { inbox, tenant: None, limit: 100 }
    }
}

/// Ordering key that a poisoned entry blocks for one handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockedKey {
    /// Handler key under which the entries are stored.
    pub handler: HandlerKey,
    /// Ordering key, as the producer gave it. Empty if its message cannot be read any more.
    pub ordering_key: Vec<u8>,
    /// Message number of the poisoned entry in front.
    pub head: Seq,
    /// Dedupe key of that message. Operators retry, discard or unblock the entry by it.
    pub head_key: Key,
    /// Time when the entry was poisoned.
    pub since: Timestamp,
    /// True if the entries behind are parked. False if they are pending.
    pub parks: bool,
    /// Number of entries behind it, under the same handler key.
    pub waiting: u64,
    /// Time when the oldest of them was received.
    pub oldest: Option<Timestamp>,
}

impl BlockedKey {
    /// Returns a key without waiting entries, for a store to fill in.
    pub fn new(handler: HandlerKey, head: Seq, head_key: Key, since: Timestamp) -> Self {
        Self {
            handler,
            ordering_key: Vec::new(),
            head,
            head_key,
            since,
            parks: false,
            waiting: 0,
            oldest: None,
        }
    }
}

/// Everything that a store knows of one key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MessageView {
    /// The key.
    pub key: Key,
    /// Tenant. It is part of the key, so everything under a key belongs to one tenant.
    pub tenant: Option<Box<str>>,
    /// Stored message, with its number and time. `None` if the key only has quarantined messages.
    pub stored: Option<(Seq, Timestamp, Arc<Message>)>,
    /// Its entries, by handler and generation, finished entries included.
    pub entries: Vec<EntryView>,
    /// True if an operator erased the content. Then `stored` is `None`, but the store still knows the key.
    pub erased: bool,
    /// Quarantined messages under the key, the first [`MAX_QUARANTINED`](Self::MAX_QUARANTINED). The limit bounds memory if a
    /// producer uses one id for everything. [`Inspect::quarantined`] lists all.
    pub quarantined: Vec<Quarantined>,
}

impl MessageView {
    /// Maximum quarantined messages in a view.
    pub const MAX_QUARANTINED: usize = 20;

    /// Returns an empty view, for a store to fill in.
    pub fn new(key: Key) -> Self {
        Self { key, tenant: None, stored: None, entries: Vec::new(), erased: false, quarantined: Vec::new() }
    }
}

/// Store that shows what it holds. Nothing here changes the store.
#[async_trait]
pub trait Inspect: Store {
    /// Returns the counts of an inbox, or of one tenant in it. Paused handlers are listed for each tenant, because they are paused
    /// for all.
    async fn count(&self, inbox: &InboxName, tenant: Option<&str>) -> Result<InboxCounts>;

    /// Lists matching entries, oldest message first. A page may be short or empty although more pages follow: see
    /// [`EntryFilter::EXAMINED`].
    async fn list(&self, filter: &EntryFilter) -> Result<EntryPage>;

    /// Returns everything known of a key.
    async fn show(&self, inbox: &InboxName, key: &Key) -> Result<Option<MessageView>>;

    /// Returns the history of a key. `None` if no message is stored under it. Default: `None`, for a store without history.
    async fn history(&self, inbox: &InboxName, key: &Key) -> Result<Option<MessageHistory>> {
        let _ = (inbox, key);
        Ok(None)
    }

    /// Returns everything known of a key, with its history and an explanation for each entry.
    ///
    /// Several reads collect it, so it may mix states from before and after a concurrent change.
    async fn explain(&self, inbox: &InboxName, key: &Key) -> Result<Option<Explanation>> {
        let Some(view) = self.show(inbox, key).await? else { return Ok(None) };
        let history = self.history(inbox, key).await?.unwrap_or_default();
        let filter = AuditFilter { key: Some(*key), limit: 1_000, ..AuditFilter::new(inbox.clone()) };
        let mut operations = self.audit(&filter).await?.operations;
        operations.reverse();
        Ok(Some(Explanation::new(view, history, operations)))
    }

    /// Lists quarantined messages, the oldest first. Reads no payload.
    async fn quarantined(&self, filter: &QuarantineFilter) -> Result<QuarantinePage>;

    /// Lists ordering keys that a poisoned entry blocks, those with the oldest message in front first. A key without waiting
    /// entries is listed too: the next message would wait.
    async fn blocked(&self, params: &BlockedParams) -> Result<Vec<BlockedKey>>;

    /// Lists records of operations, the latest first, one page at a time. Default: none, for a store without
    /// [`Operate`](super::Operate).
    async fn audit(&self, filter: &AuditFilter) -> Result<AuditPage> {
        let _ = filter;
        Ok(AuditPage::default())
    }
}
