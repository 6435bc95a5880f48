//! The names of all metrics. Label values are bounded: verbs, outcomes, events and handler keys.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Calls of a store verb, by `verb` and `result` (`ok` or the kind of error).
pub const STORE_CALLS: &str = "oncebox_store_calls_total";
/// How long a store verb took, by `verb`.
pub const STORE_SECONDS: &str = "oncebox_store_seconds";
/// How many items a store verb handled in one call, by `verb`.
pub const STORE_BATCH: &str = "oncebox_store_batch_size";
/// Messages offered, by `outcome`: first, duplicate, `handlers_added`, conflict, stale.
pub const ACCEPTED: &str = "oncebox_accepted_total";
/// Messages stored although no handler is registered for their type.
pub const UNROUTED: &str = "oncebox_unrouted_total";
/// Messages refused before the store was asked, by `reason`.
pub const REFUSED: &str = "oncebox_refused_total";
/// Messages taken without being compared with others, by `reason`: `missing_key`, `off`.
pub const UNDEDUPLICATED: &str = "oncebox_undeduplicated_total";
/// Marks of `once` and inline handlers, by `outcome`: first, duplicate, busy.
pub const MARKED: &str = "oncebox_marked_total";
/// Inline runs made again because the database ended a deadlock or could not serialize them, by `handler`.
pub const RERUNS: &str = "oncebox_reruns_total";
/// Settlements written, by `event`.
pub const SETTLED: &str = "oncebox_settled_total";
/// Writes refused because the claim no longer held, by `verb`.
pub const LEASE_LOST: &str = "oncebox_lease_lost_total";
/// Messages removed by the sweep.
pub const SWEPT: &str = "oncebox_swept_total";
/// How long after the first one a duplicate came, by `inbox`.
pub const DUPLICATE_SECONDS: &str = "oncebox_duplicate_seconds";
/// Entries that wait for a handler key that this process does not know, by `inbox` and `handler`; counted up to 10,000.
pub const ORPHANED: &str = "oncebox_orphaned_entries";
/// Entries added for messages that were stored before their handler, by `handler`.
pub const BACKFILLED: &str = "oncebox_backfilled_total";
/// How long a handler ran, by `handler`.
pub const HANDLER_SECONDS: &str = "oncebox_handler_seconds";
/// How many messages a batch handler got in one call, by `handler`.
pub const HANDLER_BATCH: &str = "oncebox_handler_batch_size";
/// 1 while a handler's breaker is open and it gets nothing, by `handler`.
pub const BREAKER_OPEN: &str = "oncebox_breaker_open";
/// Runs of fire-and-forget handlers, by `handler` and `result`: done, failed, dropped.
pub const FORGOTTEN: &str = "oncebox_fire_and_forget_total";
/// Entries in hand, from claim to settlement, by `inbox`.
pub const IN_FLIGHT: &str = "oncebox_in_flight";
/// Parts of the runtime that failed and were started again, by `component`.
pub const RESTARTS: &str = "oncebox_component_restarts_total";

/// Describes every metric to the installed recorder.
pub fn describe() {
    describe_counter!(STORE_CALLS, "Calls of a store verb, by verb and result");
    describe_histogram!(STORE_SECONDS, Unit::Seconds, "Time a store verb took, by verb");
    describe_histogram!(STORE_BATCH, Unit::Count, "Items in one call of a store verb, by verb");
    describe_counter!(ACCEPTED, "Messages offered, by outcome");
    describe_counter!(UNROUTED, "Messages stored although no handler is registered for their type");
    describe_counter!(REFUSED, "Messages refused before the store was asked, by reason");
    describe_counter!(UNDEDUPLICATED, "Messages taken without being compared with others, by reason");
    describe_counter!(MARKED, "Marks of once and inline handlers, by outcome");
    describe_counter!(RERUNS, "Inline runs made again after a transient fault of the database, by handler");
    describe_counter!(SETTLED, "Settlements written, by event");
    describe_counter!(LEASE_LOST, "Writes refused because the claim no longer held, by verb");
    describe_counter!(SWEPT, "Messages removed by the sweep");
    describe_histogram!(
        DUPLICATE_SECONDS,
        Unit::Seconds,
        "How long after the first one a duplicate came, by inbox"
    );
    describe_gauge!(
        ORPHANED,
        Unit::Count,
        "Entries that wait for a handler key that this process does not know, by inbox and handler"
    );
    describe_counter!(BACKFILLED, "Entries added for messages stored before their handler, by handler");
    describe_histogram!(HANDLER_SECONDS, Unit::Seconds, "Time a handler ran, by handler");
    describe_histogram!(HANDLER_BATCH, Unit::Count, "Messages in one call of a batch handler, by handler");
    describe_gauge!(BREAKER_OPEN, "1 while a handler's breaker is open, by handler");
    describe_counter!(FORGOTTEN, "Runs of fire-and-forget handlers, by handler and result");
    describe_gauge!(IN_FLIGHT, Unit::Count, "Entries in hand, from claim to settlement, by inbox");
    describe_counter!(RESTARTS, "Parts of the runtime that failed and were started again, by component");
}
