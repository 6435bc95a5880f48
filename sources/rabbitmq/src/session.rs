//! One connection, one channel, one consumer. If one is lost, all end, and the source opens a new session. Tests:
//! tests/faults.rs and tests/leader.rs.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use lapin::options::{
    BasicConsumeOptions, BasicQosOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::runtime::default_runtime;
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties, Consumer, ExchangeKind};
use oncebox_core::{Error, ErrorKind, Result};

use crate::builder::{Rejected, SourceSettings};
use crate::error::broken;
use crate::held::HeldDeliveries;
use crate::queue::{Queue, QueueKind, short};
use crate::settle::Settler;
use crate::trouble::SessionFailure;

/// Result of waiting for the next delivery.
pub(crate) enum NextDelivery {
    Delivery(Box<lapin::message::Delivery>),
    /// The session ended.
    Over(SessionFailure),
}

pub(crate) struct Session {
    consumer: Consumer,
    pub(crate) settler: Arc<Settler>,
    pub(crate) held: Arc<HeldDeliveries>,
    /// Start time, on the monotonic clock.
    pub(crate) since: Duration,
}

impl Session {
    /// Connects, and declares or checks the queues. Does not consume.
    pub(crate) async fn prepare(settings: &SourceSettings) -> Result<(Connection, Channel)> {
        let connection = connect(settings, "").await?;
        let channel = open_channel(settings, &connection).await?;
        declare(settings, &channel).await?;
        Ok((connection, channel))
    }

    /// Connects and starts to consume; after a delay if the broker was `lost`.
    pub(crate) async fn open(
        settings: &SourceSettings,
        prefetch: u16,
        lost: bool,
    ) -> std::result::Result<Self, SessionFailure> {
        let connection = connect(settings, "").await.map_err(SessionFailure::connecting)?;
        if lost {
            spare(settings).await;
        }
        let channel = open_channel(settings, &connection).await.map_err(SessionFailure::connecting)?;
        let consuming = async {
            declare(settings, &channel).await?;
            let qos = channel.basic_qos(prefetch, BasicQosOptions::default());
            response_of(settings, "cannot set the prefetch", qos).await?;
            let consuming = channel.basic_consume(
                settings.queue.short_name(),
                short(&settings.consumer_tag),
                BasicConsumeOptions::default(),
                FieldTable::default(),
            );
            let what = format!("cannot consume the queue {:?}", settings.queue.name);
            response_of(settings, &what, consuming).await
        };
        let consumer = consuming.await.map_err(|error| SessionFailure::at(&settings.queue, error))?;
        Ok(Self {
            consumer,
            settler: Arc::new(Settler::start(connection, channel)),
            held: Arc::default(),
            since: settings.clock.monotonic(),
        })
    }

