//! Whether an inbox works: what its parts, its store, its sources and its backlog say, put together.
//!
//! Two questions are kept apart. An inbox is *live* while its loops turn; if it is not, starting the process again may
//! help. It is *ready* while it can also take messages; a store that is away makes it not ready, and no restart helps.

mod heartbeats;
mod sources;
mod store_health;

pub(crate) use heartbeats::ComponentHeartbeats;
pub(crate) use sources::{InHand, SourceState};
pub(crate) use store_health::StoreHealth;

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::inbox::{Inbox, Shared};
use crate::runtime::{Core, Running};
use crate::store::{Backlog, Failover, Store};
use crate::time::Timestamp;

/// How well something works; later ones are worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HealthStatus {
    /// As it should.
    #[default]
    Healthy,
    /// It works, and somebody should look at it.
    Degraded,
    /// It does not work.
    Unhealthy,
}

impl HealthStatus {
    /// The word for it.
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

/// What a check is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Subject {
    /// The inbox as a whole.
    Inbox,
    /// A part of the runtime.
    Component,
    /// A verb of the store.
    Store,
    /// A source.
    Source,
    /// What waits for a handler.
    Handler,
}

/// One thing that was looked at. Holds no ids, no payloads and no text of anybody's error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// What kind of thing.
    pub subject: Subject,
    /// Its name.
    pub name: Box<str>,
    /// How well it works.
    pub status: HealthStatus,
    /// Why.
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

/// How an inbox does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Health {
    /// The inbox.
    pub inbox: Box<str>,
    /// The worst of all checks.
    pub status: HealthStatus,
    /// Whether its loops turn. If not, starting the process again may help.
    pub live: bool,
    /// Whether it can take messages and work on them.
    pub ready: bool,
    /// Everything that was looked at.
    pub checks: Vec<Check>,
}

/// From where on something is not well any more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HealthLimits {
    /// A loop that has not turned for this long after it should have is degraded. Default 2 minutes.
    pub idle_degraded: Duration,
    /// A loop that has not turned for this long after it should have is unhealthy. Default 5 minutes.
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

fn grade<T: PartialOrd + Copy>(value: T, degraded: Option<T>, unhealthy: Option<T>) -> HealthStatus {
    if unhealthy.is_some_and(|limit| value >= limit) {
        HealthStatus::Unhealthy
    } else if degraded.is_some_and(|limit| value >= limit) {
        HealthStatus::Degraded
    } else {
        HealthStatus::Healthy
    }
}

impl<S: Store> Inbox<S> {
    /// How this inbox does, in this process. One that was not started, or whose [`Running`] is gone, is unhealthy. Asks
    /// nobody: it tells what the parts have seen so far, so it can be called as often as one likes.
    pub fn health(&self) -> Health {
        self.health_by(&HealthLimits::default())
    }

    /// The same by other limits.
    pub fn health_by(&self, limits: &HealthLimits) -> Health {
        let core = self.shared.running.lock().upgrade();
        look(&self.shared, core.as_deref(), limits)
    }
}

impl<S: Store> Running<S> {
    /// How this inbox does. See [`Inbox::health`].
    pub fn health(&self) -> Health {
        self.health_by(&HealthLimits::default())
    }

    /// The same by other limits.
    pub fn health_by(&self, limits: &HealthLimits) -> Health {
        look(&self.core.inbox, Some(&self.core), limits)
    }
}

fn look<S: Store>(inbox: &Arc<Shared<S>>, core: Option<&Core<S>>, limits: &HealthLimits) -> Health {
    let now = inbox.clock.monotonic();
    let stopping = core.is_some_and(Core::is_stopping);
    let mut checks = vec![match core {
        None => Check::new(Subject::Inbox, inbox.name.as_str(), HealthStatus::Unhealthy, "it is not running"),
        Some(_) if stopping => {
            Check::new(Subject::Inbox, inbox.name.as_str(), HealthStatus::Unhealthy, "it is stopping")
        }
        Some(_) => Check::new(Subject::Inbox, inbox.name.as_str(), HealthStatus::Healthy, "it is running"),
    }];
    if let Some(core) = core {
        checks.extend(core.heartbeats.checks(now, limits, stopping));
        checks.extend(core.sources.lock().iter().map(|source| source.check(now)));
        checks.extend(core.backlog.lock().iter().map(|backlog| waiting(backlog, limits)));
    }
    checks.extend(inbox.store.watch().store_health.checks(now, limits));
    let failover = inbox.store.failover();
    checks.extend(failover.and_then(|failover| failed_over(&failover, inbox.clock.now(), limits)));
    let worst = checks.iter().map(|check| check.status).max().unwrap_or_default();
    let turns = checks
        .iter()
        .all(|check| check.subject != Subject::Component || check.status != HealthStatus::Unhealthy);
    Health {
        inbox: inbox.name.as_str().into(),
        status: worst,
        live: core.is_some() && turns,
        ready: worst != HealthStatus::Unhealthy,
        checks,
    }
}

/// A failover, for as long as it is news.
fn failed_over(failover: &Failover, now: Timestamp, limits: &HealthLimits) -> Option<Check> {
    if now.since(failover.noticed_at) > limits.failover_degraded {
        return None;
    }
    let status = if failover.lost_history() { HealthStatus::Degraded } else { HealthStatus::Healthy };
    Some(Check::new(Subject::Store, "failover", status, failover.to_string()))
}

fn waiting(backlog: &Backlog, limits: &HealthLimits) -> Check {
    let Backlog { handler, pending, poisoned, oldest_due, blocked } = backlog;
    let lag = oldest_due.unwrap_or_default();
    let status = grade(*pending, limits.backlog_degraded, limits.backlog_unhealthy).max(grade(
        lag,
        limits.lag_degraded,
        limits.lag_unhealthy,
    ));
    let held_back = blocked
        .oldest
        .map(|oldest| grade(oldest, limits.blocked_degraded, limits.blocked_unhealthy))
        .unwrap_or_default();
    let mut detail = match oldest_due {
        None => format!("{pending} pending, none of them due, {poisoned} poisoned"),
        Some(due) => {
            format!("{pending} pending, the first due for {} s, {poisoned} poisoned", due.as_secs())
        }
    };
    if let Some(oldest) = blocked.oldest {
        let (keys, waiting, oldest) = (blocked.keys, blocked.waiting, oldest.as_secs());
        let _ = write!(
            detail,
            "; poisoned entries hold back {waiting} others with {keys} ordering keys, the oldest accepted {oldest} s ago"
        );
    }
    Check::new(Subject::Handler, handler.as_str(), status.max(held_back), detail)
}
