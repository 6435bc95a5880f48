//! Messages on their way in, with the span of their receipt.

use std::sync::Arc;

use tracing::Span;

use super::{Inbox, Shared};
use crate::message::Message;
use crate::privacy::{is_private, stripped};
use crate::store::Store;

/// A message whose receive span is open. The span ends when the message has been received, or when this is dropped.
///
/// [`Inbox::incoming`] makes one. A message that becomes one by `into` gets its span when the inbox takes it.
#[derive(Debug)]
pub struct Incoming {
    message: Message,
    /// Nothing before it is opened.
    span: Option<Span>,
}

impl Incoming {
    /// The message.
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
    /// Opens the receive span of a message, for a source that does something else before it calls
    /// [`receive_batch`](Self::receive_batch) or [`receive_each`](Self::receive_each).
    ///
    /// The span continues the trace that the message came with, and what happens to the message later continues the span. Costs
    /// nothing if no subscriber wants the span.
    pub fn incoming(&self, message: Message) -> Incoming {
        let (message, span) = self.shared.open("", message);
        Incoming { message, span: Some(span) }
    }
}

impl<S: Store> Shared<S> {
    /// Takes a message over, without what is not to be stored; with its receive span.
    pub(crate) fn own(&self, incoming: impl Into<Incoming>) -> (Arc<Message>, Span) {
        let Incoming { message, span } = incoming.into();
        let (message, span) = match span {
            Some(span) => (message, span),
            None => self.open("", message),
        };
        (Arc::new(message), span)
    }

    /// Opens the receive span of a message that came from a source; its own where that is empty.
    pub(crate) fn open(&self, source: &str, message: Message) -> (Message, Span) {
        let message = stripped(message, &self.config.private_headers);
        // What is not to be stored is not written either.
        let private = is_private("traceparent", &self.config.private_headers);
        let room = if private { 0 } else { self.config.limits.headers };
        self.store.watch().propagator.receiving(&self.name, source, message, room)
    }
}
