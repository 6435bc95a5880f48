//! The source: deliveries come out, and each is settled with the session that brought it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use oncebox::source::{Ack, Delivery, Redelivery, Settle, Source};
use oncebox::{Error, Result};
use tokio::sync::Notify;

use crate::builder::{Builder, Rejected, Settings};
use crate::held::Held;
use crate::message::{self, Raw};
use crate::names;
use crate::publisher::Publisher;
use crate::session::{self, Next, Session};
use crate::settle::{Tag, Verdict};
use crate::state::{Connection, Monitor};

/// The longest wait between two tries of an inline handler that fails.
const LONGEST_RETRY: Duration = Duration::from_mins(5);
/// How long a delivery waits that could not be published elsewhere.
const UNPUBLISHED: Duration = Duration::from_secs(5);

/// Messages of one queue of RabbitMQ.
///
/// It connects when an inbox takes messages, and again whenever the connection is lost. Dropped, it closes the connection,
/// and what was not settled goes back to the queue.
pub struct RabbitMq {
    shared: Arc<Shared>,
    session: Option<Session>,
    /// The pause before the next attempt to connect; zero if none failed.
    pause: Duration,
}

/// What a source and its deliveries share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    publisher: Publisher,
    monitor: Monitor,
    in_hand: InHand,
}

impl fmt::Debug for RabbitMq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { name, address, queue, .. } = &self.shared.settings;
        let held = self.session.as_ref().map_or(0, |session| session.held.len());
        f.debug_struct("RabbitMq")
            .field("name", name)
            .field("address", address)
            .field("queue", queue)
            .field("connection", &self.shared.monitor.connection())
            .field("held", &held)
            .finish_non_exhaustive()
    }
}

impl RabbitMq {
    /// A source at this address, such as `amqp://user:password@host/vhost`, or `amqps://` with TLS. The rest is said step
    /// by step; [`build`](Builder::build) checks all of it.
    pub fn builder(url: &str) -> Builder {
        Builder::new(url)
    }

    pub(crate) fn new(settings: Settings) -> Self {
        let monitor = Monitor::new();
        let shared =
            Shared { settings, publisher: Publisher::default(), monitor, in_hand: InHand::default() };
        Self { shared: Arc::new(shared), session: None, pause: Duration::ZERO }
    }

    /// Tells how it is doing, also while an inbox has it.
    pub fn monitor(&self) -> Monitor {
        self.shared.monitor.clone()
    }

    /// Connects once, declares or finds everything, and closes the connection again: to know at once that it will work.
    pub async fn check(&self) -> Result<()> {
        Session::open(&self.shared.settings).await.map(drop)
    }

    /// Connects, as often as it takes.
    async fn connect(&mut self) {
        let shared = &self.shared;
        let settings = &shared.settings;
        loop {
            if !self.pause.is_zero() {
                settings.clock.sleep(jittered(self.pause)).await;
            }
            match Session::open(settings).await {
                Ok(session) => {
                    tracing::info!(source = %settings.name, queue = settings.queue.name, "consuming");
                    shared.connected(&Connection::Connected);
                    self.session = Some(session);
                    return;
                }
                Err(error) => {
                    self.pause = longer(self.pause, settings.backoff);
                    shared.away(&error);
                }
            }
        }
    }

    fn over(&mut self, error: &Error) {
        let settings = &self.shared.settings;
        if let Some(session) = self.session.take() {
            // One that lasted starts over with short pauses; one that broke at once does not.
            if settings.clock.monotonic().saturating_sub(session.since) > settings.backoff.1 {
                self.pause = Duration::ZERO;
            }
        }
        self.pause = longer(self.pause, settings.backoff);
        self.shared.away(error);
    }

