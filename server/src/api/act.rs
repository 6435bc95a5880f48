//! Calls that change something. Each is recorded with who asked for it and why.

use std::time::Duration;

use oncebox::operate::{Bulk, State};
use oncebox::state::Operation;
use oncebox::store::{
    Action, Answer as Said, AsideFilter, AuditFilter, Line, OperationId, OperationView, What,
};
use oncebox::time::{Clock as _, SystemClock};

use super::ask::{Ask, bounded, handler};
use super::jobs::Job;
use super::problem::{Cause, Problem};
use super::wire::OperationUuid;
use super::{Errand, show, wire};

type Answer<T> = Result<T, Problem>;

/// An action, with who asks for it and why.
fn action(
    ask: &Ask,
    what: What,
    id: OperationUuid,
    actor: Option<&wire::Text>,
    reason: &wire::Reason,
) -> Answer<Action> {
    let actor = ask.who.actor(actor.map(|actor| &**actor))?;
    Ok(Action::new(ask.inbox()?.name().clone(), what).id(id.0).by(&actor, &reason.0))
}

/// Does an action, and tells what came of it.
async fn act(ask: &Ask, action: Action) -> Answer<wire::Acted> {
    let acted = ask.inbox()?.admin.act(&action).await?;
    let Action { id, inbox, actor, what, .. } = &action;
    let (verb, repeated) = (what.verb(), acted.repeated);
    tracing::info!(%inbox, operation = %id, actor = &**actor, repeated, "{verb} was asked for and done");
    let mut told =
        wire::Acted { operation: OperationUuid(*id), repeated, entry: None, changed: None, purged: None };
    match &acted.answer {
        Said::Entry(entry) => told.entry = Some(ask.current.privacy.entry(entry)),
        Said::Changed(changed) => told.changed = Some(*changed),
        Said::Purged(count) => told.purged = Some(*count as u64),
        _ => {}
    }
    Ok(told)
}

/// Retries, discards, replays or unblocks one entry.
pub(super) async fn entry(ask: &Ask, operation: Operation) -> Answer<wire::Acted> {
    let key = ask.key()?;
    let body: wire::EntryAction = ask.body()?;
    let what = What::Entry { key, handler: handler(&body.handler)?, operation };
    act(ask, action(ask, what, body.operation, body.actor.as_ref(), &body.reason)?).await
}

/// Pauses or resumes a handler, or one of its ordering keys.
pub(super) async fn hold(ask: &Ask, pause: bool) -> Answer<wire::Acted> {
    let body: wire::Hold = ask.body()?;
    let handler = handler(&body.handler)?;
    let what = match (body.line.as_ref().map(line).transpose()?, pause) {
        (None, true) => What::Pause { handler },
        (None, false) => What::Resume { handler },
        (Some(line), true) => What::PauseKey { handler, line },
        (Some(line), false) => What::ResumeKey { handler, line },
    };
    act(ask, action(ask, what, body.operation, body.actor.as_ref(), &body.reason)?).await
}

fn line(named: &wire::LineRef) -> Answer<Line> {
    let bytes: Box<[u8]> = match (&named.ordering_key, &named.ordering_key_hex) {
        (Some(text), None) => text.as_bytes().into(),
        (None, Some(digits)) => unhex(digits)?,
        _ => {
            let what = "name the ordering key with `ordering_key` or with `ordering_key_hex`";
            return Err(Problem::new(Cause::Invalid, what));
        }
    };
    let mut line = Line::new(named.source.as_deref().unwrap_or_default(), bytes);
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
    let mut filter = AuditFilter::new(served.name().clone());
    (filter.id, filter.limit) = (Some(id), 1);
    Ok(served.admin.audit(&filter).await?.operations.into_iter().next())
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
    let served = ask.inbox()?;
    let until = SystemClock::default().now().before(age);
    let mut filter = AsideFilter::new(served.name().clone());
    filter.limit = 1_000;
    let mut count = 0;
    // The first kept come first, so those that are too young end it.
    loop {
        let page = served.admin.aside(&filter).await?;
        let old = page.asides.iter().filter(|aside| aside.received_at <= until).count();
        count += old;
        filter.after = page.next;
        if filter.after.is_none() || count >= limit || old < page.asides.len() {
            return Ok(count.min(limit) as u64);
        }
    }
}

pub(super) async fn purge_preview(ask: &Ask) -> Answer<wire::PurgePreview> {
    let body: wire::PurgePlan = ask.body()?;
    let (age, limit) = (purge_age(body.older_than_seconds)?, purge_limit(body.limit)?);
    Ok(wire::PurgePreview { count: purgeable(ask, age, limit).await? })
}

pub(super) async fn purge(ask: &Ask) -> Answer<wire::Acted> {
    let body: wire::Purge = ask.body()?;
    let (age, limit) = (purge_age(body.older_than_seconds)?, purge_limit(body.limit)?);
    let action = action(ask, What::Purge { age, limit }, body.operation, body.actor.as_ref(), &body.reason)?;
    // What was done before is answered as it was, however many there are now.
    if record(ask, body.operation.0).await?.is_none() {
        let count = purgeable(ask, age, limit).await?;
        if count != body.expected {
            return Err(changed(body.expected, count));
        }
    }
    act(ask, action).await
}

