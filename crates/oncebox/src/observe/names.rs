//! Every metric there is, in one table: its name, kind, labels and meaning. `describe` and docs/metrics.md are made of it.
//!
//! Label values are bounded. They are words of the library (verbs, outcomes, events), or names that the program itself
//! gives (inboxes, handlers, sources); never anything that a message says.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// How a metric moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// It collects values.
    Histogram,
}

impl Kind {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// What a label can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// One of these words.
    Words(&'static [&'static str]),
    /// A name that the program itself gave to something: which.
    Names(&'static str),
}

/// A label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// What it can say.
    pub values: Values,
}

/// A metric: a row of the table.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// How it moves.
    pub kind: Kind,
    /// What it is counted in.
    pub unit: Option<Unit>,
    /// Its labels.
    pub labels: &'static [Label],
    /// What it means.
    pub help: &'static str,
}

impl Metric {
    /// The metric with a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        METRICS.iter().find(|metric| metric.name == name)
    }

    /// The label with a name.
    pub fn label(&self, name: &str) -> Option<&'static Label> {
        self.labels.iter().find(|label| label.name == name)
    }
}

const fn words(name: &'static str, words: &'static [&'static str]) -> Label {
    Label { name, values: Values::Words(words) }
}

const fn names(name: &'static str, what: &'static str) -> Label {
    Label { name, values: Values::Names(what) }
}

const INBOX: Label = names("inbox", "the inbox");
const HANDLER: Label = names("handler", "the handler key");
const SOURCE: Label = names("source", "the source, as it calls itself");
const VERB: Label = words(
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
        "absorbed",
        "begin",
        "commit",
        "rollback",
        "mark",
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
const RESULT: Label = words(
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
const OUTCOME: Label = words("outcome", &["first", "duplicate", "handlers_added", "conflict", "stale"]);
const REASON: Label = words(
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
const POLICY: Label = words("policy", &["first_wins", "accept_as_new"]);
const WHY: Label = words("reason", &["missing_key", "off"]);
const MARK: Label = words("outcome", &["first", "duplicate", "busy", "conflict"]);
const EVENT: Label = words(
    "event",
    &["done", "fail", "exhaust", "reject", "defer", "snooze", "release", "dismiss", "crash", "crash_out"],
);
const INLINE_RESULT: Label = words("result", &["done", "duplicate", "busy", "conflict", "failed"]);
const FORGET_RESULT: Label = words("result", &["done", "failed", "dropped"]);
const ACK: Label = words("ack", &["done", "redeliver", "busy", "reject", "none"]);
const API_REASON: Label = words("reason", &["token", "access"]);
const WHAT: Label = words("what", &["messages", "entries", "marks", "operations"]);
/// What `oncebox-http` tells senders: the words of its answers and problems.
const ANSWER: Label = words(
    "answer",
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
/// Why `oncebox-http` refused a sender that it did not verify.
const UNVERIFIED: Label = words(
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
const COMPONENT: Label = words(
    "component",
    &["dispatcher", "settler", "renewer", "rescuer", "orphans", "backlog", "sweeper", "receiver"],
);

macro_rules! metrics {
    ($($kind:ident $name:ident = $text:literal [$($label:expr),*] $unit:expr, $help:literal;)*) => {
        $(#[doc = $help] pub const $name: &str = $text;)*

        /// The table.
        pub const METRICS: &[Metric] = &[$(Metric {
            name: $name,
            kind: Kind::$kind,
            unit: $unit,
            labels: &[$($label),*],
            help: $help,
        }),*];
    };
}

metrics! {
    Counter ACCEPTED = "oncebox_accepted_total" [INBOX, OUTCOME] None,
        "Messages offered to the store, by what it answered. Duplicates and conflicts that were kept aside are counted here.";
    Counter CONFLICTS = "oncebox_allowed_conflicts_total" [INBOX, POLICY] None,
        "Messages whose key was known with another payload, where the policy of the key allows it. `first_wins` counts each of them; `accept_as_new` those that a process noticed among the last 10,000 keys that it took.";
    Counter REFUSED = "oncebox_refused_total" [INBOX, REASON] None,
        "Messages refused before the store was asked, by reason; those without a key among them.";
    Counter UNDEDUPLICATED = "oncebox_undeduplicated_total" [INBOX, WHY] None,
        "Messages taken without being compared with others.";
    Counter UNROUTED = "oncebox_unrouted_total" [INBOX] None,
        "Messages stored although no handler is registered for their type.";
    Histogram DUPLICATE_SECONDS = "oncebox_duplicate_seconds" [INBOX] Some(Unit::Seconds),
        "How long after the first one a duplicate came.";
    Counter DELIVERIES = "oncebox_deliveries_total" [INBOX, SOURCE, ACK] None,
        "Deliveries of sources, by what the broker was told; `none` if it could not be told, or was left to bring them again.";
    Gauge DELIVERIES_IN_HAND = "oncebox_deliveries_in_hand" [INBOX, SOURCE] Some(Unit::Count),
        "Deliveries that a source brought and that are not settled with it yet. They stay while the store is away.";
    Counter HTTP_ANSWERS = "oncebox_http_answers_total" [SOURCE, ANSWER] None,
        "What senders over HTTP were told, by message; a request that was refused as a whole counts once. The source is empty where no endpoint has the address.";
    Counter HTTP_UNVERIFIED = "oncebox_http_unverified_total" [SOURCE, UNVERIFIED] None,
        "Requests over HTTP answered with 401, by reason. The source is empty where no endpoint has the address.";
    Counter API_REFUSED = "oncebox_api_refused_total" [API_REASON] None,
        "Requests that the API for operators refused because of who asked: `token` is a missing or unknown token, `access` a role that does not suffice, or, without tokens, a request that is not from this machine.";
    Histogram LAG_SECONDS = "oncebox_lag_seconds" [INBOX, HANDLER] Some(Unit::Seconds),
        "From accepting a message to claiming it for its first attempt, on the store's clock; a delay that was asked for is part of it.";
    Histogram HANDLER_SECONDS = "oncebox_handler_seconds" [INBOX, HANDLER] Some(Unit::Seconds),
        "How long a run of a handler took, whatever came of it.";
    Histogram HANDLER_BATCH = "oncebox_handler_batch_size" [INBOX, HANDLER] Some(Unit::Count),
        "How many messages a batch handler got in one call.";
    Counter SETTLED = "oncebox_settled_total" [INBOX, HANDLER, EVENT] None,
        "What became of claimed entries: `done` is processed, `fail` is tried again, `exhaust`, `reject` and `crash_out` are poisoned, `crash` and `crash_out` are workers that died.";
    Counter INLINE = "oncebox_inline_total" [INBOX, HANDLER, INLINE_RESULT] None,
        "Runs of inline handlers, by what came of them.";
    Counter RERUNS = "oncebox_reruns_total" [INBOX, HANDLER] None,
        "Inline runs made again because the database ended a deadlock or could not serialize them.";
    Counter MARKED = "oncebox_marked_total" [INBOX, HANDLER, MARK] None,
        "Marks of `once` and inline handlers, by what was found.";
    Counter FORGOTTEN = "oncebox_fire_and_forget_total" [INBOX, HANDLER, FORGET_RESULT] None,
        "Runs of fire-and-forget handlers.";
    Counter LEASE_LOST = "oncebox_lease_lost_total" [VERB] None,
        "Writes refused because the claim no longer held: somebody else has the entry.";
    Gauge IN_FLIGHT = "oncebox_in_flight" [INBOX] Some(Unit::Count),
        "Entries in hand of this process, from claim to settlement.";
    Gauge PENDING = "oncebox_pending_entries" [INBOX, HANDLER] Some(Unit::Count),
        "Entries that wait, those that are not due yet included; counted up to 10,000. Every process reports the same: take the maximum.";
    Gauge POISONED = "oncebox_poisoned_entries" [INBOX, HANDLER] Some(Unit::Count),
        "Entries that failed for good and wait for a person; counted up to 10,000. Every process reports the same: take the maximum.";
    Gauge OLDEST_SECONDS = "oncebox_oldest_due_seconds" [INBOX, HANDLER] Some(Unit::Seconds),
        "For how long the entry that waits longest has been due; 0 if none is. Every process reports the same: take the maximum.";
    Gauge BLOCKED_KEYS = "oncebox_blocked_ordering_keys" [INBOX, HANDLER] Some(Unit::Count),
        "Ordering keys that a poisoned entry holds back; counted up to 10,000. Every process reports the same: take the maximum.";
    Gauge BLOCKED_ENTRIES = "oncebox_blocked_entries" [INBOX, HANDLER] Some(Unit::Count),
        "Entries behind a poisoned one with their ordering key, pending or parked; counted up to 10,000. Every process reports the same: take the maximum.";
    Gauge BLOCKED_OLDEST_SECONDS = "oncebox_blocked_oldest_seconds" [INBOX, HANDLER] Some(Unit::Seconds),
        "How long ago the oldest message behind a poisoned entry was accepted; 0 if none is behind one. Every process reports the same: take the maximum.";
    Gauge ORPHANED = "oncebox_orphaned_entries" [INBOX, HANDLER] Some(Unit::Count),
        "Entries that wait for a handler key that this process does not know; counted up to 10,000.";
    Gauge BREAKER_OPEN = "oncebox_breaker_open" [HANDLER] None,
        "1 while a handler's breaker is open and it gets nothing.";
    Counter BACKFILLED = "oncebox_backfilled_total" [INBOX, HANDLER] None,
        "Entries added for messages that were stored before their handler.";
    Counter SWEPT = "oncebox_swept_total" [INBOX, WHAT] None,
        "What the sweep removed: finished messages with their keys, their entries, marks, and records of operations.";
    Counter STORE_CALLS = "oncebox_store_calls_total" [VERB, RESULT] None,
        "Calls of a store verb, by `ok` or the kind of error.";
    Histogram STORE_SECONDS = "oncebox_store_seconds" [VERB] Some(Unit::Seconds),
        "How long a call of a store verb took.";
    Histogram STORE_BATCH = "oncebox_store_batch_size" [VERB] Some(Unit::Count),
        "How many items a call of a store verb had, or asked for.";
    Counter RESTARTS = "oncebox_component_restarts_total" [INBOX, COMPONENT] None,
        "Parts of the runtime that failed and were started again.";
    Counter OBSERVER_FAILURES = "oncebox_observer_failures_total" [INBOX] None,
        "Observers that panicked or answered with an error. What they observed went on.";
}

/// Describes every metric to the installed recorder.
pub fn describe() {
    for metric in METRICS {
        match (metric.kind, metric.unit) {
            (Kind::Counter, _) => describe_counter!(metric.name, metric.help),
            (Kind::Gauge, None) => describe_gauge!(metric.name, metric.help),
            (Kind::Gauge, Some(unit)) => describe_gauge!(metric.name, unit, metric.help),
            (Kind::Histogram, None) => describe_histogram!(metric.name, metric.help),
            (Kind::Histogram, Some(unit)) => describe_histogram!(metric.name, unit, metric.help),
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
            assert_eq!(metric.kind == Kind::Counter, name.ends_with("_total"), "{name}");
            assert_eq!(metric.unit == Some(Unit::Seconds), name.ends_with("_seconds"), "{name}");
            assert!(METRICS[at + 1..].iter().all(|other| other.name != name), "{name}");
        }
    }

    #[test]
    fn every_kind_of_error_is_a_result() {
        let Values::Words(words) = RESULT.values else { panic!("{RESULT:?}") };
        let kinds = crate::ErrorKind::ALL.map(crate::ErrorKind::as_str);
        assert_eq!(words, ["ok"].into_iter().chain(kinds).collect::<Vec<_>>());
    }

    // FAULTS J5: what a message says is no label.
    #[test]
    fn labels_are_words_or_names_of_the_program() {
        let allowed = ["inbox", "handler", "source"];
        for label in METRICS.iter().flat_map(|metric| metric.labels) {
            match label.values {
                Values::Words(words) => assert!(!words.is_empty() && words.len() < 30, "{label:?}"),
                Values::Names(_) => assert!(allowed.contains(&label.name), "{label:?}"),
            }
        }
    }
}
