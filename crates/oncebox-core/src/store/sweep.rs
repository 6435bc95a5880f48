//! Parameters and results of the upkeep verbs: sweep, orphans and backfill.

use std::time::Duration;

use uuid::Uuid;

use super::{Route, Seq, SweepPosition};
use crate::message::pattern;
use crate::name::{HandlerKey, InboxName};
use crate::time::Timestamp;

/// Identity of one sweep, made by the caller. All its pages have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SweepId(Uuid);

impl SweepId {
    /// Returns a new, unique identity.
    pub fn fresh() -> Self {
        Self(Uuid::now_v7())
    }

    /// Reads the bytes that a store kept.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// Returns the bytes for a store to keep.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

/// Parameters of a sweep.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SweepParams {
    /// The inbox.
    pub inbox: InboxName,
    /// Identity of this sweep. One sweep of an inbox continues from page to page. Others get an empty page until it is done.
    pub sweep_id: SweepId,
    /// Window of finished messages from completion, and of messages without an entry from arrival. [`Duration::MAX`]: for ever. A
    /// longer window of another process wins, see [`RetentionWindows`](super::RetentionWindows).
    pub retention: Duration,
    /// Windows of the caller's handler keys, legacy keys included, for their entries and marks. Other keys have the window that was
    /// [registered](super::Store::register) for them.
    pub windows: Vec<(HandlerKey, Duration)>,
    /// Retention of the records of operations, from the operation. Default: 400 days.
    pub audit: Duration,
    /// Time after a page in which other processes do not sweep. Default: 1 minute.
    pub lease: Duration,
    /// Maximum messages to read.
    pub limit: usize,
    /// End of the previous page. `None` for the first.
    pub after: Option<SweepPosition>,
}

impl SweepParams {
    /// Default of [`lease`](Self::lease): 1 minute.
    pub const LEASE: Duration = Duration::from_mins(1);

    /// Default retention of the records of operations: 400 days, longer than the year of an audit.
    pub const AUDIT: Duration = Duration::from_hours(400 * 24);

    /// Returns the first page of a sweep.
    pub fn new(inbox: InboxName, retention: Duration, limit: usize) -> Self {
        let (sweep_id, audit, lease) = (SweepId::fresh(), Self::AUDIT, Self::LEASE);
        Self { inbox, sweep_id, retention, windows: Vec::new(), audit, lease, limit, after: None }
    }
}

/// Result of a sweep: the removed rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// Messages, with their keys, outcomes and history.
    pub messages: usize,
    /// Entries of these messages: one per message and handler.
    pub entries: usize,
    /// Marks of `once` and inline handlers.
    pub marks: usize,
    /// Records of operations.
    pub operations: usize,
    /// Messages that were read.
    pub looked: usize,
    /// Start of the next page. `None` when the sweep has read everything old enough, or another process sweeps. Also set if it
    /// removed as many marks as the limit allows, because there may be more.
    pub next: Option<SweepPosition>,
}

impl Swept {
    /// Nothing removed, nothing left to sweep.
    pub const NOTHING: Self =
        Self { messages: 0, entries: 0, marks: 0, operations: 0, looked: 0, next: None };

    /// Returns a page that read `looked` messages.
    pub const fn new(looked: usize, next: Option<SweepPosition>) -> Self {
        Self { looked, next, ..Self::NOTHING }
    }

    /// Returns true if the sweep removed nothing.
    pub const fn is_nothing(&self) -> bool {
        self.messages == 0 && self.entries == 0 && self.marks == 0 && self.operations == 0
    }

    /// Adds the counts of a later page, and takes its position.
    pub fn add(&mut self, page: &Self) {
        let Self { messages, entries, marks, operations, looked, next } = *page;
        self.messages += messages;
        self.entries += entries;
        self.marks += marks;
        self.operations += operations;
        self.looked += looked;
        self.next = next;
    }
}

/// Parameters of a search for orphans.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OrphanParams {
    /// The inbox.
    pub inbox: InboxName,
    /// Handler keys that the caller knows, current and former.
    pub known: Vec<HandlerKey>,
    /// Minimum wait of an orphan.
    pub grace: Duration,
    /// Maximum number of handler keys. Default: 100.
    pub limit: usize,
}

impl OrphanParams {
    /// Maximum count per handler key. Counting stops there, so a large backlog costs no more.
    pub const COUNTED: u64 = 10_000;

    /// Returns a search for at most 100 unknown handler keys.
    pub fn new(inbox: InboxName, known: Vec<HandlerKey>, grace: Duration) -> Self {
        Self { inbox, known, grace, limit: 100 }
    }
}

/// A handler key that no process seems to handle.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Orphan {
    /// Key under which the entries are stored.
    pub handler: HandlerKey,
    /// Number of unfinished entries: pending, or left behind by a worker that died. [`OrphanParams::COUNTED`] stands for that many
    /// or more.
    pub count: u64,
    /// Due time of the entry that waits longest.
    pub oldest: Timestamp,
}

impl Orphan {
    /// Returns an orphan with waiting entries.
    pub const fn new(handler: HandlerKey, count: u64, oldest: Timestamp) -> Self {
        Self { handler, count, oldest }
    }
}

/// Parameters of a backfill.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BackfillParams {
    /// The inbox.
    pub inbox: InboxName,
    /// Handler that gets entries. A message with an entry under a legacy key gets none.
    pub route: Route,
    /// Types of messages, or patterns of them (`order.*`). Other messages are skipped.
    pub types: Vec<Box<str>>,
    /// End of the previous page. `None` for the first.
    pub after: Option<Seq>,
    /// Maximum messages to read.
    pub limit: usize,
}

impl BackfillParams {
    /// Returns the first page for a handler of some message types.
    pub fn new(inbox: InboxName, route: Route, types: Vec<Box<str>>) -> Self {
        Self { inbox, route, types, after: None, limit: 1_000 }
    }

    /// Returns true if a message of this type gets an entry.
    pub fn takes(&self, message_type: &str) -> bool {
        self.types.iter().any(|pattern| pattern::takes(pattern, message_type))
    }
}

/// Result of one page of a backfill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backfilled {
    /// Number of added entries.
    pub added: usize,
    /// Messages that got no entry because they are older than the handler's watermark: the handler may have had them before.
    pub stale: usize,
    /// Start of the next page. `None` after the last message.
    pub next: Option<Seq>,
}

impl Backfilled {
    /// Returns the result of a page.
    pub const fn new(added: usize, next: Option<Seq>) -> Self {
        Self { added, stale: 0, next }
    }

    /// Sets the number of messages that are older than the watermark.
    #[must_use]
    pub const fn stale(mut self, stale: usize) -> Self {
        self.stale = stale;
        self
    }
}
