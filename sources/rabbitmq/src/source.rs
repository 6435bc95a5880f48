//! The source: hands out deliveries, and settles each with its own session. Tests: tests/deliveries.rs and
//! tests/faults.rs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use oncebox_core::Result;
use oncebox_core::source::{BrokerLink, Delivery, Redelivery, Source};

use crate::builder::{RabbitMqSourceBuilder, SourceSettings};
use crate::held::HeldDeliveries;
use crate::message::{self, Raw};
use crate::names;
use crate::parcel::{Parcel, Settling, UnsettledCount};
use crate::publisher::Republisher;
use crate::session::{NextDelivery, Session};
use crate::settle::DeliveryTag;
use crate::state::{ConnectionState, Monitor};
use crate::trouble::SessionFailure;

/// Deliveries to take one by one after a message that the client could not parse.
const ONE_BY_ONE: u32 = 256;
/// Short pauses after such a message before pauses grow: as many as a quorum queue redelivers.
const UNREADABLE_TIMES: u32 = 32;

/// Messages of one queue of RabbitMQ.
///
/// It connects when an inbox consumes it, and again after each loss. Dropping it closes the connection, and the broker
/// requeues unsettled messages.
pub struct RabbitMq {
    shared: Arc<Shared>,
    session: Option<Session>,
    /// Pause before the next attempt to connect; zero after a success.
    pause: Duration,
    /// True if the broker was lost or unreachable since the last session: it and its queues may be starting.
    lost: bool,
    /// Remaining deliveries to take one by one, so that a message which ends the connection affects no others: the
    /// broker counts a redelivery for all unsettled ones.
    one_by_one: u32,
    /// Consecutive sessions that a message ended.
    unreadable: u32,
    /// True if the session must restart once everything is settled.
    renew: bool,
}

/// State shared by a source and its deliveries.
pub(crate) struct Shared {
    pub(crate) settings: SourceSettings,
    pub(crate) publisher: Republisher,
    monitor: Monitor,
    link: BrokerLink,
    pub(crate) in_hand: UnsettledCount,
}

impl fmt::Debug for RabbitMq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SourceSettings { name, address, queue, fields, .. } = &self.shared.settings;
        let held = self.session.as_ref().map_or(0, |session| session.held.len());
        f.debug_struct("RabbitMq")
            .field("name", name)
            .field("address", address)
            .field("queue", queue)
            .field("fields", fields)
            .field("connection", &self.shared.monitor.connection())
            .field("held", &held)
            .finish_non_exhaustive()
    }
}

impl RabbitMq {
    /// Starts a builder for the broker at this address, such as `amqp://user:password@host/vhost`, or `amqps://` with
    /// TLS. [`build`](RabbitMqSourceBuilder::build) validates all settings.
    pub fn builder(url: &str) -> RabbitMqSourceBuilder {
        RabbitMqSourceBuilder::new(url)
    }

    pub(crate) fn new(settings: SourceSettings) -> Self {
        let monitor = Monitor::new();
        let shared = Shared {
            settings,
            publisher: Republisher::default(),
            monitor,
            link: BrokerLink::default(),
            in_hand: UnsettledCount::default(),
        };
        Self {
            shared: Arc::new(shared),
            session: None,
            pause: Duration::ZERO,
            lost: false,
            one_by_one: 0,
            unreadable: 0,
            renew: false,
        }
    }

    /// Returns a monitor, which works while an inbox owns the source.
    pub fn monitor(&self) -> Monitor {
        self.shared.monitor.clone()
    }

    /// Connects once, declares or checks everything, and disconnects: a test of the settings. Does not consume.
    pub async fn check(&self) -> Result<()> {
        let (connection, _) = Session::prepare(&self.shared.settings).await?;
        // A failed goodbye does not matter.
        let _ = connection.close(200, "checked".into()).await;
        Ok(())
    }

    /// Connects, retrying until it succeeds.
    async fn connect(&mut self) {
        let shared = &self.shared;
        let settings = &shared.settings;
        loop {
            if !self.pause.is_zero() {
                settings.clock.sleep(jittered(self.pause)).await;
            }
            let prefetch = if self.one_by_one > 0 { 1 } else { settings.prefetch };
            match Session::open(settings, prefetch, self.lost).await {
                Ok(session) => {
                    self.lost = false;
                    tracing::info!(source = %settings.name, queue = settings.queue.name, "consuming");
                    shared.connected(&ConnectionState::Connected);
                    self.session = Some(session);
                    return;
                }
                Err(trouble) => {
                    self.pause = longer(self.pause, settings.backoff);
                    self.lost = true;
                    shared.away(&trouble);
                }
            }
        }
    }

