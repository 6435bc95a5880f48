//! Throttles claims for a handler, with its breaker and its rate limit. Tests: `tests/breaker.rs`, `tests/rate.rs`.

use std::time::Duration;

use parking_lot::Mutex;

use crate::name::HandlerKey;
use crate::observe::{emit, names};
use crate::state::{
    Breaker, BreakerState, Circuit, CircuitAdmission, CircuitChange, CircuitPass, CircuitSignal, Rate,
    TokenBucket,
};

/// Throttle of a handler. All times are of the worker's monotonic clock.
pub(crate) struct HandlerThrottle {
    handler: HandlerKey,
    circuit: Option<Mutex<Circuit>>,
    bucket: Option<Mutex<TokenBucket>>,
}

impl HandlerThrottle {
    pub(super) fn new(handler: HandlerKey, breaker: Option<&Breaker>, rate: Option<&Rate>) -> Self {
        let circuit = breaker.map(|breaker| Mutex::new(Circuit::new(breaker.clone())));
        let bucket = rate.map(|rate| Mutex::new(TokenBucket::new(rate)));
        let throttle = Self { handler, circuit, bucket };
        if throttle.circuit.is_some() {
            throttle.report(0.0);
        }
        throttle
    }

    /// Returns the maximum of entries per claim, and how many may be claimed now.
    pub(crate) fn room(&self, now: Duration) -> (usize, usize) {
        let (max, free) = self.bucket.as_ref().map_or((usize::MAX, usize::MAX), |bucket| {
            let mut bucket = bucket.lock();
            (bucket.capacity(), bucket.tokens(now))
        });
        match self.circuit.as_ref().map_or(CircuitAdmission::All, |circuit| circuit.lock().admits(now)) {
            CircuitAdmission::All => (max, free),
            CircuitAdmission::One => (1, free.min(1)),
            CircuitAdmission::Nothing => (0, 0),
        }
    }

    /// Takes up to `max` tokens for a claim. Returns how many it took.
    pub(crate) fn take(&self, max: usize, now: Duration) -> usize {
        let max = max.min(self.room(now).1);
        self.bucket.as_ref().map_or(max, |bucket| bucket.lock().take(max, now))
    }

    /// Returns unused tokens.
    pub(crate) fn give_back(&self, tokens: usize) {
        if let Some(bucket) = &self.bucket {
            bucket.lock().give_back(tokens);
        }
    }

    /// Returns true if the breaker is open.
    pub(crate) fn is_shut(&self, now: Duration) -> bool {
        self.circuit.as_ref().is_some_and(|circuit| circuit.lock().admits(now) == CircuitAdmission::Nothing)
    }

    /// Returns the time at which the next claim is allowed. `None` if it is allowed now, or depends on current runs.
    pub(crate) fn opens_at(&self, now: Duration) -> Option<Duration> {
        let opens = self.circuit.as_ref().and_then(|circuit| circuit.lock().opens_at());
        let grows = self.bucket.as_ref().map(|bucket| bucket.lock().next_at(now));
        opens.max(grows).filter(|at| *at > now)
    }

    /// Admits a claimed entry, if it may run.
    pub(crate) fn enter(&self, now: Duration) -> Option<CircuitPass> {
        self.circuit
            .as_ref()
            .map_or_else(|| Some(CircuitPass::default()), |circuit| circuit.lock().enter(now))
    }

    /// Returns true if an admitted entry may still begin.
    pub(crate) fn may_begin(&self, pass: &CircuitPass) -> bool {
        self.circuit.as_ref().is_none_or(|circuit| circuit.lock().may_begin(pass))
    }

    /// Records the end of a run.
    pub(crate) fn end(&self, pass: CircuitPass, ended: CircuitSignal, now: Duration) {
        let Some(circuit) = &self.circuit else { return };
        let change = circuit.lock().end(pass, ended, now);
        let handler = &self.handler;
        match change {
            Some(CircuitChange::Opened { pause }) => {
                tracing::warn!(%handler, ?pause, "breaker open");
                self.report(1.0);
            }
            Some(CircuitChange::Closed) => {
                tracing::info!(%handler, "breaker closed");
                self.report(0.0);
            }
            None => {}
        }
    }

    fn report(&self, open: f64) {
        emit::set(names::BREAKER_OPEN, open, [emit::handler(&self.handler)]);
    }

    /// Returns the state of the breaker, if there is one.
    pub(crate) fn breaker(&self, now: Duration) -> Option<BreakerState> {
        self.circuit.as_ref().map(|circuit| circuit.lock().state(now))
    }
}
