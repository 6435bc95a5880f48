//! What became of a message: all of it, and handler by handler.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::Shared;
use super::routing::{Answer, Offers};
use crate::message::Message;
use crate::name::HandlerKey;
use crate::state::{Outcome, Policy};
use crate::store::{Accepted, Store};

/// What became of a message's inline handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Processed {
    /// At least one handler did its work, and all have.
    Done,
    /// All had done their work before.
    Duplicate,
    /// Another transaction works on it right now: it is neither done nor free. Hold the delivery back.
    Busy,
    /// A handler has done its work for another message under the same key. This one is quarantined for a person and does not
    /// run there: acknowledge it.
    Conflict,
    /// A handler did not do its work; its transaction was rolled back.
    Failed(Outcome),
}

impl Processed {
    /// The answer for two handlers: the worse of theirs. What may still succeed counts more than what cannot, because
    /// the message must come again for it.
    pub(super) fn and(self, other: Self) -> Self {
        let rank = |processed: &Self| match processed {
            Self::Duplicate => 0,
            Self::Done => 1,
            Self::Failed(Outcome::Discard { .. }) => 2,
            Self::Conflict => 3,
            Self::Failed(Outcome::Reject { .. } | Outcome::Undecodable { .. }) => 4,
            Self::Failed(_) => 5,
            Self::Busy => 6,
        };
        if rank(&other) > rank(&self) { other } else { self }
    }
}

/// What the inline handlers of a message left for its duplicates, by handler key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Results(pub(super) BTreeMap<HandlerKey, Bytes>);

impl Results {
    /// The result of a handler, if it left one.
    pub fn get(&self, handler: &str) -> Option<&Bytes> {
        self.0.get(handler)
    }

    /// Every result, in the order of the handlers' keys.
    pub fn iter(&self) -> impl Iterator<Item = (&HandlerKey, &Bytes)> {
        self.0.iter()
    }

    /// Whether no handler left one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What to tell the broker about a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Receipt {
    /// It is safe, or was before: acknowledge it.
    Done,
    /// Another transaction works on it: hold it back.
    Busy,
    /// An inline handler wants it later: bring it again. Nothing failed.
    Snoozed {
        /// Not before this long.
        after: Duration,
    },
    /// An inline handler failed: bring it again.
    Failed {
        /// Not before this long.
        after: Duration,
    },
    /// An inline handler said that no retry will help.
    Rejected {
        /// Why.
        reason: String,
    },
}

impl Receipt {
    pub(crate) fn of(processed: Processed, policy: &Policy) -> Self {
        match processed {
            Processed::Done
            | Processed::Duplicate
            | Processed::Conflict
            | Processed::Failed(Outcome::Discard { .. }) => Self::Done,
            Processed::Busy => Self::Busy,
            Processed::Failed(Outcome::Reject { error } | Outcome::Undecodable { error }) => {
                Self::Rejected { reason: error.to_string() }
            }
            Processed::Failed(Outcome::Snooze { delay }) => Self::Snoozed { after: delay },
            Processed::Failed(Outcome::Retry { after: Some(after), .. }) => Self::Failed { after },
            Processed::Failed(_) => Self::Failed { after: policy.retry.first },
        }
    }

    /// The receipt for two handlers: a delivery is done only when both are. While one of them may still succeed, the
    /// delivery must come again, so that counts more than the other's rejection.
    pub(crate) fn and(self, other: Self) -> Self {
        let rank = |receipt: &Self| match receipt {
            Self::Done => 0,
            Self::Rejected { .. } => 1,
            Self::Snoozed { .. } => 2,
            Self::Failed { .. } => 3,
            Self::Busy => 4,
        };
        if rank(&other) > rank(&self) { other } else { self }
    }
}

/// All that is known of a message that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// What to tell the broker.
    pub receipt: Receipt,
    /// What the store said of it; nothing if it has inline handlers alone.
    pub accepted: Option<Accepted>,
    /// Whether nothing was new: it was stored before, and all inline handlers had done their work.
    pub duplicate: bool,
    /// What became of it for each of its handlers. They may differ where handlers go by different keys.
    pub handlers: Vec<(HandlerKey, HandlerAnswer)>,
}

/// What became of a message for one of its handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandlerAnswer {
    /// The store's answer for the key that the handler goes by. With
    /// [`HandlersAdded`](Accepted::HandlersAdded), some of the handlers with that key are new to the message.
    Stored(Accepted),
    /// What an inline handler did.
    Ran(Processed),
}

impl HandlerAnswer {
    /// Whether the handler took the message with this delivery: it runs, or did.
    pub const fn is_new(&self) -> bool {
        matches!(
            self,
            Self::Stored(Accepted::First(_) | Accepted::HandlersAdded(..))
                | Self::Ran(Processed::Done | Processed::Failed(Outcome::Discard { .. }))
        )
    }

    /// Whether the message was quarantined for a person, and does not run for this handler.
    pub const fn is_quarantined(&self) -> bool {
        matches!(self, Self::Stored(Accepted::Conflict(_) | Accepted::Stale) | Self::Ran(Processed::Conflict))
    }

    /// The word for it in answers to senders.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Stored(accepted) => accepted.as_str(),
            Self::Ran(processed) => processed.as_str(),
        }
    }
}

impl Processed {
    /// The word for it in metrics and in answers to senders.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Duplicate => "duplicate",
            Self::Busy => "busy",
            Self::Conflict => "conflict",
            Self::Failed(_) => "failed",
        }
    }
}

impl<S: Store> Shared<S> {
    /// The store's answers by handler: those that work from the store, and those that run once after a *first*.
    pub(crate) fn answers(
        &self,
        message: &Message,
        offers: &Offers,
        answer: &Answer,
    ) -> Vec<(HandlerKey, HandlerAnswer)> {
        let mut all = Vec::new();
        for (offer, accepted) in answer.each(offers) {
            let said = HandlerAnswer::Stored(accepted);
            all.extend(offer.routes.iter().map(|route| (route.key.clone(), said.clone())));
            for ((handler, _), key) in self.registry.forget(message.message_type()).zip(offers.forget()) {
                if *key == offer.key {
                    all.push((handler.route.key.clone(), said.clone()));
                }
            }
        }
        all
    }
}
