//! Hooks of the user's own. What they do wrong is theirs alone: deliveries go on.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{emit, log_throttle::LogThrottle, names};
use crate::error::{BoxError, Error};
use crate::message::Message;
use crate::name::{HandlerKey, InboxName};
use crate::state::EntryEvent;
use crate::store::{Accepted, Claim, NewMessage};

/// What an observer answers. An error is logged and counted, and changes nothing.
pub type ObserverResult = Result<(), BoxError>;

/// Somebody who wants to know what an inbox does. Every method does nothing unless it is written.
///
/// They are called where things happen, so they must be quick: hand on what takes time. A panic or an error in one is
/// logged and counted (`oncebox_observer_failures_total`), and what was observed goes on.
#[expect(unused_variables, reason = "the defaults do nothing")]
pub trait Observer: Send + Sync + 'static {
    /// A message was offered to the store, and this is what it answered.
    fn accepted(&self, message: &NewMessage, answer: Accepted) -> ObserverResult {
        Ok(())
    }

    /// A message is quarantined, because this handler, which is inline or uses `once`, has done its work for another message under
    /// the same key. With `once` it is stored when the caller commits.
    fn quarantined(&self, message: &NewMessage, handler: &HandlerKey) -> ObserverResult {
        Ok(())
    }

    /// A message was refused before the store was asked.
    fn refused(&self, message: &Message, error: &Error) -> ObserverResult {
        Ok(())
    }

    /// A handler begins with a claimed entry.
    fn started(&self, claim: &Claim, message: &Message) -> ObserverResult {
        Ok(())
    }

    /// What became of a claimed entry was written.
    fn settled(&self, claim: &Claim, event: EntryEvent) -> ObserverResult {
        Ok(())
    }

    /// A claim was lost: somebody else has the entry, and nothing was written.
    fn lost(&self, claim: &Claim) -> ObserverResult {
        Ok(())
    }
}

/// All observers of an inbox.
#[derive(Default)]
pub(crate) struct Observers(Vec<Box<dyn Observer>>);

impl Observers {
    pub(crate) fn push(&mut self, observer: impl Observer) {
        self.0.push(Box::new(observer));
    }

    pub(super) fn notify(
        &self,
        inbox: &InboxName,
        log_throttle: &LogThrottle,
        notify: impl Fn(&dyn Observer) -> ObserverResult,
    ) {
        for observer in &self.0 {
            let why = match catch_unwind(AssertUnwindSafe(|| notify(&**observer))) {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it panicked".to_owned(),
            };
            emit::count(names::OBSERVER_FAILURES, 1, [emit::inbox(inbox)]);
            if let Some(suppressed) = log_throttle.allow("observer", "") {
                let error = crate::state::ErrorText::new(why);
                tracing::warn!(%inbox, %error, suppressed, "an observer failed; what it observed goes on");
            }
        }
    }
}
