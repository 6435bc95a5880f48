//! A delivery as long as it is ours, and what becomes of it.

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

/// The longest wait between two tries of an inline handler that fails.
const LONGEST_RETRY: Duration = Duration::from_mins(5);
/// Hold time of a delivery that could not be published elsewhere.
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

    /// Returns true if there is room for one more; a first one always fits.
    pub(crate) fn has_room(&self, limit: usize) -> bool {
        self.is_empty() || self.bytes.load(Ordering::Relaxed) < limit
    }

    /// Waits for `next` as soon as there is room.
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

/// One delivery and its bytes, in hand until this is dropped.
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

/// One delivery, as long as it is ours.
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
            Ack::Done => self.tell(BrokerVerdict::Ack).await,
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
    async fn tell(self, verdict: BrokerVerdict) -> Result<()> {
        let told = self.parcel.tag.settle(verdict).await;
        if told.is_err() {
            metrics::counter!(names::UNSETTLED, "source" => self.shared.label()).increment(1);
        }
        told
    }

    /// Keeps it in hand, and hands it out again after a while. The broker hears nothing of it, so it counts nothing.
    /// Never longer than it may be held: the broker would close the channel, and count all that is in hand.
    fn hold(self, wait: Duration) {
        let SourceSettings { clock, hold_at_most, .. } = &self.shared.settings;
        let wait = wait.min(*hold_at_most);
        metrics::counter!(names::REDELIVERED, "source" => self.shared.label(), "by" => "held").increment(1);
        self.held.push(clock.monotonic().saturating_add(wait), self.parcel);
    }

    async fn failed(mut self, after: Duration) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let SourceSettings { attempts, hold_at_most, retry_queue, .. } = &shared.settings;
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
                self.tell(BrokerVerdict::Ack).await
            }
            Err(error) => {
                tracing::warn!(source = %shared.settings.name, error = error.what(), "retry queue unavailable, delivery held");
                self.hold(*hold_at_most);
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
        self.tell(verdict).await
    }
}
