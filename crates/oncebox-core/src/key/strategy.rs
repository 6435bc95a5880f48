//! Strategies that select the dedupe key of a message.

use std::fmt;
use std::sync::Arc;

use super::fields::{cloud_event, json_field};
use super::{Key, KeyContext, MessageKey, is_blank, sha256};
use crate::config::OnConflict;
use crate::error::{Error, ErrorKind, Result};
use crate::message::Message;
use crate::name::InboxName;

type Custom = Arc<dyn Fn(&Message) -> Option<Vec<u8>> + Send + Sync>;
type CustomWith = Arc<dyn Fn(&Message, &KeyContext<'_>) -> Option<Vec<u8>> + Send + Sync>;

/// Source of the dedupe key. If a strategy selects nothing or a [blank](crate::is_blank) value, it falls back to the message id. If
/// that is blank too, `Config::missing_key` applies. Oncebox never invents an id.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum KeyStrategy {
    /// The message's source and id, which `CloudEvents` declares unique together.
    #[default]
    MessageId,
    /// The value of a header.
    Header(Box<str>),
    /// A field of a JSON payload, by JSON pointer (`/order/id`): for producers that give every retry a new id.
    JsonPointer(Box<str>),
    /// The payload itself, by its BLAKE3 digest: for producers without ids. Two equal messages count as one, even if both are
    /// meant. A blank payload selects nothing.
    Content,
    /// Attributes `source` and `id` of a `CloudEvent`, from the headers of the binary mode or the JSON of the structured mode. For
    /// a transport that does not set the message's own source and id.
    CloudEvents,
    /// Key of the handler, useful only as a part of a [`Composite`](Self::Composite). Each handler then has its own keys, and loses
    /// them when it is renamed.
    Handler,
    /// Several strategies, in order. Each must select something.
    Composite(Vec<KeyStrategy>),
    /// A function of the message. It may select any bytes; only an empty selection is missing.
    Custom(Custom),
    /// A function of the message and its destination, called for each handler.
    CustomWith(CustomWith),
    /// A strategy with its own handling of [conflicts](OnConflict). Made by [`on_conflict`](Self::on_conflict).
    WithPolicy(Box<KeyStrategy>, OnConflict),
}

impl KeyStrategy {
    /// Header of [`message_id_header`](Self::message_id_header).
    pub const MESSAGE_ID_HEADER: &'static str = "message-id";

    /// Selects the value of the header `name`.
    pub fn header(name: impl Into<Box<str>>) -> Self {
        Self::Header(name.into())
    }

    /// Selects the value of the header `message-id`.
    pub fn message_id_header() -> Self {
        Self::header(Self::MESSAGE_ID_HEADER)
    }

    /// Selects the value of the header `correlation-id`.
    pub fn correlation_id() -> Self {
        Self::header("correlation-id")
    }

    /// Selects the handler and the value of the header `correlation-id`: each handler runs once for each correlation.
    pub fn handler_and_correlation_id() -> Self {
        Self::Composite(vec![Self::Handler, Self::correlation_id()])
    }

    /// Selects `source` and `id` of a `CloudEvent`.
    pub fn cloud_events() -> Self {
        Self::CloudEvents
    }

    /// Selects the field of a JSON payload at `pointer`.
    pub fn json_pointer(pointer: impl Into<Box<str>>) -> Self {
        Self::JsonPointer(pointer.into())
    }

    /// Selects the result of a function of the message. `None` or an empty result falls back to the message id. All functions of an
    /// inbox share one key space: results that must stay apart have to differ.
    pub fn custom(select: impl Fn(&Message) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self::Custom(Arc::new(select))
    }

