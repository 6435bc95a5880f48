//! State of a connection: its open requests, and the time of its last change. Tests: tests/limits.rs.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::Version;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::ServerLimits;

/// Time for the first request of a new connection.
const NEW: Duration = Duration::from_secs(1);

/// State of one connection. Its reader, its responses and its watchdog update it.
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
    /// Responses that wait because their senders are unverified.
    waiting: AtomicUsize,
    /// Milliseconds from the start, plus one; zero for never.
    idle_since: AtomicU64,
    /// First time with bytes of an incomplete request.
    head_since: AtomicU64,
    /// Responses of HTTP/2 that wait for the client to make room, with the start of the wait, by request number.
    unsent: Mutex<HashMap<usize, u64>>,
    /// Requests so far.
    begun: AtomicUsize,
    pub(super) too_many_resets: Notify,
    /// Signals that the connection has to close for another one.
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

    /// Returns the eviction rank of an unproven connection, greatest first. The order: long idle connections,
    /// connections with many open requests, new ones, and connections that wait for their first response.
    pub(super) fn nuisance(&self) -> (u8, usize) {
        let requests = self.requests.load(Ordering::Relaxed);
        match requests {
            0 if self.idle_since().elapsed() > NEW => (3, 0),
            0 => (1, 0),
            1 => (0, 0),
            _ => (2, requests),
        }
    }

    /// Returns the end of the last request, or the start of the connection.
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

    /// Records that bytes arrived.
    pub(super) fn read(&self) {
        // In HTTP/2, many bytes belong to no request.
        let between = self.requests.load(Ordering::Relaxed) == 0 && !self.http2.load(Ordering::Relaxed);
        if between && self.head_since.load(Ordering::Relaxed) == 0 {
            self.head_since.store(self.now(), Ordering::Relaxed);
        }
    }

    /// Returns the time to close the connection if nothing happens; `None` while a request is open without a response.
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

/// An open request, until its response is sent or abandoned.
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

    /// Records a successful request.
    pub(super) fn proven(&self) {
        // Most connections are marked already. Reading first leaves the cache line shared.
        if !self.activity.is_proven() {
            self.activity.proven.store(true, Ordering::Relaxed);
        }
    }

    /// Delays this response until the returned value is dropped. If the connection also serves verified senders, as a
    /// proxy's does, half of its requests stay free.
    pub(super) fn wait(&self, streams: u32) -> Option<DelayedResponse<'_>> {
        let activity = &*self.activity;
        let waiting = DelayedResponse(activity);
        let before = activity.waiting.fetch_add(1, Ordering::Relaxed);
        let half = usize::try_from(streams / 2).unwrap_or(usize::MAX).max(1);
        (!activity.is_proven() || before < half).then_some(waiting)
    }

    /// Records whether the client has to make room for more of the response. In HTTP/1 the socket reports it.
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

/// A delayed response.
#[derive(Debug)]
pub(super) struct DelayedResponse<'a>(&'a Activity);

impl Drop for DelayedResponse<'_> {
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
