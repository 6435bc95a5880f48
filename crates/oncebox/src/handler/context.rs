//! The context that a handler gets besides its message.

use std::sync::Arc;

use bytes::Bytes;

use super::transaction::{FinishTx, OpenTx, ShareTx};
use super::{Data, DataMap};
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;
use crate::message::Message;
use crate::name::HandlerKey;
use crate::observe::Observed;
use crate::store::{Claim, MarkIn, Store, Token, Transactional};

/// Context of one run of a handler.
pub struct Context<S: Store> {
    store: Arc<Observed<S>>,
    data: Arc<DataMap>,
    message: Arc<Message>,
    key: Key,
    handler: HandlerKey,
    origin: HandlerKey,
    attempt: u32,
    generation: u32,
    fence: Option<Token>,
    run_tx: Option<RunTransaction>,
    answer: Option<KeptResult>,
}

/// The context of a handler, by any name: the attribute `#[oncebox::handler]` finds the store of an alias such as
/// `type Cx = Context<Sealed<Postgres>>` through this trait.
#[diagnostic::on_unimplemented(
    message = "the second parameter of a handler is `&mut Context<S>` with the type of its store; this is `&mut {Self}`",
    label = "write `cx: &mut Context<S>`, as in `cx: &mut Context<Memory>`",
    note = "an alias of a context works as well: `type Cx = oncebox::Context<Memory>`"
)]
pub trait HandlerContext {
    /// The store.
    type Store: Store;
}

impl<S: Store> HandlerContext for Context<S> {
    type Store = S;
}

/// Result of an inline run, kept for duplicates.
struct KeptResult {
    limit: usize,
    result: Option<Bytes>,
}

/// The transaction of a run.
enum RunTransaction {
    /// Owned by the run.
    Own(Box<dyn FinishTx>),
    /// Shared with the runs before and after it.
    Shared(Box<dyn ShareTx>),
}

impl<S: Store> Context<S> {
    /// Makes the context of a run without a claim. The handler's key is its origin.
    pub(crate) fn new(
        (store, data): (Arc<Observed<S>>, Arc<DataMap>),
        message: Arc<Message>,
        key: Key,
        handler: HandlerKey,
        attempt: u32,
        generation: u32,
    ) -> Self {
        let origin = handler.clone();
        let (fence, run_tx, answer) = (None, None, None);
        Self { store, data, message, key, handler, origin, attempt, generation, fence, run_tx, answer }
    }

    /// Adds the claim of the run: its token is the fence, and its origin makes the idempotency keys.
    pub(crate) fn claimed(mut self, claim: &Claim) -> Self {
        self.fence = Some(claim.token);
        self.origin = claim.origin.clone();
        self
    }

    /// Lets the handler store a result of at most `limit` bytes.
    pub(crate) fn answering(mut self, limit: usize) -> Self {
        self.answer = Some(KeptResult { limit, result: None });
        self
    }

    /// Stores a result for duplicates of this message, in the commit of the mark.
    /// [`Inbox::process_with_results`](crate::Inbox::process_with_results) returns it for every duplicate. A second call
    /// replaces the first.
    ///
    /// For inline handlers only. Limit: `limits.result` bytes, default 64 KiB.
    pub fn set_result(&mut self, result: impl Into<Bytes>) -> Result<()> {
        let Some(answer) = &mut self.answer else {
            let what = "only an inline handler can store a result: no sender waits for a stored message";
            return Err(Error::new(ErrorKind::Unsupported, what));
        };
        let result = result.into();
        check_result(&result, answer.limit)?;
        answer.result = Some(result);
        Ok(())
    }

    /// Takes the result of the handler.
    pub(crate) fn take_result(&mut self) -> Option<Bytes> {
        self.answer.as_mut().and_then(|answer| answer.result.take())
    }

    /// Returns the message with its headers.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Returns the dedupe key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the key of the handler: a legacy key if the store knows the entry's handler by that one.
    pub fn handler(&self) -> &HandlerKey {
        &self.handler
    }

    /// Returns the token of this run's claim, which grows with every claim of the store. A receiver that keeps the greatest
    /// token of a message can refuse a run that lost its lease. `None` for a run without a claim.
    ///
    /// A token never decreases after a PostgreSQL failover: its upper bits are an epoch that grows with every timeline.
    /// Compare tokens as numbers; they have gaps.
    pub fn fence(&self) -> Option<Token> {
        self.fence
    }

    /// Returns the value of type `T` from [`InboxBuilder::data`](crate::InboxBuilder::data), such as a client. The handle is owned,
    /// so the handler may keep it while it uses [`tx`](Self::tx).
    ///
    /// Declare the type with [`Registration::needs`](crate::Registration::needs). Then `build()` returns an error if the value is
    /// missing. Otherwise this call returns it, and each run of the handler fails.
    pub fn data<T: Send + Sync + 'static>(&self) -> Result<Data<T>> {
        self.data.get()
    }

    /// Returns a stable key for an effect outside the database (a charge, a mail). It is the same at every attempt, so the
    /// other side can recognise a repeat. A rename of the handler with [`legacy`](crate::Registration::legacy) keeps it, in
    /// processes before and after the rename.
    pub fn idempotency_key(&self, effect: &str) -> String {
        self.key.idempotency_key(self.origin.as_str(), self.generation, effect)
    }

    pub(crate) fn set_tx(&mut self, tx: Box<dyn FinishTx>) {
        self.run_tx = Some(RunTransaction::Own(tx));
    }

    /// Takes the run's own transaction, if the handler began one.
    pub(crate) fn take_tx(&mut self) -> Option<Box<dyn FinishTx>> {
        match self.run_tx.take() {
            Some(RunTransaction::Own(tx)) => Some(tx),
            _ => None,
        }
    }

    /// Gives the run a shared transaction.
    pub(crate) fn lend_tx(&mut self, tx: Box<dyn ShareTx>) {
        self.run_tx = Some(RunTransaction::Shared(tx));
    }

    /// Takes the shared transaction back.
    pub(crate) fn return_tx(&mut self) -> Option<Box<dyn ShareTx>> {
        match self.run_tx.take() {
            Some(RunTransaction::Shared(tx)) => Some(tx),
            _ => None,
        }
    }
}

impl<S: Store> Context<S> {
    /// Returns the transaction that also completes the entry, so its writes happen exactly once.
    ///
    /// The first call begins it, so do slow work before. The library commits it when the handler returns `Ok`, and else rolls
    /// it back. With [`share_commit`](crate::Registration::share_commit) the transaction is already open, and a failure rolls
    /// back only the writes of this run.
    pub async fn tx(&mut self) -> Result<&mut S::Tx>
    where
        S: Transactional + MarkIn<<S as Transactional>::Tx>,
    {
        if self.run_tx.is_none() {
            let tx = self.store.begin().await?;
            self.set_tx(Box::new(OpenTx { store: Arc::clone(&self.store), tx }));
        }
        let open = self.run_tx.as_mut().map(|tx| match tx {
            RunTransaction::Own(tx) => tx.as_any(),
            RunTransaction::Shared(tx) => tx.as_any(),
        });
        open.and_then(|open| open.downcast_mut::<OpenTx<S>>()).map(|open| &mut open.tx).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "the open transaction belongs to another store")
        })
    }
}

/// Refuses a result above the limit.
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
