//! Operator verbs of the memory store.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::Memory;
use super::tables::{InboxTables, MemoryEntry, MemoryMessage};
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;
use crate::name::{HandlerKey, InboxName};
use crate::state::{InLine, Operation, Status, Suspicion, operate};
use crate::store::{
    Acted, Action, AuditFilter, AuditPage, BackfillParams, Backfilled, BlockedKey, BlockedParams,
    EntryCursor, EntryFilter, EntryPage, EntryView, Examine, ExamineParams, Finding, HandlerCount,
    InboxCounts, Inspect, MessageHistory, MessageLabel, MessageView, Operate, OperationId, PausedKey,
    QuarantineFilter, QuarantinePage, QuarantineReason, Quarantined, QuarantinedView, Seq, Severity,
    content_erased,
};
use crate::time::Timestamp;

#[async_trait]
impl Inspect for Memory {
    async fn count(&self, inbox: &InboxName, tenant: Option<&str>) -> Result<InboxCounts> {
        Ok(self.shared.change(|tables, _| match tenant {
            None => tables.scope(inbox).count(),
            Some(tenant) => tables.scope(inbox).count_tenant(tenant),
        }))
    }

    async fn list(&self, filter: &EntryFilter) -> Result<EntryPage> {
        self.shared.change(|tables, _| tables.scope(&filter.inbox).list(filter))
    }

    async fn show(&self, inbox: &InboxName, key: &Key) -> Result<Option<MessageView>> {
        Ok(self.shared.change(|tables, _| tables.scope(inbox).show(key)))
    }

    async fn history(&self, inbox: &InboxName, key: &Key) -> Result<Option<MessageHistory>> {
        Ok(self.shared.change(|tables, now| tables.scope(inbox).history(key, now)))
    }

    async fn blocked(&self, params: &BlockedParams) -> Result<Vec<BlockedKey>> {
        Ok(self.shared.change(|tables, _| tables.scope(&params.inbox).blocked(params)))
    }

    async fn quarantined(&self, filter: &QuarantineFilter) -> Result<QuarantinePage> {
        Ok(self.shared.change(|tables, _| tables.scope(&filter.inbox).quarantined_page(filter)))
    }

    async fn audit(&self, filter: &AuditFilter) -> Result<AuditPage> {
        Ok(self.shared.change(|tables, _| tables.operations.page(filter)))
    }
}

#[async_trait]
impl Operate for Memory {
    async fn backfill(&self, params: &BackfillParams) -> Result<Backfilled> {
        Ok(self.shared.change(|tables, now| tables.scope(&params.inbox).backfill(params, now)))
    }

    async fn act(&self, action: &Action) -> Result<Acted> {
        self.shared.change(|tables, now| tables.act(action, now))
    }

    async fn progress(&self, id: OperationId, noted: u32, progress: &str) -> Result<bool> {
        Ok(self.shared.change(|tables, _| tables.operations.note(id, noted, progress)))
    }
}

#[async_trait]
impl Examine for Memory {
    async fn examine(&self, params: &ExamineParams) -> Result<Vec<Finding>> {
        let lasts = Finding::new(
            Severity::Info,
            "not_durable",
            "this store lasts as long as the process",
            "take a store with a database for what must not be forgotten",
        );
        let unending = self.shared.change(|tables, _| {
            let windows = &tables.scope(&params.inbox).windows;
            let unending = windows.iter().filter(|one| one.window == Duration::MAX);
            params.unending(unending.map(|one| one.handler.as_ref().map_or("", HandlerKey::as_str)))
        });
        let windows = self.shared.change(|tables, now| tables.scope(&params.inbox).windows(params, now));
        let skew = params.skew(self.shared.clock.now());
        Ok(skew.into_iter().chain(windows).chain(unending).chain([lasts]).collect())
    }
}

