//! Tracks entries from claim to settlement. A written settlement frees capacity. Tests: below, and `tests/lifecycle.rs`.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::name::{HandlerKey, InboxName};
use crate::observe::{ClaimSpans, emit, names};
use crate::store::{Claim, Seq};

/// Id of an entry in hand. Several lookups per message use it, so only the number is hashed, and cheaply. The store assigns
/// the numbers, so no sender can cause collisions.
#[derive(PartialEq, Eq)]
struct InFlightId(Seq, HandlerKey);

impl InFlightId {
    fn of(claim: &Claim) -> Self {
        Self(claim.seq, claim.handler.clone())
    }
}

impl Hash for InFlightId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_i64(self.0.0);
    }
}

/// Spreads consecutive numbers.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_i64(i64::from(*byte));
        }
    }

    fn write_i64(&mut self, number: i64) {
        // The table takes the lowest bits and the highest ones.
        let spread = (self.0 ^ number.cast_unsigned()).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = spread ^ (spread >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// An entry in hand.
struct Flight {
    claim: Claim,
    /// The registered key, for the count per handler.
    handler: HandlerKey,
    /// Time at which this worker must stop, on its monotonic clock.
    deadline: Duration,
    task: Option<AbortHandle>,
    /// True after a request to stop its run. It is no longer renewed, because a run that blocks its thread would never end.
    stopped: bool,
}

#[derive(Default)]
struct Table {
    in_flight: HashMap<InFlightId, Flight, BuildHasherDefault<Spread>>,
    per_handler: HashMap<HandlerKey, usize>,
    /// True if no new run may begin.
    closed: bool,
}

impl Table {
    fn get(&mut self, claim: &Claim) -> Option<&mut Flight> {
        let flight = self.in_flight.get_mut(&InFlightId::of(claim))?;
        // A rescued entry can come back to the same worker: the older claim must not take the newer one's place.
        (flight.claim.token == claim.token).then_some(flight)
    }

    fn remove(&mut self, claim: &Claim) -> Option<Flight> {
        self.get(claim)?;
        let flight = self.in_flight.remove(&InFlightId::of(claim))?;
        if let Some(count) = self.per_handler.get_mut(&flight.handler) {
            *count -= 1;
        }
        Some(flight)
    }
}

/// All entries in hand.
#[derive(Default)]
pub(crate) struct InFlight {
    table: Mutex<Table>,
    landed: Arc<Notify>,
    /// Their spans end when they are released or lost.
    spans: Arc<ClaimSpans>,
}

impl InFlight {
    /// Makes an empty table whose claims have their spans in `spans`.
    pub(in crate::runtime) fn new(spans: Arc<ClaimSpans>) -> Self {
        Self { spans, ..Self::default() }
    }

    /// Takes a claim in hand. An older claim of the same entry was lost: its run is stopped.
    pub(in crate::runtime) fn insert(&self, claim: &Claim, handler: &HandlerKey, deadline: Duration) {
        let mut table = self.table.lock();
        let (claim, handler) = (claim.clone(), handler.clone());
        let id = InFlightId::of(&claim);
        let flight = Flight { claim, handler: handler.clone(), deadline, task: None, stopped: false };
        match table.in_flight.insert(id, flight) {
            None => *table.per_handler.entry(handler).or_default() += 1,
            Some(Flight { task: Some(task), .. }) => task.abort(),
            Some(_) => {}
        }
    }

    /// Records the task that runs a claim. If the claim was settled, lost or stopped before, the task is aborted.
    pub(in crate::runtime) fn attach(&self, claim: &Claim, task: AbortHandle) {
        let mut table = self.table.lock();
        let closed = table.closed;
        match table.get(claim) {
            Some(flight) if !closed && !flight.stopped => flight.task = Some(task),
            _ => task.abort(),
        }
    }

    /// Frees the capacity of settled claims.
    pub(in crate::runtime) fn release<'a>(&self, claims: impl IntoIterator<Item = &'a Claim>) {
        let mut table = self.table.lock();
        for claim in claims {
            table.remove(claim);
            self.spans.end(claim);
        }
        drop(table);
        self.landed.notify_waiters();
    }

    /// Stops the runs of claims that another worker has, and removes them.
    pub(in crate::runtime) fn lose(&self, claims: &[Claim]) {
        let mut table = self.table.lock();
        for claim in claims {
            if let Some(Flight { task: Some(task), .. }) = table.remove(claim) {
                task.abort();
            }
            self.spans.end(claim);
        }
        drop(table);
        self.landed.notify_waiters();
    }

    /// Stops the runs of claims that cannot be kept. They stay in hand until they are released.
    pub(in crate::runtime) fn stop(&self, claims: &[Claim]) {
        let mut table = self.table.lock();
        for claim in claims {
            if let Some(flight) = table.get(claim) {
                flight.stopped = true;
                if let Some(task) = &flight.task {
                    task.abort();
                }
            }
        }
    }

    /// Stops every run, and those that are about to begin.
    pub(in crate::runtime) fn close(&self) {
        let mut table = self.table.lock();
        table.closed = true;
        for flight in table.in_flight.values() {
            if let Some(task) = &flight.task {
                task.abort();
            }
        }
    }

    /// Returns all claims that were not stopped.
    pub(in crate::runtime) fn claims(&self) -> Vec<Claim> {
        self.select(|flight| !flight.stopped)
    }

    /// Returns the claims whose deadline is at or before `time`, and that were not stopped.
    pub(in crate::runtime) fn overdue(&self, time: Duration) -> Vec<Claim> {
        self.select(|flight| !flight.stopped && flight.deadline <= time)
    }

    pub(in crate::runtime) fn neighbours(&self, of: &[Claim]) -> Vec<Claim> {
        self.select(|flight| !of.contains(&flight.claim))
    }

    fn select(&self, chosen: impl Fn(&Flight) -> bool) -> Vec<Claim> {
        let table = self.table.lock();
        table.in_flight.values().filter(|flight| chosen(flight)).map(|flight| flight.claim.clone()).collect()
    }

    /// Returns true if the lease of a claim in hand has expired, by this worker's clock.
    pub(in crate::runtime) fn is_any_over(&self, now: Duration) -> bool {
        self.table.lock().in_flight.values().any(|flight| flight.deadline <= now)
    }

    /// Moves the deadline of claims that were renewed.
    pub(in crate::runtime) fn extend(&self, claims: &[Claim], deadline: Duration) {
        let mut table = self.table.lock();
        for claim in claims {
            if let Some(flight) = table.get(claim) {
                flight.deadline = deadline;
            }
        }
    }

    /// Returns the deadline of a claim on the monotonic clock, or `None` if it is not in hand.
    pub(in crate::runtime) fn deadline(&self, claim: &Claim) -> Option<Duration> {
        self.table.lock().get(claim).map(|flight| flight.deadline)
    }

    pub(in crate::runtime) fn report(&self, inbox: &InboxName) {
        emit::set_number(names::IN_FLIGHT, self.len(), [emit::inbox(inbox)]);
    }

    pub(in crate::runtime) fn holds(&self, claim: &Claim) -> bool {
        self.table.lock().get(claim).is_some()
    }

    /// Returns true if a claim is in hand and its lease has not expired, which may happen before the store's answer arrives.
    pub(in crate::runtime) fn may_run(&self, claim: &Claim, now: Duration) -> bool {
        self.table.lock().get(claim).is_some_and(|flight| !flight.stopped && now < flight.deadline)
    }

    pub(in crate::runtime) fn count(&self, handler: &HandlerKey) -> usize {
        self.table.lock().per_handler.get(handler).copied().unwrap_or(0)
    }

    pub(in crate::runtime) fn len(&self) -> usize {
        self.table.lock().in_flight.len()
    }

    /// Completes at the next release after the call.
    pub(in crate::runtime) fn landing(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut landed = Box::pin(Arc::clone(&self.landed).notified_owned());
        landed.as_mut().enable();
        landed
    }

    /// Completes when at most `rest` entries are in hand.
    pub(in crate::runtime) async fn down_to(&self, rest: usize) {
        loop {
            let landing = self.landing();
            if self.len() <= rest {
                return;
            }
            landing.await;
        }
    }

    pub(in crate::runtime) async fn empty(&self) {
        self.down_to(0).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Token;

    fn claim(token: i64) -> Claim {
        Claim { token: Token(token), ..crate::fixtures::claim() }
    }

    fn task() -> tokio::task::JoinHandle<()> {
        tokio::spawn(std::future::pending())
    }

    async fn is_stopped(task: tokio::task::JoinHandle<()>) -> bool {
        task.await.is_err_and(|ended| ended.is_cancelled())
    }

    // FAULTS B4: an entry that was rescued and claimed again by the same worker.
    #[tokio::test]
    async fn a_newer_claim_stops_the_run_of_an_older_one() {
        let (in_flight, older, newer) = (InFlight::default(), claim(1), claim(2));
        let handler = older.handler.clone();
        let run = task();
        in_flight.insert(&older, &handler, Duration::ZERO);
        in_flight.attach(&older, run.abort_handle());
        in_flight.insert(&newer, &handler, Duration::ZERO);
        assert!(is_stopped(run).await);
        in_flight.release([&older]);
        assert!(!in_flight.holds(&older) && in_flight.holds(&newer));
        assert_eq!((in_flight.len(), in_flight.count(&handler)), (1, 1));
        in_flight.release([&newer]);
        assert_eq!((in_flight.len(), in_flight.count(&handler)), (0, 0));
    }

    #[tokio::test]
    async fn a_run_that_begins_too_late_is_stopped() {
        let (in_flight, lost, stopped, closed) = (InFlight::default(), claim(1), claim(2), claim(3));
        let late = task();
        in_flight.attach(&lost, late.abort_handle());
        assert!(is_stopped(late).await);

        in_flight.insert(&stopped, &stopped.handler, Duration::ZERO);
        in_flight.stop(std::slice::from_ref(&stopped));
        let late = task();
        in_flight.attach(&stopped, late.abort_handle());
        assert!(is_stopped(late).await);
        assert!(in_flight.holds(&stopped) && !in_flight.may_run(&stopped, Duration::ZERO));
        assert!(in_flight.claims().is_empty(), "a stopped run is not renewed");

        in_flight.insert(&closed, &closed.handler, Duration::ZERO);
        in_flight.close();
        let late = task();
        in_flight.attach(&closed, late.abort_handle());
        assert!(is_stopped(late).await);
    }

    // FAULTS B6
    #[test]
    fn nothing_begins_when_its_lease_is_over() {
        let (in_flight, claim, second) = (InFlight::default(), claim(1), Duration::from_secs(1));
        in_flight.insert(&claim, &claim.handler, second);
        assert!(in_flight.may_run(&claim, Duration::ZERO));
        assert!(!in_flight.may_run(&claim, second) && in_flight.holds(&claim));
        in_flight.extend(std::slice::from_ref(&claim), 2 * second);
        assert!(in_flight.may_run(&claim, second));
        in_flight.lose(std::slice::from_ref(&claim));
        assert!(!in_flight.may_run(&claim, Duration::ZERO));
    }
}
