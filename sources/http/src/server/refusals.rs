//! Slows down addresses whose requests fail to prove their sender. Tests: below, and tests/limits.rs.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::slots::network;

/// Marks the response to an unproven sender, in its extensions. The [`Server`](super::Server) counts and delays such
/// responses. Responses with the status 401 need no mark.
#[derive(Clone, Copy, Debug)]
pub struct Unproven;

/// Marks a response that every client gets, such as that to a probe, in its extensions. Its success does not prove the
/// sender. A full [`Server`](super::Server) closes unproven connections first.
#[derive(Clone, Copy, Debug)]
pub struct Anonymous;

/// Marks a request, in its extensions, if its address has used up its [refusals](super::ServerLimits::refusals) and no
/// request on its connection has proven a sender. A router that checks tokens returns 429 without a look at the token: then
/// the address can try ten tokens a second, on any number of connections. A router that checks signatures may ignore the
/// mark.
#[derive(Clone, Copy, Debug)]
pub struct TooManyRefusals;

/// Time until one refusal is forgiven.
const INTERVAL: Duration = Duration::from_millis(100);
/// Maximum delay of a response.
const LONGEST: Duration = Duration::from_secs(5);
/// Maximum remembered addresses.
const ADDRESSES: usize = 16_384;
/// Maximum addresses that one refusal checks to make room for a new one.
const CHECKED: usize = 8;

/// Refused requests, by address.
#[derive(Debug)]
pub(super) struct Refusals {
    /// Refusals without delay, as the time in which they are forgiven.
    burst: Duration,
    /// Delayed HTTP/1 responses per address: each keeps a connection.
    waiting: usize,
    addresses: Mutex<RefusedAddresses>,
}

#[derive(Debug, Default)]
struct RefusedAddresses {
    refused: HashMap<IpAddr, RefusedAddress>,
    /// Each remembered address once: the next ones to forget.
    order: VecDeque<IpAddr>,
}

#[derive(Clone, Copy, Debug)]
struct RefusedAddress {
    /// Time at which all refusals so far are forgiven.
    forgiven: Instant,
    waiting: usize,
}

/// The decision on the response to a refused request.
#[derive(Debug)]
pub(super) enum RefusalVerdict {
    /// Send it at once.
    Now,
    /// Send it after a delay.
    Later(RefusalWait),
    /// Send 429 instead, and close a connection of HTTP/1.
    TooMany,
}

/// The delay of one response.
#[derive(Debug)]
pub(super) struct RefusalWait {
    pub(super) wait: Duration,
    /// The address whose slot it holds. Dropping it frees the slot.
    slot: Option<(Arc<Refusals>, IpAddr)>,
}

impl RefusedAddresses {
    /// Returns the state of an address. If there is no room, forgets one of the next few: a forgiven one, or the one with the
    /// fewest refusals. Returns `None` if all of them have delayed responses.
    fn remember(&mut self, address: IpAddr, now: Instant) -> Option<&mut RefusedAddress> {
        if !self.refused.contains_key(&address) {
            if self.refused.len() >= ADDRESSES {
                self.forget()?;
            }
            self.order.push_back(address);
        }
        Some(self.refused.entry(address).or_insert(RefusedAddress { forgiven: now, waiting: 0 }))
    }

    fn forget(&mut self) -> Option<()> {
        let next = self.order.iter().take(CHECKED).enumerate();
        let states = next.filter_map(|(at, address)| Some((at, self.refused.get(address)?)));
        let least = states.filter(|(_, state)| state.waiting == 0).min_by_key(|(_, state)| state.forgiven);
        let least = least.map(|(at, _)| at);
        if let Some(address) = least.and_then(|at| self.order.remove(at)) {
            self.refused.remove(&address);
        }
        // The others get their next turn after all addresses.
        let checked = CHECKED.min(self.order.len()) - usize::from(least.is_some());
        self.order.rotate_left(checked);
        least.map(|_| ())
    }
}

impl Refusals {
    pub(super) fn new(burst: u32, waiting: usize) -> Arc<Self> {
        Arc::new(Self { burst: INTERVAL.saturating_mul(burst), waiting, addresses: Mutex::default() })
    }

