//! The operator's verbs.

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

/// How much of everything there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InboxCounts {
    /// Entries by handler and status; what is zero is left out.
    pub entries: Vec<HandlerCount>,
    /// Messages remembered.
    pub messages: u64,
    /// Those of them that have no entry: no handler that is stored for was registered for their type.
    pub unrouted: u64,
    /// Messages quarantined, for whatever reason.
    pub quarantined: u64,
    /// Those of them whose key was known with another payload.
    pub conflicts: u64,
    /// Those of them that were older than what is remembered.
    pub stale: u64,
    /// Handlers that are paused.
    pub paused: Vec<HandlerKey>,
    /// Ordering keys that are paused.
    pub paused_keys: Vec<PausedKey>,
}

impl InboxCounts {
    /// Entries with a status, over all handlers.
    pub fn with_status(&self, status: Status) -> u64 {
        self.entries.iter().filter(|entry| entry.status == status).map(|entry| entry.count).sum()
    }
}

/// An entry as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryView {
    /// The message.
    pub seq: Seq,
    /// Its dedupe key, by which the entry can be shown and acted on.
    pub key: Key,
    /// The handler, under the newest of its keys.
    pub handler: HandlerKey,
    /// The first key that the store knew the handler by.
    pub origin: HandlerKey,
    /// Where it stands.
    pub status: Status,
    /// Failed attempts.
    pub attempts: u32,
    /// How far it is suspected of taking its worker down.
    pub suspicion: Suspicion,
    /// How often it was replayed.
    pub generation: u32,
    /// When it is due (pending), when its lease ends (running), or when it was finished. [`Timestamp::MAX`] for an
    /// entry that waits for an earlier one with the same ordering key.
    pub at: Timestamp,
    /// Why it was poisoned.
    pub reason: Option<PoisonReason>,
    /// What the handler said last.
    pub error: Option<ErrorText>,
    /// What it is to those behind it, if it is poisoned and has an ordering key.
    pub in_line: Option<InLine>,
    /// When its message came.
    pub received_at: Timestamp,
    /// Whose message it is.
    pub tenant: Option<Box<str>>,
    /// What its message says of itself; nothing once the message has left, before its key.
    pub label: Option<MessageLabel>,
}

impl EntryView {
    /// A pending entry that was never tried, for a store to fill in.
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

    /// The same, with what is known of its message.
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

    /// The same, with what its message says.
    #[must_use]
    pub fn labelled(self, received_at: Timestamp, message: &Message) -> Self {
        self.of_message(received_at, message.tenant().map(Into::into), Some(MessageLabel::of(message)))
    }

    /// Its place in lists.
    pub fn cursor(&self) -> EntryCursor {
        EntryCursor::new(self.seq, self.handler.clone())
    }

    /// Whether it is poisoned, and those behind it with its ordering key went on without it.
    pub fn is_skipped(&self) -> bool {
        self.in_line == Some(InLine::Skipped)
    }
}

/// Which blocked keys to list.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BlockedParams {
    /// The inbox.
    pub inbox: InboxName,
    /// Only keys of this tenant: an ordering key belongs to one.
    pub tenant: Option<Box<str>>,
    /// At most this many.
    pub limit: usize,
}

impl BlockedParams {
    /// The hundred keys that are blocked by the oldest messages.
    pub fn new(inbox: InboxName) -> Self {
        Self { inbox, tenant: None, limit: 100 }
    }
}

/// An ordering key that a poisoned entry holds back, for one handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockedKey {
    /// The handler key that the entries are stored under.
    pub handler: HandlerKey,
    /// The ordering key, as the producer gave it; empty if its message cannot be read any more.
    pub ordering_key: Vec<u8>,
    /// The poisoned entry in front: the message's number.
    pub head: Seq,
    /// Its dedupe key, by which it can be retried, discarded or unblocked.
    pub head_key: Key,
    /// When it was poisoned.
    pub since: Timestamp,
    /// Whether those behind it are parked, not pending.
    pub parks: bool,
    /// How many are behind it, under the same handler key.
    pub waiting: u64,
    /// When the oldest of those was received.
    pub oldest: Option<Timestamp>,
}

impl BlockedKey {
    /// A key with nobody waiting, for a store to fill in.
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

/// Everything a store knows of one key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MessageView {
    /// The key.
    pub key: Key,
    /// Whose it is. The tenant is part of the key, so all that is known of a key belongs to one.
    pub tenant: Option<Box<str>>,
    /// The stored message, its number and when it came; `None` if only quarantined are known.
    pub stored: Option<(Seq, Timestamp, Arc<Message>)>,
    /// Its entries, by handler and generation, finished ones included.
    pub entries: Vec<EntryView>,
    /// Whether an operator erased the content of the message. Then `stored` is nothing, and the key is remembered all the same.
    pub erased: bool,
    /// Messages under the same key that were quarantined, the first [`MAX_QUARANTINED`](Self::MAX_QUARANTINED) of them: a producer that uses one id
    /// for everything must not fill the memory of whoever looks. All of them are listed by [`Admin::quarantined`].
    pub quarantined: Vec<Quarantined>,
}

