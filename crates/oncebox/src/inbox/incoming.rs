//! Messages that arrive, with their receive span. Tests: `tests/receiver.rs`.

use std::sync::Arc;

use tracing::Span;

use super::{Inbox, Shared};
use crate::message::Message;
use crate::privacy::{is_private, stripped};
use crate::store::Store;

/// A message with an open receive span. The span ends when the message was received, or at a drop.
///
/// [`Inbox::incoming`] makes one. A message converted with `into` gets its span when the inbox takes it.
#[derive(Debug)]
pub struct Incoming {
    message: Message,
    /// `None` until the inbox opens it.
    span: Option<Span>,
}

impl Incoming {
    /// Returns the message.
    pub fn message(&self) -> &Message {
        &self.message
    }
}

impl From<Message> for Incoming {
    fn from(message: Message) -> Self {
        Self { message, span: None }
    }
}

impl<S: Store> Inbox<S> {
    /// Opens the receive span of a message, for a source that does other work before it calls
    /// [`receive_batch`](Self::receive_batch) or [`receive_each`](Self::receive_each).
    ///
    /// The span continues the trace of the message, and later spans of the message continue this span. Free if no subscriber
    /// wants the span.
    pub fn incoming(&self, message: Message) -> Incoming {
        let (message, span) = self.shared.open("", message);
        Incoming { message, span: Some(span) }
    }
}

impl<S: Store> Shared<S> {
    /// Takes a message without its private headers, and its receive span.
    pub(crate) fn own(&self, incoming: impl Into<Incoming>) -> (Arc<Message>, Span) {
        let Incoming { message, span } = incoming.into();
        let (message, span) = match span {
            Some(span) => (message, span),
            None => self.open("", message),
        };
        (Arc::new(message), span)
    }

    /// Opens the receive span of a message from `source`; if empty, the message's own source.
    pub(crate) fn open(&self, source: &str, message: Message) -> (Message, Span) {
        let message = stripped(message, &self.config.private_headers);
        // A private header is not written either.
        let private = is_private("traceparent", &self.config.private_headers);
        let room = if private { 0 } else { self.config.limits.headers };
        self.store.watch().propagator.receiving(&self.name, source, message, room)
    }
}
