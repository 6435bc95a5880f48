//! What an operator does, and the record of it.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use super::{ActionResult, Actor, EntryFilter, OperationId, OrderQueue};
use crate::key::Key;
use crate::name::{HandlerKey, InboxName};
use crate::state::Operation;
use crate::time::Timestamp;

/// What is to be done, by whom, and why. It is done and recorded in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Action {
    /// The identity of the operation.
    pub id: OperationId,
    /// The operation it is a part of.
    pub parent: Option<OperationId>,
    /// The inbox.
    pub inbox: InboxName,
    /// Who asks for it.
    pub actor: Box<str>,
    /// The name of the token that the request came with, if it came with one.
    pub token: Option<Box<str>>,
    /// Why.
    pub reason: Box<str>,
    /// What is to be done.
    pub kind: ActionKind,
}

impl Action {
    /// The longest actor, token and reason, in characters; what is longer is cut.
    pub const MAX_CHARS: usize = 500;
    /// The actor of what a program did without saying for whom.
    pub const UNKNOWN_ACTOR: &str = "unknown";

    /// Something to be done under a new identity.
    pub fn new(inbox: InboxName, kind: ActionKind) -> Self {
        let actor = Self::UNKNOWN_ACTOR.into();
        Self { id: OperationId::fresh(), parent: None, inbox, actor, token: None, reason: "".into(), kind }
    }

    /// The same, with an identity that was made before.
    #[must_use]
    pub fn id(mut self, id: OperationId) -> Self {
        self.id = id;
        self
    }

    /// The same, with who asks for it and why.
    #[must_use]
    pub fn by<'a>(mut self, actor: impl Into<Actor<'a>>, reason: &str) -> Self {
        let Actor { name, token } = actor.into();
        (self.actor, self.token, self.reason) = (storable(name), token.map(storable), storable(reason));
        self
    }

    /// What it asks for, as text: a store keeps it, and tells a repeat from another action under the same identity by it.
    pub fn body(&self) -> String {
        json!({ "inbox": self.inbox.as_str(), "verb": self.kind.verb(), "what": self.kind.body() })
            .to_string()
    }
}

/// Text that every store can keep.
fn storable(text: &str) -> Box<str> {
    text.chars().take(Action::MAX_CHARS).map(|c| if c == '\0' { '\u{fffd}' } else { c }).collect()
}

/// What an operator can do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ActionKind {
    /// Retry, discard, replay or unblock one entry, as [`operate`](crate::state::operate) allows.
    Entry {
        /// The message's key.
        key: Key,
        /// The handler key that the entry is stored under.
        handler: HandlerKey,
        /// What to do.
        operation: Operation,
    },
    /// Stop claims for a handler, on every worker. What runs already goes on.
    Pause {
        /// The handler.
        handler: HandlerKey,
    },
    /// Allow claims for a handler again.
    Resume {
        /// The handler.
        handler: HandlerKey,
    },
    /// Stop claims for one ordering key of a handler, on every worker. What runs already goes on; others are not kept waiting.
    PauseKey {
        /// The handler key that the entries are stored under.
        handler: HandlerKey,
        /// The ordering key.
        line: OrderQueue,
    },
    /// Allow claims for an ordering key again.
    ResumeKey {
        /// The handler key.
        handler: HandlerKey,
        /// The ordering key.
        line: OrderQueue,
    },
    /// Remove messages that were quarantined for longer than `age`, `limit` of them at most, those kept first first.
    Purge {
        /// How long.
        age: Duration,
        /// At most this many.
        limit: usize,
    },
    /// Erase the content of one message and of what was quarantined under its key: payloads, headers, ids, errors and results. What
    /// stays is the proof of its key, so that the same message is still a duplicate. Refused while an entry of it runs.
    Erase {
        /// The message's key.
        key: Key,
        /// Whether entries that are pending or poisoned end as discarded. If not, they refuse the erasure.
        discard_unfinished: bool,
    },
    /// The beginning of an operation on every entry that a filter takes. Changes nothing by itself: each entry is done under an
    /// identity of its own. Begun and carried on by [`operate::Bulk`](crate::operate::Bulk).
    Bulk {
        /// What to do with each entry.
        operation: Operation,
        /// Which entries; where it starts and how long its pages are does not count.
        filter: Box<EntryFilter>,
        /// How many entries at most.
        limit: usize,
    },
    /// The beginning of a backfill. Changes nothing by itself.
    Backfill {
        /// The handler that gets entries.
        handler: HandlerKey,
        /// For messages of which types; all if there is none.
        kinds: Vec<Box<str>>,
    },
}