impl InboxTables {
    fn count(&self) -> InboxCounts {
        let mut counts = InboxCounts::default();
        counts.entries = self.counted(BTreeSet::len);
        let unrouted = self.messages.values().filter(|stored| stored.entries.is_empty()).count();
        let stale =
            self.quarantined.values().filter(|item| item.reason == QuarantineReason::Stale).count() as u64;
        let quarantined = self.quarantined.len() as u64;
        (counts.messages, counts.unrouted) = (self.messages.len() as u64, unrouted as u64);
        (counts.quarantined, counts.conflicts, counts.stale) = (quarantined, quarantined - stale, stale);
        (counts.paused, counts.paused_keys) = (self.paused(), self.paused_keys(|_| true));
        counts
    }

    /// Counts entries by handler and status, under the name of the handler.
    fn counted(&self, count: impl Fn(&BTreeSet<Seq>) -> usize) -> Vec<HandlerCount> {
        let counted = self.indexes.by_status().map(|(handler, status, entries)| HandlerCount {
            handler: self.names.name(handler),
            status,
            count: count(entries) as u64,
        });
        let mut counted: Vec<_> = counted.filter(|counted| counted.count > 0).collect();
        counted.sort_by(|a, b| (&a.handler, a.status).cmp(&(&b.handler, b.status)));
        counted
    }

    /// Returns the names of paused handlers.
    pub(super) fn paused(&self) -> Vec<HandlerKey> {
        let mut paused: Vec<_> = self.paused.iter().map(|handler| self.names.name(handler)).collect();
        paused.sort();
        paused
    }

    /// Returns the paused ordering keys, under the name of their handler.
    fn paused_keys(&self, wanted: impl Fn(&PausedKey) -> bool) -> Vec<PausedKey> {
        let named =
            |key: &PausedKey| PausedKey { handler: self.names.name(&key.handler), line: key.line.clone() };
        let mut keys: Vec<_> = self.paused_keys.iter().filter(|key| wanted(key)).map(named).collect();
        keys.sort();
        keys
    }

    fn count_tenant(&self, tenant: &str) -> InboxCounts {
        let is_theirs = |seq: &&Seq| self.is_of(**seq, tenant);
        let mut counts = InboxCounts::default();
        counts.entries = self.counted(|entries| entries.iter().filter(is_theirs).count());
        let messages = || self.messages.values().filter(|stored| stored.message.tenant() == Some(tenant));
        let quarantined = || self.quarantined.values().filter(|item| item.message.tenant() == Some(tenant));
        let stale = quarantined().filter(|item| item.reason == QuarantineReason::Stale).count() as u64;
        let quarantined = quarantined().count() as u64;
        counts.messages = messages().count() as u64;
        counts.unrouted = messages().filter(|stored| stored.entries.is_empty()).count() as u64;
        (counts.quarantined, counts.conflicts, counts.stale) = (quarantined, quarantined - stale, stale);
        counts.paused = self.paused();
        counts.paused_keys = self.paused_keys(|key| key.line.tenant.as_deref() == Some(tenant));
        counts
    }

    /// Returns true if a message belongs to a tenant.
    fn is_of(&self, seq: Seq, tenant: &str) -> bool {
        self.messages.get(&seq).is_some_and(|stored| stored.message.tenant() == Some(tenant))
    }

    fn list(&self, filter: &EntryFilter) -> Result<EntryPage> {
        let filter = &filter.named(|key| self.names.name(&self.names.origin(key)));
        let from = filter.after.as_ref().map_or(Bound::Unbounded, |after| Bound::Included(after.seq()));
        let mut places: Vec<EntryCursor> = self
            .indexes
            .by_status()
            .filter(|(_, status, _)| filter.wants(*status))
            .flat_map(|(handler, _, entries)| {
                let name = self.names.name(handler);
                let places = entries
                    .range((from, Bound::Unbounded))
                    .map(move |seq| EntryCursor::new(*seq, name.clone()));
                let ahead = places.filter(|place| filter.after.as_ref().is_none_or(|after| after < place));
                ahead.take(EntryFilter::EXAMINED + 1)
            })
            .collect();
        places.sort_unstable();
        let more = places.len() > EntryFilter::EXAMINED;
        places.truncate(EntryFilter::EXAMINED);
        let found = places.into_iter().map(|place| {
            let entry = self.view(place.seq(), &self.names.origin(place.handler()));
            Ok((place, entry))
        });
        filter.page(found, more)
    }

