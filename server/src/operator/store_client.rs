//! An [`OperatorClient`] on a store. Tests: below, `tests/operate/` and `tests/serve/api/`.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use oncebox::operate::BulkOperation;
use oncebox::state::ErrorText;
use oncebox::store::{
    Acted, Action, ActionKind, Actor, Admin, AuditFilter, Backlog, BacklogParams, BlockedBacklog,
    BlockedParams, EntryCursor, ExamineParams, MessageView, OperationId, OperationView, QuarantineFilter,
    QuarantineId, QuarantineReason,
};
use oncebox::time::{SharedClock, SystemClock};
use oncebox::{Error, ErrorKind, HandlerKey, InboxName, Key};

use super::pause::{PauseOperation, hold_of, queue_of};
use super::show::{self, Privacy};
use super::{BackfillPlan, DoctorQuery, OperatorClient, OperatorError, OperatorResult, ProgressFn, wire};
use crate::config::InboxPlan;

/// Words of an interface in errors of its requests.
#[derive(Debug)]
pub(crate) struct RequestWords {
    /// Error for a missing actor.
    pub(crate) actor: &'static str,
    /// Advice for a filter that is too wide.
    pub(crate) everything: &'static str,
    /// Name of the parameter for an unknown handler.
    pub(crate) unknown: &'static str,
}

/// The only code that reads and changes a store for an operator.
#[derive(Clone)]
pub(crate) struct StoreClient {
    pub(super) store: Arc<dyn Admin>,
    pub(super) inbox: InboxName,
    /// Configuration of the inbox, if known.
    pub(super) plan: Option<Arc<InboxPlan>>,
    /// Redaction. Default: none, because an operator with access to the database can read it anyway.
    privacy: Arc<Privacy>,
    /// Name of the API token of the caller.
    token: Option<Box<str>>,
    pub(super) words: &'static RequestWords,
    pub(super) clock: SharedClock,
}

impl StoreClient {
    pub(crate) fn new(
        store: Arc<dyn Admin>,
        inbox: InboxName,
        plan: Option<Arc<InboxPlan>>,
        words: &'static RequestWords,
    ) -> Self {
        let (privacy, clock) = (Arc::default(), SystemClock::shared());
        Self { store, inbox, plan, privacy, token: None, words, clock }
    }

    /// Redacts errors and payloads.
    pub(crate) fn redact(mut self, privacy: Arc<Privacy>) -> Self {
        self.privacy = privacy;
        self
    }

    /// Returns a client for the caller with this API token.
    pub(crate) fn on_behalf_of(&self, token: Option<&str>) -> Self {
        Self { token: token.map(Into::into), ..self.clone() }
    }

    fn unknown(&self, key: &Key) -> OperatorError {
        Error::new(ErrorKind::NotFound, format!("the inbox {} has no message with the key {key}", self.inbox))
            .into()
    }

    /// Returns the actor and token to record. Default for the actor: the name of the token.
    pub(super) fn actor_of<'a>(&'a self, actor: Option<&'a str>) -> OperatorResult<Actor<'a>> {
        let token = self.token.as_deref();
        let actor = actor.filter(|actor| !actor.trim().is_empty()).or(token);
        let actor = actor.ok_or_else(|| OperatorError::Invalid(self.words.actor.to_owned()))?;
        Ok(Actor::from(actor).with_token(token))
    }

    pub(super) fn action(&self, what: ActionKind, audit: wire::AuditFields<'_>) -> OperatorResult<Action> {
        let action = Action::new(self.inbox.clone(), what).id(audit.operation.0);
        Ok(action.by(self.actor_of(audit.actor)?, audit.reason))
    }

    pub(super) async fn run(&self, action: Action) -> OperatorResult<wire::ActionResponse> {
        Ok(self.done(&action, &self.store.act(&action).await?))
    }

