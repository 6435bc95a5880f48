//! Claim and rescue: each entry is leased to one worker at a time, under a new token.

use std::collections::HashMap;
use std::sync::Arc;

use oncebox_core::key::OrderKey;
use oncebox_core::name::{HandlerKey, InboxName};
use oncebox_core::state::{Claim, ClaimId, InLine, Status};
use oncebox_core::store::{ClaimMode, ClaimParams, Claimed, RescueParams, Route, Seq};
use oncebox_core::time::Timestamp;

use crate::rows::{EntryRow, InboxRows, Rows};

/// Due entry, in the order of claims: by due time, then by the order of acceptance.
type ClaimCandidate = (Timestamp, Seq, HandlerKey);

impl Rows {
    pub(crate) fn claim(&mut self, params: &ClaimParams, now: Timestamp) -> Vec<Claimed> {
        let routes: Vec<&Route> = params.wants.iter().map(|want| &want.route).collect();
        let inbox = self.inbox(&params.inbox);
        let held = inbox.held(&params.inbox, params.claim_id, &routes);
        if !held.is_empty() {
            return held;
        }
        let mut due = Vec::new();
        for want in params.wants.iter().filter(|want| want.limit > 0) {
            let origins = inbox.handlers.link(&want.route);
            due.push((want.limit, inbox.due(params.mode, &origins, now)));
        }
        let chosen = inbox.choose(due, params.company_factor);
        // Only one suspect of an idle worker runs alone. If it kills that worker, no other entry is to blame.
        let alone = params.mode == ClaimMode::Suspect && params.idle && chosen.len() == 1;
        let until = now.after(params.lease);
        self.lease(&params.inbox, chosen, &routes, params.claim_id, (now, until), Some(alone))
    }

    pub(crate) fn rescue(&mut self, params: &RescueParams, now: Timestamp) -> Vec<Claimed> {
        let routes: Vec<&Route> = params.routes.iter().collect();
        let inbox = self.inbox(&params.inbox);
        let held = inbox.held(&params.inbox, params.claim_id, &routes);
        if !held.is_empty() {
            return held;
        }
        let origins: Vec<HandlerKey> = routes.iter().flat_map(|route| inbox.handlers.link(route)).collect();
        let lapsed =
            inbox.entries(&origins).filter(|(.., entry)| entry.status == Status::Running && entry.at < now);
        let mut lapsed: Vec<ClaimCandidate> =
            lapsed.map(|(seq, origin, entry)| (entry.at, seq, origin.clone())).collect();
        lapsed.sort_unstable();
        lapsed.truncate(params.limit);
        let until = now.after(params.lease);
        self.lease(&params.inbox, lapsed, &routes, params.claim_id, (now, until), None)
    }

    /// Leases entries. A claim sets `alone`; a rescue keeps it, because it describes the run whose worker died.
    fn lease(
        &mut self,
        name: &InboxName,
        chosen: Vec<ClaimCandidate>,
        routes: &[&Route],
        id: ClaimId,
        (now, until): (Timestamp, Timestamp),
        alone: Option<bool>,
    ) -> Vec<Claimed> {
        let mut claimed = Vec::new();
        for (_, seq, origin) in chosen {
            let token = self.next_token();
            let inbox = self.inbox(name);
            let stored = inbox.messages.get_mut(&seq);
            let Some(entry) = stored.and_then(|stored| stored.entries.get_mut(&origin)) else { continue };
            entry.status = Status::Running;
            (entry.at, entry.claimed_at) = (until, now);
            // The new token is the fence: from now on every write of the previous owner is refused.
            entry.claim = Some((token, id));
            entry.alone = alone.unwrap_or(entry.alone);
            claimed.extend(inbox.claimed(name, seq, &origin, routes));
        }
        claimed
    }
}

