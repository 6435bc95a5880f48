//! Erasure of one message. Tests: `conformance/erase.rs` in `oncebox-testkit`.

use serde_json::{Value, json};

use super::ActionResult;
use super::action::hex;
use crate::error::{Error, ErrorKind};
use crate::key::Key;

/// Counts of an erasure. They hold no content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErasureCounts {
    /// Number of unfinished entries that were discarded.
    pub discarded: usize,
    /// Number of quarantined messages that were removed.
    pub quarantined: usize,
}

impl ErasureCounts {
    /// Returns the counts.
    pub const fn new(discarded: usize, quarantined: usize) -> Self {
        Self { discarded, quarantined }
    }

    pub(super) fn write(self) -> Value {
        json!({ "discarded": self.discarded, "quarantined": self.quarantined })
    }

    pub(super) fn read(value: &Value) -> Option<Self> {
        let count = |name: &str| usize::try_from(value.get(name)?.as_u64()?).ok();
        Some(Self::new(count("discarded")?, count("quarantined")?))
    }
}

impl ActionResult {
    /// Returns the text of a stored result without the content of its message. Returns `None` if the text holds none.
    pub fn without_content(text: &str) -> Option<String> {
        match Self::decode(text) {
            Ok(Self::Entry(mut entry)) => {
                entry.label.take()?;
                entry.error = None;
                Some(Self::Entry(entry).encode())
            }
            _ => None,
        }
    }
}

/// Ids and ordering keys of an erased message and of the messages that were quarantined under its key. A store removes them from the
/// requests that it recorded for operations on many messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErasedIds(Vec<Box<[u8]>>);

impl ErasedIds {
    /// Verbs whose requests may hold an id or an ordering key.
    pub const VERBS: [&str; 3] = ["bulk", "pause_key", "resume_key"];
    /// Text in the place of a removed one. It has no hexadecimal digits only, so it matches no bytes.
    const ERASED: &str = "erased";

    /// Adds the id and the ordering key of a message.
    pub fn add(&mut self, id: &[u8], ordering_key: Option<&[u8]>) {
        let texts = [Some(id), ordering_key];
        self.0.extend(texts.into_iter().flatten().filter(|text| !text.is_empty()).map(Into::into));
    }

    /// Returns true if there is nothing to remove.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a recorded request without these texts. Returns `None` if it holds none of them. An ordering key must be equal. A searched
    /// text is removed if it contains an id or ordering key, or is part of one.
    pub fn without(&self, body: &str) -> Option<String> {
        let mut body: Value = serde_json::from_str(body).ok()?;
        let equal = |text: &str| self.0.iter().any(|one| hex(one) == text);
        let part = |text: &str| self.0.iter().any(|one| contains_digits(&hex(one), text));
        let said = |text: &str| part(&hex(text.as_bytes()));
        let mut changed = false;
        let mut remove = |place: &str, names: &dyn Fn(&str) -> bool| {
            let Some(value) = body.pointer_mut(place).filter(|value| value.as_str().is_some_and(names))
            else {
                return;
            };
            *value = Self::ERASED.into();
            changed = true;
        };
        remove("/what/line/ordering_key", &equal);
        remove("/what/filter/ordering_key", &equal);
        remove("/what/filter/id_contains", &part);
        remove("/what/filter/error_contains", &said);
        changed.then(|| body.to_string())
    }
}

/// Returns true if the bytes of one hexadecimal text contain those of the other.
fn contains_digits(one: &str, other: &str) -> bool {
    let within = |outer: &str, inner: &str| {
        !inner.is_empty() && outer.match_indices(inner).any(|(at, _)| at.is_multiple_of(2))
    };
    within(one, other) || within(other, one)
}

/// Returns the error for a key under which nothing is stored.
pub fn nothing_to_erase(key: &Key) -> Error {
    Error::new(ErrorKind::NotFound, format!("nothing is known of {key}, so there is nothing to erase"))
}

/// Returns the error for an operation that needs erased content.
pub fn content_erased(key: &Key) -> Error {
    let what = format!("the content of {key} was erased; only its key is remembered");
    Error::new(ErrorKind::Refused, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::{HandlerKey, InboxName};
    use crate::state::{Operation, Status};
    use crate::store::{Action, ActionKind, EntryFilter, OrderQueue};

    fn body(kind: ActionKind) -> String {
        Action::new(InboxName::new("in").unwrap(), kind).body()
    }

    // FAULTS S12: what an operator searched for is removed if it names the message, and stays otherwise.
    #[test]
    fn recorded_requests_lose_the_ids_of_an_erased_message() {
        let mut erased = ErasedIds::default();
        erased.add(b"order-ada@example.org-7", Some(b"ada"));
        let search = |set: &dyn Fn(&mut EntryFilter)| {
            let mut filter = EntryFilter::new(InboxName::new("in").unwrap(), Status::Poisoned);
            set(&mut filter);
            body(ActionKind::Bulk { operation: Operation::Retry, filter: Box::new(filter), limit: 1 })
        };
        let bytes = |text: &str| Some(text.as_bytes().into());
        for (named, text) in [
            (true, "ada@example.org"),
            (true, "a complaint of ada"),
            (true, "[order-ada@example.org-7]"),
            (false, "timeout after 30 s"),
            (false, "order-8"),
        ] {
            for request in [
                search(&|filter| filter.id_contains = bytes(text)),
                search(&|filter| filter.error_contains = Some(text.into())),
            ] {
                let without = erased.without(&request);
                assert_eq!(without.is_some(), named, "{text}");
                let left = without.unwrap_or_default();
                assert!(!left.contains(text) && !left.contains(&hex(text.as_bytes())), "{left}");
            }
        }
        let handler = HandlerKey::new("h").unwrap();
        for (named, key) in [(true, "ada"), (false, "adam"), (false, "a")] {
            let line = OrderQueue::new("shop", key.as_bytes());
            let pause = body(ActionKind::PauseKey { handler: handler.clone(), line: line.clone() });
            let resume = body(ActionKind::ResumeKey { handler: handler.clone(), line });
            for request in [pause, resume, search(&|filter| filter.ordering_key = bytes(key))] {
                assert_eq!(erased.without(&request).is_some(), named, "{key}");
            }
        }
        assert_eq!(erased.without(&search(&|_| {})), None);
        assert!(!contains_digits("1122", "12"), "half bytes");
    }
}
