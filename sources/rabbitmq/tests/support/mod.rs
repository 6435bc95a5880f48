//! Support for the tests: a broker, a publisher with confirms, and handlers that record their runs.
#![allow(dead_code, reason = "no test file needs all of it")]
#![allow(clippy::unwrap_used, reason = "the helpers of tests panic like tests do")]

pub(crate) mod proxy;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lapin::options::{
    BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable, LongString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};
use oncebox::source::{Delivery, Source as _};
use oncebox::{BoxError, Context, Headers, Inbox, Memory, Message, handler};
use oncebox_rabbitmq::{Queue, RabbitMq, RabbitMqSourceBuilder};
use oncebox_servers::RabbitMqServer as Broker;
use oncebox_testkit::FaultyStore;
use parking_lot::Mutex;
use tokio::sync::watch;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// The store of most tests.
pub(crate) type FaultyInbox = FaultyStore<Memory>;

/// Creates an inbox whose handler records its runs.
pub(crate) fn inbox(store: FaultyInbox, effects: &Effects) -> Inbox<FaultyInbox> {
    builder(store, effects).build().unwrap()
}

pub(crate) fn builder(store: FaultyInbox, effects: &Effects) -> oncebox::InboxBuilder<FaultyInbox> {
    let effects = effects.clone();
    let keep = move |message: Message, _: &mut Context<FaultyInbox>| {
        let effects = effects.clone();
        async move {
            effects.add(&message);
            Ok::<(), BoxError>(())
        }
    };
    Inbox::builder("test", store).on("t", handler("keep", keep))
}

/// Returns a name that is unique among tests.
pub(crate) fn unique(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Fails a test that waits for what never comes, instead of hanging.
pub(crate) async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(3), work).await.expect("it did not happen within three minutes")
}

