//! What an operator does, and the record of it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use super::{Actor, EntryView, ErasureCounts, Filter, Label, Line, Seq};
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;
use crate::name::{HandlerKey, InboxName};
use crate::state::{InLine, Operation, PoisonReason, Status, Suspicion};
use crate::time::Timestamp;

/// The identity of an operation, made by its caller. The same action for the same reason under the same identity is done
/// once, and gets the same answer each time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(Uuid);

impl OperationId {
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

    /// The operation on one entry within an operation on many: always the same for the same entry, so that it is done once
    /// however often the whole is begun again.
    pub fn of_entry(&self, key: &Key, handler: &HandlerKey) -> Self {
        self.part("oncebox operation on an entry 1", &[key.as_bytes(), handler.as_str().as_bytes()])
    }

    /// The operation on a key that a handler had before, within an operation on the handler: always the same, as above.
    pub fn of_legacy(&self, handler: &HandlerKey) -> Self {
        self.part("oncebox operation on a legacy key 1", &[handler.as_str().as_bytes()])
    }

    fn part(&self, context: &str, parts: &[&[u8]]) -> Self {
        let mut hash = blake3::Hasher::new_derive_key(context);
        hash.update(self.as_bytes());
        for part in parts {
            hash.update(part);
        }
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize().as_bytes()[..16]);
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OperationId({})", self.0)
    }
}

impl FromStr for OperationId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let what = || format!("{text:?} is no operation id; use a UUID");
        Uuid::parse_str(text).map(Self).map_err(|_| Error::new(ErrorKind::InvalidConfig, what()))
    }
}

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
    pub what: What,
}

impl Action {
    /// The longest actor, token and reason, in characters; what is longer is cut.
    pub const MAX_CHARS: usize = 500;
    /// The actor of what a program did without saying for whom.
    pub const NOBODY: &str = "unknown";

    /// Something to be done under a new identity.
    pub fn new(inbox: InboxName, what: What) -> Self {
        let actor = Self::NOBODY.into();
        Self { id: OperationId::fresh(), parent: None, inbox, actor, token: None, reason: "".into(), what }
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
        json!({ "inbox": self.inbox.as_str(), "verb": self.what.verb(), "what": self.what.body() })
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
pub enum What {
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
        line: Line,
    },
    /// Allow claims for an ordering key again.
    ResumeKey {
        /// The handler key.
        handler: HandlerKey,
        /// The ordering key.
        line: Line,
    },
    /// Remove messages that were kept aside for longer than `age`, `limit` of them at most, those kept first first.
    Purge {
        /// How long.
        age: Duration,
        /// At most this many.
        limit: usize,
    },
    /// Erase the content of one message and of what was kept aside under its key: payloads, headers, ids, errors and results. What
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
        filter: Box<Filter>,
        /// How many entries at most.
        most: usize,
    },
    /// The beginning of a backfill. Changes nothing by itself.
    Backfill {
        /// The handler that gets entries.
        handler: HandlerKey,
        /// For messages of which types; all if there is none.
        kinds: Vec<Box<str>>,
    },
}

impl What {
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
            Self::Bulk { operation, filter, most } => {
                json!({ "operation": operation.as_str(), "filter": conditions(filter), "most": most })
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
fn conditions(filter: &Filter) -> Value {
    let words: Vec<&str> = filter.statuses.iter().map(|status| status.as_str()).collect();
    json!({
        "statuses": words,
        "handler": filter.handler.as_ref().map(HandlerKey::as_str),
        "type": filter.kind,
        "source": filter.source,
        "id_contains": filter.id_contains.as_deref().map(hex),
        "ordering_key": filter.ordering_key.as_deref().map(hex),
        "tenant": filter.tenant,
        "received_from": filter.received_from.map(Timestamp::as_millis),
        "received_before": filter.received_before.map(Timestamp::as_millis),
        "error_contains": filter.error_contains,
    })
}

/// What came of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// The entry, as it was right afterwards, without the text of its error: that may repeat what a message holds, and an answer is
    /// kept for much longer than the message. [`Admin::show`](super::Admin::show) has it.
    Entry(Box<EntryView>),
    /// Whether it changed anything: a handler that was paused already stays paused.
    Changed(bool),
    /// How many messages were removed.
    Purged(usize),
    /// The content of a message was erased.
    Erased(ErasureCounts),
    /// It has begun.
    Begun,
}

impl Answer {
    /// As text, for a store to keep with the record.
    pub fn encode(&self) -> String {
        match self {
            Self::Entry(entry) => json!({ "entry": write_entry(entry) }),
            Self::Changed(changed) => json!({ "changed": changed }),
            Self::Purged(count) => json!({ "purged": count }),
            Self::Erased(counts) => json!({ "erased": counts.write() }),
            Self::Begun => json!({ "begun": true }),
        }
        .to_string()
    }

