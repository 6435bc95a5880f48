//! Pool for bodies of unverified senders, divided fairly among addresses and connections. Tests: below.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::server::network;

/// Smallest part of the pool per request, in bytes: its head and its task cost memory, too.
const LEAST: usize = 4 << 10;

/// Memory for requests that are read before their senders can be verified.
///
/// Verified senders have another budget, so unverified senders compete only with each other. If the pool is full, it
/// evicts the oldest body of the largest connection of the largest address. A sender with less than an equal share is
/// never evicted.
#[derive(Debug)]
pub(crate) struct UnverifiedPool {
    max: usize,
    held: Mutex<HeldBodies>,
}

/// A connection: its network, and its address with the port.
pub(crate) type PeerAddress = Option<SocketAddr>;

#[derive(Debug, Default)]
struct HeldBodies {
    bytes: usize,
    next: u64,
    networks: HashMap<Option<IpAddr>, HeldByNetwork>,
}

#[derive(Debug, Default)]
struct HeldByNetwork {
    bytes: usize,
    connections: HashMap<PeerAddress, HeldByConnection>,
}

#[derive(Debug, Default)]
struct HeldByConnection {
    bytes: usize,
    /// By age: bytes, and the sender that signals the eviction.
    bodies: BTreeMap<u64, (usize, oneshot::Sender<()>)>,
}

/// The part of the pool that one request holds. Dropping it returns the bytes.
#[derive(Debug)]
pub(crate) struct UnverifiedShare {
    pool: Arc<UnverifiedPool>,
    peer: PeerAddress,
    number: u64,
    needed: usize,
    charged: usize,
    evicted: oneshot::Receiver<()>,
}

impl UnverifiedPool {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, held: Mutex::default() })
    }

    /// Reserves room for a request with `bytes` in memory. Returns `None` if there is no room.
    pub(crate) fn enter(self: &Arc<Self>, peer: PeerAddress, bytes: usize) -> Option<UnverifiedShare> {
        let (give_way, evicted) = oneshot::channel();
        let mut held = self.held.lock();
        let number = held.next;
        held.next += 1;
        let entry = held.connection(peer).bodies.entry(number);
        entry.or_insert((0, give_way));
        drop(held);
        // Dropping it without room returns nothing.
        let mut share =
            UnverifiedShare { pool: Arc::clone(self), peer, number, needed: 0, charged: 0, evicted };
        share.grow(bytes).then_some(share)
    }

    /// Returns the bytes in use.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.held.lock().bytes
    }
}

impl UnverifiedShare {
    /// Reserves room for more bytes; returns whether it succeeded. The part doubles with each step, as the memory does,
    /// so most bodies reserve once.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        self.needed += bytes;
        if self.needed <= self.charged {
            return true;
        }
        let charge = self.needed.next_power_of_two().max(LEAST);
        let grown =
            self.pool.held.lock().charge(self.peer, self.number, charge - self.charged, self.pool.max);
        if grown {
            self.charged = charge;
        }
        grown
    }

    /// Waits until the pool evicts this body.
    pub(crate) async fn evicted(&mut self) {
        // It also ends if the pool forgets the body, which means the same.
        let _ = (&mut self.evicted).await;
    }
}

impl Drop for UnverifiedShare {
    fn drop(&mut self) {
        self.pool.held.lock().remove(self.peer, self.number);
    }
}

pub(super) fn network_of(peer: PeerAddress) -> Option<IpAddr> {
    peer.map(|peer| network(peer.ip()))
}

impl HeldBodies {
    fn connection(&mut self, peer: PeerAddress) -> &mut HeldByConnection {
        let network = self.networks.entry(network_of(peer)).or_default();
        network.connections.entry(peer).or_default()
    }

    /// Returns the bytes of a network and of a connection.
    fn bytes_of(&self, peer: PeerAddress) -> (usize, usize) {
        let network = self.networks.get(&network_of(peer));
        let connection = network.and_then(|network| network.connections.get(&peer));
        (network.map_or(0, |network| network.bytes), connection.map_or(0, |connection| connection.bytes))
    }

    /// Adds bytes to a body if there is room, or if evictions can make room.
    fn charge(&mut self, peer: PeerAddress, number: u64, bytes: usize, max: usize) -> bool {
        while self.bytes + bytes > max {
            let largest = self.largest_with(peer, bytes);
            if !self.evict_oldest(largest, number) {
                return false;
            }
        }
        let network = self.networks.entry(network_of(peer)).or_default();
        let connection = network.connections.entry(peer).or_default();
        // A body that was evicted while it waited gets nothing more.
        let Some((held, _)) = connection.bodies.get_mut(&number) else { return false };
        *held += bytes;
        connection.bytes += bytes;
        network.bytes += bytes;
        self.bytes += bytes;
        true
    }

    /// Returns the connection that would hold most, in the network that would hold most, if `peer` got `bytes` more.
    fn largest_with(&self, peer: PeerAddress, bytes: usize) -> PeerAddress {
        let own_network = network_of(peer);
        let (in_network, in_connection) = self.bytes_of(peer);
        let (in_network, in_connection) = (in_network + bytes, in_connection + bytes);
        // A network with more than an equal share needs no comparison with the others.
        let more_than_share = |held: usize, all: usize, count: usize| held * count > all + bytes;
        let network = if more_than_share(in_network, self.bytes, self.networks.len()) {
            own_network
        } else {
            let largest = self.networks.iter().max_by_key(|(_, network)| network.bytes);
            largest.filter(|(_, network)| network.bytes > in_network).map_or(own_network, |(name, _)| *name)
        };
        let Some(held) = self.networks.get(&network) else { return peer };
        let own = network == own_network;
        if own && more_than_share(in_connection, held.bytes, held.connections.len()) {
            return peer;
        }
        let largest = held.connections.iter().max_by_key(|(_, connection)| connection.bytes);
        match largest {
            Some((name, connection)) if !own || connection.bytes > in_connection => *name,
            _ => peer,
        }
    }

