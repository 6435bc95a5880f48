//! API calls that only read. Tests: `tests/serve/api/`.

use oncebox::state::ErrorText;
use oncebox::store::{AuditFilter, ExamineParams, Explanation, MessageView};
use oncebox::time::{Clock as _, SystemClock};
use oncebox::{BreakerState, HandlerKey};

use super::access::ApiRole;
use super::problem::{ApiProblem, ApiResult, ProblemKind};
use super::request::{ApiRequest, page};
use super::{shared, show, wire};

pub(super) fn me(request: &ApiRequest) -> wire::CallerInfo {
    let may = |role: &ApiRole| request.caller.may(*role);
    let roles = ApiRole::ALL.iter().copied().filter(may).map(|role| role.as_str().to_owned()).collect();
    wire::CallerInfo { name: request.caller.name.clone(), roles }
}

pub(super) fn inboxes(request: &ApiRequest) -> wire::InboxList {
    let inbox = |served: &super::ServedInbox| wire::InboxSummary {
        name: served.plan.name.clone(),
        store: served.plan.store.clone(),
        handlers: served.plan.handlers.iter().map(|handler| handler.key.clone()).collect(),
    };
    wire::InboxList { inboxes: request.current.inboxes.iter().map(inbox).collect() }
}

pub(super) async fn counts(request: &ApiRequest) -> ApiResult<wire::InboxTotals> {
    let (served, query) = (request.inbox()?, request.query::<wire::TenantQuery>()?);
    let now = SystemClock::default().now();
    Ok(shared::counts(&*served.admin, served.name(), query.tenant.as_deref(), now).await?)
}

pub(super) async fn entries(request: &ApiRequest) -> ApiResult<wire::EntryList> {
    let (served, query) = (request.inbox()?, request.query::<wire::EntriesQuery>()?);
    let mut filter = query.filter(served.name().clone())?;
    filter.after = query.after.as_deref().map(str::parse).transpose()?;
    filter.limit = page(query.limit)?;
    let page = served.admin.list(&filter).await?;
    let entries = request.current.privacy.entries(&page.entries);
    Ok(wire::EntryList { entries, next: page.next.map(|next| next.to_string()) })
}

/// Returns the message of the key in the path.
async fn view(request: &ApiRequest) -> ApiResult<MessageView> {
    let (served, key) = (request.inbox()?, request.key()?);
    let view = served.admin.show(served.name(), &key).await?;
    view.ok_or_else(|| {
        ApiProblem::new(ProblemKind::NotFound, format!("the inbox has no message with the key {key}"))
    })
}

pub(super) async fn message(request: &ApiRequest) -> ApiResult<wire::MessageDetails> {
    let (view, served) = (view(request).await?, request.inbox()?);
    let history = served.admin.history(served.name(), &view.key).await?.unwrap_or_default();
    let privacy = &request.current.privacy;
    Ok(wire::MessageDetails {
        key: wire::KeyText(view.key),
        erased: view.erased,
        tenant: view.tenant.as_deref().map(Into::into),
        stored: show::stored(&view),
        entries: privacy.entries(&view.entries),
        attempts: history.attempts.iter().map(|attempt| privacy.attempt(attempt)).collect(),
        duplicates: history.duplicates.map_or(0, |duplicates| duplicates.count),
        quarantined: view.quarantined.iter().map(show::quarantined).collect(),
    })
}

pub(super) async fn payload(request: &ApiRequest) -> ApiResult<wire::MessagePayloads> {
    let view = view(request).await?;
    let (by, key) = (request.caller.name.as_deref().unwrap_or("this machine"), view.key);
    tracing::info!(inbox = %request.inbox()?.name(), by, %key, "payload read");
    let privacy = &request.current.privacy;
    Ok(wire::MessagePayloads {
        key: wire::KeyText(view.key),
        stored: view.stored.as_ref().map(|(_, _, message)| privacy.body(message)),
        quarantined: view.quarantined.iter().map(|item| privacy.body(&item.message)).collect(),
    })
}

pub(super) async fn explain(request: &ApiRequest) -> ApiResult<wire::MessageExplanation> {
    let (served, key) = (request.inbox()?, request.key()?);
    let explained: Option<Explanation> = served.admin.explain(served.name(), &key).await?;
    let mut explained = explained.ok_or_else(|| {
        ApiProblem::new(ProblemKind::NotFound, format!("the inbox has no message with the key {key}"))
    })?;
    let privacy = &request.current.privacy;
    // Redacted before they become part of a sentence: a pattern may match only a whole text.
    for attempt in &mut explained.history.attempts {
        attempt.error = attempt.error.take().map(|error| ErrorText::stored(privacy.line(error.as_str())));
    }
    let line =
        |(at, what): (_, String)| wire::StoryEvent { at: wire::TimeText(at), what: privacy.line(&what) };
    let both = explained.view.entries.iter().zip(explained.reasons());
    let entries =
        both.map(|(entry, why)| wire::ExplainedEntry { entry: privacy.entry(entry), why }).collect();
    Ok(wire::MessageExplanation {
        key: wire::KeyText(key),
        story: explained.story().into_iter().map(line).collect(),
        entries,
    })
}

