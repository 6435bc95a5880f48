//! Operator verbs of a store. Tests: `conformance/admin.rs` and `conformance/operations.rs` in `oncebox-testkit`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{
    Acted, Action, ActionKind, ActionResult, AuditFilter, AuditPage, BackfillParams, Backfilled, EntryCursor,
    EntryFilter, EntryPage, ErasureCounts, ExamineParams, Explanation, Finding, HandlerCount, MessageHistory,
    MessageLabel, OperationId, PausedKey, QuarantineFilter, QuarantinePage, Quarantined, Seq, Store,
};
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;
use crate::message::Message;
use crate::name::{HandlerKey, InboxName};
use crate::state::{ErrorText, InLine, Operation, PoisonReason, Status, Suspicion};
use crate::time::Timestamp;

/// Counts of an inbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InboxCounts {
    /// Entries by handler and status, without zeros.
    pub entries: Vec<HandlerCount>,
    /// Stored messages.
    pub messages: u64,
    /// Stored messages without an entry: their type had no durable handler.
    pub unrouted: u64,
    /// Quarantined messages.
    pub quarantined: u64,
    /// Quarantined messages whose key was known with another payload.
    pub conflicts: u64,
    /// Quarantined messages that were older than the watermark.
    pub stale: u64,
    /// Handlers that are paused.
    pub paused: Vec<HandlerKey>,
    /// Ordering keys that are paused.
    pub paused_keys: Vec<PausedKey>,
}

impl InboxCounts {
    /// Returns the number of entries with a status, over all handlers.
    pub fn with_status(&self, status: Status) -> u64 {
        self.entries.iter().filter(|entry| entry.status == status).map(|entry| entry.count).sum()
    }
}

/// An entry as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryView {
    /// Number of its message.
    pub seq: Seq,
    /// Dedupe key of its message. Operators show and change the entry by it.
    pub key: Key,
    /// The handler, under the newest of its keys.
    pub handler: HandlerKey,
    /// First key under which the store knew the handler.
    pub origin: HandlerKey,
    /// Status.
    pub status: Status,
    /// Failed attempts.
    pub attempts: u32,
    /// Suspicion that the entry crashes its worker.
    pub suspicion: Suspicion,
    /// Number of replays.
    pub generation: u32,
    /// Due time (pending), end of the lease (running) or time of the end. [`Timestamp::MAX`] for an entry that waits for an earlier
    /// one with the same ordering key.
    pub at: Timestamp,
    /// Reason for being poisoned.
    pub reason: Option<PoisonReason>,
    /// Last error text of the handler.
    pub error: Option<ErrorText>,
    /// Effect on the entries behind it, if it is poisoned and has an ordering key.
    pub in_line: Option<InLine>,
    /// Time when its message was received.
    pub received_at: Timestamp,
    /// Tenant of its message.
    pub tenant: Option<Box<str>>,
    /// Attributes of its message. `None` after the message was removed, while its key is still known.
    pub label: Option<MessageLabel>,
}

impl EntryView {
    /// Returns a pending entry without attempts, for a store to fill in.
    pub fn new(seq: Seq, key: Key, handler: HandlerKey, status: Status, at: Timestamp) -> Self {
        Self {
            seq,
            key,
            origin: handler.clone(),
            handler,
            status,
            attempts: 0,
            suspicion: Suspicion::NONE,
            generation: 0,
            at,
            reason: None,
            error: None,
            in_line: None,
            received_at: Timestamp::ZERO,
            tenant: None,
            label: None,
        }
    }

    /// Sets time, tenant and attributes of its message.
    #[must_use]
    pub fn of_message(
        mut self,
        received_at: Timestamp,
        tenant: Option<Box<str>>,
        label: Option<MessageLabel>,
    ) -> Self {
        (self.received_at, self.tenant, self.label) = (received_at, tenant, label);
        self
    }

    /// Sets time, tenant and attributes from its message.
    #[must_use]
    pub fn labelled(self, received_at: Timestamp, message: &Message) -> Self {
        self.of_message(received_at, message.tenant().map(Into::into), Some(MessageLabel::of(message)))
    }

    /// Returns its position in lists.
    pub fn cursor(&self) -> EntryCursor {
        EntryCursor::new(self.seq, self.handler.clone())
    }

    /// Returns true if it is poisoned and the entries behind it with its ordering key continued without it.
    pub fn is_skipped(&self) -> bool {
        self.in_line == Some(InLine::Skipped)
    }
}

/// Conditions for listing blocked keys.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BlockedParams {
    /// The inbox.
    pub inbox: InboxName,
    /// Only keys of this tenant.
    pub tenant: Option<Box<str>>,
    /// Maximum number of keys. Default: 100.
    pub limit: usize,
}

