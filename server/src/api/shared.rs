//! What is done the same over HTTP and by a command on a store.

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

/// So many handlers are named to whoever asks for one that is not there.
const NAMED: usize = 20;

/// What came of an action.
pub(crate) fn acted(id: OperationId, acted: &store::Acted, privacy: &Privacy) -> wire::ActionResponse {
    let mut told = wire::ActionResponse {
        operation: wire::OperationUuid(id),
        repeated: acted.repeated,
        entry: None,
        changed: None,
        legacy: Vec::new(),
        purged: None,
        erased: None,
    };
    match &acted.answer {
        ActionResult::Entry(entry) => told.entry = Some(privacy.entry(entry)),
        ActionResult::Changed(changed) => told.changed = Some(*changed),
        ActionResult::Erased(counts) => {
            let (discarded, quarantined) = (counts.discarded as u64, counts.quarantined as u64);
            told.erased = Some(wire::ErasureResult { discarded, quarantined });
        }
        ActionResult::Purged(count) => told.purged = Some(*count as u64),
        _ => {}
    }
    told
}

/// The record of an operation.
pub(crate) async fn record(
    store: &dyn Admin,
    inbox: &InboxName,
    id: OperationId,
) -> Result<Option<OperationView>> {
    let mut filter = AuditFilter::new(inbox.clone());
    (filter.id, filter.limit) = (Some(id), 1);
    Ok(store.audit(&filter).await?.operations.into_iter().next())
}

/// How many something may be done to: no more than were seen, since what comes to be meant later was not. One that was begun
/// before goes on as it was begun, whatever is seen by now.
pub(crate) fn cap(record: Option<&OperationView>, name: &str, limit: usize, expected: u64) -> usize {
    let begun = record.and_then(|record| {
        let body: serde_json::Value = serde_json::from_str(&record.body).ok()?;
        body.get("what")?.get(name)?.as_u64()
    });
    limit.min(usize::try_from(begun.unwrap_or(expected)).unwrap_or(usize::MAX))
}

/// A page of messages that were quarantined.
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

/// How many messages and entries there are, and what poisoned entries hold back. `now` is for the ages of one tenant's messages: of all
/// of them, the store tells the age.
pub(crate) async fn counts(
    store: &dyn Admin,
    inbox: &InboxName,
    tenant: Option<&str>,
    now: Timestamp,
) -> Result<wire::InboxCounts> {
    let Some(tenant) = tenant else {
        let mut counts = show::counts(&store.count(inbox).await?);
        let backlog = store.backlog(&BacklogParams::new(inbox.clone())).await?;
        let blocked = backlog.iter().filter(|backlog| backlog.blocked.keys > 0).map(show::blocked_count);
        counts.blocked = blocked.collect();
        return Ok(counts);
    };
    let mut counts = show::counts(&store.count_tenant(inbox, tenant).await?);
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

/// Ordering keys that are held back.
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

/// How many messages a purge would remove, as far as its limit goes.
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
    // All are looked at, as the purge does: after the clock was set, an old one may stand behind a young one.
    loop {
        let page = store.quarantined(&filter).await?;
        count += page.quarantined.iter().filter(|item| item.received_at <= until).count();
        filter.after = page.next;
        if filter.after.is_none() || count >= limit {
            return Ok(count.min(limit) as u64);
        }
    }
}

/// An operation on many entries. The error is what is wrong with what was asked for; `everything` is how that is said.
pub(crate) fn bulk(
    plan: &wire::BulkPlan,
    inbox: InboxName,
    everything: &str,
) -> std::result::Result<BulkOperation, String> {
    let filter = plan.which.filter(inbox).map_err(|error| error.what().to_owned())?;
    let narrow = plan.everything || filter.is_narrow();
    let made = if narrow { BulkOperation::on_everything } else { BulkOperation::new };
    made(plan.verb.into(), filter).map_err(|error| {
        let or = if narrow { "leave that status out" } else { everything };
        format!("{}; {or}", error.what())
    })
}

/// To pause or resume a handler, or one of its ordering keys.
pub(crate) fn hold_of(handler: HandlerKey, line: Option<&OrderQueue>, pause: bool) -> ActionKind {
    match (line.cloned(), pause) {
        (None, true) => ActionKind::Pause { handler },
        (None, false) => ActionKind::Resume { handler },
        (Some(line), true) => ActionKind::PauseKey { handler, line },
        (Some(line), false) => ActionKind::ResumeKey { handler, line },
    }
}

/// A handler that is to be paused or resumed.
pub(crate) struct PauseOperation<'a> {
    pub(crate) store: &'a dyn Admin,
    pub(crate) action: &'a Action,
    /// What a configuration says of the inbox.
    pub(crate) plan: Option<&'a InboxPlan>,
}

impl PauseOperation<'_> {
    /// The keys that the handler had before, as far as the plan knows. One that neither the plan nor the store has ever heard of is
    /// an error, unless that is meant, which is said with `word`: a slip would be answered as if it had stopped something.
    pub(crate) async fn legacy(
        &self,
        handler: &HandlerKey,
        unknown: bool,
        word: &str,
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
        // A store calls a handler by its newest key, and takes any.
        let mut by_key = EntryFilter::any(inbox.clone());
        (by_key.handler, by_key.limit) = (Some(handler.clone()), 1);
        if !self.store.list(&by_key).await?.entries.is_empty() {
            return Ok(Vec::new());
        }
        // What was done before is answered as it was, though nobody may know the handler any more.
        if known.contains(handler.as_str()) || record(self.store, inbox, self.action.id).await?.is_some() {
            return Ok(Vec::new());
        }
        let more = if known.len() > NAMED { ", and others" } else { "" };
        let there = match known.len() {
            0 => "there is none yet".to_owned(),
            _ => format!("there are {}{more}", known.into_iter().take(NAMED).collect::<Vec<_>>().join(", ")),
        };
        let what = format!(
            "nobody knows a handler {handler} in the inbox {inbox}; {there}; say {word} if it is yet to come"
        );
        Err(Error::new(ErrorKind::NotFound, what))
    }

    /// Does it, and the same to each key that the handler had before.
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
                let what =
                    format!("{verb} was done, but it is not known whether also for the former key {key}");
                Error::new(ErrorKind::CommitUnknown, what).caused_by(error)
            })?;
            if done.answer == ActionResult::Changed(true) {
                acted.answer = ActionResult::Changed(true);
            }
        }
        Ok(acted)
    }
}
