//! The model: the content of an inbox, and the effect of each operation.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use oncebox::state::{EntryEvent, InLine, NextState, Operation, Settlement, Status, Suspicion, follow};
use oncebox::store::{Accepted, Claim, ClaimMode, KnownMessage, Seq, Token};
use oncebox::time::Timestamp;

use super::step::{HANDLERS, MESSAGES, ModelOffer};

/// An entry of the model.
#[derive(Clone)]
pub(super) struct ModelEntry {
    pub(super) seq: Seq,
    /// Messages with one ordering key wait for each other.
    pub(super) ordered: bool,
    pub(super) status: Status,
    pub(super) attempts: u32,
    pub(super) suspicion: Suspicion,
    /// True if its last run began alone.
    pub(super) alone: bool,
    /// Due time, end of the lease, or time of the end.
    pub(super) at: Timestamp,
    /// Effect on the entries behind it, if it is poisoned.
    pub(super) in_line: Option<InLine>,
    /// Due time of a parked entry.
    not_before: Timestamp,
    pub(super) token: Option<Token>,
    /// True if an operator changed it since its last claim.
    pub(super) operated: bool,
    /// Earlier generations, as they finished: status, attempts, suspicion and time.
    pub(super) past: Vec<(Status, u32, Suspicion, Timestamp)>,
}

impl ModelEntry {
    pub(super) fn generation(&self) -> u32 {
        u32::try_from(self.past.len()).unwrap_or(u32::MAX)
    }

    /// Returns true if a claim holds it.
    pub(super) fn is_held_by(&self, claim: &Claim) -> bool {
        self.status == Status::Running && self.seq == claim.seq && self.token == Some(claim.token)
    }

    pub(super) fn settle(&mut self, settlement: &Settlement, now: Timestamp) {
        self.status = settlement.next.status();
        (self.attempts, self.suspicion) = (settlement.attempts, settlement.suspicion);
        self.in_line = settlement.in_line;
        self.at = match settlement.next {
            NextState::Pending { delay } => now.after(delay),
            _ => now,
        };
    }

    pub(super) fn operate(&mut self, operation: Operation, next: Status, now: Timestamp) {
        self.operated = true;
        if operation == Operation::Unblock {
            self.in_line = Some(InLine::Skipped);
            return;
        }
        if operation == Operation::Replay {
            self.past.push((self.status, self.attempts, self.suspicion, self.at));
        }
        if next == Status::Pending {
            (self.attempts, self.suspicion) = (0, Suspicion::NONE);
        }
        (self.status, self.at, self.in_line) = (next, now, None);
    }

    /// Returns true if the entries behind it have to wait.
    fn is_in_the_way(&self) -> bool {
        match self.status {
            Status::Pending | Status::Running => true,
            Status::Poisoned => self.in_line.is_some_and(InLine::holds_back),
            Status::Completed | Status::Discarded => false,
        }
    }

    fn is_finished_by(&self, horizon: Timestamp) -> bool {
        matches!(self.status, Status::Completed | Status::Discarded) && self.at <= horizon
    }
}

/// A stored message.
pub(super) struct ModelMessage {
    pub(super) seq: Seq,
    /// First payload.
    pub(super) payload: u8,
    pub(super) received_at: Timestamp,
}

