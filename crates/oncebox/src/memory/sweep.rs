//! Sweep and orphans in the memory store: expired messages, and entries whose handler no process has.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use super::tables::{InboxTables, MemoryMessage, MemoryTables};
use crate::error::Result;
use crate::name::HandlerKey;
use crate::state::Status;
use crate::store::{
    Backlog, BacklogParams, BlockedBacklog, ClaimMode, Orphan, OrphanParams, RegisterParams,
    RegisteredWindow, RetentionWindows, Seq, SweepCursor, SweepParams, SweepPosition, Swept,
};
use crate::time::Timestamp;

/// Decision of a sweep about a message.
#[derive(PartialEq, Eq)]
enum SweepDecision {
    Gone,
    /// An entry of it is not finished.
    Stays,
    /// It has a longer window. A later sweep reads it again.
    Later,
}

impl MemoryTables {
    pub(super) fn sweep(&mut self, params: &SweepParams, now: Timestamp) -> Swept {
        let audit = now.before(params.audit);
        let scope = self.scope(&params.inbox);
        if scope.sweeper.is_some_and(|(id, until)| id != params.sweep_id && now <= until) {
            return Swept::NOTHING;
        }
        let windows = RetentionWindows::new(params, &scope.windows, now).over(scope.names.aliases());
        if scope.cursors.0 != windows.digest() {
            scope.cursors = (windows.digest(), BTreeMap::new());
        }
        let start = params.after.unwrap_or(SweepPosition::START);
        let mut swept = Swept::NOTHING;
        for window in windows.lengths().into_iter().filter(|window| *window >= start.window) {
            let after = if window == start.window { start.seq } else { Seq(0) };
            let limit = params.limit.saturating_sub(swept.looked);
            swept.next = scope.scan_page(&windows, SweepPosition::new(window, after), limit, now, &mut swept);
            if swept.next.is_some() {
                break;
            }
        }
        swept.marks = scope.sweep_marks(&windows, params.limit, now);
        // Marks have no sequence. When only they are left, the next page starts behind all messages.
        if swept.marks == params.limit && params.limit > 0 {
            swept.next = swept.next.or(Some(SweepPosition::new(windows.longest(), Seq(i64::MAX))));
        }
        swept.next = swept.next.filter(|_| params.limit > 0);
        scope.sweeper = swept.next.map(|_| (params.sweep_id, now.after(params.lease)));
        swept.operations = self.operations.forget(&params.inbox, audit);
        swept
    }

    pub(super) fn orphans(&mut self, params: &OrphanParams, now: Timestamp) -> Vec<Orphan> {
        let scope = self.scope(&params.inbox);
        let known: BTreeSet<HandlerKey> = params.known.iter().map(|key| scope.names.origin(key)).collect();
        let waiting = scope.indexes.by_status().filter(|(handler, status, _)| {
            matches!(status, Status::Pending | Status::Running) && !known.contains(*handler)
        });
        let keys: BTreeSet<HandlerKey> = waiting.map(|(handler, ..)| handler.clone()).collect();
        let mut orphans: Vec<Orphan> = keys.into_iter().filter_map(|key| scope.orphan(&key, now)).collect();
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
            let (keys, behind, oldest) = scope.indexes.blocked_of(handler, BacklogParams::COUNTED);
            let oldest = oldest.and_then(|seq| scope.messages.get(&seq));
            let oldest = oldest.map(|stored| now.since(stored.received_at));
            let name = scope.names.name(handler);
            Backlog::new(name, pending, poisoned, first.map(|(due, _)| now.since(due)))
                .held_back(BlockedBacklog::new(keys, behind, oldest))
        });
        let mut backlog: Vec<Backlog> = backlog.collect();
        backlog.sort_by(|a, b| a.handler.cmp(&b.handler));
        backlog
    }
}

impl InboxTables {
    /// Records the windows of a process, and deletes those that expired.
    pub(super) fn register(&mut self, params: &RegisterParams, now: Timestamp) -> Result<()> {
        if let Some(tenancy) = params.new_tenancy(self.tenancy.as_deref())? {
            self.tenancy = Some(tenancy.into());
        }
        for route in &params.routes {
            self.names.link(route);
        }
        let ids: Vec<_> = params.routes.iter().map(|route| self.names.group(route)).collect();
        params.refuse_shared(&ids)?;
        let until = now.after(params.hold);
        for (handler, window) in params.all() {
            let same = |one: &&mut RegisteredWindow| one.handler.as_ref() == handler && one.window == window;
            match self.windows.iter_mut().find(same) {
                Some(one) => one.until = one.until.max(until),
                None => self.windows.push(RegisteredWindow::new(handler.cloned(), window, until)),
            }
        }
        let all = self.windows.clone();
        let later = |one: &RegisteredWindow| {
            all.iter().any(|other| other.handler == one.handler && other.until > one.until)
        };
        self.windows.retain(|one| one.until >= now || !later(one));
        Ok(())
    }

