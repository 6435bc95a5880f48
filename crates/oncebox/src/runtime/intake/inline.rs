//! Runs inline handlers: mark, handler and commit in one transaction, while the broker waits. Tests: `tests/inline.rs`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tracing::{Instrument as _, Span};

use crate::error::{Error, ErrorKind, Result};
use crate::handler::{Context, FinishTx, Marked, RegisteredHandler};
use crate::inbox::{Processed, Shared};
use crate::key::{Fingerprint, MessageKey};
use crate::message::Message;
use crate::observe::{emit, names};
use crate::runtime::upkeep::repeat::is_transient;
use crate::runtime::work::executor::{run, uncommitted};
use crate::state::Retry;
use crate::store::{Mark, Store};

/// Maximum reruns of a transaction that the database ended.
const RERUNS: u32 = 3;

/// Result of a handler, and the bytes that it stored, now or before.
pub(crate) type InlineResult = (Processed, Option<Bytes>);

/// End of one transaction.
enum InlineAttempt {
    /// Final.
    Ended(Result<InlineResult>),
    /// Rolled back, and worth another run. Holds the result in case there is none.
    Transient(Result<InlineResult>),
}

/// One inline handler and one message.
pub(crate) struct Inline<'a, S: Store> {
    pub(crate) inbox: &'a Arc<Shared<S>>,
    pub(crate) handler: &'a Arc<RegisteredHandler<S>>,
    pub(crate) key: MessageKey,
    pub(crate) message: &'a Arc<Message>,
    /// True if the caller asks for the results of duplicates.
    pub(crate) recall: bool,
}