    /// Evicts the oldest body of a connection, except `kept`; returns whether there was one.
    fn evict_oldest(&mut self, peer: PeerAddress, kept: u64) -> bool {
        let connection = self.networks.get(&network_of(peer)).and_then(|held| held.connections.get(&peer));
        let oldest = connection.and_then(|held| held.bodies.keys().copied().find(|number| *number != kept));
        let Some(give_way) = oldest.and_then(|oldest| self.remove(peer, oldest)) else { return false };
        // A body that has just ended needs no signal.
        let _ = give_way.send(());
        true
    }

    fn remove(&mut self, peer: PeerAddress, number: u64) -> Option<oneshot::Sender<()>> {
        let name = network_of(peer);
        let network = self.networks.get_mut(&name)?;
        let connection = network.connections.get_mut(&peer)?;
        let (bytes, give_way) = connection.bodies.remove(&number)?;
        connection.bytes -= bytes;
        network.bytes -= bytes;
        self.bytes -= bytes;
        if connection.bodies.is_empty() {
            network.connections.remove(&peer);
        }
        if network.connections.is_empty() {
            self.networks.remove(&name);
        }
        Some(give_way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    fn enter(pool: &Arc<UnverifiedPool>, text: &str, bytes: usize) -> Option<UnverifiedShare> {
        pool.enter(Some(text.parse().unwrap()), bytes)
    }

    fn has_given_way(share: &mut UnverifiedShare) -> bool {
        share.evicted.try_recv().is_ok()
    }

    #[test]
    fn room_is_taken_in_steps_and_given_back() {
        let pool = UnverifiedPool::new(64 * KIB);
        let mut share = enter(&pool, "10.0.0.1:1", 100).unwrap();
        assert_eq!(pool.bytes(), LEAST);
        assert!(share.grow(5_000) && pool.bytes() == 8 * KIB);
        assert!(share.grow(3_000) && pool.bytes() == 8 * KIB);
        assert!(share.grow(50_000) && pool.bytes() == 64 * KIB);
        assert!(!share.grow(64 * KIB), "nothing else could give way");
        drop(share);
        assert_eq!((pool.bytes(), pool.held.lock().networks.len()), (0, 0));
    }

    // FAULTS A18, S5: the largest connection gives way to a smaller one.
    #[test]
    fn the_largest_connection_of_the_largest_address_gives_way() {
        let pool = UnverifiedPool::new(64 * KIB);
        let enter = |text: &str, bytes: usize| enter(&pool, text, bytes);
        let mut large: Vec<_> = (0..5).map(|_| enter("10.0.0.1:1", 8 * KIB).unwrap()).collect();
        let mut medium: Vec<_> = (0..3).map(|_| enter("10.0.0.1:2", 8 * KIB).unwrap()).collect();
        assert_eq!(pool.bytes(), 64 * KIB);
        let neighbour = enter("10.0.0.1:3", 8 * KIB).expect("the same address, another connection");
        assert!(has_given_way(&mut large[0]) && !has_given_way(&mut large[1]));
        let mut other = enter("10.0.0.2:1", 8 * KIB).expect("another address");
        assert!(has_given_way(&mut large[1]) && !has_given_way(&mut large[2]));
        assert!(other.grow(16 * KIB), "it has less than the other address even so");
        assert_eq!(pool.bytes(), 64 * KIB);
        assert!(!medium.iter_mut().all(has_given_way), "an equal share is left to each");
        assert!(!has_given_way(&mut other));
        drop((large, medium, neighbour, other));
        assert_eq!((pool.bytes(), pool.held.lock().networks.len()), (0, 0));
    }

    #[test]
    fn one_that_holds_most_makes_room_among_its_own() {
        let pool = UnverifiedPool::new(64 * KIB);
        let enter = |text: &str, bytes: usize| enter(&pool, text, bytes);
        let mut own: Vec<_> = (0..12).map(|_| enter("10.0.0.1:1", LEAST).unwrap()).collect();
        let mut others: Vec<_> = (0..4).map(|_| enter("10.0.0.2:1", LEAST).unwrap()).collect();
        let newest = enter("10.0.0.1:1", LEAST).expect("its oldest gives way");
        assert!(has_given_way(&mut own[0]) && !own[1..].iter_mut().any(has_given_way));
        assert!(enter("10.0.0.1:2", 32 * KIB).is_none(), "the others have less");
        assert!(!others.iter_mut().any(has_given_way));
        drop((own, others, newest));
        assert_eq!(pool.bytes(), 0);
    }

    #[test]
    fn a_body_that_gave_way_gets_no_more_room() {
        let pool = UnverifiedPool::new(16 * KIB);
        let mut first = enter(&pool, "10.0.0.1:1", 8 * KIB).unwrap();
        let second = enter(&pool, "10.0.0.1:1", 16 * KIB).unwrap();
        assert!(has_given_way(&mut first));
        drop(second);
        assert!(!first.grow(8 * KIB));
        drop(first);
        assert_eq!(pool.bytes(), 0);
    }

    // If the server does not know addresses, all connections count as one.
    #[test]
    fn unknown_peers_share() {
        let pool = UnverifiedPool::new(8 * KIB);
        let mut first = pool.enter(None, LEAST).unwrap();
        let second = pool.enter(None, LEAST).unwrap();
        let third = pool.enter(None, LEAST).unwrap();
        assert!(has_given_way(&mut first));
        drop((first, second, third));
        assert_eq!((pool.bytes(), pool.held.lock().networks.len()), (0, 0));
    }
}
