//! API calls that change data. The audit log records the actor and reason of each. Tests: `tests/serve/api/`.

use std::time::Duration;

use oncebox::HandlerKey;
use oncebox::operate::{BulkOperation, OperationReport, OperationState};
use oncebox::state::Operation;
use oncebox::store::{self, Action, ActionKind, OperationId, OperationView, OrderQueue};
use oncebox::time::{Clock as _, SystemClock};

use super::jobs::JobState;
use super::problem::{ApiProblem, ApiResult, ProblemKind};
use super::request::{ApiRequest, bounded, handler};
use super::wire::OperationUuid;
use super::{BackfillRequest, shared, show, wire};

/// Builds an action with its actor and reason.
fn action(request: &ApiRequest, what: ActionKind, audit: wire::AuditFields<'_>) -> ApiResult<Action> {
    let actor = request.caller.requester(audit.actor)?;
    Ok(Action::new(request.inbox()?.name().clone(), what).id(audit.operation.0).by(&actor, audit.reason))
}

/// Runs an action and returns its result.
async fn act(request: &ApiRequest, action: Action) -> ApiResult<wire::ActionResponse> {
    let acted = request.inbox()?.admin.act(&action).await?;
    Ok(logged(request, &action, &acted))
}

/// Logs an action that was done and returns its response.
fn logged(request: &ApiRequest, action: &Action, acted: &store::Acted) -> wire::ActionResponse {
    let Action { id, inbox, actor, token, kind, .. } = action;
    let (verb, repeated) = (kind.verb(), acted.repeated);
    let token = token.as_deref();
    tracing::info!(%inbox, operation = %id, actor = &**actor, token, repeated, verb, "operator action done");
    shared::acted(*id, acted, &request.current.privacy)
}

/// Retries, discards, replays or unblocks one entry.
pub(super) async fn entry(request: &ApiRequest, operation: Operation) -> ApiResult<wire::ActionResponse> {
    let key = request.key()?;
    let body: wire::EntryAction = request.body()?;
    let what = ActionKind::Entry { key, handler: handler(&body.handler)?, operation };
    act(request, action(request, what, body.audit())?).await
}

/// Erases the content of one message.
pub(super) async fn erase(request: &ApiRequest) -> ApiResult<wire::ActionResponse> {
    let key = request.key()?;
    let body: wire::ErasureAction = request.body()?;
    let what = ActionKind::Erase { key, discard_unfinished: body.discard_unfinished };
    act(request, action(request, what, body.audit())?).await
}

/// Pauses or resumes a handler under its current and former keys, or one of its ordering keys.
pub(super) async fn hold(request: &ApiRequest, pause: bool) -> ApiResult<wire::ActionResponse> {
    let body: wire::PauseAction = request.body()?;
    let (served, handler) = (request.inbox()?, handler(&body.handler)?);
    let line = body.line.as_ref().map(line).transpose()?;
    let what = |handler: HandlerKey| shared::hold_of(handler, line.as_ref(), pause);
    let action = action(request, what(handler.clone()), body.audit())?;
    let held = shared::PauseOperation { store: &*served.admin, action: &action, plan: Some(&served.plan) };
    let legacy = held.legacy(&handler, body.unknown, "`unknown`").await?;
    let acted = held.act(&legacy, what).await?;
    let legacy = legacy.iter().map(ToString::to_string).collect();
    Ok(wire::ActionResponse { legacy, ..logged(request, &action, &acted) })
}

fn line(named: &wire::OrderingKeyRef) -> ApiResult<OrderQueue> {
    let bytes: Box<[u8]> = match (&named.ordering_key, &named.ordering_key_hex) {
        (Some(text), None) => text.as_bytes().into(),
        (None, Some(digits)) => unhex(digits)?,
        _ => {
            let what = "name the ordering key with `ordering_key` or with `ordering_key_hex`";
            return Err(ApiProblem::new(ProblemKind::Invalid, what));
        }
    };
    let mut line = OrderQueue::new(named.source.as_deref().unwrap_or_default(), bytes);
    line.tenant = named.tenant.as_deref().map(Into::into);
    Ok(line)
}

fn unhex(digits: &str) -> ApiResult<Box<[u8]>> {
    let pair = |at: usize| {
        let pair = digits.get(at..at + 2).filter(|pair| pair.bytes().all(|b| b.is_ascii_hexdigit()))?;
        u8::from_str_radix(pair, 16).ok()
    };
    let bytes: Option<Box<[u8]>> = (0..digits.len()).step_by(2).map(pair).collect();
    bytes.ok_or_else(|| ApiProblem::new(ProblemKind::Invalid, "`ordering_key_hex` is not hexadecimal"))
}

