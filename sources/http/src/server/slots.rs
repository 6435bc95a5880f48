//! Counts connections by client address, and chooses the one to close for a new one. Tests: below, and
//! `tests/limits.rs`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::ServerLimits;
use super::activity::Activity;

/// Connections by address.
#[derive(Debug, Default)]
pub(super) struct ConnectionSlots {
    held: Mutex<HeldSlots>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct HeldSlots {
    next: u64,
    count: usize,
    /// Connections from other machines.
    remote: usize,
    /// By age.
    addresses: HashMap<IpAddr, BTreeMap<u64, Arc<Activity>>>,
}

/// The slot of one connection. Dropping it frees the slot.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    address: IpAddr,
    number: u64,
}

/// Reason why there is no slot.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoSlot {
    /// No slot until a connection ends or becomes idle.
    Now,
    /// No slot for this address.
    ForAddress,
}

impl ConnectionSlots {
    /// Takes a slot for one more connection from `address`. If there is none, another connection closes. Unproven
    /// connections close first, of the address with most of them, in the order of [`Activity::nuisance`]. If all are
    /// proven, the one idle for longest closes, of the address with most connections. A proven connection with an open
    /// request never closes.
    pub(super) fn take(
        self: &Arc<Self>,
        address: IpAddr,
        activity: &Arc<Activity>,
        limits: &ServerLimits,
    ) -> Result<ConnectionSlot, NoSlot> {
        let address = network(address);
        let local = address.is_loopback();
        let of_address = limits.connections_per_address + if local { limits.loopback } else { 0 };
        let of_remote = limits.connections.saturating_sub(limits.loopback);
        let mut held = self.held.lock();
        if held.addresses.get(&address).map_or(0, BTreeMap::len) >= of_address {
            held.give_way(|other| *other == address).ok_or(NoSlot::ForAddress)?;
        } else if !local && limits.loopback > 0 && held.remote >= of_remote {
            held.give_way(|other| !other.is_loopback()).ok_or(NoSlot::ForAddress)?;
        } else if held.count >= limits.connections {
            held.give_way(|_| true).ok_or(NoSlot::Now)?;
        }
        let number = held.next;
        held.next += 1;
        held.count += 1;
        held.remote += usize::from(!local);
        held.addresses.entry(address).or_default().insert(number, Arc::clone(activity));
        drop(held);
        Ok(ConnectionSlot { slots: Arc::clone(self), address, number })
    }

    /// Waits until a connection has ended.
    pub(super) async fn freed(&self) {
        self.freed.notified().await;
    }
}

impl HeldSlots {
    /// Closes one connection of the addresses that match `among`, if one may close.
    fn give_way(&mut self, among: impl Fn(&IpAddr) -> bool) -> Option<()> {
        let (address, number) = self.unproven(&among).or_else(|| self.idle(&among))?;
        self.remove(address, number)?.evict();
        Some(())
    }

    fn unproven(&self, among: impl Fn(&IpAddr) -> bool) -> Option<(IpAddr, u64)> {
        let of_address = |(address, held): (&IpAddr, &BTreeMap<u64, Arc<Activity>>)| {
            let unproven = held.iter().filter(|(_, activity)| !activity.is_proven());
            let ranks = unproven.map(|(number, activity)| (activity.nuisance(), Reverse(*number)));
            let (count, worst) =
                ranks.fold((0, None), |(count, worst), rank| (count + 1, worst.max(Some(rank))));
            Some((count, worst?, *address))
        };
        let addresses = self.addresses.iter().filter(|(address, _)| among(address));
        addresses.filter_map(of_address).max().map(|(_, (_, Reverse(number)), address)| (address, number))
    }

    fn idle(&self, among: impl Fn(&IpAddr) -> bool) -> Option<(IpAddr, u64)> {
        let of_address = |(address, held): (&IpAddr, &BTreeMap<u64, Arc<Activity>>)| {
            let idle = held.iter().filter(|(_, activity)| activity.is_idle());
            let since = idle.map(|(number, activity)| (activity.idle_since(), *number)).min()?;
            Some((held.len(), Reverse(since), *address))
        };
        let addresses = self.addresses.iter().filter(|(address, _)| among(address));
        addresses.filter_map(of_address).max().map(|(_, Reverse((_, number)), address)| (address, number))
    }

    fn remove(&mut self, address: IpAddr, number: u64) -> Option<Arc<Activity>> {
        let held = self.addresses.get_mut(&address)?;
        let activity = held.remove(&number)?;
        if held.is_empty() {
            self.addresses.remove(&address);
        }
        self.count -= 1;
        self.remote -= usize::from(!address.is_loopback());
        Some(activity)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        // An evicted connection has left already.
        self.slots.held.lock().remove(self.address, self.number);
        self.slots.freed.notify_one();
    }
}