    /// Reads messages that may have expired in one window. Returns the start of the next page.
    fn scan_page(
        &mut self,
        windows: &RetentionWindows,
        at: SweepPosition,
        limit: usize,
        now: Timestamp,
        swept: &mut Swept,
    ) -> Option<SweepPosition> {
        let mut cursor = self.cursors.1.remove(&at.window).unwrap_or_default();
        let again = cursor.again(at.seq, limit);
        let from = cursor.from(at.seq);
        let horizon = now.before(at.window);
        let range = (Bound::Excluded(from), Bound::Unbounded);
        // A message dated by a wrong clock stays, but does not keep others.
        let old = self
            .messages
            .range(range)
            .take_while(|(_, one)| one.received_at <= horizon || one.received_at > now);
        let fresh: Vec<Seq> = old.take(limit.saturating_sub(again.len())).map(|(seq, _)| *seq).collect();
        let settled = now.before(at.window.max(SweepCursor::SETTLED));
        let (mut gone, mut stays, mut passed) = (Vec::new(), Vec::new(), from);
        for seq in again.iter().chain(&fresh) {
            let Some(stored) = self.messages.get(seq) else {
                gone.push(*seq);
                continue;
            };
            let fate = stored.fate(windows, at.window, now);
            // Numbers follow the order of acceptance, so everything before a settled one is settled.
            let is_settled = *seq > from && (stored.received_at <= settled || stored.received_at > now);
            if is_settled {
                passed = *seq;
            }
            match fate {
                SweepDecision::Gone => {
                    swept.entries += stored.entries.len();
                    swept.messages += 1;
                    self.forget(*seq);
                    gone.push(*seq);
                }
                SweepDecision::Stays if is_settled => stays.push(*seq),
                SweepDecision::Stays | SweepDecision::Later => {}
            }
        }
        cursor.gone(&gone);
        cursor.pass(from, passed, &stays);
        self.cursors.1.insert(at.window, cursor);
        let looked = again.len() + fresh.len();
        swept.looked += looked;
        let last = fresh.last().or(again.last()).copied().unwrap_or(at.seq);
        (looked >= limit).then_some(SweepPosition::new(at.window, last))
    }

    /// Removes a message, and moves the watermarks of its handlers.
    fn forget(&mut self, seq: Seq) {
        let Some(stored) = self.messages.get(&seq) else { return };
        let (at, handlers): (_, Vec<_>) = (stored.received_at, stored.entries.keys().cloned().collect());
        if handlers.is_empty() {
            self.watermark = self.watermark.max(Some(at));
        }
        for handler in handlers {
            let mark = self.watermarks.entry(handler).or_insert(at);
            *mark = at.max(*mark);
        }
        self.remove(seq);
    }

    fn sweep_marks(&mut self, windows: &RetentionWindows, limit: usize, now: Timestamp) -> usize {
        let mut gone = 0;
        for (handler, ages) in &mut self.mark_ages {
            let horizon = now.before(windows.of(handler));
            while gone < limit
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

    /// Returns a handler key with waiting entries. `None` if a worker holds one of them.
    fn orphan(&self, handler: &HandlerKey, now: Timestamp) -> Option<Orphan> {
        let mut oldest = None;
        let mut running = 0;
        for seq in self.indexes.running(handler) {
            let entry = self.entry(seq, handler)?;
            if entry.at >= now {
                return None;
            }
            running += 1;
            oldest = Some(oldest.map_or(entry.claimed_at, |oldest: Timestamp| oldest.min(entry.claimed_at)));
        }
        let modes = [ClaimMode::Healthy, ClaimMode::Suspect];
        let first = modes.into_iter().filter_map(|mode| self.indexes.due(mode, handler, now).next());
        let oldest = first.map(|(at, _)| at).chain(oldest).min()?;
        let count = (self.indexes.pending(handler) + running).min(OrphanParams::COUNTED);
        Some(Orphan::new(self.names.name(handler), count, oldest))
    }
}

impl MemoryMessage {
    /// Returns true if every entry is finished and past the window of its handler. A message without entries was finished on
    /// arrival.
    fn fate(&self, windows: &RetentionWindows, window: Duration, now: Timestamp) -> SweepDecision {
        let over = if self.entries.is_empty() {
            self.received_at <= now.before(windows.default_window())
        } else {
            self.entries.iter().all(|(handler, entry)| {
                matches!(entry.status, Status::Completed | Status::Discarded)
                    && entry.at <= now.before(windows.of(handler))
            })
        };
        let longest = self.entries.keys().map(|handler| windows.of(handler)).max();
        match longest.unwrap_or(windows.default_window()) {
            _ if over => SweepDecision::Gone,
            longest if longest > window => SweepDecision::Later,
            _ => SweepDecision::Stays,
        }
    }
}
