//! Settings of a source, checked when it is built. Tests: below.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lapin::tcp::{OwnedIdentity, OwnedTLSConfig};
use oncebox_core::Result;
use oncebox_core::source::Redelivery;
use oncebox_core::time::SharedClock;
use oncebox_tokio::SystemClock;
use tokio::sync::Semaphore;

use crate::address::Address;
use crate::error::refuse;
use crate::field::Field;
use crate::queue::{Queue, QueueKind, check_short};
use crate::source::RabbitMq;

/// Maximum concurrent attempts to connect.
const ATTEMPTS_OPEN: usize = 8;

/// Destination of rejected messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// The broker dead-letters them as the queue defines.
    DeadLetter,
    /// The source publishes them, and acknowledges them after the confirm.
    Publish { exchange: String, routing_key: String },
    /// The broker drops them.
    Discard,
}

/// The AMQP property of each message field.
#[derive(Clone, Debug)]
pub(crate) struct FieldMapping {
    pub(crate) id: Field,
    pub(crate) message_type: Field,
    pub(crate) producer: Option<Field>,
    pub(crate) ordering_key: Option<Field>,
    pub(crate) tenant: Option<Field>,
    pub(crate) cloud_events: bool,
}

/// Validated settings.
pub(crate) struct SourceSettings {
    pub(crate) name: Arc<str>,
    pub(crate) address: Address,
    pub(crate) tls: OwnedTLSConfig,
    pub(crate) queue: Queue,
    pub(crate) fields: FieldMapping,
    pub(crate) prefetch: u16,
    pub(crate) prefetch_bytes: usize,
    pub(crate) consumer_tag: String,
    pub(crate) rejected: Rejected,
    pub(crate) max_hold: Duration,
    pub(crate) retry_queue: Option<String>,
    pub(crate) attempts: u32,
    pub(crate) redelivers: Redelivery,
    pub(crate) backoff: (Duration, Duration),
    pub(crate) reconnect_delay: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) clock: SharedClock,
    /// Open attempts to connect, including abandoned ones.
    pub(crate) attempts_open: Arc<Semaphore>,
}

/// Builds a source; see [`RabbitMq::builder`].
#[derive(Clone)]
#[must_use = "nothing happens before `build`"]
pub struct RabbitMqSourceBuilder {
    url: String,
    name: Option<String>,
    queue: Option<Queue>,
    fields: FieldMapping,
    prefetch: u16,
    prefetch_bytes: usize,
    consumer_tag: String,
    rejected_to: Option<(String, String)>,
    discard_rejected: bool,
    max_hold: Duration,
    retry_queue: Option<String>,
    attempts: u32,
    redelivers: Redelivery,
    backoff: (Duration, Duration),
    reconnect_delay: Duration,
    response_timeout: Duration,
    ca_certificates: Option<String>,
    client_certificate: Option<(Vec<u8>, Vec<u8>)>,
    clock: SharedClock,
}

impl fmt::Debug for RabbitMqSourceBuilder {
    /// Omits the URL and the client's key, which are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMqSourceBuilder")
            .field("name", &self.name)
            .field("queue", &self.queue)
            .field("fields", &self.fields)
            .field("prefetch", &self.prefetch)
            .finish_non_exhaustive()
    }
}

