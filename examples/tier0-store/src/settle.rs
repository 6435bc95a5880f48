//! Settle and renew: writes that only the worker with the claim may make.

use oncebox_core::state::{Claim, NextState, Settlement, Status};
use oncebox_core::store::{Renewed, Settled};
use oncebox_core::time::Timestamp;

use crate::rows::{EntryRow, Rows};

impl Rows {
    /// Stores the state that the library decided. A store never decides one itself.
    pub(crate) fn settle(&mut self, settlement: &Settlement, now: Timestamp) -> Settled {
        let Some(entry) = self.last_claimed(&settlement.claim) else { return Settled::LeaseLost };
        let next = settlement.next.status();
        if entry.status != Status::Running {
            // The caller lost the response to this settlement, and repeats it.
            return if entry.status == next { Settled::Applied } else { Settled::LeaseLost };
        }
        entry.status = next;
        entry.at = match settlement.next {
            // The wait starts on the store's clock, so the clocks of workers do not matter.
            NextState::Pending { delay } => now.after(delay),
            _ => now,
        };
        entry.reason = match settlement.next {
            NextState::Poisoned { reason } => Some(reason),
            _ => None,
        };
        (entry.attempts, entry.suspicion) = (settlement.attempts, settlement.suspicion);
        entry.in_line = settlement.in_line;
        entry.error = settlement.error.clone().or_else(|| entry.error.take());
        Settled::Applied
    }

    /// Extends a lease, also one that has expired: until a rescue takes over, no other worker has the entry.
    pub(crate) fn renew(&mut self, claim: &Claim, until: Timestamp) -> Renewed {
        match self.last_claimed(claim).filter(|entry| entry.status == Status::Running) {
            Some(entry) => {
                entry.at = until;
                // A run that got company is not alone any more, and does not become so again.
                entry.alone &= claim.alone;
                Renewed::Extended
            }
            None => Renewed::LeaseLost,
        }
    }

    /// Returns the entry of a claim if no later claim took it: the fence of every write.
    fn last_claimed(&mut self, claim: &Claim) -> Option<&mut EntryRow> {
        let inbox = self.inbox(&claim.inbox);
        let origin = inbox.handlers.origin(&claim.handler);
        let entry = inbox.messages.get_mut(&claim.seq)?.entries.get_mut(&origin)?;
        (entry.claim == Some((claim.token, claim.claim_id))).then_some(entry)
    }
}
