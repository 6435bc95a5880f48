//! Calls that change something. Each is recorded with who asked for it and why.

use std::time::Duration;

use oncebox::HandlerKey;
use oncebox::operate::{BulkOperation, OperationReport, OperationState};
use oncebox::state::Operation;
use oncebox::store::{self, Action, ActionKind, OperationId, OperationView, OrderQueue};
use oncebox::time::{Clock as _, SystemClock};

use super::ask::{Ask, bounded, handler};
use super::jobs::Job;
use super::problem::{Cause, Problem};
use super::wire::OperationUuid;
use super::{BackfillRequest, shared, show, wire};

type Answer<T> = Result<T, Problem>;

/// An action, with who asks for it and why.
fn action(ask: &Ask, what: ActionKind, asked: wire::Asked<'_>) -> Answer<Action> {
    let actor = ask.who.asker(asked.actor)?;
    Ok(Action::new(ask.inbox()?.name().clone(), what).id(asked.operation.0).by(&actor, asked.reason))
}

/// Does an action, and tells what came of it.
async fn act(ask: &Ask, action: Action) -> Answer<wire::Acted> {
    let acted = ask.inbox()?.admin.act(&action).await?;
    Ok(tell(ask, &action, &acted))
}

fn tell(ask: &Ask, action: &Action, acted: &store::Acted) -> wire::Acted {
    let Action { id, inbox, actor, token, kind, .. } = action;
    let (verb, repeated) = (kind.verb(), acted.repeated);
    let token = token.as_deref();
    tracing::info!(%inbox, operation = %id, actor = &**actor, token, repeated, "{verb} was asked for and done");
    shared::acted(*id, acted, &ask.current.privacy)
}

/// Retries, discards, replays or unblocks one entry.
pub(super) async fn entry(ask: &Ask, operation: Operation) -> Answer<wire::Acted> {
    let key = ask.key()?;
    let body: wire::EntryAction = ask.body()?;
    let what = ActionKind::Entry { key, handler: handler(&body.handler)?, operation };
    act(ask, action(ask, what, body.asked())?).await
}

/// Erases the content of one message.
pub(super) async fn erase(ask: &Ask) -> Answer<wire::Acted> {
    let key = ask.key()?;
    let body: wire::ErasureAction = ask.body()?;
    let what = ActionKind::Erase { key, discard_unfinished: body.discard_unfinished };
    act(ask, action(ask, what, body.asked())?).await
}

/// Pauses or resumes a handler, or one of its ordering keys; with the keys that it had before.
pub(super) async fn hold(ask: &Ask, pause: bool) -> Answer<wire::Acted> {
    let body: wire::Hold = ask.body()?;
    let (served, handler) = (ask.inbox()?, handler(&body.handler)?);
    let line = body.line.as_ref().map(line).transpose()?;
    let what = |handler: HandlerKey| shared::hold_of(handler, line.as_ref(), pause);
    let action = action(ask, what(handler.clone()), body.asked())?;
    let held = shared::Held { store: &*served.admin, action: &action, plan: Some(&served.plan) };
    let legacy = held.legacy(&handler, body.unknown, "`unknown`").await?;
    let acted = held.act(&legacy, what).await?;
    let legacy = legacy.iter().map(ToString::to_string).collect();
    Ok(wire::Acted { legacy, ..tell(ask, &action, &acted) })
}

fn line(named: &wire::LineRef) -> Answer<OrderQueue> {
    let bytes: Box<[u8]> = match (&named.ordering_key, &named.ordering_key_hex) {
        (Some(text), None) => text.as_bytes().into(),
        (None, Some(digits)) => unhex(digits)?,
        _ => {
            let what = "name the ordering key with `ordering_key` or with `ordering_key_hex`";
            return Err(Problem::new(Cause::Invalid, what));
        }
    };
    let mut line = OrderQueue::new(named.source.as_deref().unwrap_or_default(), bytes);
    line.tenant = named.tenant.as_deref().map(Into::into);
    Ok(line)
}

