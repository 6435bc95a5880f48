//! Open transactions with their type erased, so that the runtime needs only the trait [`Store`](crate::Store). Tests:
//! `tests/inline.rs`, `tests/share.rs`.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use tracing::Instrument as _;

use crate::error::Result;
use crate::key::{Fingerprint, Key};
use crate::name::{HandlerKey, InboxName};
use crate::observe::Observed;
use crate::store::{Claim, Mark, MarkIn, NewMessage, Settled, ShareIn, Store, Transactional};

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A transaction that belongs to one run.
pub(crate) trait FinishTx: Send {
    fn as_any(&mut self) -> &mut dyn Any;

    /// Completes the claim and commits; rolls back if the claim no longer holds.
    fn complete(self: Box<Self>, claim: Claim) -> Boxed<'static, Result<Settled>>;

    /// Marks the key: the first step of an inline handler.
    fn mark<'a>(&'a mut self, marked: &'a Marked, fingerprint: Fingerprint) -> Boxed<'a, Result<Mark>>;

    /// Quarantines a message whose key is marked for another one.
    fn quarantine<'a>(&'a mut self, message: &'a NewMessage) -> Boxed<'a, Result<()>>;

    /// Returns the result that was stored with the mark.
    fn recall<'a>(&'a mut self, marked: &'a Marked) -> Boxed<'a, Result<Option<Bytes>>>;

    /// Rolls back, and returns when that is done.
    fn rollback(self: Box<Self>) -> Boxed<'static, ()>;

    /// Stores a result with the mark, if there is one, and commits.
    fn commit(self: Box<Self>, result: Option<(Marked, Bytes)>) -> Boxed<'static, Result<()>>;
}

/// Identity of a mark.
#[derive(Clone)]
pub(crate) struct Marked {
    pub(crate) inbox: InboxName,
    pub(crate) key: Key,
    pub(crate) handler: HandlerKey,
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

impl<S> FinishTx for OpenTx<S>
where
    S: Transactional + MarkIn<<S as Transactional>::Tx>,
{
    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn complete(self: Box<Self>, claim: Claim) -> Boxed<'static, Result<Settled>> {
        Box::pin(async move {
            let Self { store, tx } = *self;
            let completing = store.watch().completing(std::iter::once(&claim));
            let finished = store.finish(tx, &claim).instrument(completing.alone()).await;
            completing.ended(finished.as_ref().ok().map(std::slice::from_ref));
            let settled = finished?;
            if settled == Settled::Applied {
                store.watch().done(&claim);
            } else {
                store.watch().lost(&claim);
            }
            Ok(settled)
        })
    }

    fn mark<'a>(&'a mut self, marked: &'a Marked, fingerprint: Fingerprint) -> Boxed<'a, Result<Mark>> {
        let Marked { inbox, key, handler } = marked;
        Box::pin(self.store.mark(&mut self.tx, inbox, key, handler, Some(fingerprint)))
    }

    fn quarantine<'a>(&'a mut self, message: &'a NewMessage) -> Boxed<'a, Result<()>> {
        Box::pin(self.store.quarantine(&mut self.tx, message))
    }

    fn recall<'a>(&'a mut self, marked: &'a Marked) -> Boxed<'a, Result<Option<Bytes>>> {
        let Marked { inbox, key, handler } = marked;
        Box::pin(self.store.recall(&mut self.tx, inbox, key, handler))
    }

    fn rollback(self: Box<Self>) -> Boxed<'static, ()> {
        Box::pin(async move { self.store.rollback(self.tx).await })
    }

    fn commit(mut self: Box<Self>, result: Option<(Marked, Bytes)>) -> Boxed<'static, Result<()>> {
        Box::pin(async move {
            if let Some((Marked { inbox, key, handler }, result)) = &result
                && let Err(error) = self.store.record(&mut self.tx, inbox, key, handler, result).await
            {
                self.store.rollback(self.tx).await;
                return Err(error);
            }
            self.store.commit(self.tx).await
        })
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
            let completing = self.store.watch().completing(claims.iter());
            let completed = async {
                let settled = self.store.complete_all(&mut self.tx, &claims).await?;
                if settled.iter().all(|settled| *settled == Settled::Applied) {
                    self.store.commit(self.tx).await?;
                    for claim in &claims {
                        self.store.watch().done(claim);
                    }
                }
                Ok(settled)
            };
            let completed: Result<Vec<Settled>> = completed.instrument(completing.alone()).await;
            completing.ended(completed.as_deref().ok());
            completed
        })
    }
}

/// Opens the transaction of an inline handler.
pub(crate) type OpenInline<S> = fn(Arc<Observed<S>>) -> Boxed<'static, Result<Box<dyn FinishTx>>>;

pub(super) fn open<S>(store: Arc<Observed<S>>) -> Boxed<'static, Result<Box<dyn FinishTx>>>
where
    S: Transactional + MarkIn<<S as Transactional>::Tx>,
{
    Box::pin(async move {
        let tx = store.begin().await?;
        let open: Box<dyn FinishTx> = Box::new(OpenTx { store, tx });
        Ok(open)
    })
}

/// Settings of shared commits.
pub(crate) struct SharedCommit<S: Store> {
    /// Maximum runs in one transaction.
    pub(crate) max_runs: usize,
    pub(crate) open: OpenShared<S>,
}

/// Opens a transaction and holds the claims in it: the first step of a group.
type OpenShared<S> = fn(Arc<Observed<S>>, Vec<Claim>) -> Boxed<'static, Result<HeldClaims>>;

/// The claims that hold, and the transaction that holds them.
type HeldClaims = (Vec<Settled>, Box<dyn ShareTx>);

pub(super) fn open_shared<S>(
    store: Arc<Observed<S>>,
    claims: Vec<Claim>,
) -> Boxed<'static, Result<HeldClaims>>
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
