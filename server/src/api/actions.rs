//! Calls that change something. Each is recorded with who asked for it and why.

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

/// An action, with who asks for it and why.
fn action(request: &ApiRequest, what: ActionKind, asked: wire::AuditFields<'_>) -> ApiResult<Action> {
    let actor = request.who.asker(asked.actor)?;
    Ok(Action::new(request.inbox()?.name().clone(), what).id(asked.operation.0).by(&actor, asked.reason))
}

/// Does an action, and tells what came of it.
async fn act(request: &ApiRequest, action: Action) -> ApiResult<wire::ActionResponse> {
    let acted = request.inbox()?.admin.act(&action).await?;
    Ok(tell(request, &action, &acted))
}

fn tell(request: &ApiRequest, action: &Action, acted: &store::Acted) -> wire::ActionResponse {
    let Action { id, inbox, actor, token, kind, .. } = action;
    let (verb, repeated) = (kind.verb(), acted.repeated);
    let token = token.as_deref();
    tracing::info!(%inbox, operation = %id, actor = &**actor, token, repeated, "{verb} was asked for and done");
    shared::acted(*id, acted, &request.current.privacy)
}

/// Retries, discards, replays or unblocks one entry.
pub(super) async fn entry(request: &ApiRequest, operation: Operation) -> ApiResult<wire::ActionResponse> {
    let key = request.key()?;
    let body: wire::EntryAction = request.body()?;
    let what = ActionKind::Entry { key, handler: handler(&body.handler)?, operation };
    act(request, action(request, what, body.asked())?).await
}

/// Erases the content of one message.
pub(super) async fn erase(request: &ApiRequest) -> ApiResult<wire::ActionResponse> {
    let key = request.key()?;
    let body: wire::ErasureAction = request.body()?;
    let what = ActionKind::Erase { key, discard_unfinished: body.discard_unfinished };
    act(request, action(request, what, body.asked())?).await
}

/// Pauses or resumes a handler, or one of its ordering keys; with the keys that it had before.
pub(super) async fn hold(request: &ApiRequest, pause: bool) -> ApiResult<wire::ActionResponse> {
    let body: wire::PauseAction = request.body()?;
    let (served, handler) = (request.inbox()?, handler(&body.handler)?);
    let line = body.line.as_ref().map(line).transpose()?;
    let what = |handler: HandlerKey| shared::hold_of(handler, line.as_ref(), pause);
    let action = action(request, what(handler.clone()), body.asked())?;
    let held = shared::PauseOperation { store: &*served.admin, action: &action, plan: Some(&served.plan) };
    let legacy = held.legacy(&handler, body.unknown, "`unknown`").await?;
    let acted = held.act(&legacy, what).await?;
    let legacy = legacy.iter().map(ToString::to_string).collect();
    Ok(wire::ActionResponse { legacy, ..tell(request, &action, &acted) })
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
    bytes.ok_or_else(|| {
        ApiProblem::new(ProblemKind::Invalid, "`ordering_key_hex` is not made of pairs of digits")
    })
}

/// What `expected` was not.
fn changed(expected: u64, count: u64) -> ApiProblem {
    let what = format!("there are {count} now, and {expected} were expected: nothing was done");
    ApiProblem::new(ProblemKind::Changed, what)
}

/// The record of an operation.
async fn record(request: &ApiRequest, id: OperationId) -> ApiResult<Option<OperationView>> {
    let served = request.inbox()?;
    Ok(shared::record(&*served.admin, served.name(), id).await?)
}

fn purge_limit(limit: Option<u64>) -> ApiResult<usize> {
    bounded("limit", limit, 1_000, 1..=10_000)
}

fn purge_age(seconds: u64) -> ApiResult<Duration> {
    // A hundred years: what is beyond that is a slip.
    bounded("older_than_seconds", Some(seconds), 0, 0..=3_155_760_000)?;
    Ok(Duration::from_secs(seconds))
}

/// How many messages a purge would remove.
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
    let action = action(request, what, body.asked())?;
    // What was done before is answered as it was, however many there are now.
    if known.is_none() {
        let count = purgeable(request, age, limit).await?;
        if count != body.expected {
            return Err(changed(body.expected, count));
        }
    }
    act(request, action).await
}

