//! The health of an inbox, put together from its parts. Tests: `tests/health.rs`.

use std::fmt::Write as _;
use std::sync::Arc;

use super::{Inbox, Shared};
use crate::health::{Check, Health, HealthLimits, HealthStatus, Subject, grade};
use crate::runtime::{Core, Running};
use crate::store::{Backlog, Failover, Store};
use crate::time::Timestamp;

impl<S: Store> Inbox<S> {
    /// Returns the health of this inbox in this process. An inbox that does not run is unhealthy. The call makes no request,
    /// so it is cheap at any rate.
    pub fn health(&self) -> Health {
        self.health_by(&HealthLimits::default())
    }

    /// Like [`health`](Self::health), with other limits.
    pub fn health_by(&self, limits: &HealthLimits) -> Health {
        let core = self.shared.running.lock().upgrade();
        look(&self.shared, core.as_deref(), limits)
    }
}

impl<S: Store> Running<S> {
    /// Returns the health of this inbox. See [`Inbox::health`].
    pub fn health(&self) -> Health {
        self.health_by(&HealthLimits::default())
    }

    /// Like [`health`](Self::health), with other limits.
    pub fn health_by(&self, limits: &HealthLimits) -> Health {
        look(&self.core.inbox, Some(&self.core), limits)
    }
}

fn look<S: Store>(inbox: &Arc<Shared<S>>, core: Option<&Core<S>>, limits: &HealthLimits) -> Health {
    let now = inbox.clock.monotonic();
    let stopping = core.is_some_and(Core::is_stopping);
    let mut checks = vec![match core {
        None => Check::new(Subject::Inbox, inbox.name.as_str(), HealthStatus::Unhealthy, "not running"),
        Some(_) if stopping => {
            Check::new(Subject::Inbox, inbox.name.as_str(), HealthStatus::Unhealthy, "stopping")
        }
        Some(_) => Check::new(Subject::Inbox, inbox.name.as_str(), HealthStatus::Healthy, "running"),
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

/// Returns a check for a recent failover.
fn failed_over(failover: &Failover, now: Timestamp, limits: &HealthLimits) -> Option<Check> {
    if now.since(failover.noticed_at) > limits.failover_degraded {
        return None;
    }
    let status = if failover.lost_history() { HealthStatus::Degraded } else { HealthStatus::Healthy };
    Some(Check::new(Subject::Store, "failover", status, failover.to_string()))
}

fn waiting(backlog: &Backlog, limits: &HealthLimits) -> Check {
    let Backlog { handler, pending, poisoned, oldest_due, blocked, .. } = backlog;
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
