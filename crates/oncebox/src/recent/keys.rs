//! The keys of [`Recent`](super::Recent): a map, and a queue by age. Tests: `keys/tests.rs`.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::KeyDigest;

/// Maximum expired keys that one call removes, beyond the room that it needs.
const MAX_EXPIRED_PER_CALL: usize = 8;

/// State of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// A task has the permit.
    Open,
    /// Remembered until this time.
    Done(Duration),
}

/// Result of an admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyAdmission {
    /// The key was free; the caller has it now.
    Free,
    Done,
    Open,
    Full,
}

pub(super) struct RecentKeys {
    capacity: usize,
    slots: HashMap<KeyDigest, Slot>,
    /// Done keys in the order of their expiry: all have the same retention. A key that was given out again leaves an old
    /// record here, which is skipped.
    ages: VecDeque<(Duration, KeyDigest)>,
}

impl RecentKeys {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, slots: HashMap::new(), ages: VecDeque::new() }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Gives a key out if it is free. An expired key is free, even before its removal.
    pub(super) fn admit(&mut self, id: KeyDigest, now: Duration) -> KeyAdmission {
        self.remove_expired(now);
        let full = self.slots.len() >= self.capacity;
        match self.slots.entry(id) {
            Entry::Occupied(mut slot) => match *slot.get() {
                Slot::Open => KeyAdmission::Open,
                Slot::Done(until) if until > now => KeyAdmission::Done,
                Slot::Done(_) => {
                    slot.insert(Slot::Open);
                    KeyAdmission::Free
                }
            },
            Entry::Vacant(_) if full => KeyAdmission::Full,
            Entry::Vacant(slot) => {
                slot.insert(Slot::Open);
                KeyAdmission::Free
            }
        }
    }

    /// Remembers a key whose work is done.
    pub(super) fn done(&mut self, id: KeyDigest, until: Duration) {
        self.slots.insert(id, Slot::Done(until));
        self.ages.push_back((until, id));
    }

    /// Frees a key.
    pub(super) fn free(&mut self, id: &KeyDigest) {
        self.slots.remove(id);
    }

    /// Removes a few expired keys, and more only while there is no room. Each key is removed once, so the cost of a call is
    /// bounded on average.
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
