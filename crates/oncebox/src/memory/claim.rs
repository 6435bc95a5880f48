//! Claim and rescue in the memory store: each entry is leased to one worker at a time.

use std::sync::Arc;

use super::tables::{InboxTables, MemoryTables};
use crate::name::{HandlerKey, InboxName};
use crate::state::{Status, Suspicion};
use crate::store::{Claim, ClaimId, ClaimMode, ClaimParams, ClaimQuota, Claimed, RescueParams, Route, Seq};
use crate::time::Timestamp;

impl MemoryTables {
    pub(super) fn claim(&mut self, params: &ClaimParams, now: Timestamp) -> Vec<Claimed> {
        let scope = self.scope(&params.inbox);
        let routes: Vec<&Route> = params.wants.iter().map(|want| &want.route).collect();
        let held = scope.held(params.claim_id, &routes);
        if !held.is_empty() {
            return held;
        }
        let wanted = |want: &ClaimQuota| (scope.names.link_known(&want.route), want.limit);
        let wants: Vec<Wanted> = params.wants.iter().map(wanted).collect();
        let (chosen, idle) = match params.mode {
            ClaimMode::Healthy => (scope.healthy(&wants, now), false),
            ClaimMode::Suspect => (scope.suspects(&wants, params.company_factor, now), params.idle),
        };
        let (alone, lease) = (idle && chosen.len() == 1, (params.claim_id, now, now.after(params.lease)));
        self.lease(&params.inbox, &chosen, &routes, lease, Some(alone))
    }

    pub(super) fn rescue(&mut self, params: &RescueParams, now: Timestamp) -> Vec<Claimed> {
        let scope = self.scope(&params.inbox);
        let routes: Vec<&Route> = params.routes.iter().collect();
        let held = scope.held(params.claim_id, &routes);
        if !held.is_empty() {
            return held;
        }
        let handlers: Vec<_> = routes.iter().flat_map(|route| scope.names.link_known(route)).collect();
        let chosen = scope.lapsed(&handlers, params.limit, now);
        self.lease(&params.inbox, &chosen, &routes, (params.claim_id, now, now.after(params.lease)), None)
    }

    /// Leases entries to a claim, each under a new token. `alone` is set by a claim and kept by a rescue.
    fn lease(
        &mut self,
        inbox: &InboxName,
        chosen: &[(Seq, HandlerKey)],
        routes: &[&Route],
        (id, now, until): (ClaimId, Timestamp, Timestamp),
        alone: Option<bool>,
    ) -> Vec<Claimed> {
        let mut claimed = Vec::with_capacity(chosen.len());
        for (seq, handler) in chosen {
            let token = self.next_token();
            let scope = self.scope(inbox);
            scope.change(*seq, handler, |entry| {
                entry.status = Status::Running;
                entry.at = until;
                entry.claim = Some((token, id));
                entry.claimed_at = now;
                entry.alone = alone.unwrap_or(entry.alone);
            });
            claimed.extend(scope.claimed(*seq, handler, routes));
        }
        claimed
    }
}

/// Due entry, in the order of claims.
type Due = (Timestamp, Seq, HandlerKey);
/// Origins of a route, and the maximum number of its entries.
type Wanted = (Vec<HandlerKey>, usize);

impl InboxTables {
    /// Returns due entries of each quota, up to its limit.
    fn healthy(&self, wants: &[Wanted], now: Timestamp) -> Vec<(Seq, HandlerKey)> {
        let mut chosen = Vec::new();
        for (handlers, limit) in wants {
            let mut due = self.due(ClaimMode::Healthy, handlers, *limit, now);
            due.truncate(*limit);
            chosen.extend(due.into_iter().map(|(_, seq, handler)| (seq, handler)));
        }
        chosen
    }