impl<S: Store> Inline<'_, S> {
    /// Runs the handler, unless it has completed before. After a deadlock or a serialization failure it runs again, a limited
    /// number of times, because the broker holds the delivery.
    pub(crate) async fn run(self) -> Result<InlineResult> {
        let answer = self.run_again().await;
        if let Ok((processed, _)) = &answer {
            let [inbox, handler] = self.labels();
            emit::count(names::INLINE, 1, [inbox, handler, emit::word("result", processed.as_str())]);
            if *processed == Processed::Done {
                self.inbox.note_inline(self.message, &self.handler.route.key, self.key.on_conflict);
            }
        }
        answer
    }

    fn labels(&self) -> [emit::LabelPair; 2] {
        [emit::inbox(&self.inbox.name), emit::handler(&self.handler.route.key)]
    }

    async fn run_again(&self) -> Result<InlineResult> {
        let (handler, pauses) = (&self.handler.route.key, pauses());
        for rerun in 1..=RERUNS {
            match self.unit().await {
                InlineAttempt::Ended(answer) => return answer,
                InlineAttempt::Transient(_) => {
                    tracing::debug!(%handler, key = %self.key.key, rerun, "transaction ended by database, rerunning");
                    emit::count(names::RERUNS, 1, self.labels());
                    self.inbox.clock.sleep(pauses.delay(rerun, self.spread(rerun))).await;
                }
            }
        }
        match self.unit().await {
            InlineAttempt::Ended(answer) | InlineAttempt::Transient(answer) => answer,
        }
    }

    /// Spreads the reruns of messages that conflicted. A message never conflicts with itself, because of its mark.
    fn spread(&self, rerun: u32) -> u32 {
        let [a, b, c, d, ..] = *self.key.key.as_bytes();
        u32::from_le_bytes([a, b, c, d]).wrapping_add(rerun.wrapping_mul(0x9E37_79B9))
    }

    async fn unit(&self) -> InlineAttempt {
        let Some(open) = self.handler.registration.open else {
            let what = format!("{:?} is not an inline handler", self.handler.route.key);
            return InlineAttempt::Ended(Err(Error::new(ErrorKind::InvalidHandler, what)));
        };
        // The start of the transaction has already waited for a connection, up to the store's timeout.
        let mut tx = match open(Arc::clone(&self.inbox.store)).await {
            Ok(tx) => tx,
            Err(error) => return InlineAttempt::Ended(Err(error)),
        };
        let (key, handler) = (self.key.key, self.handler.route.key.clone());
        let marked = Marked { inbox: self.inbox.name.clone(), key, handler };
        let mark = tx.mark(&marked, Fingerprint::of(self.message)).await;
        match mark.map(|mark| self.inbox.judged(mark, &self.key, self.message)) {
            Err(error) => {
                tx.rollback().await;
                return self.store_failed(error);
            }
            Ok(Mark::Busy) => return InlineAttempt::Ended(Ok((Processed::Busy, None))),
            Ok(Mark::Duplicate) => {
                let result = if self.recall { tx.recall(&marked).await } else { Ok(None) };
                return match result {
                    Ok(result) => InlineAttempt::Ended(Ok((Processed::Duplicate, result))),
                    Err(error) => self.store_failed(error),
                };
            }
            Ok(Mark::Conflict(_)) => return self.quarantine(tx).await,
            Ok(Mark::First) => {}
        }
        let (surroundings, message) = (self.inbox.surroundings(), Arc::clone(self.message));
        let mut context = Context::new(surroundings, message, key, marked.handler.clone(), 1, 0)
            .answering(self.inbox.config.limits.result);
        context.set_tx(tx);
        let watch = self.inbox.store.watch();
        let (name, place, no_claim) = (&self.inbox.name, (None, 1), Span::none());
        let span = watch.propagator.handling(name, &marked.handler, self.message, place, &no_claim);
        let ended = run(self.handler, self.message, &mut context, self.inbox).instrument(span).await;
        if let Err(miss) = ended {
            // Roll back before a rerun, or the next run would find its own mark.
            if let Some(tx) = context.take_tx() {
                tx.rollback().await;
            }
            let (again, failed) = (miss.transient.is_some(), Ok((Processed::Failed(miss.outcome), None)));
            return if again { InlineAttempt::Transient(failed) } else { InlineAttempt::Ended(failed) };
        }
        let result = context.take_result();
        let Some(tx) = context.take_tx() else {
            let what = "the transaction of an inline handler is gone";
            return InlineAttempt::Ended(Err(Error::new(ErrorKind::CommitUnknown, what)));
        };
        // A task of its own: a commit must not be torn when the caller goes away.
        match tokio::spawn(tx.commit(result.clone().map(|result| (marked, result)))).await {
            Ok(Ok(())) => InlineAttempt::Ended(Ok((Processed::Done, result))),
            // The handler's writes can never be committed: that is its failure, not the store's.
            Ok(Err(error)) if matches!(error.kind(), ErrorKind::Handler | ErrorKind::TransactionEnded) => {
                let outcome = uncommitted(self.inbox, self.handler, &error).outcome;
                InlineAttempt::Ended(Ok((Processed::Failed(outcome), None)))
            }
            Ok(Err(error)) => self.store_failed(error),
            Err(panic) => {
                let what = format!("the commit panicked: {panic}");
                InlineAttempt::Ended(Err(Error::new(ErrorKind::CommitUnknown, what)))
            }
        }
    }

    /// Quarantines a message whose key is marked for another message.
    async fn quarantine(&self, mut tx: Box<dyn FinishTx>) -> InlineAttempt {
        let new = self.inbox.in_conflict(&self.key, Arc::clone(self.message));
        if let Err(error) = tx.quarantine(&new).await {
            tx.rollback().await;
            return self.store_failed(error);
        }
        // A task of its own: a commit must not be torn when the caller goes away.
        match tokio::spawn(tx.commit(None)).await {
            Ok(Ok(())) => {
                self.inbox.note_quarantined(&new, &self.handler.route.key);
                InlineAttempt::Ended(Ok((Processed::Conflict, None)))
            }
            Ok(Err(error)) => self.store_failed(error),
            Err(panic) => {
                let what = format!("the commit panicked: {panic}");
                InlineAttempt::Ended(Err(Error::new(ErrorKind::CommitUnknown, what)))
            }
        }
    }

    fn store_failed(&self, error: Error) -> InlineAttempt {
        if is_transient(&*self.inbox.store, &error) {
            InlineAttempt::Transient(Err(error))
        } else {
            InlineAttempt::Ended(Err(error))
        }
    }
}

/// Pauses between reruns: short, because the broker holds the delivery, but long enough for the other transaction.
fn pauses() -> Retry {
    Retry::new(RERUNS, Duration::from_millis(20), Duration::from_millis(200))
}
