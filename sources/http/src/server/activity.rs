//! State of a connection: its open requests, and the time of its last change.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::Version;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::ServerLimits;

/// Time in which a new connection without a request may still make one.
const NEW: Duration = Duration::from_secs(1);

/// State of one connection. Its reader, its responses and its watchdog write it.
#[derive(Debug)]
pub(super) struct Activity {
    start: Instant,
    requests: AtomicUsize,
    resets: AtomicUsize,
    max_resets: usize,
    /// True after the first request has begun.
    served: AtomicBool,
    http2: AtomicBool,
    /// True after the first request with success.
    proven: AtomicBool,
    /// Answers that wait because their senders have not proven who they are.
    waiting: AtomicUsize,
    /// Milliseconds from the start, plus one; zero for never.
    idle_since: AtomicU64,
    /// When bytes came first that are not part of a request yet.
    head_since: AtomicU64,
    /// Answers that the client of HTTP/2 has to make room for, and since when, by the number of their request.
    unsent: Mutex<HashMap<usize, u64>>,
    /// Requests so far.
    begun: AtomicUsize,
    pub(super) too_many_resets: Notify,
    /// Tells the connection to close: another one needs its place.
    pub(super) evicted: Notify,
}

impl Activity {
    pub(super) fn new(max_resets: usize) -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            requests: AtomicUsize::new(0),
            resets: AtomicUsize::new(0),
            max_resets,
            served: AtomicBool::new(false),
            http2: AtomicBool::new(false),
            proven: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            idle_since: AtomicU64::new(1),
            head_since: AtomicU64::new(0),
            unsent: Mutex::default(),
            begun: AtomicUsize::new(0),
            too_many_resets: Notify::new(),
            evicted: Notify::new(),
        })
    }

    /// Returns true if a sender on it was verified.
    pub(super) fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    /// Returns true if no request is open.
    pub(super) fn is_idle(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 0
    }

    /// Returns the rank in which it gives way while it is unproven: the greatest first. That is a connection that has
    /// been silent for long, then one with many open requests, then a new one, then one that waits for its first
    /// answer.
    pub(super) fn nuisance(&self) -> (u8, usize) {
        let requests = self.requests.load(Ordering::Relaxed);
        match requests {
            0 if self.idle_since().elapsed() > NEW => (3, 0),
            0 => (1, 0),
            1 => (0, 0),
            _ => (2, requests),
        }
    }

    /// When the last request ended, or the connection began.
    pub(super) fn idle_since(&self) -> Instant {
        self.at(self.idle_since.load(Ordering::Relaxed))
    }

    /// Makes the connection close.
    pub(super) fn evict(&self) {
        self.evicted.notify_one();
    }

    fn at(&self, millis: u64) -> Instant {
        self.start + Duration::from_millis(millis.saturating_sub(1))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    /// Notes that bytes came.
    pub(super) fn read(&self) {
        // In HTTP/2 bytes come all the time that are part of no request.
        let between = self.requests.load(Ordering::Relaxed) == 0 && !self.http2.load(Ordering::Relaxed);
        if between && self.head_since.load(Ordering::Relaxed) == 0 {
            self.head_since.store(self.now(), Ordering::Relaxed);
        }
    }

    /// When the connection is over unless something happens; `None` while a request is open and not answered.
    pub(super) fn deadline(&self, limits: &ServerLimits) -> Option<Instant> {
        let at = |millis: u64, wait: Duration| self.at(millis) + wait;
        if self.requests.load(Ordering::Relaxed) > 0 {
            return self.unsent.lock().values().min().map(|since| at(*since, limits.write));
        }
        if !self.served.load(Ordering::Relaxed) {
            return Some(at(1, limits.head));
        }
        let idle = at(self.idle_since.load(Ordering::Relaxed), limits.idle);
        Some(match self.head_since.load(Ordering::Relaxed) {
            0 => idle,
            head => idle.min(at(head, limits.head)),
        })
    }
}

/// An open request: until its answer is sent or given up.
#[derive(Debug)]
pub(super) struct OpenRequest {
    activity: Arc<Activity>,
    answered: bool,
    number: usize,
    http2: bool,
}

impl OpenRequest {
    pub(super) fn new(activity: &Arc<Activity>, version: Version) -> Self {
        activity.served.store(true, Ordering::Relaxed);
        let http2 = version == Version::HTTP_2;
        activity.http2.store(http2, Ordering::Relaxed);
        activity.requests.fetch_add(1, Ordering::Relaxed);
        let number = activity.begun.fetch_add(1, Ordering::Relaxed);
        Self { activity: Arc::clone(activity), answered: false, number, http2 }
    }

    pub(super) fn answered(&mut self) {
        self.answered = true;
        self.waits_for_client(true);
    }

    /// Returns true if requests share the connection.
    pub(super) fn is_http2(&self) -> bool {
        self.http2
    }

    /// Returns true if a sender on its connection was verified.
    pub(super) fn is_proven(&self) -> bool {
        self.activity.is_proven()
    }

    /// Notes that a request had success.
    pub(super) fn proven(&self) {
        // Most connections know it already; only reading leaves the others their copy of it.
        if !self.activity.is_proven() {
            self.activity.proven.store(true, Ordering::Relaxed);
        }
    }

    /// Lets this answer wait, until what is returned is dropped. If the connection also serves senders that are verified, as that
    /// of a proxy does, half of its requests stay free.
    pub(super) fn wait(&self, streams: u32) -> Option<WaitingAnswer<'_>> {
        let activity = &*self.activity;
        let waiting = WaitingAnswer(activity);
        let before = activity.waiting.fetch_add(1, Ordering::Relaxed);
        let half = usize::try_from(streams / 2).unwrap_or(usize::MAX).max(1);
        (!activity.is_proven() || before < half).then_some(waiting)
    }

    /// Notes whether it is the client that has to make room for more of the answer, from now on. In HTTP/1 it is the
    /// socket that tells.
    pub(super) fn waits_for_client(&self, waits: bool) {
        if self.http2 {
            let mut unsent = self.activity.unsent.lock();
            if waits {
                unsent.insert(self.number, self.activity.now());
            } else {
                unsent.remove(&self.number);
            }
        }
    }
}

/// An answer that waits.
#[derive(Debug)]
pub(super) struct WaitingAnswer<'a>(&'a Activity);

impl Drop for WaitingAnswer<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.waits_for_client(false);
        let activity = &self.activity;
        activity.idle_since.store(activity.now(), Ordering::Relaxed);
        activity.head_since.store(0, Ordering::Relaxed);
        activity.requests.fetch_sub(1, Ordering::Relaxed);
        if !self.answered && activity.resets.fetch_add(1, Ordering::Relaxed) >= activity.max_resets {
            activity.too_many_resets.notify_one();
        }
    }
}

#[cfg(test)]
impl Activity {
    pub(super) fn prove(&self) {
        self.proven.store(true, Ordering::Relaxed);
    }

    pub(super) fn open(self: &Arc<Self>) -> OpenRequest {
        OpenRequest::new(self, Version::HTTP_11)
    }
}
