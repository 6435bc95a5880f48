//! What goes over the wire: the bodies and queries of the API, for the server and for clients alike.
//!
//! What a client sends is refused if it holds anything unknown; what a server answers may hold more than a client knows.

mod actions;
mod entries;
mod queries;
mod values;

pub(crate) use actions::{
    ActionResponse, AuditFields, BackfillAction, BulkAction, BulkPlan, BulkPreview, EntryAction, EntryVerb,
    ErasureAction, ErasureResult, OperationProgress, OperationReport, OrderingKeyRef, PauseAction,
    PurgeAction, PurgePlan, PurgePreview,
};
pub(crate) use entries::{EntriesQuery, EntryList, EntryRecord, EntrySelection, MessageLabel};
pub(crate) use queries::{
    AuditQuery, BlockedCount, BlockedKeyList, BlockedOrderingKey, BlockedQuery, CallerInfo, DoctorFinding,
    DoctorReport, EntryCount, ExplainedEntry, FailedAttempt, HandlerList, HandlerStatus, InboxCounts,
    InboxList, InboxSummary, MessageDetails, MessageExplanation, MessageHeader, MessagePayloads,
    MessageSummary, OperationList, OperationRecord, PausedOrderingKey, PayloadView, QuarantineList,
    QuarantineQuery, QuarantineReasonWord, QuarantinedItem, RetentionReport, StoryEvent, TenantQuery,
};
pub(crate) use values::{
    BoundedText, HandlerName, HexText, KeyText, OperationUuid, Reason, StatusWord, TimeText,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What went wrong, as RFC 9457 says. The media type is `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ProblemDocument {
    /// `urn:oncebox:problem:` and a word that stays the same.
    pub(crate) r#type: String,
    /// What this type of problem is.
    pub(crate) title: String,
    /// The status of the answer.
    pub(crate) status: u16,
    /// What happened this time.
    pub(crate) detail: String,
    /// What is known to be stored after this.
    pub(crate) kept: String,
    /// What to do about it.
    pub(crate) advice: String,
}

impl ProblemDocument {
    /// What every `type` begins with.
    pub(crate) const TYPE: &str = "urn:oncebox:problem:";
}