    /// Logs an action that was done and returns its response.
    pub(super) fn done(&self, action: &Action, acted: &Acted) -> wire::ActionResponse {
        let Action { id, inbox, actor, token, kind, .. } = action;
        let (verb, repeated, token) = (kind.verb(), acted.repeated, token.as_deref());
        tracing::info!(%inbox, operation = %id, actor = &**actor, token, repeated, verb, "operator action done");
        self.privacy.acted(*id, acted)
    }

    /// Returns the audit record of an operation.
    pub(crate) async fn record(&self, id: OperationId) -> OperatorResult<Option<OperationView>> {
        let mut filter = AuditFilter::new(self.inbox.clone());
        (filter.id, filter.limit) = (Some(id), 1);
        Ok(self.store.audit(&filter).await?.operations.into_iter().next())
    }

    async fn view(&self, key: &Key) -> OperatorResult<MessageView> {
        self.store.show(&self.inbox, key).await?.ok_or_else(|| self.unknown(key))
    }

    /// Counts messages and entries, without blocked ordering keys.
    pub(crate) async fn totals(&self) -> OperatorResult<wire::InboxTotals> {
        Ok(show::counts(&self.store.count(&self.inbox, None).await?))
    }

    /// Checks a bulk operation, or returns what is wrong with its plan.
    pub(super) fn bulk_of(&self, plan: &wire::BulkPlan) -> OperatorResult<BulkOperation> {
        let filter = plan.which.filter(self.inbox.clone()).map_err(|error| invalid(&error))?;
        let narrow = plan.everything || filter.is_narrow();
        let made = if narrow { BulkOperation::on_everything } else { BulkOperation::new };
        let mut bulk = made(plan.verb.into(), filter).map_err(|error| {
            let advice = if narrow { "remove that status" } else { self.words.everything };
            OperatorError::Invalid(format!("{}; {advice}", error.what()))
        })?;
        bulk.limit = bounded("limit", plan.limit, bulk.limit, 1..=100_000)?;
        Ok(bulk)
    }

    /// Counts the messages that a purge would delete, up to its limit.
    async fn purgeable(&self, age: Duration, limit: usize) -> OperatorResult<u64> {
        let until = self.clock.now().before(age);
        let mut filter = QuarantineFilter::new(self.inbox.clone());
        filter.limit = 1_000;
        let mut count = 0;
        // Reads all of them, as the purge does: after a clock change, an old message may follow a young one.
        loop {
            let page = self.store.quarantined(&filter).await?;
            count += page.quarantined.iter().filter(|item| item.received_at <= until).count();
            filter.after = page.next;
            if filter.after.is_none() || count >= limit {
                return Ok(count.min(limit) as u64);
            }
        }
    }
}

fn invalid(error: &Error) -> OperatorError {
    OperatorError::Invalid(error.what().to_owned())
}

/// Returns a number, or an error if it is out of bounds.
pub(super) fn bounded(
    name: &str,
    value: Option<u64>,
    default: usize,
    bounds: RangeInclusive<u64>,
) -> OperatorResult<usize> {
    let Some(value) = value else { return Ok(default) };
    let number = usize::try_from(value).ok().filter(|_| bounds.contains(&value));
    let (least, max) = (bounds.start(), bounds.end());
    number.ok_or_else(|| OperatorError::Invalid(format!("`{name}` must be between {least} and {max}")))
}

/// Returns the number of items per page: 1 to 1,000, default 100.
fn page(limit: Option<u64>) -> OperatorResult<usize> {
    bounded("limit", limit, 100, 1..=1_000)
}

/// Returns age and limit of a purge.
fn purge_bounds(plan: &wire::PurgePlan) -> OperatorResult<(Duration, usize)> {
    // A hundred years: a longer age is a typing error.
    bounded("older_than_seconds", Some(plan.older_than_seconds), 0, 0..=3_155_760_000)?;
    Ok((Duration::from_secs(plan.older_than_seconds), bounded("limit", plan.limit, 1_000, 1..=10_000)?))
}

/// Returns an error unless the count is the expected one.
pub(super) fn check_count(count: u64, expected: u64) -> OperatorResult<()> {
    if count == expected { Ok(()) } else { Err(OperatorError::Changed { count, expected }) }
}

