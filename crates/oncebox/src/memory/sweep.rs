//! Sweep: finished messages leave when their retention is over. And what waits for a handler that is not there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::tables::{Scope, Stored, Tables};
use crate::name::HandlerKey;
use crate::state::Status;
use crate::store::{Backlog, BacklogParams, ClaimMode, Orphan, OrphanParams, Seq, SweepParams, Swept};
use crate::time::Timestamp;

impl Tables {
    pub(super) fn sweep(&mut self, params: &SweepParams, now: Timestamp) -> Swept {
        let horizon = now.before(params.shortest());
        let scope = self.scope(&params.inbox);
        if scope.sweeper.is_some_and(|(id, until)| id != params.sweep_id && now <= until) {
            return Swept::NOTHING;
        }
        let after = params.after.map_or(Bound::Unbounded, Bound::Excluded);
        let page: Vec<(Seq, bool)> = scope
            .messages
            .range((after, Bound::Unbounded))
            .take_while(|(_, stored)| stored.received_at <= horizon)
            .take(params.limit)
            .map(|(seq, stored)| (*seq, stored.is_over(params, now)))
            .collect();
        let gone: Vec<Seq> = page.iter().filter(|(_, over)| *over).map(|(seq, _)| *seq).collect();
        for seq in &gone {
            scope.watermark = scope.watermark.max(scope.messages.get(seq).map(|stored| stored.received_at));
            scope.remove(*seq);
        }
        let marks = scope.sweep_marks(params, now);
        // Marks have no sequence: when only they are left, the page after this one starts where this one did.
        let last = page.last().map(|(seq, _)| *seq).or(params.after).or(Some(Seq(0)));
        let more = params.limit > 0 && (page.len() == params.limit || marks == params.limit);
        scope.sweeper = more.then(|| (params.sweep_id, now.after(params.hold)));
        Swept::new(gone.len(), marks, last.filter(|_| more))
    }

    pub(super) fn orphans(&mut self, params: &OrphanParams, now: Timestamp) -> Vec<Orphan> {
        let scope = self.scope(&params.inbox);
        let waiting = scope.indexes.by_status().filter(|(handler, status, _)| {
            matches!(status, Status::Pending | Status::Running) && !params.known.contains(handler)
        });
        let keys: BTreeSet<HandlerKey> = waiting.map(|(handler, ..)| handler.clone()).collect();
        let mut orphans: Vec<Orphan> = keys.into_iter().filter_map(|key| scope.orphan(key, now)).collect();
        let missed = now.before(params.grace);
        orphans.retain(|orphan| orphan.oldest <= missed);
        orphans.sort_by(|a, b| (a.oldest, &a.handler).cmp(&(b.oldest, &b.handler)));
        orphans.truncate(params.limit);
        orphans
    }

    pub(super) fn backlog(&mut self, params: &BacklogParams, now: Timestamp) -> Vec<Backlog> {
        let scope = self.scope(&params.inbox);
        let mut waiting: BTreeMap<&HandlerKey, (u64, u64)> = BTreeMap::new();
        for (handler, status, entries) in scope.indexes.by_status() {
            let count = (entries.len() as u64).min(BacklogParams::COUNTED);
            match status {
                Status::Pending if count > 0 => waiting.entry(handler).or_default().0 = count,
                Status::Poisoned if count > 0 => waiting.entry(handler).or_default().1 = count,
                _ => {}
            }
        }
        let backlog = waiting.into_iter().map(|(handler, (pending, poisoned))| {
            let modes = [ClaimMode::Healthy, ClaimMode::Suspect].into_iter();
            let first = modes.filter_map(|mode| scope.indexes.due(mode, handler, now).next()).min();
            Backlog::new(handler.clone(), pending, poisoned, first.map(|(due, _)| now.since(due)))
        });
        backlog.collect()
    }
}

impl Scope {
    fn sweep_marks(&mut self, params: &SweepParams, now: Timestamp) -> usize {
        let mut gone = 0;
        for (handler, ages) in &mut self.mark_ages {
            let horizon = now.before(params.window(handler));
            while gone < params.limit
                && let Some((at, _)) = ages.first()
                && *at <= horizon
                && let Some((_, key)) = ages.pop_first()
            {
                self.marks.remove(&(key, handler.clone()));
                gone += 1;
            }
        }
        self.mark_ages.retain(|_, ages| !ages.is_empty());
        gone
    }

    /// A handler key with what waits for it; nothing if a worker has some of it in hand.
    fn orphan(&self, handler: HandlerKey, now: Timestamp) -> Option<Orphan> {
        let mut oldest = None;
        let mut running = 0;
        for seq in self.indexes.running(&handler) {
            let entry = self.entry(seq, &handler)?;
            if entry.at >= now {
                return None;
            }
            running += 1;
            oldest = Some(oldest.map_or(entry.claimed_at, |oldest: Timestamp| oldest.min(entry.claimed_at)));
        }
        let modes = [ClaimMode::Healthy, ClaimMode::Suspect];
        let first = modes.into_iter().filter_map(|mode| self.indexes.due(mode, &handler, now).next());
        let oldest = first.map(|(at, _)| at).chain(oldest).min()?;
        let count = (self.indexes.pending(&handler) + running).min(OrphanParams::COUNTED);
        Some(Orphan::new(handler, count, oldest))
    }
}

impl Stored {
    /// Whether every entry is finished and past the window of its handler. A message without entries was finished when
    /// it came.
    fn is_over(&self, params: &SweepParams, now: Timestamp) -> bool {
        if self.entries.is_empty() {
            return self.received_at <= now.before(params.retention);
        }
        self.entries.iter().all(|(handler, entry)| {
            matches!(entry.status, Status::Completed | Status::Discarded)
                && entry.at <= now.before(params.window(handler))
        })
    }
}