impl ActionKind {
    /// The verb.
    pub const fn verb(&self) -> &'static str {
        match self {
            Self::Entry { operation, .. } => operation.as_str(),
            Self::Pause { .. } => "pause",
            Self::Resume { .. } => "resume",
            Self::PauseKey { .. } => "pause_key",
            Self::ResumeKey { .. } => "resume_key",
            Self::Purge { .. } => "purge",
            Self::Erase { .. } => "erase",
            Self::Bulk { .. } => "bulk",
            Self::Backfill { .. } => "backfill",
        }
    }

    /// The key it is about, if it is about one.
    pub const fn key(&self) -> Option<&Key> {
        match self {
            Self::Entry { key, .. } | Self::Erase { key, .. } => Some(key),
            _ => None,
        }
    }

    /// The handler it is about, if it is about one.
    pub const fn handler(&self) -> Option<&HandlerKey> {
        match self {
            Self::Entry { handler, .. }
            | Self::Pause { handler }
            | Self::Resume { handler }
            | Self::PauseKey { handler, .. }
            | Self::ResumeKey { handler, .. }
            | Self::Backfill { handler, .. } => Some(handler),
            Self::Purge { .. } | Self::Erase { .. } | Self::Bulk { .. } => None,
        }
    }

    fn body(&self) -> Value {
        match self {
            Self::Entry { key, handler, .. } => {
                json!({ "key": key.to_string(), "handler": handler.as_str() })
            }
            Self::Pause { handler } | Self::Resume { handler } => json!({ "handler": handler.as_str() }),
            Self::PauseKey { handler, line } | Self::ResumeKey { handler, line } => {
                json!({ "handler": handler.as_str(), "line": line.body() })
            }
            Self::Erase { key, discard_unfinished } => {
                json!({ "key": key.to_string(), "discard_unfinished": discard_unfinished })
            }
            Self::Purge { age, limit } => json!({ "age_ms": millis(*age), "limit": limit }),
            Self::Bulk { operation, filter, limit } => {
                json!({ "operation": operation.as_str(), "filter": conditions(filter), "limit": limit })
            }
            Self::Backfill { handler, kinds } => json!({ "handler": handler.as_str(), "types": kinds }),
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn unhex(text: &str) -> Option<Box<[u8]>> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

/// What a filter asks for. Bytes are hexadecimal.
fn conditions(filter: &EntryFilter) -> Value {
    let words: Vec<&str> = filter.statuses.iter().map(|status| status.as_str()).collect();
    json!({
        "statuses": words,
        "handler": filter.handler.as_ref().map(HandlerKey::as_str),
        "type": filter.message_type,
        "source": filter.source,
        "id_contains": filter.id_contains.as_deref().map(hex),
        "ordering_key": filter.ordering_key.as_deref().map(hex),
        "tenant": filter.tenant,
        "received_from": filter.received_from.map(Timestamp::as_millis),
        "received_before": filter.received_before.map(Timestamp::as_millis),
        "error_contains": filter.error_contains,
    })
}

/// The record of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationView {
    /// The identity of the operation.
    pub id: OperationId,
    /// The operation it was a part of.
    pub parent: Option<OperationId>,
    /// Its place among all records; later ones have greater numbers.
    pub number: i64,
    /// When it was done, on the store's clock.
    pub at: Timestamp,
    /// Who asked for it, by the name that was given.
    pub actor: Box<str>,
    /// The name of the token that the request came with, if it came with one. The actor cannot choose it.
    pub token: Option<Box<str>>,
    /// Why.
    pub reason: Box<str>,
    /// The verb: retry, discard, replay, unblock, pause, resume, `pause_key`, `resume_key`, purge, erase, bulk, backfill.
    pub verb: Box<str>,
    /// The key it was about.
    pub key: Option<Key>,
    /// The handler it was about.
    pub handler: Option<HandlerKey>,
    /// What was asked for, as JSON.
    pub body: Box<str>,
    /// What came of it, as JSON.
    pub answer: Box<str>,
    /// How far a long one has come, as whoever carries it on noted; and how often that was noted.
    pub progress: Option<(u32, Box<str>)>,
}

impl OperationView {
    /// The record of an action, for a store to keep.
    pub fn of(action: &Action, answer: &ActionResult, number: i64, at: Timestamp) -> Self {
        Self {
            id: action.id,
            parent: action.parent,
            number,
            at,
            actor: action.actor.clone(),
            token: action.token.clone(),
            reason: action.reason.clone(),
            verb: action.kind.verb().into(),
            key: action.kind.key().copied(),
            handler: action.kind.handler().cloned(),
            body: action.body().into(),
            answer: answer.encode().into(),
            progress: None,
        }
    }
}

/// Which records of operations to list.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AuditFilter {
    /// The inbox.
    pub inbox: InboxName,
    /// Only this operation.
    pub id: Option<OperationId>,
    /// Only parts of this operation.
    pub parent: Option<OperationId>,
    /// Only operations on this key.
    pub key: Option<Key>,
    /// Only operations that this one asked for.
    pub actor: Option<Box<str>>,
    /// Only operations that came with this token.
    pub token: Option<Box<str>>,
    /// Only those before this number; where the previous page ended.
    pub before: Option<i64>,
    /// At most this many.
    pub limit: usize,
}

impl AuditFilter {
    /// The latest hundred.
    pub fn new(inbox: InboxName) -> Self {
        Self { inbox, id: None, parent: None, key: None, actor: None, token: None, before: None, limit: 100 }
    }
}

/// A page of records, the latest first.
#[derive(Clone, Debug, Default)]
pub struct AuditPage {
    /// The records.
    pub operations: Vec<OperationView>,
    /// Where the next page starts, if there is one.
    pub next: Option<i64>,
}
