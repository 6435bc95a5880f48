//! Circuit breaker of a failing handler, as a state machine without a clock of its own. Tests: below, and `tests/breaker.rs`.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

/// Circuit breaker: the failures that open it, and its pauses.
///
/// While it is open, the process claims no entries of the handler and counts no attempts. After the pause it tries one entry. If
/// that fails, the next pause is twice as long. If it succeeds, the breaker closes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Breaker {
    /// Consecutive failed attempts of any entries that open it: errors, timeouts and panics.
    pub failures: u32,
    /// First pause.
    pub pause: Duration,
    /// Longest pause. Default: 16 times the first.
    pub max_pause: Duration,
}

impl Breaker {
    /// Returns a breaker that opens after `failures` consecutive failed attempts, for `pause` at first.
    pub fn new(failures: u32, pause: Duration) -> Self {
        Self { failures, pause, max_pause: pause.saturating_mul(16) }
    }

    /// Sets the longest pause.
    pub fn max_pause(mut self, max_pause: Duration) -> Self {
        self.max_pause = max_pause;
        self
    }

    /// Validates the breaker.
    pub(crate) fn validate(&self) -> Result<()> {
        let Self { failures, pause, max_pause } = self;
        let refuse = |what: String| Err(Error::new(ErrorKind::InvalidConfig, what));
        if *failures == 0 {
            return refuse("`breaker` opens after 0 failures and would never close; use 1 or more".into());
        }
        if pause.is_zero() {
            return refuse(
                "`breaker` has a `pause` of 0 and would never be open; use a second or more".into(),
            );
        }
        if pause > max_pause {
            return refuse(format!(
                "`breaker` has a `pause` of {pause:?}, which is longer than its `max_pause` of {max_pause:?}: raise `max_pause`"
            ));
        }
        Ok(())
    }
}

/// State of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakerState {
    /// The handler gets entries.
    Closed {
        /// Number of consecutive failed attempts.
        failures: u32,
    },
    /// The handler gets no entries.
    Open {
        /// Rest of the pause. Zero: the next due entry is tried.
        left: Duration,
    },
    /// One entry is being tried.
    Probing,
}

/// Result of a run, as the breaker counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CircuitSignal {
    /// The handler did its work.
    Success,
    /// It failed: an error, a timeout or a panic.
    Failure,
    /// Neither: the handler rejected or postponed the message, or did not run.
    Neutral,
}

/// Number of entries that may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CircuitAdmission {
    All,
    One,
    Nothing,
}

/// Permission to run one entry. The caller returns it with [`Circuit::end`] after every run.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "a probe that is not given back keeps its circuit open"]
pub(crate) struct CircuitPass {
    /// Openings of the circuit before this pass.
    opened: u64,
}

/// State change that the runtime reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CircuitChange {
    Opened { pause: Duration },
    Closed,
}

#[derive(Clone, Copy, Debug)]
enum CircuitState {
    Closed {
        failures: u32,
    },
    /// Nothing starts before `until`. Then one entry does.
    Open {
        until: Duration,
        pause: Duration,
    },
    /// One entry runs. If it has not ended by `until`, another one is tried: the first may hang.
    Probing {
        until: Duration,
        pause: Duration,
    },
}

/// State machine of a breaker.
#[derive(Debug)]
pub(crate) struct Circuit {
    breaker: Breaker,
    state: CircuitState,
    /// Number of openings. Runs that started before the last opening do not count.
    opened: u64,
}

impl Circuit {
    pub(crate) fn new(breaker: Breaker) -> Self {
        Self { breaker, state: CircuitState::Closed { failures: 0 }, opened: 0 }
    }

    pub(crate) fn admits(&self, now: Duration) -> CircuitAdmission {
        match self.state {
            CircuitState::Closed { .. } => CircuitAdmission::All,
            CircuitState::Open { until, .. } | CircuitState::Probing { until, .. } if now >= until => {
                CircuitAdmission::One
            }
            CircuitState::Open { .. } | CircuitState::Probing { .. } => CircuitAdmission::Nothing,
        }
    }

    /// Lets an entry start, if one may.
    pub(crate) fn enter(&mut self, now: Duration) -> Option<CircuitPass> {
        let pass = CircuitPass { opened: self.opened };
        match self.state {
            CircuitState::Closed { .. } => Some(pass),
            CircuitState::Open { until, pause } | CircuitState::Probing { until, pause } if now >= until => {
                let until = now.saturating_add(self.breaker.max_pause);
                self.state = CircuitState::Probing { until, pause };
                Some(pass)
            }
            CircuitState::Open { .. } | CircuitState::Probing { .. } => None,
        }
    }

