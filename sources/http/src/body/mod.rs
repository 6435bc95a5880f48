//! Reads bodies of untrusted clients within limits of size, time and memory. Tests: below and tests/limits.rs.

mod digests;
mod unverified;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::EXPECT;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};

use crate::problem::{ProblemType, RequestProblem};
pub(crate) use digests::DigestTurns;
pub(crate) use unverified::{UnverifiedPool, UnverifiedShare};

/// Limits on the memory and time of bodies, for all endpoints together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BodyLimits {
    /// Maximum bytes of one body. An endpoint may set less. Default: 4 MiB.
    pub max: usize,
    /// Maximum time from the first byte of a body to its last. Default: 30 seconds.
    pub timeout: Duration,
    /// Maximum pause of a sender within a body. Default: 10 seconds.
    pub pause: Duration,
    /// Maximum bytes of all bodies of verified senders that are being read or stored. Beyond that, senders get 503 and
    /// retry. Bodies of more than 64 KiB may take half of it. Default: 256 MiB.
    pub in_flight: usize,
    /// Maximum bytes of all requests that are read to verify their senders: requests with a signature, and requests to
    /// open endpoints. If it is full, the pool evicts from the largest connection. Default: 64 MiB.
    pub unverified: usize,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self {
            max: 4 << 20,
            timeout: Duration::from_secs(30),
            pause: Duration::from_secs(10),
            in_flight: 256 << 20,
            unverified: 64 << 20,
        }
    }
}

/// Bytes in memory for bodies. Counts bytes as they arrive. An announced length costs nothing, so it reserves nothing.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicUsize,
    /// The part of them in large bodies.
    large: AtomicUsize,
    max: usize,
}

/// The largest body that is not large.
pub(crate) const SMALL: usize = 64 << 10;
/// Maximum time to read the rest of a small body of a refused request, so that its sender reads the answer.
const REST: Duration = Duration::from_millis(250);

impl Budget {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), large: AtomicUsize::new(0), max })
    }
}

/// A part of the budget. Dropping it returns the bytes.
#[derive(Debug)]
pub(crate) struct BudgetShare {
    budget: Arc<Budget>,
    bytes: usize,
}

impl BudgetShare {
    pub(crate) fn none(budget: &Arc<Budget>) -> Self {
        Self { budget: Arc::clone(budget), bytes: 0 }
    }

    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), RequestProblem> {
        let Budget { used, large, max } = &*self.budget;
        let all = self.bytes + bytes;
        // A body that becomes large counts as large from its first byte.
        let more = if all <= SMALL { 0 } else { all - if self.bytes <= SMALL { 0 } else { self.bytes } };
        if !add(large, more, max / 2) {
            return Err(no_room());
        }
        if !add(used, bytes, *max) {
            large.fetch_sub(more, Ordering::Relaxed);
            return Err(no_room());
        }
        self.bytes = all;
        Ok(())
    }
}

/// Adds to a counter, unless the sum exceeds `max`.
fn add(counter: &AtomicUsize, bytes: usize, max: usize) -> bool {
    let add = |used: usize| used.checked_add(bytes).filter(|sum| bytes == 0 || *sum <= max);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}

fn no_room() -> RequestProblem {
    RequestProblem::new(ProblemType::Unavailable, "too many messages are being taken in")
}

/// Returns the problem for an unverified sender while the pool is full.
pub(crate) fn no_room_for_unverified() -> RequestProblem {
    RequestProblem::new(ProblemType::Unavailable, "too many requests wait to be verified")
}

