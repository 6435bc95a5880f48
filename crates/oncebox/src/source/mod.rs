//! The seam to the broker: deliveries come out, and each is settled exactly once.

mod batcher;
mod channel;
mod link;

pub use batcher::{BatchPermit, Batcher};
pub use channel::{ChannelSender, ChannelSource, channel};
pub use link::BrokerLink;

use std::time::Duration;

use async_trait::async_trait;

use crate::error::Result;
use crate::message::Message;

/// What the broker is told about a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ack {
    /// It is safe with us, or was before: the broker may forget it.
    Done,
    /// Somebody else works on it, or its handler wants it later: bring it again, not before `after`. Nothing failed, so do
    /// not count it.
    Busy {
        /// The wait.
        after: Duration,
    },
    /// A handler failed with it: bring it again, not before `after`.
    Redeliver {
        /// The wait.
        after: Duration,
    },
    /// It can never be taken: put it where such messages go.
    Reject {
        /// Why.
        reason: String,
    },
}

/// How a source settles a delivery with its broker. Dropping it unused leaves the delivery to the broker, which
/// brings it again.
#[async_trait]
pub trait Settle: Send {
    /// Tells the broker. An error here is not an error of the inbox: the broker will bring the message again and it
    /// will be recognised.
    async fn settle(self: Box<Self>, ack: Ack) -> Result<()>;
}

/// One attempt of a broker to hand a message over.
pub struct Delivery {
    message: Message,
    settle: Box<dyn Settle>,
}

impl Delivery {
    /// A delivery of `message` that is settled through `settle`.
    pub fn new(message: Message, settle: impl Settle + 'static) -> Self {
        Self { message, settle: Box::new(settle) }
    }

    /// The message.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Settles it. By value: a delivery cannot be settled twice.
    pub async fn settle(self, ack: Ack) -> Result<()> {
        self.settle.settle(ack).await
    }

    /// The message and what settles it, apart.
    pub fn into_parts(self) -> (Message, Box<dyn Settle>) {
        (self.message, self.settle)
    }
}

impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delivery").field("message", &self.message).finish_non_exhaustive()
    }
}

/// How long after its first delivery a broker may bring a message again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Redelivery {
    /// Nobody knows. Nothing is checked.
    #[default]
    Unknown,
    /// Within this time: its retention, or how long it tries.
    Within(Duration),
    /// For ever, as a log that is kept for ever can be read from its start.
    Forever,
}

/// Where deliveries come from.
///
/// A source that fails reconnects by itself with a back-off; it returns `None` only when it is over for good.
/// `recv` is cancel-safe: a delivery that was not returned is brought again.
#[async_trait]
pub trait Source: Send + 'static {
    /// Its name, for logs and metrics.
    fn name(&self) -> &str;

    /// How long it may bring a message again. An inbox that forgets sooner is refused, or warned of
    /// ([`Config::short_window`](crate::Config::short_window)). Default: nobody knows.
    fn redelivers_for(&self) -> Redelivery {
        Redelivery::Unknown
    }

    /// Connection state for the health of the inbox, which asks once, before it receives. Default: always connected.
    fn link(&self) -> BrokerLink {
        BrokerLink::default()
    }

    /// The next delivery.
    async fn recv(&mut self) -> Option<Delivery>;

    /// A further delivery, if one is here already: what has come together is stored in one go. Waits for nothing. Default:
    /// none, and each is stored by itself.
    fn ready(&mut self) -> Option<Delivery> {
        None
    }
}
