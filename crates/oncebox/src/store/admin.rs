//! The operator's verbs.

use std::sync::Arc;

use async_trait::async_trait;

use super::{HandlerCount, Seq, Store};
use crate::error::Result;
use crate::key::Key;
use crate::message::Message;
use crate::name::{HandlerKey, InboxName};
use crate::state::{ErrorText, InLine, Operation, PoisonReason, Status};
use crate::time::Timestamp;

/// How much of everything there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Entries by handler and status; what is zero is left out.
    pub entries: Vec<HandlerCount>,
    /// Messages remembered.
    pub messages: u64,
    /// Messages kept aside as conflict or stale.
    pub kept_aside: u64,
    /// Handlers that are paused.
    pub paused: Vec<HandlerKey>,
}

impl Counts {
    /// Entries with a status, over all handlers.
    pub fn with_status(&self, status: Status) -> u64 {
        self.entries.iter().filter(|entry| entry.status == status).map(|entry| entry.count).sum()
    }
}

/// Which entries to list.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Filter {
    /// The inbox.
    pub inbox: InboxName,
    /// The status.
    pub status: Status,
    /// Only this handler key.
    pub handler: Option<HandlerKey>,
    /// Only entries after this one; where the previous page ended.
    pub after: Option<(Seq, HandlerKey)>,
    /// At most this many.
    pub limit: usize,
}

impl Filter {
    /// The first hundred entries with a status.
    pub fn new(inbox: InboxName, status: Status) -> Self {
        Self { inbox, status, handler: None, after: None, limit: 100 }
    }
}

/// A page of entries.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The entries, by sequence and handler.
    pub entries: Vec<EntryView>,
    /// Where the next page starts, if there is one.
    pub next: Option<(Seq, HandlerKey)>,
}

/// An entry as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryView {
    /// The message.
    pub seq: Seq,
    /// Its dedupe key, by which the entry can be shown and acted on.
    pub key: Key,
    /// The handler key it is stored under.
    pub handler: HandlerKey,
    /// Where it stands.
    pub status: Status,
    /// Failed attempts.
    pub attempts: u32,
    /// Leases that ran out.
    pub crashes: u32,
    /// How often it was replayed.
    pub generation: u32,
    /// When it is due (pending), when its lease ends (running), or when it was finished. [`Timestamp::MAX`] for an
    /// entry that waits for an earlier one with the same ordering key.
    pub at: Timestamp,
    /// Why it was poisoned.
    pub reason: Option<PoisonReason>,
    /// What the handler said last.
    pub error: Option<ErrorText>,
    /// What it is to those behind it, if it is poisoned and has an ordering key.
    pub in_line: Option<InLine>,
}

impl EntryView {
    /// A pending entry that was never tried, for a store to fill in.
    pub fn new(seq: Seq, key: Key, handler: HandlerKey, status: Status, at: Timestamp) -> Self {
        Self {
            seq,
            key,
            handler,
            status,
            attempts: 0,
            crashes: 0,
            generation: 0,
            at,
            reason: None,
            error: None,
            in_line: None,
        }
    }

    /// Whether it is poisoned, and those behind it with its ordering key went on without it.
    pub fn is_skipped(&self) -> bool {
        self.in_line == Some(InLine::Skipped)
    }
}

/// Which blocked keys to list.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BlockedParams {
    /// The inbox.
    pub inbox: InboxName,
    /// At most this many.
    pub limit: usize,
}

impl BlockedParams {
    /// The hundred keys that are blocked by the oldest messages.
    pub fn new(inbox: InboxName) -> Self {
        Self { inbox, limit: 100 }
    }
}

/// An ordering key that a poisoned entry holds back, for one handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockedKey {
    /// The handler key that the entries are stored under.
    pub handler: HandlerKey,
    /// The ordering key, as the producer gave it; empty if its message cannot be read any more.
    pub ordering_key: Vec<u8>,
    /// The poisoned entry in front: the message's number.
    pub head: Seq,
    /// Its dedupe key, by which it can be retried, discarded or unblocked.
    pub head_key: Key,
    /// When it was poisoned.
    pub since: Timestamp,
    /// Whether those behind it are parked, not pending.
    pub parks: bool,
    /// How many are behind it, under the same handler key.
    pub waiting: u64,
    /// When the oldest of those was received.
    pub oldest: Option<Timestamp>,
}

impl BlockedKey {
    /// A key with nobody waiting, for a store to fill in.
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

/// Why a message was kept aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsideReason {
    /// Its key was known with another payload.
    Conflict,
    /// It is older than what the store remembers.
    Stale,
}

impl AsideReason {
    /// The word for it in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Stale => "stale",
        }
    }
}

/// A message that was kept aside instead of run.
#[derive(Clone, Debug)]
pub struct KeptAside {
    /// Why.
    pub reason: AsideReason,
    /// When it came.
    pub received_at: Timestamp,
    /// The message.
    pub message: Arc<Message>,
}

/// Everything a store knows of one key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MessageView {
    /// The key.
    pub key: Key,
    /// The stored message, its number and when it came; `None` if only asides are known.
    pub stored: Option<(Seq, Timestamp, Arc<Message>)>,
    /// Its entries, by handler and generation, finished ones included.
    pub entries: Vec<EntryView>,
    /// Messages under the same key that were kept aside.
    pub kept_aside: Vec<KeptAside>,
}

impl MessageView {
    /// A view with nothing in it, for a store to fill in.
    pub fn new(key: Key) -> Self {
        Self { key, stored: None, entries: Vec::new(), kept_aside: Vec::new() }
    }
}

/// What an operator can see and do.
#[async_trait]
pub trait Admin: Store {
    /// How much of everything there is.
    async fn count(&self, inbox: &InboxName) -> Result<Counts>;

    /// Entries with a status, oldest message first, a page at a time.
    async fn list(&self, filter: &Filter) -> Result<Page>;

    /// Everything known of a key.
    async fn show(&self, inbox: &InboxName, key: &Key) -> Result<Option<MessageView>>;

    /// Ordering keys that are held back by a poisoned entry, those with the oldest message in front first. One with nobody
    /// behind it is listed too: the next message would wait.
    async fn blocked(&self, params: &BlockedParams) -> Result<Vec<BlockedKey>>;

    /// Retries, discards, replays or unblocks one entry, as [`operate`](crate::state::operate) allows.
    async fn operate(
        &self,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        operation: Operation,
    ) -> Result<EntryView>;

    /// Lets those behind a poisoned entry with its ordering key go on without it; it stays poisoned, and is flagged as
    /// skipped. Refused if nothing is held back by it.
    async fn unblock(&self, inbox: &InboxName, key: &Key, handler: &HandlerKey) -> Result<EntryView> {
        self.operate(inbox, key, handler, Operation::Unblock).await
    }

    /// Stops claims for a handler, on every worker. What runs already goes on.
    async fn pause(&self, inbox: &InboxName, handler: &HandlerKey) -> Result<()>;

    /// Allows claims for a handler again.
    async fn resume(&self, inbox: &InboxName, handler: &HandlerKey) -> Result<()>;

    /// Removes messages kept aside longer than `age`, a bounded number at a time; returns how many. Entries are not
    /// touched: a poisoned one is discarded first, and leaves with its retention.
    async fn purge(&self, inbox: &InboxName, age: std::time::Duration, limit: usize) -> Result<usize>;
}
