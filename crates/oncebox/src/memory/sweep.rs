//! Sweep: finished messages leave when their retention is over.

use std::ops::Bound;

use super::tables::{Scope, Stored, Tables};
use crate::state::Status;
use crate::store::{Seq, SweepParams, Swept};
use crate::time::Timestamp;

impl Tables {
    pub(super) fn sweep(&mut self, params: &SweepParams, now: Timestamp) -> Swept {
        let horizon = now.before(params.retention);
        let scope = self.scope(&params.inbox);
        let after = params.after.map_or(Bound::Unbounded, Bound::Excluded);
        let page: Vec<(Seq, bool)> = scope
            .messages
            .range((after, Bound::Unbounded))
            .take_while(|(_, stored)| stored.received_at <= horizon)
            .take(params.limit)
            .map(|(seq, stored)| (*seq, stored.is_finished_by(horizon)))
            .collect();
        let gone: Vec<Seq> = page.iter().filter(|(_, finished)| *finished).map(|(seq, _)| *seq).collect();
        for seq in &gone {
            scope.watermark = scope.watermark.max(scope.messages.get(seq).map(|stored| stored.received_at));
            scope.remove(*seq);
        }
        let marks = scope.sweep_marks(horizon, params.limit);
        // Marks have no sequence: when only they are left, the page after this one starts where this one did.
        let last = page.last().map(|(seq, _)| *seq).or(params.after).or(Some(Seq(0)));
        let more = params.limit > 0 && (page.len() == params.limit || marks == params.limit);
        Swept::new(gone.len(), marks, last.filter(|_| more))
    }
}

impl Scope {
    fn sweep_marks(&mut self, horizon: Timestamp, limit: usize) -> usize {
        let mut gone = 0;
        while gone < limit
            && let Some((at, ..)) = self.mark_ages.first()
            && *at <= horizon
            && let Some((_, key, handler)) = self.mark_ages.pop_first()
        {
            self.marks.remove(&(key, handler));
            gone += 1;
        }
        gone
    }
}

impl Stored {
    /// Whether every entry was finished at `horizon`. A message without entries was finished when it came.
    fn is_finished_by(&self, horizon: Timestamp) -> bool {
        self.entries
            .values()
            .all(|entry| matches!(entry.status, Status::Completed | Status::Discarded) && entry.at <= horizon)
    }
}
