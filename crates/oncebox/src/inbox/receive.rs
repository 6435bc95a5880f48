//! Deliveries, as a source brings them.

use tracing::{Instrument as _, Span};

use super::{Inbox, Incoming, Receipt, Received};
use crate::error::{Error, ErrorKind, Result};
use crate::message::Message;
use crate::runtime;
use crate::store::Store;

impl<S: Store> Inbox<S> {
    /// Takes a delivered message the whole way: stores it for its durable handlers, then runs its inline ones. The
    /// receipt says what to tell the broker.
    pub async fn receive(&self, message: Message) -> Result<Receipt> {
        let (message, span) = self.shared.own(message);
        let prepared = self.shared.prepare_delivery(message)?;
        Ok(self.shared.receive(&prepared).instrument(span).await?.receipt)
    }

    /// The same for messages that came together, with all that is known of each. What is stored of them is stored in one
    /// transaction, in their order. A message that is refused does not keep the others out; an error of the store
    /// concerns all of them.
    pub async fn receive_batch(
        &self,
        messages: impl IntoIterator<Item = impl Into<Incoming>>,
    ) -> Result<Vec<Result<Received>>> {
        let own = |incoming| self.shared.own(incoming);
        // The spans end when all of them are stored.
        let (messages, _spans): (Vec<_>, Vec<Span>) = messages.into_iter().map(own).unzip();
        self.shared.receive_batch(messages.into_iter()).await
    }

    /// The same for messages that have nothing to do with each other, as those of several senders: what is wrong with one of them
    /// is not said of the others. As many answers as there are messages.
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

    /// Whether a message that is received is only stored: no handler of it runs before the answer.
    pub fn only_stores(&self, message: &Message) -> bool {
        self.shared.only_stores(message)
    }
}

fn panicked() -> Error {
    Error::new(ErrorKind::CommitUnknown, "taking the message in panicked")
}
