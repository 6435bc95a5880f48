//! Receives deliveries: durable entries, then inline handlers. Tests: `tests/receiver.rs`, `tests/batcher.rs`.

use tracing::{Instrument as _, Span};

use super::{Inbox, Incoming, Receipt, Received};
use crate::error::{Error, ErrorKind, Result};
use crate::message::Message;
use crate::runtime;
use crate::store::Store;

impl<S: Store> Inbox<S> {
    /// Receives a delivered message: stores it for its durable handlers, then runs its inline handlers. The receipt tells the
    /// caller how to acknowledge.
    pub async fn receive(&self, message: Message) -> Result<Receipt> {
        let (message, span) = self.shared.own(message);
        let prepared = self.shared.prepare_delivery(message)?;
        Ok(self.shared.receive(&prepared).instrument(span).await?.receipt)
    }

    /// Receives messages together, and returns the full result of each. One transaction stores all of them in their order. A
    /// refused message does not affect the others; a store error concerns all of them.
    pub async fn receive_batch(
        &self,
        messages: impl IntoIterator<Item = impl Into<Incoming>>,
    ) -> Result<Vec<Result<Received>>> {
        let own = |incoming| self.shared.own(incoming);
        // The spans end when all of them are stored.
        let (messages, _spans): (Vec<_>, Vec<Span>) = messages.into_iter().map(own).unzip();
        self.shared.receive_batch(messages.into_iter()).await
    }

    /// Receives unrelated messages, such as those of several senders: an error of one message does not affect the others.
    /// Returns one result per message.
    pub async fn receive_each(
        &self,
        messages: impl IntoIterator<Item = impl Into<Incoming>>,
    ) -> Vec<Result<Received>> {
        let (mut prepared, mut refused, mut spans) = (Vec::new(), Vec::new(), Vec::new());
        for incoming in messages {
            let (message, span) = self.shared.own(incoming);
            spans.push(span);
            let one = runtime::prepare(&self.shared, message).unwrap_or_else(|| Err(panicked()));
            refused.push(one.map(|one| prepared.push(one)).err());
        }
        let mut received = self.shared.receive_each(&prepared).await.into_iter();
        let mut next = || received.next().flatten().unwrap_or_else(|| Err(panicked()));
        refused.into_iter().map(|refused| refused.map_or_else(&mut next, Err)).collect()
    }

    /// Returns true if a received message is only stored: none of its handlers runs before the acknowledgement.
    pub fn only_stores(&self, message: &Message) -> bool {
        self.shared.only_stores(message)
    }
}

fn panicked() -> Error {
    Error::new(ErrorKind::CommitUnknown, "a panic interrupted the intake of the message")
}
