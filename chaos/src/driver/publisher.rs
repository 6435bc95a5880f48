//! Publishes to a broker with confirms: confirmed messages may not be lost. Tests: tests/short.rs.

use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::Result;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, LongString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::transports::dead_letters;
use super::workers::ProcessEvent;
use crate::plan::{RoundPlan, id_of};
use crate::seam::pause;
use crate::worker::{HandedDelivery, LINE_HEADER};

/// A message to publish.
struct Outgoing {
    delivery: u64,
    properties: BasicProperties,
    body: Vec<u8>,
}

/// The queue of a round and its publisher.
pub(super) struct QueuePublisher {
    theirs: String,
    queue: String,
    outgoing: mpsc::UnboundedSender<Outgoing>,
    /// Ends the tasks when dropped.
    _runtime: Runtime,
}

impl QueuePublisher {
    /// Publishes to a queue at `url`; the workers reach it at `theirs`.
    pub(super) fn start(
        url: String,
        theirs: String,
        queue: String,
        events: Sender<ProcessEvent>,
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (outgoing, waiting) = mpsc::unbounded_channel();
        runtime.block_on(open(&url, &queue))?;
        runtime.spawn(publish(url, queue.clone(), waiting, events));
        Ok(Self { theirs, queue, outgoing, _runtime: runtime })
    }

    pub(super) fn url_of_workers(&self) -> &str {
        &self.theirs
    }

    pub(super) fn queue(&self) -> &str {
        &self.queue
    }

    /// Publishes a delivery. An event reports the confirm.
    pub(super) fn publish(&self, plan: &RoundPlan, handed: HandedDelivery) {
        let planned = plan.message(handed.m);
        let mut headers = FieldTable::default();
        if let Some(line) = planned.line {
            let line = LongString::from(format!("line-{line}"));
            headers.insert(LINE_HEADER.into(), AMQPValue::LongString(line));
        }
        let properties = BasicProperties::default()
            .with_message_id(id_of(handed.m).into())
            .with_type(planned.kind.as_str().into())
            .with_delivery_mode(2)
            .with_headers(headers);
        let body = plan.payload(handed.m, handed.v).into_bytes();
        let _ = self.outgoing.send(Outgoing { delivery: handed.d, properties, body });
    }
}

/// Opens a connection and a channel with confirms, and declares the queues. Durable and classic: a quorum queue counts
/// redeliveries, and each killed consumer redelivers.
async fn open(url: &str, queue: &str) -> lapin::Result<(Connection, Channel)> {
    let connection = Connection::connect(url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let dead = dead_letters(queue);
    channel.queue_declare(dead.as_str().into(), durable, FieldTable::default()).await?;
    let mut arguments = FieldTable::default();
    let text = |text: &str| AMQPValue::LongString(LongString::from(text));
    arguments.insert("x-dead-letter-exchange".into(), text(""));
    arguments.insert("x-dead-letter-routing-key".into(), text(&dead));
    channel.queue_declare(queue.into(), durable, arguments).await?;
    Ok((connection, channel))
}

/// Publishes deliveries, and reconnects on failure.
async fn publish(
    url: String,
    queue: String,
    mut waiting: mpsc::UnboundedReceiver<Outgoing>,
    events: Sender<ProcessEvent>,
) {
    let mut line = None;
    while let Some(one) = waiting.recv().await {
        if line.is_none() {
            line = open(&url, &queue).await.ok();
        }
        let published = |confirmed: bool| ProcessEvent::Published(one.delivery, confirmed);
        let Some((_, channel)) = &line else {
            pause(Duration::from_millis(50)).await;
            let _ = events.send(published(false));
            continue;
        };
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let sent =
            channel.basic_publish("".into(), queue.as_str().into(), options, &one.body, one.properties).await;
        let Ok(sent) = sent else {
            line = None;
            let _ = events.send(ProcessEvent::Published(one.delivery, false));
            continue;
        };
        let events = events.clone();
        tokio::spawn(async move {
            let confirmed = matches!(sent.await, Ok(Confirmation::Ack(None)));
            let _ = events.send(ProcessEvent::Published(one.delivery, confirmed));
        });
    }
}
