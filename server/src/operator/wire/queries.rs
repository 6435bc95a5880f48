//! Queries of operators and their responses. Tests: `tests/serve/api/`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BoundedText, EntryRecord, KeyText, MessageIdentity, OperationUuid, StatusWord, TimeText};

/// Token name and roles of the caller.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CallerInfo {
    /// Token name; null if the API needs no token.
    pub(crate) name: Option<String>,
    /// Roles of the caller.
    pub(crate) roles: Vec<String>,
}

/// Inboxes that this process serves.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct InboxList {
    pub(crate) inboxes: Vec<InboxSummary>,
}

/// An inbox.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct InboxSummary {
    pub(crate) name: String,
    /// Name of its store.
    pub(crate) store: String,
    /// Handler keys of this process.
    pub(crate) handlers: Vec<String>,
}

/// Filter by tenant.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantQuery {
    /// Only messages of this tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<BoundedText>,
}

/// Counts of an inbox.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct InboxTotals {
    /// Number of stored messages.
    pub(crate) messages: u64,
    /// Number of stored messages without a handler.
    pub(crate) unrouted: u64,
    /// Number of quarantined messages.
    pub(crate) quarantined: u64,
    /// Number of quarantined messages whose key was known with another payload.
    pub(crate) conflicts: u64,
    /// Number of quarantined messages that were older than the retention window.
    pub(crate) stale: u64,
    /// Entries by handler and status, without zeros.
    pub(crate) entries: Vec<EntryCount>,
    /// Paused handlers.
    pub(crate) paused: Vec<String>,
    /// Paused ordering keys.
    pub(crate) paused_keys: Vec<PausedOrderingKey>,
    /// Blocked ordering keys by handler, without zeros.
    #[serde(default)]
    pub(crate) blocked: Vec<BlockedCount>,
}

/// Ordering keys of a handler that poisoned entries block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BlockedCount {
    pub(crate) handler: String,
    /// Number of ordering keys, counted up to 10000; for one tenant, up to 1000.
    pub(crate) ordering_keys: u64,
    /// Number of entries behind them, counted up to 10000.
    pub(crate) waiting: u64,
    /// Age of the oldest of these entries, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) oldest_seconds: Option<u64>,
}

/// Number of entries of a handler with a status.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct EntryCount {
    pub(crate) handler: String,
    pub(crate) status: StatusWord,
    pub(crate) count: u64,
}

/// A paused ordering key of a handler.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PausedOrderingKey {
    pub(crate) handler: String,
    /// Source of its messages.
    pub(crate) source: String,
    /// Tenant of its messages.
    pub(crate) tenant: Option<String>,
    /// Ordering key as text.
    pub(crate) ordering_key: String,
    /// Bytes in hexadecimal digits, if they are not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ordering_key_hex: Option<String>,
}

/// A message with its entries and failed attempts, without its payload.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MessageDetails {
    pub(crate) key: KeyText,
    /// True if the content was erased. The key is still remembered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) erased: bool,
    pub(crate) tenant: Option<String>,
    /// Stored message; null if retention deleted it or it is only in quarantine.
    pub(crate) stored: Option<MessageSummary>,
    /// Entries by handler and generation, including finished ones.
    pub(crate) entries: Vec<EntryRecord>,
    /// Failed attempts, oldest first.
    pub(crate) attempts: Vec<FailedAttempt>,
    /// Minimum number of duplicates that were delivered.
    pub(crate) duplicates: u64,
    /// Quarantined messages with the same key.
    pub(crate) quarantined: Vec<MessageSummary>,
}

/// A message without its payload.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MessageSummary {
    /// Sequence number; null if it was quarantined.
    pub(crate) seq: Option<i64>,
    /// Reason it was quarantined.
    pub(crate) quarantine_reason: Option<QuarantineReasonWord>,
    /// Time it was received.
    pub(crate) received_at: TimeText,
    /// Time of the event, from the producer.
    pub(crate) time: Option<TimeText>,
    pub(crate) message: MessageIdentity,
    /// Size of the payload, in bytes.
    pub(crate) payload_bytes: u64,
}

