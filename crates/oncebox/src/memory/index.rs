//! Indexes of the tables: by status, by claim, by due time and by ordering key.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use super::tables::MemoryEntry;
use crate::key::OrderKey;
use crate::name::HandlerKey;
use crate::state::{EntryEvent, InLine, Status, follow};
use crate::store::{ClaimId, ClaimMode, Seq};
use crate::time::Timestamp;

/// Indexed attributes of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryPosition {
    status: Status,
    at: Timestamp,
    mode: ClaimMode,
    claim_id: Option<ClaimId>,
    in_line: Option<InLine>,
}

impl EntryPosition {
    /// Returns true if it blocks the entries behind it.
    fn is_in_the_way(&self) -> bool {
        match self.status {
            Status::Pending | Status::Running => true,
            // Without a policy it blocks: no policy allowed to skip it.
            Status::Poisoned => self.in_line.is_none_or(InLine::holds_back),
            Status::Completed | Status::Discarded => false,
        }
    }
}

impl MemoryEntry {
    pub(super) fn place(&self) -> EntryPosition {
        EntryPosition {
            status: self.status,
            at: self.at,
            mode: if self.suspicion.is_suspect() { ClaimMode::Suspect } else { ClaimMode::Healthy },
            claim_id: self.claim.filter(|_| self.status == Status::Running).map(|(_, id)| id),
            in_line: self.in_line.filter(|_| self.status == Status::Poisoned),
        }
    }
}

/// Entry of a lane that may be claimed.
type NextInOrder = Option<(Seq, EntryPosition)>;

/// Entries in the order of claims.
type DueQueue = BTreeSet<(Timestamp, Seq)>;

/// Indexes of one inbox. Only [`moved`](Self::moved) updates them.
#[derive(Default)]
pub(super) struct Indexes {
    by_status: BTreeMap<(HandlerKey, Status), BTreeSet<Seq>>,
    healthy: HashMap<HandlerKey, DueQueue>,
    suspect: HashMap<HandlerKey, DueQueue>,
    held: HashMap<ClaimId, BTreeSet<(Seq, HandlerKey)>>,
    lanes: HashMap<(HandlerKey, OrderKey), Lane>,
    /// Lanes that a poisoned entry blocks.
    blocked: BTreeSet<(HandlerKey, OrderKey)>,
    work: bool,
}

impl Indexes {
    /// Updates the indexes after a change of an entry. `None` is outside the tables.
    pub(super) fn moved(
        &mut self,
        seq: Seq,
        handler: &HandlerKey,
        order: Option<OrderKey>,
        before: Option<EntryPosition>,
        after: Option<EntryPosition>,
    ) {
        if let Some(place) = before {
            remove(&mut self.by_status, &(handler.clone(), place.status), &seq);
        }
        if let Some(place) = after {
            self.by_status.entry((handler.clone(), place.status)).or_default().insert(seq);
        }
        if let Some(id) = before.and_then(|place| place.claim_id)
            && let Some(held) = self.held.get_mut(&id)
        {
            held.remove(&(seq, handler.clone()));
            if held.is_empty() {
                self.held.remove(&id);
            }
        }
        if let Some(id) = after.and_then(|place| place.claim_id) {
            self.held.entry(id).or_default().insert((seq, handler.clone()));
        }
        let pending = |place: &EntryPosition| place.status == Status::Pending;
        let (before, after) = match order {
            None => (
                before.filter(pending).map(|place| (seq, place)),
                after.filter(pending).map(|place| (seq, place)),
            ),
            Some(order) => self.moved_in_lane(seq, handler, order, after),
        };
        self.turn_changed(handler, before, after);
    }

    /// Pauses or resumes a lane.
    pub(super) fn pause_lane(&mut self, handler: &HandlerKey, order: OrderKey, paused: bool) {
        let id = (handler.clone(), order);
        let lane = self.lanes.entry(id.clone()).or_default();
        let before = lane.turn();
        lane.paused = paused;
        let after = lane.turn();
        if lane.is_empty() {
            self.lanes.remove(&id);
        }
        // Another key of the handler may have had to wait for it.
        self.work |= !paused;
        self.turn_changed(handler, before, after);
    }

    /// Updates the queues after the claimable entry of a lane changed.
    fn turn_changed(&mut self, handler: &HandlerKey, before: NextInOrder, after: NextInOrder) {
        if let Some((seq, place)) = before
            && let Some(queue) = self.queue(place.mode).get_mut(handler)
        {
            queue.remove(&(place.at, seq));
        }
        if let Some((seq, place)) = after {
            self.queue(place.mode).entry(handler.clone()).or_default().insert((place.at, seq));
            self.work = true;
        }
    }

