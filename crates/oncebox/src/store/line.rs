//! The messages with one ordering key.

use serde_json::{Value, json};

use super::EntryView;
use super::action::{hex, unhex};
use crate::key::OrderKey;
use crate::message::Message;
use crate::name::{HandlerKey, InboxName};

/// The messages that have one ordering key: it means something only within a tenant and a source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct OrderQueue {
    /// Whose they are.
    pub tenant: Option<Box<str>>,
    /// Where they come from.
    pub source: Box<str>,
    /// The ordering key, as the producer gives it.
    pub ordering_key: Box<[u8]>,
}

impl OrderQueue {
    /// The messages with an ordering key from a source, without a tenant.
    pub fn new(source: impl Into<Box<str>>, ordering_key: impl Into<Box<[u8]>>) -> Self {
        Self { tenant: None, source: source.into(), ordering_key: ordering_key.into() }
    }

    /// The line that an entry stands in; nothing if it has no ordering key, or its message has left.
    pub fn of(entry: &EntryView) -> Option<Self> {
        let label = entry.label.as_ref()?;
        let line = Self::new(label.source.clone(), label.ordering_key.clone()?);
        Some(Self { tenant: entry.tenant.clone(), ..line })
    }

    /// Its identity, as stores keep it.
    pub fn order(&self, inbox: &InboxName) -> Option<OrderKey> {
        let message = Message::new("", "", "")
            .with_source(self.source.clone())
            .with_ordering_key(self.ordering_key.to_vec());
        let message = match &self.tenant {
            None => message,
            Some(tenant) => message.with_tenant(tenant.clone()),
        };
        OrderKey::of(inbox, &message)
    }

    pub(super) fn body(&self) -> Value {
        json!({ "tenant": self.tenant, "source": self.source, "ordering_key": hex(&self.ordering_key) })
    }

    /// As text, for a store to keep.
    pub fn encode(&self) -> String {
        self.body().to_string()
    }

    /// From the text a store kept.
    pub fn decode(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        let line = Self::new(text("source")?, unhex(text("ordering_key")?)?);
        Some(Self { tenant: text("tenant").map(Into::into), ..line })
    }
}

/// An ordering key that is paused for a handler.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PausedKey {
    /// The handler key.
    pub handler: HandlerKey,
    /// The ordering key.
    pub line: OrderQueue,
}
