//! Publishes messages again, with confirms: into a retry queue, or to the destination of rejected messages. Tests:
//! below.
//!
//! Uses a connection of its own. A broker without memory blocks publishing connections, and acknowledgements must not
//! wait for that.

use std::collections::BTreeSet;
use std::time::Duration;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection};
use oncebox_core::{Error, ErrorKind, Result};
use tokio::sync::Mutex;

use crate::builder::SourceSettings;
use crate::message::{EXCHANGE, FAILURES, REASON, ROUTING_KEY, Raw, USER_ID};
use crate::queue::short;
use crate::session::{connect, declare_queue, open_channel, response_of, spare};

/// Delivery mode: persistent.
const DURABLE: u8 = 2;

#[derive(Default)]
pub(crate) struct Republisher {
    state: Mutex<PublisherState>,
}

#[derive(Default)]
struct PublisherState {
    open: Option<PublisherSession>,
    /// True if the broker was lost or unreachable since the last connection.
    lost: bool,
}

struct PublisherSession {
    connection: Connection,
    channel: Channel,
    /// Retry queues known to exist.
    declared: BTreeSet<String>,
}

impl Republisher {
    /// Publishes a message into the retry queue for this wait.
    pub(crate) async fn retry(
        &self,
        settings: &SourceSettings,
        name: &str,
        wait: Duration,
        raw: &Raw,
        failures: u32,
    ) -> Result<()> {
        let seconds = bucket(wait);
        let queue = format!("{name}.{seconds}s");
        let channel = self.channel(settings, Some((&queue, seconds))).await?;
        let mut headers = kept_headers(raw);
        let mut put = |name: &str, value: &[u8]| {
            headers.insert(short(name), AMQPValue::LongString(LongString::from(value)));
        };
        put(ROUTING_KEY, &raw.routing_key());
        put(EXCHANGE, &raw.exchange());
        put(FAILURES, failures.to_string().as_bytes());
        self.publish(settings, &channel, ("", &queue), raw, headers).await
    }

    /// Publishes a message to the destination of rejected messages.
    pub(crate) async fn rejected(
        &self,
        settings: &SourceSettings,
        way: (&str, &str),
        raw: &Raw,
        reason: &str,
    ) -> Result<()> {
        let channel = self.channel(settings, None).await?;
        let mut headers = kept_headers(raw);
        let mut put = |name: &str, value: &[u8]| {
            headers.insert(short(name), AMQPValue::LongString(LongString::from(value)));
        };
        put(ROUTING_KEY, &raw.routing_key());
        put(EXCHANGE, &raw.exchange());
        put(REASON, reason.as_bytes());
        if let Some(user) = raw.properties.user_id() {
            put(USER_ID, user.as_str().as_bytes());
        }
        self.publish(settings, &channel, way, raw, headers).await
    }

    /// Returns the channel. Connects if needed, and declares a retry queue.
    async fn channel(&self, settings: &SourceSettings, retry: Option<(&str, u64)>) -> Result<Channel> {
        let PublisherState { open, lost } = &mut *self.state.lock().await;
        if open.as_ref().is_some_and(|open| !open.channel.status().connected()) {
            (*open, *lost) = (None, true);
        }
        if open.is_none() {
            let was_lost = std::mem::replace(lost, true);
            let connection = connect(settings, " (publisher)").await?;
            if was_lost {
                spare(settings).await;
            }
            let channel = open_channel(settings, &connection).await?;
            response_of(
                settings,
                "cannot ask for confirms",
                channel.confirm_select(ConfirmSelectOptions::default()),
            )
            .await?;
            (*open, *lost) =
                (Some(PublisherSession { connection, channel, declared: BTreeSet::new() }), false);
        }
        let Some(open) = open else {
            return Err(Error::new(ErrorKind::Unavailable, "there is no channel to publish on"));
        };
        if let Some((queue, seconds)) = retry
            && !open.declared.contains(queue)
        {
            let table = retry_table(settings, seconds);
            declare_queue(settings, &open.channel, queue, false, table).await?;
            open.declared.insert(queue.to_owned());
        }
        debug_assert!(open.connection.status().connected() || !open.channel.status().connected());
        Ok(open.channel.clone())
    }

