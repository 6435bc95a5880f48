//! Erasure of one message. Tests: `conformance/erase.rs` in `oncebox-testkit`.

use serde_json::{Value, json};

use super::ActionResult;
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

/// Returns the error for a key under which nothing is stored.
pub fn nothing_to_erase(key: &Key) -> Error {
    Error::new(ErrorKind::NotFound, format!("nothing is known of {key}, so there is nothing to erase"))
}

/// Returns the error for an operation that needs erased content.
pub fn content_erased(key: &Key) -> Error {
    let what = format!("the content of {key} was erased; only its key is remembered");
    Error::new(ErrorKind::Refused, what)
}
