//! The table of all metrics: name, kind, labels and meaning. It generates [`describe`] and docs/metrics.md.
//!
//! Label values are bounded. They are words of the library (verbs, outcomes, events), or names in the program's own
//! settings (inboxes, handlers, sources). They never come from a message.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// A distribution of values.
    Histogram,
}

impl MetricKind {
    /// Returns the kind as a word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Values of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelValues {
    /// One of these words.
    Words(&'static [&'static str]),
    /// A name in the program's settings, and what it names.
    Names(&'static str),
}

/// A label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricLabel {
    /// Name of the label.
    pub name: &'static str,
    /// Values of the label.
    pub values: LabelValues,
}

/// A metric: a row of the table.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Metric {
    /// Name of the metric.
    pub name: &'static str,
    /// Kind of the metric.
    pub kind: MetricKind,
    /// Unit of the value.
    pub unit: Option<Unit>,
    /// Labels of the metric.
    pub labels: &'static [MetricLabel],
    /// Meaning of the value.
    pub help: &'static str,
}

impl Metric {
    /// Returns the metric with a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        METRICS.iter().find(|metric| metric.name == name)
    }

    /// Returns the label with a name.
    pub fn label(&self, name: &str) -> Option<&'static MetricLabel> {
        self.labels.iter().find(|label| label.name == name)
    }
}

