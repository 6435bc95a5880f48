//! Handling of failures, as a user configures it for a handler: retries, crashes and poisoned entries.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::OnPoisoned;
use crate::error::{Error, ErrorKind, Result};
use crate::name::HandlerKey;

/// Schedule of the retries of a failed attempt.
///
/// The n-th retry waits `min(first * 2^(n-1), max)`. A hash of the entry then chooses a wait between half of that and
/// all of it, so that entries that failed together do not return together.
///
/// | preset | attempts | waits | for |
/// |---|---|---|---|
/// | [`never`](Self::never) | 1 | | failures that a retry cannot fix |
/// | [`quick`](Self::quick) | 5 | 1 s to 8 s, 15 s in all | messages that are worthless later |
/// | [`default`](Self::default) | 20 | 4 s to 12 h, three days in all | most handlers |
/// | [`patient`](Self::patient) | 25 | 1 min to 24 h, two weeks in all | work that must survive an absence of its operators |
/// | [`fixed`](Self::fixed) | yours | always the same, not spread | a service that says when to retry |
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retry {
    /// Maximum attempts, including the first. Default: 20. With 0 or 1 the first failure poisons the entry.
    pub attempts: u32,
    /// Wait after the first failure. Default: 4 seconds.
    pub first: Duration,
    /// Longest wait. Default: 12 hours.
    pub max: Duration,
    /// Spreads waits over their upper half. Default: true. If false, entries that failed together return together.
    pub spread: bool,
}

impl Default for Retry {
    /// Returns 20 attempts over about three days: an outage over a weekend poisons nothing.
    fn default() -> Self {
        Self { attempts: 20, first: Duration::from_secs(4), max: Duration::from_hours(12), spread: true }
    }
}

impl Retry {
    /// Shortest `first`, 2 ms: the spread may halve it, and stores count in milliseconds.
    pub const MIN_WAIT: Duration = Duration::from_millis(2);

    /// Returns no retries: the first failure poisons the entry.
    pub fn never() -> Self {
        Self { attempts: 1, ..Self::default() }
    }

    /// Returns five attempts within 15 seconds, for messages that are worthless later.
    pub fn quick() -> Self {
        Self::new(5, Duration::from_secs(1), Duration::from_secs(15))
    }

    /// Returns 25 attempts over about two weeks, with waits from a minute to a day. For work that must survive a long outage of
    /// another service, or the absence of its operators.
    pub fn patient() -> Self {
        Self::new(25, Duration::from_mins(1), Duration::from_hours(24))
    }

    /// Returns `attempts`, each exactly `wait` after the previous one.
    pub fn fixed(attempts: u32, wait: Duration) -> Self {
        Self { attempts, first: wait, max: wait, spread: false }
    }

    /// Returns `attempts`, with waits from `first`, doubling, to `max`.
    pub fn new(attempts: u32, first: Duration, max: Duration) -> Self {
        Self { attempts, first, max, spread: true }
    }

    /// Validates the schedule. `option` is the name of the setting, for the error.
    pub fn validate(&self, option: &str) -> Result<()> {
        let Self { attempts, first, max, .. } = self;
        let refuse = |what: String| Err(Error::new(ErrorKind::InvalidConfig, what));
        if first > max {
            return refuse(format!(
                "`{option}` has a `first` wait of {first:?}, which is longer than its `max` of {max:?}: raise `max`, or lower `first`"
            ));
        }
        if *attempts > 1 && *first < Self::MIN_WAIT {
            return refuse(format!(
                "`{option}` has a `first` wait of {first:?} and {attempts} attempts: failing entries would spin; \
                 wait {:?} or more, or use `Retry::never()`",
                Self::MIN_WAIT
            ));
        }
        Ok(())
    }

    /// Returns the wait after `failures` failed attempts. `spread` in `0..=u32::MAX` selects the point in its upper half.
    pub fn delay(&self, failures: u32, spread: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let base = self.first.saturating_mul(1 << doublings).min(self.max);
        if !self.spread {
            return base;
        }
        let half = base / 2;
        let part = half.as_nanos().saturating_mul(u128::from(spread)) / u128::from(u32::MAX);
        half + Duration::from_nanos(u64::try_from(part).unwrap_or(u64::MAX))
    }
}

/// Failure handling of one handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// Schedule of retries.
    pub retry: Retry,
    /// Number of workers that die while they run an entry alone before it is poisoned. Default: 3.
    pub crashes: u32,
    /// Wait before an entry runs again after the first such death. Default: 10 seconds. Each further wait is six times as long, up
    /// to ten minutes, or to this wait if it is longer. Other deaths have [waits of their own](super::Suspicion::company_wait).
    pub crash_delay: Duration,
    /// Time for which an undecodable message waits for a newer build that knows its format. Default: 1 hour.
    pub decode_grace: Duration,
    /// Interval of decode attempts within that time. Default: 1 minute.
    pub decode_retry: Duration,
    /// Effect of a poisoned entry on those behind it with its ordering key. Default: they wait.
    pub on_poisoned: OnPoisoned,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            retry: Retry::default(),
            crashes: 3,
            crash_delay: Duration::from_secs(10),
            decode_grace: Duration::from_hours(1),
            decode_retry: Duration::from_mins(1),
            on_poisoned: OnPoisoned::default(),
        }
    }
}

impl Policy {
    /// Longest wait after a crash, unless the first one is longer.
    const LONGEST_CRASH_WAIT: Duration = Duration::from_mins(10);

