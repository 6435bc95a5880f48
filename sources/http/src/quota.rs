//! Rate limit of one source. Tests: below.

use std::time::Duration;

use parking_lot::Mutex;

/// Rate limit of a source, in messages: `per_second` on average, and up to `burst` at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quota {
    /// On average. May be a fraction.
    pub per_second: f64,
    /// Messages at once after an idle time.
    pub burst: u32,
}

impl Quota {
    /// Creates a quota of `messages` per second, with the same burst; at least one.
    pub fn per_second(messages: u32) -> Self {
        Self { per_second: f64::from(messages), burst: messages.max(1) }
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.per_second.is_finite() && self.per_second > 0.0 && self.burst > 0
    }
}

/// Messages left of a quota.
#[derive(Debug)]
pub(crate) struct QuotaBucket {
    quota: Quota,
    /// Messages that may be sent, and the time of that count.
    state: Mutex<(f64, Duration)>,
}

impl QuotaBucket {
    pub(crate) fn new(quota: Quota, now: Duration) -> Self {
        Self { quota, state: Mutex::new((f64::from(quota.burst), now)) }
    }

    /// Takes `count` messages from the quota, or returns the wait. A list longer than the burst passes when the bucket
    /// is full; its excess delays later messages.
    pub(crate) fn take(&self, count: usize, now: Duration) -> Result<(), Duration> {
        let mut state = self.state.lock();
        let burst = f64::from(self.quota.burst);
        let passed = now.saturating_sub(state.1).as_secs_f64();
        let left = (state.0 + passed * self.quota.per_second).min(burst);
        let count = f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        let needed = count.min(burst);
        *state = (left, now.max(state.1));
        if left + 1e-9 < needed {
            let wait = ((needed - left) / self.quota.per_second).min(86_400.0);
            return Err(Duration::from_secs_f64(wait));
        }
        state.0 = left - count;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    // FAULTS S6.
    #[test]
    fn a_quota_is_used_up_and_comes_back() {
        let bucket = QuotaBucket::new(Quota { per_second: 2.0, burst: 3 }, Duration::ZERO);
        assert!((0..3).all(|_| bucket.take(1, Duration::ZERO).is_ok()));
        assert_eq!(bucket.take(1, Duration::ZERO), Err(SECOND / 2));
        assert_eq!(bucket.take(1, SECOND / 2), Ok(()));
        assert_eq!(bucket.take(3, SECOND), Err(SECOND));
        assert_eq!(bucket.take(3, 2 * SECOND), Ok(()));
        // A clock that goes back adds nothing.
        assert!(bucket.take(1, Duration::ZERO).is_err());
    }

    #[test]
    fn a_long_list_is_paid_for_afterwards() {
        let bucket = QuotaBucket::new(Quota::per_second(10), Duration::ZERO);
        assert_eq!(bucket.take(30, Duration::ZERO), Ok(()));
        assert_eq!(bucket.take(1, SECOND), Err(Duration::from_millis(1_100)));
        assert_eq!(bucket.take(1, 3 * SECOND), Ok(()));
    }
}
