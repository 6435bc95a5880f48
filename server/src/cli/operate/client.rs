//! What an operator can ask for, wherever the inbox is: straight on its store, or through the API of a process that serves it.
//! What comes back is the same, and in the same words.

use std::time::Duration;

use async_trait::async_trait;
use oncebox::{HandlerKey, Key};

use super::CommandError;
use crate::api::wire;

/// Is told how far a long operation has come.
pub(super) type ProgressFn<'a> = &'a mut (dyn FnMut(&wire::OperationReport) + Send);

/// What a doctor is told beside the inbox.
#[derive(Clone, Debug, Default)]
pub(super) struct DoctorQuery {
    /// The handlers that run somewhere.
    pub(super) handlers: Option<Vec<HandlerKey>>,
    /// How long after its first delivery a message may come again.
    pub(super) redelivery: Option<Duration>,
}

/// A handler that gets what was stored before it was there.
#[derive(Clone, Debug)]
pub(super) struct BackfillPlan {
    pub(super) action: wire::BackfillAction,
    /// The types of its messages; nothing if whoever runs the handler knows.
    pub(super) types: Vec<Box<str>>,
    /// Keys it had before.
    pub(super) legacy: Vec<HandlerKey>,
    /// How many entries at most.
    pub(super) limit: Option<usize>,
}

/// An inbox.
#[async_trait]
pub(super) trait OperatorClient: Send + Sync {
    async fn counts(&self, tenant: Option<&str>) -> Result<wire::InboxCounts, CommandError>;
    async fn entries(&self, query: &wire::EntriesQuery) -> Result<wire::EntryList, CommandError>;
    async fn message(&self, key: &Key) -> Result<wire::MessageDetails, CommandError>;
    async fn payloads(&self, key: &Key) -> Result<wire::MessagePayloads, CommandError>;
    async fn explain(&self, key: &Key) -> Result<wire::MessageExplanation, CommandError>;
    async fn quarantined(&self, query: &wire::QuarantineQuery) -> Result<wire::QuarantineList, CommandError>;
    async fn blocked(&self, query: &wire::BlockedQuery) -> Result<wire::BlockedKeyList, CommandError>;
    async fn audit(&self, query: &wire::AuditQuery) -> Result<wire::OperationList, CommandError>;
    async fn doctor(&self, asked: &DoctorQuery) -> Result<Vec<wire::DoctorFinding>, CommandError>;
    async fn act(
        &self,
        verb: wire::EntryVerb,
        key: &Key,
        action: &wire::EntryAction,
    ) -> Result<wire::ActionResponse, CommandError>;
    async fn erase(
        &self,
        key: &Key,
        erasure: &wire::ErasureAction,
    ) -> Result<wire::ActionResponse, CommandError>;
    async fn hold(&self, pause: bool, hold: &wire::PauseAction)
    -> Result<wire::ActionResponse, CommandError>;
    async fn preview(&self, plan: &wire::BulkPlan) -> Result<wire::BulkPreview, CommandError>;
    /// Does it to the end, or until it stops.
    async fn bulk(
        &self,
        action: &wire::BulkAction,
        told: ProgressFn<'_>,
    ) -> Result<wire::OperationReport, CommandError>;
    async fn purge_preview(&self, plan: &wire::PurgePlan) -> Result<wire::PurgePreview, CommandError>;
    async fn purge(&self, purge: &wire::PurgeAction) -> Result<wire::ActionResponse, CommandError>;
    /// Does it to the end, or until it stops.
    async fn backfill(
        &self,
        late: &BackfillPlan,
        told: ProgressFn<'_>,
    ) -> Result<wire::OperationReport, CommandError>;
}