const fn words(name: &'static str, words: &'static [&'static str]) -> MetricLabel {
    MetricLabel { name, values: LabelValues::Words(words) }
}

const fn names(name: &'static str, what: &'static str) -> MetricLabel {
    MetricLabel { name, values: LabelValues::Names(what) }
}

const INBOX: MetricLabel = names("inbox", "the inbox");
const HANDLER: MetricLabel = names("handler", "the handler key");
const SOURCE: MetricLabel = names("source", "the source, as it calls itself");
const VERB: MetricLabel = words(
    "verb",
    &[
        "accept",
        "claim",
        "settle",
        "renew",
        "rescue",
        "register",
        "sweep",
        "orphans",
        "backlog",
        "count_duplicates",
        "begin",
        "commit",
        "rollback",
        "mark",
        "accept_in",
        "quarantine",
        "record",
        "recall",
        "complete",
        "finish",
        "hold",
        "savepoint",
        "rollback_to_savepoint",
        "complete_all",
    ],
);
/// The kinds of errors, as [`ErrorKind::as_str`](crate::ErrorKind::as_str) names them, and `ok`.
const RESULT: MetricLabel = words(
    "result",
    &[
        "ok",
        "missing_key",
        "duplicate",
        "tenant",
        "invalid_message",
        "too_large",
        "unrouted",
        "invalid_config",
        "invalid_handler",
        "unsupported",
        "unavailable",
        "full",
        "read_only",
        "denied",
        "commit_unknown",
        "schema_too_new",
        "schema_outdated",
        "corrupt",
        "not_found",
        "refused",
        "operation_reused",
        "tenants_changed",
        "handler",
        "transaction_ended",
        "lease_lost",
    ],
);
const OUTCOME: MetricLabel = words("outcome", &["first", "duplicate", "handlers_added", "conflict", "stale"]);
const REASON: MetricLabel = words(
    "reason",
    &[
        "missing_key",
        "duplicate",
        "tenant",
        "invalid_message",
        "too_large",
        "unrouted",
        "unsupported",
        "invalid_handler",
    ],
);
const POLICY: MetricLabel = words("policy", &["first_wins", "accept_as_new"]);
const WHY: MetricLabel = words("reason", &["missing_key", "off"]);
const MARK: MetricLabel = words("outcome", &["first", "duplicate", "busy", "conflict"]);
const EVENT: MetricLabel = words(
    "event",
    &["done", "fail", "exhaust", "reject", "defer", "snooze", "release", "dismiss", "crash", "crash_out"],
);
const INLINE_RESULT: MetricLabel = words("result", &["done", "duplicate", "busy", "conflict", "failed"]);
const FORGET_RESULT: MetricLabel = words("result", &["done", "failed", "dropped"]);
const ACK: MetricLabel = words("ack", &["done", "redeliver", "busy", "reject", "none"]);
const API_REASON: MetricLabel = words("reason", &["token", "access"]);
const WHAT: MetricLabel = words("what", &["messages", "entries", "marks", "operations"]);
/// Words for the responses of `oncebox-http`.
const RESPONSE: MetricLabel = words(
    "result",
    &[
        "accepted",
        "duplicate",
        "malformed",
        "missing-key",
        "unverified",
        "method-not-allowed",
        "timeout",
        "busy",
        "too-large",
        "unsupported-media-type",
        "conflict",
        "stale",
        "unrouted",
        "rejected",
        "over-quota",
        "internal",
        "unavailable",
        "outcome-unknown",
        "failed",
    ],
);
/// Reasons of `oncebox-http` to refuse a sender as unverified.
const UNVERIFIED: MetricLabel = words(
    "reason",
    &[
        "unknown_path",
        "missing_header",
        "repeated_header",
        "malformed_header",
        "wrong_token",
        "wrong_signature",
        "old_timestamp",
        "future_timestamp",
        "unknown_peer",
        "not_loopback",
        "forwarded",
        "host_name",
    ],
);
const COMPONENT: MetricLabel = words(
    "component",
    &["dispatcher", "settler", "renewer", "rescuer", "orphans", "backlog", "sweeper", "receiver"],
);

macro_rules! metrics {
    ($($kind:ident $name:ident = $text:literal [$($label:expr),*] $unit:expr, $help:literal;)*) => {
        $(#[doc = $help] pub const $name: &str = $text;)*

        /// All metrics.
        pub const METRICS: &[Metric] = &[$(Metric {
            name: $name,
            kind: MetricKind::$kind,
            unit: $unit,
            labels: &[$($label),*],
            help: $help,
        }),*];
    };
}

metrics! {
    Counter ACCEPTED = "oncebox_accepted_total" [INBOX, OUTCOME] None,
        "Messages offered to the store, by result. Duplicates and quarantined conflicts are counted here.";
    Counter CONFLICTS = "oncebox_allowed_conflicts_total" [INBOX, POLICY] None,
        "Messages whose key was known with another payload, where the policy allows it. `first_wins` counts all of them; `accept_as_new` those that a process noticed among its last 10,000 keys.";
    Counter REFUSED = "oncebox_refused_total" [INBOX, REASON] None,
        "Messages refused before the store call, by reason, for example without a key.";
    Counter UNDEDUPLICATED = "oncebox_undeduplicated_total" [INBOX, WHY] None,
        "Messages accepted without a dedupe key.";
    Counter UNROUTED = "oncebox_unrouted_total" [INBOX] None,
        "Messages stored although no handler is registered for their type.";
    Histogram DUPLICATE_SECONDS = "oncebox_duplicate_seconds" [INBOX] Some(Unit::Seconds),
        "Time between the first message and its duplicate.";
    Counter DELIVERIES = "oncebox_deliveries_total" [INBOX, SOURCE, ACK] None,
        "Deliveries of sources, by acknowledgement; `none` if there was none, and the broker delivers the message again.";
    Gauge DELIVERIES_IN_FLIGHT = "oncebox_deliveries_in_flight" [INBOX, SOURCE] Some(Unit::Count),
        "Deliveries that are not settled with their source yet. They stay while the store is unavailable.";
    Counter HTTP_RESPONSES = "oncebox_http_responses_total" [SOURCE, RESPONSE] None,
        "Responses to HTTP senders, by message; a request that was refused as a whole counts once. The source is empty if no endpoint has the address.";
    Counter HTTP_UNVERIFIED = "oncebox_http_unverified_total" [SOURCE, UNVERIFIED] None,
        "HTTP requests answered with 401, by reason. The source is empty if no endpoint has the address.";
    Counter API_REFUSED = "oncebox_api_refused_total" [API_REASON] None,
        "Unauthorized requests to the operator API: `token` is a missing or unknown token, `access` an insufficient role or, without tokens, a request from another machine.";
    Histogram LAG_SECONDS = "oncebox_lag_seconds" [INBOX, HANDLER] Some(Unit::Seconds),
        "Time from accept to the claim for the first attempt, on the store's clock, including a requested delay.";
    Histogram HANDLER_SECONDS = "oncebox_handler_seconds" [INBOX, HANDLER] Some(Unit::Seconds),
        "Duration of handler runs, successful or not.";
    Histogram HANDLER_BATCH = "oncebox_handler_batch_size" [INBOX, HANDLER] Some(Unit::Count),
        "Messages per call of a batch handler.";
    Counter SETTLED = "oncebox_settled_total" [INBOX, HANDLER, EVENT] None,
        "Settlements of claimed entries: `done` is processed, `fail` is retried, `exhaust`, `reject` and `crash_out` are poisoned, `crash` and `crash_out` are dead workers.";
    Counter INLINE = "oncebox_inline_total" [INBOX, HANDLER, INLINE_RESULT] None,
        "Runs of inline handlers, by result.";
    Counter RERUNS = "oncebox_reruns_total" [INBOX, HANDLER] None,
        "Inline runs repeated after a deadlock or a serialization failure.";
    Counter MARKED = "oncebox_marked_total" [INBOX, HANDLER, MARK] None,
        "Marks of `once` and inline handlers, by result.";
    Counter FORGOTTEN = "oncebox_fire_and_forget_total" [INBOX, HANDLER, FORGET_RESULT] None,
        "Runs of fire-and-forget handlers.";
    Counter LEASE_LOST = "oncebox_lease_lost_total" [VERB] None,
        "Writes refused because another worker has the claim.";
    Gauge IN_FLIGHT = "oncebox_in_flight" [INBOX] Some(Unit::Count),
        "Entries in hand in this process, from claim to settlement.";
    Gauge PENDING = "oncebox_pending_entries" [INBOX, HANDLER] Some(Unit::Count),
        "Pending entries, due or not; counted up to 10,000. Every process reports the same: take the maximum.";
    Gauge POISONED = "oncebox_poisoned_entries" [INBOX, HANDLER] Some(Unit::Count),
        "Poisoned entries, which wait for an operator; counted up to 10,000. Every process reports the same: take the maximum.";
    Gauge OLDEST_SECONDS = "oncebox_oldest_due_seconds" [INBOX, HANDLER] Some(Unit::Seconds),
        "Age of the oldest due entry; 0 if none is due. Every process reports the same: take the maximum.";
    Gauge BLOCKED_KEYS = "oncebox_blocked_ordering_keys" [INBOX, HANDLER] Some(Unit::Count),
        "Ordering keys blocked by a poisoned entry; counted up to 10,000. Every process reports the same: take the maximum.";
    Gauge BLOCKED_ENTRIES = "oncebox_blocked_entries" [INBOX, HANDLER] Some(Unit::Count),
        "Entries behind a poisoned one with the same ordering key, pending or parked; counted up to 10,000. Every process reports the same: take the maximum.";
    Gauge BLOCKED_OLDEST_SECONDS = "oncebox_blocked_oldest_seconds" [INBOX, HANDLER] Some(Unit::Seconds),
        "Age of the oldest message behind a poisoned entry; 0 if there is none. Every process reports the same: take the maximum.";
    Gauge ORPHANED = "oncebox_orphaned_entries" [INBOX, HANDLER] Some(Unit::Count),
        "Entries that wait for a handler key that this process does not know; counted up to 10,000.";
    Gauge BREAKER_OPEN = "oncebox_breaker_open" [HANDLER] None,
        "1 while a handler's breaker is open.";
    Counter BACKFILLED = "oncebox_backfilled_total" [INBOX, HANDLER] None,
        "Entries added for messages that were stored before their handler.";
    Counter SWEPT = "oncebox_swept_total" [INBOX, WHAT] None,
        "Rows that the sweep deleted: finished messages with their keys, entries, marks and operation records.";
    Counter STORE_CALLS = "oncebox_store_calls_total" [VERB, RESULT] None,
        "Calls of a store verb, by `ok` or the kind of error.";
    Histogram STORE_SECONDS = "oncebox_store_seconds" [VERB] Some(Unit::Seconds),
        "Duration of calls of a store verb.";
    Histogram STORE_BATCH = "oncebox_store_batch_size" [VERB] Some(Unit::Count),
        "Items per call of a store verb, sent or requested.";
    Counter RESTARTS = "oncebox_component_restarts_total" [INBOX, COMPONENT] None,
        "Restarts of components of the runtime after a failure.";
    Counter OBSERVER_FAILURES = "oncebox_observer_failures_total" [INBOX] None,
        "Observer calls that panicked or returned an error.";
}

/// Describes every metric to the installed recorder.
pub fn describe() {
    for metric in METRICS {
        match (metric.kind, metric.unit) {
            (MetricKind::Counter, _) => describe_counter!(metric.name, metric.help),
            (MetricKind::Gauge, None) => describe_gauge!(metric.name, metric.help),
            (MetricKind::Gauge, Some(unit)) => describe_gauge!(metric.name, unit, metric.help),
            (MetricKind::Histogram, None) => describe_histogram!(metric.name, metric.help),
            (MetricKind::Histogram, Some(unit)) => describe_histogram!(metric.name, unit, metric.help),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions_and_are_unique() {
        for (at, metric) in METRICS.iter().enumerate() {
            let name = metric.name;
            assert!(name.starts_with("oncebox_"), "{name}");
            assert_eq!(metric.kind == MetricKind::Counter, name.ends_with("_total"), "{name}");
            assert_eq!(metric.unit == Some(Unit::Seconds), name.ends_with("_seconds"), "{name}");
            assert!(METRICS[at + 1..].iter().all(|other| other.name != name), "{name}");
        }
    }

    #[test]
    fn every_kind_of_error_is_a_result() {
        let LabelValues::Words(words) = RESULT.values else { panic!("{RESULT:?}") };
        let kinds = crate::ErrorKind::ALL.map(crate::ErrorKind::as_str);
        assert_eq!(words, ["ok"].into_iter().chain(kinds).collect::<Vec<_>>());
    }

    // FAULTS J5: what a message says is no label.
    #[test]
    fn labels_are_words_or_names_of_the_program() {
        let allowed = ["inbox", "handler", "source"];
        for label in METRICS.iter().flat_map(|metric| metric.labels) {
            match label.values {
                LabelValues::Words(words) => assert!(!words.is_empty() && words.len() < 30, "{label:?}"),
                LabelValues::Names(_) => assert!(allowed.contains(&label.name), "{label:?}"),
            }
        }
    }
}
