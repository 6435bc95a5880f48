//! Accept: each message once per key, with one pending entry per handler.

use std::collections::BTreeMap;
use std::sync::Arc;

use oncebox_core::store::{Accepted, KnownMessage, NewMessage, QuarantineReason, Seq};
use oncebox_core::time::Timestamp;

use crate::rows::{EntryRow, InboxRows, MessageRow, Rows};

impl Rows {
    pub(crate) fn accept(&mut self, new: &NewMessage, now: Timestamp) -> Accepted {
        let inbox = self.inbox(&new.inbox);
        let known = inbox.keys.get(&new.key).copied();
        let stored = known.and_then(|seq| Some((seq, inbox.messages.get(&seq)?)));
        // The order of the checks is a rule. A conflict is certain, a stale message only possible.
        if let Some((seq, stored)) = stored
            && new.conflicts_with(&stored.fingerprint)
        {
            inbox.quarantine(new, QuarantineReason::Conflict);
            return Accepted::Conflict(seq);
        }
        if inbox.is_stale(new, known) {
            inbox.quarantine(new, QuarantineReason::Stale);
            return Accepted::Stale;
        }
        if let Some(seq) = known {
            return match inbox.add_entries(seq, new, now) {
                0 => Accepted::Duplicate(inbox.duplicate(seq, new, now)),
                added => Accepted::HandlersAdded(seq, added),
            };
        }
        let seq = self.next_seq();
        let inbox = self.inbox(&new.inbox);
        inbox.keys.insert(new.key, seq);
        let stored = MessageRow {
            key: new.key,
            fingerprint: new.fingerprint,
            order: new.order,
            message: Arc::clone(&new.message),
            received_at: now,
            entries: BTreeMap::new(),
        };
        inbox.messages.insert(seq, stored);
        inbox.add_entries(seq, new, now);
        Accepted::First(seq)
    }
}

impl InboxRows {
    /// Returns true if a sweep may have removed this message before, for a handler that it has no entry of. A message as old as the
    /// newest swept one counts.
    fn is_stale(&mut self, new: &NewMessage, known: Option<Seq>) -> bool {
        let Some(time) = new.doubtful_since() else { return false };
        let mut forgotten = Vec::new();
        if new.routes.is_empty() && known.is_none() {
            forgotten.push(None);
        }
        for route in new.routes.iter() {
            let group = self.handlers.group(route);
            let stored = known.and_then(|seq| self.messages.get(&seq));
            if !stored.is_some_and(|stored| group.iter().any(|origin| stored.entries.contains_key(origin))) {
                forgotten.extend(group.into_iter().map(Some));
            }
        }
        forgotten.iter().filter_map(|origin| self.watermarks.get(origin)).any(|mark| time <= *mark)
    }

    /// Adds an entry for each handler that has none, and returns their number.
    fn add_entries(&mut self, seq: Seq, new: &NewMessage, now: Timestamp) -> usize {
        let Some(stored) = self.messages.get_mut(&seq) else { return 0 };
        let before = stored.entries.len();
        for route in new.routes.iter() {
            let group = self.handlers.group(route);
            // An entry under another key of the handler is its entry: a renamed handler does not run again.
            if group.iter().any(|origin| stored.entries.contains_key(origin)) {
                continue;
            }
            let origin = self.handlers.link(route).swap_remove(0);
            let entry = EntryRow::due(now.after(new.delay), route.order_of(stored.order));
            stored.entries.insert(origin, entry);
        }
        stored.entries.len() - before
    }

    fn duplicate(&self, seq: Seq, new: &NewMessage, now: Timestamp) -> KnownMessage {
        let stored = &self.messages[&seq];
        KnownMessage::new(seq, now.since(stored.received_at)).varied(stored.fingerprint != new.fingerprint)
    }

    /// Keeps a message that must not run. A higher tier shows it; deleting it would lose it.
    fn quarantine(&mut self, new: &NewMessage, reason: QuarantineReason) {
        let row = (new.key, *new.fingerprint.as_bytes());
        self.quarantined.entry(row).or_insert_with(|| (reason, Arc::clone(&new.message)));
    }
}
