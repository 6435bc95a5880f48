//! Errors of handlers, and what each means for its entry. Tests: below, and `tests/outcomes.rs`.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use super::into_failure::{HeldError, IntoFailure};
use super::kinds::{RetryRule, causes, retry_of};
use super::redact::Redactor;
use crate::error::{BoxError, Error, ErrorKind};
use crate::state::{Outcome, Retry};

/// Delay of an entry whose run found no free file descriptor.
const DESCRIPTORS_AGAIN: Duration = Duration::from_secs(1);

/// An error of a handler. Any error is a failed attempt, unless it is or has as a cause one of [`Reject`],
/// [`RetryAfter`], [`Snooze`] and [`Discard`]. They are also found in an `anyhow::Error` or `eyre::Report`, as the error and as a
/// cause, but not as a context. If a cause is an [`io::Error`](std::io::Error) about missing file
/// descriptors, the entry runs again after a second and no attempt is counted.
#[derive(Debug)]
pub struct Failure(Box<dyn HeldError>);

impl Failure {
    /// Wraps any error, report or text.
    pub fn new<Kind>(error: impl IntoFailure<Kind>) -> Self {
        error.into_failure()
    }

    pub(super) fn held(error: impl HeldError + 'static) -> Self {
        Self(Box::new(error))
    }

    /// Returns the outcome for the entry.
    pub fn outcome(&self) -> Outcome {
        self.outcome_by(&Redactor::default())
    }

    /// Returns the outcome with redacted text.
    pub(crate) fn outcome_by(&self, redactor: &Redactor) -> Outcome {
        for error in causes(self.error()) {
            if let Some(Reject(why)) = error.downcast_ref() {
                return Outcome::Reject { error: redactor.text(why) };
            } else if let Some(Discard(why)) = error.downcast_ref() {
                return Outcome::Discard { reason: redactor.text(why) };
            } else if let Some(Snooze(delay)) = error.downcast_ref() {
                return Outcome::Snooze { delay: *delay };
            } else if let Some(RetryAfter(after, why)) = error.downcast_ref() {
                return Outcome::Retry { error: redactor.text(why), after: Some(*after) };
            } else if lacks_descriptors(error) {
                return Outcome::Snooze { delay: DESCRIPTORS_AGAIN };
            }
        }
        Outcome::Retry { error: redactor.error(self.error()), after: None }
    }

    pub(crate) fn lacks_descriptors(&self) -> bool {
        causes(self.error()).any(lacks_descriptors)
    }

    /// Returns the kind of the library's own error, if the handler returned one.
    pub(crate) fn store_error(&self) -> Option<ErrorKind> {
        causes(self.error()).find_map(|error| error.downcast_ref::<Error>()).map(Error::kind)
    }

    /// Returns the retry of the first rule that matches.
    pub(crate) fn retry(&self, kinds: &[RetryRule]) -> Option<Retry> {
        retry_of(kinds, self.error())
    }

    pub(crate) fn error(&self) -> &(dyn StdError + 'static) {
        self.0.error()
    }

    /// Returns the handler's own error.
    pub fn into_inner(self) -> BoxError {
        self.0.into_box()
    }
}

/// EMFILE and ENFILE, which have the same numbers on all systems of the Unix family.
#[cfg(unix)]
fn lacks_descriptors(error: &(dyn StdError + 'static)) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    matches!(error.and_then(std::io::Error::raw_os_error), Some(23 | 24))
}

/// WSAEMFILE, and ERROR_TOO_MANY_OPEN_FILES.
#[cfg(windows)]
fn lacks_descriptors(error: &(dyn StdError + 'static)) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    matches!(error.and_then(std::io::Error::raw_os_error), Some(4 | 10_024))
}

#[cfg(not(any(unix, windows)))]
fn lacks_descriptors(_: &(dyn StdError + 'static)) -> bool {
    false
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.error(), f)
    }
}

/// Poisons the entry now, with this reason: no retry will help.
#[derive(Clone, Debug, thiserror::Error)]
#[error("rejected: {0}")]
pub struct Reject(pub String);

/// Discards the entry, with this reason.
#[derive(Clone, Debug, thiserror::Error)]
#[error("discarded: {0}")]
pub struct Discard(pub String);

/// Runs the entry again after this delay, and counts no attempt.
#[derive(Clone, Debug, thiserror::Error)]
#[error("snoozed for {0:?}")]
pub struct Snooze(pub Duration);

/// Counts a failed attempt with this reason, and retries after this delay.
#[derive(Clone, Debug, thiserror::Error)]
#[error("failed, to be retried after {0:?}: {1}")]
pub struct RetryAfter(pub Duration, pub String);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::ErrorText;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct WrappedReject(#[source] Reject);

    // FAULTS A18: a process that has no file descriptor left does not use up the attempts of a message.
    #[cfg(unix)]
    #[test]
    fn a_lack_of_descriptors_is_no_attempt() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot connect")]
        struct Connect(#[source] std::io::Error);

        for number in [23, 24] {
            let failure = Failure::new(Connect(std::io::Error::from_raw_os_error(number)));
            assert_eq!(failure.outcome(), Outcome::Snooze { delay: DESCRIPTORS_AGAIN });
            assert!(failure.lacks_descriptors());
        }
        let refused = Failure::new(Connect(std::io::Error::from_raw_os_error(111)));
        assert!(matches!(refused.outcome(), Outcome::Retry { .. }) && !refused.lacks_descriptors());
    }

    #[test]
    fn control_words_are_found_directly_and_as_causes() {
        let reject = Outcome::Reject { error: ErrorText::new("bad") };
        assert_eq!(Failure::new(Reject("bad".into())).outcome(), reject);
        assert_eq!(Failure::new(WrappedReject(Reject("bad".into()))).outcome(), reject);
        let second = Duration::from_secs(1);
        assert_eq!(Failure::new(Snooze(second)).outcome(), Outcome::Snooze { delay: second });
        assert_eq!(
            Failure::new(RetryAfter(second, "busy".into())).outcome(),
            Outcome::Retry { error: ErrorText::new("busy"), after: Some(second) }
        );
        assert_eq!(
            Failure::new(Discard("old".into())).outcome(),
            Outcome::Discard { reason: ErrorText::new("old") }
        );
        assert_eq!(
            Failure::new("plain text").outcome(),
            Outcome::Retry { error: ErrorText::new("plain text"), after: None }
        );
    }
}