/// The account for the bytes of a body while it is read.
pub(crate) enum Holding<'a> {
    Verified(&'a mut BudgetShare),
    Unverified(&'a mut UnverifiedShare),
}

impl Holding<'_> {
    fn grow(&mut self, bytes: usize) -> Result<(), RequestProblem> {
        match self {
            Self::Verified(share) => share.grow(bytes),
            Self::Unverified(share) => share.grow(bytes).then_some(()).ok_or_else(no_room_for_unverified),
        }
    }

    /// Waits until the pool evicts the body.
    async fn evicted(&mut self) {
        match self {
            Self::Verified(_) => std::future::pending().await,
            Self::Unverified(share) => share.evicted().await,
        }
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
        if self.bytes > SMALL {
            self.budget.large.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// Reads a body within its limits, of at most `max` bytes.
pub(crate) async fn read(
    mut body: Body,
    headers: &HeaderMap,
    max: usize,
    limits: &BodyLimits,
    mut holding: Holding<'_>,
) -> Result<Bytes, RequestProblem> {
    let announced = announced(headers);
    if announced.is_some_and(|len| len > max as u64) {
        return Err(too_large(max));
    }
    let end = Instant::now() + limits.timeout;
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    let mut len = 0;
    loop {
        let frame = tokio::select! {
            biased;
            frame = timeout_at(end.min(Instant::now() + limits.pause), body.frame()) => frame,
            () = holding.evicted() => return Err(no_room_for_unverified()),
        };
        let frame =
            frame.map_err(|_| RequestProblem::new(ProblemType::Timeout, "the body did not come in time"))?;
        let Some(frame) = frame else { break };
        let frame = frame
            .map_err(|_| RequestProblem::new(ProblemType::Malformed, "the body ended before it was whole"))?;
        // Trailers are ignored.
        let Ok(data) = frame.into_data() else { continue };
        len += data.len();
        if len > max {
            return Err(too_large(max));
        }
        holding.grow(data.len())?;
        match &first {
            None => first = Some(data),
            Some(start) => {
                if rest.is_empty() {
                    rest.extend_from_slice(start);
                }
                rest.extend_from_slice(&data);
            }
        }
    }
    // Most bodies come in one piece and are not copied.
    Ok(if rest.is_empty() { first.unwrap_or_default() } else { rest.freeze() })
}

/// Reads the rest of a small unwanted body, and drops it. A client that still writes when the server closes the
/// connection may lose the response.
pub(crate) async fn discard(mut body: Body, headers: &HeaderMap) {
    // A client that waits for `100 Continue` sends no body.
    if headers.contains_key(EXPECT) || announced(headers).is_some_and(|len| len > SMALL as u64) {
        return;
    }
    let end = Instant::now() + REST;
    let mut left = SMALL;
    while let Ok(Some(Ok(frame))) = timeout_at(end, body.frame()).await {
        let Some(rest) = left.checked_sub(frame.data_ref().map_or(1, Bytes::len)) else { return };
        left = rest;
    }
}

fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(http::header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

pub(crate) fn too_large(max: usize) -> RequestProblem {
    RequestProblem::new(ProblemType::TooLarge, format!("the body has more than {max} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // FAULTS A18: bytes in memory are bounded, and returned.
    #[test]
    fn the_budget_is_shared_and_given_back() {
        let budget = Budget::new(10);
        let (mut one, mut other) = (BudgetShare::none(&budget), BudgetShare::none(&budget));
        assert!(one.grow(6).is_ok() && other.grow(4).is_ok());
        assert_eq!(other.grow(1).unwrap_err().status().as_u16(), 503);
        drop(one);
        assert!(other.grow(6).is_ok());
        drop(other);
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }

    // FAULTS S5: untrusted clients with large bodies do not keep small ones out.
    #[test]
    fn large_bodies_have_half_of_it() {
        let budget = Budget::new(4 * SMALL);
        let shares = || (BudgetShare::none(&budget), BudgetShare::none(&budget), BudgetShare::none(&budget));
        let (mut large, mut another, mut small) = shares();
        assert!(large.grow(SMALL).is_ok() && large.grow(SMALL).is_ok());
        assert!(large.grow(1).is_err(), "that is half of all");
        assert!(another.grow(SMALL).is_ok() && another.grow(1).is_err(), "it would be large");
        assert!(small.grow(SMALL).is_ok());
        assert!(small.grow(0).is_ok() && BudgetShare::none(&budget).grow(1).is_err(), "all of it is used");
        drop(large);
        assert!(another.grow(1).is_ok());
        drop((another, small));
        assert_eq!((budget.used.load(Ordering::Relaxed), budget.large.load(Ordering::Relaxed)), (0, 0));
    }
}