/// A failed attempt.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FailedAttempt {
    pub(crate) handler: String,
    pub(crate) generation: u32,
    pub(crate) at: TimeText,
    /// Event: fail, exhaust, reject, crash or `crash_out`.
    pub(crate) event: String,
    /// Failed attempts so far, including this one.
    pub(crate) attempts: u32,
    /// Workers that crashed so far while running only this entry, including this one.
    pub(crate) crashes: u32,
    /// Error of the handler, redacted.
    pub(crate) error: Option<String>,
    /// Claim that settled it.
    pub(crate) claim: String,
}

/// Payloads and headers of one key, redacted.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MessagePayloads {
    pub(crate) key: KeyText,
    /// Payload of the stored message; null if retention deleted it.
    pub(crate) stored: Option<PayloadView>,
    /// Payloads of quarantined messages.
    pub(crate) quarantined: Vec<PayloadView>,
}

/// A payload and its headers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PayloadView {
    /// Payload as text, if it can be displayed.
    pub(crate) text: Option<String>,
    /// Reason it is hidden.
    pub(crate) hidden: Option<String>,
    /// Size in bytes.
    pub(crate) bytes: u64,
    /// Headers of the message.
    pub(crate) headers: Vec<MessageHeader>,
}

/// A header of a message.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MessageHeader {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// History of a message, and the reason for the state of each entry.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MessageExplanation {
    pub(crate) key: KeyText,
    /// Events, oldest first.
    pub(crate) story: Vec<StoryEvent>,
    pub(crate) entries: Vec<ExplainedEntry>,
}

/// An event in the history of a message.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct StoryEvent {
    pub(crate) at: TimeText,
    pub(crate) what: String,
}

/// An entry and the reason for its state.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ExplainedEntry {
    pub(crate) entry: EntryRecord,
    pub(crate) why: String,
}

/// Reason a message was quarantined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum QuarantineReasonWord {
    /// The key was known with another payload.
    Conflict,
    /// The message is older than the retention window.
    Stale,
}

impl QuarantineReasonWord {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Stale => "stale",
        }
    }
}

/// Filter for a page of quarantined messages.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuarantineQuery {
    /// Only messages with this reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<QuarantineReasonWord>,
    /// Only messages of this tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<BoundedText>,
    /// `next` of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<i64>,
    /// Maximum items per page. Default: 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) limit: Option<u64>,
}

/// A page of quarantined messages.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct QuarantineList {
    /// Messages, oldest first.
    pub(crate) quarantined: Vec<QuarantinedItem>,
    /// Cursor of the next page, if any.
    pub(crate) next: Option<i64>,
}

/// A quarantined message.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct QuarantinedItem {
    /// Id in the quarantine.
    pub(crate) id: i64,
    pub(crate) reason: QuarantineReasonWord,
    /// Message key.
    pub(crate) key: KeyText,
    pub(crate) received_at: TimeText,
    pub(crate) tenant: Option<String>,
    pub(crate) message: MessageIdentity,
    /// Size of the payload, in bytes.
    pub(crate) payload_bytes: u64,
}

/// Filter for blocked ordering keys.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BlockedQuery {
    /// Only keys of this tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<BoundedText>,
    /// Maximum items per page. Default: 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) limit: Option<u64>,
}

/// Blocked ordering keys. Those whose poisoned message is oldest come first.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BlockedKeyList {
    pub(crate) blocked: Vec<BlockedOrderingKey>,
}