/// Problem of an `expected` count that is no longer true.
fn changed(expected: u64, count: u64) -> ApiProblem {
    let what = format!("the count is {count} now, and the request expected {expected}");
    ApiProblem::new(ProblemKind::Changed, what)
}

/// Returns the audit record of an operation.
async fn record(request: &ApiRequest, id: OperationId) -> ApiResult<Option<OperationView>> {
    let served = request.inbox()?;
    Ok(shared::record(&*served.admin, served.name(), id).await?)
}

fn purge_limit(limit: Option<u64>) -> ApiResult<usize> {
    bounded("limit", limit, 1_000, 1..=10_000)
}

fn purge_age(seconds: u64) -> ApiResult<Duration> {
    // A hundred years: a longer age is a typing error.
    bounded("older_than_seconds", Some(seconds), 0, 0..=3_155_760_000)?;
    Ok(Duration::from_secs(seconds))
}

/// Returns the number of messages that a purge would delete.
async fn purgeable(request: &ApiRequest, age: Duration, limit: usize) -> ApiResult<u64> {
    let (served, now) = (request.inbox()?, SystemClock::default().now());
    Ok(shared::purgeable(&*served.admin, served.name(), (now, age), limit).await?)
}

pub(super) async fn purge_preview(request: &ApiRequest) -> ApiResult<wire::PurgePreview> {
    let body: wire::PurgePlan = request.body()?;
    let (age, limit) = (purge_age(body.older_than_seconds)?, purge_limit(body.limit)?);
    Ok(wire::PurgePreview { count: purgeable(request, age, limit).await? })
}

pub(super) async fn purge(request: &ApiRequest) -> ApiResult<wire::ActionResponse> {
    let body: wire::PurgeAction = request.body()?;
    let (age, limit) = (purge_age(body.older_than_seconds)?, purge_limit(body.limit)?);
    let known = record(request, body.operation.0).await?;
    let what = ActionKind::Purge { age, limit: shared::cap(known.as_ref(), "limit", limit, body.expected) };
    let action = action(request, what, body.audit())?;
    // A repeated request gets its first result, even if the count changed.
    if known.is_none() {
        let count = purgeable(request, age, limit).await?;
        if count != body.expected {
            return Err(changed(body.expected, count));
        }
    }
    act(request, action).await
}

/// Builds a bulk operation from a request.
fn bulk(request: &ApiRequest, plan: &wire::BulkPlan) -> ApiResult<BulkOperation> {
    let everything = "name the entries in `which`, or set `everything`";
    let bulk = shared::bulk(plan, request.inbox()?.name().clone(), everything);
    let mut bulk = bulk.map_err(|what| ApiProblem::new(ProblemKind::Invalid, what))?;
    bulk.limit = bounded("limit", plan.limit, bulk.limit, 1..=100_000)?;
    Ok(bulk)
}

pub(super) async fn bulk_preview(request: &ApiRequest) -> ApiResult<wire::BulkPreview> {
    let bulk = bulk(request, &request.body()?)?;
    let preview = bulk.preview(&*request.inbox()?.admin).await?;
    Ok(wire::BulkPreview {
        count: preview.count as u64,
        more: preview.more,
        first: request.current.privacy.entries(&preview.first),
    })
}

/// Starts or continues a bulk operation.
pub(super) async fn bulk_action(request: &ApiRequest) -> ApiResult<wire::BulkReport> {
    let body: wire::BulkAction = request.body()?;
    let mut bulk = bulk(request, &body.plan())?;
    bulk = bulk.id(body.operation.0).by(&request.caller.requester(body.actor.as_deref())?, &body.reason.0);
    bulk.per_second = bounded("per_second", body.per_second, bulk.per_second, 1..=1_000)?;
    bulk.failures = bounded("failures", body.failures, bulk.failures, 0..=100_000)?;
    bulk.go_on = body.go_on;
    let served = request.inbox()?;
    let known = record(request, bulk.id).await?;
    if known.is_none() {
        let preview = bulk.preview(&*served.admin).await?;
        if preview.count as u64 != body.expected {
            return Err(changed(body.expected, preview.count as u64));
        }
    }
    bulk.limit = shared::cap(known.as_ref(), "limit", bulk.limit, body.expected);
    // Recorded before the response, so that another body with the same operation id fails at once.
    let what = ActionKind::Bulk {
        operation: bulk.operation,
        filter: Box::new(bulk.filter.clone()),
        limit: bulk.limit,
    };
    let action = action(request, what, body.audit())?;
    act(request, action).await?;
    let (id, admin) = (bulk.id, std::sync::Arc::clone(&served.admin));
    request.api.jobs.start(id, async move {
        let report = bulk.run(&*admin, &SystemClock::shared()).await?;
        let (state, done, failed) = (report.state.as_str(), report.done, report.failed);
        tracing::info!(operation = %id, state, done, failed, "bulk operation ended");
        Ok(report.done as u64)
    });
    Ok(begun(request, id).await)
}

