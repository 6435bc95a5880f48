//! What can be done.

use oncebox::state::Operation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    BoundedText, EntryRecord, EntrySelection, HandlerName, HexText, OperationRecord, OperationUuid, Reason,
};

/// What can be done to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EntryVerb {
    /// Try a poisoned entry again.
    Retry,
    /// Give up a poisoned entry, or one that still waits.
    Discard,
    /// Run a finished entry again, as a new generation.
    Replay,
    /// Let those behind a poisoned entry with its ordering key go on without it.
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

/// Who asks for something to be done, why, and under which identity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuditFields<'a> {
    pub(crate) operation: OperationUuid,
    pub(crate) actor: Option<&'a str>,
    pub(crate) reason: &'a str,
}

/// Declares the body of an action, with what is particular to it. Serde does not support `flatten` for what they share together with
/// `deny_unknown_fields`, and what is unknown must be refused.
macro_rules! actions {
    ($(#[$meta:meta])* $name:ident { $($more:tt)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            /// The identity of the operation: the same again is done once and answered the same, or carried on from where it was.
            pub(crate) operation: OperationUuid,
            /// Who asks for it. The name of the token is recorded beside it, in a field of its own. Needed where there are no tokens.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub(crate) actor: Option<BoundedText>,
            pub(crate) reason: Reason,
            $($more)*
        }

        impl $name {
            /// Who asks for it.
            pub(crate) fn asked(&self) -> AuditFields<'_> {
                AuditFields { operation: self.operation, actor: self.actor.as_deref(), reason: &self.reason.0 }
            }
        }
    };
}

actions! {
    /// An action on one entry.
    EntryAction {
        /// The handler of the entry.
        #[schemars(with = "HandlerName")]
        pub(crate) handler: BoundedText,
    }
}

/// What came of an action.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ActionResponse {
    pub(crate) operation: OperationUuid,
    /// Whether it was done before under the same identity; then this call changed nothing.
    pub(crate) repeated: bool,
    /// The entry as it was right afterwards, for an action on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) entry: Option<EntryRecord>,
    /// Whether a pause or resume changed anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) changed: Option<bool>,
    /// The keys that the handler had before: it was paused or resumed under these, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) legacy: Vec<String>,
    /// How many messages a purge removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) purged: Option<u64>,
    /// What an erasure found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) erased: Option<ErasureResult>,
}

/// What an erasure found beside the message itself.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ErasureResult {
    /// How many unfinished entries ended as discarded.
    pub(crate) discarded: u64,
    /// How many messages that were quarantined under the same key were removed.
    pub(crate) quarantined: u64,
}

actions! {
    /// The erasure of the content of one message. It cannot be undone.
    ErasureAction {
        /// Ends entries that are pending or poisoned as discarded. Without it, they refuse the erasure.
        #[serde(default)]
        pub(crate) discard_unfinished: bool,
    }
}

/// An action on every entry that a filter takes, to be looked at before it is done.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BulkPlan {
    pub(crate) verb: EntryVerb,
    /// Which entries. Without a status, those that the verb is meant for.
    pub(crate) which: EntrySelection,
    /// How many entries at most. Default 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub(crate) limit: Option<u64>,
    /// Allows a filter that takes everything with a status.
    #[serde(default)]
    pub(crate) everything: bool,
}

/// What an action on many would be done to.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct BulkPreview {
    /// How many entries; this is what `expected` has to be.
    pub(crate) count: u64,
    /// Whether there are more than it may be done to.
    pub(crate) more: bool,
    /// The first of them.
    pub(crate) first: Vec<EntryRecord>,
}

actions! {
    /// An action on every entry that a filter takes. Begins slowly, and stops if too many fail again.
    BulkAction {
        pub(crate) verb: EntryVerb,
        /// Which entries. Without a status, those that the verb is meant for.
        pub(crate) which: EntrySelection,
        /// How many entries at most. Default 1,000.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 100_000))]
        pub(crate) limit: Option<u64>,
        /// Allows a filter that takes everything with a status.
        #[serde(default)]
        pub(crate) everything: bool,
        /// The count of the preview. If it is another by now, nothing is done.
        pub(crate) expected: u64,
        /// So many a second, once it is at full speed. Default 50.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 1000))]
        pub(crate) per_second: Option<u64>,
        /// Stop when more than this many are poisoned again. Default 10.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(max = 100_000))]
        pub(crate) failures: Option<u64>,
        /// Carry on one that was stopped by failures.
        #[serde(default)]
        pub(crate) go_on: bool,
    }
}

impl BulkAction {
    /// What is to be done, without who asks for it and how.
    pub(crate) fn plan(&self) -> BulkPlan {
        let Self { verb, which, limit, everything, .. } = self;
        BulkPlan { verb: *verb, which: which.clone(), limit: *limit, everything: *everything }
    }
}

/// How far an action on many has come.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct OperationReport {
    pub(crate) operation: OperationUuid,
    /// running, finished, capped, stopped, failed, or unknown.
    pub(crate) state: String,
    /// Whether this process is at it. One that is running and not active was interrupted: ask for it again.
    pub(crate) active: bool,
    /// To how many entries it was done; for a backfill, how many were given.
    pub(crate) done: u64,
    /// How many had changed before their turn came.
    pub(crate) refused: u64,
    /// How many were seen to be poisoned again.
    pub(crate) failed: u64,
}

/// The record of an operation, and how far it has come.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct OperationProgress {
    pub(crate) operation: OperationRecord,
    /// For operations that take their time.
    pub(crate) report: Option<OperationReport>,
}

actions! {
    /// A handler, or one of its ordering keys, to be paused or resumed.
    PauseAction {
        #[schemars(with = "HandlerName")]
        pub(crate) handler: BoundedText,
        /// Only this ordering key of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) line: Option<OrderingKeyRef>,
        /// Allows a handler that nobody knows: one that is yet to come.
        #[serde(default)]
        pub(crate) unknown: bool,
    }
}

/// The messages with one ordering key: it means something only within a tenant and a source.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [{ "required": ["ordering_key"] }, { "required": ["ordering_key_hex"] }]))]
pub(crate) struct OrderingKeyRef {
    /// Where they come from. Default: nowhere in particular.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<BoundedText>,
    /// Whose they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<BoundedText>,
    /// The ordering key as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BoundedText")]
    pub(crate) ordering_key: Option<BoundedText>,
    /// Or its bytes in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "HexText")]
    pub(crate) ordering_key_hex: Option<BoundedText>,
}

/// Which messages that were quarantined are to be removed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PurgePlan {
    /// Those that were kept for longer than this.
    #[schemars(range(max = 3_155_760_000_u64))]
    pub(crate) older_than_seconds: u64,
    /// At most this many. Default 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub(crate) limit: Option<u64>,
}

/// What a purge would remove.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PurgePreview {
    /// How many messages; this is what `expected` has to be.
    pub(crate) count: u64,
}

actions! {
    /// The removal of messages that were quarantined.
    PurgeAction {
        /// Those that were kept for longer than this.
        #[schemars(range(max = 3_155_760_000_u64))]
        pub(crate) older_than_seconds: u64,
        /// At most this many. Default 1,000.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 10_000))]
        pub(crate) limit: Option<u64>,
        /// The count of the preview. If it is another by now, nothing is done.
        pub(crate) expected: u64,
    }
}

actions! {
    /// A handler that gets the messages that were stored before it was there.
    BackfillAction {
        #[schemars(with = "HandlerName")]
        pub(crate) handler: BoundedText,
    }
}
