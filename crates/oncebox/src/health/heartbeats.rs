//! Heartbeats of the loops of the runtime. Tests: `tests/health.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Check, HealthLimits, HealthStatus, Subject};
use crate::time::SharedClock;

/// A component without a failure for this long works again.
const RECOVERED: Duration = Duration::from_mins(1);

/// Heartbeat of a component.
#[derive(Clone, Copy, Default)]
struct Beat {
    /// Time of the next expected iteration.
    due: Duration,
    /// First and last failure of a series.
    failing: Option<(Duration, Duration)>,
    ended: bool,
}

/// Heartbeats of the components of a running inbox.
pub(crate) struct ComponentHeartbeats {
    clock: SharedClock,
    parts: Mutex<BTreeMap<&'static str, Beat>>,
}

impl ComponentHeartbeats {
    pub(crate) fn new(clock: SharedClock) -> Self {
        Self { clock, parts: Mutex::default() }
    }

    /// Records an iteration of a component; the next is due within this time. A component that waits for work has no limit.
    pub(crate) fn turn(&self, part: &'static str, within: Duration) {
        let due = self.clock.monotonic().saturating_add(within);
        let mut parts = self.parts.lock();
        let beat = parts.entry(part).or_default();
        (beat.due, beat.ended) = (due, false);
    }

    /// Records the failure of a component that will restart.
    pub(crate) fn failed(&self, part: &'static str) {
        let now = self.clock.monotonic();
        let mut parts = self.parts.lock();
        let beat = parts.entry(part).or_default();
        let since = beat.failing.filter(|(_, last)| now.saturating_sub(*last) < RECOVERED);
        beat.failing = Some((since.map_or(now, |(since, _)| since), now));
        // The supervisor restarts it, and may take any time.
        beat.due = Duration::MAX;
    }

    /// Records the end of a component.
    pub(crate) fn ended(&self, part: &'static str) {
        self.parts.lock().entry(part).or_default().ended = true;
    }

    pub(crate) fn checks(&self, now: Duration, limits: &HealthLimits, stopping: bool) -> Vec<Check> {
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
            return (HealthStatus::Unhealthy, "ended, and is not restarted".into());
        }
        if let Some((since, _)) = failing {
            let time = now.saturating_sub(since);
            let detail = format!("failing and restarting for {} s", time.as_secs());
            return (limits.idle(time).max(HealthStatus::Degraded), detail);
        }
        let idle = now.saturating_sub(self.due);
        match limits.idle(idle) {
            HealthStatus::Healthy => (HealthStatus::Healthy, "running".into()),
            worse => (worse, format!("stalled: last iteration {} s overdue", idle.as_secs())),
        }
    }
}
