//! Parameters and results of [`Store::backlog`](super::Store::backlog).

use std::time::Duration;

use crate::name::{HandlerKey, InboxName};

/// Parameters of a backlog query.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BacklogParams {
    /// The inbox.
    pub inbox: InboxName,
}

impl BacklogParams {
    /// Maximum count per handler key. Counting stops there, so a large backlog costs no more.
    pub const COUNTED: u64 = 10_000;

    /// Returns parameters for an inbox.
    pub fn new(inbox: InboxName) -> Self {
        Self { inbox }
    }
}

/// Waiting entries of one handler key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backlog {
    /// Key under which the entries are stored.
    pub handler: HandlerKey,
    /// Number of pending entries, due or not. [`BacklogParams::COUNTED`] stands for that many or more.
    pub pending: u64,
    /// Number of poisoned entries, among the first [`BacklogParams::COUNTED`] poisoned entries of the store.
    pub poisoned: u64,
    /// Time for which the longest-waiting entry has been due, on the store's clock. `None` if no entry is due. An entry
    /// behind a poisoned one is never due: [`blocked`](Self::blocked) counts those.
    pub oldest_due: Option<Duration>,
    /// Entries and keys that poisoned entries hold back.
    pub blocked: BlockedBacklog,
}

/// Ordering keys and entries that poisoned entries of one handler key hold back until an operator acts. Keys that an
/// operator paused are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockedBacklog {
    /// Number of ordering keys held back, at most [`BacklogParams::COUNTED`].
    pub keys: u64,
    /// Number of entries behind them, pending or parked, at most [`BacklogParams::COUNTED`].
    pub waiting: u64,
    /// Age of the oldest message behind them, since its acceptance, on the store's clock. `None` if nothing is behind.
    pub oldest: Option<Duration>,
}

impl BlockedBacklog {
    /// Returns the counts.
    pub const fn new(keys: u64, waiting: u64, oldest: Option<Duration>) -> Self {
        Self { keys, waiting, oldest }
    }
}

impl Backlog {
    /// Returns the backlog of a handler.
    pub const fn new(handler: HandlerKey, pending: u64, poisoned: u64, oldest_due: Option<Duration>) -> Self {
        Self { handler, pending, poisoned, oldest_due, blocked: BlockedBacklog::new(0, 0, None) }
    }

    /// Sets the entries and keys that poisoned entries hold back.
    #[must_use]
    pub const fn held_back(mut self, blocked: BlockedBacklog) -> Self {
        self.blocked = blocked;
        self
    }
}