    /// Hands a delivery out, or rejects it if it cannot be read.
    fn hand_out(shared: &Arc<Shared>, held: &Arc<Held>, parcel: Parcel) -> Option<Delivery> {
        let message = message::read(&shared.settings.fields, &parcel.raw);
        let settling = Settling { shared: Arc::clone(shared), held: Arc::clone(held), parcel };
        match message {
            Ok(message) => Some(Delivery::new(message, settling)),
            Err(reason) => {
                metrics::counter!(names::UNREADABLE, "source" => shared.label()).increment(1);
                // A task of its own: whoever receives may go away.
                tokio::spawn(async move { settling.reject(&reason).await });
                None
            }
        }
    }
}

#[async_trait]
impl Source for RabbitMq {
    fn name(&self) -> &str {
        &self.shared.settings.name
    }

    fn redelivers_for(&self) -> Redelivery {
        self.shared.settings.redelivers
    }

    async fn recv(&mut self) -> Option<Delivery> {
        loop {
            let shared = Arc::clone(&self.shared);
            let Some(session) = &mut self.session else {
                self.connect().await;
                continue;
            };
            let held = Arc::clone(&session.held);
            let next = tokio::select! {
                biased;
                parcel = held.due(&*shared.settings.clock) => {
                    if let Some(delivery) = Self::hand_out(&shared, &held, parcel) {
                        return Some(delivery);
                    }
                    continue;
                }
                next = shared.in_hand.room(shared.settings.prefetch_bytes, session.next()) => next,
            };
            match next {
                Next::Delivery(delivery) => {
                    self.pause = Duration::ZERO;
                    let tag = Tag::new(Arc::clone(&session.settler), delivery.delivery_tag);
                    let raw = Raw::new(*delivery);
                    let weight = shared.weigh(raw.data.len());
                    let failures = raw.failures();
                    let parcel = Parcel { raw, tag, failures, weight };
                    if let Some(delivery) = Self::hand_out(&shared, &held, parcel) {
                        return Some(delivery);
                    }
                }
                Next::Over(error) => self.over(&error),
            }
        }
    }
}

/// Twice the pause, within bounds.
fn longer(pause: Duration, (first, longest): (Duration, Duration)) -> Duration {
    (pause * 2).clamp(first, longest)
}

/// A pause cut at random by up to a half, so that many consumers do not come back at the same moment.
fn jittered(pause: Duration) -> Duration {
    pause / 2 + pause.mul_f64(fastrand::f64() / 2.0)
}

impl Shared {
    fn label(&self) -> Arc<str> {
        Arc::clone(&self.settings.name)
    }

    fn connected(&self, state: &Connection) {
        let connected = *state == Connection::Connected;
        metrics::gauge!(names::CONNECTED, "source" => self.label()).set(if connected { 1.0 } else { 0.0 });
        self.monitor.set(state.clone());
    }

    fn away(&self, error: &Error) {
        tracing::warn!(source = %self.settings.name, error = error.what(), "not connected; trying again");
        metrics::counter!(names::DISCONNECTED, "source" => self.label()).increment(1);
        self.connected(&Connection::Away { error: error.what().to_owned() });
    }

    fn weigh(self: &Arc<Self>, bytes: usize) -> Weight {
        self.in_hand.bytes.fetch_add(bytes, Ordering::Relaxed);
        Weight { shared: Arc::clone(self), bytes }
    }
}

/// How many bytes are in hand.
#[derive(Default)]
struct InHand {
    bytes: AtomicUsize,
    less: Notify,
}

impl InHand {
    /// Waits for `next` as soon as there is room.
    async fn room<T>(&self, limit: usize, next: impl Future<Output = T>) -> T {
        loop {
            let less = self.less.notified();
            let bytes = self.bytes.load(Ordering::Relaxed);
            if bytes == 0 || bytes < limit {
                return next.await;
            }
            less.await;
        }
    }
}

/// The bytes of one delivery, in hand until this is dropped.
pub(crate) struct Weight {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.shared.in_hand.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.shared.in_hand.less.notify_one();
    }
}

/// One delivery, as long as it is ours.
pub(crate) struct Parcel {
    raw: Raw,
    tag: Tag,
    /// How often a handler failed with it.
    failures: u32,
    #[expect(dead_code, reason = "held to be dropped")]
    weight: Weight,
}