fn unhex(digits: &str) -> Answer<Box<[u8]>> {
    let pair = |at: usize| {
        let pair = digits.get(at..at + 2).filter(|pair| pair.bytes().all(|b| b.is_ascii_hexdigit()))?;
        u8::from_str_radix(pair, 16).ok()
    };
    let bytes: Option<Box<[u8]>> = (0..digits.len()).step_by(2).map(pair).collect();
    bytes.ok_or_else(|| Problem::new(Cause::Invalid, "`ordering_key_hex` is not made of pairs of digits"))
}

/// What `expected` was not.
fn changed(expected: u64, count: u64) -> Problem {
    let what = format!("there are {count} now, and {expected} were expected: nothing was done");
    Problem::new(Cause::Changed, what)
}

/// The record of an operation.
async fn record(ask: &Ask, id: OperationId) -> Answer<Option<OperationView>> {
    let served = ask.inbox()?;
    Ok(shared::record(&*served.admin, served.name(), id).await?)
}

fn purge_limit(limit: Option<u64>) -> Answer<usize> {
    bounded("limit", limit, 1_000, 1..=10_000)
}

fn purge_age(seconds: u64) -> Answer<Duration> {
    // A hundred years: what is beyond that is a slip.
    bounded("older_than_seconds", Some(seconds), 0, 0..=3_155_760_000)?;
    Ok(Duration::from_secs(seconds))
}

/// How many messages a purge would remove.
async fn purgeable(ask: &Ask, age: Duration, limit: usize) -> Answer<u64> {
    let (served, now) = (ask.inbox()?, SystemClock::default().now());
    Ok(shared::purgeable(&*served.admin, served.name(), (now, age), limit).await?)
}

pub(super) async fn purge_preview(ask: &Ask) -> Answer<wire::PurgePreview> {
    let body: wire::PurgePlan = ask.body()?;
    let (age, limit) = (purge_age(body.older_than_seconds)?, purge_limit(body.limit)?);
    Ok(wire::PurgePreview { count: purgeable(ask, age, limit).await? })
}

pub(super) async fn purge(ask: &Ask) -> Answer<wire::Acted> {
    let body: wire::Purge = ask.body()?;
    let (age, limit) = (purge_age(body.older_than_seconds)?, purge_limit(body.limit)?);
    let known = record(ask, body.operation.0).await?;
    let what = ActionKind::Purge { age, limit: shared::cap(known.as_ref(), "limit", limit, body.expected) };
    let action = action(ask, what, body.asked())?;
    // What was done before is answered as it was, however many there are now.
    if known.is_none() {
        let count = purgeable(ask, age, limit).await?;
        if count != body.expected {
            return Err(changed(body.expected, count));
        }
    }
    act(ask, action).await
}

/// An operation on many entries, as it was asked for.
fn bulk(ask: &Ask, plan: &wire::BulkPlan) -> Answer<BulkOperation> {
    let everything = "name what is meant in `which`, or say `everything`";
    let bulk = shared::bulk(plan, ask.inbox()?.name().clone(), everything);
    let mut bulk = bulk.map_err(|what| Problem::new(Cause::Invalid, what))?;
    bulk.limit = bounded("limit", plan.limit, bulk.limit, 1..=100_000)?;
    Ok(bulk)
}

pub(super) async fn bulk_preview(ask: &Ask) -> Answer<wire::Preview> {
    let bulk = bulk(ask, &ask.body()?)?;
    let preview = bulk.preview(&*ask.inbox()?.admin).await?;
    Ok(wire::Preview {
        count: preview.count as u64,
        more: preview.more,
        first: ask.current.privacy.entries(&preview.first),
    })
}

/// Begins an operation on many entries, or carries it on.
pub(super) async fn bulk_action(ask: &Ask) -> Answer<wire::Report> {
    let body: wire::BulkAction = ask.body()?;
    let mut bulk = bulk(ask, &body.plan())?;
    bulk = bulk.id(body.operation.0).by(&ask.who.asker(body.actor.as_deref())?, &body.reason.0);
    bulk.per_second = bounded("per_second", body.per_second, bulk.per_second, 1..=1_000)?;
    bulk.failures = bounded("failures", body.failures, bulk.failures, 0..=100_000)?;
    bulk.go_on = body.go_on;
    let served = ask.inbox()?;
    let known = record(ask, bulk.id).await?;
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
    let action = action(ask, what, body.asked())?;
    act(ask, action).await?;
    let (id, admin) = (bulk.id, std::sync::Arc::clone(&served.admin));
    ask.api.jobs.start(id, async move {
        let report = bulk.run(&*admin, &SystemClock::shared()).await?;
        let (state, done, failed) = (report.state.as_str(), report.done, report.failed);
        tracing::info!(operation = %id, state, done, failed, "an operation on many has ended");
        Ok(report.done as u64)
    });
    Ok(begun(ask, id).await)
}