/// Returns the address that counts for limits: an IPv6 client owns all addresses of its network.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if address.is_loopback() => address.into(),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(connections: usize, per_address: usize, loopback: usize) -> ServerLimits {
        let mut limits = ServerLimits::default();
        (limits.connections, limits.connections_per_address, limits.loopback) =
            (connections, per_address, loopback);
        limits
    }

    /// A connection from an address, with its activity.
    struct Connected {
        slot: Result<ConnectionSlot, NoSlot>,
        activity: Arc<Activity>,
    }

    impl Connected {
        fn has_given_way(&self) -> bool {
            let slot = self.slot.as_ref().unwrap();
            let held = slot.slots.held.lock();
            held.addresses.get(&slot.address).is_none_or(|held| !held.contains_key(&slot.number))
        }
    }

    fn connect(slots: &Arc<ConnectionSlots>, limits: &ServerLimits, address: &str) -> Connected {
        let activity = Activity::new(1);
        let slot = slots.take(address.parse().unwrap(), &activity, limits);
        Connected { slot, activity }
    }

    #[test]
    fn slots_are_counted_by_address_and_released() {
        let (slots, limits) = (Arc::new(ConnectionSlots::default()), limits(10, 2, 0));
        let connect = |address: &str| connect(&slots, &limits, address);
        let held = ["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2", "2001:db8::1"].map(connect);
        assert!(connect("10.0.0.1").slot.is_ok() && held[0].has_given_way() && !held[1].has_given_way());
        let second = connect("2001:db8::2:1");
        assert!(connect("2001:db8::3").slot.is_ok() && held[3].has_given_way());
        assert!(connect("2001:db8:0:1::3").slot.is_ok() && !second.has_given_way());
        drop((held, second));
        let held = slots.held.lock();
        assert_eq!((held.count, held.remote, held.addresses.len()), (0, 0, 0));
    }

    // FAULTS S5: untrusted clients make room for each other, and for verified ones.
    #[test]
    fn the_address_with_most_unproven_connections_gives_way() {
        let (slots, limits) = (Arc::new(ConnectionSlots::default()), limits(6, 5, 0));
        let connect = |address: &str| connect(&slots, &limits, address);
        let senders = [connect("10.0.0.1"), connect("10.0.0.1"), connect("10.0.0.1")];
        for sender in &senders {
            sender.activity.prove();
        }
        let mut strangers = vec![connect("10.0.0.2"), connect("10.0.0.2"), connect("10.0.0.3")];
        let _open = strangers[0].activity.open();
        strangers.push(connect("10.0.0.4"));
        assert!(strangers[1].has_given_way(), "one without a request");
        strangers.push(connect("10.0.0.4"));
        assert!(strangers[2].has_given_way(), "the oldest without a request");
        let _more = [strangers[0].activity.open(), strangers[4].activity.open()];
        strangers.push(connect("10.0.0.5"));
        assert!(strangers[3].has_given_way(), "of the address with most of them");
        strangers.push(connect("10.0.0.6"));
        assert!(strangers[0].has_given_way(), "the others have one request, or none");
        assert!(!senders.iter().any(Connected::has_given_way));
        assert!(strangers.iter().all(|stranger| stranger.slot.is_ok()));
    }

    #[test]
    fn those_at_work_stay() {
        let (slots, limits) = (Arc::new(ConnectionSlots::default()), limits(2, 2, 0));
        let connect = |address: &str| connect(&slots, &limits, address);
        let (first, second) = (connect("10.0.0.1"), connect("10.0.0.1"));
        let open = [&first, &second].map(|sender| {
            sender.activity.prove();
            sender.activity.open()
        });
        assert_eq!(connect("10.0.0.1").slot.unwrap_err(), NoSlot::ForAddress);
        assert_eq!(connect("10.0.0.2").slot.unwrap_err(), NoSlot::Now);
        drop(open);
        assert!(connect("10.0.0.2").slot.is_ok() && first.has_given_way() && !second.has_given_way());
    }

    #[test]
    fn some_slots_are_for_this_machine() {
        let (slots, limits) = (Arc::new(ConnectionSlots::default()), limits(4, 4, 1));
        let connect = |address: &str| connect(&slots, &limits, address);
        let remote = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(connect);
        let open = remote.each_ref().map(|one| {
            one.activity.prove();
            one.activity.open()
        });
        assert_eq!(connect("10.0.0.4").slot.unwrap_err(), NoSlot::ForAddress);
        let probe = connect("127.0.0.1");
        assert!(probe.slot.is_ok());
        drop(open);
        assert!(connect("10.0.0.4").slot.is_ok() && remote[0].has_given_way());
        assert!(!probe.has_given_way());
    }
}
