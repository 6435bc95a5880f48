//! Stores deliveries with one ordering key in their order of arrival, although sources deliver side by side. Tests: below, and `tests/line.rs`.

use std::collections::HashMap;

use tokio::sync::oneshot;

use crate::key::OrderKey;

/// The last delivery in hand of each ordering key.
#[derive(Default)]
pub(in crate::runtime) struct ArrivalQueues {
    last: HashMap<OrderKey, oneshot::Receiver<()>>,
    /// Number of keys at which finished queues are removed.
    full: usize,
}

/// The place of a delivery in its queue. A drop without [`leave`](Self::leave) means that the delivery was dropped.
pub(in crate::runtime) struct QueuePlace {
    before: Option<oneshot::Receiver<()>>,
    left: oneshot::Sender<()>,
}

impl ArrivalQueues {
    const MIN_CAPACITY: usize = 64;

    /// Adds a place at the end of a queue.
    pub(in crate::runtime) fn place(&mut self, key: OrderKey) -> QueuePlace {
        if self.last.len() >= self.full.max(Self::MIN_CAPACITY) {
            let in_hand = |last: &mut oneshot::Receiver<()>| {
                last.try_recv() == Err(oneshot::error::TryRecvError::Empty)
            };
            self.last.retain(|_, last| in_hand(last));
            // Twice as many, so that the removal costs little per delivery.
            self.full = 2 * self.last.len();
        }
        let (left, last) = oneshot::channel();
        QueuePlace { before: self.last.insert(key, last), left }
    }
}

impl QueuePlace {
    /// Waits until the delivery before has left. Returns false if it was dropped instead, and will come again.
    pub(in crate::runtime) async fn turn(&mut self) -> bool {
        match &mut self.before {
            Some(before) => before.await.is_ok(),
            None => true,
        }
    }

    /// Lets the next delivery continue: this one was accepted or refused.
    pub(in crate::runtime) fn leave(self) {
        // The queue may have no next delivery.
        let _ = self.left.send(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> OrderKey {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        OrderKey::from_bytes(bytes)
    }

    #[tokio::test]
    async fn one_waits_for_the_one_before_it_and_for_no_other() {
        let mut lines = ArrivalQueues::default();
        let (first, mut second, mut third) = (lines.place(key(1)), lines.place(key(1)), lines.place(key(1)));
        let mut other = lines.place(key(2));
        assert!(other.turn().await);
        let early = tokio::time::timeout(std::time::Duration::ZERO, second.turn()).await;
        assert!(early.is_err(), "the first one is still there");
        first.leave();
        assert!(second.turn().await);
        drop(second);
        assert!(!third.turn().await, "the second one was dropped");
    }

    #[test]
    fn lines_that_are_over_are_forgotten_and_others_are_not() {
        let mut lines = ArrivalQueues::default();
        let kept: Vec<QueuePlace> = (0..100).map(|number| lines.place(key(number))).collect();
        for number in 100..100_000 {
            lines.place(key(number)).leave();
            let size = lines.last.len();
            assert!(size <= 2 * (kept.len() + ArrivalQueues::MIN_CAPACITY), "{size}");
        }
        assert!((0..100).all(|number| lines.place(key(number)).before.is_some()));
    }
}
