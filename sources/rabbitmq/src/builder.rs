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

/// Maximum attempts to connect at once.
const ATTEMPTS_OPEN: usize = 8;

/// Destination of rejected messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// The broker dead-letters them as the queue is set.
    DeadLetter,
    /// We publish them, and acknowledge them once that is confirmed.
    Publish { exchange: String, routing_key: String },
    /// They are gone.
    Discard,
}

/// Which parts of an AMQP message tell what.
#[derive(Clone, Debug)]
pub(crate) struct FieldMapping {
    pub(crate) id: Field,
    pub(crate) message_type: Field,
    pub(crate) producer: Option<Field>,
    pub(crate) ordering_key: Option<Field>,
    pub(crate) tenant: Option<Field>,
    pub(crate) cloud_events: bool,
}

/// The settings, checked.
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
    pub(crate) hold_at_most: Duration,
    pub(crate) retry_queue: Option<String>,
    pub(crate) attempts: u32,
    pub(crate) redelivers: Redelivery,
    pub(crate) backoff: (Duration, Duration),
    pub(crate) reconnect_delay: Duration,
    pub(crate) answer_within: Duration,
    pub(crate) clock: SharedClock,
    /// Attempts to connect that are under way, including abandoned ones.
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
    hold_at_most: Duration,
    retry_queue: Option<String>,
    attempts: u32,
    redelivers: Redelivery,
    backoff: (Duration, Duration),
    reconnect_delay: Duration,
    answer_within: Duration,
    ca_certificates: Option<String>,
    client_certificate: Option<(Vec<u8>, Vec<u8>)>,
    clock: SharedClock,
}

