//! Observers: hooks of the program. Their failures do not affect deliveries. Tests: `tests/observers.rs`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{emit, log_throttle::LogThrottle, names};
use crate::error::{BoxError, Error};
use crate::message::Message;
use crate::name::{HandlerKey, InboxName};
use crate::state::EntryEvent;
use crate::store::{Accepted, Claim, NewMessage};

/// Result of an observer call. An error is logged and counted, and has no other effect.
pub type ObserverResult = Result<(), BoxError>;

/// Receives the events of an inbox. The default methods do nothing.
///
/// The inbox calls them in place, so they must be quick; move slow work elsewhere. A panic or an error is logged and
/// counted (`oncebox_observer_failures_total`), and has no other effect.
#[expect(unused_variables, reason = "the defaults do nothing")]
pub trait Observer: Send + Sync + 'static {
    /// The store returned a result for a message.
    fn accepted(&self, message: &NewMessage, answer: Accepted) -> ObserverResult {
        Ok(())
    }

    /// A message is quarantined, because an inline handler or `once` has handled another message under the same key. With
    /// `once` it is stored when the caller commits.
    fn quarantined(&self, message: &NewMessage, handler: &HandlerKey) -> ObserverResult {
        Ok(())
    }

    /// A message was refused before the store call.
    fn refused(&self, message: &Message, error: &Error) -> ObserverResult {
        Ok(())
    }

    /// A handler begins with a claimed entry.
    fn started(&self, claim: &Claim, message: &Message) -> ObserverResult {
        Ok(())
    }

    /// A settlement was written.
    fn settled(&self, claim: &Claim, event: EntryEvent) -> ObserverResult {
        Ok(())
    }

    /// A claim was lost: another worker has the entry, and nothing was written.
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
                Err(_) => "panicked".to_owned(),
            };
            emit::count(names::OBSERVER_FAILURES, 1, [emit::inbox(inbox)]);
            if let Some(suppressed) = log_throttle.allow("observer", "") {
                let error = crate::state::ErrorText::new(why);
                tracing::warn!(%inbox, %error, suppressed, "observer failed");
            }
        }
    }
}
