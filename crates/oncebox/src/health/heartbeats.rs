//! Whether the loops of the runtime turn.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Check, HealthLimits, HealthStatus, Subject};
use crate::time::SharedClock;

/// A part that has run for this long since it failed works again.
const RECOVERED: Duration = Duration::from_mins(1);

/// What is known of a part.
#[derive(Clone, Copy, Default)]
struct Beat {
    /// Until when nobody need hear of it.
    due: Duration,
    /// Since when it fails again and again, and when it did last.
    failing: Option<(Duration, Duration)>,
    /// It came to its end.
    ended: bool,
}

/// What the parts of a running inbox tell of themselves.
pub(crate) struct ComponentHeartbeats {
    clock: SharedClock,
    parts: Mutex<BTreeMap<&'static str, Beat>>,
}

impl ComponentHeartbeats {
    pub(crate) fn new(clock: SharedClock) -> Self {
        Self { clock, parts: Mutex::default() }
    }

    /// The loop of a part turns, and will again within this time. Waiting for work, it may take for ever.
    pub(crate) fn turn(&self, part: &'static str, within: Duration) {
        let due = self.clock.monotonic().saturating_add(within);
        let mut parts = self.parts.lock();
        let beat = parts.entry(part).or_default();
        (beat.due, beat.ended) = (due, false);
    }

    /// A part failed, and will be started again.
    pub(crate) fn failed(&self, part: &'static str) {
        let now = self.clock.monotonic();
        let mut parts = self.parts.lock();
        let beat = parts.entry(part).or_default();
        let since = beat.failing.filter(|(_, last)| now.saturating_sub(*last) < RECOVERED);
        beat.failing = Some((since.map_or(now, |(since, _)| since), now));
        // It is expected to come back; how long that takes is not its fault.
        beat.due = Duration::MAX;
    }

    /// A part came to its end.
    pub(crate) fn ended(&self, part: &'static str) {
        self.parts.lock().entry(part).or_default().ended = true;
    }

    pub(super) fn checks(&self, now: Duration, limits: &HealthLimits, stopping: bool) -> Vec<Check> {
        let parts = self.parts.lock();
        let check = |(part, beat): (&&'static str, &Beat)| {
            let (status, detail) = beat.status(now, limits, stopping);
            Check::new(Subject::Component, *part, status, detail)
        };
        parts.iter().map(check).collect()
    }
}

impl Beat {
    fn status(&self, now: Duration, limits: &HealthLimits, stopping: bool) -> (HealthStatus, String) {
        let failing = self.failing.filter(|(_, last)| now.saturating_sub(*last) < RECOVERED);
        if self.ended && !stopping {
            return (HealthStatus::Unhealthy, "it ended, and nothing starts it again".into());
        }
        if let Some((since, _)) = failing {
            let time = now.saturating_sub(since);
            let detail = format!("it fails and is started again, for {} s", time.as_secs());
            return (limits.idle(time).max(HealthStatus::Degraded), detail);
        }
        let idle = now.saturating_sub(self.due);
        match limits.idle(idle) {
            HealthStatus::Healthy => (HealthStatus::Healthy, "it turns".into()),
            worse => {
                (worse, format!("its loop has not turned for {} s longer than it should", idle.as_secs()))
            }
        }
    }
}