/// Limits an operation to the `expected` count of its preview, so that it skips what matches later. An operation that was
/// recorded before continues with its recorded limit.
pub(super) fn cap(record: Option<&OperationView>, limit: usize, expected: u64) -> usize {
    let recorded = record.and_then(|record| {
        let body: serde_json::Value = serde_json::from_str(&record.body).ok()?;
        body.get("what")?.get("limit")?.as_u64()
    });
    limit.min(usize::try_from(recorded.unwrap_or(expected)).unwrap_or(usize::MAX))
}

#[async_trait]
impl OperatorClient for StoreClient {
    /// Uses the local clock for the ages of one tenant's messages; the store computes the others.
    async fn counts(&self, tenant: Option<&str>) -> OperatorResult<wire::InboxTotals> {
        let Some(tenant) = tenant else {
            let mut counts = self.totals().await?;
            let backlog = self.store.backlog(&BacklogParams::new(self.inbox.clone())).await?;
            let blocked = backlog.iter().filter(|backlog| backlog.blocked.keys > 0);
            counts.blocked = blocked.map(show::blocked_count).collect();
            return Ok(counts);
        };
        let mut counts = show::counts(&self.store.count(&self.inbox, Some(tenant)).await?);
        let mut params = BlockedParams::new(self.inbox.clone());
        (params.tenant, params.limit) = (Some(tenant.into()), 1_000);
        let (mut found, now) = (BTreeMap::<HandlerKey, BlockedBacklog>::new(), self.clock.now());
        for key in self.store.blocked(&params).await? {
            let blocked = found.entry(key.handler).or_default();
            blocked.keys += 1;
            blocked.waiting += key.waiting;
            blocked.oldest = blocked.oldest.max(key.oldest.map(|at| now.since(at)));
        }
        let backlog = |(handler, blocked)| Backlog::new(handler, 0, 0, None).held_back(blocked);
        counts.blocked = found.into_iter().map(|one| show::blocked_count(&backlog(one))).collect();
        Ok(counts)
    }

    async fn entries(&self, query: &wire::EntriesQuery) -> OperatorResult<wire::EntryList> {
        let mut filter = query.filter(self.inbox.clone()).map_err(|error| invalid(&error))?;
        let after = query.after.as_deref().map(str::parse::<EntryCursor>).transpose()?;
        (filter.after, filter.limit) = (after, page(query.limit)?);
        let page = self.store.list(&filter).await?;
        let next = page.next.map(|next| next.to_string());
        Ok(wire::EntryList { entries: self.privacy.entries(&page.entries), next })
    }

    async fn message(&self, key: &Key) -> OperatorResult<wire::MessageDetails> {
        let view = self.view(key).await?;
        let history = self.store.history(&self.inbox, key).await?.unwrap_or_default();
        Ok(wire::MessageDetails {
            key: wire::KeyText(*key),
            erased: view.erased,
            tenant: view.tenant.as_deref().map(Into::into),
            stored: show::stored(&view),
            entries: self.privacy.entries(&view.entries),
            attempts: history.attempts.iter().map(|attempt| self.privacy.attempt(attempt)).collect(),
            duplicates: history.duplicates.map_or(0, |duplicates| duplicates.count),
            quarantined: view.quarantined.iter().map(show::quarantined).collect(),
        })
    }

    async fn payloads(&self, key: &Key) -> OperatorResult<wire::MessagePayloads> {
        let view = self.view(key).await?;
        let by = self.token.as_deref().unwrap_or("this machine");
        tracing::info!(inbox = %self.inbox, by, %key, "payload read");
        Ok(wire::MessagePayloads {
            key: wire::KeyText(*key),
            stored: view.stored.as_ref().map(|(_, _, message)| self.privacy.body(message)),
            quarantined: view.quarantined.iter().map(|item| self.privacy.body(&item.message)).collect(),
        })
    }

