//! Short forms of operator actions, for tests. Tests: the conformance suite calls every step.

use std::time::Duration;

use async_trait::async_trait;
use oncebox::state::Operation;
use oncebox::store::{Action, ActionKind, ActionResult, EntryView, ErasureCounts, Operate};
use oncebox::{Error, ErrorKind, HandlerKey, InboxName, Key, Result};

/// Operator actions by an unknown actor, without a reason. Each is one call of [`Operate::act`].
#[async_trait]
pub trait OperatorSteps: Operate {
    /// Retries, discards, replays or unblocks one entry for an unknown actor. The returned entry has no error text.
    async fn operate(
        &self,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        operation: Operation,
    ) -> Result<EntryView> {
        let what = ActionKind::Entry { key: *key, handler: handler.clone(), operation };
        match self.act(&Action::new(inbox.clone(), what)).await?.answer {
            ActionResult::Entry(entry) => Ok(*entry),
            _ => Err(Error::new(ErrorKind::Corrupt, "an operation on an entry was answered without one")),
        }
    }

    /// Lets the entries behind a poisoned one with its ordering key continue without it. The entry stays poisoned, as skipped.
    /// Refused if it blocks nothing.
    async fn unblock(&self, inbox: &InboxName, key: &Key, handler: &HandlerKey) -> Result<EntryView> {
        self.operate(inbox, key, handler, Operation::Unblock).await
    }

    /// Stops claims for a handler, on every worker. Running entries continue.
    async fn pause(&self, inbox: &InboxName, handler: &HandlerKey) -> Result<()> {
        self.act(&Action::new(inbox.clone(), ActionKind::Pause { handler: handler.clone() }))
            .await
            .map(|_| ())
    }

    /// Allows claims for a handler again.
    async fn resume(&self, inbox: &InboxName, handler: &HandlerKey) -> Result<()> {
        self.act(&Action::new(inbox.clone(), ActionKind::Resume { handler: handler.clone() }))
            .await
            .map(|_| ())
    }

    /// Erases the content of one message and of the quarantined messages under its key: payloads, headers, ids, errors and results.
    /// The proof of the key stays, so the same message is still a duplicate. Refused while an entry of it runs, and while one waits
    /// unless `discard_unfinished` is set.
    async fn erase(&self, inbox: &InboxName, key: &Key, discard_unfinished: bool) -> Result<ErasureCounts> {
        let what = ActionKind::Erase { key: *key, discard_unfinished };
        match self.act(&Action::new(inbox.clone(), what)).await?.answer {
            ActionResult::Erased(counts) => Ok(counts),
            _ => Err(Error::new(ErrorKind::Corrupt, "an erasure was answered without its counts")),
        }
    }

    /// Removes messages that have been quarantined for longer than `age`, at most `limit`, and returns their number. It removes no
    /// entries. To remove a poisoned entry, discard it: it then expires with its retention.
    async fn purge(&self, inbox: &InboxName, age: Duration, limit: usize) -> Result<usize> {
        match self.act(&Action::new(inbox.clone(), ActionKind::Purge { age, limit })).await?.answer {
            ActionResult::Purged(count) => Ok(count),
            _ => Err(Error::new(ErrorKind::Corrupt, "a purge was answered without a count")),
        }
    }
}

impl<S: Operate + ?Sized> OperatorSteps for S {}