    /// Returns true if the entry of a pass may still start: the circuit has not opened since.
    pub(crate) fn may_begin(&self, pass: &CircuitPass) -> bool {
        pass.opened == self.opened
    }

    /// Records the result of a run.
    #[expect(clippy::needless_pass_by_value, reason = "a pass is good for one end")]
    pub(crate) fn end(
        &mut self,
        pass: CircuitPass,
        ended: CircuitSignal,
        now: Duration,
    ) -> Option<CircuitChange> {
        if !self.may_begin(&pass) {
            return None;
        }
        match (self.state, ended) {
            (CircuitState::Closed { failures }, CircuitSignal::Failure) => {
                let failures = failures.saturating_add(1);
                if failures >= self.breaker.failures {
                    return Some(self.open(self.breaker.pause, now));
                }
                self.state = CircuitState::Closed { failures };
            }
            (CircuitState::Closed { .. }, CircuitSignal::Success) => {
                self.state = CircuitState::Closed { failures: 0 }
            }
            (CircuitState::Probing { pause, .. }, CircuitSignal::Failure) => {
                let pause = pause.saturating_mul(2).min(self.breaker.max_pause);
                return Some(self.open(pause, now));
            }
            (CircuitState::Probing { .. }, CircuitSignal::Success) => {
                self.state = CircuitState::Closed { failures: 0 };
                return Some(CircuitChange::Closed);
            }
            // The next entry is tried at once.
            (CircuitState::Probing { pause, .. }, CircuitSignal::Neutral) => {
                self.state = CircuitState::Open { until: now, pause }
            }
            (CircuitState::Closed { .. }, CircuitSignal::Neutral) | (CircuitState::Open { .. }, _) => {}
        }
        None
    }

    fn open(&mut self, pause: Duration, now: Duration) -> CircuitChange {
        self.state = CircuitState::Open { until: now.saturating_add(pause), pause };
        self.opened += 1;
        CircuitChange::Opened { pause }
    }

    /// Returns the end of the pause.
    pub(crate) fn opens_at(&self) -> Option<Duration> {
        match self.state {
            CircuitState::Open { until, .. } | CircuitState::Probing { until, .. } => Some(until),
            CircuitState::Closed { .. } => None,
        }
    }

