//! What goes in and out of backlog.

use std::time::Duration;

use crate::name::{HandlerKey, InboxName};

/// What is asked of backlog.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BacklogParams {
    /// The inbox.
    pub inbox: InboxName,
}

impl BacklogParams {
    /// Entries of a handler key are counted up to this number: a large backlog is not read through for it.
    pub const COUNTED: u64 = 10_000;

    /// The backlog of an inbox.
    pub fn new(inbox: InboxName) -> Self {
        Self { inbox }
    }
}

/// What waits for one handler key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backlog {
    /// The key that the entries are stored under.
    pub handler: HandlerKey,
    /// How many are pending, due or not. No more than [`BacklogParams::COUNTED`], which then stands for that many or more.
    pub pending: u64,
    /// How many are poisoned. Of all poisoned entries of the store, no more than that number are looked at.
    pub poisoned: u64,
    /// For how long the one that waits longest has been due, on the store's clock; nothing if none is. An entry behind a poisoned one
    /// is never due: [`blocked`](Self::blocked) has those.
    pub oldest_due: Option<Duration>,
    /// What poisoned entries hold back.
    pub blocked: BlockedBacklog,
}

/// What poisoned entries of one handler key hold back, because of their ordering keys. Work that waits for a person. An ordering
/// key that an operator paused is not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockedBacklog {
    /// How many ordering keys are held back. No more than [`BacklogParams::COUNTED`].
    pub keys: u64,
    /// How many entries are behind, pending or parked. No more than [`BacklogParams::COUNTED`].
    pub waiting: u64,
    /// How long ago the oldest message behind one was accepted, on the store's clock; nothing if none is behind.
    pub oldest: Option<Duration>,
}

impl BlockedBacklog {
    /// What is held back.
    pub const fn new(keys: u64, waiting: u64, oldest: Option<Duration>) -> Self {
        Self { keys, waiting, oldest }
    }
}

impl Backlog {
    /// What waits for a handler.
    pub const fn new(handler: HandlerKey, pending: u64, poisoned: u64, oldest_due: Option<Duration>) -> Self {
        Self { handler, pending, poisoned, oldest_due, blocked: BlockedBacklog::new(0, 0, None) }
    }

    /// The same, with what poisoned entries hold back.
    #[must_use]
    pub const fn held_back(mut self, blocked: BlockedBacklog) -> Self {
        self.blocked = blocked;
        self
    }
}
