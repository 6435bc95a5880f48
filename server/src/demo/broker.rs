//! The broker of the demo: knows what was delivered to whom, and delivers again what a dead worker did not
//! acknowledge.

use std::collections::{HashMap, VecDeque};

use super::Args;
use super::worker::OrderDelivery;

/// Deliveries a worker may hold unacknowledged.
const PREFETCH: usize = 64;

/// How many orders the deliveries may be ahead of the shipments: far enough to keep every worker busy, near enough that
/// deliveries are still under way when workers are killed.
const AHEAD: u64 = 100;

/// What still has to be delivered, and what is out.
pub(crate) struct DemoBroker {
    waiting: VecDeque<OrderDelivery>,
    /// Unacknowledged deliveries, by worker.
    out: Vec<HashMap<u64, OrderDelivery>>,
    next_delivery: u64,
    /// Deliveries of one order.
    each: u64,
    pub(crate) deliveries: u64,
    pub(crate) acked: u64,
}

impl DemoBroker {
    /// Every order as often as asked, in an order that the seed chooses.
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

    /// The next delivery for a worker, if it may have one.
    pub(crate) fn next(&mut self, worker: usize, shipped: u64) -> Option<OrderDelivery> {
        // Every shipped order had at least one delivery, so this never stops short of what is left.
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

    /// A worker died: what it did not acknowledge is delivered again, under a new number.
    pub(crate) fn lost_worker(&mut self, worker: usize) {
        for (_, handed) in std::mem::take(&mut self.out[worker]) {
            self.waiting.push_back(OrderDelivery { delivery: self.next_delivery, order: handed.order });
            self.next_delivery += 1;
        }
    }

    /// Whether everything is acknowledged.
    pub(crate) fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.out.iter().all(HashMap::is_empty)
    }
}
