//! Register and sweep: expired messages are removed, and a watermark remembers that they existed.

use std::ops::Bound;
use std::time::Duration;

use oncebox_core::error::Result;
use oncebox_core::state::Status;
use oncebox_core::store::{
    RegisterParams, RegisteredWindow, RetentionWindows, Seq, SweepParams, SweepPosition, Swept,
};
use oncebox_core::time::Timestamp;

use crate::rows::{InboxRows, MessageRow};

impl InboxRows {
    /// Records what a process relies on. It refuses two handlers that are one to the store, because the second would never run.
    pub(crate) fn register(&mut self, params: &RegisterParams, now: Timestamp) -> Result<()> {
        if let Some(tenancy) = params.new_tenancy(self.tenancy.as_deref())? {
            self.tenancy = Some(tenancy.into());
        }
        let groups: Vec<_> = params.routes.iter().map(|route| self.handlers.group(route)).collect();
        params.refuse_shared(&groups)?;
        let until = now.after(params.hold);
        for (handler, window) in params.all() {
            // One row per handler and window, so that a process that registers again and again adds none.
            self.windows.retain(|one| one.handler.as_ref() != handler || one.window != window);
            self.windows.push(RegisteredWindow::new(handler.cloned(), window, until));
        }
        Ok(())
    }

    /// Removes expired messages, oldest first. It reads all old messages again at each sweep; a store for many messages keeps a
    /// `SweepCursor`.
    pub(crate) fn sweep(&mut self, params: &SweepParams, now: Timestamp) -> Swept {
        // One process at a time sweeps. The lease ends the turn of one that died.
        if self.sweeper.is_some_and(|(id, until)| id != params.sweep_id && now <= until) {
            return Swept::NOTHING;
        }
        let windows = RetentionWindows::new(params, &self.windows, now).over(self.handlers.all());
        let after = params.after.map_or(Seq(0), |after| after.seq);
        let page = self.messages.range((Bound::Excluded(after), Bound::Unbounded)).take(params.limit);
        let page: Vec<Seq> = page.map(|(seq, _)| *seq).collect();
        let mut swept = Swept::NOTHING;
        for seq in &page {
            if self.messages.get(seq).is_some_and(|stored| stored.has_expired(&windows, now)) {
                swept.messages += 1;
                swept.entries += self.forget(*seq);
            }
        }
        swept.looked = page.len();
        let more = page.last().filter(|_| page.len() == params.limit);
        swept.next = more.map(|last| SweepPosition::new(Duration::ZERO, *last));
        self.sweeper = swept.next.map(|_| (params.sweep_id, now.after(params.lease)));
        swept
    }

    /// Removes a message and moves the watermarks in the same change. A repeat that is older than them counts as stale, because
    /// the store cannot know any more whether it ran.
    fn forget(&mut self, seq: Seq) -> usize {
        let Some(stored) = self.messages.remove(&seq) else { return 0 };
        self.keys.remove(&stored.key);
        let at = stored.received_at;
        let mut handlers: Vec<_> = stored.entries.keys().cloned().map(Some).collect();
        if handlers.is_empty() {
            handlers.push(None);
        }
        for handler in handlers {
            let mark = self.watermarks.entry(handler).or_insert(at);
            *mark = at.max(*mark);
        }
        stored.entries.len()
    }
}

impl MessageRow {
    /// Returns true if every entry is finished and past the window of its handler. Poisoned entries wait for an operator, however
    /// old they are. A message without entries was finished on arrival.
    fn has_expired(&self, windows: &RetentionWindows, now: Timestamp) -> bool {
        if self.entries.is_empty() {
            return self.received_at <= now.before(windows.default_window());
        }
        self.entries.iter().all(|(handler, entry)| {
            matches!(entry.status, Status::Completed | Status::Discarded)
                && entry.at <= now.before(windows.of(handler))
        })
    }
}