    fn show(&self, key: &Key) -> Option<MessageView> {
        let mut view = MessageView::new(*key);
        if let Some(seq) = self.keys.get(key)
            && let Some(stored) = self.messages.get(seq)
        {
            view.erased = stored.fingerprint.is_erased();
            let message = || (*seq, stored.received_at, Arc::clone(&stored.message));
            view.stored = (!view.erased).then(message);
            view.tenant = stored.message.tenant().map(Into::into);
            for (handler, entry) in &stored.entries {
                let name = self.names.name(handler);
                let past = entry.past.iter().map(|past| past.view(*seq, *key, handler, name.clone()));
                view.entries.extend(past.map(|past| stored.labelled(past)));
                view.entries.extend(self.view(*seq, handler));
            }
        }
        let quarantined = self.quarantined.range((*key, [0; 16])..=(*key, [u8::MAX; 16]));
        view.quarantined = quarantined
            .take(MessageView::MAX_QUARANTINED)
            .map(|(_, item)| Quarantined {
                reason: item.reason,
                received_at: item.received_at,
                message: Arc::clone(&item.message),
            })
            .collect();
        if let (None, Some(item)) = (&view.tenant, view.quarantined.first()) {
            view.tenant = item.message.tenant().map(Into::into);
        }
        (view.stored.is_some() || view.erased || !view.quarantined.is_empty()).then_some(view)
    }

    fn blocked(&self, params: &BlockedParams) -> Vec<BlockedKey> {
        let theirs = |seq| params.tenant.as_ref().is_none_or(|tenant| self.is_of(seq, tenant));
        let mut heads: Vec<_> = self.indexes.blocked().filter(|(seq, ..)| theirs(*seq)).collect();
        heads.sort_unstable_by_key(|(seq, handler, _)| (*seq, *handler));
        heads.truncate(params.limit);
        let blocked = |(seq, handler, order): (Seq, &HandlerKey, _)| {
            let stored = self.messages.get(&seq)?;
            let entry = stored.entries.get(handler)?;
            let behind = self.indexes.behind(seq, handler, order);
            let mut key = BlockedKey::new(self.names.name(handler), seq, stored.key, entry.at);
            key.ordering_key = stored.message.ordering_key().unwrap_or_default().to_vec();
            key.parks = entry.in_line == Some(InLine::Parks);
            key.waiting = behind.map_or(0, |(count, _)| count);
            key.oldest = behind.and_then(|(_, first)| Some(self.messages.get(&first)?.received_at));
            Some(key)
        };
        heads.into_iter().filter_map(blocked).collect()
    }

    fn quarantined_page(&self, filter: &QuarantineFilter) -> QuarantinePage {
        let from = filter.after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut quarantined: Vec<QuarantinedView> = self
            .quarantined_ids
            .range((from, Bound::Unbounded))
            .filter_map(|(id, under)| Some((id, under, self.quarantined.get(under)?)))
            .filter(|(.., item)| filter.reason.is_none_or(|reason| reason == item.reason))
            .filter(|(.., item)| filter.tenant.is_none() || filter.tenant.as_deref() == item.message.tenant())
            .map(|(id, (key, _), item)| {
                let message = &item.message;
                let mut view =
                    QuarantinedView::new(*id, item.reason, *key, item.received_at, MessageLabel::of(message));
                view.tenant = message.tenant().map(Into::into);
                view.payload_bytes = message.payload().len() as u64;
                view
            })
            .take(filter.limit.saturating_add(1))
            .collect();
        let more = quarantined.len() > filter.limit;
        quarantined.truncate(filter.limit);
        let next = quarantined.last().map(|last| last.id).filter(|_| more);
        QuarantinePage::new(quarantined, next)
    }