impl RabbitMqSourceBuilder {
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            name: None,
            queue: None,
            fields: FieldMapping {
                id: Field::MessageId,
                message_type: Field::Type,
                producer: None,
                ordering_key: None,
                tenant: None,
                cloud_events: false,
            },
            prefetch: 512,
            prefetch_bytes: 64 << 20,
            consumer_tag: "oncebox".into(),
            rejected_to: None,
            discard_rejected: false,
            max_hold: Duration::from_mins(10),
            retry_queue: None,
            attempts: 20,
            redelivers: Redelivery::Unknown,
            backoff: (Duration::from_millis(200), Duration::from_secs(30)),
            reconnect_delay: Duration::from_secs(1),
            response_timeout: Duration::from_secs(30),
            ca_certificates: None,
            client_certificate: None,
            clock: SystemClock::shared(),
        }
    }

    /// Sets the queue to consume: the name of an existing one, or a [`Queue`] to declare.
    pub fn queue(mut self, queue: impl Into<Queue>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Sets the name of the source, for logs, metrics and the broker's list of connections. Default: `rabbitmq:` and
    /// the queue.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the field with the id. Default: the property `message-id`.
    pub fn id(mut self, field: Field) -> Self {
        self.fields.id = field;
        self
    }

    /// Sets the field with the message type, which selects the handlers. Default: the property `type`.
    pub fn message_type(mut self, field: Field) -> Self {
        self.fields.message_type = field;
        self
    }

    /// Sets the field with the producer, if ids are unique only within a producer. Default: none, which suits globally
    /// unique ids such as UUIDs.
    pub fn producer(mut self, field: Field) -> Self {
        self.fields.producer = Some(field);
        self
    }

    /// Sets the field with the ordering key. A message without it has none. Default: none.
    pub fn ordering_key(mut self, field: Field) -> Self {
        self.fields.ordering_key = Some(field);
        self
    }

    /// Sets the field with the tenant. Use only fields that a producer cannot forge: [`Field::UserId`], which the
    /// broker checks, or [`Field::Fixed`] for a queue or a vhost of one tenant. Default: none.
    pub fn tenant(mut self, field: Field) -> Self {
        self.fields.tenant = Some(field);
        self
    }

    /// Reads CloudEvents in their AMQP binding: attributes in headers that start with `cloudEvents:` or `cloudEvents_`,
    /// or the whole event in JSON. Source, id, type and time come from the event, the payload is its data. Other
    /// messages are read as usual.
    pub fn cloud_events(mut self) -> Self {
        self.fields.cloud_events = true;
        self
    }

    /// Maximum unacknowledged deliveries. Default: 512.
    pub fn prefetch(mut self, count: u16) -> Self {
        self.prefetch = count;
        self
    }

    /// Maximum payload bytes of unsettled deliveries; one delivery is always allowed. RabbitMQ itself does not limit
    /// bytes: up to [`prefetch`](Self::prefetch) further messages may wait in memory. Use a small prefetch for large
    /// messages. Default: 64 MiB.
    pub fn prefetch_bytes(mut self, bytes: usize) -> Self {
        self.prefetch_bytes = bytes;
        self
    }

    /// Sets the consumer tag, as the broker lists it. Default: `oncebox`.
    pub fn consumer_tag(mut self, tag: impl Into<String>) -> Self {
        self.consumer_tag = tag.into();
        self
    }

    /// Publishes rejected messages to this exchange, with persistent delivery and a routing key. The source
    /// acknowledges them when the broker has confirmed that they are in a queue. The header `oncebox-reason` has the
    /// reason. Replaces the broker's own dead-lettering.
    pub fn rejected_to(mut self, exchange: impl Into<String>, routing_key: impl Into<String>) -> Self {
        self.rejected_to = Some((exchange.into(), routing_key.into()));
        self
    }

    /// Allows the loss of rejected messages if the queue has no dead-letter exchange. Default: false, and `build`
    /// refuses a source that could lose any.
    pub fn discard_rejected(mut self, yes: bool) -> Self {
        self.discard_rejected = yes;
        self
    }

    /// Maximum time to hold a delivery before a retry. It stays unacknowledged meanwhile, so the broker counts nothing.
    /// Longer waits go to the [`retry_queue`](Self::retry_queue); without one they are cut to this. Keep it below the
    /// broker's consumer timeout of 30 minutes. Default: 10 minutes.
    pub fn max_hold(mut self, time: Duration) -> Self {
        self.max_hold = time;
        self
    }

    /// Moves failed inline deliveries with waits longer than [`max_hold`](Self::max_hold) into queues of the
    /// broker. The source declares quorum queues with this name and the wait, such as `orders.retry.64s`. They return a
    /// message to the queue after the wait. The source acknowledges a message after that queue has confirmed it.
    /// Default: none.
    pub fn retry_queue(mut self, name: impl Into<String>) -> Self {
        self.retry_queue = Some(name.into());
        self
    }

    /// Maximum attempts of an inline handler before the message is rejected, from 1. The wait grows with each failure,
    /// up to 5 minutes. Durable handlers do not need this: the inbox retries them. Default: 20.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Maximum time after its first delivery in which a message may come again, for example from moved dead letters.
    /// `consume` refuses an inbox with shorter retention. Default: unknown.
    pub fn redelivers_for(mut self, redelivers: Redelivery) -> Self {
        self.redelivers = redelivers;
        self
    }

    /// Sets the first and the longest pause between attempts to connect. Pauses double, less a random part of up to a
    /// half. Default: 200 ms and 30 seconds.
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.backoff = (first, longest);
        self
    }

    /// Delay between a new connection and the first use of the queue, if the broker was lost or unreachable before;
    /// plus a random part of up to a half. A starting broker accepts connections before its quorum queues have leaders,
    /// and earlier calls fail. The first connection of a source does not wait. Default: 1 second.
    pub fn reconnect_delay(mut self, delay: Duration) -> Self {
        self.reconnect_delay = delay;
        self
    }

    /// Maximum time for the broker to respond while connecting or publishing. Default: 30 seconds.
    pub fn response_timeout(mut self, time: Duration) -> Self {
        self.response_timeout = time;
        self
    }

    /// Sets the trusted authorities for `amqps`, in PEM, instead of the system's.
    pub fn ca_certificates(mut self, pem: impl Into<String>) -> Self {
        self.ca_certificates = Some(pem.into());
        self
    }

    /// Sets the client's certificate and key for `amqps`, both in PEM.
    pub fn client_certificate(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.client_certificate = Some((certificate.into(), key.into()));
        self
    }

    /// Sets the clock for pauses. Default: the system's.
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = clock;
        self
    }

    /// Validates the settings. Does not connect: the source connects when an inbox consumes it, and after each loss. To
    /// test the connection first, call [`RabbitMq::check`].
    pub fn build(self) -> Result<RabbitMq> {
        let address = Address::parse(&self.url)?;
        let Some(queue) = self.queue else {
            return refuse("queue", "it is not said which", "name the queue to consume");
        };
        queue.validate()?;
        let rejected = rejected(&queue, self.rejected_to, self.discard_rejected)?;
        for (option, text) in [
            ("consumer_tag", Some(&self.consumer_tag)),
            // Leave room for the wait.
            ("retry_queue", self.retry_queue.as_ref().map(|name| format!("{name}.12345678s")).as_ref()),
        ] {
            check_short(option, text.map_or("", String::as_str))?;
        }
        if self.prefetch == 0 {
            return refuse(
                "prefetch",
                "RabbitMQ takes 0 for no limit, and all of the queue would come at once",
                "use at least 1",
            );
        }
        if self.attempts == 0 {
            return refuse("attempts", "nothing could be tried even once", "use at least 1");
        }
        let (first, longest) = self.backoff;
        if first.is_zero() || longest < first {
            return refuse(
                "backoff",
                "the first pause is zero, or longer than the longest",
                "use some milliseconds, and more",
            );
        }
        let name = self.name.unwrap_or_else(|| format!("rabbitmq:{}", queue.name));
        let identity = self.client_certificate.map(|(pem, key)| OwnedIdentity::PKCS8 { pem, key });
        Ok(RabbitMq::new(SourceSettings {
            name: name.into(),
            address,
            tls: OwnedTLSConfig { identity, cert_chain: self.ca_certificates },
            queue,
            fields: self.fields,
            prefetch: self.prefetch,
            prefetch_bytes: self.prefetch_bytes,
            consumer_tag: self.consumer_tag,
            rejected,
            max_hold: self.max_hold,
            retry_queue: self.retry_queue,
            attempts: self.attempts,
            redelivers: self.redelivers,
            backoff: self.backoff,
            reconnect_delay: self.reconnect_delay,
            response_timeout: self.response_timeout,
            clock: self.clock,
            attempts_open: Arc::new(Semaphore::new(ATTEMPTS_OPEN)),
        }))
    }
}

