//! What watches over an inbox: shared by its store and its runtime.

use super::{Noted, Observer, Observers, Propagator, emit, hush::Hush};
use crate::error::Error;
use crate::health::Pulses;
use crate::name::InboxName;
use crate::state::{ErrorText, Event};
use crate::store::Claim;
use crate::time::{SharedClock, SystemClock};

/// How many lines an interval may have about one handler.
const LINES: u32 = 20;

/// What is logged of the store itself: apart from what is said of single messages, which others may say in their own words.
pub(super) const STORE: &str = "oncebox::store";

/// Everything that looks on.
pub(crate) struct Watch {
    pub(crate) clock: SharedClock,
    pub(crate) hush: Hush,
    pub(crate) propagator: Propagator,
    pub(crate) pulses: Pulses,
    observers: Observers,
}

impl Default for Watch {
    fn default() -> Self {
        Self::new(SystemClock::shared(), Observers::default(), Propagator::default())
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Watch {
    pub(crate) fn new(clock: SharedClock, observers: Observers, propagator: Propagator) -> Self {
        Self { hush: Hush::new(clock.clone()), clock, propagator, pulses: Pulses::default(), observers }
    }

    /// Tells every observer.
    pub(crate) fn tell(&self, inbox: &InboxName, tell: impl Fn(&dyn Observer) -> Noted) {
        self.observers.tell(inbox, &self.hush, tell);
    }

    /// Warns of a store that has trouble with something: once in a while, however often it is tried.
    pub(crate) fn trouble(&self, inbox: &InboxName, doing: &'static str, error: &Error) {
        if let Some(unsaid) = self.hush.may_say(doing, inbox.as_str()) {
            let (error, kind) = (ErrorText::new(error.to_string()), error.kind().as_str());
            tracing::warn!(target: STORE, %inbox, doing, %error, kind, unsaid, "the store has trouble; trying again");
        }
    }

    /// Whether there may be one more line about a handler; how many were left out before it.
    pub(crate) fn may_say(&self, what: &'static str, handler: &str) -> Option<u64> {
        self.hush.may_say_up_to(LINES, what, handler)
    }

    /// The completion of a claim was committed with its handler's own transaction.
    pub(crate) fn done(&self, claim: &Claim) {
        emit::settled(claim, Event::Done.as_str(), 1);
        self.tell(&claim.inbox, |observer| observer.settled(claim, Event::Done));
    }

    /// A claim was lost.
    pub(crate) fn lost(&self, claim: &Claim) {
        self.tell(&claim.inbox, |observer| observer.lost(claim));
    }
}
