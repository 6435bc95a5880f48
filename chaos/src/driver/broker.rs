//! Generator and direct transport: tracks offered messages, duplicates deliveries, and redelivers unacknowledged ones.
//! Tests: tests/short.rs.

use std::collections::{HashMap, HashSet, VecDeque};

use super::faults::Mix;
use crate::ledger::{Fact, ProcessLedger, now};
use crate::plan::RoundPlan;
use crate::worker::HandedDelivery;

/// Maximum unacknowledged deliveries of a worker.
const PREFETCH: usize = 48;

/// Planned deliveries, and unanswered ones.
pub(super) struct DriverBroker {
    plan: RoundPlan,
    rng: fastrand::Rng,
    /// Maximum messages offered ahead of handled ones.
    ahead: usize,
    offered: u32,
    /// Deliveries to repeat.
    again: VecDeque<HandedDelivery>,
    /// Unacknowledged deliveries, by worker; the last are in flight to a real broker.
    out: Vec<HashMap<u64, HandedDelivery>>,
    /// Deliveries that a real broker has confirmed.
    confirmed: Vec<HandedDelivery>,
    next_delivery: u64,
    ran: HashSet<u32>,
    pub(super) deliveries: u64,
    pub(super) acked: u64,
    /// True while new messages are generated.
    pub(super) open: bool,
    /// Remaining messages for the worker without handlers.
    pub(super) late: u32,
    made: u32,
}

impl DriverBroker {
    pub(super) fn new(plan: RoundPlan, mix: Mix, workers: usize) -> Self {
        Self {
            plan,
            rng: fastrand::Rng::with_seed(plan.seed ^ 0xb0c4),
            ahead: mix.ahead(),
            offered: 0,
            again: VecDeque::new(),
            out: vec![HashMap::new(); workers + 1],
            confirmed: Vec::new(),
            next_delivery: 0,
            ran: HashSet::new(),
            deliveries: 0,
            acked: 0,
            open: true,
            late: 0,
            made: 0,
        }
    }

    /// Returns the number of offered messages.
    pub(super) fn count(&self) -> u32 {
        self.made
    }

    /// Returns the next delivery for a worker, if it may have one. A worker without handlers gets no inline messages.
    pub(super) fn next(
        &mut self,
        worker: usize,
        front: bool,
        ledger: &ProcessLedger,
    ) -> Option<HandedDelivery> {
        if self.out[worker].len() >= if self.plan.quick { 5 * PREFETCH } else { PREFETCH } {
            return None;
        }
        if front && self.late > 0 {
            self.late -= 1;
            // The next one it accepts.
            while is_inline(&self.plan, self.offered) {
                self.offered += 1;
            }
            let handed = self.offer(ledger);
            return Some(self.hand(worker, handed));
        }
        let takes = |plan: &RoundPlan, handed: &HandedDelivery| !front || !is_inline(plan, handed.m);
        // Alternate old and new deliveries, so that neither waits for the other.
        let old = (self.rng.bool() || !self.may_offer())
            .then(|| self.again.iter().position(|handed| takes(&self.plan, handed)))
            .flatten()
            .and_then(|place| self.again.remove(place));
        let handed = match old {
            Some(handed) => handed,
            None if self.may_offer()
                && takes(&self.plan, &HandedDelivery { d: 0, m: self.offered, v: 0, at: 0 }) =>
            {
                self.offer(ledger)
            }
            None => return None,
        };
        Some(self.hand(worker, handed))
    }

    fn hand(&mut self, worker: usize, handed: HandedDelivery) -> HandedDelivery {
        let handed = HandedDelivery { d: self.next_delivery, ..handed };
        self.next_delivery += 1;
        self.deliveries += 1;
        self.out[worker].insert(handed.d, handed);
        handed
    }

    fn may_offer(&self) -> bool {
        self.open && (self.offered as usize) < self.ran.len() + self.ahead
    }

    /// Generates a message, and chooses its number of deliveries.
    fn offer(&mut self, ledger: &ProcessLedger) -> HandedDelivery {
        let at = i64::try_from(now() / 1_000).unwrap_or(i64::MAX);
        let handed = HandedDelivery { d: 0, m: self.offered, v: 0, at };
        self.offered += 1;
        self.made += 1;
        ledger.note(Fact::Offered { m: handed.m, v: 0 });
        for _ in 0..[0, 0, 0, 0, 0, 1, 1, 1, 2, 3][self.rng.usize(0..10)] {
            let place = self.rng.usize(0..=self.again.len());
            self.again.insert(place, handed);
        }
        // The same id with another payload.
        if self.rng.u32(0..100) < 2 {
            ledger.note(Fact::Offered { m: handed.m, v: 1 });
            self.again.push_back(HandedDelivery { v: 1, ..handed });
        }
        handed
    }

    pub(super) fn ran(&mut self, message: u32) {
        self.ran.insert(message);
    }

    pub(super) fn acked(&mut self, worker: usize, delivery: u64) -> Option<HandedDelivery> {
        let handed = self.out[worker].remove(&delivery)?;
        self.acked += 1;
        Some(handed)
    }

    /// Records a broker's confirm: from now on the delivery may not be lost.
    pub(super) fn confirmed(&mut self, delivery: u64) {
        let on_their_way = self.out.len() - 1;
        if let Some(handed) = self.acked(on_their_way, delivery) {
            self.confirmed.push(handed);
        }
    }

    /// Takes the deliveries that a real broker has confirmed since the last call.
    pub(super) fn take_confirmed(&mut self) -> Vec<HandedDelivery> {
        std::mem::take(&mut self.confirmed)
    }

    /// Queues a delivery that a worker returned.
    pub(super) fn again(&mut self, worker: usize, delivery: u64) {
        if let Some(handed) = self.out[worker].remove(&delivery) {
            self.again.push_back(handed);
        }
    }

    /// Redelivers the unacknowledged deliveries of an ended worker.
    pub(super) fn lost_worker(&mut self, worker: usize) {
        for (_, handed) in std::mem::take(&mut self.out[worker]) {
            self.again.push_back(handed);
        }
    }

    /// Returns the number of unacknowledged deliveries, including those still to be made.
    pub(super) fn outstanding(&self) -> u64 {
        u64::from(self.late) + (self.again.len() + self.out.iter().map(HashMap::len).sum::<usize>()) as u64
    }
}

fn is_inline(plan: &RoundPlan, message: u32) -> bool {
    plan.message(message).kind == crate::plan::PlannedKind::Inline
}