/// Returns the destination of rejected messages; refuses settings that could lose them without explicit consent.
fn rejected(queue: &Queue, to: Option<(String, String)>, discard: bool) -> Result<Rejected> {
    let dead_letters = queue.dead_letter_exchange.is_some();
    if queue.kind == QueueKind::Quorum && !dead_letters && !discard {
        let why = "a quorum queue drops messages that came back too often (20 times, from RabbitMQ 4.0 on), and this one has no dead-letter exchange";
        return refuse(
            "queue",
            why,
            "name a `dead_letter_queue` or a `dead_letter_exchange`, or say `discard_rejected(true)`",
        );
    }
    if let Some((exchange, routing_key)) = to {
        check_short("rejected_to", &exchange)?;
        check_short("rejected_to", &routing_key)?;
        return Ok(Rejected::Publish { exchange, routing_key });
    }
    match (dead_letters, discard) {
        (true, _) => Ok(Rejected::DeadLetter),
        (false, true) => Ok(Rejected::Discard),
        (false, false) => refuse(
            "queue",
            "a message that can never be taken would be lost: it is not known to have a dead-letter exchange",
            "name its `dead_letter_exchange`, say where they go with `rejected_to`, or say `discard_rejected(true)`",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn builder() -> RabbitMqSourceBuilder {
        RabbitMq::builder("amqp://user:secret@localhost")
    }

    #[test]
    fn what_could_lose_messages_is_refused() {
        let refused = |builder: RabbitMqSourceBuilder| builder.build().unwrap_err().to_string();
        let nowhere = Queue::classic("q").dead_letter_exchange("");
        assert!(refused(builder().queue(nowhere.clone())).contains("the default exchange"));
        assert!(builder().queue(nowhere.dead_letter_routing_key("q.dead")).build().is_ok());
        assert!(refused(builder().queue("q")).contains("would be lost"));
        assert!(refused(builder().queue(Queue::classic("q"))).contains("would be lost"));
        assert!(refused(builder().queue(Queue::quorum("q"))).contains("came back too often"));
        let to = builder().rejected_to("", "q.dead");
        assert!(refused(to.clone().queue(Queue::quorum("q"))).contains("came back too often"));
        for queue in [Queue::existing("q"), Queue::classic("q")] {
            to.clone().queue(queue).build().unwrap();
        }
        for queue in [Queue::existing("q"), Queue::classic("q"), Queue::quorum("q")] {
            builder().queue(queue.clone().dead_letter_exchange("dead")).build().unwrap();
            builder().queue(queue).discard_rejected(true).build().unwrap();
        }
        builder().queue(Queue::quorum("q").dead_letter_queue("dead")).build().unwrap();
    }

    #[test]
    fn settings_that_cannot_work_are_named() {
        let good = || builder().queue(Queue::existing("q").dead_letter_exchange("dead"));
        good().build().unwrap();
        let long = "x".repeat(256);
        let bad = [
            ("queue", builder()),
            ("queue", builder().queue(Queue::existing("").dead_letter_exchange("d"))),
            ("queue", builder().queue(Queue::existing(long.clone()).dead_letter_exchange("d"))),
            (
                "queue",
                builder().queue(Queue::existing("q").dead_letter_exchange("d").argument("x-max-length", 1)),
            ),
            (
                "delivery_limit",
                builder().queue(Queue::classic("q").dead_letter_exchange("d").delivery_limit(3)),
            ),
            ("dead_letter_routing_key", builder().queue(Queue::classic("q").dead_letter_routing_key("d"))),
            ("dead_letter_queue", builder().queue(Queue::classic("q").dead_letter_queue("q"))),
            ("prefetch", good().prefetch(0)),
            ("attempts", good().attempts(0)),
            ("consumer_tag", good().consumer_tag(long.clone())),
            ("retry_queue", good().retry_queue(long.clone())),
            ("rejected_to", good().rejected_to(long, "")),
            ("backoff", good().backoff(Duration::ZERO, Duration::ZERO)),
            ("backoff", good().backoff(Duration::from_secs(2), Duration::from_secs(1))),
        ];
        for (option, builder) in bad {
            let error = builder.build().unwrap_err().to_string();
            assert!(error.contains(&format!("`{option}`")), "{option}: {error}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let builder = builder()
            .queue(Queue::existing("q").dead_letter_exchange("dead"))
            .client_certificate("cert", "secret");
        let shown = format!("{builder:?} {:?}", builder.clone().build().unwrap());
        assert!(shown.contains("\"q\"") && !shown.contains("secret"), "{shown}");
    }
}