impl MessageView {
    /// How many messages that were quarantined are shown at most.
    pub const MAX_QUARANTINED: usize = 20;

    /// A view with nothing in it, for a store to fill in.
    pub fn new(key: Key) -> Self {
        Self { key, tenant: None, stored: None, entries: Vec::new(), erased: false, quarantined: Vec::new() }
    }
}

/// What an operator of one tenant can see and do: nothing of another tenant is shown, counted or touched.
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
    /// What `tenant` has in an inbox.
    pub fn new(store: &'a S, inbox: InboxName, tenant: impl Into<Box<str>>) -> Self {
        Self { store, inbox, tenant: tenant.into() }
    }

    /// How much of everything there is.
    pub async fn count(&self) -> Result<InboxCounts> {
        self.store.count_tenant(&self.inbox, &self.tenant).await
    }

    /// A filter for the first hundred entries with a status.
    pub fn filter(&self, status: Status) -> EntryFilter {
        EntryFilter { tenant: Some(self.tenant.clone()), ..EntryFilter::new(self.inbox.clone(), status) }
    }

    /// Entries with a status. The inbox and tenant of the filter are not looked at.
    pub async fn list(&self, filter: &EntryFilter) -> Result<EntryPage> {
        let (inbox, tenant) = (self.inbox.clone(), Some(self.tenant.clone()));
        self.store.list(&EntryFilter { inbox, tenant, ..filter.clone() }).await
    }

    /// A filter for the first hundred messages that were quarantined.
    pub fn quarantine_filter(&self) -> QuarantineFilter {
        QuarantineFilter { tenant: Some(self.tenant.clone()), ..QuarantineFilter::new(self.inbox.clone()) }
    }

    /// Messages that were quarantined. The inbox and tenant of the filter are not looked at.
    pub async fn quarantined(&self, filter: &QuarantineFilter) -> Result<QuarantinePage> {
        let (inbox, tenant) = (self.inbox.clone(), Some(self.tenant.clone()));
        self.store.quarantined(&QuarantineFilter { inbox, tenant, ..filter.clone() }).await
    }

    /// At most `limit` ordering keys that are held back by a poisoned entry, those with the oldest message in front first.
    pub async fn blocked(&self, limit: usize) -> Result<Vec<BlockedKey>> {
        let (inbox, tenant) = (self.inbox.clone(), Some(self.tenant.clone()));
        self.store.blocked(&BlockedParams { inbox, tenant, limit }).await
    }

    /// Everything known of a key.
    pub async fn show(&self, key: &Key) -> Result<Option<MessageView>> {
        let view = self.store.show(&self.inbox, key).await?;
        Ok(view.filter(|view| view.tenant.as_deref() == Some(&*self.tenant)))
    }

    /// Everything known of a key, what happened to it, and what it waits for.
    pub async fn explain(&self, key: &Key) -> Result<Option<Explanation>> {
        // What stands ahead has the same ordering key, and so the same tenant.
        let explained = self.store.explain(&self.inbox, key).await?;
        Ok(explained.filter(|explained| explained.view.tenant.as_deref() == Some(&*self.tenant)))
    }

    /// Retries, discards or replays one entry. A key of another tenant is not found.
    pub async fn operate(&self, key: &Key, handler: &HandlerKey, operation: Operation) -> Result<EntryView> {
        // A key belongs to one tenant for good, so what was seen before the operation is true during it.
        if self.show(key).await?.is_none() {
            let what = format!("there is no entry of {key} for {handler:?}");
            return Err(Error::new(ErrorKind::NotFound, what));
        }
        self.store.operate(&self.inbox, key, handler, operation).await
    }

    /// Does what is asked for with one entry, and records it. A key of another tenant is not found, and what concerns all
    /// tenants is refused. The inbox of the action is not looked at.
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

/// What an operator can see and do.
#[async_trait]
pub trait Admin: Store {
    /// How much of everything there is.
    async fn count(&self, inbox: &InboxName) -> Result<InboxCounts>;

    /// How much there is of one tenant. Handlers are paused for all tenants, and are listed for each.
    async fn count_tenant(&self, inbox: &InboxName, tenant: &str) -> Result<InboxCounts>;

    /// Entries that a filter takes, oldest message first, a page at a time. A page may be short, or empty, and still have a
    /// next one: [`EntryFilter::EXAMINED`].
    async fn list(&self, filter: &EntryFilter) -> Result<EntryPage>;

    /// Everything known of a key.
    async fn show(&self, inbox: &InboxName, key: &Key) -> Result<Option<MessageView>>;

    /// What is remembered of a key beyond where its entries stand; nothing if there is no message under it.
    async fn history(&self, inbox: &InboxName, key: &Key) -> Result<Option<MessageHistory>>;