/// Completes when the condition is true.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut ask: impl FnMut() -> F) {
    let patient = async {
        let mut pause = tokio::time::interval(Duration::from_millis(20));
        while !ask().await {
            pause.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(3), patient).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// A queue with its dead-letter queue, and a client that publishes and reads.
pub(crate) struct QueueClient {
    pub(crate) url: String,
    pub(crate) queue: String,
    pub(crate) dead: String,
    connection: Connection,
    pub(crate) channel: Channel,
}

impl QueueClient {
    /// Connects to the shared broker of this test program.
    pub(crate) async fn new(name: &str) -> Self {
        let broker = tokio::task::spawn_blocking(Broker::shared).await.unwrap();
        Self::at(&broker.url(), name).await
    }

    pub(crate) async fn at(url: &str, name: &str) -> Self {
        let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        let queue = unique(name);
        Self { url: url.into(), dead: format!("{queue}.dead"), queue, connection, channel }
    }

    pub(crate) fn quorum(&self) -> Queue {
        Queue::quorum(&*self.queue).delivery_limit(20).dead_letter_queue(&*self.dead)
    }

    pub(crate) fn classic(&self) -> Queue {
        Queue::classic(&*self.queue).dead_letter_queue(&*self.dead)
    }

    /// Returns a source of this queue, with short pauses.
    pub(crate) fn source(&self, queue: Queue) -> RabbitMqSourceBuilder {
        quick(&self.url, queue)
    }

    /// Returns the same source behind a proxy.
    pub(crate) fn through(&self, proxy: &proxy::BrokerProxy, queue: Queue) -> RabbitMqSourceBuilder {
        quick(&proxy.url(&self.url), queue)
    }

    /// Publishes a message, and waits for the broker's confirm.
    pub(crate) async fn publish(&self, id: &str, message_type: &str, body: &str) {
        self.publish_as(&self.queue, properties(id, message_type), body.as_bytes()).await;
    }

    pub(crate) async fn publish_as(&self, queue: &str, properties: BasicProperties, body: &[u8]) {
        self.publish_to("", queue, properties, body).await;
    }

    pub(crate) async fn publish_to(
        &self,
        exchange: &str,
        key: &str,
        properties: BasicProperties,
        body: &[u8],
    ) {
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        // A quorum queue without a leader refuses messages: publish again.
        until("the broker has taken a message", || async {
            let (exchange, key) = (exchange.into(), key.into());
            let sent =
                self.channel.basic_publish(exchange, key, options, body, properties.clone()).await.unwrap();
            match sent.await.unwrap() {
                Confirmation::Nack(_) => false,
                confirmed => {
                    assert_eq!(confirmed, Confirmation::Ack(None));
                    true
                }
            }
        })
        .await;
    }

    /// Returns the number of messages that wait in a queue; unacknowledged ones do not count.
    pub(crate) async fn ready(&self, queue: &str) -> u32 {
        self.find(queue).await.unwrap_or(0)
    }

    /// Returns the number of messages in the queue, unacknowledged ones included.
    pub(crate) async fn total(&self) -> usize {
        let queue = self.queue.clone();
        tokio::task::spawn_blocking(move || Broker::shared().total(&queue).unwrap()).await.unwrap()
    }

    pub(crate) async fn exists(&self, queue: &str) -> bool {
        self.find(queue).await.is_some()
    }

    /// Returns the number of consumers of the queue.
    pub(crate) async fn consumers(&self) -> u32 {
        self.inspect(&self.queue).await.map_or(0, |queue| queue.consumer_count())
    }

    async fn find(&self, queue: &str) -> Option<u32> {
        self.inspect(queue).await.map(|queue| queue.message_count())
    }

    async fn inspect(&self, queue: &str) -> Option<lapin::Queue> {
        let options = QueueDeclareOptions { passive: true, durable: true, ..QueueDeclareOptions::default() };
        let channel = self.connection.create_channel().await.unwrap();
        channel.queue_declare(queue.into(), options, FieldTable::default()).await.ok()
    }

    /// Takes all messages out of a queue once there are `count`.
    pub(crate) async fn take(&self, queue: &str, count: usize) -> Vec<(BasicProperties, Vec<u8>)> {
        let mut taken = Vec::new();
        in_time(async {
            let mut pause = tokio::time::interval(Duration::from_millis(20));
            while taken.len() < count {
                match self.channel.basic_get(queue.into(), BasicGetOptions { no_ack: true }).await.unwrap() {
                    Some(got) => taken.push((got.delivery.properties, got.delivery.data)),
                    None => drop(pause.tick().await),
                }
            }
        })
        .await;
        taken
    }

    pub(crate) async fn delete_queue(&self) {
        self.channel.queue_delete(self.queue.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
    }

    /// Completes when the queue is empty: nothing waits or is unacknowledged. All consumers must be gone.
    pub(crate) async fn assert_left(&self, waiting: u32, dead: u32) {
        until("the broker has taken back what was in hand", || async {
            self.ready(&self.queue).await >= waiting
        })
        .await;
        assert_eq!(
            (self.ready(&self.queue).await, self.ready(&self.dead).await),
            (waiting, dead),
            "waiting and dead"
        );
    }
}

/// Returns a builder with short pauses.
fn quick(url: &str, queue: Queue) -> RabbitMqSourceBuilder {
    let first = Duration::from_millis(10);
    RabbitMq::builder(url).queue(queue).backoff(first, Duration::from_millis(200)).reconnect_delay(first)
}

pub(crate) fn properties(id: &str, message_type: &str) -> BasicProperties {
    BasicProperties::default().with_message_id(id.into()).with_type(message_type.into()).with_delivery_mode(2)
}

pub(crate) fn table(pairs: &[(&str, &str)]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in pairs {
        table.insert((*name).into(), AMQPValue::LongString(LongString::from(*value)));
    }
    table
}

/// Returns the next delivery of a source without an inbox.
pub(crate) async fn next(source: &mut RabbitMq) -> Delivery {
    in_time(source.recv()).await.expect("a source is not over")
}

pub(crate) async fn receive(source: &mut RabbitMq) -> Option<Delivery> {
    source.recv().await
}

pub(crate) fn text(headers: &Headers, name: &str) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value).into_owned())
}

/// Effects of handlers, by message id.
#[derive(Clone, Debug)]
pub(crate) struct Effects {
    by_id: Arc<Mutex<BTreeMap<String, Vec<Message>>>>,
    count: Arc<watch::Sender<usize>>,
}

impl Default for Effects {
    fn default() -> Self {
        Self { by_id: Arc::default(), count: Arc::new(watch::Sender::new(0)) }
    }
}

impl Effects {
    pub(crate) fn add(&self, message: &Message) {
        let id = String::from_utf8_lossy(message.id()).into_owned();
        self.by_id.lock().entry(id).or_default().push(message.clone());
        self.count.send_modify(|count| *count += 1);
    }

    /// Completes after `count` effects.
    pub(crate) async fn wait_for(&self, count: usize) {
        in_time(self.count.subscribe().wait_for(|done| *done >= count)).await.unwrap();
    }

    /// Returns the number of effects of each id.
    pub(crate) fn counts(&self) -> BTreeMap<String, usize> {
        self.by_id.lock().iter().map(|(id, messages)| (id.clone(), messages.len())).collect()
    }

    pub(crate) fn messages(&self) -> Vec<Message> {
        self.by_id.lock().values().flatten().cloned().collect()
    }

    /// Asserts that each of `ids` happened once, and nothing else.
    pub(crate) fn assert_once<I: ToString>(&self, ids: impl IntoIterator<Item = I>) {
        let expected: BTreeMap<String, usize> = ids.into_iter().map(|id| (id.to_string(), 1)).collect();
        assert_eq!(self.counts(), expected);
    }
}
