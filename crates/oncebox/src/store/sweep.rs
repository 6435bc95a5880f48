//! What goes in and out of the verbs that look after what is stored.

use std::time::Duration;

use uuid::Uuid;

use super::{Route, Seq, SweepPosition};
use crate::name::{HandlerKey, InboxName};
use crate::time::Timestamp;

/// The identity of one sweep, made by the caller: all its pages have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SweepId(Uuid);

impl SweepId {
    /// A new one, never seen before.
    pub fn fresh() -> Self {
        Self(Uuid::now_v7())
    }

    /// From the bytes a store kept.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// The bytes a store keeps.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

/// What is asked of sweep.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SweepParams {
    /// The inbox.
    pub inbox: InboxName,
    /// The identity of this sweep. Of all who sweep an inbox, one goes on from page to page; the others are answered
    /// with an empty page until it is done.
    pub sweep_id: SweepId,
    /// How long the caller remembers finished messages, from completion, and those without an entry from their arrival;
    /// [`Duration::MAX`] for ever. A longer window that another process registered counts more, as
    /// [`RetentionWindows`](super::RetentionWindows) says.
    pub retention: Duration,
    /// The windows of handler keys that the caller knows: for their entries and their marks. Legacy keys are named like
    /// others. What it does not know leaves by what was [registered](super::Store::register).
    pub windows: Vec<(HandlerKey, Duration)>,
    /// How long the records of operations are kept, from when they were done.
    pub audit: Duration,
    /// How long others are kept away after a page. One that does not come back within it has died.
    pub lease: Duration,
    /// Look at no more messages than this.
    pub limit: usize,
    /// Where the previous page ended; `None` for the first.
    pub after: Option<SweepPosition>,
}

impl SweepParams {
    /// How long others are kept away after a page, unless it is said otherwise.
    pub const LEASE: Duration = Duration::from_mins(1);

    /// How long the records of operations are kept, unless it is said otherwise: 400 days, longer than a year's audit looks
    /// back.
    pub const AUDIT: Duration = Duration::from_hours(400 * 24);

    /// The first page of a sweep.
    pub fn new(inbox: InboxName, retention: Duration, limit: usize) -> Self {
        let (sweep_id, audit, lease) = (SweepId::fresh(), Self::AUDIT, Self::LEASE);
        Self { inbox, sweep_id, retention, windows: Vec::new(), audit, lease, limit, after: None }
    }
}

/// What a sweep removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// Messages with their keys, outcomes and history.
    pub messages: usize,
    /// Entries of these messages: one for each handler that a message had.
    pub entries: usize,
    /// Marks of `once` and inline handlers.
    pub marks: usize,
    /// Records of what operators did.
    pub operations: usize,
    /// Messages that were looked at for that.
    pub looked: usize,
    /// Where to go on; `None` when everything old enough was looked at, or somebody else sweeps. Set also when as many
    /// marks as the limit allows were removed, because there may be more.
    pub next: Option<SweepPosition>,
}

impl Swept {
    /// Nothing removed, nothing left.
    pub const NOTHING: Self =
        Self { messages: 0, entries: 0, marks: 0, operations: 0, looked: 0, next: None };

    /// A page of a sweep that looked at so many messages.
    pub const fn new(looked: usize, next: Option<SweepPosition>) -> Self {
        Self { looked, next, ..Self::NOTHING }
    }

    /// Whether the sweep removed nothing of any kind.
    pub const fn is_nothing(&self) -> bool {
        self.messages == 0 && self.entries == 0 && self.marks == 0 && self.operations == 0
    }

    /// Adds the counts of a page to those of the pages before it, and takes its position.
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

/// What is asked of orphans.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OrphanParams {
    /// The inbox.
    pub inbox: InboxName,
    /// The handler keys that the caller knows, current and former ones.
    pub known: Vec<HandlerKey>,
    /// What has waited for less than this is not missed yet.
    pub grace: Duration,
    /// At most this many handler keys.
    pub limit: usize,
}

impl OrphanParams {
    /// Entries of a handler key are counted up to this number: a large backlog is not read through for it.
    pub const COUNTED: u64 = 10_000;

    /// Up to a hundred handler keys that the caller does not know.
    pub fn new(inbox: InboxName, known: Vec<HandlerKey>, grace: Duration) -> Self {
        Self { inbox, known, grace, limit: 100 }
    }
}

/// A handler key that nobody seems to work for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Orphan {
    /// The key that entries are stored under.
    pub handler: HandlerKey,
    /// How many of them are not finished: pending, or left behind by a worker that died. No more than
    /// [`OrphanParams::COUNTED`], which then stands for that many or more.
    pub count: u64,
    /// When the one that waits longest was due.
    pub oldest: Timestamp,
}

impl Orphan {
    /// A handler key with entries that wait.
    pub const fn new(handler: HandlerKey, count: u64, oldest: Timestamp) -> Self {
        Self { handler, count, oldest }
    }
}

/// What is asked of backfill.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BackfillParams {
    /// The inbox.
    pub inbox: InboxName,
    /// The handler that gets entries. A message that has one under a legacy key gets none.
    pub route: Route,
    /// The types of messages it handles, or patterns of them (`order.*`); others are passed over.
    pub types: Vec<Box<str>>,
    /// Where the previous page ended; `None` for the first.
    pub after: Option<Seq>,
    /// Look at no more messages than this.
    pub limit: usize,
}

impl BackfillParams {
    /// The first page for a handler of some message types.
    pub fn new(inbox: InboxName, route: Route, types: Vec<Box<str>>) -> Self {
        Self { inbox, route, types, after: None, limit: 1_000 }
    }

    /// Whether a message of this type gets an entry.
    pub fn takes(&self, message_type: &str) -> bool {
        self.types.iter().any(|pattern| crate::handler::takes(pattern, message_type))
    }
}

/// What became of a page of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backfilled {
    /// Entries that were added.
    pub added: usize,
    /// Messages without an entry that got none, because they are older than what the handler remembers: it may have had them
    /// before.
    pub stale: usize,
    /// Where to go on; `None` when every message was looked at.
    pub next: Option<Seq>,
}

impl Backfilled {
    /// A page of a backfill.
    pub const fn new(added: usize, next: Option<Seq>) -> Self {
        Self { added, stale: 0, next }
    }

    /// The same, with messages that are too old to tell.
    #[must_use]
    pub const fn stale(mut self, stale: usize) -> Self {
        self.stale = stale;
        self
    }
}
