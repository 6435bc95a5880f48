//! Operations that the API and the commands on a store share. Tests: `tests/serve/api/` and `tests/operate/`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use oncebox::operate::BulkOperation;
use oncebox::store::{
    self, Action, ActionKind, ActionResult, Admin, AuditFilter, Backlog, BacklogParams, BlockedBacklog,
    BlockedParams, EntryFilter, OperationId, OperationView, OrderQueue, QuarantineFilter, QuarantineId,
    QuarantineReason,
};
use oncebox::time::Timestamp;
use oncebox::{Error, ErrorKind, HandlerKey, InboxName, Result};

use super::{Privacy, show, wire};
use crate::config::InboxPlan;

/// Maximum handlers that an error for an unknown one lists.
const MAX_LISTED: usize = 20;

/// Converts the result of an action for a client.
pub(crate) fn acted(id: OperationId, acted: &store::Acted, privacy: &Privacy) -> wire::ActionResponse {
    let mut response = wire::ActionResponse {
        operation: wire::OperationUuid(id),
        repeated: acted.repeated,
        entry: None,
        changed: None,
        legacy: Vec::new(),
        purged: None,
        erased: None,
    };
    match &acted.answer {
        ActionResult::Entry(entry) => response.entry = Some(privacy.entry(entry)),
        ActionResult::Changed(changed) => response.changed = Some(*changed),
        ActionResult::Erased(counts) => {
            let (discarded, quarantined) = (counts.discarded as u64, counts.quarantined as u64);
            response.erased = Some(wire::ErasureResult { discarded, quarantined });
        }
        ActionResult::Purged(count) => response.purged = Some(*count as u64),
        _ => {}
    }
    response
}

/// Returns the audit record of an operation.
pub(crate) async fn record(
    store: &dyn Admin,
    inbox: &InboxName,
    id: OperationId,
) -> Result<Option<OperationView>> {
    let mut filter = AuditFilter::new(inbox.clone());
    (filter.id, filter.limit) = (Some(id), 1);
    Ok(store.audit(&filter).await?.operations.into_iter().next())
}

/// Limits an operation to the `expected` count of its preview, so that it skips entries that match later. An operation that was
/// recorded before continues with its recorded limit.
pub(crate) fn cap(record: Option<&OperationView>, name: &str, limit: usize, expected: u64) -> usize {
    let recorded = record.and_then(|record| {
        let body: serde_json::Value = serde_json::from_str(&record.body).ok()?;
        body.get("what")?.get(name)?.as_u64()
    });
    limit.min(usize::try_from(recorded.unwrap_or(expected)).unwrap_or(usize::MAX))
}

/// Returns a page of quarantined messages.
pub(crate) async fn quarantined(
    store: &dyn Admin,
    inbox: &InboxName,
    query: &wire::QuarantineQuery,
    limit: usize,
) -> Result<wire::QuarantineList> {
    let mut filter = QuarantineFilter::new(inbox.clone());
    filter.reason = query.reason.map(|reason| match reason {
        wire::QuarantineReasonWord::Conflict => QuarantineReason::Conflict,
        wire::QuarantineReasonWord::Stale => QuarantineReason::Stale,
    });
    filter.tenant = query.tenant.as_deref().map(Into::into);
    (filter.after, filter.limit) = (query.after.map(QuarantineId), limit);
    let page = store.quarantined(&filter).await?;
    Ok(wire::QuarantineList {
        quarantined: page.quarantined.iter().map(show::quarantined_item).collect(),
        next: page.next.map(|next| next.0),
    })
}

/// Counts messages, entries and blocked ordering keys. Uses `now` for the ages of one tenant's messages; the store computes the
/// others.
pub(crate) async fn counts(
    store: &dyn Admin,
    inbox: &InboxName,
    tenant: Option<&str>,
    now: Timestamp,
) -> Result<wire::InboxTotals> {
    let Some(tenant) = tenant else {
        let mut counts = show::counts(&store.count(inbox).await?);
        let backlog = store.backlog(&BacklogParams::new(inbox.clone())).await?;
        let blocked = backlog.iter().filter(|backlog| backlog.blocked.keys > 0).map(show::blocked_count);
        counts.blocked = blocked.collect();
        return Ok(counts);
    };
    let mut counts = show::counts(&store.count(inbox, Some(tenant)).await?);
    let mut params = BlockedParams::new(inbox.clone());
    (params.tenant, params.limit) = (Some(tenant.into()), 1_000);
    let mut found: BTreeMap<HandlerKey, BlockedBacklog> = BTreeMap::new();
    for key in store.blocked(&params).await? {
        let blocked = found.entry(key.handler).or_default();
        blocked.keys += 1;
        blocked.waiting += key.waiting;
        blocked.oldest = blocked.oldest.max(key.oldest.map(|at| now.since(at)));
    }
    let backlog = |(handler, blocked)| Backlog::new(handler, 0, 0, None).held_back(blocked);
    counts.blocked = found.into_iter().map(backlog).map(|backlog| show::blocked_count(&backlog)).collect();
    Ok(counts)
}

/// Returns blocked ordering keys.
pub(crate) async fn blocked(
    store: &dyn Admin,
    inbox: &InboxName,
    query: &wire::BlockedQuery,
    limit: usize,
) -> Result<wire::BlockedKeyList> {
    let mut params = BlockedParams::new(inbox.clone());
    (params.tenant, params.limit) = (query.tenant.as_deref().map(Into::into), limit);
    let blocked = store.blocked(&params).await?;
    Ok(wire::BlockedKeyList { blocked: blocked.iter().map(show::blocked).collect() })
}

