//! Handling of a conflict under a key, by the strategy that selected the key.

use super::{Fingerprint, KeyStrategy};
use crate::config::OnConflict;

/// Headers that connect messages, and so repeat in others.
const CORRELATIONS: [&str; 2] = ["correlation-id", "x-correlation-id"];

impl OnConflict {
    /// Returns true if a message conflicts with the one stored under its key.
    pub fn is_conflict(self, known: &Fingerprint, new: &Fingerprint) -> bool {
        known != new && !(self == Self::FirstWins && known.is_same_type(new))
    }
}

impl KeyStrategy {
    /// Sets the handling of another message under a key of this strategy. It overrides
    /// `Config::on_conflict`, and applies to the strategy as a whole: within a
    /// [`Composite`](Self::Composite) it has no effect.
    #[must_use]
    pub fn on_conflict(self, policy: OnConflict) -> Self {
        match self {
            Self::WithPolicy(strategy, _) => Self::WithPolicy(strategy, policy),
            strategy => Self::WithPolicy(Box::new(strategy), policy),
        }
    }

    /// Returns the policy that was set on the strategy.
    pub(super) fn policy(&self) -> Option<OnConflict> {
        match self {
            Self::WithPolicy(_, policy) => Some(*policy),
            _ => None,
        }
    }

    /// Returns the default policy of the strategy.
    pub(super) fn usual_policy(&self) -> OnConflict {
        let names_a_message = match self {
            // Any header may hold an id, except those for correlation.
            Self::Header(name) => !CORRELATIONS.iter().any(|known| name.eq_ignore_ascii_case(known)),
            strategy => strategy.holds_message_id(),
        };
        if names_a_message { OnConflict::Quarantine } else { OnConflict::FirstWins }
    }

    /// Returns true if it selects, or contains, the identity of one message.
    fn holds_message_id(&self) -> bool {
        match self {
            Self::MessageId | Self::Content | Self::CloudEvents => true,
            Self::Header(name) => name.eq_ignore_ascii_case(Self::MESSAGE_ID_HEADER),
            Self::Composite(all) => all.iter().any(Self::holds_message_id),
            Self::WithPolicy(strategy, _) => strategy.holds_message_id(),
            Self::JsonPointer(_) | Self::Handler | Self::Custom(_) | Self::CustomWith(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{KeyContext, Naming};
    use super::*;
    use crate::message::Message;
    use crate::name::InboxName;

    /// Returns the policy for a message's key, given the setting of the inbox, if there is one.
    fn policy(strategy: &KeyStrategy, message: &Message, config: Option<OnConflict>) -> OnConflict {
        let inbox = InboxName::new("orders").unwrap();
        let context = KeyContext::new(&inbox, None);
        strategy.identify(&context, message, Naming::Kind, config).unwrap().on_conflict
    }

    fn message() -> Message {
        Message::new("1", "t", r#"{"order":7}"#)
            .with_header("correlation-id", "c")
            .with_header("message-id", "m")
            .with_header("x-request-id", "r")
            .with_header("ce-source", "/shop")
            .with_header("ce-id", "e")
    }

    // FAULTS A10
    #[test]
    fn keys_of_messages_are_quarantined_and_those_of_the_business_are_duplicates() {
        use OnConflict::{FirstWins, Quarantine};
        let composite =
            |strategy| KeyStrategy::Composite(vec![KeyStrategy::json_pointer("/order"), strategy]);
        let custom = || KeyStrategy::custom(|_| Some(b"x".to_vec()));
        for (strategy, expected) in [
            (KeyStrategy::MessageId, Quarantine),
            (KeyStrategy::cloud_events(), Quarantine),
            (KeyStrategy::message_id_header(), Quarantine),
            (KeyStrategy::header("X-Request-Id"), Quarantine),
            (KeyStrategy::Content, Quarantine),
            (KeyStrategy::correlation_id(), FirstWins),
            (KeyStrategy::header("Correlation-Id"), FirstWins),
            (KeyStrategy::json_pointer("/order"), FirstWins),
            (custom(), FirstWins),
            (KeyStrategy::custom_with(|_, _| Some(b"x".to_vec())), FirstWins),
            (composite(KeyStrategy::correlation_id()), FirstWins),
            (composite(KeyStrategy::header("x-request-id")), FirstWins),
            (composite(KeyStrategy::MessageId), Quarantine),
            // A strategy that selects nothing falls back to the message id.
            (KeyStrategy::json_pointer("/absent"), Quarantine),
            (KeyStrategy::handler_and_correlation_id(), Quarantine),
        ] {
            assert_eq!(policy(&strategy, &message(), None), expected, "{strategy:?}");
            for set in [Quarantine, FirstWins, OnConflict::AcceptAsNew] {
                assert_eq!(policy(&strategy, &message(), Some(set)), set, "{strategy:?}");
                let beside = strategy.clone().on_conflict(set);
                assert_eq!(policy(&beside, &message(), Some(expected)), set, "{beside:?}");
                assert!(!beside.is_same(&strategy) && beside.is_same(&beside.clone()));
            }
        }
    }

    #[test]
    fn a_policy_beside_a_strategy_changes_no_key() {
        let inbox = InboxName::new("orders").unwrap();
        let plain = KeyStrategy::json_pointer("/order");
        let beside = plain.clone().on_conflict(OnConflict::Quarantine).on_conflict(OnConflict::FirstWins);
        assert_eq!(plain.key(&inbox, &message()).unwrap(), beside.key(&inbox, &message()).unwrap());
        assert!(KeyStrategy::Handler.on_conflict(OnConflict::FirstWins).flaw().is_some());
    }
}
