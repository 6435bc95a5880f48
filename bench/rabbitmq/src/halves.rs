//! The two halves of the path, each alone.

use std::time::Instant;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use oncebox::Message;

use crate::queue::{BrokerClient, NAME};
use crate::{id, payload, rate, whole};

/// Consumes and acknowledges every message, and does nothing else, with the same prefetch as ours.
pub(crate) async fn consume(amqp: &str, messages: usize, prefetch: u16) -> Result<f64> {
    let client = BrokerClient::connect(amqp).await?;
    client.fill(messages).await?;
    let channel = client.connection.create_channel().await?;
    channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
    let start = Instant::now();
    let mut consumer = channel
        .basic_consume(NAME.into(), "plain".into(), BasicConsumeOptions::default(), FieldTable::default())
        .await?;
    // No acknowledgement waits for the previous one.
    let mut acks = FuturesUnordered::new();
    for _ in 0..messages {
        let delivery = consumer.next().await.context("the consumer ended")??;
        acks.push(async move { delivery.acker.ack(BasicAckOptions::default()).await });
        while acks.len() >= usize::from(prefetch) / 2 {
            acks.next().await.transpose()?;
        }
    }
    while acks.next().await.transpose()?.is_some() {}
    Ok(rate(messages, start))
}

/// Accepts the same messages directly, as many at once as the source's prefetch.
pub(crate) async fn accept(postgres: &str, messages: usize, prefetch: u16) -> Result<f64> {
    let inbox = whole::inbox(postgres, prefetch).await?;
    let payload = Bytes::from(payload());
    let callers = usize::from(prefetch);
    let start = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|caller| {
            let (inbox, payload) = (inbox.clone(), payload.clone());
            tokio::spawn(async move {
                for number in (caller..messages).step_by(callers) {
                    inbox.accept(Message::new(id(number), "bench", payload.clone())).await?;
                }
                Ok::<_, oncebox::Error>(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(rate(messages, start))
}