    /// Returns the suspect that waited longest, and others with the same suspicion.
    fn suspects(&self, wants: &[Wanted], factor: usize, now: Timestamp) -> Vec<(Seq, HandlerKey)> {
        let wants = || wants.iter().filter(|(_, limit)| *limit > 0);
        let suspicion = |(_, seq, handler): &Due| {
            self.entry(*seq, handler).map_or(Suspicion::NONE, |entry| entry.suspicion)
        };
        let first = wants().flat_map(|(handlers, _)| self.due(ClaimMode::Suspect, handlers, 1, now)).min();
        let Some(first) = first.map(|due| suspicion(&due)) else { return Vec::new() };
        let mut chosen: Vec<Due> = Vec::new();
        for (handlers, limit) in wants() {
            let mut due = self.due(ClaimMode::Suspect, handlers, usize::MAX, now);
            due.retain(|due| suspicion(due) == first);
            due.truncate(*limit);
            chosen.extend(due);
        }
        chosen.sort_unstable();
        chosen.dedup();
        chosen.truncate(first.company(factor));
        chosen.into_iter().map(|(_, seq, handler)| (seq, handler)).collect()
    }

    /// Returns the first due entries of a route in the order of claims: `limit` or more, if there are as many.
    fn due(&self, mode: ClaimMode, handlers: &[HandlerKey], limit: usize, now: Timestamp) -> Vec<Due> {
        let mut due: Vec<_> = handlers
            .iter()
            .filter(|key| !self.paused.contains(*key))
            .flat_map(|key| {
                let entries = self.indexes.due(mode, key, now);
                let entries = entries.filter(|(_, seq)| self.is_in_turn(handlers, *seq, key)).take(limit);
                entries.map(move |(at, seq)| (at, seq, key.clone()))
            })
            .collect();
        due.sort_unstable();
        due
    }

    /// Returns true if no entry under another key of the same handler blocks this one.
    fn is_in_turn(&self, handlers: &[HandlerKey], seq: Seq, handler: &HandlerKey) -> bool {
        let order = || self.entry(seq, handler).and_then(|entry| entry.order);
        handlers.len() == 1
            || order().is_none_or(|order| self.indexes.is_in_turn_over(handlers, seq, handler, order))
    }

    /// Returns running entries with an expired lease, the longest overdue first.
    fn lapsed(&self, handlers: &[HandlerKey], limit: usize, now: Timestamp) -> Vec<(Seq, HandlerKey)> {
        let mut lapsed: Vec<_> = handlers
            .iter()
            .flat_map(|key| self.indexes.running(key).map(move |seq| (seq, key)))
            .filter_map(|(seq, key)| Some((self.entry(seq, key)?.at, seq, key.clone())))
            .filter(|(until, ..)| *until < now)
            .collect();
        lapsed.sort_unstable();
        lapsed.dedup();
        lapsed.into_iter().take(limit).map(|(_, seq, handler)| (seq, handler)).collect()
    }

    /// Returns the entries that a claim id still holds, in the order of the claim. A caller whose response was lost repeats the
    /// call and gets them.
    fn held(&self, id: ClaimId, routes: &[&Route]) -> Vec<Claimed> {
        let held = self.indexes.held(id);
        let mut held: Vec<Claimed> =
            held.filter_map(|(seq, handler)| self.claimed(*seq, handler, routes)).collect();
        held.sort_by_key(|claimed| claimed.claim.token);
        held
    }

    fn claimed(&self, seq: Seq, handler: &HandlerKey, routes: &[&Route]) -> Option<Claimed> {
        let stored = self.messages.get(&seq)?;
        let entry = stored.entries.get(handler)?;
        let (token, claim_id) = entry.claim?;
        let claim = Claim {
            inbox: stored.inbox.clone(),
            seq,
            handler: self.names.key_in(routes.iter().copied(), handler),
            origin: handler.clone(),
            key: stored.key,
            token,
            claim_id,
            attempts: entry.attempts,
            suspicion: entry.suspicion,
            alone: entry.alone,
            generation: entry.generation,
            order: entry.order,
            received_at: stored.received_at,
            claimed_at: entry.claimed_at,
        };
        Some(Claimed { claim, message: Arc::clone(&stored.message) })
    }
}
