//! API calls about this process. Tests: `tests/serve/api/`.

use oncebox::BreakerState;

use super::access::ApiRole;
use super::problem::ApiResult;
use super::request::ApiRequest;
use crate::operator::wire;

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

pub(super) async fn handlers(request: &ApiRequest) -> ApiResult<wire::HandlerList> {
    let served = request.inbox()?;
    let counts = served.operator.totals().await?;
    let breakers = served.inbox.breakers();
    let breaker = |key: &str| {
        let found = breakers.iter().find(|(handler, _)| handler.as_str() == key);
        found.map(|(_, state)| match state {
            BreakerState::Closed { .. } => "closed".to_owned(),
            BreakerState::Open { .. } => "open".to_owned(),
            _ => "probing".to_owned(),
        })
    };
    let paused = |key: &str| counts.paused.iter().any(|paused| paused == key);
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
        if handlers.iter().all(|known| known.key != *key) {
            let legacy = handlers.iter().any(|known| known.legacy.iter().any(|old| old == key));
            handlers.push(wire::HandlerStatus {
                key: key.clone(),
                runs_here: legacy,
                types: Vec::new(),
                legacy: Vec::new(),
                paused: paused(key),
                breaker: None,
            });
        }
    }
    Ok(wire::HandlerList { handlers, paused_keys: counts.paused_keys })
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
