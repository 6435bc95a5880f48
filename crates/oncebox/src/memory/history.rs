//! History of a message in the memory store.

use super::tables::{InboxTables, MemoryTables};
use crate::key::Key;
use crate::name::HandlerKey;
use crate::state::{Settlement, Status};
use crate::store::{Attempt, DuplicateCount, EntryAhead, LeaseHolder, MessageHistory};
use crate::time::Timestamp;

impl MemoryTables {
    pub(super) fn count_duplicates(&mut self, batch: &[DuplicateCount]) {
        for duplicates in batch {
            let known = self.scopes.values_mut().find_map(|scope| scope.messages.get_mut(&duplicates.seq));
            if let Some(stored) = known {
                stored.duplicates =
                    Some(stored.duplicates.map_or(*duplicates, |known| known.and(*duplicates)));
            }
        }
    }
}

impl InboxTables {
    /// Records a failed attempt.
    pub(super) fn remember(&mut self, settlement: &Settlement, origin: &HandlerKey, now: Timestamp) {
        let Some(event) = settlement.failure() else { return };
        let claim = &settlement.claim;
        let Some(stored) = self.messages.get_mut(&claim.seq) else { return };
        stored.attempts.push(Attempt {
            handler: origin.clone(),
            origin: origin.clone(),
            generation: claim.generation,
            at: now,
            event,
            attempts: settlement.attempts,
            suspicion: settlement.suspicion,
            error: settlement.error.clone(),
            claim_id: claim.claim_id,
        });
    }

    pub(super) fn history(&self, key: &Key, now: Timestamp) -> Option<MessageHistory> {
        let seq = *self.keys.get(key)?;
        let stored = self.messages.get(&seq)?;
        let mut history = MessageHistory::default();
        (history.now, history.duplicates) = (now, stored.duplicates);
        history.attempts.clone_from(&stored.attempts);
        for attempt in &mut history.attempts {
            attempt.handler = self.names.name(&attempt.origin);
        }
        history.paused = self.paused();
        let mut entries: Vec<_> = stored
            .entries
            .iter()
            .map(|(handler, entry)| (self.names.name(handler), handler, entry))
            .collect();
        entries.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        for (name, handler, entry) in entries {
            if let (Status::Running, Some((_, claim_id))) = (entry.status, entry.claim) {
                let (claimed_at, lease_until) = (entry.claimed_at, entry.at);
                history.holders.push(LeaseHolder {
                    handler: name.clone(),
                    claim_id,
                    claimed_at,
                    lease_until,
                });
            }
            if stored.order.is_some_and(|order| self.indexes.is_lane_paused(handler, order)) {
                history.key_paused.push(name.clone());
            }
            let waits = matches!(entry.status, Status::Pending | Status::Poisoned);
            let ahead =
                entry.order.filter(|_| waits).and_then(|order| self.indexes.ahead(seq, handler, order));
            if let Some((seq, status)) = ahead
                && let Some(first) = self.messages.get(&seq)
            {
                history.ahead.push(EntryAhead { handler: name, seq, key: first.key, status });
            }
        }
        Some(history)
    }
}
