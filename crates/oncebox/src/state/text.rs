//! Error text that any store can keep.

use std::error::Error as StdError;
use std::fmt;

use super::mask::mask;

/// The text of a handler's error: bounded, without the NUL that text columns refuse, and without credentials. Writing a
/// failure down must never fail itself, and must not tell a secret to everybody who reads it later.
///
/// What looks like a credential becomes `***`: the user of a URL (`scheme://user:password@host`), what follows `Bearer`,
/// and the values of `password=`, `token:`, `"api_key": ` and the like. Other rules are the user's own
/// ([`InboxBuilder::redact`](crate::InboxBuilder::redact)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorText(Box<str>);

impl ErrorText {
    /// The most characters that are kept.
    pub const MAX_CHARS: usize = 2_000;

    /// Makes any text storable.
    pub fn new(text: impl AsRef<str>) -> Self {
        // Masked before it is cut: half a credential does not look like one.
        let text = mask(text.as_ref());
        Self(text.chars().take(Self::MAX_CHARS).map(|c| if c == '\0' { '\u{fffd}' } else { c }).collect())
    }

    /// From the text a store kept, or one that a wrapper of a store made of another: taken as it is.
    pub fn stored(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The error and its causes, on one line.
    pub fn of(error: &(dyn StdError + 'static)) -> Self {
        Self::new(Self::whole(error))
    }

    /// The same before anything is masked or cut.
    pub(crate) fn whole(error: &(dyn StdError + 'static)) -> String {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let line = error.to_string();
            // Many errors print their cause as part of their own text.
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
