//! Messages with one ordering key, and paused keys. Tests: `conformance/line.rs` in `oncebox-testkit`.

use serde_json::{Value, json};

use super::EntryView;
use super::action::{hex, unhex};
use crate::key::OrderKey;
use crate::message::Message;
use crate::name::{HandlerKey, InboxName};

/// The messages with one ordering key. A key is unique only within its tenant and source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct OrderQueue {
    /// Tenant of the messages.
    pub tenant: Option<Box<str>>,
    /// Source of the messages.
    pub source: Box<str>,
    /// Ordering key, as the producer gave it.
    pub ordering_key: Box<[u8]>,
}

impl OrderQueue {
    /// Returns the queue of an ordering key from a source, without a tenant.
    pub fn new(source: impl Into<Box<str>>, ordering_key: impl Into<Box<[u8]>>) -> Self {
        Self { tenant: None, source: source.into(), ordering_key: ordering_key.into() }
    }

    /// Returns the queue of an entry. `None` if it has no ordering key, or its message was removed.
    pub fn of(entry: &EntryView) -> Option<Self> {
        let label = entry.label.as_ref()?;
        let line = Self::new(label.source.clone(), label.ordering_key.clone()?);
        Some(Self { tenant: entry.tenant.clone(), ..line })
    }

    /// Returns its identity in stores.
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

    /// Returns it as text, for a store to keep.
    pub fn encode(&self) -> String {
        self.body().to_string()
    }

    /// Reads the text that a store kept.
    pub fn decode(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        let line = Self::new(text("source")?, unhex(text("ordering_key")?)?);
        Some(Self { tenant: text("tenant").map(Into::into), ..line })
    }
}

/// Ordering key that an operator paused for a handler.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PausedKey {
    /// The handler key.
    pub handler: HandlerKey,
    /// Ordering key, with its tenant and source.
    pub line: OrderQueue,
}
