//! Claim and rescue: entries handed to one worker at a time.

use std::sync::Arc;

use super::tables::{Scope, Tables};
use crate::name::{HandlerKey, InboxName};
use crate::state::Status;
use crate::store::{Claim, ClaimId, ClaimMode, ClaimParams, Claimed, RescueParams, Route, Seq, Want};
use crate::time::Timestamp;

impl Tables {
    pub(super) fn claim(&mut self, params: &ClaimParams, now: Timestamp) -> Vec<Claimed> {
        let scope = self.scope(&params.inbox);
        let held = scope.held(params.claim_id);
        if !held.is_empty() {
            return held;
        }
        let chosen = match params.mode {
            ClaimMode::Healthy => scope.healthy(&params.wants, now),
            ClaimMode::Suspect => scope.suspect(&params.wants, now),
        };
        self.lease(&params.inbox, &chosen, params.claim_id, now, now.after(params.lease))
    }

    pub(super) fn rescue(&mut self, params: &RescueParams, now: Timestamp) -> Vec<Claimed> {
        let scope = self.scope(&params.inbox);
        let held = scope.held(params.claim_id);
        if !held.is_empty() {
            return held;
        }
        let chosen = scope.lapsed(&params.routes, params.limit, now);
        self.lease(&params.inbox, &chosen, params.claim_id, now, now.after(params.lease))
    }

    /// Gives entries to a claim, each under a new token.
    fn lease(
        &mut self,
        inbox: &InboxName,
        chosen: &[(Seq, HandlerKey)],
        id: ClaimId,
        now: Timestamp,
        until: Timestamp,
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
            });
            claimed.extend(scope.claimed(*seq, handler));
        }
        claimed
    }
}

impl Scope {
    /// Due entries by want, each up to its limit.
    fn healthy(&self, wants: &[Want], now: Timestamp) -> Vec<(Seq, HandlerKey)> {
        let mut chosen = Vec::new();
        for want in wants {
            let mut due = self.due(ClaimMode::Healthy, &want.route, want.limit, now);
            due.truncate(want.limit);
            chosen.extend(due.into_iter().map(|(_, seq, handler)| (seq, handler)));
        }
        chosen
    }

    /// The one suspect that has waited longest.
    fn suspect(&self, wants: &[Want], now: Timestamp) -> Vec<(Seq, HandlerKey)> {
        let wants = wants.iter().filter(|want| want.limit > 0);
        let due = wants.flat_map(|want| self.due(ClaimMode::Suspect, &want.route, 1, now));
        due.min().map(|(_, seq, handler)| (seq, handler)).into_iter().collect()
    }

    /// The first due entries of a route: at least `limit` of them if there are as many, in the order of claims.
    fn due(
        &self,
        mode: ClaimMode,
        route: &Route,
        limit: usize,
        now: Timestamp,
    ) -> Vec<(Timestamp, Seq, HandlerKey)> {
        let mut due: Vec<_> = keys(route)
            .filter(|key| !self.paused.contains(*key))
            .flat_map(|key| {
                let entries = self.indexes.due(mode, key, now);
                let entries = entries.filter(|(_, seq)| self.is_in_turn(route, *seq, key)).take(limit);
                entries.map(move |(at, seq)| (at, seq, key.clone()))
            })
            .collect();
        due.sort_unstable();
        due
    }

    /// Whether nothing under another key of the route keeps an entry waiting.
    fn is_in_turn(&self, route: &Route, seq: Seq, handler: &HandlerKey) -> bool {
        let order = || self.messages.get(&seq).and_then(|stored| stored.order);
        route.legacy.is_empty()
            || order().is_none_or(|order| self.indexes.is_in_turn_over(route, seq, handler, order))
    }

    /// Running entries whose lease ran out, the longest overdue first.
    fn lapsed(&self, routes: &[Route], limit: usize, now: Timestamp) -> Vec<(Seq, HandlerKey)> {
        let mut lapsed: Vec<_> = routes
            .iter()
            .flat_map(keys)
            .flat_map(|key| self.indexes.running(key).map(move |seq| (seq, key)))
            .filter_map(|(seq, key)| Some((self.entry(seq, key)?.at, seq, key.clone())))
            .filter(|(until, ..)| *until < now)
            .collect();
        lapsed.sort_unstable();
        lapsed.dedup();
        lapsed.into_iter().take(limit).map(|(_, seq, handler)| (seq, handler)).collect()
    }

    /// What a claim id still holds: the answer to a call that is repeated because its first answer was lost.
    fn held(&self, id: ClaimId) -> Vec<Claimed> {
        self.indexes.held(id).filter_map(|(seq, handler)| self.claimed(*seq, handler)).collect()
    }

    fn claimed(&self, seq: Seq, handler: &HandlerKey) -> Option<Claimed> {
        let stored = self.messages.get(&seq)?;
        let entry = stored.entries.get(handler)?;
        let (token, claim_id) = entry.claim?;
        let claim = Claim {
            inbox: stored.inbox.clone(),
            seq,
            handler: handler.clone(),
            key: stored.key,
            token,
            claim_id,
            attempts: entry.attempts,
            crashes: entry.crashes,
            generation: entry.generation,
            order: stored.order,
            received_at: stored.received_at,
            claimed_at: entry.claimed_at,
        };
        Some(Claimed { claim, message: Arc::clone(&stored.message) })
    }
}

/// The current and former keys of a handler.
fn keys(route: &Route) -> impl Iterator<Item = &HandlerKey> {
    std::iter::once(&route.key).chain(route.legacy.iter())
}
