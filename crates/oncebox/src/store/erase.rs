//! Erasing one message, and what is known of it afterwards.

use serde_json::{Value, json};

use super::ActionResult;
use crate::error::{Error, ErrorKind};
use crate::key::Key;

/// What an erasure found beside the message itself. Nothing of its content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErasureCounts {
    /// How many unfinished entries ended as discarded.
    pub discarded: usize,
    /// How many messages that were quarantined under the same key were removed.
    pub quarantined: usize,
}

impl ErasureCounts {
    /// What was found.
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
    /// The text of a stored answer without what it says of its message, for a store that erases that; nothing if it says nothing of it.
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

/// The error about a key of which nothing is stored that could be erased.
pub fn nothing_to_erase(key: &Key) -> Error {
    Error::new(ErrorKind::NotFound, format!("nothing is known of {key}, so there is nothing to erase"))
}

/// The error about a message whose content was erased, and is needed.
pub fn content_erased(key: &Key) -> Error {
    let what = format!("the content of {key} was erased; only its key is remembered");
    Error::new(ErrorKind::Refused, what)
}
