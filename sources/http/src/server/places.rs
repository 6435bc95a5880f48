//! Counts connections by client address. Tests: below and tests/limits.rs.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// Connections by address.
#[derive(Debug, Default)]
pub(super) struct ConnectionSlots(Mutex<HashMap<IpAddr, usize>>);

/// The slot of one connection; freed when dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    places: Arc<ConnectionSlots>,
    address: IpAddr,
}

impl ConnectionSlots {
    /// Takes a slot for one more connection from `address`, if it has fewer than `max`.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr, max: usize) -> Option<ConnectionSlot> {
        let address = network(address);
        let mut places = self.0.lock();
        let count = places.entry(address).or_default();
        // An entry is only ever left at zero by a limit of zero.
        if *count >= max {
            return None;
        }
        *count += 1;
        drop(places);
        Some(ConnectionSlot { places: Arc::clone(self), address })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut places = self.places.0.lock();
        if let Some(count) = places.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                places.remove(&self.address);
            }
        }
    }
}

/// The address that counts for limits: a client with a network of IPv6 has all its addresses.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_by_address_and_given_back() {
        let places = Arc::new(ConnectionSlots::default());
        let take = |address: &str| places.take(address.parse().unwrap(), 2);
        let held = [take("10.0.0.1"), take("::ffff:10.0.0.1"), take("10.0.0.2"), take("2001:db8::1")];
        assert!(held.iter().all(Option::is_some));
        assert!(take("10.0.0.1").is_none());
        let second = take("2001:db8::2:1");
        assert!(second.is_some() && take("2001:db8::3").is_none() && take("2001:db8:0:1::3").is_some());
        drop(held);
        drop(second);
        assert!(take("10.0.0.1").is_some());
        assert!(places.0.lock().is_empty());
    }
}
