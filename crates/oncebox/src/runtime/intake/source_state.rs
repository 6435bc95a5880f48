//! State of the sources of a running inbox. Tests: `tests/health.rs`.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::health::{Check, HealthStatus, Subject};
use crate::name::InboxName;
use crate::observe::{emit, names};
use crate::source::{BrokerLink, Source};

#[derive(Default)]
struct Inner {
    /// Deliveries that are not settled with the broker.
    in_hand: usize,
    /// Deliveries in hand that cannot be stored, and the time of the first.
    held: usize,
    held_since: Option<Duration>,
    failing: bool,
    over: bool,
}

/// A source and its deliveries.
pub(crate) struct SourceState {
    inbox: InboxName,
    name: Box<str>,
    link: BrokerLink,
    inner: Mutex<Inner>,
    less: Notify,
}

impl SourceState {
    pub(crate) fn new(inbox: &InboxName, source: &impl Source) -> Self {
        Self {
            inbox: inbox.clone(),
            name: source.name().into(),
            link: source.link(),
            inner: Mutex::default(),
            less: Notify::new(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Records that the source receives.
    pub(crate) fn receives(&self) {
        let mut inner = self.inner.lock();
        (inner.failing, inner.over) = (false, false);
    }

    /// Records that the source has ended.
    pub(crate) fn is_over(&self) {
        self.inner.lock().over = true;
    }

    /// Records that the receiver failed and will restart.
    pub(crate) fn failed(&self) {
        self.inner.lock().failing = true;
    }

    /// Records a delivery, which is in hand until the guard is dropped.
    pub(crate) fn take(self: &Arc<Self>) -> DeliveryInHand {
        self.change(|inner| inner.in_hand += 1);
        DeliveryInHand { source: Arc::clone(self), ack: "none", held: false }
    }

    /// Returns how many more deliveries fit, with at most `limit` in hand.
    pub(crate) fn room(&self, limit: usize) -> usize {
        limit.saturating_sub(self.inner.lock().in_hand)
    }

    pub(crate) async fn has_none(&self) {
        while self.inner.lock().in_hand > 0 {
            self.less.notified().await;
        }
    }

    pub(crate) async fn has_room(&self, limit: usize) {
        while self.room(limit) == 0 {
            self.less.notified().await;
        }
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        let in_hand = {
            let mut inner = self.inner.lock();
            change(&mut inner);
            inner.in_hand
        };
        let source = ("source", self.name.to_string().into());
        emit::set_number(names::DELIVERIES_IN_FLIGHT, in_hand, [emit::inbox(&self.inbox), source]);
    }

    pub(crate) fn check(&self, now: Duration) -> Check {
        let inner = self.inner.lock();
        let in_hand = inner.in_hand;
        let (status, detail) = if let (Some(since), held) = (inner.held_since, inner.held) {
            let seconds = now.saturating_sub(since).as_secs();
            (
                HealthStatus::Degraded,
                format!("holds {held} deliveries that cannot be stored, for {seconds} s"),
            )
        } else if inner.failing {
            (HealthStatus::Degraded, "receiver failed, restarting".into())
        } else if inner.over {
            (HealthStatus::Degraded, "ended: nothing more is received".into())
        } else if let Some(trouble) = self.link.trouble() {
            (HealthStatus::Degraded, format!("not receiving: {trouble}"))
        } else {
            (HealthStatus::Healthy, format!("receives; {in_hand} deliveries in hand"))
        };
        Check::new(Subject::Source, &*self.name, status, detail)
    }
}

/// A delivery in hand.
pub(crate) struct DeliveryInHand {
    source: Arc<SourceState>,
    ack: &'static str,
    held: bool,
}

impl DeliveryInHand {
    /// Records that the delivery cannot be stored now.
    pub(crate) fn held(&mut self, now: Duration) {
        if !self.held {
            self.held = true;
            let mut inner = self.source.inner.lock();
            inner.held += 1;
            inner.held_since.get_or_insert(now);
        }
    }

    /// Records that the delivery is no longer held.
    pub(crate) fn let_go(&mut self) {
        if std::mem::take(&mut self.held) {
            let mut inner = self.source.inner.lock();
            inner.held -= 1;
            if inner.held == 0 {
                inner.held_since = None;
            }
        }
    }

    /// Records the acknowledgement that the broker got.
    pub(crate) fn told(&mut self, ack: &'static str) {
        self.ack = ack;
    }
}

impl Drop for DeliveryInHand {
    fn drop(&mut self) {
        self.let_go();
        self.source.change(|inner| inner.in_hand -= 1);
        self.source.less.notify_one();
        let source = ("source", self.source.name.to_string().into());
        emit::count(
            names::DELIVERIES,
            1,
            [emit::inbox(&self.source.inbox), source, emit::word("ack", self.ack)],
        );
    }
}
