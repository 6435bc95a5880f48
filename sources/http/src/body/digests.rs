//! Limits how many digests of large bodies run at once. Tests: below, and `tests/digests.rs`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::unverified::{PeerAddress, network_of};

/// Running digests, and bodies that wait for one. Addresses take turns, then their connections, so one client cannot
/// delay the others.
#[derive(Debug)]
pub(crate) struct DigestTurns(Mutex<DigestQueue>);

#[derive(Debug, Default)]
struct DigestQueue {
    free: usize,
    next: u64,
    waiting: Vec<Waiting>,
    /// Numbers of the last turns of each address with a waiting body.
    networks: HashMap<Option<IpAddr>, u64>,
    connections: HashMap<PeerAddress, u64>,
}

#[derive(Debug)]
struct Waiting {
    peer: PeerAddress,
    number: u64,
    start: oneshot::Sender<DigestTurn>,
}

/// A turn. Dropping it starts the next one.
#[derive(Debug)]
pub(crate) struct DigestTurn(Option<Arc<DigestTurns>>);

impl DigestTurns {
    pub(crate) fn new(at_once: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(DigestQueue { free: at_once, ..DigestQueue::default() })))
    }

    /// Waits for a turn.
    pub(crate) async fn take(self: &Arc<Self>, peer: PeerAddress) -> Option<DigestTurn> {
        let started = {
            let mut turns = self.0.lock();
            if let Some(free) = turns.free.checked_sub(1) {
                turns.free = free;
                return Some(DigestTurn(Some(Arc::clone(self))));
            }
            let (start, started) = oneshot::channel();
            let number = turns.number();
            turns.waiting.push(Waiting { peer, number, start });
            started
        };
        // Every waiter gets a turn in the end.
        started.await.ok()
    }

    /// Passes the turn to the next waiter.
    fn release(self: Arc<Self>) {
        loop {
            let next = {
                let mut turns = self.0.lock();
                let next = turns.take_next();
                turns.free += usize::from(next.is_none());
                next
            };
            let Some(start) = next else { return };
            match start.send(DigestTurn(Some(Arc::clone(&self)))) {
                Ok(()) => return,
                // This waiter is gone; the turn is still ours.
                Err(mut turn) => turn.0 = None,
            }
        }
    }
}

impl DigestQueue {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn take_next(&mut self) -> Option<oneshot::Sender<DigestTurn>> {
        let Self { waiting, networks, connections, .. } = self;
        waiting.retain(|one| !one.start.is_closed());
        let last = |one: &Waiting| {
            let network = networks.get(&network_of(one.peer));
            (network.copied(), connections.get(&one.peer).copied(), one.number)
        };
        let (at, _) = waiting.iter().enumerate().min_by_key(|(_, one)| last(one))?;
        let Waiting { peer, start, .. } = waiting.swap_remove(at);
        // Forget connections that no longer wait. An occasional pass suffices, because most of them have waited for
        // long by then.
        if connections.len() > 2 * waiting.len() {
            networks.retain(|network, _| waiting.iter().any(|one| network_of(one.peer) == *network));
            connections.retain(|connection, _| waiting.iter().any(|one| one.peer == *connection));
        }
        let number = self.number();
        self.networks.insert(network_of(peer), number);
        self.connections.insert(peer, number);
        Some(start)
    }
}

impl Drop for DigestTurn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_and_their_connections_take_turns() {
        let turns = DigestTurns::new(1);
        let first = turns.take(None).await.unwrap();
        let (order, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let mut waiting = tokio::task::JoinSet::new();
        let peers = ["10.0.0.1:1", "10.0.0.1:1", "10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1", "10.0.0.3:1"];
        let mut gone = Box::pin(turns.take(Some("10.0.0.4:1".parse().unwrap())));
        assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(gone.as_mut().poll(cx).is_pending())).await);
        drop(gone);
        for (number, peer) in peers.into_iter().enumerate() {
            let (turns, order) = (Arc::clone(&turns), order.clone());
            waiting.spawn(async move {
                let _turn = turns.take(Some(peer.parse().unwrap())).await.unwrap();
                order.send(number).unwrap();
            });
            tokio::task::yield_now().await;
        }
        drop((order, first));
        waiting.join_all().await;
        let mut all = Vec::new();
        seen.recv_many(&mut all, 10).await;
        assert_eq!(all, [0, 4, 5, 3, 1, 2]);
        let turns = turns.0.lock();
        assert_eq!((turns.free, turns.waiting.len(), turns.connections.len()), (1, 0, 1));
    }
}
