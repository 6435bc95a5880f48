//! Settle and renew: writes that only the worker with the claim may make.

use super::tables::{MemoryEntry, MemoryTables};
use crate::state::{InLine, NextState, Settlement, Status};
use crate::store::{Claim, Renewed, Settled};
use crate::time::Timestamp;

impl MemoryTables {
    pub(super) fn settle(&mut self, settlement: &Settlement, now: Timestamp) -> Settled {
        let claim = &settlement.claim;
        let Some(scope) = self.scope_of(claim) else { return Settled::LeaseLost };
        let handler = scope.names.origin(&claim.handler);
        let Some(entry) = scope.entry(claim.seq, &handler) else { return Settled::LeaseLost };
        if !entry.is_held_by(claim) {
            return if was_applied(entry, settlement) { Settled::Applied } else { Settled::LeaseLost };
        }
        scope.change(claim.seq, &handler, |entry| entry.settle(settlement, now));
        scope.remember(settlement, &handler, now);
        scope.arrange(claim.seq, &handler, now);
        Settled::Applied
    }

    pub(super) fn renew(&mut self, claim: &Claim, until: Timestamp) -> Renewed {
        if !self.holds(claim) {
            return Renewed::LeaseLost;
        }
        if let Some(scope) = self.scope_of(claim) {
            let handler = scope.names.origin(&claim.handler);
            scope.change(claim.seq, &handler, |entry| {
                entry.at = until;
                entry.alone &= claim.alone;
            });
        }
        Renewed::Extended
    }

    /// Returns true if a claim still holds.
    pub(super) fn holds(&mut self, claim: &Claim) -> bool {
        let scope = self.scope_of(claim);
        scope
            .and_then(|scope| scope.entry(claim.seq, &scope.names.origin(&claim.handler)))
            .is_some_and(|entry| entry.is_held_by(claim))
    }
}

/// Returns true if an earlier call wrote this settlement and its response was lost.
fn was_applied(entry: &MemoryEntry, settlement: &Settlement) -> bool {
    let status = settlement.next.status();
    // An entry for a retry may have been parked at once.
    let reached = |entry: &MemoryEntry| {
        entry.status == status || (status == Status::Pending && entry.in_line == Some(InLine::Parked))
    };
    let wrote = |entry: &MemoryEntry| entry.is_claim(&settlement.claim) && reached(entry);
    wrote(entry) || entry.past.iter().any(wrote)
}

impl MemoryEntry {
    fn settle(&mut self, settlement: &Settlement, now: Timestamp) {
        self.status = settlement.next.status();
        self.at = match settlement.next {
            NextState::Pending { delay } => now.after(delay),
            _ => now,
        };
        self.reason = match settlement.next {
            NextState::Poisoned { reason } => Some(reason),
            _ => None,
        };
        self.in_line = settlement.in_line;
        self.attempts = settlement.attempts;
        self.suspicion = settlement.suspicion;
        if let Some(error) = &settlement.error {
            self.error = Some(error.clone());
        }
    }
}
