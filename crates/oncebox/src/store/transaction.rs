//! Stores whose transactions a handler can share.

use std::future::Future;

use bytes::Bytes;

use super::{Claim, NewMessage, Settled, Store};
use crate::error::Result;
use crate::key::{Fingerprint, Key};
use crate::name::{HandlerKey, InboxName};

/// What a mark found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a duplicate's work must not be done again"]
pub enum Mark {
    /// The key is new for this handler; the mark becomes visible with the transaction's commit.
    First,
    /// The work was committed before.
    Duplicate,
    /// Another transaction that has not ended holds the key: it is neither done nor free. Hold the delivery back; never
    /// acknowledge it.
    Busy,
    /// The work was committed before, for another message under the same key: the one with this fingerprint. Do not do
    /// the work for this one, and do not take it for a duplicate.
    Conflict(Fingerprint),
}

impl Mark {
    /// Whether the work is to be done.
    pub const fn is_first(self) -> bool {
        matches!(self, Self::First)
    }

    /// The answer for a key that is marked: `known` is the fingerprint of its mark, `new` that of the message that came now.
    /// Without one of the two nothing can be compared, and the message is a duplicate.
    pub fn of_known(known: Option<Fingerprint>, new: Option<Fingerprint>) -> Self {
        match known.filter(|known| new.is_some_and(|new| new != *known)) {
            Some(known) => Self::Conflict(known),
            None => Self::Duplicate,
        }
    }

    /// The word for it in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Duplicate => "duplicate",
            Self::Busy => "busy",
            Self::Conflict(_) => "conflict",
        }
    }
}

/// A store that can open transactions for handlers, and complete their entries in them.
#[diagnostic::on_unimplemented(
    message = "the store `{Self}` has no transactions for handlers",
    label = "this needs a store with transactions",
    note = "take a store with transactions, or leave out what needs them: `inline`, `share_commit` and `cx.tx()`"
)]
pub trait Transactional: SettleIn<<Self as Transactional>::Tx> {
    /// An open transaction. Dropping it rolls it back.
    type Tx: Send + 'static;

    /// Opens a transaction.
    fn begin(&self) -> impl Future<Output = Result<Self::Tx>> + Send;

    /// Commits. An error of kind [`CommitUnknown`](crate::ErrorKind::CommitUnknown) means that it may have happened;
    /// any other error, that it did not. The library waits for it in a task of its own, which nothing aborts.
    fn commit(&self, tx: Self::Tx) -> impl Future<Output = Result<()>> + Send;

    /// Completes the entry and commits, if the claim still holds; on [`Settled::LeaseLost`] nothing is committed. Errors mean
    /// what they mean for [`commit`](Self::commit). For a store that can do both in one round trip; others leave this as it is.
    fn finish(&self, mut tx: Self::Tx, claim: &Claim) -> impl Future<Output = Result<Settled>> + Send {
        async move {
            let settled = self.complete(&mut tx, claim).await?;
            if settled == Settled::Applied {
                self.commit(tx).await?;
            }
            Ok(settled)
        }
    }

    /// Rolls back, and returns when that is done: then nothing of the transaction is in anybody's way. A store for which
    /// dropping it does as much leaves this as it is.
    fn rollback(&self, tx: Self::Tx) -> impl Future<Output = ()> + Send {
        async move { drop(tx) }
    }
}

/// A store that can mark a key as handled inside a transaction of type `Tx`: the caller's own, or the store's.
#[diagnostic::on_unimplemented(
    message = "the store `{Self}` cannot mark messages in a transaction of type `{Tx}`",
    label = "this needs a store that can"
)]
pub trait MarkIn<Tx: ?Sized>: Store {
    /// Marks the key for the handler. Do this first in the transaction: then a concurrent duplicate cannot run.
    ///
    /// The mark keeps the fingerprint. A later mark of the key with another fingerprint is answered
    /// [`Mark::Conflict`], as [`Mark::of_known`] has it; the policy of the inbox decides what that means. A transaction of another
    /// database is [`Refused`](crate::ErrorKind::Refused), as far as the store can tell without another round trip.
    fn mark(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        fingerprint: Option<Fingerprint>,
    ) -> impl Future<Output = Result<Mark>> + Send;

    /// Quarantines a message after [`Mark::Conflict`] in the same transaction, as [`accept`](Store::accept) does with one in
    /// conflict: operators list it, and no sweep removes it. The same message again adds nothing.
    fn quarantine(&self, tx: &mut Tx, message: &NewMessage) -> impl Future<Output = Result<()>> + Send;

    /// Leaves a result with a mark that this transaction made, for whoever finds the mark later. Once for each mark:
    /// [`Refused`](crate::ErrorKind::Refused) if there is a result already, or no mark.
    fn record(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        result: &[u8],
    ) -> impl Future<Output = Result<()>> + Send;

    /// The result that was left with a mark, after [`Mark::Duplicate`] in the same transaction. A call of its own: most
    /// duplicates are not asked for their result.
    fn recall(
        &self,
        tx: &mut Tx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> impl Future<Output = Result<Option<Bytes>>> + Send;
}

/// A store that can complete a claim inside a transaction of type `Tx`.
pub trait SettleIn<Tx: ?Sized>: Store {
    /// Completes the entry if the claim still holds. On [`Settled::LeaseLost`] the transaction must be rolled back:
    /// somebody else owns the work.
    fn complete(&self, tx: &mut Tx, claim: &Claim) -> impl Future<Output = Result<Settled>> + Send;
}

/// A store whose transactions several runs of a handler can share, each in a part of its own that can be undone alone.
///
/// Any error says that the transaction is of no use any more. Then it is dropped, and each run gets one of its own: a
/// store that is not sure whether a transaction can go on answers with an error.
pub trait ShareIn<Tx: ?Sized>: SettleIn<Tx> {
    /// Answers [`Settled::Applied`] for each claim that holds, and sees to it that one of the two happens until the
    /// transaction ends: nobody can take the claim over, or its completion in this transaction is refused. Renewals of
    /// these claims may have to wait for the transaction, but must not fail: a sixth of a lease after it was opened the
    /// last run in it is over.
    fn hold(&self, tx: &mut Tx, claims: &[Claim]) -> impl Future<Output = Result<Vec<Settled>>> + Send;

    /// Begins the part of the next run, and keeps what was written before.
    fn savepoint(&self, tx: &mut Tx) -> impl Future<Output = Result<()>> + Send;

    /// Undoes what was written since the last savepoint; the transaction goes on. The run may have been stopped
    /// anywhere, in the middle of a statement too.
    fn rollback_to_savepoint(&self, tx: &mut Tx) -> impl Future<Output = Result<()>> + Send;

    /// Completes each entry whose claim still holds. If one does not, the transaction must be rolled back.
    fn complete_all(
        &self,
        tx: &mut Tx,
        claims: &[Claim],
    ) -> impl Future<Output = Result<Vec<Settled>>> + Send;
}
