//! Open transactions with their type erased, so that the runtime needs no more of a store than
//! [`Store`](crate::Store).

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::error::Result;
use crate::key::Key;
use crate::name::{HandlerKey, InboxName};
use crate::observe::Observed;
use crate::store::{Claim, Mark, MarkIn, Settled, ShareIn, Store, Transactional};

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A transaction that belongs to one run.
pub(crate) trait FinishTx: Send {
    fn as_any(&mut self) -> &mut dyn Any;

    /// Completes the claim and commits; rolls back if the claim no longer holds.
    fn complete(self: Box<Self>, claim: Claim) -> Boxed<'static, Result<Settled>>;

    /// Commits as it is.
    fn commit(self: Box<Self>) -> Boxed<'static, Result<()>>;
}

/// A transaction that several runs share, one after the other.
pub(crate) trait ShareTx: Send {
    fn as_any(&mut self) -> &mut dyn Any;

    /// Begins the part of the next run.
    fn savepoint(&mut self) -> Boxed<'_, Result<()>>;

    /// Undoes the part of the last run.
    fn rollback_to_savepoint(&mut self) -> Boxed<'_, Result<()>>;

    /// Completes the claims and commits; rolls back if one of them no longer holds.
    fn complete_all(self: Box<Self>, claims: Vec<Claim>) -> Boxed<'static, Result<Vec<Settled>>>;
}

pub(super) struct OpenTx<S: Transactional> {
    pub(super) store: Arc<Observed<S>>,
    pub(super) tx: S::Tx,
}

impl<S: Transactional> FinishTx for OpenTx<S> {
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn complete(self: Box<Self>, claim: Claim) -> Boxed<'static, Result<Settled>> {
        Box::pin(async move { self.store.finish(self.tx, &claim).await })
    }

    fn commit(self: Box<Self>) -> Boxed<'static, Result<()>> {
        Box::pin(async move { self.store.commit(self.tx).await })
    }
}

impl<S> ShareTx for OpenTx<S>
where
    S: Transactional + ShareIn<<S as Transactional>::Tx>,
{
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn savepoint(&mut self) -> Boxed<'_, Result<()>> {
        Box::pin(self.store.savepoint(&mut self.tx))
    }

    fn rollback_to_savepoint(&mut self) -> Boxed<'_, Result<()>> {
        Box::pin(self.store.rollback_to_savepoint(&mut self.tx))
    }

    fn complete_all(mut self: Box<Self>, claims: Vec<Claim>) -> Boxed<'static, Result<Vec<Settled>>> {
        Box::pin(async move {
            let settled = self.store.complete_all(&mut self.tx, &claims).await?;
            if settled.iter().all(|settled| *settled == Settled::Applied) {
                self.store.commit(self.tx).await?;
            }
            Ok(settled)
        })
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
    S: Transactional + MarkIn<<S as Transactional>::Tx>,
{
    Box::pin(async move {
        let mut tx = store.begin().await?;
        let mark = store.mark(&mut tx, &inbox, &key, &handler).await?;
        let open: Box<dyn FinishTx> = Box::new(OpenTx { store, tx });
        Ok((mark, open))
    })
}

/// How the runs of a handler share their commits.
pub(crate) struct Share<S: Store> {
    /// At most this many in one transaction.
    pub(crate) most: usize,
    pub(crate) open: OpenShared<S>,
}

/// Opens a transaction and holds the claims in it: the first step of a group.
type OpenShared<S> = fn(Arc<Observed<S>>, Vec<Claim>) -> Boxed<'static, Result<Held>>;

/// Which claims hold, and the transaction in which they do.
type Held = (Vec<Settled>, Box<dyn ShareTx>);

pub(super) fn open_shared<S>(store: Arc<Observed<S>>, claims: Vec<Claim>) -> Boxed<'static, Result<Held>>
where
    S: Transactional + ShareIn<<S as Transactional>::Tx>,
{
    Box::pin(async move {
        let mut tx = store.begin().await?;
        let held = store.hold(&mut tx, &claims).await?;
        let open: Box<dyn ShareTx> = Box::new(OpenTx { store, tx });
        Ok((held, open))
    })
}