impl BlockedParams {
    /// Returns parameters for the 100 keys whose blocking message is oldest.
    pub fn new(inbox: InboxName) -> Self {
        Self { inbox, tenant: None, limit: 100 }
    }
}

/// Ordering key that a poisoned entry blocks for one handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockedKey {
    /// Handler key under which the entries are stored.
    pub handler: HandlerKey,
    /// Ordering key, as the producer gave it. Empty if its message cannot be read any more.
    pub ordering_key: Vec<u8>,
    /// Message number of the poisoned entry in front.
    pub head: Seq,
    /// Dedupe key of that message. Operators retry, discard or unblock the entry by it.
    pub head_key: Key,
    /// Time when the entry was poisoned.
    pub since: Timestamp,
    /// True if the entries behind are parked. False if they are pending.
    pub parks: bool,
    /// Number of entries behind it, under the same handler key.
    pub waiting: u64,
    /// Time when the oldest of them was received.
    pub oldest: Option<Timestamp>,
}

impl BlockedKey {
    /// Returns a key without waiting entries, for a store to fill in.
    pub fn new(handler: HandlerKey, head: Seq, head_key: Key, since: Timestamp) -> Self {
        Self {
            handler,
            ordering_key: Vec::new(),
            head,
            head_key,
            since,
            parks: false,
            waiting: 0,
            oldest: None,
        }
    }
}

/// Everything that a store knows of one key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MessageView {
    /// The key.
    pub key: Key,
    /// Tenant. It is part of the key, so everything under a key belongs to one tenant.
    pub tenant: Option<Box<str>>,
    /// Stored message, with its number and time. `None` if the key only has quarantined messages.
    pub stored: Option<(Seq, Timestamp, Arc<Message>)>,
    /// Its entries, by handler and generation, finished entries included.
    pub entries: Vec<EntryView>,
    /// True if an operator erased the content. Then `stored` is `None`, but the store still knows the key.
    pub erased: bool,
    /// Quarantined messages under the key, the first [`MAX_QUARANTINED`](Self::MAX_QUARANTINED). The limit bounds memory if a
    /// producer uses one id for everything. [`Admin::quarantined`] lists all.
    pub quarantined: Vec<Quarantined>,
}

impl MessageView {
    /// Maximum quarantined messages in a view.
    pub const MAX_QUARANTINED: usize = 20;

    /// Returns an empty view, for a store to fill in.
    pub fn new(key: Key) -> Self {
        Self { key, tenant: None, stored: None, entries: Vec::new(), erased: false, quarantined: Vec::new() }
    }
}

/// View of one tenant for operators. It shows, counts and changes nothing of another tenant.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> oncebox::Result<()> {
/// use oncebox::{InboxName, Memory, store::TenantScope};
///
/// let store = Memory::new();
/// let acme = TenantScope::new(&store, InboxName::new("orders")?, "acme");
/// assert_eq!(acme.count().await?.messages, 0);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct TenantScope<'a, S> {
    store: &'a S,
    inbox: InboxName,
    tenant: Box<str>,
}

impl<'a, S: Admin> TenantScope<'a, S> {
    /// Returns the view of `tenant` on an inbox.
    pub fn new(store: &'a S, inbox: InboxName, tenant: impl Into<Box<str>>) -> Self {
        Self { store, inbox, tenant: tenant.into() }
    }

    /// Returns the counts of the tenant.
    pub async fn count(&self) -> Result<InboxCounts> {
        self.store.count_tenant(&self.inbox, &self.tenant).await
    }

    /// Returns a filter for the first 100 entries with a status.
    pub fn filter(&self, status: Status) -> EntryFilter {
        EntryFilter { tenant: Some(self.tenant.clone()), ..EntryFilter::new(self.inbox.clone(), status) }
    }

    /// Lists entries. Ignores inbox and tenant of the filter.
    pub async fn list(&self, filter: &EntryFilter) -> Result<EntryPage> {
        let (inbox, tenant) = (self.inbox.clone(), Some(self.tenant.clone()));
        self.store.list(&EntryFilter { inbox, tenant, ..filter.clone() }).await
    }

    /// Returns a filter for the first 100 quarantined messages.
    pub fn quarantine_filter(&self) -> QuarantineFilter {
        QuarantineFilter { tenant: Some(self.tenant.clone()), ..QuarantineFilter::new(self.inbox.clone()) }
    }