    /// Returns true if a further refusal of the address would not be delayed any longer.
    pub(super) fn used_up(&self, address: IpAddr, now: Instant) -> bool {
        let addresses = self.addresses.lock();
        let Some(refused) = addresses.refused.get(&network(address)) else { return false };
        refused.waiting >= self.waiting.max(1) || refused.forgiven + INTERVAL > now + self.burst + LONGEST
    }

    /// Records a refusal; returns the decision on its response.
    pub(super) fn refuse(
        self: &Arc<Self>,
        address: IpAddr,
        now: Instant,
        keeps_connection: bool,
    ) -> RefusalVerdict {
        let address = network(address);
        let mut addresses = self.addresses.lock();
        let Some(refused) = addresses.remember(address, now) else { return RefusalVerdict::TooMany };
        // An address owes at most the longest delay.
        refused.forgiven = (refused.forgiven.max(now) + INTERVAL).min(now + self.burst + LONGEST);
        let wait = (refused.forgiven - now).checked_sub(self.burst).filter(|wait| !wait.is_zero());
        let Some(wait) = wait else { return RefusalVerdict::Now };
        if !keeps_connection {
            return RefusalVerdict::Later(RefusalWait { wait, slot: None });
        }
        if refused.waiting >= self.waiting {
            return RefusalVerdict::TooMany;
        }
        refused.waiting += 1;
        RefusalVerdict::Later(RefusalWait { wait, slot: Some((Arc::clone(self), address)) })
    }
}

impl Drop for RefusalWait {
    fn drop(&mut self) {
        let Some((refusals, address)) = &self.slot else { return };
        if let Some(refused) = refusals.addresses.lock().refused.get_mut(address) {
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
        let wait = |address, at: u64| match refusals.refuse(address, start + Duration::from_millis(at), false)
        {
            RefusalVerdict::Now => 0,
            RefusalVerdict::Later(wait) => wait.wait.as_millis(),
            RefusalVerdict::TooMany => panic!("it keeps no connection"),
        };
        let used_up = |at: u64| refusals.used_up(ONE, start + Duration::from_millis(at));
        assert_eq!([0; 5].map(|_| wait(ONE, 0)), [0, 0, 0, 100, 200]);
        assert_eq!(wait(OTHER, 0), 0, "another address");
        assert_eq!(wait(ONE, 200), 100, "two are forgiven");
        assert!(!used_up(200));
        assert_eq!((0..100).fold(0, |_, _| wait(ONE, 200)), 5_000, "no longer than that");
        assert!(used_up(200) && used_up(299) && !used_up(300), "then one more each interval");
        assert_eq!(wait(ONE, 5_600), 0, "all is forgiven");
    }

    // Refused requests must not use up the connections of an address, least of all behind a proxy.
    #[test]
    fn few_connections_are_kept_waiting() {
        let (refusals, now) = (Refusals::new(0, 2), Instant::now());
        let refuse = |keeps| refusals.refuse(ONE, now, keeps);
        let held = [refuse(true), refuse(true)];
        assert!(held.iter().all(|verdict| matches!(verdict, RefusalVerdict::Later(_))));
        assert!(matches!(refuse(true), RefusalVerdict::TooMany) && refusals.used_up(ONE, now));
        assert!(matches!(refuse(false), RefusalVerdict::Later(_)), "a request among others keeps nothing");
        drop(held);
        assert!(!refusals.used_up(ONE, now) && matches!(refuse(true), RefusalVerdict::Later(_)));
    }

    // FAULTS S5: an attacker with many addresses costs bounded memory, and bounded work for each refusal.
    #[test]
    fn what_is_remembered_is_bounded() {
        let (refusals, now) = (Refusals::new(0, 2), Instant::now());
        let held = refusals.refuse(ONE, now, true);
        for _ in 0..40 {
            let _ = refusals.refuse(OTHER, now, false);
        }
        for number in 0..2 * u32::try_from(ADDRESSES).unwrap() {
            let _ = refusals.refuse(IpAddr::from(number.to_be_bytes()), now, false);
        }
        {
            let addresses = refusals.addresses.lock();
            assert_eq!((addresses.refused.len(), addresses.order.len()), (ADDRESSES, ADDRESSES));
            assert_eq!(addresses.refused[&ONE].waiting, 1, "a response waits for it");
            assert!(
                addresses.refused[&OTHER].forgiven > now + LONGEST / 2,
                "it has more refusals than others"
            );
        }
        drop(held);
        assert_eq!(refusals.addresses.lock().refused[&ONE].waiting, 0);
    }
}
