//! Operator views, opened with the keys of this process.

use async_trait::async_trait;
use oncebox_core::store::{
    Acted, Action, Admin, AuditFilter, AuditPage, BackfillParams, Backfilled, BlockedKey, BlockedParams,
    EntryFilter, EntryPage, ExamineParams, Finding, InboxCounts, MessageHistory, MessageView, Migrate,
    Migration, OperationId, QuarantineFilter, QuarantinePage,
};
use oncebox_core::{InboxName, Key, Result};

use crate::Sealed;

#[async_trait]
impl<S: Admin> Admin for Sealed<S> {
    async fn count(&self, inbox: &InboxName) -> Result<InboxCounts> {
        self.store.count(inbox).await
    }

    async fn count_tenant(&self, inbox: &InboxName, tenant: &str) -> Result<InboxCounts> {
        self.store.count_tenant(inbox, tenant).await
    }

    /// The store cannot look into errors, so they are looked through here, as many at a time as a store looks at. Otherwise an
    /// operator who wants one of a hundred thousand would ask for each of them.
    async fn list(&self, filter: &EntryFilter) -> Result<EntryPage> {
        if self.keys.keys().is_locked() {
            // What is sealed stays so: only the store's own errors can be found.
            let mut page = self.store.list(filter).await?;
            let entries = page.entries.into_iter().map(|entry| self.open_entry(&filter.inbox, entry));
            page.entries = entries.collect();
            return Ok(page);
        }
        let mut inner = filter.clone();
        if inner.error_contains.take().is_some() {
            inner.limit = EntryFilter::EXAMINED;
        }
        let page = self.store.list(&inner).await?;
        let opened = page.entries.into_iter().map(|entry| self.open_entry(&filter.inbox, entry));
        // Those that there was no room for come next, then what the store has left.
        let mut rest = filter.clone();
        // The store has chosen by handler, and may call it by another of its keys.
        rest.handler = None;
        let mut made = rest.page(opened.map(|entry| Ok((entry.cursor(), Some(entry)))), false)?;
        made.next = made.next.or(page.next);
        Ok(made)
    }

    async fn show(&self, inbox: &InboxName, key: &Key) -> Result<Option<MessageView>> {
        let Some(mut view) = self.store.show(inbox, key).await? else { return Ok(None) };
        if let Some((_, _, message)) = &mut view.stored {
            *message = self.show_message(inbox, key, message);
        }
        let entries = std::mem::take(&mut view.entries).into_iter();
        view.entries = entries.map(|entry| self.open_entry(inbox, entry)).collect();
        for item in &mut view.quarantined {
            item.message = self.show_message(inbox, key, &item.message);
        }
        Ok(Some(view))
    }

    async fn quarantined(&self, filter: &QuarantineFilter) -> Result<QuarantinePage> {
        self.store.quarantined(filter).await
    }

    async fn backfill(&self, params: &BackfillParams) -> Result<Backfilled> {
        self.store.backfill(params).await
    }

    async fn blocked(&self, params: &BlockedParams) -> Result<Vec<BlockedKey>> {
        self.store.blocked(params).await
    }

    async fn history(&self, inbox: &InboxName, key: &Key) -> Result<Option<MessageHistory>> {
        let mut history = self.store.history(inbox, key).await?;
        for attempt in history.iter_mut().flat_map(|history| &mut history.attempts) {
            attempt.error =
                attempt.error.take().map(|error| self.open_error(inbox, key, &attempt.origin, error));
        }
        Ok(history)
    }

    async fn act(&self, action: &Action) -> Result<Acted> {
        self.store.act(action).await
    }

    async fn audit(&self, filter: &AuditFilter) -> Result<AuditPage> {
        self.store.audit(filter).await
    }

    async fn progress(&self, id: OperationId, noted: u32, progress: &str) -> Result<bool> {
        self.store.progress(id, noted, progress).await
    }

    async fn examine(&self, params: &ExamineParams) -> Result<Vec<Finding>> {
        self.store.examine(params).await
    }
}

#[async_trait]
impl<S: Migrate> Migrate for Sealed<S> {
    async fn current(&self) -> Result<u32> {
        self.store.current().await
    }

    async fn pending(&self) -> Result<Vec<Migration>> {
        self.store.pending().await
    }

    async fn apply(&self) -> Result<Vec<Migration>> {
        self.store.apply().await
    }
}