    /// Returns the next delivery. Cancel-safe: pending deliveries stay in the stream.
    pub(crate) async fn next(&mut self, queue: &Queue) -> NextDelivery {
        match self.consumer.next().await {
            Some(Ok(delivery)) => NextDelivery::Delivery(Box::new(delivery)),
            Some(Err(cause)) => NextDelivery::Over(SessionFailure::lost(cause)),
            None => NextDelivery::Over(SessionFailure::cancelled(queue)),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.held.close();
        self.settler.close();
    }
}

/// Connects with a name; `suffix` distinguishes our connections.
pub(crate) async fn connect(settings: &SourceSettings, suffix: &str) -> Result<Connection> {
    let name = format!("{}{suffix}", settings.name);
    let properties = ConnectionProperties::default().with_connection_name(name.into());
    let runtime = default_runtime().map_err(|cause| broken("there is no runtime", cause))?;
    let (address, tls) = (&settings.address, settings.tls.clone());
    let connecting = Connection::connect_uri_with_config(address.uri.clone(), properties, tls, runtime);
    // Each attempt uses a thread of the client until the broker responds or the system gives up. So limit the attempts:
    // a hanging broker must not cost a thread for each of them.
    let attempt = Arc::clone(&settings.attempts_open).acquire_owned().await;
    let connecting = tokio::spawn(async move {
        let connected = connecting.await;
        drop(attempt);
        connected
    });
    let connected =
        async { connecting.await.unwrap_or_else(|panic| Err(std::io::Error::other(panic).into())) };
    response_of(settings, &format!("cannot connect to {address}"), connected).await
}

/// Gives a broker that was away time to elect queue leaders: the delay, plus a random part of up to a half.
pub(crate) async fn spare(settings: &SourceSettings) {
    let delay = settings.reconnect_delay;
    if !delay.is_zero() {
        settings.clock.sleep(delay + delay.mul_f64(fastrand::f64() / 2.0)).await;
    }
}

pub(crate) async fn open_channel(settings: &SourceSettings, connection: &Connection) -> Result<Channel> {
    response_of(settings, "cannot open a channel", connection.create_channel()).await
}

/// Waits for a response of the broker, within the time limit.
pub(crate) async fn response_of<T>(
    settings: &SourceSettings,
    what: &str,
    answer: impl Future<Output = lapin::Result<T>>,
) -> Result<T> {
    tokio::select! {
        answer = answer => answer.map_err(|cause| broken(what, cause)),
        () = settings.clock.sleep(settings.response_timeout) => {
            let what = format!("{what}: the broker did not answer within {:?}", settings.response_timeout);
            Err(Error::new(ErrorKind::Unavailable, what))
        }
    }
}

/// Declares the queue and its companions, or checks that it exists.
async fn declare(settings: &SourceSettings, channel: &Channel) -> Result<()> {
    let queue = &settings.queue;
    if let Some(dead_letters) = queue.dead_letters().filter(|_| queue.kind != QueueKind::Existing) {
        declare_queue(settings, channel, dead_letters, false, queue.plain_table()).await?;
    }
    let table = if queue.kind == QueueKind::Existing { FieldTable::default() } else { queue.table() };
    declare_queue(settings, channel, &queue.name, queue.kind == QueueKind::Existing, table).await?;
    for (exchange, routing_key) in &queue.bindings {
        let bound = channel.queue_bind(
            queue.short_name(),
            short(exchange),
            short(routing_key),
            QueueBindOptions::default(),
            FieldTable::default(),
        );
        response_of(
            settings,
            &format!("cannot bind the queue {:?} to the exchange {exchange:?}", queue.name),
            bound,
        )
        .await?;
    }
    // Without a destination, the broker silently drops rejected messages.
    match &settings.rejected {
        Rejected::DeadLetter => {
            let exchange = queue.dead_letter_exchange.as_deref().unwrap_or_default();
            let routing_key = queue.dead_letter_routing_key.as_deref().unwrap_or_default();
            check_way(settings, channel, exchange, routing_key).await
        }
        Rejected::Publish { exchange, routing_key } => {
            check_way(settings, channel, exchange, routing_key).await
        }
        Rejected::Discard => Ok(()),
    }
}

/// Checks that an exchange exists; for the default exchange, that the queue exists.
async fn check_way(
    settings: &SourceSettings,
    channel: &Channel,
    exchange: &str,
    routing_key: &str,
) -> Result<()> {
    if exchange.is_empty() {
        if routing_key.is_empty() {
            return Ok(());
        }
        return declare_queue(settings, channel, routing_key, true, FieldTable::default()).await;
    }
    let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
    let found =
        channel.exchange_declare(short(exchange), ExchangeKind::Direct, options, FieldTable::default());
    let what = format!("the exchange {exchange:?}, where rejected messages go, cannot be used");
    response_of(settings, &what, found).await
}

pub(crate) async fn declare_queue(
    settings: &SourceSettings,
    channel: &Channel,
    name: &str,
    passive: bool,
    table: FieldTable,
) -> Result<()> {
    let options = QueueDeclareOptions { passive, durable: true, ..QueueDeclareOptions::default() };
    let what = if passive { "cannot be used" } else { "cannot be declared" };
    let declared = channel.queue_declare(short(name), options, table);
    response_of(settings, &format!("the queue {name:?} {what}"), declared).await.map(drop)
}