/// How far an operation has come that is recorded and goes on, whether or not the store can tell now: who is told that nothing
/// was stored begins it again under another identity.
async fn begun(ask: &Ask, id: OperationId) -> wire::Report {
    let told = async { report(ask, &record(ask, id).await?.ok_or_else(|| unknown(id))?) };
    let told: Answer<Option<wire::Report>> = told.await;
    told.ok().flatten().unwrap_or_else(|| wire::Report {
        operation: OperationUuid(id),
        state: OperationState::Running.as_str().into(),
        active: ask.api.jobs.get(id) == Some(Job::Active),
        done: 0,
        refused: 0,
        failed: 0,
    })
}

fn unknown(id: OperationId) -> Problem {
    Problem::new(Cause::NotFound, format!("there is no operation {id}"))
}

/// How far an operation on many, or a backfill, has come; nothing for one that is done at once.
fn report(ask: &Ask, record: &OperationView) -> Answer<Option<wire::Report>> {
    let Some(report) = OperationReport::of(record)? else { return Ok(None) };
    let job = ask.api.jobs.get(record.id);
    let mut told = wire::Report { active: job == Some(Job::Active), ..show::report(&report) };
    // A backfill of a process that serves is noted by nobody but that.
    if &*record.verb == "backfill" && record.progress.is_none() {
        let (state, done) = match job {
            Some(Job::Active) => (OperationState::Running.as_str(), 0),
            Some(Job::Over(count)) => (OperationState::Finished.as_str(), count),
            Some(Job::Failed) => ("failed", 0),
            // Another process, or an earlier life of this one.
            None => ("unknown", 0),
        };
        (told.state, told.done) = (state.into(), done);
    }
    Ok(Some(told))
}

/// The record of an operation, and how far it has come.
pub(super) async fn progress(ask: &Ask) -> Answer<wire::OperationProgress> {
    let OperationUuid(id) = ask.operation()?;
    let record = record(ask, id).await?.ok_or_else(|| unknown(id))?;
    Ok(wire::OperationProgress { operation: show::operation(&record), report: report(ask, &record)? })
}

/// Stops an operation that this process carries on.
pub(super) async fn stop(ask: &Ask) -> Answer<wire::OperationProgress> {
    let OperationUuid(id) = ask.operation()?;
    if record(ask, id).await?.is_none() {
        return Err(unknown(id));
    }
    if ask.api.jobs.stop(id) {
        let by = ask.who.name.as_deref().unwrap_or("this machine");
        tracing::info!(operation = %id, by, "an operation on many was stopped");
    }
    progress(ask).await
}

/// Gives a handler what was stored before it was there.
pub(super) async fn backfill(ask: &Ask) -> Answer<wire::Report> {
    let body: wire::Backfill = ask.body()?;
    let (served, key) = (ask.inbox()?, handler(&body.handler)?);
    if served.plan.handlers.iter().all(|handler| handler.key != key.as_str()) {
        let there = served.plan.handlers.iter().map(|handler| handler.key.as_str()).collect::<Vec<_>>();
        let what = format!("this process has no handler {key}; it has {}", there.join(", "));
        return Err(Problem::new(Cause::NotFound, what));
    }
    let (id, actor) = (body.operation.0, ask.who.asker(body.actor.as_deref())?);
    let request = BackfillRequest { handler: key.to_string(), id, actor, reason: body.reason.0 };
    let plan = served.plan.clone();
    served.stores.record_backfill(&plan, &request).await?;
    let BackfillRequest { handler, actor, .. } = &request;
    let (actor, token) = (&*actor.name, actor.token.as_deref());
    tracing::info!(inbox = plan.name, operation = %id, actor, token, handler, "a backfill was asked for");
    let stores = std::sync::Arc::clone(&served.stores);
    ask.api.jobs.start(id, async move { stores.backfill(&plan, &request).await });
    Ok(begun(ask, id).await)
}
