//! What can be looked at.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BoundedText, EntryRecord, KeyText, MessageLabel, OperationUuid, StatusWord, TimeText};

/// Who asks.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CallerInfo {
    /// The name of the token; nothing where no tokens are needed.
    pub(crate) name: Option<String>,
    /// What it may do.
    pub(crate) roles: Vec<String>,
}

/// Every inbox that this process serves.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct InboxList {
    pub(crate) inboxes: Vec<InboxSummary>,
}

/// An inbox.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct InboxSummary {
    pub(crate) name: String,
    /// The name of its store.
    pub(crate) store: String,
    /// The keys of the handlers of this process.
    pub(crate) handlers: Vec<String>,
}

/// Of which tenant.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantQuery {
    /// Only what belongs to this tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<BoundedText>,
}

/// How much of everything there is.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct InboxCounts {
    /// Messages remembered.
    pub(crate) messages: u64,
    /// Those of them that no handler takes.
    pub(crate) unrouted: u64,
    /// Messages quarantined.
    pub(crate) quarantined: u64,
    /// Those of them whose key was known with another payload.
    pub(crate) conflicts: u64,
    /// Those of them that were older than what is remembered.
    pub(crate) stale: u64,
    /// Entries by handler and status; what is zero is left out.
    pub(crate) entries: Vec<EntryCount>,
    /// Handlers that are paused.
    pub(crate) paused: Vec<String>,
    /// Ordering keys that are paused.
    pub(crate) paused_keys: Vec<PausedOrderingKey>,
    /// What poisoned entries hold back, by handler; handlers without such are left out.
    #[serde(default)]
    pub(crate) blocked: Vec<BlockedCount>,
}

/// What poisoned entries of a handler hold back, because of their ordering keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BlockedCount {
    pub(crate) handler: String,
    /// How many ordering keys, counted up to 10000; of one tenant, up to 1000.
    pub(crate) ordering_keys: u64,
    /// How many entries are behind, counted up to 10000.
    pub(crate) waiting: u64,
    /// How long ago the oldest of those was accepted, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) oldest_seconds: Option<u64>,
}

/// How many entries of a handler have a status.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct EntryCount {
    pub(crate) handler: String,
    pub(crate) status: StatusWord,
    pub(crate) count: u64,
}

/// An ordering key that is paused for a handler.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PausedOrderingKey {
    pub(crate) handler: String,
    /// Where its messages come from.
    pub(crate) source: String,
    /// Whose they are.
    pub(crate) tenant: Option<String>,
    /// The ordering key as text.
    pub(crate) ordering_key: String,
    /// Its bytes in hexadecimal digits, if they are not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ordering_key_hex: Option<String>,
}

/// Everything known of one key, without payloads.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MessageDetails {
    pub(crate) key: KeyText,
    /// Whether its content was erased. The key is remembered all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) erased: bool,
    pub(crate) tenant: Option<String>,
    /// The stored message; nothing if it has left, or was only quarantined.
    pub(crate) stored: Option<MessageSummary>,
    /// Its entries, by handler and generation, finished ones included.
    pub(crate) entries: Vec<EntryRecord>,
    /// Attempts that did not succeed, the oldest first.
    pub(crate) attempts: Vec<FailedAttempt>,
    /// At least so many duplicates were delivered.
    pub(crate) duplicates: u64,
    /// Messages under the same key that were quarantined.
    pub(crate) quarantined: Vec<MessageSummary>,
}

/// A message without its payload.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MessageSummary {
    /// Its number; nothing if it was quarantined.
    pub(crate) seq: Option<i64>,
    /// Why it was quarantined.
    pub(crate) quarantine_reason: Option<QuarantineReasonWord>,
    /// When it came.
    pub(crate) received_at: TimeText,
    /// When its producer says that it was made.
    pub(crate) time: Option<TimeText>,
    pub(crate) message: MessageLabel,
    /// The size of its payload.
    pub(crate) payload_bytes: u64,
}

/// An attempt that did not succeed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FailedAttempt {
    pub(crate) handler: String,
    pub(crate) generation: u32,
    pub(crate) at: TimeText,
    /// What happened: fail, exhaust, reject, crash or `crash_out`.
    pub(crate) event: String,
    /// Failed attempts until then, this one included.
    pub(crate) attempts: u32,
    /// Workers that died until then while they ran it alone, this one included.
    pub(crate) crashes: u32,
    /// What the handler said, as the rules of redaction show it.
    pub(crate) error: Option<String>,
    /// The claim it was settled under.
    pub(crate) claim: String,
}

/// The payloads and headers under one key, as the rules of redaction show them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MessagePayloads {
    pub(crate) key: KeyText,
    /// Of the stored message; nothing if it has left.
    pub(crate) stored: Option<PayloadView>,
    /// Of those that were quarantined.
    pub(crate) quarantined: Vec<PayloadView>,
}

/// A payload and its headers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PayloadView {
    /// The payload, if it can be shown.
    pub(crate) text: Option<String>,
    /// Why it is not shown.
    pub(crate) hidden: Option<String>,
    /// Its size.
    pub(crate) bytes: u64,
    /// The headers of the message.
    pub(crate) headers: Vec<MessageHeader>,
}

/// A header of a message.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MessageHeader {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// What happened to a message, and why its entries are where they are.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MessageExplanation {
    pub(crate) key: KeyText,
    /// What happened, in the order of time.
    pub(crate) story: Vec<StoryEvent>,
    pub(crate) entries: Vec<ExplainedEntry>,
}

/// One thing that happened.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct StoryEvent {
    pub(crate) at: TimeText,
    pub(crate) what: String,
}

