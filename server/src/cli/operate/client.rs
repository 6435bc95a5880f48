//! What an operator can ask for, wherever the inbox is: straight on its store, or through the API of a process that serves it.
//! What comes back is the same, and in the same words.

use std::time::Duration;

use async_trait::async_trait;
use oncebox::{HandlerKey, Key};

use super::Failed;
use crate::api::wire;

/// Is told how far a long operation has come.
pub(super) type ProgressFn<'a> = &'a mut (dyn FnMut(&wire::Report) + Send);

/// What a doctor is told beside the inbox.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    /// The handlers that run somewhere.
    pub(super) handlers: Option<Vec<HandlerKey>>,
    /// How long after its first delivery a message may come again.
    pub(super) redelivery: Option<Duration>,
}

/// A handler that gets what was stored before it was there.
#[derive(Clone, Debug)]
pub(super) struct Late {
    pub(super) action: wire::Backfill,
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
    async fn counts(&self, tenant: Option<&str>) -> Result<wire::Counts, Failed>;
    async fn entries(&self, query: &wire::EntriesQuery) -> Result<wire::Entries, Failed>;
    async fn message(&self, key: &Key) -> Result<wire::MessageView, Failed>;
    async fn payloads(&self, key: &Key) -> Result<wire::Payloads, Failed>;
    async fn explain(&self, key: &Key) -> Result<wire::Explained, Failed>;
    async fn quarantined(&self, query: &wire::QuarantineQuery) -> Result<wire::QuarantinePage, Failed>;
    async fn blocked(&self, query: &wire::BlockedQuery) -> Result<wire::Blocked, Failed>;
    async fn audit(&self, query: &wire::AuditQuery) -> Result<wire::AuditPage, Failed>;
    async fn doctor(&self, asked: &Asked) -> Result<Vec<wire::Finding>, Failed>;
    async fn act(
        &self,
        verb: wire::Verb,
        key: &Key,
        action: &wire::EntryAction,
    ) -> Result<wire::Acted, Failed>;
    async fn erase(&self, key: &Key, erasure: &wire::ErasureAction) -> Result<wire::Acted, Failed>;
    async fn hold(&self, pause: bool, hold: &wire::Hold) -> Result<wire::Acted, Failed>;
    async fn preview(&self, plan: &wire::BulkPlan) -> Result<wire::Preview, Failed>;
    /// Does it to the end, or until it stops.
    async fn bulk(&self, action: &wire::BulkAction, told: ProgressFn<'_>) -> Result<wire::Report, Failed>;
    async fn purge_preview(&self, plan: &wire::PurgePlan) -> Result<wire::PurgePreview, Failed>;
    async fn purge(&self, purge: &wire::Purge) -> Result<wire::Acted, Failed>;
    /// Does it to the end, or until it stops.
    async fn backfill(&self, late: &Late, told: ProgressFn<'_>) -> Result<wire::Report, Failed>;
}
