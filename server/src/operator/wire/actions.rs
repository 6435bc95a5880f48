//! Actions of operators and their responses. Tests: `tests/serve/api/`.

use oncebox::state::Operation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    BoundedText, EntryRecord, EntrySelection, HandlerName, HexText, OperationRecord, OperationUuid, Reason,
};

/// An action on an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EntryVerb {
    /// Retry a poisoned entry.
    Retry,
    /// Discard a poisoned or pending entry.
    Discard,
    /// Run a finished entry again, as a new generation.
    Replay,
    /// Let the entries behind a poisoned one with its ordering key continue without it.
    Unblock,
}

impl From<EntryVerb> for Operation {
    fn from(verb: EntryVerb) -> Self {
        match verb {
            EntryVerb::Retry => Self::Retry,
            EntryVerb::Discard => Self::Discard,
            EntryVerb::Replay => Self::Replay,
            EntryVerb::Unblock => Self::Unblock,
        }
    }
}

/// Operation id, actor and reason of an action.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuditFields<'a> {
    pub(crate) operation: OperationUuid,
    pub(crate) actor: Option<&'a str>,
    pub(crate) reason: &'a str,
}

/// Declares the body of an action. A macro, because serde does not support `flatten` together with `deny_unknown_fields`.
macro_rules! actions {
    ($(#[$meta:meta])* $name:ident { $($more:tt)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            /// Operation id. A repeated id runs once and returns the same result, or continues a stopped operation.
            pub(crate) operation: OperationUuid,
            /// Actor for the audit log, which records the token name too. Default: the token name. Required without tokens.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub(crate) actor: Option<BoundedText>,
            pub(crate) reason: Reason,
            $($more)*
        }

        impl $name {
            /// Returns the fields for the audit log.
            pub(crate) fn audit(&self) -> AuditFields<'_> {
                AuditFields { operation: self.operation, actor: self.actor.as_deref(), reason: &self.reason.0 }
            }
        }
    };
}

actions! {
    /// An action on one entry.
    EntryAction {
        /// Handler of the entry.
        #[schemars(with = "HandlerName")]
        pub(crate) handler: BoundedText,
    }
}

/// Result of an action.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ActionResponse {
    pub(crate) operation: OperationUuid,
    /// True if the operation id was used before; then this call changed nothing.
    pub(crate) repeated: bool,
    /// Entry after the action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) entry: Option<EntryRecord>,
    /// True if a pause or resume changed anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) changed: Option<bool>,
    /// Former keys of the handler that were paused or resumed too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) legacy: Vec<String>,
    /// Number of messages that a purge deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) purged: Option<u64>,
    /// Result of an erasure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) erased: Option<ErasureResult>,
}

/// Result of an erasure.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ErasureResult {
    /// Number of unfinished entries that were discarded.
    pub(crate) discarded: u64,
    /// Number of quarantined messages with the same key that were deleted.
    pub(crate) quarantined: u64,
}

actions! {
    /// Erasure of the content of one message. It cannot be undone.
    ErasureAction {
        /// Discard pending and poisoned entries. Without it, they refuse the erasure.
        #[serde(default)]
        pub(crate) discard_unfinished: bool,
    }
}

/// Dry run of an action on all entries that match a filter.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BulkPlan {
    pub(crate) verb: EntryVerb,
    /// Filter for entries. Default for `status`: the statuses that the verb applies to.
    pub(crate) which: EntrySelection,
    /// Maximum entries. Default: 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub(crate) limit: Option<u64>,
    /// Allow a filter that matches everything with a status.
    #[serde(default)]
    pub(crate) everything: bool,
}

/// Result of a bulk dry run.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BulkPreview {
    /// Number of entries: the value for `expected`.
    pub(crate) count: u64,
    /// True if more entries match than the limit allows.
    pub(crate) more: bool,
    /// First entries.
    pub(crate) first: Vec<EntryRecord>,
}