    /// Publishes, and waits for the broker's confirm.
    async fn publish(
        &self,
        settings: &SourceSettings,
        channel: &Channel,
        (exchange, routing_key): (&str, &str),
        raw: &Raw,
        headers: FieldTable,
    ) -> Result<()> {
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let properties = kept_properties(&raw.properties).with_headers(headers);
        let (exchange, routing_key) = (short(exchange), short(routing_key));
        let confirmed = async {
            channel.basic_publish(exchange, routing_key, options, &raw.data, properties).await?.await
        };
        match response_of(settings, "cannot publish", confirmed).await? {
            Confirmation::Ack(None) => Ok(()),
            Confirmation::Ack(Some(_)) => {
                Err(Error::new(ErrorKind::Unavailable, "the broker has no queue for what was published"))
            }
            Confirmation::Nack(_) => {
                Err(Error::new(ErrorKind::Unavailable, "the broker refused what was published"))
            }
            Confirmation::NotRequested => {
                Err(Error::new(ErrorKind::Unavailable, "the broker does not confirm what is published"))
            }
        }
    }
}

/// Returns the wait as a power of two in seconds, rounded up. Each has a queue, because a message expires only at the
/// head of its queue.
fn bucket(wait: Duration) -> u64 {
    let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0));
    // Slightly below the broker's maximum time to live, an unsigned number of 32 bits.
    seconds.clamp(1, 1 << 21).next_power_of_two()
}

/// Returns the arguments of a queue that returns every message after its wait, and loses none.
fn retry_table(settings: &SourceSettings, seconds: u64) -> FieldTable {
    let mut table = FieldTable::default();
    let mut text = |name: &str, value: &str| {
        table.insert(short(name), AMQPValue::LongString(LongString::from(value)));
    };
    text("x-queue-type", "quorum");
    text("x-dead-letter-exchange", "");
    text("x-dead-letter-routing-key", &settings.queue.name);
    text("x-dead-letter-strategy", "at-least-once");
    text("x-overflow", "reject-publish");
    let millis = i64::try_from(seconds * 1_000).unwrap_or(i64::MAX);
    table.insert(short("x-message-ttl"), AMQPValue::LongLongInt(millis));
    table
}

/// Returns all headers but those that make the broker send copies.
fn kept_headers(raw: &Raw) -> FieldTable {
    let mut kept = FieldTable::default();
    let table = raw.properties.headers().as_ref().map(FieldTable::inner);
    for (name, value) in table.into_iter().flatten() {
        if !["CC", "BCC"].contains(&name.as_str()) {
            kept.insert(name.clone(), value.clone());
        }
    }
    kept
}

/// Returns the properties without those that the broker acts on: a time to live, and another user.
fn kept_properties(from: &BasicProperties) -> BasicProperties {
    type SetProperty = fn(BasicProperties, ShortString) -> BasicProperties;
    let mut kept = BasicProperties::default().with_delivery_mode(DURABLE);
    let texts: [(&Option<ShortString>, SetProperty); 7] = [
        (from.content_type(), BasicProperties::with_content_type),
        (from.content_encoding(), BasicProperties::with_content_encoding),
        (from.correlation_id(), BasicProperties::with_correlation_id),
        (from.reply_to(), BasicProperties::with_reply_to),
        (from.message_id(), BasicProperties::with_message_id),
        (from.kind(), BasicProperties::with_type),
        (from.app_id(), BasicProperties::with_app_id),
    ];
    for (value, with) in texts {
        if let Some(value) = value {
            kept = with(kept, value.clone());
        }
    }
    if let Some(timestamp) = from.timestamp() {
        kept = kept.with_timestamp(*timestamp);
    }
    if let Some(priority) = from.priority() {
        kept = kept.with_priority(*priority);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_share_queues() {
        let seconds = |wait: u64| bucket(Duration::from_millis(wait));
        assert_eq!(
            [seconds(0), seconds(1_000), seconds(1_001), seconds(64_000), seconds(64_001)],
            [1, 1, 2, 64, 128]
        );
        assert!(bucket(Duration::MAX) * 1_000 < u64::from(u32::MAX));
    }
}
