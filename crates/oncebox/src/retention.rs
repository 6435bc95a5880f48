//! Retention advice from late duplicates. Tests: `tests/retention.rs`.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::name::InboxName;
use crate::observe::{emit, names};
use crate::store::{Accepted, RetentionWindows};
use crate::text::{Grouped, ShortDuration};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Ends of the buckets, in seconds. One more bucket holds anything later.
const BOUNDS: [u64; 17] = [
    1,
    5,
    15,
    MINUTE,
    5 * MINUTE,
    15 * MINUTE,
    HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    3 * DAY,
    5 * DAY,
    7 * DAY,
    14 * DAY,
    30 * DAY,
];

/// Histogram of the delays of duplicates in this process. Its size is fixed.
#[derive(Default)]
pub(crate) struct Lateness {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    latest: AtomicU64,
    stale: AtomicU64,
}

impl Lateness {
    pub(crate) fn note(&self, inbox: &InboxName, accepted: &Accepted) {
        match accepted {
            Accepted::Duplicate(known) => {
                self.add(known.age);
                emit::time(names::DUPLICATE_SECONDS, known.age, [emit::inbox(inbox)]);
            }
            Accepted::Stale => {
                self.stale.fetch_add(1, Relaxed);
            }
            _ => {}
        }
    }

