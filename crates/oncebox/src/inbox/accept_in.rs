//! Accept inside the caller's own transaction. Tests: `tests/accept_in.rs`.

use std::sync::Arc;
use std::time::Duration;

use tracing::{Instrument as _, Span};

use super::routing::{Offers, short_answer};
use super::{Inbox, Shared};
use crate::error::{Error, ErrorKind, Result};
use crate::message::Message;
use crate::runtime;
use crate::store::{AcceptIn, Accepted, NewMessage, Store};

impl<S: Store> Inbox<S> {
    /// Stores a message in the caller's own transaction: it becomes visible with the commit, and a rollback leaves nothing.
    ///
    /// The results are those of [`accept`](Self::accept). In a handler, use the transaction of the run:
    /// `inbox.accept_in(cx.tx().await?, message)`. The message then leaves with the completion of the entry, both or neither.
    /// Give it an id that is the same at every attempt, such as
    /// [`cx.idempotency_key("follow-up")`](crate::Context::idempotency_key).
    ///
    /// Until the transaction ends, other deliveries of the same message wait for it, and so do messages with the same ordering
    /// key. So call it late in the transaction, and commit soon. After an error, roll back.
    ///
    /// The process must have registered the inbox before ([`start`](Self::start) or [`register`](Self::register)), because a
    /// registration inside of the caller's transaction could wait for itself. Fire-and-forget handlers are
    /// [`Unsupported`](ErrorKind::Unsupported): they run before the commit.
    ///
    /// The commit of `cx.tx()` wakes the workers. After the commit of another transaction, call [`wake`](Self::wake) to start at
    /// once; without it, workers find the message when they poll.
    pub async fn accept_in<Tx: ?Sized>(&self, tx: &mut Tx, message: Message) -> Result<Accepted>
    where
        S: AcceptIn<Tx>,
    {
        let accepted = self.accept_batch_in(tx, [message]).await?;
        accepted.into_iter().next().ok_or_else(short_answer)
    }

    /// Stores many messages in the caller's own transaction, as [`accept_in`](Self::accept_in) does. An error of one message is
    /// the error of all.
    ///
    /// A store locks the keys of one call in an order that all calls share. Several calls in one transaction can meet another
    /// transaction in a deadlock, which the database ends with a [retryable](Error::is_retryable) error.
    pub async fn accept_batch_in<Tx: ?Sized>(
        &self,
        tx: &mut Tx,
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<Vec<Accepted>>
    where
        S: AcceptIn<Tx>,
    {
        let shared = &self.shared;
        let mut prepared: Vec<(Arc<Message>, Span, Offers)> = Vec::new();
        for message in messages {
            let (message, span) = shared.own(message);
            let offers = shared.prepare(&message, Duration::ZERO)?;
            refuse_forget(&message, &offers)?;
            prepared.push((message, span, offers));
        }
        runtime::registered_before(shared)?;
        let batch: Vec<NewMessage> =
            prepared.iter().flat_map(|(.., offers)| offers.iter()).cloned().collect();
        let span = prepared.first().map_or_else(Span::none, |(_, span, _)| span.clone());
        let accepted = shared.store.accept_in(tx, &batch).instrument(span).await?;
        if accepted.len() != batch.len() {
            return Err(short_answer());
        }
        let mut accepted = accepted.into_iter();
        let whole = |(message, _, offers): &(Arc<Message>, Span, Offers)| {
            let answers = accepted.by_ref().take(offers.len());
            shared.told(message, answers.reduce(Accepted::and).ok_or_else(short_answer)?)
        };
        prepared.iter().map(whole).collect()
    }

    /// Wakes the workers of this process, after the commit of a transaction that [`accept_in`](Self::accept_in) wrote to. A
    /// call too many costs one look for work.
    pub fn wake(&self) {
        self.shared.local_wakeup.now();
    }
}

/// Refuses a message for handlers that nothing but this process would run.
fn refuse_forget(message: &Message, offers: &Offers) -> Result<()> {
    if offers.forget().is_empty() {
        return Ok(());
    }
    let what = format!(
        "a fire-and-forget handler is registered for messages of type {:?}; nothing was stored: it would run before the commit; make the handler durable, or accept the message after the commit",
        message.message_type()
    );
    Err(Error::new(ErrorKind::Unsupported, what))
}

/// Returns the error for a process that has not registered the inbox.
pub(crate) fn unregistered<S: Store>(inbox: &Shared<S>) -> Error {
    let what = format!(
        "this process has not registered the inbox {:?}; nothing was stored; call `register` or `start` before the transaction",
        inbox.name.as_str()
    );
    Error::new(ErrorKind::Refused, what)
}
