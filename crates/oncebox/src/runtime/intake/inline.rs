//! Runs inline handlers: mark, handler and commit in one transaction, while the broker waits. Tests: `tests/inline.rs`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tracing::{Instrument as _, Span};

use crate::error::{Error, ErrorKind, Result};
use crate::handler::{Context, FinishTx, Marked, Registered};
use crate::inbox::{Processed, Shared};
use crate::key::{Fingerprint, MessageKey};
use crate::message::Message;
use crate::observe::{emit, names};
use crate::runtime::upkeep::repeat::is_transient;
use crate::runtime::work::executor::{run, uncommitted};
use crate::state::Retry;
use crate::store::{Mark, Store};

/// How often a unit is made again that the database could not carry out this time.
const RERUNS: u32 = 3;

/// What became of a handler, and the result that it left, now or before.
pub(crate) type Answer = (Processed, Option<Bytes>);

/// How one transaction ended.
enum Unit {
    /// For good.
    Ended(Result<Answer>),
    /// Nothing of it is stored, and another try may do better. With what is answered if there is none.
    Transient(Result<Answer>),
}

/// One inline handler and one message.
pub(crate) struct Inline<'a, S: Store> {
    pub(crate) inbox: &'a Arc<Shared<S>>,
    pub(crate) handler: &'a Arc<Registered<S>>,
    pub(crate) key: MessageKey,
    pub(crate) message: &'a Arc<Message>,
    /// Whether somebody asks for the results of duplicates.
    pub(crate) recall: bool,
}

impl<S: Store> Inline<'_, S> {
    /// Runs the handler, unless it has done its work before. What a deadlock or the like has undone is done again, a
    /// bounded number of times: the delivery is held, and the broker would only bring it later.
    pub(crate) async fn run(self) -> Result<Answer> {
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

    fn labels(&self) -> [emit::Pair; 2] {
        [emit::inbox(&self.inbox.name), emit::handler(&self.handler.route.key)]
    }

    async fn run_again(&self) -> Result<Answer> {
        let (handler, pauses) = (&self.handler.route.key, pauses());
        for rerun in 1..=RERUNS {
            match self.unit().await {
                Unit::Ended(answer) => return answer,
                Unit::Transient(_) => {
                    tracing::debug!(%handler, key = %self.key.key, rerun, "the database ended the transaction; once more");
                    emit::count(names::RERUNS, 1, self.labels());
                    self.inbox.clock.sleep(pauses.delay(rerun, self.spread(rerun))).await;
                }
            }
        }
        match self.unit().await {
            Unit::Ended(answer) | Unit::Transient(answer) => answer,
        }
    }

    /// Keeps messages apart that were in each other's way. The same message is never in its own: it is marked.
    fn spread(&self, rerun: u32) -> u32 {
        let [a, b, c, d, ..] = *self.key.key.as_bytes();
        u32::from_le_bytes([a, b, c, d]).wrapping_add(rerun.wrapping_mul(0x9E37_79B9))
    }

    async fn unit(&self) -> Unit {
        let Some(open) = self.handler.registration.open else {
            let what = format!("{:?} is not an inline handler", self.handler.route.key);
            return Unit::Ended(Err(Error::new(ErrorKind::InvalidHandler, what)));
        };
        // Whoever begins has waited for its turn already, as long as the store is told to.
        let mut tx = match open(Arc::clone(&self.inbox.store)).await {
            Ok(tx) => tx,
            Err(error) => return Unit::Ended(Err(error)),
        };
        let (key, handler) = (self.key.key, self.handler.route.key.clone());
        let marked = Marked { inbox: self.inbox.name.clone(), key, handler };
        let mark = tx.mark(&marked, Fingerprint::of(self.message)).await;
        match mark.map(|mark| self.inbox.judged(mark, &self.key, self.message)) {
            Err(error) => {
                tx.rollback().await;
                return self.store_failed(error);
            }
            Ok(Mark::Busy) => return Unit::Ended(Ok((Processed::Busy, None))),
            Ok(Mark::Duplicate) if !self.recall => return Unit::Ended(Ok((Processed::Duplicate, None))),
            Ok(Mark::Duplicate) => {
                return match tx.recall(&marked).await {
                    Ok(result) => Unit::Ended(Ok((Processed::Duplicate, result))),
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
            // Over before anybody tries again, or the next one would find the key taken by this one.
            if let Some(tx) = context.take_tx() {
                tx.rollback().await;
            }
            let failed = Ok((Processed::Failed(miss.outcome), None));
            return if miss.transient.is_some() { Unit::Transient(failed) } else { Unit::Ended(failed) };
        }
        let result = context.take_result();
        let Some(tx) = context.take_tx() else {
            let what = "the transaction of an inline handler is gone";
            return Unit::Ended(Err(Error::new(ErrorKind::CommitUnknown, what)));
        };
        // A task of its own: a commit must not be torn when the caller goes away.
        match tokio::spawn(tx.commit(result.clone().map(|result| (marked, result)))).await {
            Ok(Ok(())) => Unit::Ended(Ok((Processed::Done, result))),
            // What the handler wrote cannot be committed, now or ever: that is its failure, not the store's.
            Ok(Err(error)) if matches!(error.kind(), ErrorKind::Handler | ErrorKind::TransactionEnded) => {
                let outcome = uncommitted(self.inbox, self.handler, &error).outcome;
                Unit::Ended(Ok((Processed::Failed(outcome), None)))
            }
            Ok(Err(error)) => self.store_failed(error),
            Err(panic) => {
                let what = format!("the commit panicked: {panic}");
                Unit::Ended(Err(Error::new(ErrorKind::CommitUnknown, what)))
            }
        }
    }

    /// Quarantines a message whose key is marked for another one, as accepting it would.
    async fn quarantine(&self, mut tx: Box<dyn FinishTx>) -> Unit {
        let new = self.inbox.in_conflict(&self.key, Arc::clone(self.message));
        if let Err(error) = tx.quarantine(&new).await {
            tx.rollback().await;
            return self.store_failed(error);
        }
        // A task of its own: a commit must not be torn when the caller goes away.
        match tokio::spawn(tx.commit(None)).await {
            Ok(Ok(())) => {
                self.inbox.note_quarantined(&new, &self.handler.route.key);
                Unit::Ended(Ok((Processed::Conflict, None)))
            }
            Ok(Err(error)) => self.store_failed(error),
            Err(panic) => {
                let what = format!("the commit panicked: {panic}");
                Unit::Ended(Err(Error::new(ErrorKind::CommitUnknown, what)))
            }
        }
    }

    fn store_failed(&self, error: Error) -> Unit {
        if is_transient(&*self.inbox.store, &error) {
            Unit::Transient(Err(error))
        } else {
            Unit::Ended(Err(error))
        }
    }
}

/// Short: the delivery is held meanwhile. Long enough for the other transaction to end.
fn pauses() -> Retry {
    Retry::new(RERUNS, Duration::from_millis(20), Duration::from_millis(200))
}
