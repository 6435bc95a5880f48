//! Slows down addresses whose requests fail to prove their sender. Tests: below, and tests/limits.rs.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::slots::network;

/// Marks the response to an unproven sender. Responses with the status 401 need no mark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unproven;

/// Marks a response that every client gets, such as that to a probe, in its extensions. Its success does not prove the
/// sender. A full [`Server`](super::Server) closes unproven connections first.
#[derive(Clone, Copy, Debug)]
pub struct Anonymous;

/// Time until one refusal is forgiven.
const INTERVAL: Duration = Duration::from_millis(100);
/// Maximum delay of a response.
const LONGEST: Duration = Duration::from_secs(5);
/// Maximum remembered addresses. A client with more addresses is not slowed down on the others.
const ADDRESSES: usize = 16_384;

/// Refused requests, by address.
#[derive(Debug)]
pub(super) struct Refusals {
    /// Refusals without delay, as the time in which they are forgiven.
    burst: Duration,
    /// Delayed HTTP/1 responses per address: each keeps a connection.
    waiting: usize,
    addresses: Mutex<HashMap<IpAddr, RefusedAddress>>,
}

#[derive(Debug)]
struct RefusedAddress {
    /// Time at which all refusals so far are forgiven.
    forgiven: Instant,
    waiting: usize,
}

/// The delay of one response.
#[derive(Debug)]
pub(super) struct RefusalWait {
    pub(super) wait: Duration,
    /// The address whose slot it holds. Dropping it frees the slot.
    slot: Option<(Arc<Refusals>, IpAddr)>,
}

impl Refusals {
    pub(super) fn new(burst: u32, waiting: usize) -> Arc<Self> {
        Arc::new(Self { burst: INTERVAL.saturating_mul(burst), waiting, addresses: Mutex::default() })
    }

    /// Records a refusal; returns the delay of its response, if any.
    pub(super) fn refuse(
        self: &Arc<Self>,
        address: IpAddr,
        now: Instant,
        keeps_connection: bool,
    ) -> Option<RefusalWait> {
        let address = network(address);
        let mut addresses = self.addresses.lock();
        if addresses.len() >= ADDRESSES && !addresses.contains_key(&address) {
            addresses.retain(|_, refused| refused.waiting > 0 || refused.forgiven > now);
            if addresses.len() >= ADDRESSES {
                return None;
            }
        }
        let refused = addresses.entry(address).or_insert(RefusedAddress { forgiven: now, waiting: 0 });
        // An address owes at most the longest delay.
        refused.forgiven = (refused.forgiven.max(now) + INTERVAL).min(now + self.burst + LONGEST);
        let wait = (refused.forgiven - now).checked_sub(self.burst).filter(|wait| !wait.is_zero())?;
        if !keeps_connection {
            return Some(RefusalWait { wait, slot: None });
        }
        if refused.waiting >= self.waiting {
            return None;
        }
        refused.waiting += 1;
        Some(RefusalWait { wait, slot: Some((Arc::clone(self), address)) })
    }
}

impl Drop for RefusalWait {
    fn drop(&mut self) {
        let Some((refusals, address)) = &self.slot else { return };
        if let Some(refused) = refusals.addresses.lock().get_mut(address) {
            refused.waiting -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    // FAULTS S2: guesses become slow, and are forgiven.
    #[test]
    fn refusals_beyond_the_burst_wait_and_are_forgiven() {
        let (refusals, start) = (Refusals::new(3, 2), Instant::now());
        let wait = |address, at: u64| {
            let wait = refusals.refuse(address, start + Duration::from_millis(at), false);
            wait.map_or(0, |wait| wait.wait.as_millis())
        };
        assert_eq!([0; 5].map(|_| wait(ONE, 0)), [0, 0, 0, 100, 200]);
        assert_eq!(wait(OTHER, 0), 0, "another address");
        assert_eq!(wait(ONE, 200), 100, "two are forgiven");
        assert_eq!((0..100).fold(0, |_, _| wait(ONE, 200)), 5_000, "no longer than that");
        assert_eq!(wait(ONE, 5_600), 0, "all is forgiven");
    }

    // Refused requests must not use up the connections of an address, least of all behind a proxy.
    #[test]
    fn few_connections_are_kept_waiting() {
        let (refusals, now) = (Refusals::new(0, 2), Instant::now());
        let refuse = |keeps| refusals.refuse(ONE, now, keeps);
        let held = [refuse(true), refuse(true)];
        assert!(held.iter().all(Option::is_some) && refuse(true).is_none());
        assert!(refuse(false).is_some(), "a request among others keeps nothing");
        drop(held);
        assert!(refuse(true).is_some());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (refusals, now) = (Refusals::new(0, 2), Instant::now());
        for number in 0..2 * u32::try_from(ADDRESSES).unwrap() {
            let _ = refusals.refuse(IpAddr::from(number.to_be_bytes()), now, false);
        }
        assert_eq!(refusals.addresses.lock().len(), ADDRESSES);
        assert!(refusals.refuse(ONE, now + 2 * LONGEST, false).is_some(), "the old ones are forgotten");
        assert_eq!(refusals.addresses.lock().len(), 1);
    }
}
