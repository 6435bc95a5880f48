//! Counts and logs conflicts that the policy allows. Tests: below, and `tests/keys.rs`.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;

use super::Shared;
use crate::config::OnConflict;
use crate::key::{Fingerprint, Key};
use crate::message::Message;
use crate::name::HandlerKey;
use crate::observe::{emit, names};
use crate::store::{Accepted, NewMessage, Store};

/// Maximum remembered keys, about 2 MB. The oldest key is forgotten first.
const MAX_KEYS: usize = 10_000;
/// Maximum payloads that are distinguished per key.
const MAX_PER_KEY: usize = 4;

/// The payloads of the last keys in this process. The store cannot answer this: with [`OnConflict::AcceptAsNew`] each
/// payload has its own key there.
#[derive(Default)]
pub(crate) struct AllowedConflicts {
    seen: Mutex<SeenPayloads>,
}

#[derive(Default)]
struct SeenPayloads {
    by_key: HashMap<Key, Vec<Fingerprint>>,
    /// Oldest first.
    order: VecDeque<Key>,
}

impl AllowedConflicts {
    /// Records a payload. If it is new for its key, returns another payload of the key.
    fn note(&self, key: Key, fingerprint: Fingerprint) -> Option<Fingerprint> {
        let mut seen = self.seen.lock();
        let SeenPayloads { by_key, order } = &mut *seen;
        let known = by_key.entry(key).or_insert_with(|| {
            order.push_back(key);
            Vec::with_capacity(1)
        });
        if known.contains(&fingerprint) {
            return None;
        }
        let other = known.last().copied();
        if known.len() == MAX_PER_KEY {
            known.remove(0);
        }
        known.push(fingerprint);
        if order.len() > MAX_KEYS
            && let Some(oldest) = order.pop_front()
        {
            by_key.remove(&oldest);
        }
        other
    }
}

impl<S: Store> Shared<S> {
    /// Counts an offer whose key had another payload before, if the policy allows that.
    pub(super) fn note_variant(&self, accepted: &Accepted, offer: &NewMessage) {
        match (offer.on_conflict, accepted) {
            (OnConflict::FirstWins, Accepted::Duplicate(known)) if known.varied => {
                self.note_first_wins(&offer.message, &offer.key);
            }
            // A repeated payload is no conflict.
            (OnConflict::AcceptAsNew, Accepted::First(_)) if offer.compared => {
                let handler = offer.routes.first().map(|route| &route.key);
                self.note_payload(&offer.message, handler, offer.fingerprint);
            }
            _ => {}
        }
    }

    /// Counts a message whose key had another payload before, under the policy that the first one wins.
    pub(super) fn note_first_wins(&self, message: &Message, key: &Key) {
        let (inbox, message_type) = (&self.name, message.message_type());
        emit::count(names::CONFLICTS, 1, [emit::inbox(inbox), emit::word("policy", "first_wins")]);
        if let Some(suppressed) = self.store.watch().allow("conflict", inbox.as_str()) {
            tracing::warn!(%inbox, message_type, %key, suppressed, "dropped: key known with another payload");
        }
    }

    /// Counts a message of an inline handler whose key had another payload before, under the policy to accept it as new.
    pub(crate) fn note_inline(&self, message: &Message, handler: &HandlerKey, policy: OnConflict) {
        if policy == OnConflict::AcceptAsNew {
            self.note_payload(message, Some(handler), Fingerprint::of(message));
        }
    }

    fn note_payload(&self, message: &Message, handler: Option<&HandlerKey>, fingerprint: Fingerprint) {
        let Ok(Some(key)) = self.plain_key(message, handler) else { return };
        let Some(other) = self.allowed_conflicts.note(key, fingerprint) else { return };
        let (inbox, message_type) = (&self.name, message.message_type());
        emit::count(names::CONFLICTS, 1, [emit::inbox(inbox), emit::word("policy", "accept_as_new")]);
        let Some(suppressed) = self.store.watch().allow("conflict", inbox.as_str()) else { return };
        let (before, key) = (key.of_payload(&other), key.of_payload(&fingerprint));
        tracing::warn!(%inbox, message_type, %before, %key, suppressed, "accepted as new: another payload");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::InboxName;

    #[test]
    fn each_payload_of_a_key_is_told_once_and_the_memory_is_bounded() {
        let inbox = InboxName::new("orders").unwrap();
        let key = |n: usize| Key::new(&inbox, "", [n.to_string()]);
        let print = |n: u8| Fingerprint::from_bytes([n; 16]);
        let allowed_conflicts = AllowedConflicts::default();
        assert_eq!(allowed_conflicts.note(key(0), print(1)), None);
        assert_eq!(allowed_conflicts.note(key(0), print(1)), None, "the same");
        assert_eq!(allowed_conflicts.note(key(0), print(2)), Some(print(1)));
        assert_eq!(allowed_conflicts.note(key(0), print(1)), None, "known, though not the last");
        assert_eq!(allowed_conflicts.note(key(1), print(3)), None, "another key");
        for n in 0..=u8::MAX {
            allowed_conflicts.note(key(0), print(n));
        }
        assert_eq!(allowed_conflicts.seen.lock().by_key[&key(0)].len(), MAX_PER_KEY);
        for n in 2..3 * MAX_KEYS {
            allowed_conflicts.note(key(n), print(1));
        }
        let seen = allowed_conflicts.seen.lock();
        assert_eq!((seen.by_key.len(), seen.order.len()), (MAX_KEYS, MAX_KEYS));
        assert!(!seen.by_key.contains_key(&key(0)));
    }
}
