//! Timestamps, and the clock that gives them.
//!
//! The library never reads the system clock and never sleeps on its own. It uses a [`Clock`], so tests move time instead of
//! waiting.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch, on the clock of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The Unix epoch.
    pub const ZERO: Self = Self(0);
    /// Later than any real time.
    pub const MAX: Self = Self(i64::MAX);

    /// Returns the time at milliseconds since the Unix epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Returns milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Returns the time `duration` later. Saturates.
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }

    /// Returns the time `duration` earlier. Saturates.
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(millis(duration)))
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// Formats the time as a date in UTC with milliseconds: `2026-01-31T12:00:00.000Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::MAX {
            return f.write_str("never");
        }
        let (seconds, millis) = (self.0.div_euclid(1_000), self.0.rem_euclid(1_000));
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

/// Returns the date that is `days` after the Unix epoch. Years start in March here, so that a leap day is the last of its year.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    (era * 400 + year + i64::from(month <= 2), month, day)
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self(millis(after)),
            Err(before) => Self(millis(before.duration()).saturating_neg()),
        }
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Future that completes after a time on a clock.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Source of time.
pub trait Clock: Send + Sync + 'static {
    /// Returns the time of day. Stores without a clock of their own (memory, SQLite) date leases and retries with it.
    fn now(&self) -> Timestamp;

    /// Returns the time since an arbitrary start, which never decreases. Workers measure deadlines with it, because the time of day
    /// can jump.
    fn monotonic(&self) -> Duration;

    /// Completes once `duration` has passed on this clock.
    fn sleep(&self, duration: Duration) -> Sleep;
}

/// Clock that several parts share.
pub type SharedClock = Arc<dyn Clock>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_a_date() {
        let written = |millis: i64| Timestamp::from_millis(millis).to_string();
        assert_eq!(written(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(written(-1), "1969-12-31T23:59:59.999Z");
        assert_eq!(written(951_782_399_999), "2000-02-28T23:59:59.999Z");
        assert_eq!(written(951_782_400_000), "2000-02-29T00:00:00.000Z", "a leap day");
        assert_eq!(written(1_769_860_800_000), "2026-01-31T12:00:00.000Z");
        assert_eq!(written(4_107_542_400_000), "2100-03-01T00:00:00.000Z", "no leap year");
        assert_eq!(Timestamp::MAX.to_string(), "never");
        assert_eq!(
            written(i64::MAX - 1).len(),
            written(i64::MAX - 2).len(),
            "no time is too far to be written"
        );
    }
}