    async fn explain(&self, key: &Key) -> OperatorResult<wire::MessageExplanation> {
        let explained = self.store.explain(&self.inbox, key).await?;
        let (mut explained, privacy) = (explained.ok_or_else(|| self.unknown(key))?, &self.privacy);
        // Redacted before they become part of a sentence: a pattern may match only a whole text.
        for attempt in &mut explained.history.attempts {
            attempt.error = attempt.error.take().map(|error| ErrorText::stored(privacy.line(error.as_str())));
        }
        let line =
            |(at, what): (_, String)| wire::StoryEvent { at: wire::TimeText(at), what: privacy.line(&what) };
        let entries = explained.view.entries.iter().zip(explained.reasons());
        Ok(wire::MessageExplanation {
            key: wire::KeyText(*key),
            story: explained.story().into_iter().map(line).collect(),
            entries: entries
                .map(|(entry, why)| wire::ExplainedEntry { entry: privacy.entry(entry), why })
                .collect(),
        })
    }

    async fn quarantined(&self, query: &wire::QuarantineQuery) -> OperatorResult<wire::QuarantineList> {
        let mut filter = QuarantineFilter::new(self.inbox.clone());
        filter.reason = query.reason.map(|reason| match reason {
            wire::QuarantineReasonWord::Conflict => QuarantineReason::Conflict,
            wire::QuarantineReasonWord::Stale => QuarantineReason::Stale,
        });
        filter.tenant = query.tenant.as_deref().map(Into::into);
        (filter.after, filter.limit) = (query.after.map(QuarantineId), page(query.limit)?);
        let page = self.store.quarantined(&filter).await?;
        Ok(wire::QuarantineList {
            quarantined: page.quarantined.iter().map(show::quarantined_item).collect(),
            next: page.next.map(|next| next.0),
        })
    }

    async fn blocked(&self, query: &wire::BlockedQuery) -> OperatorResult<wire::BlockedKeyList> {
        let mut params = BlockedParams::new(self.inbox.clone());
        (params.tenant, params.limit) = (query.tenant.as_deref().map(Into::into), page(query.limit)?);
        let blocked = self.store.blocked(&params).await?;
        Ok(wire::BlockedKeyList { blocked: blocked.iter().map(show::blocked).collect() })
    }

    async fn audit(&self, query: &wire::AuditQuery) -> OperatorResult<wire::OperationList> {
        let mut filter = AuditFilter::new(self.inbox.clone());
        filter.parent = query.parent.map(|parent| parent.0);
        filter.key = query.key.map(|key| key.0);
        filter.actor = query.actor.as_deref().map(Into::into);
        filter.token = query.token.as_deref().map(Into::into);
        (filter.before, filter.limit) = (query.before, page(query.limit)?);
        let page = self.store.audit(&filter).await?;
        Ok(wire::OperationList {
            operations: page.operations.iter().map(show::operation).collect(),
            next: page.next,
        })
    }

    async fn doctor(&self, query: &DoctorQuery) -> OperatorResult<wire::DoctorReport> {
        let mut params = ExamineParams::new(self.inbox.clone(), self.clock.now());
        (params.known, params.redelivery) = (query.handlers.clone(), query.redelivery);
        if let Some(plan) = &self.plan {
            let keys = plan.handlers.iter().flat_map(|handler| handler.legacy.iter().chain([&handler.key]));
            let known: Vec<HandlerKey> = keys.map(|key| HandlerKey::new(&**key)).collect::<Result<_, _>>()?;
            params.known.get_or_insert_default().extend(known);
            params.redelivery = params.redelivery.or_else(|| plan.redelivers());
        }
        let findings = self.store.doctor(&params).await?;
        Ok(wire::DoctorReport { findings: findings.iter().map(show::finding).collect() })
    }

    async fn act(
        &self,
        verb: wire::EntryVerb,
        key: &Key,
        action: &wire::EntryAction,
    ) -> OperatorResult<wire::ActionResponse> {
        let handler = HandlerKey::new(&*action.handler)?;
        let what = ActionKind::Entry { key: *key, handler, operation: verb.into() };
        self.run(self.action(what, action.audit())?).await
    }

