//! Calls that change nothing.

use oncebox::state::ErrorText;
use oncebox::store::{AuditFilter, ExamineParams, Explanation, MessageView};
use oncebox::time::{Clock as _, SystemClock};
use oncebox::{BreakerState, HandlerKey};

use super::access::Role;
use super::ask::{Ask, page};
use super::problem::{Cause, Problem};
use super::{shared, show, wire};

type Answer<T> = Result<T, Problem>;

pub(super) fn me(ask: &Ask) -> wire::Me {
    let may = |role: &Role| ask.who.may(*role);
    let roles = Role::ALL.iter().copied().filter(may).map(|role| role.as_str().to_owned()).collect();
    wire::Me { name: ask.who.name.clone(), roles }
}

pub(super) fn inboxes(ask: &Ask) -> wire::Inboxes {
    let inbox = |served: &super::Served| wire::InboxSummary {
        name: served.plan.name.clone(),
        store: served.plan.store.clone(),
        handlers: served.plan.handlers.iter().map(|handler| handler.key.clone()).collect(),
    };
    wire::Inboxes { inboxes: ask.current.inboxes.iter().map(inbox).collect() }
}

pub(super) async fn counts(ask: &Ask) -> Answer<wire::Counts> {
    let (served, query) = (ask.inbox()?, ask.query::<wire::TenantQuery>()?);
    let now = SystemClock::default().now();
    Ok(shared::counts(&*served.admin, served.name(), query.tenant.as_deref(), now).await?)
}

pub(super) async fn entries(ask: &Ask) -> Answer<wire::Entries> {
    let (served, query) = (ask.inbox()?, ask.query::<wire::EntriesQuery>()?);
    let mut filter = query.filter(served.name().clone())?;
    filter.after = query.after.as_deref().map(str::parse).transpose()?;
    filter.limit = page(query.limit)?;
    let page = served.admin.list(&filter).await?;
    let entries = ask.current.privacy.entries(&page.entries);
    Ok(wire::Entries { entries, next: page.next.map(|next| next.to_string()) })
}

/// What is known of the key that the path names.
async fn view(ask: &Ask) -> Answer<MessageView> {
    let (served, key) = (ask.inbox()?, ask.key()?);
    let view = served.admin.show(served.name(), &key).await?;
    view.ok_or_else(|| Problem::new(Cause::NotFound, format!("nothing is known of {key}")))
}

pub(super) async fn message(ask: &Ask) -> Answer<wire::MessageView> {
    let (view, served) = (view(ask).await?, ask.inbox()?);
    let history = served.admin.history(served.name(), &view.key).await?.unwrap_or_default();
    let privacy = &ask.current.privacy;
    Ok(wire::MessageView {
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

pub(super) async fn payload(ask: &Ask) -> Answer<wire::Payloads> {
    let view = view(ask).await?;
    let (by, key) = (ask.who.name.as_deref().unwrap_or("this machine"), view.key);
    tracing::info!(inbox = %ask.inbox()?.name(), by, %key, "a payload was looked at");
    let privacy = &ask.current.privacy;
    Ok(wire::Payloads {
        key: wire::KeyText(view.key),
        stored: view.stored.as_ref().map(|(_, _, message)| privacy.body(message)),
        quarantined: view.quarantined.iter().map(|item| privacy.body(&item.message)).collect(),
    })
}

pub(super) async fn explain(ask: &Ask) -> Answer<wire::Explained> {
    let (served, key) = (ask.inbox()?, ask.key()?);
    let explained: Option<Explanation> = served.admin.explain(served.name(), &key).await?;
    let mut explained =
        explained.ok_or_else(|| Problem::new(Cause::NotFound, format!("nothing is known of {key}")))?;
    let privacy = &ask.current.privacy;
    // Before they become part of a line: a pattern may ask for the whole of a text.
    for attempt in &mut explained.history.attempts {
        attempt.error = attempt.error.take().map(|error| ErrorText::stored(privacy.line(error.as_str())));
    }
    let line = |(at, what): (_, String)| wire::StoryLine { at: wire::Time(at), what: privacy.line(&what) };
    let both = explained.view.entries.iter().zip(explained.reasons());
    let entries =
        both.map(|(entry, why)| wire::ExplainedEntry { entry: privacy.entry(entry), why }).collect();
    Ok(wire::Explained {
        key: wire::KeyText(key),
        story: explained.story().into_iter().map(line).collect(),
        entries,
    })
}

pub(super) async fn quarantined(ask: &Ask) -> Answer<wire::QuarantinePage> {
    let (served, query) = (ask.inbox()?, ask.query::<wire::QuarantineQuery>()?);
    let limit = page(query.limit)?;
    Ok(shared::quarantined(&*served.admin, served.name(), &query, limit).await?)
}

pub(super) async fn blocked(ask: &Ask) -> Answer<wire::Blocked> {
    let (served, query) = (ask.inbox()?, ask.query::<wire::BlockedQuery>()?);
    let limit = page(query.limit)?;
    Ok(shared::blocked(&*served.admin, served.name(), &query, limit).await?)
}

pub(super) async fn handlers(ask: &Ask) -> Answer<wire::Handlers> {
    let served = ask.inbox()?;
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
    let ours = served.plan.handlers.iter().map(|plan| wire::Handler {
        key: plan.key.clone(),
        runs_here: true,
        types: plan.types.clone(),
        legacy: plan.legacy.clone(),
        paused: paused(&plan.key),
        breaker: breaker(&plan.key),
    });
    let mut handlers: Vec<wire::Handler> = ours.collect();
    let named = counts.entries.iter().map(|entry| &entry.handler).chain(&counts.paused);
    for key in named {
        if handlers.iter().all(|known| known.key != key.as_str()) {
            let legacy = handlers.iter().any(|known| known.legacy.iter().any(|old| old == key.as_str()));
            handlers.push(wire::Handler {
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
    Ok(wire::Handlers { handlers, paused_keys })
}

pub(super) fn retention(ask: &Ask) -> Answer<wire::Advice> {
    let advice = ask.inbox()?.inbox.retention_advice();
    Ok(wire::Advice {
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

pub(super) async fn doctor(ask: &Ask) -> Answer<wire::Doctor> {
    let served = ask.inbox()?;
    let mut params = ExamineParams::new(served.name().clone(), SystemClock::default().now());
    let handlers = &served.plan.handlers;
    let keys = handlers.iter().flat_map(|handler| std::iter::once(&handler.key).chain(&handler.legacy));
    params.known = Some(keys.filter_map(|key| HandlerKey::new(key).ok()).collect());
    params.redelivery = served.plan.redelivers();
    let findings = served.admin.doctor(&params).await?;
    Ok(wire::Doctor { findings: findings.iter().map(show::finding).collect() })
}

pub(super) async fn audit(ask: &Ask) -> Answer<wire::AuditPage> {
    let (served, query) = (ask.inbox()?, ask.query::<wire::AuditQuery>()?);
    let mut filter = AuditFilter::new(served.name().clone());
    filter.parent = query.parent.map(|parent| parent.0);
    filter.key = query.key.map(|key| key.0);
    filter.actor = query.actor.as_deref().map(Into::into);
    filter.token = query.token.as_deref().map(Into::into);
    filter.before = query.before;
    filter.limit = page(query.limit)?;
    let page = served.admin.audit(&filter).await?;
    Ok(wire::AuditPage { operations: page.operations.iter().map(show::operation).collect(), next: page.next })
}