    fn add(&self, age: Duration) {
        let bucket = BOUNDS.partition_point(|bound| Duration::from_secs(*bound) < age);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.latest.fetch_max(u64::try_from(age.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(crate) fn advice(&self, window: Option<Duration>) -> RetentionAdvice {
        let buckets = self.buckets.each_ref().map(|bucket| bucket.load(Relaxed));
        let (duplicates, stale) = (buckets.iter().sum(), self.stale.load(Relaxed));
        let latest = Duration::from_millis(self.latest.load(Relaxed));
        let within = |percent: u64| percentile(&buckets, percent, latest);
        let enough = window.is_none_or(|window| window >= latest.saturating_mul(RetentionWindows::MARGIN));
        RetentionAdvice {
            duplicates,
            stale,
            latest,
            p50: within(50),
            p90: within(90),
            p99: within(99),
            window,
            covered: stale == 0 && enough,
        }
    }
}

/// Returns the time within which a percentage of the duplicates came: the end of a bucket, at most the latest.
fn percentile(buckets: &[u64], percent: u64, latest: Duration) -> Duration {
    let all: u64 = buckets.iter().sum();
    let rank = all.saturating_mul(percent).div_ceil(100);
    let mut passed = 0;
    for (count, bound) in buckets.iter().zip(BOUNDS) {
        passed += count;
        if passed >= rank {
            return Duration::from_secs(bound).min(latest);
        }
    }
    latest
}

/// Delays of duplicates, and advice about the retention window.
///
/// It covers what this process has accepted since its start: no other processes, and no marks of `once` and inline handlers, which
/// have no age. Its text is for operators:
///
/// ```text
/// the latest of 1,204 duplicates came 3 h after the first; the window of 7 days covers it 56 times
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetentionAdvice {
    /// Number of duplicates.
    pub duplicates: u64,
    /// Number of messages that came too late to tell whether they were duplicates. They are quarantined.
    pub stale: u64,
    /// Delay of the latest duplicate after the first delivery.
    pub latest: Duration,
    /// Time within which half of the duplicates came. Like the other percentiles, it is rounded up to one of a few steps between a
    /// second and 30 days.
    pub p50: Duration,
    /// Time within which 90% of the duplicates came.
    pub p90: Duration,
    /// Time within which 99% of the duplicates came.
    pub p99: Duration,
    /// Shortest retention of a finished message. `None`: for ever.
    pub window: Option<Duration>,
    /// True if the window is at least twice as long as the latest delay, and nothing came after the window.
    pub covered: bool,
}

impl fmt::Display for RetentionAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let latest = ShortDuration(self.latest);
        match self.duplicates {
            0 => write!(f, "no duplicate has come since this process started")?,
            1 => write!(f, "the only duplicate came {latest} after the first")?,
            many => write!(f, "the latest of {} duplicates came {latest} after the first", Grouped(many))?,
        }
        match self.window {
            None => write!(f, "; keys are remembered for ever")?,
            Some(window) if self.duplicates == 0 => {
                write!(f, "; the window is {}", ShortDuration(window))?;
            }
            Some(window) => {
                let (times, window) = (Times::of(window, self.latest), ShortDuration(window));
                if window.0 >= self.latest.saturating_mul(RetentionWindows::MARGIN) {
                    write!(f, "; the window of {window} covers it {times}")?;
                } else {
                    let better =
                        ShortDuration::rounded_up(self.latest.saturating_mul(RetentionWindows::MARGIN));
                    write!(
                        f,
                        "; the window of {window} covers it {times} only: set `retention` to {better} or more, or a later one is \
                         handled again"
                    )?;
                }
            }
        }
        match self.stale {
            0 => Ok(()),
            1 => write!(f, "; 1 message came too late to tell whether it ran before, and is quarantined"),
            many => write!(
                f,
                "; {} messages came too late to tell whether they ran before, and are quarantined",
                Grouped(many)
            ),
        }
    }
}

/// Ratio of two durations.
struct Times(f64);

impl Times {
    fn of(window: Duration, latest: Duration) -> Self {
        Self(window.as_secs_f64() / latest.max(Duration::from_millis(1)).as_secs_f64())
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            times if times > 1_000.0 => write!(f, "more than 1,000 times"),
            times if times >= 10.0 => write!(f, "{} times", times.floor()),
            times => write!(f, "{times:.1} times"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{KnownMessage, Seq};

    const WEEK: Duration = Duration::from_hours(7 * 24);

    fn after(ages: &[Duration], window: Option<Duration>) -> RetentionAdvice {
        let lateness = Lateness::default();
        let inbox = InboxName::new("i").unwrap();
        for age in ages {
            lateness.note(&inbox, &Accepted::Duplicate(KnownMessage::new(Seq(1), *age)));
        }
        lateness.advice(window)
    }

    #[test]
    fn an_operator_understands_it() {
        let mut ages = vec![Duration::from_secs(2); 1_203];
        ages.push(Duration::from_hours(3));
        let advice = after(&ages, Some(WEEK));
        assert!(advice.covered);
        assert_eq!(
            advice.to_string(),
            "the latest of 1,204 duplicates came 3 h after the first; the window of 7 days covers it 56 times"
        );
        let late = after(&[Duration::from_hours(5 * 24)], Some(WEEK));
        assert!(!late.covered);
        assert_eq!(
            late.to_string(),
            "the only duplicate came 5 days after the first; the window of 7 days covers it 1.4 times only: set `retention` to 10 \
             days or more, or a later one is handled again"
        );
        assert_eq!(
            after(&[], Some(WEEK)).to_string(),
            "no duplicate has come since this process started; the window is 7 days"
        );
        let ever = after(&[Duration::from_mins(90); 2], None);
        assert!(ever.covered);
        assert_eq!(
            ever.to_string(),
            "the latest of 2 duplicates came 90 min after the first; keys are remembered for ever"
        );
        let quick = after(&[Duration::ZERO; 2], Some(WEEK));
        assert_eq!(
            quick.to_string(),
            "the latest of 2 duplicates came 0 ms after the first; the window of 7 days covers it more than 1,000 times"
        );
    }

    // FAULTS H1: a message after the window cannot be counted as a duplicate, but shows that the window is too short.
    #[test]
    fn what_came_too_late_speaks_against_the_window() {
        let lateness = Lateness::default();
        lateness.add(Duration::from_secs(1));
        lateness.note(&InboxName::new("i").unwrap(), &Accepted::Stale);
        let advice = lateness.advice(Some(WEEK));
        assert!(!advice.covered && advice.stale == 1);
        assert!(
            advice
                .to_string()
                .ends_with("1 message came too late to tell whether it ran before, and is quarantined")
        );
    }

    #[test]
    fn percentiles_are_the_ends_of_buckets() {
        let mut ages = vec![Duration::from_secs(3); 90];
        ages.extend([Duration::from_mins(10); 9]);
        ages.push(Duration::from_hours(40 * 24));
        let advice = after(&ages, Some(WEEK));
        assert_eq!(advice.p50, Duration::from_secs(5));
        assert_eq!(advice.p90, Duration::from_secs(5));
        assert_eq!(advice.p99, Duration::from_mins(15));
        assert_eq!(advice.latest, Duration::from_hours(40 * 24));
        let none = after(&[], Some(WEEK));
        assert_eq!((none.p99, none.latest, none.covered), (Duration::ZERO, Duration::ZERO, true));
    }

    #[test]
    fn a_bucket_holds_what_is_as_late_as_its_end() {
        for bound in BOUNDS {
            let end = Duration::from_secs(bound);
            assert_eq!(after(&[end], None).p99, end);
            let later = end + Duration::from_millis(1);
            assert_eq!(after(&[later, later * 2], None).p50.max(later), after(&[later, later * 2], None).p50);
        }
    }
}