/// Returns the progress of an operation that was recorded. If the store fails now, returns it as running: a client that saw an
/// error would start the operation again under another id.
async fn begun(request: &ApiRequest, id: OperationId) -> wire::BulkReport {
    let stored = async { report(request, &record(request, id).await?.ok_or_else(|| unknown(id))?) };
    let stored: ApiResult<Option<wire::BulkReport>> = stored.await;
    stored.ok().flatten().unwrap_or_else(|| wire::BulkReport {
        operation: OperationUuid(id),
        state: OperationState::Running.as_str().into(),
        active: request.api.jobs.get(id) == Some(JobState::Active),
        done: 0,
        refused: 0,
        failed: 0,
    })
}

fn unknown(id: OperationId) -> ApiProblem {
    ApiProblem::new(ProblemKind::NotFound, format!("there is no operation {id}"))
}

/// Returns the progress of a bulk operation or backfill; `None` for other actions.
fn report(request: &ApiRequest, record: &OperationView) -> ApiResult<Option<wire::BulkReport>> {
    let Some(report) = OperationReport::of(record)? else { return Ok(None) };
    let job = request.api.jobs.get(record.id);
    let mut progress = wire::BulkReport { active: job == Some(JobState::Active), ..show::report(&report) };
    // Only the serving process knows the progress of a backfill it runs.
    if &*record.verb == "backfill" && record.progress.is_none() {
        let (state, done) = match job {
            Some(JobState::Active) => (OperationState::Running.as_str(), 0),
            Some(JobState::Over(count)) => (OperationState::Finished.as_str(), count),
            Some(JobState::Failed) => ("failed", 0),
            // Another process started it, or this one before a restart.
            None => ("unknown", 0),
        };
        (progress.state, progress.done) = (state.into(), done);
    }
    Ok(Some(progress))
}

/// Returns the record and progress of an operation.
pub(super) async fn progress(request: &ApiRequest) -> ApiResult<wire::OperationProgress> {
    let OperationUuid(id) = request.operation()?;
    let record = record(request, id).await?.ok_or_else(|| unknown(id))?;
    Ok(wire::OperationProgress { operation: show::operation(&record), report: report(request, &record)? })
}

/// Stops an operation that runs in this process.
pub(super) async fn stop(request: &ApiRequest) -> ApiResult<wire::OperationProgress> {
    let OperationUuid(id) = request.operation()?;
    if record(request, id).await?.is_none() {
        return Err(unknown(id));
    }
    if request.api.jobs.stop(id) {
        let by = request.caller.name.as_deref().unwrap_or("this machine");
        tracing::info!(operation = %id, by, "bulk operation stopped");
    }
    progress(request).await
}

/// Adds entries for messages that were stored before a handler existed.
pub(super) async fn backfill(request: &ApiRequest) -> ApiResult<wire::BulkReport> {
    let body: wire::BackfillAction = request.body()?;
    let (served, key) = (request.inbox()?, handler(&body.handler)?);
    if served.plan.handlers.iter().all(|handler| handler.key != key.as_str()) {
        let there = served.plan.handlers.iter().map(|handler| handler.key.as_str()).collect::<Vec<_>>();
        let what = format!("this process has no handler {key}; it runs {}", there.join(", "));
        return Err(ApiProblem::new(ProblemKind::NotFound, what));
    }
    let (id, actor) = (body.operation.0, request.caller.requester(body.actor.as_deref())?);
    let backfill = BackfillRequest { handler: key.to_string(), id, actor, reason: body.reason.0 };
    let plan = served.plan.clone();
    served.stores.record_backfill(&plan, &backfill).await?;
    let BackfillRequest { handler, actor, .. } = &backfill;
    let (actor, token) = (&*actor.name, actor.token.as_deref());
    tracing::info!(inbox = plan.name, operation = %id, actor, token, handler, "backfill started");
    let stores = std::sync::Arc::clone(&served.stores);
    request.api.jobs.start(id, async move { stores.backfill(&plan, &backfill).await });
    Ok(begun(request, id).await)
}