    /// Returns the findings about the registered windows.
    fn windows(&self, params: &ExamineParams, now: Timestamp) -> Vec<Finding> {
        let late = |stored: &MemoryMessage| Some(stored.duplicates?.last.since(stored.received_at));
        let latest = self.messages.values().rev().take(ExamineParams::LOOKED).filter_map(late).max();
        params.windows(&self.windows, latest, now)
    }

    fn backfill(&mut self, params: &BackfillParams, now: Timestamp) -> Backfilled {
        let group = self.names.group(&params.route);
        let from = params.after.map_or(Bound::Unbounded, Bound::Excluded);
        let page = self.messages.range((from, Bound::Unbounded)).take(params.limit);
        let (mut last, mut looked, mut missing) = (None, 0, Vec::new());
        for (seq, stored) in page {
            (last, looked) = (Some(*seq), looked + 1);
            let has_one = || group.iter().any(|handler| stored.entries.contains_key(handler));
            if params.takes(stored.message.message_type()) && !has_one() {
                missing.push((*seq, stored.message.time()));
            }
        }
        let forgotten = group.iter().filter_map(|handler| self.watermarks.get(handler).copied()).max();
        let (stale, missing): (Vec<_>, Vec<_>) = missing
            .into_iter()
            .partition(|(_, time)| time.zip(forgotten).is_some_and(|(time, mark)| time <= mark));
        let added = missing.iter().filter(|(seq, _)| self.add_entry(*seq, &params.route, now, now)).count();
        let full = params.limit > 0 && looked == params.limit;
        Backfilled::new(added, last.filter(|_| full)).stale(stale.len())
    }

    pub(super) fn operate(
        &mut self,
        key: &Key,
        handler: &HandlerKey,
        operation: Operation,
        now: Timestamp,
    ) -> Result<EntryView> {
        let unknown =
            || Error::new(ErrorKind::NotFound, format!("there is no entry of {key} for {handler:?}"));
        let seq = *self.keys.get(key).ok_or_else(unknown)?;
        let handler = &self.names.origin(handler);
        let entry = self.entry(seq, handler).ok_or_else(unknown)?;
        let next = operate(entry.status, entry.in_line, operation)?;
        if next == Status::Pending && self.messages.get(&seq).is_some_and(|one| one.fingerprint.is_erased()) {
            return Err(content_erased(key));
        }
        let order = self.messages.get(&seq).and_then(|stored| stored.order);
        self.change(seq, handler, |entry| {
            entry.operated(operation, next, now);
            if operation == Operation::Replay {
                // The other stores know no more of a finished entry than what its message asks for.
                entry.order = order;
            }
        });
        self.arrange(seq, handler, now);
        self.view(seq, handler).ok_or_else(unknown)
    }

    pub(super) fn purge(&mut self, horizon: Timestamp, limit: usize) -> usize {
        // The oldest first.
        let is_old = |under: &&(Key, [u8; 16])| {
            self.quarantined.get(*under).is_some_and(|item| item.received_at <= horizon)
        };
        let old: Vec<_> = self.quarantined_ids.values().filter(is_old).take(limit).copied().collect();
        for under in &old {
            if let Some(item) = self.quarantined.remove(under) {
                self.quarantined_ids.remove(&item.id);
            }
        }
        old.len()
    }
}

impl MemoryEntry {
    /// Applies the decision of [`operate`].
    fn operated(&mut self, operation: Operation, next: Status, now: Timestamp) {
        if operation == Operation::Replay {
            return self.replayed(now);
        }
        if operation == Operation::Unblock {
            self.in_line = Some(InLine::Skipped);
            return;
        }
        self.status = next;
        self.at = now;
        (self.reason, self.in_line) = (None, None);
        if operation == Operation::Retry {
            self.attempts = 0;
            self.suspicion = Suspicion::NONE;
        }
    }
}
