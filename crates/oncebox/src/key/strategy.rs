//! How the dedupe key is found in a message.

use std::fmt;
use std::sync::Arc;

use super::Key;
use crate::error::{Error, ErrorKind, Result};
use crate::message::Message;
use crate::name::InboxName;

type Custom = Arc<dyn Fn(&Message) -> Option<Vec<u8>> + Send + Sync>;

/// Where the dedupe key comes from. Whatever a strategy selects, an empty or missing selection falls back to the
/// message id; if that is empty too, the message is refused. An id is never invented.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum KeyStrategy {
    /// The message's source and id: the pair that `CloudEvents` declares unique.
    #[default]
    MessageId,
    /// The value of a header.
    Header(Box<str>),
    /// A field of a JSON payload, by JSON pointer (`/order/id`): for producers that give every retry a new id.
    JsonPointer(Box<str>),
    /// The payload itself: for producers that give no id at all. Two equal messages meant twice become one.
    Content,
    /// Several strategies together, in order; each must select something.
    Composite(Vec<KeyStrategy>),
    /// A function of the message.
    Custom(Custom),
}

impl KeyStrategy {
    /// The value of the header `name`.
    pub fn header(name: impl Into<Box<str>>) -> Self {
        Self::Header(name.into())
    }

    /// The value of the header `correlation-id`.
    pub fn correlation_id() -> Self {
        Self::header("correlation-id")
    }

    /// The field of a JSON payload at `pointer`.
    pub fn json_pointer(pointer: impl Into<Box<str>>) -> Self {
        Self::JsonPointer(pointer.into())
    }

    /// A function of the message; `None` or an empty answer falls back to the message id.
    pub fn custom(select: impl Fn(&Message) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self::Custom(Arc::new(select))
    }

    /// The key of `message` in `inbox`.
    pub fn key(&self, inbox: &InboxName, message: &Message) -> Result<Key> {
        let mut parts = Vec::new();
        if !self.select(message, &mut parts) {
            parts.clear();
            if !Self::MessageId.select(message, &mut parts) {
                return Err(Error::new(
                    ErrorKind::MissingKey,
                    format!(
                        "a message of type {:?} from source {:?} has no id",
                        message.kind(),
                        message.source()
                    ),
                ));
            }
        }
        Ok(Key::new(inbox, message.source(), parts))
    }

    /// Appends the selected parts, each named by its kind so that an id never equals a header of the same text.
    fn select(&self, message: &Message, parts: &mut Vec<Vec<u8>>) -> bool {
        let (name, value) = match self {
            Self::MessageId => ("id", Some(message.id().to_vec())),
            Self::Header(header) => ("header", message.headers().get(header).map(|value| value.to_vec())),
            Self::JsonPointer(pointer) => ("json", json_field(message, pointer)),
            Self::Content => ("content", Some(blake3::hash(message.payload()).as_bytes().to_vec())),
            Self::Composite(all) => {
                return !all.is_empty() && all.iter().all(|one| one.select(message, parts));
            }
            Self::Custom(select) => ("custom", select(message)),
        };
        match value {
            Some(value) if !value.is_empty() => {
                parts.extend([name.as_bytes().to_vec(), value]);
                true
            }
            _ => false,
        }
    }
}

/// Scalars only: objects have no canonical bytes to compare.
fn json_field(message: &Message, pointer: &str) -> Option<Vec<u8>> {
    let json: serde_json::Value = serde_json::from_slice(message.payload()).ok()?;
    match json.pointer(pointer)? {
        serde_json::Value::String(text) => Some(text.clone().into_bytes()),
        serde_json::Value::Number(number) => Some(number.to_string().into_bytes()),
        serde_json::Value::Bool(flag) => Some(flag.to_string().into_bytes()),
        _ => None,
    }
}

impl fmt::Debug for KeyStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MessageId => f.write_str("MessageId"),
            Self::Header(name) => f.debug_tuple("Header").field(name).finish(),
            Self::JsonPointer(pointer) => f.debug_tuple("JsonPointer").field(pointer).finish(),
            Self::Content => f.write_str("Content"),
            Self::Composite(all) => f.debug_tuple("Composite").field(all).finish(),
            Self::Custom(_) => f.write_str("Custom"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(strategy: &KeyStrategy, message: &Message) -> Result<Key> {
        strategy.key(&InboxName::new("orders").unwrap(), message)
    }

    fn message() -> Message {
        Message::new("id", "t", r#"{"order":{"id":7}}"#).with_header("Message-Id", "h")
    }

    #[test]
    fn each_strategy_selects_what_it_names() {
        let strategies = [
            KeyStrategy::MessageId,
            KeyStrategy::header("message-id"),
            KeyStrategy::json_pointer("/order/id"),
            KeyStrategy::Content,
            KeyStrategy::Composite(vec![KeyStrategy::MessageId, KeyStrategy::header("message-id")]),
            KeyStrategy::custom(|m| Some(m.kind().into())),
        ];
        let keys: std::collections::HashSet<_> =
            strategies.iter().map(|s| key(s, &message()).unwrap()).collect();
        assert_eq!(keys.len(), strategies.len());
    }

    #[test]
    fn an_empty_selection_falls_back_to_the_id() {
        let by_id = key(&KeyStrategy::MessageId, &message()).unwrap();
        for strategy in [
            KeyStrategy::header("absent"),
            KeyStrategy::json_pointer("/order"),
            KeyStrategy::json_pointer("/absent"),
            KeyStrategy::Composite(vec![]),
            KeyStrategy::Composite(vec![KeyStrategy::Content, KeyStrategy::header("absent")]),
            KeyStrategy::custom(|_| Some(vec![])),
            KeyStrategy::custom(|_| None),
        ] {
            assert_eq!(key(&strategy, &message()).unwrap(), by_id, "{strategy:?}");
        }
    }

    // FAULTS A11: a missing id is refused, never replaced by a random one.
    #[test]
    fn no_id_is_an_error() {
        let error = key(&KeyStrategy::MessageId, &Message::new("", "t", "x")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MissingKey);
        assert!(key(&KeyStrategy::Content, &Message::new("", "t", "x")).is_ok());
    }
}
