//! Stores whose transactions a handler can share. Tests: `conformance/mark.rs`, `conformance/accept_in.rs` and
//! `conformance/share.rs` in `oncebox-testkit`.

use std::future::Future;

use bytes::Bytes;

use super::{Accepted, Claim, NewMessage, Settled, Store};
use crate::error::{Error, ErrorKind, Result};
use crate::key::{Fingerprint, Key};
use crate::name::{HandlerKey, InboxName};

/// Result of marking a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "do the work only for the first, and acknowledge nothing that is busy"]
pub enum Mark {
    /// The key is new for this handler; the mark becomes visible with the transaction's commit.
    First,
    /// The work was committed before.
    Duplicate,
    /// Another open transaction holds the key: it is neither done nor free. Hold the delivery back, and never acknowledge it.
    Busy,
    /// The work was committed for another message under this key, which has this fingerprint. Do not do the work for this message,
    /// and do not treat it as a duplicate.
    Conflict(Fingerprint),
}

impl Mark {
    /// Returns true if the caller has to do the work, and false if the work was committed before. For [`Busy`](Self::Busy) it
    /// returns an error of kind [`Unavailable`](ErrorKind::Unavailable), because the work may still roll back: return the error
    /// to the broker, and it delivers the message again. Write `if once(..).await?.is_first()? { .. }`.
    ///
    /// ```compile_fail,E0308
    /// # fn charge(mark: oncebox_core::Mark) -> bool {
    /// if mark.is_first() { // without `?`, a busy message would be acknowledged
    ///     return true;
    /// }
    /// # false }
    /// ```
    pub fn is_first(self) -> Result<bool> {
        match self {
            Self::First => Ok(true),
            Self::Duplicate | Self::Conflict(_) => Ok(false),
            Self::Busy => {
                let what = "another transaction that has not ended handles the same message; nothing was marked; let it be delivered again";
                Err(Error::new(ErrorKind::Unavailable, what))
            }
        }
    }

    /// Returns the result for a marked key. `known` is the fingerprint of the mark, `new` that of the present message. If one is
    /// missing, the message counts as a duplicate.
    pub fn of_known(known: Option<Fingerprint>, new: Option<Fingerprint>) -> Self {
        match known.filter(|known| new.is_some_and(|new| new != *known)) {
            Some(known) => Self::Conflict(known),
            None => Self::Duplicate,
        }
    }

    /// Returns the word for it in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Duplicate => "duplicate",
            Self::Busy => "busy",
            Self::Conflict(_) => "conflict",
        }
    }
}

/// Store that opens transactions for handlers and completes entries in them.
#[diagnostic::on_unimplemented(
    message = "the store `{Self}` has no transactions for handlers",
    label = "this needs a store with transactions",
    note = "take a store with transactions, or leave out what needs them: `inline`, `share_commit` and `cx.tx()`"
)]
pub trait Transactional: SettleIn<<Self as Transactional>::Tx> {
    /// Open transaction. Dropping it rolls it back.
    type Tx: Send + 'static;

    /// Opens a transaction.
    fn begin(&self) -> impl Future<Output = Result<Self::Tx>> + Send;

    /// Commits. After an error of kind [`CommitUnknown`](crate::ErrorKind::CommitUnknown) the commit may have happened. After any
    /// other error it did not. The library waits for it in a task that nothing aborts.
    fn commit(&self, tx: Self::Tx) -> impl Future<Output = Result<()>> + Send;

    /// Completes the entry and commits, if the claim still holds. On [`Settled::LeaseLost`] it commits nothing. Errors mean the
    /// same as for [`commit`](Self::commit). A store may override it to do both in one round trip.
    fn finish(&self, mut tx: Self::Tx, claim: &Claim) -> impl Future<Output = Result<Settled>> + Send {
        async move {
            let settled = self.complete(&mut tx, claim).await?;
            if settled == Settled::Applied {
                self.commit(tx).await?;
            }
            Ok(settled)
        }
    }

    /// Rolls back and returns when the transaction's locks are released. A store where dropping does the same keeps the default.
    fn rollback(&self, tx: Self::Tx) -> impl Future<Output = ()> + Send {
        async move { drop(tx) }
    }
}

/// Store that marks a key as handled inside a transaction of type `Tx`: the caller's, or the store's.
#[diagnostic::on_unimplemented(
    message = "the store `{Self}` cannot mark messages in a transaction of type `{Tx}`",
    label = "this needs a store that can",
    note = "pass the open transaction of the database that the store is in, such as `&mut tx` of `sqlx::Transaction` for PostgreSQL and of `rusqlite::Transaction` for SQLite"
)]
pub trait MarkIn<Tx: ?Sized>: Store {
    /// Marks the key for the handler. Call this first in the transaction, so that a concurrent duplicate cannot run.
    ///
    /// The mark keeps the fingerprint. Another fingerprint gives [`Mark::Conflict`], by the rule of [`Mark::of_known`], and the
    /// policy of the inbox decides about it. A transaction of another database is [`Refused`](crate::ErrorKind::Refused), if the
    /// store can tell without another round trip.
    fn mark(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        fingerprint: Option<Fingerprint>,
    ) -> impl Future<Output = Result<Mark>> + Send;

