//! Limits repeated log lines: an outage must not fill the log with one line per attempt. Tests: below.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::time::SharedClock;

/// Time in which a line is logged once, or a few times.
const INTERVAL: Duration = Duration::from_mins(1);
/// Maximum distinct lines. Further ones share one budget.
const PLACES: usize = 1_024;

/// Lines of an interval.
#[derive(Default)]
struct LogBudget {
    /// Start of the interval.
    since: Duration,
    lines: u32,
    suppressed: u64,
}

/// Limits how often the same log line is written. For lines that untrusted clients can cause at will.
pub struct LogThrottle {
    clock: SharedClock,
    said: Mutex<HashMap<(&'static str, Box<str>), LogBudget>>,
}

impl LogThrottle {
    /// Makes an empty throttle on this clock.
    pub fn new(clock: SharedClock) -> Self {
        Self { clock, said: Mutex::default() }
    }

    /// Returns the number of suppressed lines if the line may be logged now, and else `None`. Limit: one per minute.
    pub fn allow(&self, what: &'static str, about: &str) -> Option<u64> {
        self.allow_up_to(1, what, about)
    }

    /// Like [`allow`](Self::allow), up to `limit` times per minute.
    pub fn allow_up_to(&self, limit: u32, what: &'static str, about: &str) -> Option<u64> {
        let now = self.clock.monotonic();
        let mut said = self.said.lock();
        let full = said.len() >= PLACES;
        let place = if full && !said.contains_key(&(what, about.into())) { "" } else { about };
        let said = said.entry((what, place.into())).or_default();
        if said.lines == 0 || now.saturating_sub(said.since) >= INTERVAL {
            (said.since, said.lines) = (now, 0);
        }
        if said.lines >= limit {
            said.suppressed += 1;
            return None;
        }
        said.lines += 1;
        Some(std::mem::take(&mut said.suppressed))
    }
}

impl std::fmt::Debug for LogThrottle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogThrottle").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use super::*;
    use crate::time::{Clock, Sleep, Timestamp};

    #[derive(Default)]
    struct Hands(AtomicU64);

    impl Clock for Hands {
        fn now(&self) -> Timestamp {
            Timestamp::ZERO
        }

        fn monotonic(&self) -> Duration {
            Duration::from_secs(self.0.load(SeqCst))
        }

        fn sleep(&self, _: Duration) -> Sleep {
            Box::pin(std::future::pending())
        }
    }

    // FAULTS J6
    #[test]
    fn a_thing_is_said_once_in_an_interval_and_tells_how_often_it_was_not() {
        let clock = Arc::new(Hands::default());
        let log_throttle = LogThrottle::new(clock.clone());
        assert_eq!(log_throttle.allow("claim", "a"), Some(0));
        for _ in 0..100 {
            assert_eq!(log_throttle.allow("claim", "a"), None);
        }
        assert_eq!(log_throttle.allow("claim", "b"), Some(0), "another thing");
        clock.0.store(60, SeqCst);
        assert_eq!(log_throttle.allow("claim", "a"), Some(100));
        assert_eq!(log_throttle.allow("claim", "a"), None);
    }

    #[test]
    fn it_does_not_grow_with_what_is_said() {
        let log_throttle = LogThrottle::new(Arc::new(Hands::default()));
        for n in 0..2 * PLACES {
            log_throttle.allow("x", &n.to_string());
        }
        assert!(log_throttle.said.lock().len() <= PLACES + 1);
    }
}
