//! Stores whose transactions a handler can share.

use std::future::Future;

use super::{Claim, Settled, Store};
use crate::error::Result;
use crate::key::Key;
use crate::name::{HandlerKey, InboxName};

/// What a mark found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a duplicate's work must not be done again"]
pub enum Mark {
    /// The key is new for this handler; the mark becomes visible with the transaction's commit.
    First,
    /// The work was committed before.
    Duplicate,
    /// Somebody else holds the key in a transaction that has not ended: neither done nor free. Hold the delivery
    /// back; never acknowledge it.
    Busy,
}

impl Mark {
    /// Whether the work is to be done.
    pub const fn is_first(self) -> bool {
        matches!(self, Self::First)
    }

    /// The word for it in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Duplicate => "duplicate",
            Self::Busy => "busy",
        }
    }
}

/// A store that can open transactions for handlers.
pub trait Transactional: Store {
    /// An open transaction. Dropping it rolls it back.
    type Tx: Send + 'static;

    /// Opens a transaction.
    fn begin(&self) -> impl Future<Output = Result<Self::Tx>> + Send;

    /// Commits. An error of kind [`CommitUnknown`](crate::ErrorKind::CommitUnknown) means that it may have happened;
    /// any other error, that it did not. Once polled it runs to its end, even if the future is dropped.
    fn commit(&self, tx: Self::Tx) -> impl Future<Output = Result<()>> + Send;
}

/// A store that can mark a key as handled inside a transaction of type `Tx`: the caller's own, or the store's.
pub trait MarkIn<Tx: ?Sized>: Store {
    /// Marks the key for the handler. Do this first in the transaction: then a concurrent duplicate cannot run.
    fn mark(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> impl Future<Output = Result<Mark>> + Send;
}

/// A store that can complete a claim inside a transaction of type `Tx`.
pub trait SettleIn<Tx: ?Sized>: Store {
    /// Completes the entry if the claim still holds. On [`Settled::LeaseLost`] the transaction must be rolled back:
    /// somebody else owns the work.
    fn complete(&self, tx: &mut Tx, claim: &Claim) -> impl Future<Output = Result<Settled>> + Send;
}
