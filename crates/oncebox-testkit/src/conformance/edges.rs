//! The state diagram, walked on the real store.

use oncebox::state::{EDGES, Edge, EntryEvent, Operation, Outcome, Status};
use oncebox::store::{Claim, NewMessage, Settled};
use oncebox::{OnPoisoned, Retry};

use crate::fixture::{
    HOUR, PAST_LEASE, SECOND, dismissed, failed, message, offer_routed, offer_to, policy, rejected, route,
    text,
};
use crate::harness::{claim_params, rescue_params};
use crate::{Harness, OperateTier};

// A new arrow in the diagram has no driver here, and fails.
pub async fn every_edge_is_walked<S: OperateTier>(h: &Harness<S>) {
    for edge in EDGES {
        let walk = Walk::new(h, *edge);
        if let Some(from) = edge.from {
            walk.bring_to(from).await;
            assert_eq!(walk.status().await, from, "before {edge:?}");
        }
        walk.step().await;
        assert_eq!(walk.status().await, edge.to, "after {edge:?}");
    }
}

// Nothing happens beyond the diagram: a claim finds only pending entries.
pub async fn only_what_is_pending_can_be_claimed<S: OperateTier>(h: &Harness<S>) {
    for status in Status::ALL {
        let edge = Edge { from: Some(status), event: EntryEvent::Claim, to: Status::Running };
        let walk = Walk::new(h, edge);
        walk.bring_to(status).await;
        h.advance(HOUR);
        let claimed = [h.claim(&walk.name, 10).await, h.claim_suspect(&walk.name).await].concat();
        assert_eq!(claimed.len(), usize::from(status == Status::Pending), "{status}");
    }
}

/// One arrow, with its own entry.
struct Walk<'a, S> {
    h: &'a Harness<S>,
    edge: Edge,
    /// Id of the message and key of the handler.
    name: String,
}

impl<'a, S: OperateTier> Walk<'a, S> {
    fn new(h: &'a Harness<S>, edge: Edge) -> Self {
        let from = edge.from.map_or("start", Status::as_str);
        Self { h, edge, name: format!("{from}-{}-{}", edge.event.as_str(), edge.to) }
    }

    async fn status(&self) -> Status {
        self.h.entry(&self.name, &self.name).await.status
    }

    /// Message of the walking entry. For the arrows of order it has an ordering key and another message before it.
    fn offer(&self) -> NewMessage {
        match self.edge.event {
            EntryEvent::Park | EntryEvent::Unpark | EntryEvent::Unblock => self.in_line(&self.name),
            _ => offer_to(&self.name, &[&self.name]),
        }
    }

    fn in_line(&self, id: &str) -> NewMessage {
        offer_routed(message(id).with_ordering_key(self.name.clone()), [route(&self.name)])
    }

    /// Id of the message before it.
    fn head(&self) -> String {
        format!("before-{}", self.name)
    }

    /// Poisons the message before it, so that those behind it are parked.
    async fn park(&self) {
        let claimed = self.h.claim(&self.name, 1).await;
        let mut parks = policy();
        parks.on_poisoned = OnPoisoned::Park;
        let settlement = claimed[0].claim.settle(&parks, rejected());
        assert_eq!(self.h.send(settlement).await, Settled::Applied);
    }

    async fn bring_to(&self, status: Status) {
        if matches!(self.edge.event, EntryEvent::Park | EntryEvent::Unpark) {
            self.h.first(self.in_line(&self.head())).await;
        }
        self.h.first(self.offer()).await;
        if self.edge.event == EntryEvent::Unpark {
            return self.park().await;
        }
        match status {
            Status::Pending => {}
            Status::Running => {
                self.h.claim_one(&self.name).await;
            }
            Status::Completed => self.claim_and_settle(Outcome::Done).await,
            Status::Poisoned => self.claim_and_settle(rejected()).await,
            Status::Discarded => self.claim_and_settle(dismissed()).await,
        }
    }

    async fn claim_and_settle(&self, outcome: Outcome) {
        let claim = self.h.claim_one(&self.name).await;
        assert_eq!(self.h.settle(&claim, outcome).await, Settled::Applied);
    }

    async fn step(&self) {
        match self.edge.event {
            EntryEvent::Accept => {
                self.h.first(self.offer()).await;
            }
            EntryEvent::Claim => {
                self.h.claim_one(&self.name).await;
            }
            EntryEvent::Done => self.settle(Outcome::Done, false).await,
            EntryEvent::Fail => self.settle(failed(), false).await,
            EntryEvent::Exhaust => self.settle(failed(), true).await,
            EntryEvent::Snooze => self.settle(Outcome::Snooze { delay: SECOND }, false).await,
            EntryEvent::Release => self.settle(Outcome::Released, false).await,
            EntryEvent::Defer => self.settle(Outcome::Undecodable { error: text("not yet") }, false).await,
            EntryEvent::Reject => self.settle(rejected(), false).await,
            EntryEvent::Dismiss => self.settle(dismissed(), false).await,
            EntryEvent::Crash => self.settle(Outcome::Crashed, false).await,
            EntryEvent::CrashOut => self.settle(Outcome::Crashed, true).await,
            EntryEvent::Retry => self.operate(Operation::Retry).await,
            EntryEvent::Discard => self.operate(Operation::Discard).await,
            EntryEvent::Replay => self.operate(Operation::Replay).await,
            EntryEvent::Unblock => self.operate(Operation::Unblock).await,
            EntryEvent::Park => self.park().await,
            EntryEvent::Unpark => {
                let unblocked = self.h.operate(&self.head(), &self.name, Operation::Unblock).await;
                assert!(unblocked.expect("unblock").is_skipped());
            }
            event => panic!("no driver for {event:?}: write one"),
        }
    }

    /// Settles the running entry. `last`: this failure or crash exceeds the limit.
    async fn settle(&self, outcome: Outcome, last: bool) {
        let mut policy = policy();
        if last {
            policy.retry = Retry::never();
            policy.crashes = 1;
        }
        // The claim only prepared the entry. Its lease expires, because a rescuer settles a crash.
        self.h.advance(PAST_LEASE);
        let route = route(&self.name);
        let rescued =
            self.h.store.rescue(&rescue_params(std::slice::from_ref(&route), 2)).await.expect("rescue");
        let [rescued] = &rescued[..] else { panic!("one running entry: {rescued:?}") };
        let claim = Claim { alone: last, ..rescued.claim.clone() };
        let settlement = claim.settle(&policy, outcome);
        assert_eq!(settlement.event, self.edge.event);
        assert_eq!(self.h.send(settlement).await, Settled::Applied);
        assert!(self.h.store.claim(&claim_params(&[route], 0)).await.expect("claim").is_empty());
    }

    async fn operate(&self, operation: Operation) {
        let view = self.h.operate(&self.name, &self.name, operation).await.expect("operate");
        assert_eq!(view.status, self.edge.to);
    }
}