/// Counts the messages that a purge would delete, up to its limit.
pub(crate) async fn purgeable(
    store: &dyn Admin,
    inbox: &InboxName,
    (now, age): (Timestamp, Duration),
    limit: usize,
) -> Result<u64> {
    let until = now.before(age);
    let mut filter = QuarantineFilter::new(inbox.clone());
    filter.limit = 1_000;
    let mut count = 0;
    // Reads all of them, as the purge does: after a clock change, an old message may follow a young one.
    loop {
        let page = store.quarantined(&filter).await?;
        count += page.quarantined.iter().filter(|item| item.received_at <= until).count();
        filter.after = page.next;
        if filter.after.is_none() || count >= limit {
            return Ok(count.min(limit) as u64);
        }
    }
}

/// Builds a bulk operation, or returns what is wrong with the plan. `everything` is the advice for a filter that is too wide.
pub(crate) fn bulk(
    plan: &wire::BulkPlan,
    inbox: InboxName,
    everything: &str,
) -> std::result::Result<BulkOperation, String> {
    let filter = plan.which.filter(inbox).map_err(|error| error.what().to_owned())?;
    let narrow = plan.everything || filter.is_narrow();
    let made = if narrow { BulkOperation::on_everything } else { BulkOperation::new };
    made(plan.verb.into(), filter).map_err(|error| {
        let advice = if narrow { "remove that status" } else { everything };
        format!("{}; {advice}", error.what())
    })
}

/// Returns the action that pauses or resumes a handler, or one of its ordering keys.
pub(crate) fn hold_of(handler: HandlerKey, line: Option<&OrderQueue>, pause: bool) -> ActionKind {
    match (line.cloned(), pause) {
        (None, true) => ActionKind::Pause { handler },
        (None, false) => ActionKind::Resume { handler },
        (Some(line), true) => ActionKind::PauseKey { handler, line },
        (Some(line), false) => ActionKind::ResumeKey { handler, line },
    }
}

/// A pause or resume of a handler.
pub(crate) struct PauseOperation<'a> {
    pub(crate) store: &'a dyn Admin,
    pub(crate) action: &'a Action,
    /// Configuration of the inbox, if known.
    pub(crate) plan: Option<&'a InboxPlan>,
}

impl PauseOperation<'_> {
    /// Returns the former keys of the handler in the configuration. A handler that neither the configuration nor the store knows is
    /// an error unless `unknown` is set: a typing error would look like a success. `flag` is how a client sets `unknown`.
    pub(crate) async fn legacy(
        &self,
        handler: &HandlerKey,
        unknown: bool,
        flag: &str,
    ) -> Result<Vec<HandlerKey>> {
        let planned = self.plan.map_or(&[][..], |plan| &plan.handlers);
        if let Some(found) = planned.iter().find(|one| one.key == handler.as_str()) {
            return found.legacy.iter().map(HandlerKey::new).collect();
        }
        if unknown {
            return Ok(Vec::new());
        }
        let inbox = &self.action.inbox;
        let counts = self.store.count(inbox).await?;
        let stored = counts.entries.iter().map(|count| &count.handler).chain(&counts.paused);
        let stored = stored.chain(counts.paused_keys.iter().map(|key| &key.handler)).map(HandlerKey::as_str);
        let planned = planned.iter().flat_map(|one| one.legacy.iter().chain([&one.key])).map(String::as_str);
        let known: BTreeSet<&str> = stored.chain(planned).collect();
        // A store lists a handler under its newest key, and accepts any.
        let mut by_key = EntryFilter::any(inbox.clone());
        (by_key.handler, by_key.limit) = (Some(handler.clone()), 1);
        if !self.store.list(&by_key).await?.entries.is_empty() {
            return Ok(Vec::new());
        }
        // A repeated request succeeds again, even if the handler is gone by now.
        if known.contains(handler.as_str()) || record(self.store, inbox, self.action.id).await?.is_some() {
            return Ok(Vec::new());
        }
        let more = if known.len() > MAX_LISTED { ", and others" } else { "" };
        let there = match known.len() {
            0 => "it has none yet".to_owned(),
            _ => {
                format!("it has {}{more}", known.into_iter().take(MAX_LISTED).collect::<Vec<_>>().join(", "))
            }
        };
        let what = format!(
            "the inbox {inbox} has no handler {handler}; {there}; use {flag} for a handler that does not exist yet"
        );
        Err(Error::new(ErrorKind::NotFound, what))
    }

    /// Runs the action for the handler and for each of its former keys.
    pub(crate) async fn act(
        &self,
        legacy: &[HandlerKey],
        what: impl Fn(HandlerKey) -> ActionKind,
    ) -> Result<store::Acted> {
        let action = self.action;
        let mut acted = self.store.act(action).await?;
        for key in legacy {
            let mut part = action.clone();
            (part.id, part.parent) = (action.id.of_legacy(key), Some(action.id));
            part.kind = what(key.clone());
            let done = self.store.act(&part).await.map_err(|error| {
                let verb = action.kind.verb();
                let what = format!("{verb} was done, but its outcome for the former key {key} is unknown");
                Error::new(ErrorKind::CommitUnknown, what).caused_by(error)
            })?;
            if done.answer == ActionResult::Changed(true) {
                acted.answer = ActionResult::Changed(true);
            }
        }
        Ok(acted)
    }
}
