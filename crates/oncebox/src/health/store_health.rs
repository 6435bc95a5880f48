//! Health of the store, verb by verb. Tests: `tests/health.rs`, `tests/outages.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Check, HealthLimits, HealthStatus, Subject};
use crate::error::{ErrorKind, Result};

/// Verbs that every message needs. The others are upkeep, and may fail for a while.
const VITAL: [&str; 7] = ["accept", "claim", "settle", "mark", "begin", "commit", "complete"];

/// Minimum time of an outage. A shorter failure, such as a deadlock victim, is none.
const A_WHILE: Duration = Duration::from_secs(1);

/// A failing verb.
#[derive(Clone, Copy)]
struct Failing {
    since: Duration,
    last: Duration,
    kind: ErrorKind,
    calls: u64,
}

/// Verbs that write whenever they succeed. Their success shows that the store is writable.
const WRITES: [&str; 2] = ["settle", "commit"];

/// Results of the last calls of each verb.
#[derive(Default)]
pub(crate) struct StoreHealth(Mutex<VerbCalls>);

#[derive(Default)]
struct VerbCalls {
    verbs: BTreeMap<&'static str, Option<Failing>>,
    /// Time of the last successful call.
    answered: Option<Duration>,
    /// Time of the last successful write.
    written: Option<Duration>,
}

impl StoreHealth {
    /// Records a call. An error about the request itself shows that the store works. After an outage, the first success
    /// returns its duration and its number of failed calls.
    pub(crate) fn note<T>(
        &self,
        verb: &'static str,
        now: Duration,
        result: &Result<T>,
    ) -> Option<(Duration, u64)> {
        let calls = &mut *self.0.lock();
        if result.is_ok() {
            calls.answered = Some(now);
            if WRITES.contains(&verb) {
                calls.written = Some(now);
            }
        }
        let failing = calls.verbs.entry(verb).or_default();
        match result {
            Err(error) if error.kind().is_outage() => {
                let first = Failing { since: now, last: now, kind: error.kind(), calls: 0 };
                let failing = failing.get_or_insert(first);
                (failing.last, failing.kind) = (now, error.kind());
                failing.calls += 1;
                None
            }
            _ => {
                let failed = failing.take().filter(|_| result.is_ok());
                let failed = failed.map(|failed| (now.saturating_sub(failed.since), failed.calls));
                failed.filter(|(time, _)| *time >= A_WHILE)
            }
        }
    }

    pub(crate) fn checks(&self, now: Duration, limits: &HealthLimits) -> Vec<Check> {
        let calls = self.0.lock();
        let check = |(verb, failing): (&&'static str, &Option<Failing>)| {
            let (status, detail) = match failing {
                None => (HealthStatus::Healthy, "ok".into()),
                Some(failing) if calls.ended(failing, now, limits) => {
                    (HealthStatus::Healthy, "ok: no call since the store recovered".into())
                }
                Some(failing) => failing.status(verb, now, limits),
            };
            Check::new(Subject::Store, *verb, status, detail)
        };
        calls.verbs.iter().map(check).collect()
    }
}

impl VerbCalls {
    /// Returns true if the outage of a verb has ended without a new call of it: another call succeeded that the same failure
    /// would have stopped.
    fn ended(&self, failing: &Failing, now: Duration, limits: &HealthLimits) -> bool {
        let shown = match failing.kind {
            ErrorKind::Unavailable
            | ErrorKind::CommitUnknown
            | ErrorKind::SchemaTooNew
            | ErrorKind::SchemaOutdated => self.answered,
            ErrorKind::Full | ErrorKind::ReadOnly | ErrorKind::Denied => self.written,
            _ => None,
        };
        // The calls of a busy verb decide by themselves.
        let quiet = now.saturating_sub(failing.last) >= limits.store_unhealthy;
        quiet && shown.is_some_and(|at| at > failing.last)
    }
}

impl Failing {
    fn status(&self, verb: &str, now: Duration, limits: &HealthLimits) -> (HealthStatus, String) {
        let (time, quiet) = (now.saturating_sub(self.since), now.saturating_sub(self.last));
        let (seconds, kind, calls) = (time.as_secs(), self.kind.as_str(), self.calls);
        // Senders may have stopped because this process is not ready. Report ready, so that they try again.
        if quiet >= limits.store_unhealthy {
            let quiet = quiet.as_secs();
            return (HealthStatus::Degraded, format!("failed ({kind}), no call for {quiet} s"));
        }
        let gone = VITAL.contains(&verb) && time >= limits.store_unhealthy;
        let status = if gone { HealthStatus::Unhealthy } else { HealthStatus::Degraded };
        (status, format!("failing ({kind}) for {seconds} s, {calls} calls"))
    }
}