    /// Everything known of a key, what happened to it, and what it waits for.
    ///
    /// It is put together from several looks, so what changes meanwhile may be told as it was and as it is.
    async fn explain(&self, inbox: &InboxName, key: &Key) -> Result<Option<Explanation>> {
        let Some(view) = self.show(inbox, key).await? else { return Ok(None) };
        let history = self.history(inbox, key).await?.unwrap_or_default();
        let filter = AuditFilter { key: Some(*key), limit: 1_000, ..AuditFilter::new(inbox.clone()) };
        let mut operations = self.audit(&filter).await?.operations;
        operations.reverse();
        Ok(Some(Explanation::new(view, history, operations)))
    }

    /// Messages that were quarantined, the first kept first, a page at a time. No payload is read for it.
    async fn quarantined(&self, filter: &QuarantineFilter) -> Result<QuarantinePage>;

    /// Gives a handler entries for messages that are still stored and have none for it, a page at a time and in the
    /// order of acceptance: for one that was added after they came. Calling it again changes nothing, so what was
    /// interrupted is done again from where it is known to have been, or from the start. Accepting, claiming and
    /// sweeping go on meanwhile.
    async fn backfill(&self, params: &BackfillParams) -> Result<Backfilled>;

    /// Ordering keys that are held back by a poisoned entry, those with the oldest message in front first. One with nobody
    /// behind it is listed too: the next message would wait.
    async fn blocked(&self, params: &BlockedParams) -> Result<Vec<BlockedKey>>;

    /// Does what an operator asks for, and records who did and why, in one transaction. What is refused is not recorded.
    ///
    /// The same action under the same identity is done once, and answered the same each time, so one whose answer was lost is
    /// asked for again. Another action under that identity is an error of kind
    /// [`OperationReused`](ErrorKind::OperationReused).
    async fn act(&self, action: &Action) -> Result<Acted>;

    /// The records of operations, the latest first, a page at a time.
    async fn audit(&self, filter: &AuditFilter) -> Result<AuditPage>;

    /// Notes how far a long operation has come, if nobody has since it was noted for the `noted`th time; says whether it is
    /// noted now.
    async fn progress(&self, id: OperationId, noted: u32, progress: &str) -> Result<bool>;

    /// What the store knows of its own health: settings, indexes, clocks.
    async fn examine(&self, params: &ExamineParams) -> Result<Vec<Finding>>;

    /// What an operator should know of an inbox and its store, the worst first.
    async fn doctor(&self, params: &ExamineParams) -> Result<Vec<Finding>> {
        let mut findings = self.examine(params).await?;
        match super::examine::of_inbox(self, params).await {
            Ok(found) => findings.extend(found),
            // What is wrong with the store is probably why, and is what has to be told.
            Err(error) if findings.iter().any(|finding| finding.severity == super::Severity::Danger) => {
                tracing::warn!(inbox = %params.inbox, %error, "the store was examined, and the inbox could not be");
            }
            Err(error) => return Err(error),
        }
        findings.sort_by(|a, b| (b.severity, a.code).cmp(&(a.severity, b.code)));
        Ok(findings)
    }

    /// Retries, discards, replays or unblocks one entry, for nobody in particular: short for [`act`](Self::act), and answered as that is,
    /// without the text of an error.
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

    /// Lets those behind a poisoned entry with its ordering key go on without it; it stays poisoned, and is flagged as
    /// skipped. Refused if nothing is held back by it. Short for [`act`](Self::act).
    async fn unblock(&self, inbox: &InboxName, key: &Key, handler: &HandlerKey) -> Result<EntryView> {
        self.operate(inbox, key, handler, Operation::Unblock).await
    }

    /// Stops claims for a handler, on every worker. What runs already goes on. Short for [`act`](Self::act).
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

    /// Erases the content of one message, and of what was quarantined under its key: payloads, headers, ids, errors and results. The
    /// proof of the key stays, so that the same message is still a duplicate. Refused while an entry of it runs, and unless
    /// `discard_unfinished` is set while one waits. Short for [`act`](Self::act).
    async fn erase(&self, inbox: &InboxName, key: &Key, discard_unfinished: bool) -> Result<ErasureCounts> {
        let what = ActionKind::Erase { key: *key, discard_unfinished };
        match self.act(&Action::new(inbox.clone(), what)).await?.answer {
            ActionResult::Erased(counts) => Ok(counts),
            _ => Err(Error::new(ErrorKind::Corrupt, "an erasure was answered without its counts")),
        }
    }

    /// Removes messages quarantined longer than `age`, a bounded number at a time; returns how many. Entries are not
    /// touched: a poisoned one is discarded first, and leaves with its retention. Short for [`act`](Self::act).
    async fn purge(&self, inbox: &InboxName, age: Duration, limit: usize) -> Result<usize> {
        match self.act(&Action::new(inbox.clone(), ActionKind::Purge { age, limit })).await?.answer {
            ActionResult::Purged(count) => Ok(count),
            _ => Err(Error::new(ErrorKind::Corrupt, "a purge was answered without a count")),
        }
    }
}
