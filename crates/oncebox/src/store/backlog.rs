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
    /// For how long the one that waits longest has been due, on the store's clock; nothing if none is.
    pub oldest_due: Option<Duration>,
}

impl Backlog {
    /// What waits for a handler.
    pub const fn new(handler: HandlerKey, pending: u64, poisoned: u64, oldest_due: Option<Duration>) -> Self {
        Self { handler, pending, poisoned, oldest_due }
    }
}
