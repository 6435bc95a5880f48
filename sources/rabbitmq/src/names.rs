//! Metric names of a source. The label `source` is its name. Tests: tests/again.rs and tests/faults.rs.

use metrics::{describe_counter, describe_gauge};

/// Messages that the source could not read, by `source`.
pub const UNREADABLE: &str = "oncebox_source_unreadable_total";
/// Messages that were rejected for good, by `source` and `to`: `dead_letter`, `exchange`, `discarded`.
pub const REJECTED: &str = "oncebox_source_rejected_total";
/// Deliveries that come again, by `source` and `by`: `held`, `retry_queue`.
pub const REDELIVERED: &str = "oncebox_source_redelivered_total";
/// Deliveries that lost their channel before they were settled, by `source`. The broker delivers them again.
pub const UNSETTLED: &str = "oncebox_source_unsettled_total";
/// Lost or failed connections, by `source`.
pub const DISCONNECTED: &str = "oncebox_source_disconnected_total";
/// 1 while the source is connected and consumes, by `source`.
pub const CONNECTED: &str = "oncebox_source_connected";

/// Describes every metric to the installed recorder.
pub fn describe() {
    describe_counter!(UNREADABLE, "Messages that the source could not read, by source");
    describe_counter!(REJECTED, "Messages that were rejected for good, by source and where they went");
    describe_counter!(REDELIVERED, "Deliveries that are brought again, by source and how");
    describe_counter!(UNSETTLED, "Deliveries whose channel was gone before they were settled, by source");
    describe_counter!(DISCONNECTED, "Times that the connection was lost or could not be made, by source");
    describe_gauge!(CONNECTED, "1 while the source is connected and consumes, by source");
}
