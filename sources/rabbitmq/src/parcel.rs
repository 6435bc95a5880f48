//! A delivery from its receipt to its settlement. Tests: tests/again.rs and tests/deliveries.rs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use oncebox_core::Result;
use oncebox_core::source::{Ack, Settle};
use tokio::sync::Notify;

use crate::builder::{Rejected, SourceSettings};
use crate::held::HeldDeliveries;
use crate::message::Raw;
use crate::names;
use crate::settle::{BrokerVerdict, DeliveryTag};
use crate::source::{Shared, jittered};

/// Maximum wait between attempts of a failing inline handler.
const LONGEST_RETRY: Duration = Duration::from_mins(5);
/// Hold time of a delivery that could not be published.
const UNPUBLISHED: Duration = Duration::from_secs(5);

/// Count and bytes of unsettled deliveries.
#[derive(Default)]
pub(crate) struct UnsettledCount {
    count: AtomicUsize,
    bytes: AtomicUsize,
    less: Notify,
}

impl UnsettledCount {
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Returns true if there is room for one more; the first always fits.
    pub(crate) fn has_room(&self, limit: usize) -> bool {
        self.is_empty() || self.bytes.load(Ordering::Relaxed) < limit
    }

    /// Waits for `next` once there is room.
    pub(crate) async fn room<T>(&self, limit: usize, next: impl Future<Output = T>) -> T {
        loop {
            let less = self.less.notified();
            if self.has_room(limit) {
                return next.await;
            }
            less.await;
        }
    }
}

/// Counts one delivery and its bytes as unsettled until it is dropped.
struct Weight {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.shared.in_hand.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.shared.in_hand.count.fetch_sub(1, Ordering::Relaxed);
        self.shared.in_hand.less.notify_one();
    }
}

/// One unsettled delivery.
pub(crate) struct Parcel {
    pub(crate) raw: Raw,
    tag: DeliveryTag,
    /// Failures of its handler.
    failures: u32,
    #[expect(dead_code, reason = "held to be dropped")]
    weight: Weight,
}

impl Parcel {
    pub(crate) fn new(shared: &Arc<Shared>, raw: Raw, tag: DeliveryTag) -> Self {
        let (failures, bytes) = (raw.failures(), raw.data.len());
        shared.in_hand.bytes.fetch_add(bytes, Ordering::Relaxed);
        shared.in_hand.count.fetch_add(1, Ordering::Relaxed);
        Self { raw, tag, failures, weight: Weight { shared: Arc::clone(shared), bytes } }
    }
}

impl fmt::Debug for Parcel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parcel")
            .field("tag", &self.tag)
            .field("failures", &self.failures)
            .finish_non_exhaustive()
    }
}

/// Settles a delivery.
pub(crate) struct Settling {
    pub(crate) shared: Arc<Shared>,
    pub(crate) held: Arc<HeldDeliveries>,
    pub(crate) parcel: Parcel,
}

#[async_trait]
impl Settle for Settling {
    async fn settle(self: Box<Self>, ack: Ack) -> Result<()> {
        match ack {
            Ack::Done => self.settle_with(BrokerVerdict::Ack).await,
            Ack::Busy { after } => {
                self.hold(after);
                Ok(())
            }
            Ack::Redeliver { after } => self.failed(after).await,
            Ack::Reject { reason } => self.reject(&reason).await,
            // An unknown outcome settles nothing: the delivery stays held, and comes again.
            _ => {
                self.hold(UNPUBLISHED);
                Ok(())
            }
        }
    }
}

impl Settling {
    async fn settle_with(self, verdict: BrokerVerdict) -> Result<()> {
        let settled = self.parcel.tag.settle(verdict).await;
        if settled.is_err() {
            metrics::counter!(names::UNSETTLED, "source" => self.shared.label()).increment(1);
        }
        settled
    }

    /// Holds the delivery and hands it out again later. The broker does not notice, so it counts nothing. A longer hold
    /// would make the broker close the channel, and count all unsettled deliveries.
    fn hold(self, wait: Duration) {
        let SourceSettings { clock, max_hold, .. } = &self.shared.settings;
        let wait = wait.min(*max_hold);
        metrics::counter!(names::REDELIVERED, "source" => self.shared.label(), "by" => "held").increment(1);
        self.held.push(clock.monotonic().saturating_add(wait), self.parcel);
    }

    async fn failed(mut self, after: Duration) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let SourceSettings { attempts, max_hold, retry_queue, .. } = &shared.settings;
        self.parcel.failures = self.parcel.failures.saturating_add(1);
        let failures = self.parcel.failures;
        if failures >= *attempts {
            return self.reject(&format!("its handler failed {failures} times")).await;
        }
        let grown = Duration::from_secs(1 << failures.min(16)).min(LONGEST_RETRY);
        let wait = after.max(jittered(grown));
        if wait <= *max_hold {
            self.hold(wait);
            return Ok(());
        }
        // The broker checks a user-id, and the source is another user.
        let Some(name) = retry_queue.as_ref().filter(|_| self.parcel.raw.properties.user_id().is_none())
        else {
            self.hold(*max_hold);
            return Ok(());
        };
        match shared.publisher.retry(&shared.settings, name, wait, &self.parcel.raw, failures).await {
            Ok(()) => {
                metrics::counter!(names::REDELIVERED, "source" => shared.label(), "by" => "retry_queue")
                    .increment(1);
                self.settle_with(BrokerVerdict::Ack).await
            }
            Err(error) => {
                tracing::warn!(source = %shared.settings.name, error = error.what(), "retry queue unavailable, delivery held");
                self.hold(*max_hold);
                Ok(())
            }
        }
    }

    pub(crate) async fn reject(self, reason: &str) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let settings = &shared.settings;
        let (verdict, to) = match &settings.rejected {
            Rejected::DeadLetter => (BrokerVerdict::Reject, "dead_letter"),
            Rejected::Discard => (BrokerVerdict::Reject, "discarded"),
            Rejected::Publish { exchange, routing_key } => {
                let way = (exchange.as_str(), routing_key.as_str());
                if let Err(error) = shared.publisher.rejected(settings, way, &self.parcel.raw, reason).await {
                    tracing::error!(source = %settings.name, error = error.what(), reason, "dead-lettering failed, delivery held");
                    self.hold(UNPUBLISHED);
                    return Ok(());
                }
                (BrokerVerdict::Ack, "exchange")
            }
        };
        let id = self.parcel.raw.properties.message_id().as_ref().map_or("", |id| id.as_str());
        tracing::error!(source = %settings.name, queue = settings.queue.name, id, reason, to, "message rejected");
        metrics::counter!(names::REJECTED, "source" => shared.label(), "to" => to).increment(1);
        self.settle_with(verdict).await
    }
}