    fn over(&mut self, trouble: &SessionFailure) {
        let settings = &self.shared.settings;
        if let Some(session) = self.session.take() {
            // A session that lasted resets the pause; one that failed at once does not.
            if settings.clock.monotonic().saturating_sub(session.since) > settings.backoff.1 {
                self.pause = Duration::ZERO;
            }
        }
        self.pause = longer(self.pause, settings.backoff);
        if trouble.unreadable {
            metrics::counter!(names::UNREADABLE, "source" => self.shared.label()).increment(1);
            self.one_by_one = ONE_BY_ONE;
            self.unreadable += 1;
            if self.unreadable <= UNREADABLE_TIMES {
                self.pause = settings.backoff.0;
            }
        } else {
            self.lost = true;
        }
        self.shared.away(trouble);
    }

    /// Processes one event of the session; returns a delivery to hand out, if any.
    fn came(&mut self, next: NextDelivery) -> Option<Delivery> {
        let delivery = match next {
            NextDelivery::Delivery(delivery) => delivery,
            NextDelivery::Over(trouble) => {
                self.over(&trouble);
                return None;
            }
        };
        self.count();
        let (shared, session) = (&self.shared, self.session.as_ref()?);
        let tag = DeliveryTag::new(Arc::clone(&session.settler), delivery.delivery_tag);
        let raw = Raw::new(&shared.settings.queue.name, *delivery);
        Self::hand_out(shared, &session.held, Parcel::new(shared, raw, tag))
    }

    /// Counts a delivery. After the last of those taken one by one, the session restarts.
    fn count(&mut self) {
        self.pause = Duration::ZERO;
        self.unreadable = 0;
        if self.one_by_one > 0 {
            self.one_by_one -= 1;
            if self.one_by_one == 0 {
                self.renew = true;
            }
        }
    }

    /// Hands a delivery out, or rejects an unreadable one.
    fn hand_out(shared: &Arc<Shared>, held: &Arc<HeldDeliveries>, parcel: Parcel) -> Option<Delivery> {
        let message = message::read(&shared.settings.fields, &parcel.raw);
        let settling = Settling { shared: Arc::clone(shared), held: Arc::clone(held), parcel };
        match message {
            Ok(message) => Some(Delivery::new(message, settling)),
            Err(reason) => {
                metrics::counter!(names::UNREADABLE, "source" => shared.label()).increment(1);
                // Use a task: the caller may drop the future.
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

    fn link(&self) -> BrokerLink {
        self.shared.link.clone()
    }

    async fn recv(&mut self) -> Option<Delivery> {
        loop {
            let shared = Arc::clone(&self.shared);
            if self.renew && shared.in_hand.is_empty() {
                (self.renew, self.session) = (false, None);
            }
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
                next = shared.in_hand.room(shared.settings.prefetch_bytes, session.next(&shared.settings.queue)) => next,
            };
            if let Some(delivery) = self.came(next) {
                return Some(delivery);
            }
        }
    }

    fn ready(&mut self) -> Option<Delivery> {
        while !self.renew && self.shared.in_hand.has_room(self.shared.settings.prefetch_bytes) {
            let queue = &self.shared.settings.queue;
            let next = self.session.as_mut()?.next(queue).now_or_never()?;
            if let Some(delivery) = self.came(next) {
                return Some(delivery);
            }
        }
        None
    }
}

/// Doubles the pause, within bounds.
fn longer(pause: Duration, (first, longest): (Duration, Duration)) -> Duration {
    (pause * 2).clamp(first, longest)
}

/// Shortens a pause at random by up to a half, so that many consumers do not return at the same moment.
pub(crate) fn jittered(pause: Duration) -> Duration {
    pause / 2 + pause.mul_f64(fastrand::f64() / 2.0)
}

impl Shared {
    pub(crate) fn label(&self) -> Arc<str> {
        Arc::clone(&self.settings.name)
    }

    fn connected(&self, state: &ConnectionState) {
        let connected = *state == ConnectionState::Connected;
        metrics::gauge!(names::CONNECTED, "source" => self.label()).set(if connected { 1.0 } else { 0.0 });
        if connected {
            self.link.up();
        }
        self.monitor.set(state.clone());
    }

    fn away(&self, trouble: &SessionFailure) {
        let error = trouble.error.what();
        tracing::warn!(source = %self.settings.name, error, "not connected; trying again");
        metrics::counter!(names::DISCONNECTED, "source" => self.label()).increment(1);
        self.link.down(trouble.reason.as_str());
        self.connected(&ConnectionState::Away { error: error.to_owned() });
    }
}