/// An operation on many entries, as it was asked for.
fn bulk(request: &ApiRequest, plan: &wire::BulkPlan) -> ApiResult<BulkOperation> {
    let everything = "name what is meant in `which`, or say `everything`";
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

/// Begins an operation on many entries, or carries it on.
pub(super) async fn bulk_action(request: &ApiRequest) -> ApiResult<wire::OperationReport> {
    let body: wire::BulkAction = request.body()?;
    let mut bulk = bulk(request, &body.plan())?;
    bulk = bulk.id(body.operation.0).by(&request.who.asker(body.actor.as_deref())?, &body.reason.0);
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
    // Recorded before it is answered, so that another body under the same identity is told of at once.
    let what = ActionKind::Bulk {
        operation: bulk.operation,
        filter: Box::new(bulk.filter.clone()),
        limit: bulk.limit,
    };
    let action = action(request, what, body.asked())?;
    act(request, action).await?;
    let (id, admin) = (bulk.id, std::sync::Arc::clone(&served.admin));
    request.api.jobs.start(id, async move {
        let report = bulk.run(&*admin, &SystemClock::shared()).await?;
        let (state, done, failed) = (report.state.as_str(), report.done, report.failed);
        tracing::info!(operation = %id, state, done, failed, "an operation on many has ended");
        Ok(report.done as u64)
    });
    Ok(begun(request, id).await)
}

/// How far an operation has come that is recorded and goes on, whether or not the store can tell now: who is told that nothing
/// was stored begins it again under another identity.
async fn begun(request: &ApiRequest, id: OperationId) -> wire::OperationReport {
    let told = async { report(request, &record(request, id).await?.ok_or_else(|| unknown(id))?) };
    let told: ApiResult<Option<wire::OperationReport>> = told.await;
    told.ok().flatten().unwrap_or_else(|| wire::OperationReport {
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

/// How far an operation on many, or a backfill, has come; nothing for one that is done at once.
fn report(request: &ApiRequest, record: &OperationView) -> ApiResult<Option<wire::OperationReport>> {
    let Some(report) = OperationReport::of(record)? else { return Ok(None) };
    let job = request.api.jobs.get(record.id);
    let mut told = wire::OperationReport { active: job == Some(JobState::Active), ..show::report(&report) };
    // A backfill of a process that serves is noted by nobody but that.
    if &*record.verb == "backfill" && record.progress.is_none() {
        let (state, done) = match job {
            Some(JobState::Active) => (OperationState::Running.as_str(), 0),
            Some(JobState::Over(count)) => (OperationState::Finished.as_str(), count),
            Some(JobState::Failed) => ("failed", 0),
            // Another process, or an earlier life of this one.
            None => ("unknown", 0),
        };
        (told.state, told.done) = (state.into(), done);
    }
    Ok(Some(told))
}

/// The record of an operation, and how far it has come.
pub(super) async fn progress(request: &ApiRequest) -> ApiResult<wire::OperationProgress> {
    let OperationUuid(id) = request.operation()?;
    let record = record(request, id).await?.ok_or_else(|| unknown(id))?;
    Ok(wire::OperationProgress { operation: show::operation(&record), report: report(request, &record)? })
}

/// Stops an operation that this process carries on.
pub(super) async fn stop(request: &ApiRequest) -> ApiResult<wire::OperationProgress> {
    let OperationUuid(id) = request.operation()?;
    if record(request, id).await?.is_none() {
        return Err(unknown(id));
    }
    if request.api.jobs.stop(id) {
        let by = request.who.name.as_deref().unwrap_or("this machine");
        tracing::info!(operation = %id, by, "an operation on many was stopped");
    }
    progress(request).await
}

/// Gives a handler what was stored before it was there.
pub(super) async fn backfill(request: &ApiRequest) -> ApiResult<wire::OperationReport> {
    let body: wire::BackfillAction = request.body()?;
    let (served, key) = (request.inbox()?, handler(&body.handler)?);
    if served.plan.handlers.iter().all(|handler| handler.key != key.as_str()) {
        let there = served.plan.handlers.iter().map(|handler| handler.key.as_str()).collect::<Vec<_>>();
        let what = format!("this process has no handler {key}; it has {}", there.join(", "));
        return Err(ApiProblem::new(ProblemKind::NotFound, what));
    }
    let (id, actor) = (body.operation.0, request.who.asker(body.actor.as_deref())?);
    let backfill = BackfillRequest { handler: key.to_string(), id, actor, reason: body.reason.0 };
    let plan = served.plan.clone();
    served.stores.record_backfill(&plan, &backfill).await?;
    let BackfillRequest { handler, actor, .. } = &backfill;
    let (actor, token) = (&*actor.name, actor.token.as_deref());
    tracing::info!(inbox = plan.name, operation = %id, actor, token, handler, "a backfill was asked for");
    let stores = std::sync::Arc::clone(&served.stores);
    request.api.jobs.start(id, async move { stores.backfill(&plan, &backfill).await });
    Ok(begun(request, id).await)
}
