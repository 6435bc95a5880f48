//! The trait that commands use for an inbox, whether on its store or through the API. Both return the same wire types.

use std::time::Duration;

use async_trait::async_trait;
use oncebox::{HandlerKey, Key};

use super::CommandError;
use crate::api::wire;

/// Callback for the progress of a long operation.
pub(super) type ProgressFn<'a> = &'a mut (dyn FnMut(&wire::BulkReport) + Send);

/// Arguments of a doctor query.
#[derive(Clone, Debug, Default)]
pub(super) struct DoctorQuery {
    /// Handlers that run anywhere.
    pub(super) handlers: Option<Vec<HandlerKey>>,
    /// Longest time after its first delivery until a message may be redelivered.
    pub(super) redelivery: Option<Duration>,
}

/// Arguments of a backfill.
#[derive(Clone, Debug)]
pub(super) struct BackfillPlan {
    pub(super) action: wire::BackfillAction,
    /// Types that the handler takes. Default: as the configuration or the serving process says.
    pub(super) types: Vec<Box<str>>,
    /// Former keys.
    pub(super) legacy: Vec<HandlerKey>,
    /// Maximum entries.
    pub(super) limit: Option<usize>,
}

/// An inbox as operators see it.
#[async_trait]
pub(super) trait OperatorClient: Send + Sync {
    async fn counts(&self, tenant: Option<&str>) -> Result<wire::InboxTotals, CommandError>;
    async fn entries(&self, query: &wire::EntriesQuery) -> Result<wire::EntryList, CommandError>;
    async fn message(&self, key: &Key) -> Result<wire::MessageDetails, CommandError>;
    async fn payloads(&self, key: &Key) -> Result<wire::MessagePayloads, CommandError>;
    async fn explain(&self, key: &Key) -> Result<wire::MessageExplanation, CommandError>;
    async fn quarantined(&self, query: &wire::QuarantineQuery) -> Result<wire::QuarantineList, CommandError>;
    async fn blocked(&self, query: &wire::BlockedQuery) -> Result<wire::BlockedKeyList, CommandError>;
    async fn audit(&self, query: &wire::AuditQuery) -> Result<wire::OperationList, CommandError>;
    async fn doctor(&self, query: &DoctorQuery) -> Result<Vec<wire::DoctorFinding>, CommandError>;
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
    /// Runs the operation until it ends or stops.
    async fn bulk(
        &self,
        action: &wire::BulkAction,
        on_progress: ProgressFn<'_>,
    ) -> Result<wire::BulkReport, CommandError>;
    async fn purge_preview(&self, plan: &wire::PurgePlan) -> Result<wire::PurgePreview, CommandError>;
    async fn purge(&self, purge: &wire::PurgeAction) -> Result<wire::ActionResponse, CommandError>;
    /// Runs the operation until it ends or stops.
    async fn backfill(
        &self,
        plan: &BackfillPlan,
        on_progress: ProgressFn<'_>,
    ) -> Result<wire::BulkReport, CommandError>;
}
