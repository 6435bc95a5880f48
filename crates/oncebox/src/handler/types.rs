//! Patterns of message types that handlers register. Tests: below, and `tests/patterns.rs`.

use crate::message::pattern::prefix;

/// One message type, or several.
pub trait IntoTypes {
    /// Returns the types as a list.
    fn into_types(self) -> Vec<Box<str>>;
}

impl IntoTypes for &str {
    fn into_types(self) -> Vec<Box<str>> {
        vec![self.into()]
    }
}

impl<const N: usize> IntoTypes for [&str; N] {
    fn into_types(self) -> Vec<Box<str>> {
        self.into_iter().map(Into::into).collect()
    }
}

impl IntoTypes for Vec<String> {
    fn into_types(self) -> Vec<Box<str>> {
        self.into_iter().map(Into::into).collect()
    }
}

/// Returns true if a pattern matches everything that `other`, a pattern or a type, matches.
pub(super) fn covers(pattern: &str, other: &str) -> bool {
    match (prefix(pattern), prefix(other)) {
        (Some(prefix), other_prefix) => other_prefix.unwrap_or(other).starts_with(prefix),
        (None, Some(_)) => false,
        (None, None) => pattern == other,
    }
}

/// Returns the flaw of a pattern, and the fix.
pub(super) fn flaw(pattern: &str) -> Option<&'static str> {
    if pattern.is_empty() {
        Some("no message has an empty type; name a type, or use `*` for all of them")
    } else if prefix(pattern).unwrap_or(pattern).contains('*') {
        Some("a pattern has one `*`, at its end; write it like `order.*`")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_types_and_narrower_patterns() {
        for (pattern, other, expected) in [
            ("order.*", "order.*", true),
            ("order.*", "order.p*", true),
            ("order.p*", "order.*", false),
            ("*", "order.*", true),
            ("order.*", "order.placed", true),
            ("order.placed", "order.placed", true),
            ("order.placed", "order.placed*", false),
            ("order.placed", "*", false),
        ] {
            assert_eq!(covers(pattern, other), expected, "{pattern} {other}");
        }
    }
}
