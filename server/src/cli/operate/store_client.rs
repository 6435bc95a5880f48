//! An [`OperatorClient`] on a store. Tests: `tests/operate/`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use oncebox::operate::{Backfill, BulkOperation};
use oncebox::store::{Action, ActionKind, Admin, AuditFilter, EntryCursor, ExamineParams, OrderQueue, Route};
use oncebox::time::{SharedClock, SystemClock};
use oncebox::{Error, ErrorKind, HandlerKey, InboxName, Key};

use super::CommandError;
use super::client::{BackfillPlan, DoctorQuery, OperatorClient, ProgressFn};
use super::target::usage;
use crate::api::show::{self, Privacy};
use crate::api::{shared, wire};
use crate::config::InboxPlan;

/// Maximum messages per purge, which is one transaction.
const MAX_PURGED: usize = 10_000;

pub(super) struct StoreClient {
    store: Box<dyn Admin>,
    inbox: InboxName,
    /// Configuration of the inbox, if known.
    plan: Option<Box<InboxPlan>>,
    clock: SharedClock,
    /// Redacts nothing: an operator with access to the database can read it anyway.
    privacy: Privacy,
}

impl StoreClient {
    pub(super) fn new(store: Box<dyn Admin>, inbox: InboxName, plan: Option<Box<InboxPlan>>) -> Self {
        Self { store, inbox, plan, clock: SystemClock::shared(), privacy: Privacy::default() }
    }

    fn unknown(&self, key: &Key) -> CommandError {
        Error::new(ErrorKind::NotFound, format!("the inbox {} has no message with the key {key}", self.inbox))
            .into()
    }

    fn action(&self, what: ActionKind, audit: wire::AuditFields<'_>) -> Result<Action, CommandError> {
        let action = Action::new(self.inbox.clone(), what).id(audit.operation.0);
        Ok(action.by(actor_of(audit)?, audit.reason))
    }

    async fn run(&self, action: Action) -> Result<wire::ActionResponse, CommandError> {
        Ok(shared::acted(action.id, &self.store.act(&action).await?, &self.privacy))
    }

    fn plan_of(&self, plan: &wire::BulkPlan) -> Result<BulkOperation, CommandError> {
        let everything = "add a filter, or --everything";
        let mut bulk = shared::bulk(plan, self.inbox.clone(), everything).map_err(usage)?;
        bulk.limit = number(plan.limit, bulk.limit);
        Ok(bulk)
    }

    /// Counts the messages that a purge would delete, up to its limit.
    async fn count_old(&self, age: Duration, limit: usize) -> Result<u64, CommandError> {
        Ok(shared::purgeable(&*self.store, &self.inbox, (self.clock.now(), age), limit).await?)
    }
}

fn actor_of(audit: wire::AuditFields<'_>) -> Result<&str, CommandError> {
    let actor = audit.actor.filter(|actor| !actor.trim().is_empty());
    actor.ok_or_else(|| usage("the actor is missing; set --actor or ONCEBOX_ACTOR for the audit log"))
}

fn number(given: Option<u64>, default: usize) -> usize {
    given.map_or(default, |given| usize::try_from(given).unwrap_or(usize::MAX))
}

fn handler(text: &wire::BoundedText) -> Result<HandlerKey, CommandError> {
    Ok(HandlerKey::new(&**text)?)
}

/// Returns an error unless the count is the one that the operator confirmed.
fn as_expected(count: u64, expected: u64, what: &str) -> Result<(), CommandError> {
    if count == expected {
        return Ok(());
    }
    let what = format!("{count} {what} match now, and {expected} were expected");
    Err(Error::new(ErrorKind::Refused, what).into())
}

fn limit_of(limit: Option<u64>) -> Result<usize, CommandError> {
    let limit = number(limit, 1_000);
    if limit > MAX_PURGED {
        return Err(usage(format!("--limit is at most {MAX_PURGED}; purge again for the rest")));
    }
    Ok(limit)
}

#[async_trait]
impl OperatorClient for StoreClient {
    async fn counts(&self, tenant: Option<&str>) -> Result<wire::InboxTotals, CommandError> {
        Ok(shared::counts(&*self.store, &self.inbox, tenant, self.clock.now()).await?)
    }

    async fn entries(&self, query: &wire::EntriesQuery) -> Result<wire::EntryList, CommandError> {
        let mut filter = query.filter(self.inbox.clone())?;
        let after = query.after.as_deref().map(str::parse::<EntryCursor>).transpose();
        (filter.after, filter.limit) =
            (after.map_err(|error| usage(error.what()))?, number(query.limit, 100));
        let page = self.store.list(&filter).await?;
        let next = page.next.map(|next| next.to_string());
        Ok(wire::EntryList { entries: self.privacy.entries(&page.entries), next })
    }

