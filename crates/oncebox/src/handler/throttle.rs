//! What keeps a handler from being given more than it should get: its breaker and its rate.

use std::time::Duration;

use parking_lot::Mutex;

use crate::name::HandlerKey;
use crate::observe::{emit, names};
use crate::state::{
    Breaker, BreakerState, Circuit, CircuitAdmission, CircuitChange, CircuitPass, CircuitSignal, Rate,
    TokenBucket,
};

/// The throttle before a handler. Every moment is one of the worker's own monotonic clock.
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

    /// How many entries may be claimed at the most when it has been quiet, and how many may be now.
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

    /// Takes up to this many tokens for a claim; says how many.
    pub(crate) fn take(&self, max: usize, now: Duration) -> usize {
        let max = max.min(self.room(now).1);
        self.bucket.as_ref().map_or(max, |bucket| bucket.lock().take(max, now))
    }

    /// Puts tokens back for which there was no entry.
    pub(crate) fn give_back(&self, tokens: usize) {
        if let Some(bucket) = &self.bucket {
            bucket.lock().give_back(tokens);
        }
    }

    /// Whether the breaker lets nothing in. A rate does, after a while.
    pub(crate) fn is_shut(&self, now: Duration) -> bool {
        self.circuit.as_ref().is_some_and(|circuit| circuit.lock().admits(now) == CircuitAdmission::Nothing)
    }

    /// When it lets something in again; `None` if it does already, or if that depends on what runs.
    pub(crate) fn opens_at(&self, now: Duration) -> Option<Duration> {
        let opens = self.circuit.as_ref().and_then(|circuit| circuit.lock().opens_at());
        let grows = self.bucket.as_ref().map(|bucket| bucket.lock().next_at(now));
        opens.max(grows).filter(|at| *at > now)
    }

    /// Lets a claimed entry in, if it may run.
    pub(crate) fn enter(&self, now: Duration) -> Option<CircuitPass> {
        self.circuit
            .as_ref()
            .map_or_else(|| Some(CircuitPass::default()), |circuit| circuit.lock().enter(now))
    }

    /// Whether an entry that was let in may still begin.
    pub(crate) fn may_begin(&self, pass: &CircuitPass) -> bool {
        self.circuit.as_ref().is_none_or(|circuit| circuit.lock().may_begin(pass))
    }

    /// Takes note of how a run ended.
    pub(crate) fn end(&self, pass: CircuitPass, ended: CircuitSignal, now: Duration) {
        let Some(circuit) = &self.circuit else { return };
        let change = circuit.lock().end(pass, ended, now);
        let handler = &self.handler;
        match change {
            Some(CircuitChange::Opened { pause }) => {
                tracing::warn!(%handler, ?pause, "the handler only fails; leaving it alone for a while");
                self.report(1.0);
            }
            Some(CircuitChange::Closed) => {
                tracing::info!(%handler, "the handler works again");
                self.report(0.0);
            }
            None => {}
        }
    }

    fn report(&self, open: f64) {
        emit::set(names::BREAKER_OPEN, open, [emit::handler(&self.handler)]);
    }

    /// Where the breaker stands, if there is one.
    pub(crate) fn breaker(&self, now: Duration) -> Option<BreakerState> {
        self.circuit.as_ref().map(|circuit| circuit.lock().state(now))
    }
}
