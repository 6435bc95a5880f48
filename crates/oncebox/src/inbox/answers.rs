//! Results of received and processed messages, as a whole and by handler. Tests: `tests/inline.rs`, `tests/receiver.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::Shared;
use super::routing::{OfferResult, Offers};
use crate::message::Message;
use crate::name::HandlerKey;
use crate::state::{Outcome, Policy};
use crate::store::{Accepted, Store};

/// Result of the inline handlers of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Processed {
    /// All handlers have completed, at least one of them now.
    Done,
    /// All handlers had completed before.
    Duplicate,
    /// Another transaction holds the key. Keep the delivery and try again later.
    Busy,
    /// A handler has completed another message under the same key. This message is quarantined for an operator and does not
    /// run there. Acknowledge it.
    Conflict,
    /// A handler failed; its transaction was rolled back.
    Failed(Outcome),
}

impl Processed {
    /// Combines the results of two handlers into the worse one. A result that may still succeed outranks one that cannot,
    /// because the message must come again for it.
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

/// Results that the inline handlers of a message stored for its duplicates, by handler key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Results(pub(super) BTreeMap<HandlerKey, Bytes>);

impl Results {
    /// Returns the result of a handler, if it stored one.
    pub fn get(&self, handler: &str) -> Option<&Bytes> {
        self.0.get(handler)
    }

    /// Iterates over the results in the order of the handlers' keys.
    pub fn iter(&self) -> impl Iterator<Item = (&HandlerKey, &Bytes)> {
        self.0.iter()
    }

    /// Returns true if no handler stored a result.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Acknowledgement that the broker gets for a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Receipt {
    /// Acknowledge: the message is stored or done, now or before.
    Done,
    /// Keep the delivery: another transaction holds the key.
    Busy,
    /// Deliver again: an inline handler snoozed. Nothing failed.
    Snoozed {
        /// Minimum delay.
        after: Duration,
    },
    /// Deliver again: an inline handler failed.
    Failed {
        /// Minimum delay.
        after: Duration,
    },
    /// Dead-letter: an inline handler rejected the message.
    Rejected {
        /// Reason of the handler.
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

    /// Combines the receipts of two handlers: a delivery is done only when both are. A retry outranks a rejection, because
    /// the delivery must come again for it.
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

/// Result of a received message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// Acknowledgement for the broker.
    pub receipt: Receipt,
    /// Result of the store; `None` if the message has only inline handlers.
    pub accepted: Option<Accepted>,
    /// True if it was stored before and all inline handlers had completed.
    pub duplicate: bool,
    /// Result by handler. Results may differ if handlers use different keys.
    pub handlers: Vec<(HandlerKey, HandlerAnswer)>,
}

/// Result of a message for one of its handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandlerAnswer {
    /// Result of the store for the handler's key. With [`HandlersAdded`](Accepted::HandlersAdded), some handlers with that key
    /// are new to the message.
    Stored(Accepted),
    /// Result of an inline handler.
    Ran(Processed),
}

impl HandlerAnswer {
    /// Returns true if the handler runs or ran because of this delivery.
    pub const fn is_new(&self) -> bool {
        matches!(
            self,
            Self::Stored(Accepted::First(_) | Accepted::HandlersAdded(..))
                | Self::Ran(Processed::Done | Processed::Failed(Outcome::Discard { .. }))
        )
    }

    /// Returns true if the message is quarantined for an operator and does not run for this handler.
    pub const fn is_quarantined(&self) -> bool {
        matches!(self, Self::Stored(Accepted::Conflict(_) | Accepted::Stale) | Self::Ran(Processed::Conflict))
    }

    /// Returns the result as a word, for responses to senders.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Stored(accepted) => accepted.as_str(),
            Self::Ran(processed) => processed.as_str(),
        }
    }
}

impl Processed {
    /// Returns the result as a word, for metrics and for responses to senders.
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
    /// Returns the results of the store by handler, for durable and fire-and-forget handlers.
    pub(crate) fn answers(
        &self,
        message: &Message,
        offers: &Offers,
        answer: &OfferResult,
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