    /// Lists quarantined messages. Ignores inbox and tenant of the filter.
    pub async fn quarantined(&self, filter: &QuarantineFilter) -> Result<QuarantinePage> {
        let (inbox, tenant) = (self.inbox.clone(), Some(self.tenant.clone()));
        self.store.quarantined(&QuarantineFilter { inbox, tenant, ..filter.clone() }).await
    }

    /// Lists at most `limit` blocked ordering keys, those with the oldest message in front first.
    pub async fn blocked(&self, limit: usize) -> Result<Vec<BlockedKey>> {
        let (inbox, tenant) = (self.inbox.clone(), Some(self.tenant.clone()));
        self.store.blocked(&BlockedParams { inbox, tenant, limit }).await
    }

    /// Returns everything known of a key.
    pub async fn show(&self, key: &Key) -> Result<Option<MessageView>> {
        let view = self.store.show(&self.inbox, key).await?;
        Ok(view.filter(|view| view.tenant.as_deref() == Some(&*self.tenant)))
    }

    /// Returns everything known of a key, with its history and an explanation for each entry.
    pub async fn explain(&self, key: &Key) -> Result<Option<Explanation>> {
        // Entries ahead have the same ordering key, and so the same tenant.
        let explained = self.store.explain(&self.inbox, key).await?;
        Ok(explained.filter(|explained| explained.view.tenant.as_deref() == Some(&*self.tenant)))
    }

    /// Retries, discards or replays one entry. Returns `NotFound` for a key of another tenant.
    pub async fn operate(&self, key: &Key, handler: &HandlerKey, operation: Operation) -> Result<EntryView> {
        // A key always belongs to one tenant, so the check before the operation still holds during it.
        if self.show(key).await?.is_none() {
            let what = format!("there is no entry of {key} for {handler:?}");
            return Err(Error::new(ErrorKind::NotFound, what));
        }
        self.store.operate(&self.inbox, key, handler, operation).await
    }

    /// Does an action on one entry and records it. Returns `NotFound` for a key of another tenant, and refuses actions that concern
    /// all tenants. Ignores the inbox of the action.
    pub async fn act(&self, action: &Action) -> Result<Acted> {
        let Some(key) = action.kind.key() else {
            let what = format!("{} concerns more than one tenant", action.kind.verb());
            return Err(Error::new(ErrorKind::Refused, what));
        };
        if self.show(key).await?.is_none() {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no entry of {key}")));
        }
        self.store.act(&Action { inbox: self.inbox.clone(), ..action.clone() }).await
    }
}

/// Store with verbs for operators.
#[async_trait]
pub trait Admin: Store {
    /// Returns the counts of an inbox.
    async fn count(&self, inbox: &InboxName) -> Result<InboxCounts>;

    /// Returns the counts of one tenant. Paused handlers are listed for each tenant, because they are paused for all.
    async fn count_tenant(&self, inbox: &InboxName, tenant: &str) -> Result<InboxCounts>;

    /// Lists matching entries, oldest message first. A page may be short or empty although more pages follow: see
    /// [`EntryFilter::EXAMINED`].
    async fn list(&self, filter: &EntryFilter) -> Result<EntryPage>;

    /// Returns everything known of a key.
    async fn show(&self, inbox: &InboxName, key: &Key) -> Result<Option<MessageView>>;

    /// Returns the history of a key. `None` if no message is stored under it.
    async fn history(&self, inbox: &InboxName, key: &Key) -> Result<Option<MessageHistory>>;

    /// Returns everything known of a key, with its history and an explanation for each entry.
    ///
    /// Several reads collect it, so it may mix states from before and after a concurrent change.
    async fn explain(&self, inbox: &InboxName, key: &Key) -> Result<Option<Explanation>> {
        let Some(view) = self.show(inbox, key).await? else { return Ok(None) };
        let history = self.history(inbox, key).await?.unwrap_or_default();
        let filter = AuditFilter { key: Some(*key), limit: 1_000, ..AuditFilter::new(inbox.clone()) };
        let mut operations = self.audit(&filter).await?.operations;
        operations.reverse();
        Ok(Some(Explanation::new(view, history, operations)))
    }

    /// Lists quarantined messages, the oldest first. Reads no payload.
    async fn quarantined(&self, filter: &QuarantineFilter) -> Result<QuarantinePage>;

    /// Adds entries of a handler to stored messages that have none for it, one page at a time in the order of acceptance. It serves
    /// a handler that was added after the messages. Repeating a call adds nothing twice, so an interrupted backfill restarts at its
    /// last position or from the start. Accepting, claiming and sweeping continue meanwhile.
    async fn backfill(&self, params: &BackfillParams) -> Result<Backfilled>;

