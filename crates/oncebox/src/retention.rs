//! Retention advice from late duplicates, and backfills for handlers that were added later. Tests: `tests/retention.rs`.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::handler::RegisteredHandler;
use crate::inbox::Inbox;
use crate::name::InboxName;
use crate::observe::{emit, names};
use crate::operate::Backfill;
use crate::store::{Accepted, Admin, Store};

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

/// Minimum ratio of the window to the latest duplicate. A duplicate after the window would not have been recognised, so an even
/// later one is possible.
pub(crate) const MARGIN: u32 = 2;

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

    fn advice(&self, window: Option<Duration>) -> RetentionAdvice {
        let buckets = self.buckets.each_ref().map(|bucket| bucket.load(Relaxed));
        let (duplicates, stale) = (buckets.iter().sum(), self.stale.load(Relaxed));
        let latest = Duration::from_millis(self.latest.load(Relaxed));
        let within = |percent: u64| percentile(&buckets, percent, latest);
        let enough = window.is_none_or(|window| window >= latest.saturating_mul(MARGIN));
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
                if window.0 >= self.latest.saturating_mul(MARGIN) {
                    write!(f, "; the window of {window} covers it {times}")?;
                } else {
                    let better = ShortDuration(whole(self.latest.saturating_mul(MARGIN)));
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

/// Rounds a duration up to the unit in which it is shown.
pub(crate) fn whole(span: Duration) -> Duration {
    let unit = match span.as_secs() {
        0..MINUTE => 1,
        MINUTE..HOUR => MINUTE,
        HOUR..DAY => HOUR,
        _ => DAY,
    };
    let seconds = span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0));
    Duration::from_secs(seconds.div_ceil(unit).saturating_mul(unit))
}

/// Formats a duration in the largest unit with a useful value.
pub(crate) struct ShortDuration(pub(crate) Duration);

impl fmt::Display for ShortDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match seconds {
            u64::MAX => f.write_str("any time"),
            0 => write!(f, "{} ms", self.0.as_millis()),
            1..120 => write!(f, "{seconds} s"),
            120..7200 => write!(f, "{} min", seconds / MINUTE),
            7200..172_800 => write!(f, "{} h", seconds / HOUR),
            _ => write!(f, "{} days", Grouped(seconds / DAY)),
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

/// Formats a number with commas between the thousands.
struct Grouped(u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                write!(f, ",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

impl<S: Store> Inbox<S> {
    /// Returns the delays of duplicates in this process, and advice about the retention window.
    pub fn retention_advice(&self) -> RetentionAdvice {
        let inbox = &self.shared;
        let default = inbox.config.retention.unwrap_or(Duration::MAX);
        let own = inbox.registry.durable().map(|handler| handler.registration.retention.unwrap_or(default));
        let window = own.min().unwrap_or(default);
        inbox.lateness.advice((window < Duration::MAX).then_some(window))
    }

    /// Adds entries of a handler that was added later to the stored messages of its types, in the order of acceptance, and returns
    /// their number. Messages with an entry under its key or a legacy key get none. So the call can be repeated, also to continue
    /// after an error.
    ///
    /// A message that is older than the handler's watermark gets none either: it may have run before. A warning counts such
    /// messages.
    ///
    /// It does not happen automatically, because another system may have handled the earlier messages.
    pub async fn backfill(&self, handler: &str) -> Result<u64>
    where
        S: Admin,
    {
        let backfill = self.plan_backfill(handler)?;
        let report = backfill.run_with_progress(self.store(), |_| self.shared.local_wakeup.now()).await?;
        Ok(report.done as u64)
    }

    /// Returns a backfill of the handler for an operator, or an error if the handler cannot get entries for earlier messages.
    pub fn plan_backfill(&self, handler: &str) -> Result<Backfill> {
        let found = self.to_backfill(handler)?;
        Ok(Backfill::new(self.name().clone(), found.route.clone(), found.types.clone()))
    }

    /// Returns the handler, if it can get entries for earlier messages.
    fn to_backfill(&self, handler: &str) -> Result<&RegisteredHandler<S>> {
        let registry = &self.shared.registry;
        let found = registry.handlers().find(|one| one.route.key.as_str() == handler);
        let Some(found) = found else {
            let what = format!(
                "no handler is registered under {handler:?}, so nothing was added; use its current key"
            );
            return Err(Error::new(ErrorKind::InvalidHandler, what));
        };
        if !found.registration.is_durable() {
            let what = format!(
                "the handler {handler:?} is inline or fire-and-forget and has no entries, so nothing was added; have its messages \
                 delivered again"
            );
            return Err(Error::new(ErrorKind::InvalidHandler, what));
        }
        // A message under several keys is stored once for each, and would get an entry in each.
        if let Some(kind) = registry.has_several_keys(found) {
            let what = format!(
                "the handlers of type {kind:?} go by several keys, so its messages are stored more than once and {handler:?} would run \
                 for each; nothing was added: have the messages delivered again"
            );
            return Err(Error::new(ErrorKind::InvalidHandler, what));
        }
        Ok(found)
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

    #[test]
    fn better_windows_are_whole_units() {
        for (span, text) in [
            (Duration::from_millis(1_500), "2 s"),
            (Duration::from_secs(3_599), "60 min"),
            (Duration::from_mins(250), "5 h"),
            (Duration::from_hours(49), "3 days"),
        ] {
            assert_eq!(ShortDuration(whole(span)).to_string(), text);
        }
    }
}