/// An entry, and why it is where it is.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ExplainedEntry {
    pub(crate) entry: EntryRecord,
    pub(crate) why: String,
}

/// Why a message was quarantined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum QuarantineReasonWord {
    /// Its key was known with another payload.
    Conflict,
    /// It is older than what is remembered.
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

/// Which messages that were quarantined.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuarantineQuery {
    /// Only those that are quarantined for this reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<QuarantineReasonWord>,
    /// Only messages of this tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<BoundedText>,
    /// Where the previous page ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<i64>,
    /// At most this many. Default 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) limit: Option<u64>,
}

/// A page of messages that were quarantined.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct QuarantineList {
    /// The first kept first.
    pub(crate) quarantined: Vec<QuarantinedItem>,
    /// Where the next page starts, if there is one.
    pub(crate) next: Option<i64>,
}

/// A message that was quarantined.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct QuarantinedItem {
    /// Its number among those quarantined.
    pub(crate) id: i64,
    pub(crate) reason: QuarantineReasonWord,
    /// The key it came under.
    pub(crate) key: KeyText,
    pub(crate) received_at: TimeText,
    pub(crate) tenant: Option<String>,
    pub(crate) message: MessageLabel,
    /// The size of its payload.
    pub(crate) payload_bytes: u64,
}

/// Which ordering keys that are held back.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BlockedQuery {
    /// Only keys of this tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<BoundedText>,
    /// At most this many. Default 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) limit: Option<u64>,
}

/// Ordering keys that a poisoned entry holds back, those with the oldest message in front first.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BlockedKeyList {
    pub(crate) blocked: Vec<BlockedOrderingKey>,
}

/// An ordering key that a poisoned entry holds back, for one handler.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BlockedOrderingKey {
    pub(crate) handler: String,
    /// The ordering key as text.
    pub(crate) ordering_key: String,
    /// Its bytes in hexadecimal digits, if they are not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ordering_key_hex: Option<String>,
    /// The number of the message in front.
    pub(crate) head: i64,
    /// Its key, by which its entry is retried, discarded or unblocked.
    pub(crate) head_key: KeyText,
    /// When it was poisoned.
    pub(crate) since: TimeText,
    /// Whether those behind it are parked, not pending.
    pub(crate) parks: bool,
    /// How many are behind it.
    pub(crate) waiting: u64,
    /// When the oldest of those came.
    pub(crate) oldest: Option<TimeText>,
}

/// The handlers of this process, and others that have entries.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct HandlerList {
    pub(crate) handlers: Vec<HandlerStatus>,
    /// Ordering keys that are paused.
    pub(crate) paused_keys: Vec<PausedOrderingKey>,
}

/// A handler.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct HandlerStatus {
    pub(crate) key: String,
    /// Whether this process runs it, under this key or as a legacy key.
    pub(crate) runs_here: bool,
    /// Which types it takes.
    pub(crate) types: Vec<String>,
    /// Keys it had before.
    pub(crate) legacy: Vec<String>,
    /// Whether claims for it are stopped, on every worker.
    pub(crate) paused: bool,
    /// Where its breaker stands in this process: closed, open or probing; nothing if it has none.
    pub(crate) breaker: Option<String>,
}

/// Which records of operations.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditQuery {
    /// Only parts of this operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<OperationUuid>,
    /// Only operations on this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<KeyText>,
    /// Only operations that this one asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) actor: Option<BoundedText>,
    /// Only operations that came with the token of this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<BoundedText>,
    /// Where the previous page ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<i64>,
    /// At most this many. Default 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) limit: Option<u64>,
}

/// A page of records, the latest first.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct OperationList {
    pub(crate) operations: Vec<OperationRecord>,
    /// Where the next page starts, if there is one.
    pub(crate) next: Option<i64>,
}

/// The record of an operation.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct OperationRecord {
    pub(crate) id: OperationUuid,
    /// The operation it was a part of.
    pub(crate) parent: Option<OperationUuid>,
    /// Its place among all records.
    pub(crate) number: i64,
    pub(crate) at: TimeText,
    /// Who asked for it, as they called themselves.
    pub(crate) actor: String,
    /// The name of the token that it came with; nothing if it came without one, as from a command on the store itself.
    pub(crate) token: Option<String>,
    /// Why.
    pub(crate) reason: String,
    pub(crate) verb: String,
    /// The key it was about.
    pub(crate) key: Option<KeyText>,
    /// The handler it was about.
    pub(crate) handler: Option<String>,
    /// What was asked for.
    pub(crate) body: serde_json::Value,
}

/// How late duplicates came, and whether keys are remembered for long enough.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RetentionReport {
    /// For people.
    pub(crate) text: String,
    /// Duplicates that came to this process since it started.
    pub(crate) duplicates: u64,
    /// Messages that came too late to tell.
    pub(crate) stale: u64,
    /// How long after the first one the latest duplicate came.
    pub(crate) latest_seconds: f64,
    /// Half of them came within this time.
    pub(crate) p50_seconds: f64,
    /// Nine of ten.
    pub(crate) p90_seconds: f64,
    /// 99 of a hundred.
    pub(crate) p99_seconds: f64,
    /// For how long a finished message is remembered at least; nothing if for ever.
    pub(crate) window_seconds: Option<f64>,
    /// Whether that is long enough, with a margin.
    pub(crate) covered: bool,
}

/// What endangers the inbox or its store, the worst first.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DoctorReport {
    pub(crate) findings: Vec<DoctorFinding>,
}

/// Something that was found.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DoctorFinding {
    /// info, warning or danger.
    pub(crate) severity: String,
    /// A word that stays the same.
    pub(crate) code: String,
    pub(crate) what: String,
    /// What to do about it.
    pub(crate) fix: String,
}
