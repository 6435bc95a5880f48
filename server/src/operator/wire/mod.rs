//! Bodies and queries of the API, for the server and for clients. Tests: `tests/serve/api/`.
//!
//! The server refuses unknown fields in requests. A client ignores unknown fields in responses.

mod actions;
mod entries;
mod queries;
mod values;

pub(crate) use actions::{
    ActionResponse, AuditFields, BackfillAction, BulkAction, BulkPlan, BulkPreview, BulkReport, EntryAction,
    EntryVerb, ErasureAction, ErasureResult, OperationProgress, OrderingKeyRef, PauseAction, PurgeAction,
    PurgePlan, PurgePreview,
};
pub(crate) use entries::{EntriesQuery, EntryList, EntryRecord, EntrySelection, MessageIdentity};
pub(crate) use queries::{
    AuditQuery, BlockedCount, BlockedKeyList, BlockedOrderingKey, BlockedQuery, CallerInfo, DoctorFinding,
    DoctorReport, EntryCount, ExplainedEntry, FailedAttempt, HandlerList, HandlerStatus, InboxList,
    InboxSummary, InboxTotals, MessageDetails, MessageExplanation, MessageHeader, MessagePayloads,
    MessageSummary, OperationList, OperationRecord, PausedOrderingKey, PayloadView, QuarantineList,
    QuarantineQuery, QuarantineReasonWord, QuarantinedItem, RetentionReport, StoryEvent, TenantQuery,
};
pub(crate) use values::{
    BoundedText, HandlerName, HexText, KeyText, OperationUuid, Reason, StatusWord, TimeText,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A problem document after RFC 9457. Its media type is `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ProblemDocument {
    /// `urn:oncebox:problem:` and a stable word.
    pub(crate) r#type: String,
    /// Name of this type of problem.
    pub(crate) title: String,
    /// HTTP status.
    pub(crate) status: u16,
    /// Description of this occurrence.
    pub(crate) detail: String,
    /// Effect of the request on stored data.
    pub(crate) kept: String,
    /// Advice for the client.
    pub(crate) advice: String,
}

impl ProblemDocument {
    /// Prefix of every `type`.
    pub(crate) const TYPE: &str = "urn:oncebox:problem:";
}
