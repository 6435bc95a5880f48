//! Error text that any store can keep.

use std::error::Error as StdError;
use std::fmt;

use super::mask::mask;

/// Error text of a handler: bounded, without the NUL that text columns refuse, and without credentials. Recording a failure must
/// never fail, and must not show a secret to later readers.
///
/// A URL's user (`scheme://user:password@host`), the word after `Bearer`, and the values of `password=`, `token:`, `"api_key": `
/// and the like become `***`. Users add rules of their own (`InboxBuilder::redact`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorText(Box<str>);

impl ErrorText {
    /// Maximum characters.
    pub const MAX_CHARS: usize = 2_000;

    /// Returns text that any store can keep.
    pub fn new(text: impl AsRef<str>) -> Self {
        // Masked before it is cut: half a credential is not recognised.
        let text = mask(text.as_ref());
        Self(text.chars().take(Self::MAX_CHARS).map(|c| if c == '\0' { '\u{fffd}' } else { c }).collect())
    }

    /// Wraps text from a store, or from a wrapper of one, unchanged.
    pub fn stored(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the error and its causes, on one line.
    pub fn of(error: &(dyn StdError + 'static)) -> Self {
        Self::new(Self::whole(error))
    }

    /// Returns the same, neither masked nor cut.
    pub fn whole(error: &(dyn StdError + 'static)) -> String {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let line = error.to_string();
            // Many errors contain their cause's text.
            if !text.contains(&line) {
                text.push_str(": ");
                text.push_str(&line);
            }
            cause = error.source();
        }
        text
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ErrorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // FAULTS C11
    #[test]
    fn is_bounded_and_holds_no_nul() {
        assert_eq!(ErrorText::new("a\0b").as_str(), "a\u{fffd}b");
        assert_eq!(ErrorText::new("é".repeat(10_000)).as_str().chars().count(), ErrorText::MAX_CHARS);
    }

    // FAULTS C11: a credential that lies across the cut.
    #[test]
    fn half_a_secret_is_a_secret_too() {
        for filling in 1_970..2_010 {
            let text = format!("{} postgres://app:hunter2@db/orders", "x".repeat(filling));
            let kept = ErrorText::new(text);
            assert!(!kept.as_str().contains("hun") && !kept.as_str().contains("app:"), "{kept}");
        }
    }
}
