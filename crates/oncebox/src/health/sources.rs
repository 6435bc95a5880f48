//! What the sources of a running inbox do.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Check, HealthStatus, Subject};
use crate::name::InboxName;
use crate::observe::{emit, names};
use crate::source::{BrokerLink, Source};

#[derive(Default)]
struct Inner {
    /// Deliveries that are not settled with the broker.
    in_hand: usize,
    /// Those of them that cannot be stored, and since when there are any.
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

    /// It receives, from the beginning or again.
    pub(crate) fn receives(&self) {
        let mut inner = self.inner.lock();
        (inner.failing, inner.over) = (false, false);
    }

    /// It has nothing more to bring, and never will.
    pub(crate) fn is_over(&self) {
        self.inner.lock().over = true;
    }

    /// Receiving from it failed; it is begun again.
    pub(crate) fn failed(&self) {
        self.inner.lock().failing = true;
    }

    /// A delivery came; it is in hand until the guard is dropped.
    pub(crate) fn take(self: &Arc<Self>) -> InHand {
        self.change(|inner| inner.in_hand += 1);
        InHand { source: Arc::clone(self), ack: "none", held: false }
    }

    /// How many more deliveries may be taken, if at most `limit` are to be in hand.
    pub(crate) fn room(&self, limit: usize) -> usize {
        limit.saturating_sub(self.inner.lock().in_hand)
    }

    /// Completes when none is in hand.
    pub(crate) async fn has_none(&self) {
        while self.inner.lock().in_hand > 0 {
            self.less.notified().await;
        }
    }

    /// Completes when there is room for one.
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
        emit::set_number(names::DELIVERIES_IN_HAND, in_hand, [emit::inbox(&self.inbox), source]);
    }

    pub(super) fn check(&self, now: Duration) -> Check {
        let inner = self.inner.lock();
        let in_hand = inner.in_hand;
        let (status, detail) = if let (Some(since), held) = (inner.held_since, inner.held) {
            let seconds = now.saturating_sub(since).as_secs();
            (
                HealthStatus::Degraded,
                format!("holds {held} deliveries that cannot be stored, for {seconds} s"),
            )
        } else if inner.failing {
            (HealthStatus::Degraded, "receiving failed and begins again".into())
        } else if inner.over {
            (HealthStatus::Degraded, "it is over: nothing more is received".into())
        } else if let Some(trouble) = self.link.trouble() {
            (HealthStatus::Degraded, format!("not receiving: {trouble}"))
        } else {
            (HealthStatus::Healthy, format!("receives; {in_hand} deliveries in hand"))
        };
        Check::new(Subject::Source, &*self.name, status, detail)
    }
}

/// A delivery in hand.
pub(crate) struct InHand {
    source: Arc<SourceState>,
    ack: &'static str,
    held: bool,
}

impl InHand {
    /// It cannot be stored now; it is held until it can.
    pub(crate) fn held(&mut self, now: Duration) {
        if !self.held {
            self.held = true;
            let mut inner = self.source.inner.lock();
            inner.held += 1;
            inner.held_since.get_or_insert(now);
        }
    }

    /// It is not held any more.
    pub(crate) fn let_go(&mut self) {
        if std::mem::take(&mut self.held) {
            let mut inner = self.source.inner.lock();
            inner.held -= 1;
            if inner.held == 0 {
                inner.held_since = None;
            }
        }
    }

    /// The broker was told.
    pub(crate) fn told(&mut self, ack: &'static str) {
        self.ack = ack;
    }
}

impl Drop for InHand {
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
