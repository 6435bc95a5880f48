//! Operations on many entries: checked, recorded, then run. Tests: `tests/operate/bulk.rs` and `tests/serve/api/many.rs`.

use oncebox::operate::{Backfill, BulkOperation};
use oncebox::store::{Action, ActionKind, Actor, OperationId, Route};
use oncebox::{Error, ErrorKind, HandlerKey, Memory};

use super::store_client::{StoreClient, bounded, cap, check_count};
use super::{BackfillPlan, OperatorError, OperatorResult, ProgressFn, show, wire};
use crate::config::InboxPlan;
use crate::sidecar;

/// An operation on many entries, ready to be recorded and run.
#[derive(Debug)]
pub(crate) enum LongOperation {
    Bulk(BulkOperation),
    Backfill(Backfill),
}

impl LongOperation {
    pub(crate) fn id(&self) -> OperationId {
        match self {
            Self::Bulk(bulk) => bulk.id,
            Self::Backfill(backfill) => backfill.id,
        }
    }
}

impl StoreClient {
    /// Checks a bulk operation and its count. A recorded operation continues without a check of the count.
    pub(crate) async fn plan_bulk(&self, action: &wire::BulkAction) -> OperatorResult<LongOperation> {
        let audit = action.audit();
        let mut bulk = self.bulk_of(&action.plan())?.id(audit.operation.0);
        bulk = bulk.by(self.actor_of(audit.actor)?, audit.reason);
        bulk.per_second = bounded("per_second", action.per_second, bulk.per_second, 1..=1_000)?;
        bulk.failures = bounded("failures", action.failures, bulk.failures, 0..=100_000)?;
        bulk.go_on = action.go_on;
        let known = self.record(bulk.id).await?;
        if known.is_none() {
            check_count(bulk.preview(&*self.store).await?.count as u64, action.expected)?;
        }
        bulk.limit = cap(known.as_ref(), bulk.limit, action.expected);
        Ok(LongOperation::Bulk(bulk))
    }

    /// Checks a backfill. Without types, the configuration must know the handler.
    pub(crate) fn plan_backfill(&self, plan: &BackfillPlan) -> OperatorResult<LongOperation> {
        let key = HandlerKey::new(&*plan.action.handler)?;
        let mut backfill = match &self.plan {
            _ if !plan.types.is_empty() => {
                let route = Route::renamed(key, plan.legacy.clone().into());
                Backfill::new(self.inbox.clone(), route, plan.types.clone())
            }
            Some(known) => {
                let mut backfill = planned_backfill(known, &key)?;
                let legacy = &mut backfill.route.legacy;
                *legacy = legacy.iter().chain(&plan.legacy).cloned().collect();
                backfill
            }
            None => {
                let what = "the message types of the handler are unknown; name them with --type";
                return Err(OperatorError::Invalid(what.into()));
            }
        };
        let audit = plan.action.audit();
        backfill = backfill.id(audit.operation.0).by(self.actor_of(audit.actor)?, audit.reason);
        backfill.limit = plan.limit.unwrap_or(backfill.limit);
        Ok(LongOperation::Backfill(backfill))
    }

    /// Records a long operation, so that another request with the same operation id fails at once.
    pub(crate) async fn begin(&self, operation: &LongOperation) -> OperatorResult<wire::ActionResponse> {
        let (what, actor, token, reason) = match operation {
            LongOperation::Bulk(BulkOperation { operation, filter, limit, actor, token, reason, .. }) => {
                let filter = Box::new(filter.clone());
                let what = ActionKind::Bulk { operation: *operation, filter, limit: *limit };
                (what, actor, token, reason)
            }
            LongOperation::Backfill(Backfill { route, types, actor, token, reason, .. }) => {
                let what = ActionKind::Backfill { handler: route.key.clone(), kinds: types.clone() };
                (what, actor, token, reason)
            }
        };
        let actor = Actor::from(actor).with_token(token.as_deref());
        self.run(Action::new(self.inbox.clone(), what).id(operation.id()).by(actor, reason)).await
    }

    /// Runs a long operation until it ends or stops.
    pub(crate) async fn finish(
        &self,
        operation: &LongOperation,
        on_progress: ProgressFn<'_>,
    ) -> OperatorResult<wire::BulkReport> {
        let mut noted = |now: &_| on_progress(&show::report(now));
        let ended = match operation {
            LongOperation::Bulk(bulk) => {
                bulk.run_with_progress(&*self.store, &self.clock, &mut noted).await?
            }
            LongOperation::Backfill(backfill) => backfill.run_with_progress(&*self.store, &mut noted).await?,
        };
        Ok(show::report(&ended))
    }
}

/// Returns the backfill of a configured handler.
fn planned_backfill(plan: &InboxPlan, key: &HandlerKey) -> OperatorResult<Backfill> {
    if plan.handlers.iter().all(|handler| handler.key != key.as_str()) {
        let known = plan.handlers.iter().map(|handler| handler.key.as_str()).collect::<Vec<_>>().join(", ");
        let what = format!("the inbox {} is configured without a handler {key}; it has {known}", plan.name);
        return Err(Error::new(ErrorKind::NotFound, what).into());
    }
    // In memory, because only the handlers matter.
    let built = sidecar::build(plan, Memory::new());
    let built = built.map_err(|error| Error::new(ErrorKind::InvalidConfig, format!("{error:#}")))?;
    Ok(built.plan_backfill(key.as_str())?)
}
