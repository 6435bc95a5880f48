//! Results of operator actions.

use serde_json::{Value, json};

use super::action::{hex, unhex};
use super::{Action, EntryView, ErasureCounts, MessageLabel, Seq};
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;
use crate::name::HandlerKey;
use crate::state::{InLine, PoisonReason, Status, Suspicion};
use crate::time::Timestamp;

/// Result of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ActionResult {
    /// The entry right after the action, without its error text. That text may repeat content of the message, and a
    /// result is kept for much longer than the message. [`Admin::show`](super::Admin::show) has the text.
    Entry(Box<EntryView>),
    /// True if the action changed anything. False for a handler that was already paused, for example.
    Changed(bool),
    /// Number of removed messages.
    Purged(usize),
    /// The content of a message was erased.
    Erased(ErasureCounts),
    /// The operation has begun.
    Begun,
}

impl ActionResult {
    /// Returns the result as text, for a store to keep with the record.
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

    /// Reads the text that a store kept.
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

    /// Returns the entry, if the action was about one.
    pub fn entry(&self) -> Option<&EntryView> {
        match self {
            Self::Entry(entry) => Some(entry),
            _ => None,
        }
    }
}

fn write_entry(entry: &EntryView) -> Value {
    let label = entry.label.as_ref().map(|label| {
        json!({ "source": label.source, "id": hex(&label.id), "type": label.message_type,
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

fn read_label(value: &Value) -> Option<MessageLabel> {
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    Some(MessageLabel::new(
        text("source")?,
        unhex(text("id")?)?,
        text("type")?,
        text("ordering_key").and_then(unhex),
    ))
}

/// Result of an action, and whether this call did it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Acted {
    /// Result. Every repeat returns the same.
    pub answer: ActionResult,
    /// True if an earlier call with this identity did the action. This call changed nothing.
    pub repeated: bool,
}

impl Acted {
    /// Returns the result of an action that this call did, in the form that a repeat reads from the record.
    pub fn now(mut answer: ActionResult) -> Self {
        if let ActionResult::Entry(entry) = &mut answer {
            entry.error = None;
        }
        Self { answer, repeated: false }
    }

    /// Returns the recorded result of a repeated action. `body`, `reason` and `answer` come from the record. An identity
    /// belongs to one action on one target for one reason. The actor of a repeat may differ.
    pub fn again(action: &Action, body: &str, reason: &str, answer: &str) -> Result<Self> {
        if let Some(difference) = difference(action, body, reason) {
            // The recorded value stays in the record: it may belong to another tenant.
            let what = format!(
                "the operation {} was recorded with another {difference}; nothing was done, use another identity",
                action.id
            );
            return Err(Error::new(ErrorKind::OperationReused, what));
        }
        Ok(Self { answer: ActionResult::decode(answer)?, repeated: true })
    }
}

/// Returns the first difference between an action and the recorded one under its identity, if there is one.
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
        let label = MessageLabel::new("shop", *b"\0\xff", "t", Some((*b"k").into()));
        let whole = entry.clone().of_message(Timestamp::from_millis(5), Some("acme".into()), Some(label));
        let mut failed = entry.clone();
        failed.error = Some(crate::state::ErrorText::new("card 4111 refused"));
        let answers = [
            ActionResult::Entry(Box::new(entry)),
            ActionResult::Entry(Box::new(whole)),
            ActionResult::Changed(true),
            ActionResult::Purged(3),
            ActionResult::Erased(ErasureCounts::new(1, 2)),
            ActionResult::Begun,
        ];
        for answer in &answers {
            assert_eq!(ActionResult::decode(&answer.encode()).unwrap(), *answer);
        }
        // FAULTS S12: no record of an earlier action holds erased content.
        let without = ActionResult::without_content(&answers[1].encode()).unwrap();
        assert_eq!(
            ActionResult::decode(&without).unwrap().entry().map(|entry| entry.label.clone()),
            Some(None)
        );
        for answer in [&answers[0], &answers[2], &answers[4]] {
            assert_eq!(ActionResult::without_content(&answer.encode()), None);
        }
        // FAULTS S12: a record outlives the message whose payload the error may repeat.
        let told = Acted::now(ActionResult::Entry(Box::new(failed.clone()))).answer;
        let kept = ActionResult::Entry(Box::new(failed)).encode();
        assert!(!kept.contains("4111"), "{kept}");
        assert_eq!(ActionResult::decode(&kept).unwrap(), told, "now as later");
        assert_eq!(ActionResult::decode("{}").unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
