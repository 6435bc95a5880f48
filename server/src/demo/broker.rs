//! The broker of the demo: redelivers messages that a dead worker did not acknowledge. Tests: `tests/demo.rs`.

use std::collections::{HashMap, VecDeque};

use super::Args;
use super::worker::OrderDelivery;

/// Maximum unacknowledged deliveries per worker.
const PREFETCH: usize = 64;

/// Maximum orders that deliveries may be ahead of shipments. Keeps workers busy, and still leaves deliveries for the kills.
const AHEAD: u64 = 100;

/// Deliveries that wait or are unacknowledged.
pub(crate) struct DemoBroker {
    waiting: VecDeque<OrderDelivery>,
    /// Unacknowledged deliveries, by worker.
    out: Vec<HashMap<u64, OrderDelivery>>,
    next_delivery: u64,
    /// Deliveries per order.
    each: u64,
    pub(crate) deliveries: u64,
    pub(crate) acked: u64,
}

impl DemoBroker {
    /// Creates all deliveries, shuffled by the seed.
    pub(crate) fn new(args: &Args, rng: &mut fastrand::Rng) -> Self {
        let mut orders: Vec<u32> = (0..args.messages)
            .flat_map(|order| std::iter::repeat_n(order, args.duplicates as usize + 1))
            .collect();
        rng.shuffle(&mut orders);
        let waiting: VecDeque<OrderDelivery> =
            (0..).zip(orders).map(|(delivery, order)| OrderDelivery { delivery, order }).collect();
        let next_delivery = waiting.len() as u64;
        Self {
            waiting,
            out: vec![HashMap::new(); args.workers as usize],
            next_delivery,
            each: u64::from(args.duplicates) + 1,
            deliveries: 0,
            acked: 0,
        }
    }

    /// Returns the next delivery for a worker, unless it has too many.
    pub(crate) fn next(&mut self, worker: usize, shipped: u64) -> Option<OrderDelivery> {
        // Every shipped order had at least one delivery, so this never blocks the remaining ones.
        if self.out[worker].len() >= PREFETCH || self.acked >= (shipped + AHEAD) * self.each {
            return None;
        }
        let handed = self.waiting.pop_front()?;
        self.out[worker].insert(handed.delivery, handed);
        self.deliveries += 1;
        Some(handed)
    }

    pub(crate) fn acked(&mut self, worker: usize, delivery: u64) {
        if self.out[worker].remove(&delivery).is_some() {
            self.acked += 1;
        }
    }

    /// Redelivers the unacknowledged deliveries of a dead worker, with new numbers.
    pub(crate) fn lost_worker(&mut self, worker: usize) {
        for (_, handed) in std::mem::take(&mut self.out[worker]) {
            self.waiting.push_back(OrderDelivery { delivery: self.next_delivery, order: handed.order });
            self.next_delivery += 1;
        }
    }

    /// Returns true if all deliveries are acknowledged.
    pub(crate) fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.out.iter().all(HashMap::is_empty)
    }
}
