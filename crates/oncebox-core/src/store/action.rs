//! Operator actions and their records.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use super::{ActionResult, Actor, EntryFilter, OperationId, OrderQueue};
use crate::key::Key;
use crate::name::{HandlerKey, InboxName};
use crate::state::Operation;
use crate::time::Timestamp;

/// A requested change, its actor and its reason. The store does it and records it in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Action {
    /// The identity of the operation.
    pub id: OperationId,
    /// Operation of which this is a part.
    pub parent: Option<OperationId>,
    /// The inbox.
    pub inbox: InboxName,
    /// Name that the actor gave.
    pub actor: Box<str>,
    /// Name of the request's API token, if it has one.
    pub token: Option<Box<str>>,
    /// Reason that the actor gave.
    pub reason: Box<str>,
    /// Requested change.
    pub kind: ActionKind,
}

impl Action {
    /// Maximum characters of actor, token and reason. Longer text is cut.
    pub const MAX_CHARS: usize = 500;
    /// Actor of an action that names none.
    pub const UNKNOWN_ACTOR: &str = "unknown";

    /// Returns an action with a new identity.
    pub fn new(inbox: InboxName, kind: ActionKind) -> Self {
        let actor = Self::UNKNOWN_ACTOR.into();
        Self { id: OperationId::fresh(), parent: None, inbox, actor, token: None, reason: "".into(), kind }
    }

    /// Sets an identity that the caller made before.
    #[must_use]
    pub fn id(mut self, id: OperationId) -> Self {
        self.id = id;
        self
    }

    /// Sets the actor and the reason.
    #[must_use]
    pub fn by<'a>(mut self, actor: impl Into<Actor<'a>>, reason: &str) -> Self {
        let Actor { name, token } = actor.into();
        (self.actor, self.token, self.reason) = (storable(name), token.map(storable), storable(reason));
        self
    }

    /// Returns the request as text. A store records it, and compares it to tell a repeat from another action with the
    /// same identity.
    pub fn body(&self) -> String {
        json!({ "inbox": self.inbox.as_str(), "verb": self.kind.verb(), "what": self.kind.body() })
            .to_string()
    }
}

/// Cuts text and replaces NUL, so that every store accepts it.
fn storable(text: &str) -> Box<str> {
    text.chars().take(Action::MAX_CHARS).map(|c| if c == '\0' { '\u{fffd}' } else { c }).collect()
}

/// Changes that an operator can make.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ActionKind {
    /// Retry, discard, replay or unblock one entry, as [`operate`](crate::state::operate) allows.
    Entry {
        /// The message's key.
        key: Key,
        /// The handler key that the entry is stored under.
        handler: HandlerKey,
        /// Change of the entry.
        operation: Operation,
    },
    /// Stop claims for a handler, on every worker. Running entries continue.
    Pause {
        /// The handler.
        handler: HandlerKey,
    },
    /// Allow claims for a handler again.
    Resume {
        /// The handler.
        handler: HandlerKey,
    },
    /// Stop claims for one ordering key of a handler, on every worker. Running entries continue, and other keys do not
    /// wait.
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
    /// Remove messages that have been quarantined for longer than `age`, oldest first, at most `limit`.
    Purge {
        /// Minimum time in quarantine.
        age: Duration,
        /// Maximum number of messages.
        limit: usize,
    },
    /// Erase the content of one message and of the quarantined messages under its key: payloads, headers, ids, errors and
    /// results. The proof of the key stays, so the same message is still a duplicate. Refused while an entry of the
    /// message runs.
    Erase {
        /// The message's key.
        key: Key,
        /// Discards pending and poisoned entries. If false, such entries refuse the erasure.
        discard_unfinished: bool,
    },
    /// Start of an operation on every entry that a filter matches. It changes nothing itself: each entry is changed under
    /// an identity of its own. `oncebox::operate::BulkOperation` starts and continues it.
    Bulk {
        /// Change of each entry.
        operation: Operation,
        /// Entries to change. The filter's cursor and limit are ignored.
        filter: Box<EntryFilter>,
        /// Maximum number of entries.
        limit: usize,
    },
    /// Start of a backfill. It changes nothing itself.
    Backfill {
        /// Handler that gets entries.
        handler: HandlerKey,
        /// Message types. Empty: all types.
        kinds: Vec<Box<str>>,
    },
}

impl ActionKind {
    /// Returns the verb.
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

    /// Returns the key of the affected message, if there is one.
    pub const fn key(&self) -> Option<&Key> {
        match self {
            Self::Entry { key, .. } | Self::Erase { key, .. } => Some(key),
            _ => None,
        }
    }

    /// Returns the affected handler, if there is one.
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

/// Returns the conditions of a filter as JSON. Bytes are hexadecimal.
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

/// Record of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationView {
    /// The identity of the operation.
    pub id: OperationId,
    /// Operation of which it was a part.
    pub parent: Option<OperationId>,
    /// Number among all records. Later records have greater numbers.
    pub number: i64,
    /// Time of the operation, on the store's clock.
    pub at: Timestamp,
    /// Name that the actor gave.
    pub actor: Box<str>,
    /// Name of the request's API token, if it had one. The actor cannot choose it.
    pub token: Option<Box<str>>,
    /// Reason that the actor gave.
    pub reason: Box<str>,
    /// Verb: retry, discard, replay, unblock, pause, resume, `pause_key`, `resume_key`, purge, erase, bulk or backfill.
    pub verb: Box<str>,
    /// Key of the affected message.
    pub key: Option<Key>,
    /// Affected handler.
    pub handler: Option<HandlerKey>,
    /// Request, as JSON.
    pub body: Box<str>,
    /// Result, as JSON.
    pub answer: Box<str>,
    /// Progress of a long operation: the number of notes, and the last note of the process that continues it.
    pub progress: Option<(u32, Box<str>)>,
}

impl OperationView {
    /// Returns the record of an action, for a store to keep.
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

/// Conditions for listing records of operations.
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
    /// Only operations of this actor.
    pub actor: Option<Box<str>>,
    /// Only operations with this API token.
    pub token: Option<Box<str>>,
    /// Only records before this number, where the previous page ended.
    pub before: Option<i64>,
    /// Maximum number of records. Default: 100.
    pub limit: usize,
}

impl AuditFilter {
    /// Returns a filter for the latest 100 records.
    pub fn new(inbox: InboxName) -> Self {
        Self { inbox, id: None, parent: None, key: None, actor: None, token: None, before: None, limit: 100 }
    }
}

/// A page of records, the latest first.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct AuditPage {
    /// The records, the latest first.
    pub operations: Vec<OperationView>,
    /// Start of the next page, if there is one.
    pub next: Option<i64>,
}

impl AuditPage {
    /// Returns a page of records, and the start of the next one.
    pub const fn new(operations: Vec<OperationView>, next: Option<i64>) -> Self {
        Self { operations, next }
    }
}
