//! Slows down addresses whose requests fail to prove who sends them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::places::network;

/// Marks the answer to a request whose sender has not proven who it is. Answers with the status 401 need no mark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unproven;

/// Marks an answer that every client gets, like that to a probe, in its extensions: its success does not prove who the sender is. A
/// [`Server`](super::Server) without room closes connections whose senders have proven nothing before all others.
#[derive(Clone, Copy, Debug)]
pub struct Anonymous;

/// Time until one more refusal is forgiven.
const INTERVAL: Duration = Duration::from_millis(100);
/// The longest wait for an answer.
const LONGEST: Duration = Duration::from_secs(5);
/// Addresses that are remembered. A client with more addresses than this is not slowed down on the others.
const ADDRESSES: usize = 16_384;

/// Refused requests, by address.
#[derive(Debug)]
pub(super) struct Refusals {
    /// Refusals without delay, as the time that forgives them.
    burst: Duration,
    /// Answers of HTTP/1 that may wait for one address: each of them keeps a connection.
    waiting: usize,
    addresses: Mutex<HashMap<IpAddr, RefusedAddress>>,
}

#[derive(Debug)]
struct RefusedAddress {
    /// When all refusals so far are forgiven.
    forgiven: Instant,
    waiting: usize,
}

/// The wait of one answer.
#[derive(Debug)]
pub(super) struct RefusalWait {
    pub(super) wait: Duration,
    /// The address for which a place is taken; free again when dropped.
    place: Option<(Arc<Refusals>, IpAddr)>,
}

impl Refusals {
    pub(super) fn new(burst: u32, waiting: usize) -> Arc<Self> {
        Arc::new(Self { burst: INTERVAL.saturating_mul(burst), waiting, addresses: Mutex::default() })
    }

    /// Notes a refusal; returns how long its answer has to wait, if it has to.
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
        // No more than the longest wait is held against anyone.
        refused.forgiven = (refused.forgiven.max(now) + INTERVAL).min(now + self.burst + LONGEST);
        let wait = (refused.forgiven - now).checked_sub(self.burst).filter(|wait| !wait.is_zero())?;
        if !keeps_connection {
            return Some(RefusalWait { wait, place: None });
        }
        if refused.waiting >= self.waiting {
            return None;
        }
        refused.waiting += 1;
        Some(RefusalWait { wait, place: Some((Arc::clone(self), address)) })
    }
}

impl Drop for RefusalWait {
    fn drop(&mut self) {
        let Some((refusals, address)) = &self.place else { return };
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