impl InboxRows {
    /// Returns the entries of some handlers, in the order of acceptance.
    fn entries<'a>(
        &'a self,
        origins: &'a [HandlerKey],
    ) -> impl Iterator<Item = (Seq, &'a HandlerKey, &'a EntryRow)> {
        self.messages.iter().flat_map(move |(seq, stored)| {
            let wanted = stored.entries.iter().filter(|(origin, _)| origins.contains(origin));
            wanted.map(|(origin, entry)| (*seq, origin, entry))
        })
    }

    /// Returns due entries of a handler, healthy ones or suspects. `origins` has all of its keys.
    fn due(&self, mode: ClaimMode, origins: &[HandlerKey], now: Timestamp) -> Vec<ClaimCandidate> {
        let turns = self.turns(origins);
        let due = self.entries(origins).filter(|(seq, origin, entry)| {
            entry.status == Status::Pending
                && entry.at <= now
                && entry.suspicion.is_suspect() == (mode == ClaimMode::Suspect)
                && entry.order.is_none_or(|order| turns.get(&order) == Some(&(*seq, *origin)))
        });
        let mut due: Vec<ClaimCandidate> =
            due.map(|(seq, origin, entry)| (entry.at, seq, origin.clone())).collect();
        due.sort_unstable();
        due
    }

    /// Returns the entry of each ordering key that goes next: the running one, else the first unfinished one. Suspects and entries
    /// with a later due time count, because those behind them have to wait.
    fn turns<'a>(&'a self, origins: &'a [HandlerKey]) -> HashMap<OrderKey, (Seq, &'a HandlerKey)> {
        let mut turns = HashMap::new();
        for (seq, origin, entry) in self.entries(origins) {
            let Some(order) = entry.order.filter(|_| entry.is_in_the_way()) else { continue };
            if entry.status == Status::Running {
                turns.insert(order, (seq, origin));
            } else {
                turns.entry(order).or_insert((seq, origin));
            }
        }
        turns
    }

    /// Returns the due entries that one claim takes, up to the limit of each handler. A claim of suspects takes the one that waited
    /// longest and others of the same level, as many as may run together. For healthy entries the level limits nothing.
    fn choose(&self, due: Vec<(usize, Vec<ClaimCandidate>)>, factor: usize) -> Vec<ClaimCandidate> {
        let suspicion = |(_, seq, origin): &ClaimCandidate| self.messages[seq].entries[origin].suspicion;
        let level = due.iter().flat_map(|(_, due)| due).min().map(suspicion).unwrap_or_default();
        let mut chosen = Vec::new();
        for (limit, due) in due {
            chosen.extend(due.into_iter().filter(|due| suspicion(due) == level).take(limit));
        }
        chosen.sort_unstable();
        chosen.dedup();
        chosen.truncate(level.company(factor));
        chosen
    }

    /// Returns the entries that a claim id still holds. A caller that lost the response repeats the call and gets them.
    fn held(&self, name: &InboxName, id: ClaimId, routes: &[&Route]) -> Vec<Claimed> {
        let mut held = Vec::new();
        for (seq, stored) in &self.messages {
            for (origin, entry) in &stored.entries {
                if entry.status == Status::Running && entry.claim.is_some_and(|(_, of)| of == id) {
                    held.extend(self.claimed(name, *seq, origin, routes));
                }
            }
        }
        held.sort_by_key(|claimed| claimed.claim.token);
        held
    }

    fn claimed(&self, name: &InboxName, seq: Seq, origin: &HandlerKey, routes: &[&Route]) -> Option<Claimed> {
        let stored = self.messages.get(&seq)?;
        let entry = stored.entries.get(origin)?;
        let (token, claim_id) = entry.claim?;
        let claim = Claim {
            inbox: name.clone(),
            seq,
            handler: self.handlers.key_in(routes.iter().copied(), origin),
            origin: origin.clone(),
            key: stored.key,
            token,
            claim_id,
            attempts: entry.attempts,
            suspicion: entry.suspicion,
            alone: entry.alone,
            // Only an operator's replay begins another generation.
            generation: 0,
            order: entry.order,
            received_at: stored.received_at,
            claimed_at: entry.claimed_at,
        };
        Some(Claimed { claim, message: Arc::clone(&stored.message) })
    }
}

impl EntryRow {
    /// Returns true if the entries behind it with its ordering key have to wait. Without operators, parked entries and waiting ones
    /// are alike: this store leaves both pending.
    fn is_in_the_way(&self) -> bool {
        match self.status {
            Status::Pending | Status::Running => true,
            Status::Poisoned => self.in_line.is_none_or(InLine::holds_back),
            Status::Completed | Status::Discarded => false,
        }
    }
}
