//! Patterns of message types: `order.placed`, `order.*`, `*`.

/// Returns the text before the `*` of a pattern; `None` for a type.
pub fn prefix(pattern: &str) -> Option<&str> {
    pattern.strip_suffix('*')
}

/// Returns true if a pattern matches a message type.
pub fn takes(pattern: &str, message_type: &str) -> bool {
    prefix(pattern).map_or(pattern == message_type, |prefix| message_type.starts_with(prefix))
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
}
