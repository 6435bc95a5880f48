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

/// Verbs that write whenever they succeed. Their success shows that the store has room and may be written.
const WRITES: [&str; 2] = ["settle", "commit"];

/// How the calls of each verb went last.
#[derive(Default)]
pub(crate) struct Pulses(Mutex<Calls>);

#[derive(Default)]
struct Calls {
    verbs: BTreeMap<&'static str, Option<Failing>>,
    /// When a call of any verb last succeeded.
    answered: Option<Duration>,
    /// When a call that writes last succeeded.
    written: Option<Duration>,
}

impl Pulses {
    /// Takes note of a call. Errors about what was asked for say that the store works. If it succeeded, and had failed for a while: for
    /// how long, and in how many calls.
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

    pub(super) fn checks(&self, now: Duration, limits: &HealthLimits) -> Vec<Check> {
        let calls = self.0.lock();
        let check = |(verb, failing): (&&'static str, &Option<Failing>)| {
            let (status, detail) = match failing {
                None => (HealthStatus::Healthy, "it answers".into()),
                Some(failing) if calls.ended(failing, now, limits) => {
                    (HealthStatus::Healthy, "the store answers again; this verb was not asked since".into())
                }
                Some(failing) => failing.status(verb, now, limits),
            };
            Check::new(Subject::Store, *verb, status, detail)
        };
        calls.verbs.iter().map(check).collect()
    }
}

impl Calls {
    /// Whether an outage that a verb met is over, though the verb was not asked since: another call succeeded, and one that the
    /// same failure would have stopped.
    fn ended(&self, failing: &Failing, now: Duration, limits: &HealthLimits) -> bool {
        let shown = match failing.kind {
            ErrorKind::Unavailable
            | ErrorKind::CommitUnknown
            | ErrorKind::SchemaTooNew
            | ErrorKind::SchemaOutdated => self.answered,
            ErrorKind::Full | ErrorKind::ReadOnly | ErrorKind::Denied => self.written,
            _ => None,
        };
        // A verb that is asked again and again speaks for itself.
        let quiet = now.saturating_sub(failing.last) >= limits.store_unhealthy;
        quiet && shown.is_some_and(|at| at > failing.last)
    }
}

impl Failing {
    fn status(&self, verb: &str, now: Duration, limits: &HealthLimits) -> (HealthStatus, String) {
        let (time, quiet) = (now.saturating_sub(self.since), now.saturating_sub(self.last));
        let (seconds, kind, calls) = (time.as_secs(), self.kind.as_str(), self.calls);
        // Senders may have stopped because this process said that it is not ready: then they have to be let in to try.
        if quiet >= limits.store_unhealthy {
            let quiet = quiet.as_secs();
            return (HealthStatus::Degraded, format!("it failed ({kind}), and was not asked for {quiet} s"));
        }
        let gone = VITAL.contains(&verb) && time >= limits.store_unhealthy;
        let status = if gone { HealthStatus::Unhealthy } else { HealthStatus::Degraded };
        (status, format!("it fails ({kind}) for {seconds} s, {calls} calls"))
    }
}
