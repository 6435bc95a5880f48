//! A filled quorum queue.

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable, LongString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};

use crate::{id, payload};

/// Name of the measured queue.
pub(crate) const NAME: &str = "bench";
/// Messages published before waiting for confirms.
const BATCH: usize = 1_000;

/// A connection with one channel.
pub(crate) struct BrokerClient {
    pub(crate) connection: Connection,
    pub(crate) channel: Channel,
}

impl BrokerClient {
    pub(crate) async fn connect(amqp: &str) -> Result<Self> {
        let connection = Connection::connect(amqp, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        Ok(Self { connection, channel })
    }

    /// Recreates the queue with `messages` persistent messages, all confirmed.
    pub(crate) async fn fill(&self, messages: usize) -> Result<()> {
        self.channel.queue_delete(NAME.into(), QueueDeleteOptions::default()).await?;
        let mut table = FieldTable::default();
        table.insert("x-queue-type".into(), AMQPValue::LongString(LongString::from("quorum")));
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        self.channel.queue_declare(NAME.into(), options, table).await?;
        self.channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let payload = payload();
        for start in (0..messages).step_by(BATCH) {
            let mut sent = Vec::with_capacity(BATCH);
            for number in start..messages.min(start + BATCH) {
                let properties = BasicProperties::default()
                    .with_message_id(id(number).into())
                    .with_type("bench".into())
                    .with_delivery_mode(2);
                let options = BasicPublishOptions::default();
                let confirm = self.channel.basic_publish(
                    "".into(),
                    NAME.into(),
                    options,
                    payload.as_bytes(),
                    properties,
                );
                sent.push(confirm.await?);
            }
            let confirmed = try_join_all(sent).await?;
            ensure!(
                confirmed.iter().all(|one| *one == Confirmation::Ack(None)),
                "the broker did not take all"
            );
        }
        Ok(())
    }

    /// Returns the number of messages in the queue.
    pub(crate) async fn waiting(&self) -> Result<u32> {
        let options = QueueDeclareOptions { passive: true, durable: true, ..QueueDeclareOptions::default() };
        Ok(self.channel.queue_declare(NAME.into(), options, FieldTable::default()).await?.message_count())
    }
}
