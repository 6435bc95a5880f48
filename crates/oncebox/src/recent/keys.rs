//! The keys themselves: a map, and the order in which they may be forgotten.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::Id;

/// How many keys past their time one call removes at most, beyond what it needs for itself.
const MAX_EXPIRED_PER_CALL: usize = 8;

/// What is known of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// Somebody has the permit.
    Open,
    /// Remembered until then.
    Done(Duration),
}

/// What a key was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nobody had it; the caller has it now.
    Free,
    Done,
    Open,
    Full,
}

pub(super) struct Keys {
    capacity: usize,
    slots: HashMap<Id, Slot>,
    /// Those that are done, by the time until which they are remembered: all are remembered for the same time, so they
    /// come in order. One that was given out again since stands here still, and no longer counts.
    ages: VecDeque<(Duration, Id)>,
}

impl Keys {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, slots: HashMap::new(), ages: VecDeque::new() }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Gives a key out if it is free. A key past its time is, whether or not it was removed yet.
    pub(super) fn admit(&mut self, id: Id, now: Duration) -> Found {
        self.remove_expired(now);
        let full = self.slots.len() >= self.capacity;
        match self.slots.entry(id) {
            Entry::Occupied(mut slot) => match *slot.get() {
                Slot::Open => Found::Open,
                Slot::Done(until) if until > now => Found::Done,
                Slot::Done(_) => {
                    slot.insert(Slot::Open);
                    Found::Free
                }
            },
            Entry::Vacant(_) if full => Found::Full,
            Entry::Vacant(slot) => {
                slot.insert(Slot::Open);
                Found::Free
            }
        }
    }

    /// Remembers a key that was given out.
    pub(super) fn done(&mut self, id: Id, until: Duration) {
        self.slots.insert(id, Slot::Done(until));
        self.ages.push_back((until, id));
    }

    /// Sets a key free that was given out.
    pub(super) fn free(&mut self, id: &Id) {
        self.slots.remove(id);
    }

    /// Removes a few keys past their time, and more only as long as there is no room: each is removed once, so a call
    /// pays for little more than for what it brings.
    fn remove_expired(&mut self, now: Duration) {
        let mut removed = 0;
        while removed < MAX_EXPIRED_PER_CALL || self.slots.len() >= self.capacity {
            match self.ages.front() {
                Some((until, _)) if *until <= now => {}
                _ => break,
            }
            if let Some((until, id)) = self.ages.pop_front()
                && self.slots.get(&id) == Some(&Slot::Done(until))
            {
                self.slots.remove(&id);
            }
            removed += 1;
        }
    }
}

#[cfg(test)]
mod tests;
