//! What a handler is given besides its message.

use std::sync::Arc;

use bytes::Bytes;

use super::Data;
use super::transaction::{FinishTx, OpenTx, ShareTx};
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;
use crate::message::Message;
use crate::name::HandlerKey;
use crate::observe::Observed;
use crate::store::{Claim, MarkIn, Store, Token, Transactional};

/// The surroundings of one run of a handler.
pub struct Context<S: Store> {
    store: Arc<Observed<S>>,
    data: Arc<Data>,
    message: Arc<Message>,
    key: Key,
    handler: HandlerKey,
    origin: HandlerKey,
    attempt: u32,
    generation: u32,
    fence: Option<Token>,
    tx: Option<Tx>,
    answer: Option<Answer>,
}

/// What the duplicates of an inline run will be told.
struct Answer {
    limit: usize,
    result: Option<Bytes>,
}

/// The transaction of a run.
enum Tx {
    /// Its own, which ends with it.
    Own(Box<dyn FinishTx>),
    /// Lent to it: others ran in it before, and others will.
    Shared(Box<dyn ShareTx>),
}

impl<S: Store> Context<S> {
    /// A run that has no claim: the handler's key is its origin.
    pub(crate) fn new(
        (store, data): (Arc<Observed<S>>, Arc<Data>),
        message: Arc<Message>,
        key: Key,
        handler: HandlerKey,
        attempt: u32,
        generation: u32,
    ) -> Self {
        let origin = handler.clone();
        let (fence, tx, answer) = (None, None, None);
        Self { store, data, message, key, handler, origin, attempt, generation, fence, tx, answer }
    }

    /// For a run under a claim: its token fences, and idempotency keys are made of the handler's origin.
    pub(crate) fn claimed(mut self, claim: &Claim) -> Self {
        self.fence = Some(claim.token);
        self.origin = claim.origin.clone();
        self
    }

    /// Lets the handler leave a result of at most so many bytes.
    pub(crate) fn answering(mut self, limit: usize) -> Self {
        self.answer = Some(Answer { limit, result: None });
        self
    }

    /// Leaves a result for the duplicates of this message: it is stored with the mark in the same commit, and
    /// [`Inbox::process_with_results`](crate::Inbox::process_with_results) hands it to whoever brings the message again.
    /// A second call replaces what the first one left.
    ///
    /// For inline handlers only. `limits.result` of the settings says how large it may be; default 64 KiB.
    pub fn set_result(&mut self, result: impl Into<Bytes>) -> Result<()> {
        let Some(answer) = &mut self.answer else {
            let what = "only an inline handler can leave a result: nobody waits for that of a stored message";
            return Err(Error::new(ErrorKind::Unsupported, what));
        };
        let result = result.into();
        check_result(&result, answer.limit)?;
        answer.result = Some(result);
        Ok(())
    }

    /// What the handler left.
    pub(crate) fn take_result(&mut self) -> Option<Bytes> {
        self.answer.as_mut().and_then(|answer| answer.result.take())
    }

    /// The message being handled, with its headers.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Its dedupe key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The key of the handler; a legacy key, if the store does not know the entry's handler by the current one.
    pub fn handler(&self) -> &HandlerKey {
        &self.handler
    }

    /// The token of the claim this runs under: it grows with every claim of the store. A receiver that keeps the greatest one it
    /// has seen for a message can refuse a run that lost its lease. `None` for handlers that run without a claim.
    ///
    /// It does not go back when a PostgreSQL database fails over: its upper bits are an epoch, which grows with every change of the
    /// database's history. Compare tokens as numbers; they are not dense.
    pub fn fence(&self) -> Option<Token> {
        self.fence
    }

    /// The value of type `T` that [`InboxBuilder::data`](crate::InboxBuilder::data) was given: a client, a setting.
    pub fn data<T: Send + Sync + 'static>(&self) -> Result<&T> {
        self.data.get()
    }

    /// A stable key for an effect outside the database (a charge, a mail): the same at every attempt, so that the
    /// other side can recognise a repeat. It stays the same when the handler is renamed with
    /// [`legacy`](crate::Registration::legacy), in processes before and after the rename.
    pub fn idempotency_key(&self, effect: &str) -> String {
        self.key.idempotency_key(self.origin.as_str(), self.generation, effect)
    }

    pub(crate) fn set_tx(&mut self, tx: Box<dyn FinishTx>) {
        self.tx = Some(Tx::Own(tx));
    }

    /// The transaction of its own, if one was opened.
    pub(crate) fn take_tx(&mut self) -> Option<Box<dyn FinishTx>> {
        match self.tx.take() {
            Some(Tx::Own(tx)) => Some(tx),
            _ => None,
        }
    }

    /// Lets the run write into a transaction that it shares.
    pub(crate) fn lend_tx(&mut self, tx: Box<dyn ShareTx>) {
        self.tx = Some(Tx::Shared(tx));
    }

    /// The transaction that was lent.
    pub(crate) fn return_tx(&mut self) -> Option<Box<dyn ShareTx>> {
        match self.tx.take() {
            Some(Tx::Shared(tx)) => Some(tx),
            _ => None,
        }
    }
}

impl<S> Context<S>
where
    S: Transactional + MarkIn<<S as Transactional>::Tx>,
{
    /// The transaction in which the completion is written: what is written through it happens exactly once.
    ///
    /// It is opened at the first call, so do slow things before. The library commits it when the handler returns
    /// `Ok`, and rolls it back otherwise. With [`share_commit`](crate::Registration::share_commit) it is open already,
    /// and only what this run wrote is rolled back.
    pub async fn tx(&mut self) -> Result<&mut S::Tx> {
        if self.tx.is_none() {
            let tx = self.store.begin().await?;
            self.set_tx(Box::new(OpenTx { store: Arc::clone(&self.store), tx }));
        }
        let open = self.tx.as_mut().map(|tx| match tx {
            Tx::Own(tx) => tx.as_any(),
            Tx::Shared(tx) => tx.as_any(),
        });
        open.and_then(|open| open.downcast_mut::<OpenTx<S>>()).map(|open| &mut open.tx).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "the open transaction belongs to another store")
        })
    }
}

/// Refuses a result that is larger than the inbox keeps.
pub(crate) fn check_result(result: &[u8], limit: usize) -> Result<()> {
    if result.len() > limit {
        let what = format!("the result has {} bytes, the limit is {limit} (`limits.result`)", result.len());
        return Err(Error::new(ErrorKind::TooLarge, what));
    }
    Ok(())
}

impl<S: Store> std::fmt::Debug for Context<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("key", &self.key)
            .field("handler", &self.handler)
            .finish_non_exhaustive()
    }
}