    /// Lists ordering keys that a poisoned entry blocks, those with the oldest message in front first. A key without waiting
    /// entries is listed too: the next message would wait.
    async fn blocked(&self, params: &BlockedParams) -> Result<Vec<BlockedKey>>;

    /// Does an action and records its actor and reason, in one transaction. A refused action is not recorded.
    ///
    /// The store does the same action under the same identity once, and returns the same result each time. If its response is lost,
    /// the caller repeats the call. Another action under that identity is an error of kind
    /// [`OperationReused`](ErrorKind::OperationReused).
    async fn act(&self, action: &Action) -> Result<Acted>;

    /// Lists records of operations, the latest first, one page at a time.
    async fn audit(&self, filter: &AuditFilter) -> Result<AuditPage>;

    /// Notes the progress of a long operation, unless another process did so since the `noted`th note. Returns true if it did.
    async fn progress(&self, id: OperationId, noted: u32, progress: &str) -> Result<bool>;

    /// Returns findings of the store about itself: settings, indexes and clocks.
    async fn examine(&self, params: &ExamineParams) -> Result<Vec<Finding>>;

    /// Returns findings about an inbox and its store, the worst first.
    async fn doctor(&self, params: &ExamineParams) -> Result<Vec<Finding>> {
        let mut findings = self.examine(params).await?;
        match super::examine::of_inbox(self, params).await {
            Ok(found) => findings.extend(found),
            // The store's problem probably caused the error, and matters more.
            Err(error) if findings.iter().any(|finding| finding.severity == super::Severity::Danger) => {
                tracing::warn!(inbox = %params.inbox, %error, "cannot examine the inbox");
            }
            Err(error) => return Err(error),
        }
        findings.sort_by(|a, b| (b.severity, a.code).cmp(&(a.severity, b.code)));
        Ok(findings)
    }

    /// Retries, discards, replays or unblocks one entry for an unknown actor. Short for [`act`](Self::act): the returned entry has
    /// no error text.
    async fn operate(
        &self,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        operation: Operation,
    ) -> Result<EntryView> {
        let what = ActionKind::Entry { key: *key, handler: handler.clone(), operation };
        match self.act(&Action::new(inbox.clone(), what)).await?.answer {
            ActionResult::Entry(entry) => Ok(*entry),
            _ => Err(Error::new(ErrorKind::Corrupt, "an operation on an entry was answered without one")),
        }
    }

    /// Lets the entries behind a poisoned one with its ordering key continue without it. The entry stays poisoned, as skipped.
    /// Refused if it blocks nothing. Short for [`act`](Self::act).
    async fn unblock(&self, inbox: &InboxName, key: &Key, handler: &HandlerKey) -> Result<EntryView> {
        self.operate(inbox, key, handler, Operation::Unblock).await
    }

    /// Stops claims for a handler, on every worker. Running entries continue. Short for [`act`](Self::act).
    async fn pause(&self, inbox: &InboxName, handler: &HandlerKey) -> Result<()> {
        self.act(&Action::new(inbox.clone(), ActionKind::Pause { handler: handler.clone() }))
            .await
            .map(|_| ())
    }

    /// Allows claims for a handler again. Short for [`act`](Self::act).
    async fn resume(&self, inbox: &InboxName, handler: &HandlerKey) -> Result<()> {
        self.act(&Action::new(inbox.clone(), ActionKind::Resume { handler: handler.clone() }))
            .await
            .map(|_| ())
    }

    /// Erases the content of one message and of the quarantined messages under its key: payloads, headers, ids, errors and results.
    /// The proof of the key stays, so the same message is still a duplicate. Refused while an entry of it runs, and while one waits
    /// unless `discard_unfinished` is set. Short for [`act`](Self::act).
    async fn erase(&self, inbox: &InboxName, key: &Key, discard_unfinished: bool) -> Result<ErasureCounts> {
        let what = ActionKind::Erase { key: *key, discard_unfinished };
        match self.act(&Action::new(inbox.clone(), what)).await?.answer {
            ActionResult::Erased(counts) => Ok(counts),
            _ => Err(Error::new(ErrorKind::Corrupt, "an erasure was answered without its counts")),
        }
    }

    /// Removes messages that have been quarantined for longer than `age`, at most `limit`, and returns their number. It removes no
    /// entries. To remove a poisoned entry, discard it: it then expires with its retention. Short for [`act`](Self::act).
    async fn purge(&self, inbox: &InboxName, age: Duration, limit: usize) -> Result<usize> {
        match self.act(&Action::new(inbox.clone(), ActionKind::Purge { age, limit })).await?.answer {
            ActionResult::Purged(count) => Ok(count),
            _ => Err(Error::new(ErrorKind::Corrupt, "a purge was answered without a count")),
        }
    }
}
