//! How often, how late and how long: the part of the rules a user sets.

use std::time::Duration;

use super::OnPoisoned;
use crate::error::{Error, ErrorKind, Result};

/// When a failed attempt is tried again.
///
/// The n-th retry waits `min(first * 2^(n-1), max)`, of which the upper half is spread by a value derived from the
/// entry, so that entries that failed together do not come back together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retry {
    /// Attempts in all, the first one included. 0 and 1 both mean: poisoned at the first failure.
    pub attempts: u32,
    /// The wait after the first failure.
    pub first: Duration,
    /// The longest wait.
    pub max: Duration,
}

impl Default for Retry {
    /// 20 attempts over about three days: an outage over a week-end poisons nothing.
    fn default() -> Self {
        Self { attempts: 20, first: Duration::from_secs(4), max: Duration::from_hours(12) }
    }
}

impl Retry {
    /// No retry: the first failure poisons.
    pub fn never() -> Self {
        Self { attempts: 1, ..Self::default() }
    }

    /// Five attempts within about half a minute: for handlers whose message is worthless later.
    pub fn quick() -> Self {
        Self { attempts: 5, first: Duration::from_secs(1), max: Duration::from_secs(15) }
    }

    /// `attempts` in all, with waits from `first`, doubling, to `max`.
    pub fn new(attempts: u32, first: Duration, max: Duration) -> Self {
        Self { attempts, first, max }
    }

    /// The wait after `failures` failed attempts; `spread` in `0..=u32::MAX` chooses the point in its upper half.
    pub fn delay(&self, failures: u32, spread: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let base = self.first.saturating_mul(1 << doublings).min(self.max);
        let half = base / 2;
        let part = half.as_nanos().saturating_mul(u128::from(spread)) / u128::from(u32::MAX);
        half + Duration::from_nanos(u64::try_from(part).unwrap_or(u64::MAX))
    }
}

/// The rules for one handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// When a failed attempt is tried again.
    pub retry: Retry,
    /// How many leases may run out under an entry before it is poisoned as a crasher. Default 3.
    pub crashes: u32,
    /// How long an undecodable message is kept for a newer build that may know its format. Default 1 hour.
    pub decode_grace: Duration,
    /// How often it is looked at within that grace. Default 1 minute.
    pub decode_retry: Duration,
    /// What happens to those behind a poisoned entry with its ordering key. Default: they wait.
    pub on_poisoned: OnPoisoned,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            retry: Retry::default(),
            crashes: 3,
            decode_grace: Duration::from_hours(1),
            decode_retry: Duration::from_mins(1),
            on_poisoned: OnPoisoned::default(),
        }
    }
}

impl Policy {
    /// Checks that the rules can work.
    pub fn validate(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::new(ErrorKind::InvalidConfig, what));
        if self.crashes == 0 {
            return refuse(
                "`crashes` is 0: an entry would be poisoned for the crash of its worker; use at least 1",
            );
        }
        if self.retry.first > self.retry.max {
            return refuse("`retry.first` is longer than `retry.max`");
        }
        if self.retry.attempts > 1 && self.retry.first.is_zero() {
            return refuse("`retry.first` is 0: failing entries would spin");
        }
        if self.decode_retry.is_zero() {
            return refuse("`decode_retry` is 0: undecodable entries would spin");
        }
        Ok(())
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