/// Content of an inbox.
#[derive(Default)]
pub(super) struct InboxModel {
    pub(super) messages: BTreeMap<u8, ModelMessage>,
    /// Quarantined messages, by id and payload.
    pub(super) quarantined: BTreeSet<(u8, u8)>,
    pub(super) entries: BTreeMap<(u8, &'static str), ModelEntry>,
    pub(super) paused: BTreeSet<&'static str>,
    /// Arrival of the newest swept message, by handler, and of those without any.
    watermarks: BTreeMap<Option<&'static str>, Timestamp>,
    last_seq: Option<Seq>,
}

impl InboxModel {
    /// Accepts a message, and returns the result that the store must have returned. The actual result only gives the number of a
    /// new message. If the call was `repeated`, a new message is known already.
    pub(super) fn accept(
        &mut self,
        offer: &ModelOffer,
        answer: Accepted,
        repeated: bool,
        now: Timestamp,
    ) -> Result<Accepted, String> {
        if let Some(ModelMessage { seq, payload, received_at }) = self.messages.get(&offer.id) {
            let (seq, age) = (*seq, now.since(*received_at));
            let varied = *payload != offer.payload;
            if varied && !offer.first_wins {
                self.quarantined.insert((offer.id, offer.payload));
                return Ok(Accepted::Conflict(seq));
            }
            let missing = |name: &&'static str| !self.entries.contains_key(&(offer.id, *name));
            let missing: Vec<_> = offer.handlers.iter().copied().filter(missing).map(Some).collect();
            if self.is_stale(offer, &missing, now) {
                self.quarantined.insert((offer.id, offer.payload));
                return Ok(Accepted::Stale);
            }
            return Ok(match self.add(seq, offer, now) {
                added if added > 0 && !repeated => Accepted::HandlersAdded(seq, added),
                _ => Accepted::Duplicate(KnownMessage::new(seq, age).varied(varied)),
            });
        }
        let mut handlers: Vec<_> = offer.handlers.iter().copied().map(Some).collect();
        if handlers.is_empty() {
            handlers.push(None);
        }
        if self.is_stale(offer, &handlers, now) {
            self.quarantined.insert((offer.id, offer.payload));
            return Ok(Accepted::Stale);
        }
        let seq = match answer {
            Accepted::First(seq) if !repeated => seq,
            Accepted::Duplicate(known) if repeated => known.seq,
            other => return Err(format!("{other:?} for message {}, which is new", offer.id)),
        };
        if self.last_seq >= Some(seq) {
            return Err(format!("{seq} comes after {:?}", self.last_seq));
        }
        self.last_seq = Some(seq);
        self.messages.insert(offer.id, ModelMessage { seq, payload: offer.payload, received_at: now });
        self.add(seq, offer, now);
        Ok(answer)
    }