    async fn erase(&self, key: &Key, erasure: &wire::ErasureAction) -> OperatorResult<wire::ActionResponse> {
        let what = ActionKind::Erase { key: *key, discard_unfinished: erasure.discard_unfinished };
        self.run(self.action(what, erasure.audit())?).await
    }

    async fn hold(&self, pause: bool, hold: &wire::PauseAction) -> OperatorResult<wire::ActionResponse> {
        let handler = HandlerKey::new(&*hold.handler)?;
        let queue = hold.line.as_ref().map(queue_of).transpose()?;
        let what = |handler: HandlerKey| hold_of(handler, queue.as_ref(), pause);
        let action = self.action(what(handler.clone()), hold.audit())?;
        let held = PauseOperation { client: self, action: &action };
        let legacy = held.legacy(&handler, hold.unknown).await?;
        let acted = held.act(&legacy, what).await?;
        let legacy = legacy.iter().map(ToString::to_string).collect();
        Ok(wire::ActionResponse { legacy, ..self.done(&action, &acted) })
    }

    async fn preview(&self, plan: &wire::BulkPlan) -> OperatorResult<wire::BulkPreview> {
        let preview = self.bulk_of(plan)?.preview(&*self.store).await?;
        let first = self.privacy.entries(&preview.first);
        Ok(wire::BulkPreview { count: preview.count as u64, more: preview.more, first })
    }

    async fn bulk(
        &self,
        action: &wire::BulkAction,
        on_progress: ProgressFn<'_>,
    ) -> OperatorResult<wire::BulkReport> {
        self.finish(&self.plan_bulk(action).await?, on_progress).await
    }

    async fn purge_preview(&self, plan: &wire::PurgePlan) -> OperatorResult<wire::PurgePreview> {
        let (age, limit) = purge_bounds(plan)?;
        Ok(wire::PurgePreview { count: self.purgeable(age, limit).await? })
    }

    async fn purge(&self, purge: &wire::PurgeAction) -> OperatorResult<wire::ActionResponse> {
        let wire::PurgeAction { older_than_seconds, limit, expected, .. } = *purge;
        let (age, limit) = purge_bounds(&wire::PurgePlan { older_than_seconds, limit })?;
        let known = self.record(purge.operation.0).await?;
        let what = ActionKind::Purge { age, limit: cap(known.as_ref(), limit, expected) };
        let action = self.action(what, purge.audit())?;
        // A repeated purge gets its first result, even if the count changed.
        if known.is_none() {
            check_count(self.purgeable(age, limit).await?, expected)?;
        }
        self.run(action).await
    }

    async fn backfill(
        &self,
        plan: &BackfillPlan,
        on_progress: ProgressFn<'_>,
    ) -> OperatorResult<wire::BulkReport> {
        self.finish(&self.plan_backfill(plan)?, on_progress).await
    }
}

#[cfg(test)]
mod tests {
    use oncebox::Memory;

    use super::*;

    #[test]
    fn every_action_has_an_actor() {
        static WORDS: RequestWords = RequestWords { actor: "no actor", everything: "", unknown: "" };
        let open = StoreClient::new(Arc::new(Memory::new()), InboxName::new("i").unwrap(), None, &WORDS);
        for missing in [None, Some(" ")] {
            assert_eq!(open.actor_of(missing).unwrap_err().to_string(), "no actor");
        }
        let known = open.on_behalf_of(Some("night-shift"));
        let actor = |client: &StoreClient, actor| {
            let Actor { name, token, .. } = client.actor_of(actor).unwrap();
            (name.to_owned(), token.map(ToOwned::to_owned))
        };
        let token = || Some("night-shift".to_owned());
        assert_eq!(actor(&open, Some("ada")), ("ada".to_owned(), None));
        assert_eq!(actor(&known, None), ("night-shift".to_owned(), token()));
        // A name that imitates another token's record does not change the token.
        let posing = "ada (token root)";
        assert_eq!(actor(&known, Some(posing)), (posing.to_owned(), token()));
    }
}
