//! The channel source passes the conformance suite for sources.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use oncebox::source::{Ack, ChannelSender, channel};
use oncebox::{Inbox, Message, Running};
use oncebox_testkit::source::{DeliveryLedger, TestStore, Transport};
use parking_lot::Mutex;

/// Delivers over channels to any attached source, and keeps unsettled messages.
#[derive(Clone, Default)]
struct Channel {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    queue: VecDeque<Message>,
    in_hand: usize,
    ledger: DeliveryLedger,
    senders: Vec<(usize, ChannelSender)>,
    attached: usize,
}

struct Attached {
    number: usize,
    running: Running<TestStore>,
}

impl Channel {
    /// Delivers queued messages, a few to each attached source.
    fn deliver(&self) {
        let mut shared = self.shared.lock();
        while !shared.senders.is_empty()
            && let Some(message) = shared.queue.pop_front()
        {
            shared.in_hand += 1;
            let turn = shared.in_hand % shared.senders.len();
            let sender = shared.senders[turn].1.clone();
            let this = self.clone();
            tokio::spawn(async move { this.hand_over(sender, message).await });
        }
    }

    async fn hand_over(&self, sender: ChannelSender, message: Message) {
        let answer = sender.deliver(message.clone()).await;
        let mut shared = self.shared.lock();
        shared.in_hand -= 1;
        match answer {
            Ok(Ack::Done) => shared.ledger.done += 1,
            Ok(Ack::Reject { .. }) => shared.ledger.rejected += 1,
            Ok(_) => {
                shared.ledger.again += 1;
                shared.queue.push_back(message);
            }
            Err(_) => shared.queue.push_back(message),
        }
    }

    fn forget(&self, number: usize) {
        self.shared.lock().senders.retain(|(known, _)| *known != number);
    }
}

#[async_trait]
impl Transport for Channel {
    type Running = Attached;

    async fn start(&self, inbox: &Inbox<TestStore>) -> Attached {
        let running = inbox.start();
        let (sender, source) = channel("channel", 16);
        running.receive(source).expect("a source without a window");
        let mut shared = self.shared.lock();
        shared.attached += 1;
        let number = shared.attached;
        shared.senders.push((number, sender));
        drop(shared);
        self.deliver();
        Attached { number, running }
    }

    async fn stop(&self, attached: Attached) {
        self.forget(attached.number);
        attached.running.shutdown().await;
    }

    async fn crash(&self, attached: Attached) {
        self.forget(attached.number);
        drop(attached.running);
    }

    async fn send(&self, message: Message) {
        self.shared.lock().queue.push_back(message);
        self.deliver();
    }

    async fn bring_again(&self) {
        self.deliver();
    }

    async fn ledger(&self) -> DeliveryLedger {
        let shared = self.shared.lock();
        DeliveryLedger { waiting: shared.queue.len() + shared.in_hand, ..shared.ledger }
    }
}

oncebox_testkit::source_conformance!(conformance, async || Channel::default());
