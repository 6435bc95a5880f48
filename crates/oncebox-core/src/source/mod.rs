//! The interface to brokers: a source returns deliveries, and each is settled once. Tests: `tests/receiver.rs` of `oncebox`.

mod link;

pub use link::BrokerLink;

use std::time::Duration;

use async_trait::async_trait;

use crate::error::Result;
use crate::message::Message;

/// Acknowledgement of a delivery for the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ack {
    /// The message is stored or done: the broker may forget it.
    Done,
    /// Deliver again after `after`: another worker has the message, or its handler snoozed. Nothing failed, so do not count
    /// the attempt.
    Busy {
        /// Minimum delay.
        after: Duration,
    },
    /// Deliver again after `after`: a handler failed.
    Redeliver {
        /// Minimum delay.
        after: Duration,
    },
    /// Dead-letter: the message can never be handled.
    Reject {
        /// Reason for the rejection.
        reason: String,
    },
}

impl Ack {
    /// Returns the word for it in metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Redeliver { .. } => "redeliver",
            Self::Busy { .. } => "busy",
            Self::Reject { .. } => "reject",
        }
    }
}

/// Settles a delivery with its broker. If it is dropped unused, the broker delivers the message again.
#[async_trait]
pub trait Settle: Send {
    /// Acknowledges the delivery. An error here does not affect the inbox: the broker delivers the message again, and it is
    /// recognised.
    async fn settle(self: Box<Self>, ack: Ack) -> Result<()>;
}

/// One delivery of a message by a broker.
pub struct Delivery {
    message: Message,
    settle: Box<dyn Settle>,
}

impl Delivery {
    /// Makes a delivery of `message` that is settled through `settle`.
    pub fn new(message: Message, settle: impl Settle + 'static) -> Self {
        Self { message, settle: Box::new(settle) }
    }

    /// Returns the message.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Settles the delivery. It takes `self`, so a delivery cannot be settled twice.
    pub async fn settle(self, ack: Ack) -> Result<()> {
        self.settle.settle(ack).await
    }

    /// Splits the delivery into its message and its settlement.
    pub fn into_parts(self) -> (Message, Box<dyn Settle>) {
        (self.message, self.settle)
    }
}

impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delivery").field("message", &self.message).finish_non_exhaustive()
    }
}

/// Time after its first delivery in which a broker may deliver a message again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Redelivery {
    /// Unknown, and not checked.
    #[default]
    Unknown,
    /// Within this time, such as the retention of the broker.
    Within(Duration),
    /// Without limit, such as a log that is never deleted.
    Forever,
}

impl Redelivery {
    /// Returns true if no redelivery is known to come after `retention`, which is without limit if `None`.
    pub fn is_within(self, retention: Option<Duration>) -> bool {
        match (retention, self) {
            (None, _) | (_, Self::Unknown) => true,
            (Some(retention), Self::Within(time)) => retention >= time,
            (Some(_), Self::Forever) => false,
        }
    }
}

/// A source of deliveries.
///
/// A source that fails reconnects by itself with a backoff. It returns `None` only when it has ended for good. `recv` is
/// cancel-safe: a delivery that was not returned comes again.
#[async_trait]
pub trait Source: Send + 'static {
    /// Returns the name, for logs and metrics.
    fn name(&self) -> &str;

    /// Returns how long it may deliver a message again. A shorter retention of the inbox is an error or a warning
    /// (`Config::short_window`). Default: unknown.
    fn redelivers_for(&self) -> Redelivery {
        Redelivery::Unknown
    }

    /// Returns the connection state for health. The inbox calls it once, before it receives. Default: always connected.
    fn link(&self) -> BrokerLink {
        BrokerLink::default()
    }

    /// Waits for the next delivery.
    async fn recv(&mut self) -> Option<Delivery>;

    /// Returns a further delivery if one has already arrived, so that one write stores both. Never waits. Default: `None`.
    fn ready(&mut self) -> Option<Delivery> {
        None
    }
}
