//! What goes over the wire: the bodies and queries of the API, for the server and for clients alike.
//!
//! What a client sends is refused if it holds anything unknown; what a server answers may hold more than a client knows.

mod act;
mod entries;
mod look;
mod values;

pub(crate) use act::{
    Acted, Asked, Backfill, BulkAction, BulkPlan, EntryAction, ErasureAction, ErasureResult, Hold, LineRef,
    OperationProgress, Preview, Purge, PurgePlan, PurgePreview, Report, Verb,
};
pub(crate) use entries::{Entries, EntriesQuery, Entry, Label, Which};
pub(crate) use look::{
    Advice, Attempt, AuditPage, AuditQuery, Blocked, BlockedCount, BlockedKey, BlockedQuery, Body, Counts,
    Doctor, Explained, ExplainedEntry, Finding, Handler, HandlerCount, Handlers, Header, InboxSummary,
    Inboxes, Me, MessageView, OperationView, PausedKey, Payloads, QuarantinePage, QuarantineQuery,
    QuarantineReason, QuarantinedItem, Stored, StoryLine, TenantQuery,
};
pub(crate) use values::{HandlerName, HexText, KeyText, OperationUuid, Reason, StatusWord, Text, Time};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What went wrong, as RFC 9457 says. The media type is `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Problem {
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

impl Problem {
    /// What every `type` begins with.
    pub(crate) const TYPE: &str = "urn:oncebox:problem:";
}
