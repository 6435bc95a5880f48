//! What a handler is given besides its message.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::Data;
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;
use crate::message::Message;
use crate::name::{HandlerKey, InboxName};
use crate::observe::Observed;
use crate::store::{Claim, Mark, MarkIn, SettleIn, Settled, Store, Transactional};

/// The surroundings of one run of a handler.
pub struct Context<S: Store> {
    store: Arc<Observed<S>>,
    data: Arc<Data>,
    message: Arc<Message>,
    key: Key,
    handler: HandlerKey,
    attempt: u32,
    generation: u32,
    tx: Option<Box<dyn FinishTx>>,
}

impl<S: Store> Context<S> {
    /// `handler` is the registered key, so that idempotency keys survive a rename of the stored one.
    pub(crate) fn new(
        (store, data): (Arc<Observed<S>>, Arc<Data>),
        message: Arc<Message>,
        key: Key,
        handler: HandlerKey,
        attempt: u32,
        generation: u32,
    ) -> Self {
        Self { store, data, message, key, handler, attempt, generation, tx: None }
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

    /// The value of type `T` that [`Builder::data`](crate::Builder::data) was given: a client, a setting.
    pub fn data<T: Send + Sync + 'static>(&self) -> Result<&T> {
        self.data.get()
    }

    /// A stable key for an effect outside the database (a charge, a mail): the same at every attempt, so that the
    /// other side can recognise a repeat.
    pub fn idempotency_key(&self, effect: &str) -> String {
        self.key.idempotency_key(self.handler.as_str(), self.generation, effect)
    }

    pub(crate) fn take_tx(&mut self) -> Option<Box<dyn FinishTx>> {
        self.tx.take()
    }

    pub(crate) fn set_tx(&mut self, tx: Box<dyn FinishTx>) {
        self.tx = Some(tx);
    }
}

impl<S> Context<S>
where
    S: Transactional + MarkIn<<S as Transactional>::Tx> + SettleIn<<S as Transactional>::Tx>,
{
    /// The transaction in which the completion is written: what is written through it happens exactly once.
    ///
    /// It is opened at the first call, so do slow things before. The library commits it when the handler returns
    /// `Ok`, and rolls it back otherwise.
    pub async fn tx(&mut self) -> Result<&mut S::Tx> {
        if self.tx.is_none() {
            let tx = self.store.begin().await?;
            self.tx = Some(Box::new(OpenTx { store: Arc::clone(&self.store), tx }));
        }
        self.tx
            .as_mut()
            .and_then(|open| open.as_any().downcast_mut::<OpenTx<S>>())
            .map(|open| &mut open.tx)
            .ok_or_else(|| {
                Error::new(ErrorKind::Unsupported, "the open transaction belongs to another store")
            })
    }
}

impl<S: Store> std::fmt::Debug for Context<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("key", &self.key)
            .field("handler", &self.handler)
            .finish_non_exhaustive()
    }
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An open transaction with its type erased, so that the runtime needs no more of a store than [`Store`].
pub(crate) trait FinishTx: Send {
    fn as_any(&mut self) -> &mut dyn Any;

    /// Completes the claim and commits; rolls back if the claim no longer holds.
    fn complete(self: Box<Self>, claim: Claim) -> Boxed<'static, Result<Settled>>;

    /// Commits as it is.
    fn commit(self: Box<Self>) -> Boxed<'static, Result<()>>;
}

struct OpenTx<S: Transactional> {
    store: Arc<Observed<S>>,
    tx: S::Tx,
}

impl<S> FinishTx for OpenTx<S>
where
    S: Transactional + SettleIn<<S as Transactional>::Tx>,
{
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn complete(mut self: Box<Self>, claim: Claim) -> Boxed<'static, Result<Settled>> {
        Box::pin(async move {
            let settled = self.store.complete(&mut self.tx, &claim).await?;
            if settled == Settled::Applied {
                self.store.commit(self.tx).await?;
            }
            Ok(settled)
        })
    }

    fn commit(self: Box<Self>) -> Boxed<'static, Result<()>> {
        Box::pin(async move { self.store.commit(self.tx).await })
    }
}

/// Opens a transaction and marks the key in it: the first step of an inline handler.
pub(crate) type OpenMarked<S> =
    fn(Arc<Observed<S>>, InboxName, Key, HandlerKey) -> Boxed<'static, Result<(Mark, Box<dyn FinishTx>)>>;

pub(super) fn open_marked<S>(
    store: Arc<Observed<S>>,
    inbox: InboxName,
    key: Key,
    handler: HandlerKey,
) -> Boxed<'static, Result<(Mark, Box<dyn FinishTx>)>>
where
    S: Transactional + MarkIn<<S as Transactional>::Tx> + SettleIn<<S as Transactional>::Tx>,
{
    Box::pin(async move {
        let mut tx = store.begin().await?;
        let mark = store.mark(&mut tx, &inbox, &key, &handler).await?;
        let open: Box<dyn FinishTx> = Box::new(OpenTx { store, tx });
        Ok((mark, open))
    })
}