impl fmt::Debug for Parcel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parcel")
            .field("tag", &self.tag)
            .field("failures", &self.failures)
            .finish_non_exhaustive()
    }
}

struct Settling {
    shared: Arc<Shared>,
    held: Arc<Held>,
    parcel: Parcel,
}

#[async_trait]
impl Settle for Settling {
    async fn settle(self: Box<Self>, ack: Ack) -> Result<()> {
        match ack {
            Ack::Done => self.tell(Verdict::Ack).await,
            Ack::Busy { after } => {
                self.hold(after);
                Ok(())
            }
            Ack::Redeliver { after } => self.failed(after).await,
            Ack::Reject { reason } => self.reject(&reason).await,
            // What is not known here yet is not done: it stays in hand, and comes again.
            _ => {
                self.hold(UNPUBLISHED);
                Ok(())
            }
        }
    }
}

impl Settling {
    async fn tell(self, verdict: Verdict) -> Result<()> {
        let told = self.parcel.tag.settle(verdict).await;
        if told.is_err() {
            metrics::counter!(names::UNSETTLED, "source" => self.shared.label()).increment(1);
        }
        told
    }

    /// Keeps it in hand, and hands it out again after a while. The broker hears nothing of it, so it counts nothing.
    fn hold(self, wait: Duration) {
        let clock = &self.shared.settings.clock;
        metrics::counter!(names::REDELIVERED, "source" => self.shared.label(), "by" => "held").increment(1);
        self.held.push(clock.monotonic().saturating_add(wait), self.parcel);
    }

    async fn failed(mut self, after: Duration) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let Settings { attempts, hold_at_most, retry_queue, .. } = &shared.settings;
        self.parcel.failures = self.parcel.failures.saturating_add(1);
        let failures = self.parcel.failures;
        if failures >= *attempts {
            return self.reject(&format!("its handler failed {failures} times")).await;
        }
        let grown = Duration::from_secs(1 << failures.min(16)).min(LONGEST_RETRY);
        let wait = after.max(jittered(grown));
        if wait <= *hold_at_most {
            self.hold(wait);
            return Ok(());
        }
        // A user-id is checked by the broker, and we are not that user.
        let Some(name) = retry_queue.as_ref().filter(|_| self.parcel.raw.properties.user_id().is_none())
        else {
            self.hold(*hold_at_most);
            return Ok(());
        };
        match shared.publisher.retry(&shared.settings, name, wait, &self.parcel.raw, failures).await {
            Ok(()) => {
                metrics::counter!(names::REDELIVERED, "source" => shared.label(), "by" => "retry_queue")
                    .increment(1);
                self.tell(Verdict::Ack).await
            }
            Err(error) => {
                tracing::warn!(source = %shared.settings.name, error = error.what(), "cannot use the retry queue; holding the delivery");
                self.hold(*hold_at_most);
                Ok(())
            }
        }
    }

    async fn reject(self, reason: &str) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let settings = &shared.settings;
        let (verdict, to) = match &settings.rejected {
            Rejected::DeadLetter => (Verdict::Reject, "dead_letter"),
            Rejected::Discard => (Verdict::Reject, "discarded"),
            Rejected::Publish { exchange, routing_key } => {
                let way = (exchange.as_str(), routing_key.as_str());
                if let Err(error) = shared.publisher.rejected(settings, way, &self.parcel.raw, reason).await {
                    tracing::error!(source = %settings.name, error = error.what(), reason, "cannot put a rejected message aside; holding it");
                    self.hold(UNPUBLISHED);
                    return Ok(());
                }
                (Verdict::Ack, "exchange")
            }
        };
        let id = self.parcel.raw.properties.message_id().as_ref().map_or("", |id| id.as_str());
        tracing::error!(source = %settings.name, queue = settings.queue.name, id, reason, to, "rejected a message for good");
        metrics::counter!(names::REJECTED, "source" => shared.label(), "to" => to).increment(1);
        self.tell(verdict).await
    }
}

/// Kept here so that the publisher connects as the source does.
pub(crate) use session::{answered, connect, declare_queue, open_channel};
