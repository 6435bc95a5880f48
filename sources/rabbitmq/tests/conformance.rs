//! The conformance suite for sources, on real queues of both kinds.
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use oncebox::{Inbox, Message, Running};
use oncebox_rabbitmq::Queue;
use oncebox_servers::RabbitMqServer as Broker;
use oncebox_testkit::source::{DeliveryLedger, TestStore, Transport};
use support::{QueueClient, properties, until};

/// One queue and its dead-letter queue.
struct RabbitMqFixture {
    client: QueueClient,
    queue: Queue,
    sent: AtomicUsize,
}

async fn with(queue: impl FnOnce(&QueueClient) -> Queue) -> RabbitMqFixture {
    let client = QueueClient::new("conformance").await;
    let queue = queue(&client);
    client.source(queue.clone()).build().unwrap().check().await.unwrap();
    RabbitMqFixture { client, queue, sent: AtomicUsize::new(0) }
}

async fn quorum() -> RabbitMqFixture {
    with(QueueClient::quorum).await
}

async fn classic() -> RabbitMqFixture {
    with(QueueClient::classic).await
}

#[async_trait]
impl Transport for RabbitMqFixture {
    type Running = Running<TestStore>;

    async fn start(&self, inbox: &Inbox<TestStore>) -> Self::Running {
        let running = inbox.start();
        running.receive(self.client.source(self.queue.clone()).build().unwrap()).unwrap();
        running
    }

    async fn stop(&self, running: Self::Running) {
        running.shutdown().await;
    }

    async fn crash(&self, running: Self::Running) {
        drop(running);
        // Aborted tasks end later. They are gone when no delivery is unsettled.
        let queue = &self.client.queue;
        let free =
            || async { self.client.ready(queue).await as usize == Broker::shared().total(queue).unwrap() };
        until("the broker has taken back what was in hand", free).await;
    }

    async fn send(&self, message: Message) {
        let id = String::from_utf8_lossy(message.id());
        // Count first: the message may be gone as soon as it is there.
        self.sent.fetch_add(1, Ordering::SeqCst);
        self.client
            .publish_as(&self.client.queue, properties(&id, message.message_type()), message.payload())
            .await;
    }

    async fn bring_again(&self) {}

    async fn ledger(&self) -> DeliveryLedger {
        let (queue, dead) = (self.client.queue.clone(), self.client.dead.clone());
        let look = || {
            let broker = Broker::shared();
            (broker.total(&queue).unwrap(), broker.total(&dead).unwrap())
        };
        let sent = self.sent.load(Ordering::SeqCst);
        // For a moment, a message between two queues is in neither, or in both.
        let (waiting, rejected) = tokio::task::block_in_place(|| {
            let mut seen = look();
            loop {
                let again = look();
                if again == seen && seen.0 + seen.1 <= sent {
                    break seen;
                }
                seen = again;
            }
        });
        let done = sent - waiting - rejected;
        DeliveryLedger { done, rejected, waiting, ..DeliveryLedger::default() }
    }
}

oncebox_testkit::source_conformance!(quorum_queue, quorum);
oncebox_testkit::source_conformance!(classic_queue, classic);
