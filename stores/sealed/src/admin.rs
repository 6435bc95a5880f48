//! Operator views, opened with the keys of this process. Tests: `tests/at_rest.rs`.

use async_trait::async_trait;
use oncebox_core::store::{
    EntryFilter, EntryPage, Examine, ExamineLayer, Inspect, InspectLayer, MessageHistory, MessageView,
    Migrate, Migration, Operate, OperateLayer,
};
use oncebox_core::{InboxName, Key, Result};

use crate::Sealed;

#[async_trait]
impl<S: Inspect> InspectLayer for Sealed<S> {
    /// Filters errors here, because the store cannot read sealed errors. Each call reads as many entries as a
    /// store examines at a time. Otherwise an operator who searches for one error of a hundred thousand would
    /// need a call for each.
    async fn list(&self, filter: &EntryFilter) -> Result<EntryPage> {
        if self.keys.keys().is_locked() {
            // Without a key, sealed errors stay sealed: the filter finds only the store's own errors.
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
        // The next page begins with the entries that had no room, and continues with the rest of the store.
        let mut rest = filter.clone();
        // The store has filtered by handler, and may return the handler under another of its keys.
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

    async fn history(&self, inbox: &InboxName, key: &Key) -> Result<Option<MessageHistory>> {
        let mut history = self.store.history(inbox, key).await?;
        for attempt in history.iter_mut().flat_map(|history| &mut history.attempts) {
            attempt.error =
                attempt.error.take().map(|error| self.open_error(inbox, key, &attempt.origin, error));
        }
        Ok(history)
    }
}

impl<S: Operate> OperateLayer for Sealed<S> {}

impl<S: Examine> ExamineLayer for Sealed<S> {}

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
