//! Messages whose key is marked for another message. Tests: `tests/inline.rs`.

use std::sync::Arc;

use super::Shared;
use crate::key::{Fingerprint, MessageKey};
use crate::message::Message;
use crate::name::HandlerKey;
use crate::observe::{emit, names};
use crate::store::{Mark, NewMessage, Store};

impl<S: Store> Shared<S> {
    /// Applies the policy of the key to a mark: an allowed conflict is counted and becomes a duplicate.
    pub(crate) fn judged(&self, mark: Mark, key: &MessageKey, message: &Message) -> Mark {
        match mark {
            Mark::Conflict(known) if !key.on_conflict.is_conflict(&known, &Fingerprint::of(message)) => {
                self.note_first_wins(message, &key.key);
                Mark::Duplicate
            }
            mark => mark,
        }
    }

    pub(crate) fn in_conflict(&self, key: &MessageKey, message: Arc<Message>) -> NewMessage {
        NewMessage::new(self.name.clone(), key.key, message, self.registry.no_routes())
    }

    /// Counts and logs a message that was quarantined because a handler has completed another one under its key.
    pub(crate) fn note_quarantined(&self, new: &NewMessage, handler: &HandlerKey) {
        let (inbox, key, watch) = (&self.name, &new.key, self.store.watch());
        emit::count(names::ACCEPTED, 1, [emit::inbox(inbox), emit::word("outcome", "conflict")]);
        watch.notify(inbox, |observer| observer.quarantined(new, handler));
        if let Some(suppressed) = watch.allow("quarantined", inbox.as_str()) {
            let message_type = new.message.message_type();
            tracing::warn!(%inbox, %key, %handler, message_type, suppressed, "quarantined: key handled with another payload");
        }
    }
}