    /// Moves an entry in its lane. Returns the claimable entry before and after.
    fn moved_in_lane(
        &mut self,
        seq: Seq,
        handler: &HandlerKey,
        order: OrderKey,
        after: Option<EntryPosition>,
    ) -> (NextInOrder, NextInOrder) {
        let id = (handler.clone(), order);
        let lane = self.lanes.entry(id.clone()).or_default();
        let before = lane.turn();
        lane.put(seq, after);
        let now = lane.turn();
        // Another key of the handler may have had to wait for it.
        self.work |= after.is_none_or(|place| !place.is_in_the_way());
        let (empty, blocked) = (lane.is_empty(), !lane.poisoned.is_empty());
        if blocked {
            self.blocked.insert(id.clone());
        } else {
            self.blocked.remove(&id);
        }
        if empty {
            self.lanes.remove(&id);
        }
        if before == now { (None, None) } else { (before, now) }
    }

    fn queue(&mut self, mode: ClaimMode) -> &mut HashMap<HandlerKey, DueQueue> {
        match mode {
            ClaimMode::Healthy => &mut self.healthy,
            ClaimMode::Suspect => &mut self.suspect,
        }
    }

    /// Returns due claimable entries of a handler, in the order of claims.
    pub(super) fn due(
        &self,
        mode: ClaimMode,
        handler: &HandlerKey,
        now: Timestamp,
    ) -> impl Iterator<Item = (Timestamp, Seq)> {
        let queues = match mode {
            ClaimMode::Healthy => &self.healthy,
            ClaimMode::Suspect => &self.suspect,
        };
        queues.get(handler).into_iter().flatten().copied().take_while(move |(at, _)| *at <= now)
    }

    /// Returns the entries that a claim still holds.
    pub(super) fn held(&self, id: ClaimId) -> impl Iterator<Item = &(Seq, HandlerKey)> {
        self.held.get(&id).into_iter().flatten()
    }

    /// Returns every handler and status with its entries.
    pub(super) fn by_status(&self) -> impl Iterator<Item = (&HandlerKey, Status, &BTreeSet<Seq>)> {
        self.by_status.iter().map(|((handler, status), entries)| (handler, *status, entries))
    }

    /// Returns the running entries of a handler.
    pub(super) fn running(&self, handler: &HandlerKey) -> impl Iterator<Item = Seq> {
        self.by_status.get(&(handler.clone(), Status::Running)).into_iter().flatten().copied()
    }

    /// Returns the number of pending entries of a handler.
    pub(super) fn pending(&self, handler: &HandlerKey) -> u64 {
        self.by_status.get(&(handler.clone(), Status::Pending)).map_or(0, |entries| entries.len() as u64)
    }

    /// Returns true if no entry with the same order key blocks a pending entry.
    pub(super) fn is_in_turn(&self, seq: Seq, handler: &HandlerKey, order: Option<OrderKey>) -> bool {
        let lane = order.and_then(|order| self.lanes.get(&(handler.clone(), order)));
        lane.is_none_or(|lane| lane.turn().is_some_and(|(turn, _)| turn == seq))
    }

    /// Returns true if no entry with the same order key under another key of the handler blocks an entry.
    pub(super) fn is_in_turn_over(
        &self,
        handlers: &[HandlerKey],
        seq: Seq,
        handler: &HandlerKey,
        order: OrderKey,
    ) -> bool {
        let others = handlers.iter().filter(|other| *other != handler);
        others.filter_map(|key| self.lanes.get(&(key.clone(), order))).all(|lane| lane.lets_pass(seq))
    }

    /// Returns an entry of a lane that must be parked or unparked, if there is one.
    pub(super) fn misplaced(
        &self,
        handler: &HandlerKey,
        order: OrderKey,
    ) -> Option<(Seq, EntryEvent, Status)> {
        self.lanes.get(&(handler.clone(), order))?.misplaced()
    }

    /// Returns the number of entries behind a blocking one, and the first of them.
    pub(super) fn behind(&self, seq: Seq, handler: &HandlerKey, order: OrderKey) -> Option<(u64, Seq)> {
        self.lanes.get(&(handler.clone(), order))?.behind(seq)
    }

    /// Returns true if an operator paused the lane.
    pub(super) fn is_lane_paused(&self, handler: &HandlerKey, order: OrderKey) -> bool {
        self.lanes.get(&(handler.clone(), order)).is_some_and(|lane| lane.paused)
    }

    /// Returns the entry that blocks another one in its lane: a running one, else the first.
    pub(super) fn ahead(&self, seq: Seq, handler: &HandlerKey, order: OrderKey) -> Option<(Seq, Status)> {
        let lane = self.lanes.get(&(handler.clone(), order))?;
        let others = || lane.unfinished.iter().filter(|(other, _)| **other != seq);
        let running = others().find(|(_, place)| place.status == Status::Running);
        let first = running.or_else(|| others().next().filter(|(first, _)| **first < seq));
        first.map(|(seq, place)| (*seq, place.status))
    }

    /// Returns every blocked lane, with its poisoned entry.
    pub(super) fn blocked(&self) -> impl Iterator<Item = (Seq, &HandlerKey, OrderKey)> {
        self.blocked.iter().filter_map(|id| Some((*self.lanes.get(id)?.poisoned.first()?, &id.0, id.1)))
    }