    /// Selects the result of a function of the message and its destination, as [`custom`](Self::custom).
    pub fn custom_with(
        select: impl Fn(&Message, &KeyContext<'_>) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        Self::CustomWith(Arc::new(select))
    }

    /// Returns the key of `message` in `inbox`, without a handler.
    pub fn key(&self, inbox: &InboxName, message: &Message) -> Result<Key> {
        self.key_in(&KeyContext::new(inbox, None), message, Naming::Kind)
    }

    /// Returns the key of `message` at its destination.
    fn key_in(&self, context: &KeyContext<'_>, message: &Message, naming: Naming) -> Result<Key> {
        Ok(self.identify(context, message, naming, None)?.key)
    }

    /// Returns the key of `message` at its destination, and the handling of conflicts under it. `policy` applies to a strategy
    /// without its own.
    pub fn identify(
        &self,
        context: &KeyContext<'_>,
        message: &Message,
        naming: Naming,
        policy: Option<OnConflict>,
    ) -> Result<MessageKey> {
        let by_id = || {
            let parts: [&[u8]; 2] = [b"id", message.id()];
            let key = Key::within(context.inbox, context.tenant(message), message.source(), parts);
            MessageKey { key, on_conflict: self.policy().or(policy).unwrap_or(OnConflict::Quarantine) }
        };
        // The common case needs no composition.
        if matches!(self, Self::MessageId) && !is_blank(message.id()) {
            return Ok(by_id());
        }
        let mut parts = Vec::new();
        if self.select(context, message, naming, &mut parts) {
            let key = Key::within(context.inbox, context.tenant(message), message.source(), parts);
            let on_conflict = self.policy().or(policy).unwrap_or_else(|| self.usual_policy());
            return Ok(MessageKey { key, on_conflict });
        }
        if is_blank(message.id()) {
            let what = format!(
                "a message of type {:?} from source {:?} has no id, or one of white space",
                message.message_type(),
                message.source()
            );
            return Err(Error::new(ErrorKind::MissingKey, what));
        }
        Ok(by_id())
    }

    /// Appends the selected parts, each with its kind, so that an id never equals a header with the same text.
    fn select(
        &self,
        context: &KeyContext<'_>,
        message: &Message,
        naming: Naming,
        parts: &mut Vec<Vec<u8>>,
    ) -> bool {
        let (name, value) = match self {
            Self::MessageId => ("id", Some(message.id().to_vec())),
            Self::Header(header) => {
                naming.append(parts, header);
                ("header", message.headers().get(header).map(|value| value.to_vec()))
            }
            Self::JsonPointer(pointer) => {
                naming.append(parts, pointer);
                ("json", json_field(message, pointer))
            }
            Self::Content => {
                let payload = Some(message.payload()).filter(|payload| !is_blank(payload));
                ("content", payload.map(|payload| sha256(payload).to_vec()))
            }
            Self::CloudEvents => {
                let Some((source, id)) = cloud_event(message) else { return false };
                parts.extend([b"cloudevents".to_vec(), source]);
                ("id", Some(id))
            }
            Self::Handler => ("handler", context.handler.map(|handler| handler.as_str().into())),
            Self::Composite(all) => {
                return !all.is_empty() && all.iter().all(|one| one.select(context, message, naming, parts));
            }
            Self::WithPolicy(strategy, _) => return strategy.select(context, message, naming, parts),
            Self::Custom(select) => ("custom", select(message)),
            Self::CustomWith(select) => ("custom", select(message, context)),
        };
        match value {
            // A program may select any bytes: only an empty selection is missing.
            Some(value) if !value.is_empty() && (name == "custom" || !is_blank(&value)) => {
                parts.extend([name.as_bytes().to_vec(), value]);
                true
            }
            _ => false,
        }
    }

    /// Returns true if two handlers may get different keys for one message.
    pub fn asks_for_handler(&self) -> bool {
        match self {
            Self::WithPolicy(strategy, _) => strategy.asks_for_handler(),
            Self::Handler | Self::CustomWith(_) => true,
            Self::Composite(all) => all.iter().any(Self::asks_for_handler),
            _ => false,
        }
    }

    /// Returns true if both always select the same.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::MessageId, Self::MessageId)
            | (Self::Content, Self::Content)
            | (Self::CloudEvents, Self::CloudEvents)
            | (Self::Handler, Self::Handler) => true,
            (Self::Header(a), Self::Header(b)) => a.eq_ignore_ascii_case(b),
            (Self::JsonPointer(a), Self::JsonPointer(b)) => a == b,
            (Self::Composite(a), Self::Composite(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_same(b))
            }
            (Self::WithPolicy(a, one), Self::WithPolicy(b, other)) => one == other && a.is_same(b),
            (Self::Custom(a), Self::Custom(b)) => Arc::ptr_eq(a, b),
            (Self::CustomWith(a), Self::CustomWith(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// Returns the problem and its fix, if the strategy can never select anything.
    pub fn flaw(&self) -> Option<&'static str> {
        match self {
            Self::Header(name) if is_blank(name.as_bytes()) => {
                Some("no header has a blank name; name the header that holds the key")
            }
            Self::JsonPointer(pointer) if !pointer.starts_with('/') => {
                Some("a JSON pointer to a field starts with `/`; write it like `/order/id`")
            }
            Self::Composite(all) if all.is_empty() => {
                Some("nothing is put together; name at least one strategy")
            }
            Self::Handler => {
                Some("all messages of a handler would have one key; use it as a part of a `Composite`")
            }
            Self::WithPolicy(strategy, _) => strategy.flaw(),
            Self::Composite(all) if all.iter().all(|one| matches!(one, Self::Handler)) => {
                Some("all messages of a handler would have one key; add what tells messages apart")
            }
            Self::Composite(all) => {
                all.iter().filter(|one| !matches!(one, Self::Handler)).find_map(Self::flaw)
            }
            _ => None,
        }
    }
}

/// Identification of the parts of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// By kind of strategy: enough for one strategy for the whole inbox.
    Kind,
    /// By name too: if handlers select different headers, equal values are different keys.
    Full,
}

impl Naming {
    fn append(self, parts: &mut Vec<Vec<u8>>, name: &str) {
        if self == Self::Full {
            // Header names ignore case.
            parts.extend([b"named".to_vec(), name.to_ascii_lowercase().into_bytes()]);
        }
    }
}

impl fmt::Debug for KeyStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MessageId => f.write_str("MessageId"),
            Self::Header(name) => f.debug_tuple("Header").field(name).finish(),
            Self::JsonPointer(pointer) => f.debug_tuple("JsonPointer").field(pointer).finish(),
            Self::Content => f.write_str("Content"),
            Self::CloudEvents => f.write_str("CloudEvents"),
            Self::Handler => f.write_str("Handler"),
            Self::Composite(all) => f.debug_tuple("Composite").field(all).finish(),
            Self::Custom(_) => f.write_str("Custom"),
            Self::CustomWith(_) => f.write_str("CustomWith"),
            Self::WithPolicy(strategy, policy) => {
                f.debug_tuple("WithPolicy").field(strategy).field(policy).finish()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::HandlerKey;

    fn key(strategy: &KeyStrategy, message: &Message) -> Result<Key> {
        strategy.key(&InboxName::new("orders").unwrap(), message)
    }

    fn key_for(strategy: &KeyStrategy, handler: &str, message: &Message) -> Key {
        let (inbox, handler) = (InboxName::new("orders").unwrap(), HandlerKey::new(handler).unwrap());
        strategy.key_in(&KeyContext::new(&inbox, Some(&handler)), message, Naming::Full).unwrap()
    }

    fn message() -> Message {
        Message::new("id", "t", r#"{"order":{"id":7}}"#)
            .with_header("Message-Id", "h")
            .with_header("Correlation-Id", "c")
            .with_header("ce-source", "/shop")
            .with_header("ce-id", "e")
    }

    #[test]
    fn each_strategy_selects_what_it_names() {
        let strategies = [
            KeyStrategy::MessageId,
            KeyStrategy::message_id_header(),
            KeyStrategy::correlation_id(),
            KeyStrategy::json_pointer("/order/id"),
            KeyStrategy::Content,
            KeyStrategy::cloud_events(),
            KeyStrategy::Composite(vec![KeyStrategy::MessageId, KeyStrategy::header("message-id")]),
            KeyStrategy::custom(|m| Some(m.message_type().into())),
            KeyStrategy::custom_with(|_, cx| Some(cx.inbox().as_str().into())),
        ];
        let keys: std::collections::HashSet<_> =
            strategies.iter().map(|s| key(s, &message()).unwrap()).collect();
        assert_eq!(keys.len(), strategies.len());
    }

    /// Returns true if two messages that differ in one attribute have the same key.
    fn meet(strategy: &KeyStrategy, change: impl Fn(Message) -> Message) -> bool {
        key_for(strategy, "h", &message()) == key_for(strategy, "h", &change(message()))
    }

    #[test]
    fn each_strategy_goes_by_what_it_names_and_nothing_else() {
        let id = |_: Message| {
            Message::new("other", "t", r#"{"order":{"id":7}}"#).with_headers(message().headers().clone())
        };
        let payload = |_: Message| {
            Message::new("id", "t", r#"{"order":{"id":8}}"#).with_headers(message().headers().clone())
        };
        let header = |name: &'static str| {
            move |message: Message| {
                let mut headers = crate::Headers::default();
                let kept = message.headers().iter().filter(|(n, _)| !n.eq_ignore_ascii_case(name));
                kept.for_each(|(name, value)| headers.push(name, value.clone()));
                headers.push(name, "other");
                message.with_headers(headers)
            }
        };
        let cases: [(KeyStrategy, [bool; 5]); 9] = [
            (KeyStrategy::MessageId, [false, true, true, true, true]),
            (KeyStrategy::message_id_header(), [true, true, false, true, true]),
            (KeyStrategy::correlation_id(), [true, true, true, false, true]),
            (KeyStrategy::handler_and_correlation_id(), [true, true, true, false, true]),
            (KeyStrategy::json_pointer("/order/id"), [true, false, true, true, true]),
            (KeyStrategy::Content, [true, false, true, true, true]),
            (KeyStrategy::cloud_events(), [true, true, true, true, false]),
            (KeyStrategy::custom(|m| Some(m.id().into())), [false, true, true, true, true]),
            (KeyStrategy::custom_with(|m, _| Some(m.payload().to_vec())), [true, false, true, true, true]),
        ];
        for (strategy, expected) in cases {
            let seen = [
                meet(&strategy, id),
                meet(&strategy, payload),
                meet(&strategy, header("message-id")),
                meet(&strategy, header("correlation-id")),
                meet(&strategy, header("ce-id")),
            ];
            assert_eq!(seen, expected, "{strategy:?}");
        }
        assert!(!meet(&KeyStrategy::cloud_events(), header("ce-source")));
    }

    #[test]
    fn a_key_may_depend_on_the_handler() {
        let custom =
            KeyStrategy::custom_with(|m, cx| Some([cx.handler()?.as_str().as_bytes(), m.id()].concat()));
        for strategy in [KeyStrategy::handler_and_correlation_id(), custom] {
            assert_ne!(key_for(&strategy, "a", &message()), key_for(&strategy, "b", &message()));
            assert_eq!(key_for(&strategy, "a", &message()), key_for(&strategy, "a", &message()));
            assert!(strategy.asks_for_handler());
        }
        let shared = KeyStrategy::correlation_id();
        assert_eq!(key_for(&shared, "a", &message()), key_for(&shared, "b", &message()));
    }

    #[test]
    fn an_event_is_known_in_every_binding() {
        let by = |message: Message| key(&KeyStrategy::cloud_events(), &message).unwrap();
        let headers = |prefix: &str| {
            let name = |name| format!("{prefix}{name}");
            Message::new("", "t", "x").with_header(name("source"), "/shop").with_header(name("id"), "e")
        };
        let http = by(headers("ce-"));
        for prefix in ["Ce-", "ce_", "cloudEvents:", "cloudEvents_"] {
            assert_eq!(by(headers(prefix)), http, "{prefix}");
        }
        let structured = Message::new("", "t", r#"{"specversion":"1.0","source":"/shop","id":"e"}"#);
        assert_eq!(by(structured), http);
        let no_event = Message::new("1", "t", r#"{"source":"/shop","id":"e"}"#);
        assert_eq!(by(no_event.clone()), key(&KeyStrategy::MessageId, &no_event).unwrap());
    }

    // Handlers a and b select different headers, so equal values are different keys.
    #[test]
    fn headers_and_fields_of_the_same_value_are_told_apart_where_there_are_several() {
        let message =
            || Message::new("1", "t", r#"{"a":"x","b":"x"}"#).with_header("a", "x").with_header("b", "x");
        for (a, b) in [
            (KeyStrategy::header("a"), KeyStrategy::header("b")),
            (KeyStrategy::json_pointer("/a"), KeyStrategy::json_pointer("/b")),
        ] {
            assert_ne!(key_for(&a, "h", &message()), key_for(&b, "h", &message()));
            assert!(!a.is_same(&b) && a.is_same(&a.clone()));
        }
    }

    #[test]
    fn an_empty_selection_falls_back_to_the_id() {
        let by_id = key(&KeyStrategy::MessageId, &message()).unwrap();
        for strategy in [
            KeyStrategy::header("absent"),
            KeyStrategy::json_pointer("/order"),
            KeyStrategy::json_pointer("/absent"),
            KeyStrategy::Handler,
            KeyStrategy::handler_and_correlation_id(),
            KeyStrategy::Composite(vec![]),
            KeyStrategy::Composite(vec![KeyStrategy::Content, KeyStrategy::header("absent")]),
            KeyStrategy::custom(|_| Some(vec![])),
            KeyStrategy::custom(|_| None),
        ] {
            assert_eq!(key(&strategy, &message()).unwrap(), by_id, "{strategy:?}");
        }
        assert_eq!(key_for(&KeyStrategy::header("absent"), "h", &message()), by_id);
    }

    // FAULTS A11: a missing id is refused, never replaced by a random one.
    #[test]
    fn no_id_is_an_error() {
        let error = key(&KeyStrategy::MessageId, &Message::new("", "t", "x")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MissingKey);
        assert!(key(&KeyStrategy::Content, &Message::new("", "t", "x")).is_ok());
    }

    // Two blank values are not one message: blank is missing, wherever it occurs.
    #[test]
    fn what_is_blank_is_no_key() {
        let structured = |source: &str, id: &str| {
            format!(r#"{{"specversion":"1.0","source":"{source}","id":"{id}","order":{{"id":"  "}}}}"#)
        };
        let composite =
            || KeyStrategy::Composite(vec![KeyStrategy::json_pointer("/n"), KeyStrategy::header("h")]);
        for blank in ["", " ", "\t \r\n", "\u{a0}"] {
            let plain = |payload: &str| Message::new(blank, "t", payload.to_owned());
            let cases = [
                (KeyStrategy::MessageId, plain("x")),
                (KeyStrategy::Content, plain("")),
                (KeyStrategy::Content, plain(" \n")),
                (KeyStrategy::header("h"), plain("x").with_header("h", blank)),
                (KeyStrategy::json_pointer("/order/id"), plain(&structured("/shop", "e"))),
                (KeyStrategy::json_pointer(""), plain("\"\"")),
                (KeyStrategy::cloud_events(), plain(&structured("/shop", "  "))),
                (KeyStrategy::cloud_events(), plain(&structured(" ", "e"))),
                (
                    KeyStrategy::cloud_events(),
                    plain("x").with_header("ce-source", "/s").with_header("ce-id", blank),
                ),
                (
                    KeyStrategy::cloud_events(),
                    plain("x").with_header("ce-source", blank).with_header("ce-id", "e"),
                ),
                (composite(), plain(r#"{"n":1}"#).with_header("h", blank)),
                (KeyStrategy::handler_and_correlation_id(), plain("x").with_header("correlation-id", blank)),
                (KeyStrategy::custom(|_| Some(vec![])), plain("x")),
            ];
            for (strategy, message) in cases {
                let error = key(&strategy, &message).expect_err("a blank is no key");
                assert_eq!(error.kind(), ErrorKind::MissingKey, "{strategy:?} {message:?}");
            }
        }
        for name in ["", " ", "\t"] {
            assert!(KeyStrategy::header(name).flaw().is_some_and(|flaw| flaw.contains("blank name")));
            assert!(
                KeyStrategy::Composite(vec![KeyStrategy::MessageId, KeyStrategy::header(name)])
                    .flaw()
                    .is_some()
            );
        }
        let binary = key(&KeyStrategy::custom(|_| Some(vec![b' '])), &Message::new("", "t", ""));
        assert!(binary.is_ok(), "a program chooses its own bytes");
    }
}
