//! Metrics, logs, spans and observers of an inbox, shared by its store and its runtime. Tests: `tests/observers.rs`.

use std::sync::Arc;

use tracing::Span;

use super::{
    ClaimSpans, Observer, ObserverResult, Observers, SpanPropagator, emit, log_throttle::LogThrottle, spans,
};
use crate::error::Error;
use crate::health::StoreHealth;
use crate::name::InboxName;
use crate::state::{EntryEvent, ErrorText, Settlement};
use crate::store::{Claim, Claimed, Settled};
use crate::time::{SharedClock, SystemClock};

/// Maximum log lines per minute and handler.
const LINES: u32 = 20;

/// Log target of the store itself, apart from lines about single messages.
pub(super) const STORE: &str = "oncebox::store";

/// Observation of one inbox.
pub(crate) struct Watch {
    pub(crate) clock: SharedClock,
    pub(crate) log_throttle: LogThrottle,
    pub(crate) propagator: SpanPropagator,
    pub(crate) store_health: StoreHealth,
    pub(crate) claims: Arc<ClaimSpans>,
    observers: Observers,
}

impl Default for Watch {
    fn default() -> Self {
        Self::new(SystemClock::shared(), Observers::default(), SpanPropagator::default())
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Watch {
    pub(crate) fn new(clock: SharedClock, observers: Observers, propagator: SpanPropagator) -> Self {
        let (log_throttle, store_health, claims) =
            (LogThrottle::new(clock.clone()), StoreHealth::default(), Arc::default());
        Self { clock, log_throttle, propagator, store_health, claims, observers }
    }

    /// Calls every observer.
    pub(crate) fn notify(&self, inbox: &InboxName, notify: impl Fn(&dyn Observer) -> ObserverResult) {
        self.observers.notify(inbox, &self.log_throttle, notify);
    }

    /// Logs a store that has trouble, at most once per minute.
    pub(crate) fn trouble(&self, inbox: &InboxName, doing: &'static str, error: &Error) {
        if let Some(suppressed) = self.log_throttle.allow(doing, inbox.as_str()) {
            let (error, kind) = (ErrorText::new(error.to_string()), error.kind().as_str());
            tracing::warn!(target: STORE, %inbox, doing, %error, kind, suppressed, "the store has trouble; trying again");
        }
    }

    /// Returns the number of suppressed lines if one more line about a handler may be logged.
    pub(crate) fn allow(&self, what: &'static str, handler: &str) -> Option<u64> {
        self.log_throttle.allow_up_to(LINES, what, handler)
    }

    /// Records a completion that was committed in its handler's own transaction.
    pub(crate) fn done(&self, claim: &Claim) {
        emit::settled(claim, EntryEvent::Done.as_str(), 1);
        self.notify(&claim.inbox, |observer| observer.settled(claim, EntryEvent::Done));
    }

    /// Opens the span of a claim.
    pub(crate) fn claimed(&self, claimed: &Claimed) {
        self.claims.begin(&claimed.claim, self.propagator.claiming(claimed));
    }

    /// Opens the spans of settlements; none if no subscriber wants them.
    pub(super) fn settling(&self, batch: &[Settlement]) -> Vec<Span> {
        if !self.claims.is_used() {
            return Vec::new();
        }
        let span =
            |of: &Settlement| spans::settling(&of.claim, of.event.as_str(), &self.claims.of(&of.claim));
        batch.iter().map(span).collect()
    }

    /// Opens the spans of a commit that completes claims.
    pub(crate) fn completing<'a>(&self, claims: impl Iterator<Item = &'a Claim>) -> Completing {
        let span = |claim| spans::settling(claim, EntryEvent::Done.as_str(), &self.claims.of(claim));
        Completing(claims.map(span).collect())
    }

    /// Reports a lost claim.
    pub(crate) fn lost(&self, claim: &Claim) {
        self.notify(&claim.inbox, |observer| observer.lost(claim));
    }
}

/// Spans of settlements in a commit.
pub(crate) struct Completing(Vec<Span>);

impl Completing {
    /// Returns the span of the only settlement.
    pub(crate) fn alone(&self) -> Span {
        spans::alone(&self.0)
    }

    /// Records the end of the commit; `None` for an error.
    pub(crate) fn ended(self, settled: Option<&[Settled]>) {
        match settled {
            Some(settled) => {
                self.0.iter().zip(settled).for_each(|(span, settled)| spans::settled(span, *settled));
            }
            None => self.0.iter().for_each(spans::failed),
        }
    }
}