    pub(crate) fn state(&self, now: Duration) -> BreakerState {
        match self.state {
            CircuitState::Closed { failures } => BreakerState::Closed { failures },
            CircuitState::Open { until, .. } => BreakerState::Open { left: until.saturating_sub(now) },
            CircuitState::Probing { .. } => BreakerState::Probing,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn circuit(failures: u32) -> Circuit {
        Circuit::new(Breaker::new(failures, SECOND).max_pause(5 * SECOND))
    }

    fn run(circuit: &mut Circuit, ended: CircuitSignal, now: Duration) -> Option<CircuitChange> {
        let pass = circuit.enter(now).expect("it lets one in");
        circuit.end(pass, ended, now)
    }

    #[test]
    fn opens_after_failures_in_a_row_and_only_then() {
        let mut circuit = circuit(3);
        let now = Duration::ZERO;
        for ended in [
            CircuitSignal::Failure,
            CircuitSignal::Failure,
            CircuitSignal::Success,
            CircuitSignal::Failure,
            CircuitSignal::Neutral,
            CircuitSignal::Failure,
        ] {
            assert_eq!(run(&mut circuit, ended, now), None);
        }
        assert_eq!(circuit.state(now), BreakerState::Closed { failures: 2 });
        assert_eq!(
            run(&mut circuit, CircuitSignal::Failure, now),
            Some(CircuitChange::Opened { pause: SECOND })
        );
        assert_eq!((circuit.admits(now), circuit.enter(now)), (CircuitAdmission::Nothing, None));
        assert_eq!(circuit.state(now), BreakerState::Open { left: SECOND });
    }

    #[test]
    fn pauses_double_up_to_the_longest_while_probes_fail() {
        let mut circuit = circuit(1);
        let mut now = Duration::ZERO;
        run(&mut circuit, CircuitSignal::Failure, now);
        for pause in [1, 2, 4, 5, 5] {
            let pause = SECOND * pause;
            now += pause;
            assert_eq!(
                circuit.admits(now.saturating_sub(Duration::from_nanos(1))),
                CircuitAdmission::Nothing
            );
            assert_eq!(circuit.admits(now), CircuitAdmission::One);
            let opened = run(&mut circuit, CircuitSignal::Failure, now);
            assert_eq!(opened, Some(CircuitChange::Opened { pause: (2 * pause).min(5 * SECOND) }));
        }
        now += 5 * SECOND;
        assert_eq!(run(&mut circuit, CircuitSignal::Success, now), Some(CircuitChange::Closed));
        assert_eq!(
            run(&mut circuit, CircuitSignal::Failure, now),
            Some(CircuitChange::Opened { pause: SECOND }),
            "from the first again"
        );
    }

    #[test]
    fn one_is_tried_and_what_began_before_says_nothing() {
        let mut circuit = circuit(1);
        let late: Vec<CircuitPass> = (0..4).filter_map(|_| circuit.enter(Duration::ZERO)).collect();
        run(&mut circuit, CircuitSignal::Failure, Duration::ZERO);
        assert!(late.iter().all(|pass| !circuit.may_begin(pass)));
        let probe = circuit.enter(SECOND).expect("the pause is over");
        assert!(circuit.may_begin(&probe));
        assert_eq!((circuit.admits(SECOND), circuit.enter(SECOND)), (CircuitAdmission::Nothing, None));
        for (pass, ended) in late.into_iter().zip([
            CircuitSignal::Success,
            CircuitSignal::Failure,
            CircuitSignal::Neutral,
            CircuitSignal::Success,
        ]) {
            assert_eq!(circuit.end(pass, ended, SECOND), None);
            assert_eq!(circuit.state(SECOND), BreakerState::Probing);
        }
        assert_eq!(circuit.end(probe, CircuitSignal::Neutral, SECOND), None, "it learned nothing");
        assert_eq!(circuit.admits(SECOND), CircuitAdmission::One, "so another one is tried");
        assert_eq!(run(&mut circuit, CircuitSignal::Success, SECOND), Some(CircuitChange::Closed));
    }

    #[test]
    fn a_probe_that_hangs_does_not_shut_it_for_good() {
        let mut circuit = circuit(1);
        run(&mut circuit, CircuitSignal::Failure, Duration::ZERO);
        let hanging = circuit.enter(SECOND).expect("a probe");
        assert!(circuit.enter(5 * SECOND).is_none());
        assert_eq!(circuit.opens_at(), Some(6 * SECOND));
        assert_eq!(run(&mut circuit, CircuitSignal::Success, 6 * SECOND), Some(CircuitChange::Closed));
        assert_eq!(circuit.end(hanging, CircuitSignal::Failure, 7 * SECOND).map(|_| ()), Some(()));
    }

    #[test]
    fn refuses_what_cannot_work() {
        for (breaker, what) in [
            (Breaker::new(0, SECOND), "0 failures"),
            (Breaker::new(1, Duration::ZERO), "`pause` of 0"),
            (Breaker::new(1, 2 * SECOND).max_pause(SECOND), "`max_pause` of 1s"),
        ] {
            let error = breaker.validate().unwrap_err();
            assert!(error.what().contains(what), "{error}");
        }
        Breaker::new(1, SECOND).validate().unwrap();
    }

    proptest! {
        /// In any order of events: never two probes unless one hangs, nothing starts within a pause, and pauses stay within their
        /// bounds. Once every pass was returned and the longest pause has passed, an entry may start.
        #[test]
        fn holds_whatever_happens(
            failures in 1u32..4,
            steps in prop::collection::vec((0u8..3, 0usize..8, 0u64..3_000), 1..200),
        ) {
            let mut circuit = circuit(failures);
            let (mut now, mut inside, mut closed_until) = (Duration::ZERO, Vec::new(), Duration::ZERO);
            let mut probing: Option<Duration> = None;
            for (step, which, millis) in steps {
                if step == 0 {
                    now += Duration::from_millis(millis);
                } else if step == 1 {
                    let was_closed = matches!(circuit.state(now), BreakerState::Closed { .. });
                    if let Some(pass) = circuit.enter(now) {
                        prop_assert!(now >= closed_until, "let in within a pause");
                        let hangs = probing.is_none_or(|since| now >= since + 5 * SECOND);
                        prop_assert!(was_closed || hangs, "two probes");
                        if !was_closed {
                            probing = Some(now);
                        }
                        inside.push((pass, !was_closed));
                    }
                } else if !inside.is_empty() {
                    let (pass, is_probe) = inside.swap_remove(which % inside.len());
                    let ended = [CircuitSignal::Success, CircuitSignal::Failure, CircuitSignal::Failure, CircuitSignal::Neutral][which % 4];
                    probing = probing.filter(|_| !is_probe);
                    if let Some(CircuitChange::Opened { pause }) = circuit.end(pass, ended, now) {
                        prop_assert!((SECOND..=5 * SECOND).contains(&pause));
                        closed_until = now + pause;
                    }
                }
            }
            for (pass, _) in inside {
                circuit.end(pass, CircuitSignal::Neutral, now);
            }
            prop_assert!(circuit.enter(now + 5 * SECOND).is_some());
        }
    }
}
