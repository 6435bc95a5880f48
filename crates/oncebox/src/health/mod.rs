//! Health of an inbox: its components, its store, its sources and its backlog. Tests: `tests/health.rs`.
//!
//! An inbox is *live* while its loops iterate; if it is not, a restart of the process may help. It is *ready* while it
//! can also take messages. An unavailable store makes it not ready, and no restart helps.

mod heartbeats;
mod store_health;

pub(crate) use heartbeats::ComponentHeartbeats;
pub(crate) use store_health::StoreHealth;

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// Status of a check, from best to worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HealthStatus {
    /// It works.
    #[default]
    Healthy,
    /// It works, and an operator should check it.
    Degraded,
    /// It does not work.
    Unhealthy,
}

impl HealthStatus {
    /// Returns the status as a word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unhealthy => "unhealthy",
        }
    }
}

impl fmt::Display for HealthStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Subject of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Subject {
    /// The inbox as a whole.
    Inbox,
    /// A component of the runtime.
    Component,
    /// A verb of the store.
    Store,
    /// A source.
    Source,
    /// The backlog of a handler.
    Handler,
}

/// One check. Holds no ids, no payloads and no error texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// Subject of the check.
    pub subject: Subject,
    /// Name of the subject.
    pub name: Box<str>,
    /// Status of the subject.
    pub status: HealthStatus,
    /// Reason for the status.
    pub detail: String,
}

impl Check {
    pub(crate) fn new(
        subject: Subject,
        name: impl Into<Box<str>>,
        status: HealthStatus,
        detail: impl Into<String>,
    ) -> Self {
        Self { subject, name: name.into(), status, detail: detail.into() }
    }
}

/// Health of an inbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Health {
    /// The inbox.
    pub inbox: Box<str>,
    /// The worst of all checks.
    pub status: HealthStatus,
    /// True if its loops iterate. If not, a restart of the process may help.
    pub live: bool,
    /// True if it can take messages and run them.
    pub ready: bool,
    /// All checks.
    pub checks: Vec<Check>,
}

/// Limits at which a check becomes degraded or unhealthy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HealthLimits {
    /// A loop whose next iteration is overdue by this long is degraded. Default: 2 minutes.
    pub idle_degraded: Duration,
    /// A loop whose next iteration is overdue by this long is unhealthy. Default: 5 minutes.
    pub idle_unhealthy: Duration,
    /// A store that does not answer for this long makes the inbox not ready. Default 30 seconds.
    pub store_unhealthy: Duration,
    /// The inbox is degraded while an entry has been due for this long. Default 15 minutes.
    pub lag_degraded: Option<Duration>,
    /// The inbox is unhealthy while an entry has been due for this long. Default: never.
    pub lag_unhealthy: Option<Duration>,
    /// The inbox is degraded while a message that a poisoned one with its ordering key holds back was accepted this long ago.
    /// Default 5 minutes.
    pub blocked_degraded: Option<Duration>,
    /// The inbox is unhealthy while a message that a poisoned one with its ordering key holds back was accepted this long ago.
    /// Default: never. An unhealthy inbox is not ready, and one bad message would take every process out of service.
    pub blocked_unhealthy: Option<Duration>,
    /// The inbox is degraded while this many entries of a handler wait; they are counted up to
    /// [`BacklogParams::COUNTED`](crate::store::BacklogParams::COUNTED). Default: never.
    pub backlog_degraded: Option<u64>,
    /// The inbox is unhealthy while this many entries of a handler wait. Default: never.
    pub backlog_unhealthy: Option<u64>,
    /// The inbox is degraded for this long after a failover that is known to have lost history. Default 1 hour.
    pub failover_degraded: Duration,
}

impl Default for HealthLimits {
    fn default() -> Self {
        Self {
            idle_degraded: Duration::from_mins(2),
            idle_unhealthy: Duration::from_mins(5),
            store_unhealthy: Duration::from_secs(30),
            lag_degraded: Some(Duration::from_mins(15)),
            lag_unhealthy: None,
            blocked_degraded: Some(Duration::from_mins(5)),
            blocked_unhealthy: None,
            backlog_degraded: None,
            backlog_unhealthy: None,
            failover_degraded: Duration::from_hours(1),
        }
    }
}

impl HealthLimits {
    fn idle(&self, idle: Duration) -> HealthStatus {
        grade(idle, Some(self.idle_degraded), Some(self.idle_unhealthy))
    }
}

pub(crate) fn grade<T: PartialOrd + Copy>(
    value: T,
    degraded: Option<T>,
    unhealthy: Option<T>,
) -> HealthStatus {
    if unhealthy.is_some_and(|limit| value >= limit) {
        HealthStatus::Unhealthy
    } else if degraded.is_some_and(|limit| value >= limit) {
        HealthStatus::Degraded
    } else {
        HealthStatus::Healthy
    }
}
