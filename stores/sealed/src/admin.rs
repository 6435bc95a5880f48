//! What an operator sees, opened with the keys of this process.

use std::time::Duration;

use async_trait::async_trait;
use oncebox::state::{ErrorText, Operation};
use oncebox::store::{
    Admin, AsideFilter, AsidePage, BackfillParams, Backfilled, BlockedKey, BlockedParams, Counts, EntryView,
    Filter, MessageView, Migrate, Migration, Page,
};
use oncebox::{HandlerKey, InboxName, Key, Result};

use crate::Sealed;

#[async_trait]
impl<S: Admin> Admin for Sealed<S> {
    async fn count(&self, inbox: &InboxName) -> Result<Counts> {
        self.store.count(inbox).await
    }

    async fn count_tenant(&self, inbox: &InboxName, tenant: &str) -> Result<Counts> {
        self.store.count_tenant(inbox, tenant).await
    }

    /// The store cannot look into errors, so they are looked through here: a page is shorter for it.
    async fn list(&self, filter: &Filter) -> Result<Page> {
        let mut inner = filter.clone();
        let wanted = inner.error_contains.take();
        let mut page = self.store.list(&inner).await?;
        let entries = std::mem::take(&mut page.entries).into_iter();
        page.entries = entries.map(|entry| self.open_entry(&filter.inbox, entry)).collect();
        if let Some(wanted) = wanted {
            let holds =
                |entry: &EntryView| entry.error.as_ref().map_or("", ErrorText::as_str).contains(&*wanted);
            page.entries.retain(holds);
        }
        Ok(page)
    }

    async fn show(&self, inbox: &InboxName, key: &Key) -> Result<Option<MessageView>> {
        let Some(mut view) = self.store.show(inbox, key).await? else { return Ok(None) };
        if let Some((_, _, message)) = &mut view.stored {
            *message = self.show_message(inbox, key, message);
        }
        let entries = std::mem::take(&mut view.entries).into_iter();
        view.entries = entries.map(|entry| self.open_entry(inbox, entry)).collect();
        for aside in &mut view.kept_aside {
            aside.message = self.show_message(inbox, key, &aside.message);
        }
        Ok(Some(view))
    }

    async fn aside(&self, filter: &AsideFilter) -> Result<AsidePage> {
        let mut page = self.store.aside(filter).await?;
        for aside in &mut page.asides {
            aside.message = self.show_message(&filter.inbox, &aside.key, &aside.message);
        }
        Ok(page)
    }

    async fn backfill(&self, params: &BackfillParams) -> Result<Backfilled> {
        self.store.backfill(params).await
    }

    async fn blocked(&self, params: &BlockedParams) -> Result<Vec<BlockedKey>> {
        self.store.blocked(params).await
    }

    async fn operate(
        &self,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        operation: Operation,
    ) -> Result<EntryView> {
        let entry = self.store.operate(inbox, key, handler, operation).await?;
        Ok(self.open_entry(inbox, entry))
    }

    async fn unblock(&self, inbox: &InboxName, key: &Key, handler: &HandlerKey) -> Result<EntryView> {
        let entry = self.store.unblock(inbox, key, handler).await?;
        Ok(self.open_entry(inbox, entry))
    }

    async fn pause(&self, inbox: &InboxName, handler: &HandlerKey) -> Result<()> {
        self.store.pause(inbox, handler).await
    }

    async fn resume(&self, inbox: &InboxName, handler: &HandlerKey) -> Result<()> {
        self.store.resume(inbox, handler).await
    }

    async fn purge(&self, inbox: &InboxName, age: Duration, limit: usize) -> Result<usize> {
        self.store.purge(inbox, age, limit).await
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
