//! A source inside the process, for tests and for programs that receive messages themselves. Tests: `tests/channel.rs` of `oncebox-testkit`.

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};

use oncebox_core::error::{Error, ErrorKind, Result};
use oncebox_core::message::Message;
use oncebox_core::source::{Ack, Delivery, Redelivery, Settle, Source};

/// Makes a connected sender and source. At most `capacity` messages wait between them.
pub fn channel(name: impl Into<String>, capacity: usize) -> (ChannelSender, ChannelSource) {
    let (sender, receiver) = mpsc::channel(capacity.max(1));
    (ChannelSender { sender }, ChannelSource { name: name.into(), receiver, redelivers: Redelivery::Unknown })
}

/// Delivers messages to a [`ChannelSource`].
#[derive(Clone, Debug)]
pub struct ChannelSender {
    sender: mpsc::Sender<(Message, oneshot::Sender<Ack>)>,
}

impl ChannelSender {
    /// Delivers a message and waits for its acknowledgement. An error means that the delivery was dropped unsettled, for
    /// example because the inbox stopped: deliver it again.
    pub async fn deliver(&self, message: Message) -> Result<Ack> {
        let gone = || Error::new(ErrorKind::Unavailable, "the delivery was dropped before it was settled");
        let (sender, receiver) = oneshot::channel();
        self.sender.send((message, sender)).await.map_err(|_| gone())?;
        receiver.await.map_err(|_| gone())
    }
}

/// The receiving end of a channel.
#[derive(Debug)]
pub struct ChannelSource {
    name: String,
    receiver: mpsc::Receiver<(Message, oneshot::Sender<Ack>)>,
    redelivers: Redelivery,
}

impl ChannelSource {
    /// Sets how long the sender may deliver a message again. Default: unknown.
    pub fn redelivers(mut self, redelivers: Redelivery) -> Self {
        self.redelivers = redelivers;
        self
    }
}

#[async_trait]
impl Source for ChannelSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn redelivers_for(&self) -> Redelivery {
        self.redelivers
    }

    async fn recv(&mut self) -> Option<Delivery> {
        let (message, answer) = self.receiver.recv().await?;
        Some(Delivery::new(message, AckSender(answer)))
    }

    fn ready(&mut self) -> Option<Delivery> {
        let (message, answer) = self.receiver.try_recv().ok()?;
        Some(Delivery::new(message, AckSender(answer)))
    }
}

struct AckSender(oneshot::Sender<Ack>);

#[async_trait]
impl Settle for AckSender {
    async fn settle(self: Box<Self>, ack: Ack) -> Result<()> {
        self.0
            .send(ack)
            .map_err(|_| Error::new(ErrorKind::Unavailable, "the sender no longer waits for an answer"))
    }
}