    /// Returns the number of blocked lanes of a handler and of entries in them, and the first of those. Counts up to a limit.
    pub(super) fn blocked_of(&self, handler: &HandlerKey, limit: u64) -> (u64, u64, Option<Seq>) {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let heads = || self.blocked().filter(|(_, of, _)| *of == handler).take(limit);
        let lanes =
            || heads().filter_map(|(seq, of, order)| Some((seq, self.lanes.get(&(of.clone(), order))?)));
        let waiting = lanes().flat_map(|(seq, lane)| lane.waiting(seq)).take(limit).count();
        let first = lanes().filter_map(|(seq, lane)| lane.first_waiting(seq)).min();
        (heads().count() as u64, waiting as u64, first)
    }

    pub(super) fn announce(&mut self) {
        self.work = true;
    }

    pub(super) fn take_work(&mut self) -> bool {
        std::mem::take(&mut self.work)
    }
}

/// Entries of one handler with one order key.
#[derive(Default)]
struct Lane {
    /// Entries that block others: pending, running, or poisoned and not skipped.
    unfinished: BTreeMap<Seq, EntryPosition>,
    /// Parked entries.
    parked: BTreeSet<Seq>,
    /// Unfinished entries that park others.
    parks: BTreeSet<Seq>,
    /// Unfinished entries that are poisoned.
    poisoned: BTreeSet<Seq>,
    running: usize,
    /// True if an operator paused the lane.
    paused: bool,
}

impl Lane {
    /// Returns the claimable entry: the oldest one, if it is pending and none runs. After a replay, a younger one may run while an
    /// older one waits.
    fn turn(&self) -> NextInOrder {
        let (seq, place) = self.unfinished.first_key_value()?;
        (!self.paused && self.running == 0 && place.status == Status::Pending).then_some((*seq, *place))
    }

    /// Returns true if an entry with the same order key elsewhere need not wait for this lane.
    fn lets_pass(&self, seq: Seq) -> bool {
        !self.paused
            && self.running == 0
            && self.unfinished.first_key_value().is_none_or(|(first, _)| *first > seq)
    }

    fn is_empty(&self) -> bool {
        !self.paused && self.unfinished.is_empty() && self.parked.is_empty()
    }

    fn put(&mut self, seq: Seq, place: Option<EntryPosition>) {
        let in_line = place.and_then(|place| place.in_line);
        insert_if(&mut self.parked, seq, in_line == Some(InLine::Parked));
        insert_if(&mut self.parks, seq, in_line == Some(InLine::Parks));
        let stuck = place.is_some_and(|place| place.is_in_the_way() && place.status == Status::Poisoned);
        insert_if(&mut self.poisoned, seq, stuck);
        let old = match place.filter(EntryPosition::is_in_the_way) {
            Some(place) => {
                self.running += usize::from(place.status == Status::Running);
                self.unfinished.insert(seq, place)
            }
            None => self.unfinished.remove(&seq),
        };
        self.running -= usize::from(old.is_some_and(|place| place.status == Status::Running));
    }

    fn misplaced(&self) -> Option<(Seq, EntryEvent, Status)> {
        let first = self.parks.first().copied();
        let moved = |seq: Seq, status: Status, in_line: Option<InLine>| {
            let (event, next) = follow(status, in_line, first.is_some_and(|first| first < seq))?;
            Some((seq, event, next))
        };
        let freed = self.parked.first().and_then(|seq| moved(*seq, Status::Poisoned, Some(InLine::Parked)));
        freed.or_else(|| {
            let behind = self.unfinished.range((Bound::Excluded(first?), Bound::Unbounded));
            behind.into_iter().find_map(|(seq, place)| moved(*seq, place.status, place.in_line))
        })
    }

    fn behind(&self, seq: Seq) -> Option<(u64, Seq)> {
        Some((self.waiting(seq).count() as u64, self.first_waiting(seq)?))
    }

    /// Returns the entries that wait behind one: pending, then parked.
    fn waiting(&self, seq: Seq) -> impl Iterator<Item = Seq> {
        let after = (Bound::Excluded(seq), Bound::Unbounded);
        let pending = self.unfinished.range(after).filter(|(_, place)| place.status == Status::Pending);
        pending.map(|(seq, _)| *seq).chain(self.parked.range(after).copied())
    }

    fn first_waiting(&self, seq: Seq) -> Option<Seq> {
        let after = (Bound::Excluded(seq), Bound::Unbounded);
        let mut pending = self.unfinished.range(after).filter(|(_, place)| place.status == Status::Pending);
        let pending = pending.next().map(|(seq, _)| *seq);
        pending.into_iter().chain(self.parked.range(after).next().copied()).min()
    }
}

/// Adds a value to a set, or removes it.
fn insert_if(set: &mut BTreeSet<Seq>, seq: Seq, member: bool) {
    if member {
        set.insert(seq);
    } else {
        set.remove(&seq);
    }
}

/// Removes a value from a set in a map, and the set when it is empty.
fn remove<K: Ord, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(set) = map.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            map.remove(key);
        }
    }
}