actions! {
    /// Action on all entries that match a filter. Starts slowly, and stops if too many entries fail again.
    BulkAction {
        pub(crate) verb: EntryVerb,
        /// Filter for entries. Default for `status`: the statuses that the verb applies to.
        pub(crate) which: EntrySelection,
        /// Maximum entries. Default: 1,000.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 100_000))]
        pub(crate) limit: Option<u64>,
        /// Allow a filter that matches everything with a status.
        #[serde(default)]
        pub(crate) everything: bool,
        /// Count of the preview. If it has changed, the request is refused.
        pub(crate) expected: u64,
        /// Maximum rate, in entries per second. Default: 50.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 1000))]
        pub(crate) per_second: Option<u64>,
        /// Maximum entries that may be poisoned again before it stops. Default: 10.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(max = 100_000))]
        pub(crate) failures: Option<u64>,
        /// Continue an operation that failures stopped.
        #[serde(default)]
        pub(crate) go_on: bool,
    }
}

impl BulkAction {
    /// Returns the action without its audit fields and pace.
    pub(crate) fn plan(&self) -> BulkPlan {
        let Self { verb, which, limit, everything, .. } = self;
        BulkPlan { verb: *verb, which: which.clone(), limit: *limit, everything: *everything }
    }
}

/// Progress of a bulk operation or backfill.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BulkReport {
    pub(crate) operation: OperationUuid,
    /// running, finished, capped, stopped, failed or unknown.
    pub(crate) state: String,
    /// True if it runs in this process. An operation that is running and not active was interrupted: repeat the request.
    pub(crate) active: bool,
    /// Number of entries changed; for a backfill, of entries added.
    pub(crate) done: u64,
    /// Number of entries skipped because they had changed meanwhile.
    pub(crate) refused: u64,
    /// Number of entries that were poisoned again.
    pub(crate) failed: u64,
}

/// Record and progress of an operation.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct OperationProgress {
    pub(crate) operation: OperationRecord,
    /// Progress of a bulk operation or backfill.
    pub(crate) report: Option<BulkReport>,
}

actions! {
    /// Pause or resume of a handler, or of one of its ordering keys.
    PauseAction {
        #[schemars(with = "HandlerName")]
        pub(crate) handler: BoundedText,
        /// Only this ordering key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) line: Option<OrderingKeyRef>,
        /// Allow a handler that does not exist yet.
        #[serde(default)]
        pub(crate) unknown: bool,
    }
}

/// An ordering key, which is unique within a tenant and a source.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [{ "required": ["ordering_key"] }, { "required": ["ordering_key_hex"] }]))]
pub(crate) struct OrderingKeyRef {
    /// Source of the messages. Default: empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<BoundedText>,
    /// Tenant of the messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<BoundedText>,
    /// Ordering key as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BoundedText")]
    pub(crate) ordering_key: Option<BoundedText>,
    /// Ordering key in hexadecimal digits, instead of text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "HexText")]
    pub(crate) ordering_key_hex: Option<BoundedText>,
}

/// Dry run of a purge.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PurgePlan {
    /// Minimum age of the messages in quarantine, in seconds.
    #[schemars(range(max = 3_155_760_000_u64))]
    pub(crate) older_than_seconds: u64,
    /// Maximum messages. Default: 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) limit: Option<u64>,
}

/// Result of a purge dry run.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PurgePreview {
    /// Number of messages: the value for `expected`.
    pub(crate) count: u64,
}

actions! {
    /// Deletion of quarantined messages.
    PurgeAction {
        /// Minimum age of the messages in quarantine, in seconds.
        #[schemars(range(max = 3_155_760_000_u64))]
        pub(crate) older_than_seconds: u64,
        /// Maximum messages. Default: 1,000.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 10_000))]
        pub(crate) limit: Option<u64>,
        /// Count of the preview. If it has changed, the request is refused.
        pub(crate) expected: u64,
    }
}

actions! {
    /// Backfill: adds entries for messages that were stored before the handler existed.
    BackfillAction {
        #[schemars(with = "HandlerName")]
        pub(crate) handler: BoundedText,
    }
}