impl fmt::Debug for RabbitMqSourceBuilder {
    /// Without the URL and the key of the client, which are secrets.
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
            hold_at_most: Duration::from_mins(10),
            retry_queue: None,
            attempts: 20,
            redelivers: Redelivery::Unknown,
            backoff: (Duration::from_millis(200), Duration::from_secs(30)),
            reconnect_delay: Duration::from_secs(1),
            answer_within: Duration::from_secs(30),
            ca_certificates: None,
            client_certificate: None,
            clock: SystemClock::shared(),
        }
    }

    /// The queue to consume: a name for one that exists, or a [`Queue`] to declare.
    pub fn queue(mut self, queue: impl Into<Queue>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// The name of the source, for logs, metrics and the broker's list of connections. Default: `rabbitmq:` and the queue.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Where the id is. Default: the property `message-id`.
    pub fn id(mut self, field: Field) -> Self {
        self.fields.id = field;
        self
    }

    /// Where the type is, by which handlers are chosen. Default: the property `type`.
    pub fn message_type(mut self, field: Field) -> Self {
        self.fields.message_type = field;
        self
    }

    /// Where it stands who produced a message, if ids are unique only within a producer. Default: nowhere, which is right
    /// for ids that are unique everywhere, as UUIDs are.
    pub fn producer(mut self, field: Field) -> Self {
        self.fields.producer = Some(field);
        self
    }

    /// Where the ordering key is. A message without it has none. Default: messages have none.
    pub fn ordering_key(mut self, field: Field) -> Self {
        self.fields.ordering_key = Some(field);
        self
    }

    /// Where the tenant is. Take only what a producer cannot make up: [`Field::UserId`], which the broker checks, or
    /// [`Field::Fixed`] for a queue or a vhost of one tenant. Default: messages have none.
    pub fn tenant(mut self, field: Field) -> Self {
        self.fields.tenant = Some(field);
        self
    }

    /// Reads CloudEvents as their AMQP binding has them: attributes in headers that start with `cloudEvents:` or
    /// `cloudEvents_`, or the whole event in JSON. Their source, id, type and time count, and the payload is their data. A
    /// message that is none is read as others are.
    pub fn cloud_events(mut self) -> Self {
        self.fields.cloud_events = true;
        self
    }

    /// Maximum unacknowledged deliveries. Default: 512.
    pub fn prefetch(mut self, count: u16) -> Self {
        self.prefetch = count;
        self
    }

    /// With how many bytes of payload in hand no more are handed out; one delivery always is. RabbitMQ itself does not
    /// limit by bytes: beyond these, up to [`prefetch`](Self::prefetch) messages may wait in our memory, so prefer a small
    /// number for large messages. Default 64 MiB.
    pub fn prefetch_bytes(mut self, bytes: usize) -> Self {
        self.prefetch_bytes = bytes;
        self
    }

    /// The consumer tag, as the broker lists it. Default `oncebox`.
    pub fn consumer_tag(mut self, tag: impl Into<String>) -> Self {
        self.consumer_tag = tag.into();
        self
    }

    /// Publishes what can never be taken to this exchange, with persistent delivery and a routing key, and acknowledges it
    /// only when the broker has confirmed that it is in a queue. A header `oncebox-reason` says why. The broker's own
    /// dead-lettering is not used then.
    pub fn rejected_to(mut self, exchange: impl Into<String>, routing_key: impl Into<String>) -> Self {
        self.rejected_to = Some((exchange.into(), routing_key.into()));
        self
    }

    /// Allows that messages which can never be taken are lost where the queue has no dead-letter exchange. Default: no, and
    /// a source is refused that could lose any.
    pub fn discard_rejected(mut self, yes: bool) -> Self {
        self.discard_rejected = yes;
        self
    }

    /// Maximum time to hold a delivery before a retry. It stays unacknowledged meanwhile, so that the broker counts
    /// nothing. Longer waits go to the [`retry_queue`](Self::retry_queue), or are cut to this without one. Keep it
    /// below the broker's consumer timeout, which is 30 minutes. Default 10 minutes.
    pub fn hold_at_most(mut self, time: Duration) -> Self {
        self.hold_at_most = time;
        self
    }

    /// Lets deliveries whose inline handler failed wait in queues of the broker, for waits longer than
    /// [`hold_at_most`](Self::hold_at_most): quorum queues that are declared, with this name and the wait, such as
    /// `orders.retry.64s`. They give a message back to the queue when its time has come. It is acknowledged here only when
    /// it is confirmed there. Default: none.
    pub fn retry_queue(mut self, name: impl Into<String>) -> Self {
        self.retry_queue = Some(name.into());
        self
    }

    /// Maximum attempts of an inline handler before the message is rejected, from 1. The wait grows with each failure,
    /// up to 5 minutes. Durable handlers do not need this: their retries are the inbox's own. Default 20.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Maximum time after its first delivery in which a message may come again, as when dead letters are moved back. An
    /// inbox that forgets sooner is refused. Default: unknown.
    pub fn redelivers_for(mut self, redelivers: Redelivery) -> Self {
        self.redelivers = redelivers;
        self
    }

    /// The first and the longest pause between two attempts to connect; pauses double, and are cut at random by up to a
    /// half. Default 200 ms and 30 seconds.
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.backoff = (first, longest);
        self
    }

    /// Delay between a new connection and the first use of the queue, if the broker was lost or out of reach before; extended at
    /// random by up to a half. A broker that starts takes connections before its quorum queues have elected leaders, and
    /// calls that come earlier fail. The first connection of a source does not wait. Default: 1 second.
    pub fn reconnect_delay(mut self, delay: Duration) -> Self {
        self.reconnect_delay = delay;
        self
    }

    /// Maximum time for the broker to answer while connecting or publishing. Default: 30 seconds.
    pub fn answer_within(mut self, time: Duration) -> Self {
        self.answer_within = time;
        self
    }

    /// Certificates of the authorities to trust for `amqps`, in PEM, instead of the system's.
    pub fn ca_certificates(mut self, pem: impl Into<String>) -> Self {
        self.ca_certificates = Some(pem.into());
        self
    }

    /// The client's certificate and key for `amqps`, both in PEM.
    pub fn client_certificate(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.client_certificate = Some((certificate.into(), key.into()));
        self
    }

    /// The clock that pauses are measured with. Default: that of the system.
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = clock;
        self
    }

    /// Checks the settings. Nothing is connected yet: that is done when an inbox takes messages, and again whenever the
    /// connection is lost. To know at once whether it works, ask [`RabbitMq::check`].
    pub fn build(self) -> Result<RabbitMq> {
        let address = Address::parse(&self.url)?;
        let Some(queue) = self.queue else {
            return refuse("queue", "it is not said which", "name the queue to consume");
        };
        queue.validate()?;
        let rejected = rejected(&queue, self.rejected_to, self.discard_rejected)?;
        for (option, text) in [
            ("consumer_tag", Some(&self.consumer_tag)),
            // With room for the wait.
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
            hold_at_most: self.hold_at_most,
            retry_queue: self.retry_queue,
            attempts: self.attempts,
            redelivers: self.redelivers,
            backoff: self.backoff,
            reconnect_delay: self.reconnect_delay,
            answer_within: self.answer_within,
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
