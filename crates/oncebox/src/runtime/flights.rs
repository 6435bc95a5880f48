//! The entries in hand, from claim to settlement. Capacity is free again only when a settlement is written.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::name::HandlerKey;
use crate::store::{Claim, Seq};

/// An entry in hand.
struct Flight {
    claim: Claim,
    /// The registered key, by which capacity is counted.
    handler: HandlerKey,
    /// When this worker must have stopped, on its own monotonic clock.
    deadline: Duration,
    task: Option<AbortHandle>,
}

#[derive(Default)]
struct Table {
    flights: HashMap<(Seq, HandlerKey), Flight>,
    per_handler: HashMap<HandlerKey, usize>,
}

impl Table {
    fn remove(&mut self, claim: &Claim) -> Option<Flight> {
        let id = (claim.seq, claim.handler.clone());
        // A rescued entry can come back to the same worker: the older claim must not take the newer one's place.
        if self.flights.get(&id)?.claim.token != claim.token {
            return None;
        }
        let flight = self.flights.remove(&id)?;
        if let Some(count) = self.per_handler.get_mut(&flight.handler) {
            *count -= 1;
        }
        Some(flight)
    }
}

/// All entries in hand.
#[derive(Default)]
pub(crate) struct Flights {
    table: Mutex<Table>,
    landed: Arc<Notify>,
}

impl Flights {
    pub(super) fn insert(&self, claim: &Claim, handler: &HandlerKey, deadline: Duration) {
        let mut table = self.table.lock();
        let flight = Flight { claim: claim.clone(), handler: handler.clone(), deadline, task: None };
        if table.flights.insert((claim.seq, claim.handler.clone()), flight).is_none() {
            *table.per_handler.entry(handler.clone()).or_default() += 1;
        }
    }

    /// Records the task that runs a claim, unless it has landed already.
    pub(super) fn attach(&self, claim: &Claim, task: AbortHandle) {
        let mut table = self.table.lock();
        if let Some(flight) = table.flights.get_mut(&(claim.seq, claim.handler.clone()))
            && flight.claim.token == claim.token
        {
            flight.task = Some(task);
        }
    }

    /// Frees the capacity of settled claims.
    pub(super) fn land<'a>(&self, claims: impl IntoIterator<Item = &'a Claim>) {
        let mut table = self.table.lock();
        for claim in claims {
            table.remove(claim);
        }
        drop(table);
        self.landed.notify_waiters();
    }

    /// Stops the handlers of claims that no longer hold.
    pub(super) fn abort(&self, claims: &[Claim]) {
        let mut table = self.table.lock();
        for claim in claims {
            if let Some(Flight { task: Some(task), .. }) = table.remove(claim) {
                task.abort();
            }
        }
        drop(table);
        self.landed.notify_waiters();
    }

    /// Stops every handler where it stands.
    pub(super) fn abort_all(&self) {
        for flight in self.table.lock().flights.values() {
            if let Some(task) = &flight.task {
                task.abort();
            }
        }
    }

    pub(super) fn claims(&self) -> Vec<Claim> {
        self.table.lock().flights.values().map(|flight| flight.claim.clone()).collect()
    }

    /// Moves the deadline of claims that were renewed.
    pub(super) fn extend(&self, claims: &[Claim], deadline: Duration) {
        let mut table = self.table.lock();
        for claim in claims {
            if let Some(flight) = table.flights.get_mut(&(claim.seq, claim.handler.clone()))
                && flight.claim.token == claim.token
            {
                flight.deadline = deadline;
            }
        }
    }

    /// Claims whose deadline is at or before `time`.
    pub(super) fn overdue(&self, time: Duration) -> Vec<Claim> {
        let table = self.table.lock();
        table
            .flights
            .values()
            .filter(|flight| flight.deadline <= time)
            .map(|flight| flight.claim.clone())
            .collect()
    }

    pub(super) fn holds(&self, claim: &Claim) -> bool {
        let table = self.table.lock();
        let id = (claim.seq, claim.handler.clone());
        table.flights.get(&id).is_some_and(|flight| flight.claim.token == claim.token)
    }

    pub(super) fn count(&self, handler: &HandlerKey) -> usize {
        self.table.lock().per_handler.get(handler).copied().unwrap_or(0)
    }

    pub(super) fn len(&self) -> usize {
        self.table.lock().flights.len()
    }

    /// Completes at the next landing after the call.
    pub(super) fn landing(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut landed = Box::pin(Arc::clone(&self.landed).notified_owned());
        landed.as_mut().enable();
        landed
    }

    /// Completes when at most `rest` entries are in hand.
    pub(super) async fn down_to(&self, rest: usize) {
        loop {
            let landing = self.landing();
            if self.len() <= rest {
                return;
            }
            landing.await;
        }
    }

    pub(super) async fn empty(&self) {
        self.down_to(0).await;
    }
}