    /// Quarantines a message after [`Mark::Conflict`] in the same transaction, as [`accept`](Store::accept) does. Operators list
    /// it, and no sweep removes it. Repeating it adds nothing.
    fn quarantine(&self, tx: &mut Tx, message: &NewMessage) -> impl Future<Output = Result<()>> + Send;

    /// Stores a result with a mark of this transaction, for later duplicates. Once for each mark:
    /// [`Refused`](crate::ErrorKind::Refused) if there is a result already, or no mark.
    fn record(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        result: &[u8],
    ) -> impl Future<Output = Result<()>> + Send;

    /// Returns the result stored with a mark, after [`Mark::Duplicate`] in the same transaction. It is a call of its own because
    /// most duplicates need no result.
    fn recall(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> impl Future<Output = Result<Option<Bytes>>> + Send;

    /// Returns true if the handler's work for the key is marked: by a committed transaction that is not forgotten, or by this one.
    /// It marks nothing, so it is for questions and reports; only [`mark`](Self::mark) decides who does the work.
    fn is_marked(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> impl Future<Output = Result<bool>> + Send;
}

/// Store that accepts messages inside a transaction of type `Tx`: the caller's, or the store's.
#[diagnostic::on_unimplemented(
    message = "the store `{Self}` cannot accept messages in a transaction of type `{Tx}`",
    label = "this needs a store that can"
)]
pub trait AcceptIn<Tx: ?Sized>: Store {
    /// Stores the messages as [`accept`](Store::accept) does, with the same results, in the caller's transaction. Nothing is
    /// visible before its commit, and nothing is left after its rollback. A key occurs twice in the transaction as it does in a
    /// batch: the second message is a duplicate of the first.
    ///
    /// Until the transaction ends, another accept of one of its new keys waits, or fails with a
    /// [retryable](crate::Error::is_retryable) error; no key has two firsts. The same holds for messages with an ordering key of
    /// the transaction: they get their numbers in the order of the commits. Messages without one may become visible in another
    /// order than that of their numbers, and a store claims them all the same.
    ///
    /// After an error, roll back. A transaction of another database is [`Refused`](crate::ErrorKind::Refused), if the store can
    /// tell, and so is a connection without an open transaction.
    ///
    /// The store wakes its workers after [`Transactional::commit`]. It may not notice the commit of the caller's own transaction:
    /// then its workers find the work by polling.
    fn accept_in(
        &self,
        tx: &mut Tx,
        batch: &[NewMessage],
    ) -> impl Future<Output = Result<Vec<Accepted>>> + Send;
}

impl<Tx: ?Sized, S: AcceptIn<Tx>> AcceptIn<Tx> for std::sync::Arc<S> {
    fn accept_in(
        &self,
        tx: &mut Tx,
        batch: &[NewMessage],
    ) -> impl Future<Output = Result<Vec<Accepted>>> + Send {
        (**self).accept_in(tx, batch)
    }
}

/// Store that completes a claim inside a transaction of type `Tx`.
pub trait SettleIn<Tx: ?Sized>: Store {
    /// Completes the entry if the claim still holds. On [`Settled::LeaseLost`] the caller must roll back: another worker owns the
    /// entry.
    fn complete(&self, tx: &mut Tx, claim: &Claim) -> impl Future<Output = Result<Settled>> + Send;
}

/// Store whose transactions several runs share. Each run has a part that can be rolled back alone.
///
/// After any error the transaction is useless: the library drops it and gives each run its own. A store that is not sure whether a
/// transaction can continue returns an error.
#[diagnostic::on_unimplemented(
    message = "the store `{Self}` has no savepoints, so its handlers cannot share transactions of type `{Tx}`",
    label = "this needs a store with savepoints",
    note = "leave out `share_commit`, or handle one message at a time instead of a batch"
)]
pub trait ShareIn<Tx: ?Sized>: SettleIn<Tx> {
    /// Returns [`Settled::Applied`] for each claim that holds. Until the transaction ends, the store must prevent a takeover of the
    /// claim, or refuse its completion in this transaction. Renewals of these claims may wait for the transaction, but must not
    /// fail: the last run ends a sixth of a lease after the transaction was opened.
    fn hold(&self, tx: &mut Tx, claims: &[Claim]) -> impl Future<Output = Result<Vec<Settled>>> + Send;

    /// Starts the part of the next run, and keeps earlier writes.
    fn savepoint(&self, tx: &mut Tx) -> impl Future<Output = Result<()>> + Send;

    /// Rolls back to the last savepoint. The transaction continues. The run may have stopped anywhere, also within a statement.
    fn rollback_to_savepoint(&self, tx: &mut Tx) -> impl Future<Output = Result<()>> + Send;

    /// Completes each entry whose claim still holds. If one does not, the caller must roll back.
    fn complete_all(
        &self,
        tx: &mut Tx,
        claims: &[Claim],
    ) -> impl Future<Output = Result<Vec<Settled>>> + Send;
}