/// An operation on many entries, as it was asked for.
fn bulk(
    ask: &Ask,
    verb: wire::Verb,
    which: &wire::Which,
    most: Option<u64>,
    everything: bool,
) -> Answer<Bulk> {
    let filter = which.filter(ask.inbox()?.name().clone())?;
    let mut bulk = if everything {
        Bulk::on_everything(verb.into(), filter)
    } else {
        Bulk::new(verb.into(), filter).map_err(|error| {
            let what = format!("{}; name what is meant in `which`, or say `everything`", error.what());
            Problem::new(Cause::Invalid, what)
        })?
    };
    bulk.most = bounded("most", most, bulk.most, 1..=100_000)?;
    Ok(bulk)
}

pub(super) async fn bulk_preview(ask: &Ask) -> Answer<wire::Preview> {
    let body: wire::BulkPlan = ask.body()?;
    let bulk = bulk(ask, body.verb, &body.which, body.most, body.everything)?;
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
    let mut bulk = bulk(ask, body.verb, &body.which, body.most, body.everything)?;
    bulk = bulk.id(body.operation.0).by(&ask.who.actor(body.actor.as_deref())?, &body.reason.0);
    bulk.per_second = bounded("per_second", body.per_second, bulk.per_second, 1..=1_000)?;
    bulk.failures = bounded("failures", body.failures, bulk.failures, 0..=100_000)?;
    bulk.go_on = body.go_on;
    let served = ask.inbox()?;
    if record(ask, bulk.id).await?.is_none() {
        let preview = bulk.preview(&*served.admin).await?;
        if preview.count as u64 != body.expected {
            return Err(changed(body.expected, preview.count as u64));
        }
    }
    // Recorded before it is answered, so that another body under the same identity is told of at once.
    let what =
        What::Bulk { operation: bulk.operation, filter: Box::new(bulk.filter.clone()), most: bulk.most };
    let action = action(ask, what, body.operation, body.actor.as_ref(), &body.reason)?;
    act(ask, action).await?;
    let (id, admin) = (bulk.id, std::sync::Arc::clone(&served.admin));
    ask.api.jobs.start(id, async move {
        let report = bulk.run(&*admin, &SystemClock::shared()).await?;
        let (state, done, failed) = (report.state.as_str(), report.done, report.failed);
        tracing::info!(operation = %id, state, done, failed, "an operation on many has ended");
        Ok(report.done as u64)
    });
    report(ask, &record(ask, id).await?.ok_or_else(|| unknown(id))?).await
}

fn unknown(id: OperationId) -> Problem {
    Problem::new(Cause::NotFound, format!("there is no operation {id}"))
}

/// How far an operation on many, or a backfill, has come.
async fn report(ask: &Ask, record: &OperationView) -> Answer<wire::Report> {
    let served = ask.inbox()?;
    let job = ask.api.jobs.get(record.id);
    let active = job == Some(Job::Active);
    let operation = OperationUuid(record.id);
    if &*record.verb == "backfill" {
        let (state, done) = match job {
            Some(Job::Active) => (State::Running.as_str(), 0),
            Some(Job::Over(count)) => (State::Finished.as_str(), count),
            Some(Job::Failed) => ("failed", 0),
            // Another process, or an earlier life of this one.
            None => ("unknown", 0),
        };
        return Ok(wire::Report { operation, state: state.into(), active, done, refused: 0, failed: 0 });
    }
    let filter = oncebox::store::Filter::any(served.name().clone());
    let bulk = Bulk::on_everything(Operation::Retry, filter).id(record.id);
    let report = bulk.report(&*served.admin).await?.ok_or_else(|| unknown(record.id))?;
    Ok(wire::Report {
        operation,
        state: report.state.as_str().into(),
        active,
        done: report.done as u64,
        refused: report.refused as u64,
        failed: report.failed as u64,
    })
}

/// The record of an operation, and how far it has come.
pub(super) async fn progress(ask: &Ask) -> Answer<wire::OperationProgress> {
    let OperationUuid(id) = ask.operation()?;
    let record = record(ask, id).await?.ok_or_else(|| unknown(id))?;
    let long = ["bulk", "backfill"].contains(&&*record.verb);
    let report = if long { Some(report(ask, &record).await?) } else { None };
    Ok(wire::OperationProgress { operation: show::operation(&record), report })
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
        return Err(Problem::new(Cause::NotFound, format!("this process has no handler {key:?}")));
    }
    let (id, actor) = (body.operation.0, ask.who.actor(body.actor.as_deref())?);
    let errand = Errand { handler: key.to_string(), id, actor, reason: body.reason.0 };
    let plan = served.plan.clone();
    served.stores.record_backfill(&plan, &errand).await?;
    let Errand { handler, actor, .. } = &errand;
    tracing::info!(inbox = plan.name, operation = %id, actor, handler, "a backfill was asked for");
    let stores = std::sync::Arc::clone(&served.stores);
    ask.api.jobs.start(id, async move { stores.backfill(&plan, &errand).await });
    report(ask, &record(ask, id).await?.ok_or_else(|| unknown(id))?).await
}
