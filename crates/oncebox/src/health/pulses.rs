//! Whether the store answers, verb by verb.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Check, HealthLimits, HealthStatus, Subject};
use crate::error::{ErrorKind, Result};

/// Without these nothing is taken in or worked on. The others keep house, and may fail for a while.
const VITAL: [&str; 7] = ["accept", "claim", "settle", "mark", "begin", "commit", "complete"];

/// What fails for less, such as one that was chosen to end a deadlock, is no outage.
const A_WHILE: Duration = Duration::from_secs(1);

/// What is known of a verb that fails.
#[derive(Clone, Copy)]
struct Failing {
    since: Duration,
    last: Duration,
    kind: ErrorKind,
    calls: u64,
}

/// How the calls of each verb went last.
#[derive(Default)]
pub(crate) struct Pulses(Mutex<BTreeMap<&'static str, Option<Failing>>>);

impl Pulses {
    /// Takes note of a call. Errors about what was asked for say that the store works. If it succeeded, and had failed for a while: for
    /// how long, and in how many calls.
    pub(crate) fn note<T>(
        &self,
        verb: &'static str,
        now: Duration,
        result: &Result<T>,
    ) -> Option<(Duration, u64)> {
        let mut verbs = self.0.lock();
        let failing = verbs.entry(verb).or_default();
        match result {
            Err(error) if is_failure(error.kind()) => {
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

    pub(super) fn checks(&self, now: Duration, limits: &HealthLimits) -> Vec<Check> {
        let verbs = self.0.lock();
        let check = |(verb, failing): (&&'static str, &Option<Failing>)| {
            let (status, detail) = match failing {
                None => (HealthStatus::Healthy, "it answers".into()),
                Some(failing) => failing.status(verb, now, limits),
            };
            Check::new(Subject::Store, *verb, status, detail)
        };
        verbs.iter().map(check).collect()
    }
}

impl Failing {
    fn status(&self, verb: &str, now: Duration, limits: &HealthLimits) -> (HealthStatus, String) {
        let (time, quiet) = (now.saturating_sub(self.since), now.saturating_sub(self.last));
        let (seconds, kind, calls) = (time.as_secs(), self.kind.as_str(), self.calls);
        // Nobody may have tried since because we said that we are not ready: then somebody has to be let in to try.
        if quiet >= limits.store_unhealthy {
            let quiet = quiet.as_secs();
            return (HealthStatus::Degraded, format!("it failed ({kind}), and was not asked for {quiet} s"));
        }
        let gone = VITAL.contains(&verb) && time >= limits.store_unhealthy;
        let status = if gone { HealthStatus::Unhealthy } else { HealthStatus::Degraded };
        (status, format!("it fails ({kind}) for {seconds} s, {calls} calls"))
    }
}

/// Whether an error tells of the store rather than of the call.
const fn is_failure(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Unavailable
            | ErrorKind::Full
            | ErrorKind::ReadOnly
            | ErrorKind::Denied
            | ErrorKind::CommitUnknown
            | ErrorKind::SchemaTooNew
            | ErrorKind::SchemaOutdated
            | ErrorKind::Corrupt
    )
}