pub(super) async fn quarantined(request: &ApiRequest) -> ApiResult<wire::QuarantineList> {
    let (served, query) = (request.inbox()?, request.query::<wire::QuarantineQuery>()?);
    let limit = page(query.limit)?;
    Ok(shared::quarantined(&*served.admin, served.name(), &query, limit).await?)
}

pub(super) async fn blocked(request: &ApiRequest) -> ApiResult<wire::BlockedKeyList> {
    let (served, query) = (request.inbox()?, request.query::<wire::BlockedQuery>()?);
    let limit = page(query.limit)?;
    Ok(shared::blocked(&*served.admin, served.name(), &query, limit).await?)
}

pub(super) async fn handlers(request: &ApiRequest) -> ApiResult<wire::HandlerList> {
    let served = request.inbox()?;
    let counts = served.admin.count(served.name()).await?;
    let breakers = served.inbox.breakers();
    let breaker = |key: &str| {
        let found = breakers.iter().find(|(handler, _)| handler.as_str() == key);
        found.map(|(_, state)| match state {
            BreakerState::Closed { .. } => "closed".to_owned(),
            BreakerState::Open { .. } => "open".to_owned(),
            _ => "probing".to_owned(),
        })
    };
    let paused = |key: &str| counts.paused.iter().any(|paused| paused.as_str() == key);
    let ours = served.plan.handlers.iter().map(|plan| wire::HandlerStatus {
        key: plan.key.clone(),
        runs_here: true,
        types: plan.types.clone(),
        legacy: plan.legacy.clone(),
        paused: paused(&plan.key),
        breaker: breaker(&plan.key),
    });
    let mut handlers: Vec<wire::HandlerStatus> = ours.collect();
    let named = counts.entries.iter().map(|entry| &entry.handler).chain(&counts.paused);
    for key in named {
        if handlers.iter().all(|known| known.key != key.as_str()) {
            let legacy = handlers.iter().any(|known| known.legacy.iter().any(|old| old == key.as_str()));
            handlers.push(wire::HandlerStatus {
                key: key.to_string(),
                runs_here: legacy,
                types: Vec::new(),
                legacy: Vec::new(),
                paused: paused(key.as_str()),
                breaker: None,
            });
        }
    }
    let paused_keys = counts.paused_keys.iter().map(show::paused_key).collect();
    Ok(wire::HandlerList { handlers, paused_keys })
}

pub(super) fn retention(request: &ApiRequest) -> ApiResult<wire::RetentionReport> {
    let advice = request.inbox()?.inbox.retention_advice();
    Ok(wire::RetentionReport {
        text: advice.to_string(),
        duplicates: advice.duplicates,
        stale: advice.stale,
        latest_seconds: advice.latest.as_secs_f64(),
        p50_seconds: advice.p50.as_secs_f64(),
        p90_seconds: advice.p90.as_secs_f64(),
        p99_seconds: advice.p99.as_secs_f64(),
        window_seconds: advice.window.map(|window| window.as_secs_f64()),
        covered: advice.covered,
    })
}

pub(super) async fn doctor(request: &ApiRequest) -> ApiResult<wire::DoctorReport> {
    let served = request.inbox()?;
    let mut params = ExamineParams::new(served.name().clone(), SystemClock::default().now());
    let handlers = &served.plan.handlers;
    let keys = handlers.iter().flat_map(|handler| std::iter::once(&handler.key).chain(&handler.legacy));
    params.known = Some(keys.filter_map(|key| HandlerKey::new(key).ok()).collect());
    params.redelivery = served.plan.redelivers();
    let findings = served.admin.doctor(&params).await?;
    Ok(wire::DoctorReport { findings: findings.iter().map(show::finding).collect() })
}

pub(super) async fn audit(request: &ApiRequest) -> ApiResult<wire::OperationList> {
    let (served, query) = (request.inbox()?, request.query::<wire::AuditQuery>()?);
    let mut filter = AuditFilter::new(served.name().clone());
    filter.parent = query.parent.map(|parent| parent.0);
    filter.key = query.key.map(|key| key.0);
    filter.actor = query.actor.as_deref().map(Into::into);
    filter.token = query.token.as_deref().map(Into::into);
    filter.before = query.before;
    filter.limit = page(query.limit)?;
    let page = served.admin.audit(&filter).await?;
    Ok(wire::OperationList {
        operations: page.operations.iter().map(show::operation).collect(),
        next: page.next,
    })
}