    /// Returns the wait after `crashes` workers died while they ran an entry alone.
    pub fn crash_wait(&self, crashes: u32) -> Duration {
        let longest = Self::LONGEST_CRASH_WAIT.max(self.crash_delay);
        let factor = 6_u32.saturating_pow(crashes.saturating_sub(1));
        self.crash_delay.saturating_mul(factor).min(longest)
    }

    /// Validates the policy. An error names the setting, its value and the fix.
    pub fn validate(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::new(ErrorKind::InvalidConfig, what));
        if self.crashes == 0 {
            return refuse(
                "`crashes` is 0: an entry would be poisoned without a crash of its own; use at least 1"
                    .into(),
            );
        }
        self.retry.validate("retry")?;
        if self.decode_retry.is_zero() {
            return refuse(format!(
                "`decode_retry` is {:?}: undecodable entries would spin; use a second or more",
                self.decode_retry
            ));
        }
        Ok(())
    }
}

/// Policies of several handlers, by key and legacy key, for a store that settles entries it cannot read, such as damaged ones.
/// Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Policies(Arc<HashMap<HandlerKey, Policy>>);

impl Policies {
    /// Returns the policy of a handler, or the default one for an unknown handler.
    pub fn of(&self, handler: &HandlerKey) -> Policy {
        self.0.get(handler).cloned().unwrap_or_default()
    }
}

impl FromIterator<(HandlerKey, Policy)> for Policies {
    fn from_iter<I: IntoIterator<Item = (HandlerKey, Policy)>>(policies: I) -> Self {
        Self(Arc::new(policies.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_cap_and_stays_in_the_upper_half() {
        let retry = Retry::new(20, Duration::from_secs(2), Duration::from_secs(10));
        let bases: Vec<u64> = (1..=5).map(|n| retry.delay(n, u32::MAX).as_secs()).collect();
        assert_eq!(bases, [2, 4, 8, 10, 10]);
        assert_eq!(retry.delay(1, 0), Duration::from_secs(1));
        assert_eq!(retry.delay(u32::MAX, 0), Duration::from_secs(5));
    }

    #[test]
    fn the_default_rides_out_three_days() {
        let retry = Retry::default();
        let shortest: Duration = (1..retry.attempts).map(|n| retry.delay(n, 0)).sum();
        let longest: Duration = (1..retry.attempts).map(|n| retry.delay(n, u32::MAX)).sum();
        let hours = |n: u64| Duration::from_secs(n * 3600);
        assert!(longest > hours(72) && longest < hours(96), "{longest:?}");
        assert!(shortest > hours(36), "{shortest:?}");
    }

    #[test]
    fn presets_last_as_long_as_they_say() {
        let longest =
            |retry: &Retry| -> Duration { (1..retry.attempts).map(|n| retry.delay(n, u32::MAX)).sum() };
        assert_eq!(longest(&Retry::never()), Duration::ZERO);
        assert_eq!(longest(&Retry::quick()), Duration::from_secs(15));
        let days = longest(&Retry::patient()).as_secs() / 86_400;
        assert_eq!(days, 14, "about two weeks");
        let fixed = Retry::fixed(4, Duration::from_secs(30));
        for (n, spread) in [(1, 0), (2, 7), (3, u32::MAX)] {
            assert_eq!(fixed.delay(n, spread), Duration::from_secs(30), "not spread, not doubled");
        }
        for preset in [Retry::never(), Retry::quick(), Retry::default(), Retry::patient(), fixed] {
            preset.validate("retry").unwrap();
        }
    }

    #[test]
    fn refusals_name_the_option_its_value_and_the_way_out() {
        let second = Duration::from_secs(1);
        let error = Retry::new(3, 2 * second, second).validate("retry_for::<Late>").unwrap_err();
        for part in ["`retry_for::<Late>`", "2s", "1s", "raise `max`"] {
            assert!(error.what().contains(part), "{error}");
        }
        let error = Retry::fixed(3, Duration::from_nanos(1)).validate("retry").unwrap_err();
        for part in ["`retry`", "1ns", "3 attempts", "2ms", "Retry::never()"] {
            assert!(error.what().contains(part), "{error}");
        }
    }

    #[test]
    fn waits_after_crashes_grow_to_their_cap() {
        let seconds = |policy: &Policy| [1, 2, 3, 4, 99].map(|n| policy.crash_wait(n).as_secs());
        assert_eq!(seconds(&Policy::default()), [10, 60, 360, 600, 600]);
        let slow = Policy { crash_delay: Duration::from_hours(1), ..Policy::default() };
        assert_eq!(seconds(&slow), [3_600; 5]);
        let none = Policy { crash_delay: Duration::ZERO, ..Policy::default() };
        assert_eq!(seconds(&none), [0; 5]);
        none.validate().unwrap();
    }

    #[test]
    fn refuses_rules_that_cannot_work() {
        let zero = Duration::ZERO;
        for bad in [
            Policy { crashes: 0, ..Policy::default() },
            Policy { decode_retry: zero, ..Policy::default() },
            Policy { retry: Retry::new(3, zero, zero), ..Policy::default() },
            Policy {
                retry: Retry::new(3, Duration::from_secs(2), Duration::from_secs(1)),
                ..Policy::default()
            },
        ] {
            assert_eq!(bad.validate().unwrap_err().kind(), ErrorKind::InvalidConfig, "{bad:?}");
        }
        Policy::default().validate().unwrap();
    }
}
