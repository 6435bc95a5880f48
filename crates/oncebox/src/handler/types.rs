//! Message types and patterns of them: `order.placed`, `order.*`, `*`. Tests: below, and `tests/patterns.rs`.

/// Returns the text before the `*` of a pattern; `None` for a type.
pub(crate) fn prefix(pattern: &str) -> Option<&str> {
    pattern.strip_suffix('*')
}

/// Returns true if a pattern matches a message type.
pub(crate) fn takes(pattern: &str, message_type: &str) -> bool {
    prefix(pattern).map_or(pattern == message_type, |prefix| message_type.starts_with(prefix))
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
    fn a_pattern_means_what_starts_with_what_is_before_its_star() {
        for (pattern, message_type, expected) in [
            ("order.placed", "order.placed", true),
            ("order.placed", "order.placed.v2", false),
            ("order.*", "order.placed", true),
            ("order.*", "order.", true),
            ("order.*", "order", false),
            ("order.*", "Order.placed", false),
            ("*", "anything", true),
        ] {
            assert_eq!(takes(pattern, message_type), expected, "{pattern} {message_type}");
        }
    }

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
