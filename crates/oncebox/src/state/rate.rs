//! Rate limit of a handler: a token bucket without a clock of its own. Tests: below, and `tests/rate.rs`.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

/// Maximum entries of a handler that this process claims in a time span.
///
/// After idle time it claims up to [`burst`](Self::burst) entries at once. Over any span it claims no more than the burst and what
/// the rate allows in that span.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rate {
    /// Entries per time span.
    pub count: u32,
    /// Time span.
    pub per: Duration,
    /// Maximum entries at once. Default: `count`.
    pub burst: u32,
}

impl Rate {
    /// Returns a rate of `count` entries per time span.
    pub fn new(count: u32, per: Duration) -> Self {
        Self { count, per, burst: count }
    }

    /// Returns a rate of `count` entries per second.
    pub fn per_second(count: u32) -> Self {
        Self::new(count, Duration::from_secs(1))
    }

    /// Returns a rate of `count` entries per minute.
    pub fn per_minute(count: u32) -> Self {
        Self::new(count, Duration::from_mins(1))
    }

    /// Sets the maximum entries at once.
    pub fn burst(mut self, burst: u32) -> Self {
        self.burst = burst;
        self
    }

    /// Validates the rate.
    pub(crate) fn validate(&self) -> Result<()> {
        let Self { count, per, burst } = self;
        let refuse = |what: String| Err(Error::new(ErrorKind::InvalidConfig, what));
        if *count == 0 || *burst == 0 {
            return refuse(format!(
                "`rate` allows {count} entries with a burst of {burst}: nothing could run; use 1 or more of both, or pause the handler"
            ));
        }
        if per.is_zero() {
            return refuse(
                "`rate` is for a time of 0, which is no limit; leave it out, or use a second".into(),
            );
        }
        if *per > Duration::from_hours(24) {
            return refuse(format!(
                "`rate` is for a time of {per:?}; a day is the longest: tokens are not kept over a restart"
            ));
        }
        Ok(())
    }
}

/// Token bucket of a rate. In each nanosecond `count` units flow in, and a token costs as many units as the span has nanoseconds,
/// so all sums are exact.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    count: u128,
    cost: u128,
    full: u128,
    level: u128,
    /// Time of the last update.
    seen: Duration,
}

impl TokenBucket {
    /// Returns a full bucket.
    pub(crate) fn new(rate: &Rate) -> Self {
        let (count, cost) = (u128::from(rate.count.max(1)), rate.per.as_nanos().max(1));
        let full = cost * u128::from(rate.burst);
        Self { count, cost, full, level: full, seen: Duration::ZERO }
    }

    /// Returns the maximum number of tokens.
    pub(crate) fn capacity(&self) -> usize {
        usize::try_from(self.full / self.cost).unwrap_or(usize::MAX)
    }

    /// Returns the number of tokens.
    pub(crate) fn tokens(&mut self, now: Duration) -> usize {
        let grown = now.saturating_sub(self.seen).as_nanos().saturating_mul(self.count);
        self.level = self.level.saturating_add(grown).min(self.full);
        self.seen = self.seen.max(now);
        usize::try_from(self.level / self.cost).unwrap_or(usize::MAX)
    }

    /// Takes up to `limit` tokens, and returns their number.
    pub(crate) fn take(&mut self, limit: usize, now: Duration) -> usize {
        let taken = self.tokens(now).min(limit);
        self.level -= self.cost * taken as u128;
        taken
    }

    /// Returns unused tokens to the bucket.
    pub(crate) fn give_back(&mut self, tokens: usize) {
        self.level = (self.level + self.cost * tokens as u128).min(self.full);
    }

    /// Returns the time of the next token.
    pub(crate) fn next_at(&mut self, now: Duration) -> Duration {
        let _ = self.tokens(now);
        let missing = self.cost.saturating_sub(self.level).div_ceil(self.count);
        now.saturating_add(Duration::from_nanos(u64::try_from(missing).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn tokens_grow_with_time_up_to_the_burst() {
        let mut bucket = TokenBucket::new(&Rate::per_second(10).burst(4));
        assert_eq!((bucket.capacity(), bucket.take(100, Duration::ZERO)), (4, 4));
        assert_eq!(bucket.take(1, Duration::ZERO), 0);
        assert_eq!(bucket.next_at(Duration::ZERO), SECOND / 10);
        assert_eq!(bucket.take(100, SECOND / 4), 2);
        assert_eq!(bucket.next_at(SECOND / 4), SECOND * 3 / 10);
        bucket.give_back(1);
        assert_eq!(bucket.tokens(SECOND / 4), 1);
        bucket.give_back(100);
        assert_eq!(bucket.tokens(100 * SECOND), 4, "no more than it holds");
        assert_eq!(bucket.next_at(100 * SECOND), 100 * SECOND, "it is there already");
    }

    #[test]
    fn a_clock_that_stands_or_jumps_does_no_harm() {
        let mut bucket = TokenBucket::new(&Rate::per_minute(1));
        assert_eq!(bucket.take(1, Duration::MAX), 1);
        assert_eq!(bucket.take(1, Duration::ZERO), 0);
        assert_eq!(bucket.take(1, Duration::MAX), 0);
        let mut huge = TokenBucket::new(&Rate::new(u32::MAX, SECOND));
        assert_eq!(huge.take(usize::MAX, Duration::ZERO), u32::MAX as usize);
    }

    #[test]
    fn refuses_what_cannot_work() {
        for (rate, what) in [
            (Rate::per_second(0), "0 entries"),
            (Rate::per_second(5).burst(0), "burst of 0"),
            (Rate::new(5, Duration::ZERO), "time of 0"),
            (Rate::new(5, Duration::from_hours(25)), "a day is the longest"),
        ] {
            let error = rate.validate().unwrap_err();
            assert!(error.what().contains(what), "{error}");
        }
        Rate::per_minute(1).validate().unwrap();
    }

    proptest! {
        /// Over any time, a caller that always wants more takes the burst and what flows in, no more and no less.
        #[test]
        fn the_rate_is_kept(
            (count, burst, millis) in (1u32..50, 1u32..50, 1u64..5_000),
            steps in prop::collection::vec((0u64..400, 0usize..20, 0usize..20), 1..100),
        ) {
            let rate = Rate::new(count, Duration::from_millis(millis)).burst(burst);
            let mut bucket = TokenBucket::new(&rate);
            let (mut now, mut used) = (Duration::ZERO, 0u128);
            for (millis, want, back) in steps {
                now += Duration::from_millis(millis);
                let taken = bucket.take(want, now);
                prop_assert!(taken <= want);
                let back = back.min(taken);
                bucket.give_back(back);
                used += (taken - back) as u128;
                let grown = now.as_nanos() * u128::from(count) / rate.per.as_nanos();
                prop_assert!(used <= u128::from(burst) + grown, "{} of {} and {}", used, burst, grown);
            }
            let next = bucket.next_at(now);
            prop_assert!(bucket.take(1, next) == 1, "a caller that waits gets one");
        }
    }
}
