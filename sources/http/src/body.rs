//! Reading bodies that strangers send: not too much, not too slowly, and not all at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};

use crate::problem::{Cause, Problem};

/// What bodies may cost. These hold for all addresses together, known or not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BodyLimits {
    /// Bytes of one body. An endpoint may take less. Default 4 MiB.
    pub max: usize,
    /// How long a body may take from its first byte to its last. Default 30 seconds.
    pub timeout: Duration,
    /// How long a sender may pause within a body. Default 10 seconds.
    pub pause: Duration,
    /// Bytes of all bodies together that are being read or stored. Beyond that senders are told to come again. Bodies of
    /// more than 64 KiB may take half of it, so that they leave room for others. Default 256 MiB.
    pub in_flight: usize,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self {
            max: 4 << 20,
            timeout: Duration::from_secs(30),
            pause: Duration::from_secs(10),
            in_flight: 256 << 20,
        }
    }
}

/// How many bytes are in memory for bodies. Counted as they come, not as they are announced: an announcement costs
/// nothing, so it may not take anything from others.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicUsize,
    /// What of it large bodies have.
    large: AtomicUsize,
    max: usize,
}

/// The largest body that is not large. Nobody is verified before the body was read, so strangers can fill what large
/// bodies may have; to fill the rest they need as many connections as there are small bodies in it.
const SMALL: usize = 64 << 10;

impl Budget {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), large: AtomicUsize::new(0), max })
    }
}

/// A part of the budget; given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Share {
    pub(crate) fn none(budget: &Arc<Budget>) -> Self {
        Self { budget: Arc::clone(budget), bytes: 0 }
    }

    fn grow(&mut self, bytes: usize) -> Result<(), Problem> {
        let Budget { used, large, max } = &*self.budget;
        let all = self.bytes + bytes;
        // The moment a body is large, all of it is.
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

/// Adds to a counter, unless that would be too much.
fn add(counter: &AtomicUsize, bytes: usize, max: usize) -> bool {
    let add = |used: usize| used.checked_add(bytes).filter(|sum| bytes == 0 || *sum <= max);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}

fn no_room() -> Problem {
    Problem::new(Cause::Unavailable, "too many messages are being taken in")
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
        if self.bytes > SMALL {
            self.budget.large.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// Reads a body within its limits.
pub(crate) async fn read(
    mut body: Body,
    headers: &HeaderMap,
    limits: &BodyLimits,
    budget: &Arc<Budget>,
) -> Result<(Bytes, Share), Problem> {
    let announced = announced(headers);
    if announced.is_some_and(|len| len > limits.max as u64) {
        return Err(too_large(limits.max));
    }
    let mut share = Share::none(budget);
    let end = Instant::now() + limits.timeout;
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    loop {
        let frame = timeout_at(end.min(Instant::now() + limits.pause), body.frame()).await;
        let frame = frame.map_err(|_| Problem::new(Cause::Timeout, "the body did not come in time"))?;
        let Some(frame) = frame else { break };
        let frame =
            frame.map_err(|_| Problem::new(Cause::Malformed, "the body ended before it was whole"))?;
        // Trailers are of no use here.
        let Ok(data) = frame.into_data() else { continue };
        if share.bytes + data.len() > limits.max {
            return Err(too_large(limits.max));
        }
        share.grow(data.len())?;
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
    // Most bodies come in one piece, and are not copied.
    Ok((if rest.is_empty() { first.unwrap_or_default() } else { rest.freeze() }, share))
}

fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(http::header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

pub(crate) fn too_large(max: usize) -> Problem {
    Problem::new(Cause::TooLarge, format!("the body has more than {max} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // FAULTS A18: what is in memory is bounded, and comes back.
    #[test]
    fn the_budget_is_shared_and_given_back() {
        let budget = Budget::new(10);
        let (mut one, mut other) = (Share::none(&budget), Share::none(&budget));
        assert!(one.grow(6).is_ok() && other.grow(4).is_ok());
        assert_eq!(other.grow(1).unwrap_err().status().as_u16(), 503);
        drop(one);
        assert!(other.grow(6).is_ok());
        drop(other);
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }

    // FAULTS S5: strangers with large bodies do not keep small ones out.
    #[test]
    fn large_bodies_have_half_of_it() {
        let budget = Budget::new(4 * SMALL);
        let shares = || (Share::none(&budget), Share::none(&budget), Share::none(&budget));
        let (mut large, mut another, mut small) = shares();
        assert!(large.grow(SMALL).is_ok() && large.grow(SMALL).is_ok());
        assert!(large.grow(1).is_err(), "that is half of all");
        assert!(another.grow(SMALL).is_ok() && another.grow(1).is_err(), "it would be large");
        assert!(small.grow(SMALL).is_ok());
        assert!(small.grow(0).is_ok() && Share::none(&budget).grow(1).is_err(), "all of it is used");
        drop(large);
        assert!(another.grow(1).is_ok());
        drop((another, small));
        assert_eq!((budget.used.load(Ordering::Relaxed), budget.large.load(Ordering::Relaxed)), (0, 0));
    }
}