    async fn message(&self, key: &Key) -> Result<wire::MessageDetails, CommandError> {
        let view = self.store.show(&self.inbox, key).await?.ok_or_else(|| self.unknown(key))?;
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

    async fn payloads(&self, key: &Key) -> Result<wire::MessagePayloads, CommandError> {
        let view = self.store.show(&self.inbox, key).await?.ok_or_else(|| self.unknown(key))?;
        Ok(wire::MessagePayloads {
            key: wire::KeyText(*key),
            stored: view.stored.as_ref().map(|(_, _, message)| self.privacy.body(message)),
            quarantined: view.quarantined.iter().map(|item| self.privacy.body(&item.message)).collect(),
        })
    }

    async fn explain(&self, key: &Key) -> Result<wire::MessageExplanation, CommandError> {
        let explained = self.store.explain(&self.inbox, key).await?.ok_or_else(|| self.unknown(key))?;
        let line = |(at, what)| wire::StoryEvent { at: wire::TimeText(at), what };
        let entries = explained.view.entries.iter().zip(explained.reasons());
        Ok(wire::MessageExplanation {
            key: wire::KeyText(*key),
            story: explained.story().into_iter().map(line).collect(),
            entries: entries
                .map(|(entry, why)| wire::ExplainedEntry { entry: self.privacy.entry(entry), why })
                .collect(),
        })
    }

    async fn quarantined(&self, query: &wire::QuarantineQuery) -> Result<wire::QuarantineList, CommandError> {
        Ok(shared::quarantined(&*self.store, &self.inbox, query, number(query.limit, 100)).await?)
    }

    async fn blocked(&self, query: &wire::BlockedQuery) -> Result<wire::BlockedKeyList, CommandError> {
        Ok(shared::blocked(&*self.store, &self.inbox, query, number(query.limit, 100)).await?)
    }

    async fn audit(&self, query: &wire::AuditQuery) -> Result<wire::OperationList, CommandError> {
        let mut filter = AuditFilter::new(self.inbox.clone());
        filter.parent = query.parent.map(|parent| parent.0);
        filter.key = query.key.map(|key| key.0);
        filter.actor = query.actor.as_deref().map(Into::into);
        filter.token = query.token.as_deref().map(Into::into);
        (filter.before, filter.limit) = (query.before, number(query.limit, 100));
        let page = self.store.audit(&filter).await?;
        Ok(wire::OperationList {
            operations: page.operations.iter().map(show::operation).collect(),
            next: page.next,
        })
    }

    async fn doctor(&self, query: &DoctorQuery) -> Result<Vec<wire::DoctorFinding>, CommandError> {
        let mut params = ExamineParams::new(self.inbox.clone(), self.clock.now());
        (params.known, params.redelivery) = (query.handlers.clone(), query.redelivery);
        if let Some(plan) = &self.plan {
            let keys = plan.handlers.iter().flat_map(|handler| handler.legacy.iter().chain([&handler.key]));
            let known: Vec<HandlerKey> = keys.map(|key| HandlerKey::new(&**key)).collect::<Result<_, _>>()?;
            params.known.get_or_insert_default().extend(known);
            params.redelivery = params.redelivery.or_else(|| plan.redelivers());
        }
        Ok(self.store.doctor(&params).await?.iter().map(show::finding).collect())
    }

    async fn act(
        &self,
        verb: wire::EntryVerb,
        key: &Key,
        action: &wire::EntryAction,
    ) -> Result<wire::ActionResponse, CommandError> {
        let what =
            ActionKind::Entry { key: *key, handler: handler(&action.handler)?, operation: verb.into() };
        self.run(self.action(what, action.audit())?).await
    }

    async fn erase(
        &self,
        key: &Key,
        erasure: &wire::ErasureAction,
    ) -> Result<wire::ActionResponse, CommandError> {
        let what = ActionKind::Erase { key: *key, discard_unfinished: erasure.discard_unfinished };
        self.run(self.action(what, erasure.audit())?).await
    }

    async fn hold(
        &self,
        pause: bool,
        hold: &wire::PauseAction,
    ) -> Result<wire::ActionResponse, CommandError> {
        let (handler, store) = (handler(&hold.handler)?, &*self.store);
        let line = hold.line.as_ref().map(|named| {
            let key = named.ordering_key.as_deref().unwrap_or_default();
            let mut line = OrderQueue::new(named.source.as_deref().unwrap_or_default(), key.as_bytes());
            line.tenant = named.tenant.as_deref().map(Into::into);
            line
        });
        let what = |handler: HandlerKey| shared::hold_of(handler, line.as_ref(), pause);
        let action = self.action(what(handler.clone()), hold.audit())?;
        let held = shared::PauseOperation { store, action: &action, plan: self.plan.as_deref() };
        let legacy = held.legacy(&handler, hold.unknown, "--unknown").await?;
        let acted = held.act(&legacy, what).await?;
        let legacy = legacy.iter().map(ToString::to_string).collect();
        Ok(wire::ActionResponse { legacy, ..shared::acted(action.id, &acted, &self.privacy) })
    }

    async fn preview(&self, plan: &wire::BulkPlan) -> Result<wire::BulkPreview, CommandError> {
        let preview = self.plan_of(plan)?.preview(&*self.store).await?;
        let first = self.privacy.entries(&preview.first);
        Ok(wire::BulkPreview { count: preview.count as u64, more: preview.more, first })
    }

    async fn bulk(
        &self,
        action: &wire::BulkAction,
        on_progress: ProgressFn<'_>,
    ) -> Result<wire::BulkReport, CommandError> {
        let bulk = self.plan_of(&action.plan())?.id(action.operation.0);
        let mut bulk = bulk.by(actor_of(action.audit())?, &action.reason.0);
        (bulk.per_second, bulk.go_on) = (number(action.per_second, bulk.per_second), action.go_on);
        bulk.failures = number(action.failures, bulk.failures);
        // A recorded operation continues, whatever the count is now.
        let known = shared::record(&*self.store, &self.inbox, bulk.id).await?;
        if known.is_none() {
            as_expected(bulk.preview(&*self.store).await?.count as u64, action.expected, "entries")?;
        }
        bulk.limit = shared::cap(known.as_ref(), "limit", bulk.limit, action.expected);
        let ended =
            bulk.run_with_progress(&*self.store, &self.clock, |now| on_progress(&show::report(now))).await?;
        Ok(show::report(&ended))
    }

    async fn purge_preview(&self, plan: &wire::PurgePlan) -> Result<wire::PurgePreview, CommandError> {
        let age = Duration::from_secs(plan.older_than_seconds);
        Ok(wire::PurgePreview { count: self.count_old(age, limit_of(plan.limit)?).await? })
    }

    async fn purge(&self, purge: &wire::PurgeAction) -> Result<wire::ActionResponse, CommandError> {
        let (age, limit) = (Duration::from_secs(purge.older_than_seconds), limit_of(purge.limit)?);
        let known = shared::record(&*self.store, &self.inbox, purge.operation.0).await?;
        // A repeated purge gets its first result, even if the count changed.
        if known.is_none() {
            as_expected(self.count_old(age, limit).await?, purge.expected, "messages")?;
        }
        let what =
            ActionKind::Purge { age, limit: shared::cap(known.as_ref(), "limit", limit, purge.expected) };
        self.run(self.action(what, purge.audit())?).await
    }

    async fn backfill(
        &self,
        backfill: &BackfillPlan,
        on_progress: ProgressFn<'_>,
    ) -> Result<wire::BulkReport, CommandError> {
        let key = handler(&backfill.action.handler)?;
        let planned =
            self.plan.as_ref().and_then(|plan| plan.handlers.iter().find(|one| one.key == key.as_str()));
        let (mut types, mut legacy) = (backfill.types.clone(), backfill.legacy.clone());
        if let Some(planned) = planned.filter(|_| types.is_empty()) {
            types = planned.types.iter().map(|kind| kind.as_str().into()).collect();
            legacy.extend(planned.legacy.iter().map(HandlerKey::new).collect::<Result<Vec<_>, _>>()?);
        }
        if types.is_empty() {
            return Err(usage("the message types of the handler are unknown; name them with --type"));
        }
        let route = Route::renamed(key, Arc::from(legacy));
        let mut operation = Backfill::new(self.inbox.clone(), route, types).id(backfill.action.operation.0);
        operation = operation.by(actor_of(backfill.action.audit())?, &backfill.action.reason.0);
        operation.limit = backfill.limit.unwrap_or(operation.limit);
        let ended = operation.run_with_progress(&*self.store, |now| on_progress(&show::report(now))).await?;
        Ok(show::report(&ended))
    }
}
