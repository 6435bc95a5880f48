//! Implementations of the store traits for `Arc`.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    Acted, Action, Admin, AuditFilter, AuditPage, BackfillParams, Backfilled, BlockedKey, BlockedParams,
    EntryFilter, EntryPage, ExamineParams, Explanation, Finding, InboxCounts, MessageHistory, MessageView,
    OperationId, QuarantineFilter, QuarantinePage,
};
use crate::error::Result;
use crate::key::Key;
use crate::name::InboxName;

#[async_trait]
impl<S: Admin + ?Sized> Admin for Arc<S> {
    async fn count(&self, inbox: &InboxName) -> Result<InboxCounts> {
        (**self).count(inbox).await
    }

    async fn count_tenant(&self, inbox: &InboxName, tenant: &str) -> Result<InboxCounts> {
        (**self).count_tenant(inbox, tenant).await
    }

    async fn list(&self, filter: &EntryFilter) -> Result<EntryPage> {
        (**self).list(filter).await
    }

    async fn show(&self, inbox: &InboxName, key: &Key) -> Result<Option<MessageView>> {
        (**self).show(inbox, key).await
    }

    async fn history(&self, inbox: &InboxName, key: &Key) -> Result<Option<MessageHistory>> {
        (**self).history(inbox, key).await
    }

    async fn explain(&self, inbox: &InboxName, key: &Key) -> Result<Option<Explanation>> {
        (**self).explain(inbox, key).await
    }

    async fn quarantined(&self, filter: &QuarantineFilter) -> Result<QuarantinePage> {
        (**self).quarantined(filter).await
    }

    async fn backfill(&self, params: &BackfillParams) -> Result<Backfilled> {
        (**self).backfill(params).await
    }

    async fn blocked(&self, params: &BlockedParams) -> Result<Vec<BlockedKey>> {
        (**self).blocked(params).await
    }

    async fn act(&self, action: &Action) -> Result<Acted> {
        (**self).act(action).await
    }

    async fn audit(&self, filter: &AuditFilter) -> Result<AuditPage> {
        (**self).audit(filter).await
    }

    async fn progress(&self, id: OperationId, noted: u32, progress: &str) -> Result<bool> {
        (**self).progress(id, noted, progress).await
    }

    async fn examine(&self, params: &ExamineParams) -> Result<Vec<Finding>> {
        (**self).examine(params).await
    }

    async fn doctor(&self, params: &ExamineParams) -> Result<Vec<Finding>> {
        (**self).doctor(params).await
    }
}