    /// Returns true if one of these handlers may have forgotten the message.
    fn is_stale(&self, offer: &ModelOffer, handlers: &[Option<&'static str>], now: Timestamp) -> bool {
        let mark = handlers.iter().filter_map(|name| self.watermarks.get(name)).max();
        offer.age.zip(mark).is_some_and(|(age, mark)| now.before(age) <= *mark)
    }

    /// Adds the missing entries of a message, and returns their number.
    fn add(&mut self, seq: Seq, offer: &ModelOffer, now: Timestamp) -> usize {
        let before = self.entries.len();
        for name in &offer.handlers {
            self.entries.entry((offer.id, name)).or_insert_with(|| ModelEntry {
                seq,
                ordered: is_ordered(offer.id),
                status: Status::Pending,
                attempts: 0,
                suspicion: Suspicion::NONE,
                alone: false,
                at: now.after(offer.delay),
                in_line: None,
                not_before: Timestamp::ZERO,
                token: None,
                operated: false,
                past: Vec::new(),
            });
        }
        self.arrange(now);
        self.entries.len() - before
    }

    /// Parks and unparks entries behind others, after every change of an order queue.
    pub(super) fn arrange(&mut self, now: Timestamp) {
        for name in HANDLERS {
            let parks = |entry: &ModelEntry| entry.in_line == Some(InLine::Parks);
            let of_handler = self.entries.iter().filter(|((_, of), _)| *of == name);
            let first = of_handler.filter(|(_, entry)| parks(entry)).map(|(_, entry)| entry.seq).min();
            let of_handler = self.entries.iter_mut().filter(|((_, of), _)| *of == name);
            for entry in of_handler.map(|(_, entry)| entry).filter(|entry| entry.ordered) {
                let behind_parked = first.is_some_and(|first| first < entry.seq);
                match follow(entry.status, entry.in_line, behind_parked) {
                    Some((EntryEvent::Park, next)) => {
                        (entry.status, entry.in_line) = (next, Some(InLine::Parked));
                        (entry.not_before, entry.at) = (entry.at, now);
                    }
                    Some((_, next)) => {
                        (entry.status, entry.in_line, entry.at) = (next, None, entry.not_before);
                    }
                    None => {}
                }
            }
        }
    }

    /// Returns true if an entry waits for another one with its ordering key.
    pub(super) fn is_blocked(&self, entry: &ModelEntry, name: &str) -> bool {
        entry.ordered
            && self.entries.iter().any(|((_, other_name), other)| {
                let earlier = other.seq < entry.seq && other.is_in_the_way();
                let runs = other.seq != entry.seq && other.status == Status::Running;
                other.ordered && *other_name == name && (earlier || runs)
            })
    }

    /// Returns the claimable entries of a handler at `now`, in the order of claims.
    pub(super) fn claimable(&self, name: &str, mode: ClaimMode, now: Timestamp) -> Vec<(Timestamp, Seq, u8)> {
        let may = |entry: &ModelEntry| {
            entry.status == Status::Pending
                && entry.at <= now
                && entry.suspicion.is_suspect() == (mode == ClaimMode::Suspect)
                && !self.is_blocked(entry, name)
        };
        let of_handler =
            self.entries.iter().filter(|((_, of), _)| *of == name && !self.paused.contains(name));
        let mut claimable: Vec<_> = of_handler
            .filter(|(_, entry)| may(entry))
            .map(|((id, _), entry)| (entry.at, entry.seq, *id))
            .collect();
        claimable.sort_unstable();
        claimable
    }

    /// Returns the suspects that a claim takes: the first due one, and others with its suspicion.
    pub(super) fn company(&self, name: &str, due: &[(Timestamp, Seq, u8)], limit: usize) -> Vec<Seq> {
        let suspicion =
            |id: &u8| self.entries.get(&(*id, name)).map_or(Suspicion::NONE, |entry| entry.suspicion);
        let Some(first) = due.first().map(|(.., id)| suspicion(id)) else { return Vec::new() };
        let same = due.iter().filter(|(.., id)| suspicion(id) == first);
        same.map(|(_, seq, _)| *seq).take(limit.min(first.company(1))).collect()
    }

    /// Returns the entries of a handler with an expired lease.
    pub(super) fn lapsed(&self, name: &str, now: Timestamp) -> BTreeSet<Seq> {
        let lapsed = |entry: &ModelEntry| entry.status == Status::Running && entry.at < now;
        let of_handler = self.entries.iter().filter(|((_, of), _)| *of == name);
        of_handler.filter(|(_, entry)| lapsed(entry)).map(|(_, entry)| entry.seq).collect()
    }

    /// Returns the messages that a sweep may remove.
    pub(super) fn forgettable(&self, horizon: Timestamp) -> BTreeSet<u8> {
        let finished = |id: u8| {
            HANDLERS
                .iter()
                .filter_map(|name| self.entries.get(&(id, *name)))
                .all(|entry| entry.is_finished_by(horizon))
        };
        let old = self.messages.iter().filter(|(_, stored)| stored.received_at <= horizon);
        old.map(|(id, _)| *id).filter(|id| finished(*id)).collect()
    }

    pub(super) fn forget(&mut self, gone: &BTreeSet<u8>) {
        for (id, stored) in self.messages.iter().filter(|(id, _)| gone.contains(id)) {
            let with_entry = |name: &&str| self.entries.contains_key(&(*id, *name));
            let mut handlers: Vec<_> = HANDLERS.into_iter().filter(with_entry).map(Some).collect();
            if handlers.is_empty() {
                handlers.push(None);
            }
            for handler in handlers {
                let mark = self.watermarks.entry(handler).or_insert(stored.received_at);
                *mark = stored.received_at.max(*mark);
            }
        }
        self.messages.retain(|id, _| !gone.contains(id));
        self.entries.retain(|(id, _), _| !gone.contains(id));
    }

    pub(super) fn with_status(&self, status: Status) -> usize {
        self.entries.values().filter(|entry| entry.status == status).count()
    }
}

/// Returns true if messages with this id have the ordering key.
pub(super) fn is_ordered(id: u8) -> bool {
    id < MESSAGES / 2
}

/// Time after which everything is due.
pub(super) const EVERYTHING: Duration = Duration::from_hours(24 * 365);