    /// From the text a store kept.
    pub fn decode(text: &str) -> Result<Self> {
        let read = || -> Option<Self> {
            let value: Value = serde_json::from_str(text).ok()?;
            if let Some(entry) = value.get("entry") {
                return Some(Self::Entry(Box::new(read_entry(entry)?)));
            }
            if let Some(changed) = value.get("changed") {
                return Some(Self::Changed(changed.as_bool()?));
            }
            if let Some(count) = value.get("purged") {
                return Some(Self::Purged(usize::try_from(count.as_u64()?).ok()?));
            }
            if let Some(counts) = value.get("erased") {
                return Some(Self::Erased(ErasureCounts::read(counts)?));
            }
            value.get("begun").map(|_| Self::Begun)
        };
        read().ok_or_else(|| Error::new(ErrorKind::Corrupt, "the record of an operation cannot be read"))
    }

    /// The entry, if it is about one.
    pub fn entry(&self) -> Option<&EntryView> {
        match self {
            Self::Entry(entry) => Some(entry),
            _ => None,
        }
    }
}

fn write_entry(entry: &EntryView) -> Value {
    let label = entry.label.as_ref().map(|label| {
        json!({ "source": label.source, "id": hex(&label.id), "type": label.kind,
                "ordering_key": label.ordering_key.as_deref().map(hex) })
    });
    json!({
        "seq": entry.seq.0, "key": entry.key.to_string(), "handler": entry.handler.as_str(),
        "origin": entry.origin.as_str(), "status": entry.status.as_str(), "attempts": entry.attempts,
        "suspicion": entry.suspicion.stored(),
        "generation": entry.generation, "at": entry.at.as_millis(),
        "reason": entry.reason.map(PoisonReason::as_str),
        "in_line": entry.in_line.map(InLine::as_str),
        "received_at": entry.received_at.as_millis(), "tenant": entry.tenant, "label": label,
    })
}

fn read_entry(value: &Value) -> Option<EntryView> {
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let number = |name: &str| value.get(name)?.as_i64();
    let count = |name: &str| u32::try_from(number(name)?).ok();
    let status = Status::ALL.into_iter().find(|status| Some(status.as_str()) == text("status"))?;
    let (key, handler) = (Key::parse(text("key")?)?, HandlerKey::new(text("handler")?).ok()?);
    let at = Timestamp::from_millis(number("at")?);
    let mut entry = EntryView::new(Seq(number("seq")?), key, handler, status, at);
    (entry.attempts, entry.suspicion) = (count("attempts")?, Suspicion::from_stored(count("suspicion")?));
    entry.generation = count("generation")?;
    entry.origin = HandlerKey::new(text("origin")?).ok()?;
    entry.reason = PoisonReason::ALL.into_iter().find(|reason| Some(reason.as_str()) == text("reason"));
    entry.in_line = text("in_line").and_then(InLine::from_word);
    let label = value.get("label").filter(|label| !label.is_null()).and_then(read_label);
    let received_at = Timestamp::from_millis(number("received_at")?);
    Some(entry.of_message(received_at, text("tenant").map(Into::into), label))
}

fn read_label(value: &Value) -> Option<Label> {
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    Some(Label::new(
        text("source")?,
        unhex(text("id")?)?,
        text("type")?,
        text("ordering_key").and_then(unhex),
    ))
}

/// What came of an action, and whether that was now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Acted {
    /// The answer: the same each time.
    pub answer: Answer,
    /// Whether it was done before, under the same identity; then this call changed nothing.
    pub repeated: bool,
}

impl Acted {
    /// Something that was done now. It is answered as a repeat will be, from the record.
    pub fn now(mut answer: Answer) -> Self {
        if let Answer::Entry(entry) = &mut answer {
            entry.error = None;
        }
        Self { answer, repeated: false }
    }