/// An ordering key of a handler that a poisoned entry blocks.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BlockedOrderingKey {
    pub(crate) handler: String,
    /// Ordering key as text.
    pub(crate) ordering_key: String,
    /// Bytes in hexadecimal digits, if they are not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ordering_key_hex: Option<String>,
    /// Sequence number of the poisoned message.
    pub(crate) head: i64,
    /// Key of the poisoned message, to retry, discard or unblock it.
    pub(crate) head_key: KeyText,
    /// Time it was poisoned.
    pub(crate) since: TimeText,
    /// True if the entries behind it are parked, not pending.
    pub(crate) parks: bool,
    /// Number of entries behind it.
    pub(crate) waiting: u64,
    /// Time the oldest of these was received.
    pub(crate) oldest: Option<TimeText>,
}

/// Handlers of this process, and others that have entries.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct HandlerList {
    pub(crate) handlers: Vec<HandlerStatus>,
    /// Paused ordering keys.
    pub(crate) paused_keys: Vec<PausedOrderingKey>,
}

/// A handler.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct HandlerStatus {
    pub(crate) key: String,
    /// True if this process runs it, under this key or as a former key.
    pub(crate) runs_here: bool,
    /// Message types that it handles.
    pub(crate) types: Vec<String>,
    /// Former keys.
    pub(crate) legacy: Vec<String>,
    /// True if claims for it are paused on every worker.
    pub(crate) paused: bool,
    /// Breaker state in this process: closed, open or probing; null without a breaker.
    pub(crate) breaker: Option<String>,
}

/// Filter for a page of the audit log.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditQuery {
    /// Only parts of this bulk operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<OperationUuid>,
    /// Only operations on this message key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<KeyText>,
    /// Only operations of this actor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) actor: Option<BoundedText>,
    /// Only operations with this token name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<BoundedText>,
    /// `next` of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<i64>,
    /// Maximum items per page. Default: 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) limit: Option<u64>,
}

/// A page of the audit log, newest first.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct OperationList {
    pub(crate) operations: Vec<OperationRecord>,
    /// Cursor of the next page, if any.
    pub(crate) next: Option<i64>,
}

/// The audit record of an operation.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct OperationRecord {
    pub(crate) id: OperationUuid,
    /// Bulk operation it was part of.
    pub(crate) parent: Option<OperationUuid>,
    /// Position in the audit log.
    pub(crate) number: i64,
    pub(crate) at: TimeText,
    /// Actor that the request named.
    pub(crate) actor: String,
    /// Token name; null without a token, as for a command on the store.
    pub(crate) token: Option<String>,
    /// Reason that the request gave.
    pub(crate) reason: String,
    pub(crate) verb: String,
    /// Message key.
    pub(crate) key: Option<KeyText>,
    /// Handler key.
    pub(crate) handler: Option<String>,
    /// Body of the request.
    pub(crate) body: serde_json::Value,
}

/// Delays of duplicates, compared with the retention window.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RetentionReport {
    /// Summary in words.
    pub(crate) text: String,
    /// Number of duplicates since this process started.
    pub(crate) duplicates: u64,
    /// Number of messages older than the retention window.
    pub(crate) stale: u64,
    /// Longest delay of a duplicate after its first delivery, in seconds.
    pub(crate) latest_seconds: f64,
    /// 50th percentile of the delays, in seconds.
    pub(crate) p50_seconds: f64,
    /// 90th percentile of the delays, in seconds.
    pub(crate) p90_seconds: f64,
    /// 99th percentile of the delays, in seconds.
    pub(crate) p99_seconds: f64,
    /// Minimum time a finished message is remembered, in seconds; null for unlimited.
    pub(crate) window_seconds: Option<f64>,
    /// True if the window covers the delays with a margin.
    pub(crate) covered: bool,
}

/// Problems of the inbox or its store, worst first.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DoctorReport {
    pub(crate) findings: Vec<DoctorFinding>,
}

/// A problem that the doctor found.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DoctorFinding {
    /// Severity: info, warning or danger.
    pub(crate) severity: String,
    /// Stable identifier.
    pub(crate) code: String,
    pub(crate) what: String,
    /// Recommended fix.
    pub(crate) fix: String,
}