    /// The answer to an action whose identity is known, from the body, the reason and the answer that the store recorded. One
    /// identity stands for one action on one target for one reason; the actor may be another.
    pub fn again(action: &Action, body: &str, reason: &str, answer: &str) -> Result<Self> {
        if let Some(difference) = difference(action, body, reason) {
            // The recorded value stays in the record: it may be of another tenant.
            let what = format!(
                "the operation {} was recorded with another {difference}; nothing was done, use another identity",
                action.id
            );
            return Err(Error::new(ErrorKind::OperationReused, what));
        }
        Ok(Self { answer: Answer::decode(answer)?, repeated: true })
    }
}

/// What tells an action from the recorded one under its identity; nothing if they are the same.
fn difference(action: &Action, body: &str, reason: &str) -> Option<&'static str> {
    let own = action.body();
    if own == body {
        return (*action.reason != *reason).then_some("reason");
    }
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let (own, recorded) = (read(&own), read(body));
    let differs = |name: &str| own.get(name) != recorded.get(name);
    Some(match () {
        () if differs("inbox") => "inbox",
        () if differs("verb") => "verb",
        () => "target",
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
    pub fn of(action: &Action, answer: &Answer, number: i64, at: Timestamp) -> Self {
        Self {
            id: action.id,
            parent: action.parent,
            number,
            at,
            actor: action.actor.clone(),
            token: action.token.clone(),
            reason: action.reason.clone(),
            verb: action.what.verb().into(),
            key: action.what.key().copied(),
            handler: action.what.handler().cloned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back_from_their_text() {
        let mut entry = EntryView::new(
            Seq(7),
            Key::from_bytes([9; 32]),
            HandlerKey::new("h").unwrap(),
            Status::Poisoned,
            Timestamp::MAX,
        );
        entry.reason = Some(PoisonReason::Rejected);
        entry.in_line = Some(InLine::Blocks);
        (entry.attempts, entry.suspicion, entry.generation) = (1, Suspicion::from_stored(2), 3);
        let label = Label::new("shop", *b"\0\xff", "t", Some((*b"k").into()));
        let whole = entry.clone().of_message(Timestamp::from_millis(5), Some("acme".into()), Some(label));
        let mut failed = entry.clone();
        failed.error = Some(crate::state::ErrorText::new("card 4111 refused"));
        let answers = [
            Answer::Entry(Box::new(entry)),
            Answer::Entry(Box::new(whole)),
            Answer::Changed(true),
            Answer::Purged(3),
            Answer::Erased(ErasureCounts::new(1, 2)),
            Answer::Begun,
        ];
        for answer in &answers {
            assert_eq!(Answer::decode(&answer.encode()).unwrap(), *answer);
        }
        // FAULTS S12: what was erased is in no record of what was done before.
        let without = Answer::without_content(&answers[1].encode()).unwrap();
        assert_eq!(Answer::decode(&without).unwrap().entry().map(|entry| entry.label.clone()), Some(None));
        for answer in [&answers[0], &answers[2], &answers[4]] {
            assert_eq!(Answer::without_content(&answer.encode()), None);
        }
        // FAULTS S12: a record outlives the message whose payload the error may repeat.
        let told = Acted::now(Answer::Entry(Box::new(failed.clone()))).answer;
        let kept = Answer::Entry(Box::new(failed)).encode();
        assert!(!kept.contains("4111"), "{kept}");
        assert_eq!(Answer::decode(&kept).unwrap(), told, "now as later");
        assert_eq!(Answer::decode("{}").unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn entries_of_one_operation_have_identities_of_their_own() {
        let (id, other) = (OperationId::fresh(), OperationId::fresh());
        let (key, h) = (Key::from_bytes([1; 32]), HandlerKey::new("h").unwrap());
        assert_eq!(id.of_entry(&key, &h), id.of_entry(&key, &h));
        let ids = [
            id.of_entry(&key, &h),
            other.of_entry(&key, &h),
            id.of_entry(&Key::from_bytes([2; 32]), &h),
            id.of_entry(&key, &HandlerKey::new("g").unwrap()),
            id.of_legacy(&h),
            other.of_legacy(&h),
        ];
        assert!(ids.iter().enumerate().all(|(at, id)| !ids[..at].contains(id)));
        assert_eq!(id.to_string().parse::<OperationId>().unwrap(), id);
    }
}
