//! A wrapper around the product's store: injects the seed's faults between any two steps, and records responses. Tests:
//! tests/short.rs.

mod points;
#[cfg(feature = "sabotage")]
pub(crate) mod sabotage;
mod tx;

pub(crate) use points::{POINTS, PointOdds};

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use oncebox::state::{EntryEvent, Settlement};
use oncebox::store::{
    Accepted, Acted, Action, Backlog, BacklogParams, Capabilities, Claim, ClaimParams, Claimed,
    DuplicateCount, EntryFilter, EntryPage, Failover, NewMessage, Orphan, OrphanParams, RegisterParams,
    RenewParams, Renewed, RescueParams, Settled, Store, SweepParams, Swept, Wakeups,
};
use oncebox::{BoxError, Error, ErrorKind, Key, Result};
use parking_lot::Mutex;

use crate::ledger::{Fact, ProcessLedger, SettleResult};
use crate::plan::{handler_of, number_of};
use points::{PointFault, Points};

/// A row of the business table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEffect {
    pub(crate) message: u32,
    pub(crate) variant: u8,
    pub(crate) handler: &'static str,
    pub(crate) life: u64,
}

/// A store for the rig: writes effects in a handler's transaction.
pub(crate) trait Rigged:
    oncebox::store::Transactional
    + oncebox::store::MarkIn<<Self as oncebox::store::Transactional>::Tx>
    + oncebox::store::AcceptIn<<Self as oncebox::store::Transactional>::Tx>
    + oncebox::store::ShareIn<<Self as oncebox::store::Transactional>::Tx>
{
    /// Writes a row of the business table.
    fn effect(
        tx: &mut Self::Tx,
        effect: NewEffect,
    ) -> impl Future<Output = std::result::Result<(), BoxError>> + Send;

    /// Applies an operator's action.
    fn act(&self, action: &Action) -> impl Future<Output = Result<Acted>> + Send;

    /// Lists entries for an operator.
    fn list(&self, filter: &EntryFilter) -> impl Future<Output = Result<EntryPage>> + Send;
}

/// State shared by the wrapper and the handlers of one process.
#[derive(Debug)]
pub(crate) struct Notes {
    pub(crate) ledger: ProcessLedger,
    pub(crate) life: u64,
    points: Points,
    /// Slower calls are recorded.
    slow_ms: u64,
    /// Claimed messages, and the last token of each by handler.
    numbers: Mutex<HashMap<Key, u32>>,
    tokens: Mutex<HashMap<(Key, String), i64>>,
}

impl Notes {
    pub(crate) fn new(ledger: ProcessLedger, life: u64, seed: u64, odds: PointOdds, lease_ms: u64) -> Self {
        Self {
            ledger,
            life,
            points: Points::new(seed, odds),
            slow_ms: lease_ms / 3,
            numbers: Mutex::default(),
            tokens: Mutex::default(),
        }
    }

    /// Returns the token under which this process runs an entry; 0 for inline handlers, which have none.
    pub(crate) fn token(&self, key: &Key, handler: &str) -> i64 {
        self.tokens.lock().get(&(*key, handler.to_owned())).copied().unwrap_or(0)
    }

    /// Stops injecting errors.
    pub(crate) fn quiesce(&self) {
        self.points.quiesce();
    }

    /// Returns true after the last failpoint may fail.
    pub(crate) fn is_quiescent(&self) -> bool {
        self.points.is_quiescent()
    }

    /// A failpoint at the start or end of a handler: its process may end here.
    pub(crate) fn pass(&self, begins: bool) {
        let (point, dies) = match (self.points.draw("handler"), begins) {
            (Some(PointFault::AbortBefore), true) => ("handler.before: abort", true),
            (Some(PointFault::AbortAfter), false) => ("handler.after: abort", true),
            _ => ("", false),
        };
        if dies {
            self.ledger.note(Fact::Fault { life: self.life, what: point.to_owned() });
            std::process::abort();
        }
    }

    fn claimed(&self, claimed: &[Claimed], runs: bool) {
        for Claimed { claim, message } in claimed {
            if let Some(number) = number_of(message.id()) {
                self.numbers.lock().insert(claim.key, number);
            }
            if runs {
                let m = number_of(message.id()).unwrap_or(u32::MAX);
                self.ledger.note(Fact::Claimed {
                    m,
                    h: handler_of(claim.handler.as_str()).to_owned(),
                    tok: claim.token.0,
                });
                let place = (claim.key, handler_of(claim.handler.as_str()).to_owned());
                self.tokens.lock().insert(place, claim.token.0);
            }
        }
    }

    fn settled(&self, claim: &Claim, to: &str, event: &str, r: SettleResult) {
        let m = self.numbers.lock().get(&claim.key).copied().unwrap_or(u32::MAX);
        let (h, tok) = (handler_of(claim.handler.as_str()).to_owned(), claim.token.0);
        self.ledger.note(Fact::Settled { m, h, tok, to: to.to_owned(), event: event.to_owned(), r });
    }
}

/// The product's store between failpoints.
#[derive(Clone, Debug)]
pub(crate) struct Chaos<S> {
    store: S,
    notes: Arc<Notes>,
}

impl<S> Chaos<S> {
    pub(crate) fn new(store: S, notes: Arc<Notes>) -> Self {
        Self { store, notes }
    }

    fn fault(&self, point: &str, what: &str) {
        let fact = Fact::Fault { life: self.notes.life, what: format!("{point}: {what}") };
        self.notes.ledger.note(fact);
    }

    /// Makes a call with the seed's faults.
    async fn run<T>(&self, verb: &'static str, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        self.run_as(verb, self.notes.points.draw(verb), call).await
    }

    async fn run_as<T>(
        &self,
        verb: &'static str,
        fault: Option<PointFault>,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let start = std::time::Instant::now();
        let slow = |ms| self.notes.ledger.note(Fact::Slow { verb: verb.to_owned(), ms });
        let mut made = std::pin::pin!(self.made(verb, fault, call));
        let patience = Duration::from_millis(self.notes.slow_ms);
        let answer = if let Ok(answer) = tokio::time::timeout(patience, &mut made).await {
            answer
        } else {
            // Record it now and again at the end: a waiting call may be abandoned, or its process may end, before a
            // response.
            slow(self.notes.slow_ms);
            let answer = made.await;
            slow(u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX));
            answer
        };
        if fault.is_none()
            && let Err(error) = &answer
            && error.kind() == ErrorKind::CommitUnknown
        {
            self.notes.ledger.note(Fact::Unknown { verb: verb.to_owned() });
        }
        answer
    }

    async fn made<T>(
        &self,
        verb: &'static str,
        fault: Option<PointFault>,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        match fault {
            None => call.await,
            Some(PointFault::AbortBefore) => self.abort(&format!("{verb}.before")),
            Some(PointFault::AbortAfter) => {
                let _ = call.await;
                self.abort(&format!("{verb}.after"))
            }
            Some(PointFault::ErrBefore) => {
                self.fault(&format!("{verb}.before"), "error");
                Err(Error::new(ErrorKind::Unavailable, format!("chaos: {verb} was not done")))
            }
            Some(PointFault::ErrAfter) => {
                call.await?;
                self.fault(&format!("{verb}.after"), "error");
                Err(Error::new(
                    ErrorKind::Unavailable,
                    format!("chaos: {verb} was done, and came to nothing"),
                ))
            }
            Some(PointFault::UnknownBefore) => {
                self.fault(&format!("{verb}.before"), "unknown");
                Err(Error::new(ErrorKind::CommitUnknown, format!("chaos: {verb} was not done")))
            }
            Some(PointFault::UnknownAfter) => {
                call.await?;
                self.fault(&format!("{verb}.after"), "unknown");
                Err(Error::new(ErrorKind::CommitUnknown, format!("chaos: {verb} was done")))
            }
            Some(PointFault::Delay(time)) => {
                self.fault(&format!("{verb}.before"), "delay");
                pause(time).await;
                call.await
            }
        }
    }

    fn abort(&self, point: &str) -> ! {
        self.fault(point, "abort");
        std::process::abort();
    }
}

/// Waits on the machine's own clock.
pub(crate) async fn pause(time: Duration) {
    oncebox::time::SystemClock::shared().sleep(time).await;
}

fn answer_of(result: &Result<Vec<Settled>>, index: usize) -> SettleResult {
    match result {
        Ok(settled) if settled.get(index) == Some(&Settled::Applied) => SettleResult::Applied,
        Ok(_) => SettleResult::Lost,
        Err(error) if error.kind() == ErrorKind::CommitUnknown => SettleResult::Unknown,
        Err(_) => SettleResult::Error,
    }
}

impl<S: Rigged> Rigged for Chaos<S> {
    fn effect(
        tx: &mut Self::Tx,
        effect: NewEffect,
    ) -> impl Future<Output = std::result::Result<(), BoxError>> + Send {
        S::effect(&mut tx.tx, effect)
    }

    fn act(&self, action: &Action) -> impl Future<Output = Result<Acted>> + Send {
        self.run("act", self.store.act(action))
    }

    fn list(&self, filter: &EntryFilter) -> impl Future<Output = Result<EntryPage>> + Send {
        self.store.list(filter)
    }
}

#[async_trait]
impl<S: Store> Store for Chaos<S> {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn accept(&self, batch: &[NewMessage]) -> Result<Vec<Accepted>> {
        self.run("accept", self.store.accept(batch)).await
    }

    async fn claim(&self, params: &ClaimParams) -> Result<Vec<Claimed>> {
        let claimed = self.run("claim", self.store.claim(params)).await?;
        self.notes.claimed(&claimed, true);
        Ok(claimed)
    }

    async fn settle(&self, batch: &[Settlement]) -> Result<Vec<Settled>> {
        let settled = self.run("settle", self.store.settle(batch)).await;
        for (index, one) in batch.iter().enumerate() {
            let (to, event) = (one.next.status().as_str(), event(one.event));
            self.notes.settled(&one.claim, to, &event, answer_of(&settled, index));
        }
        settled
    }

    async fn renew(&self, params: &RenewParams) -> Result<Vec<Renewed>> {
        self.run("renew", self.store.renew(params)).await
    }

    async fn rescue(&self, params: &RescueParams) -> Result<Vec<Claimed>> {
        let rescued = self.run("rescue", self.store.rescue(params)).await?;
        self.notes.claimed(&rescued, false);
        Ok(rescued)
    }

    async fn sweep(&self, params: &SweepParams) -> Result<Swept> {
        self.run("sweep", self.store.sweep(params)).await
    }

    async fn register(&self, params: &RegisterParams) -> Result<()> {
        self.run("register", self.store.register(params)).await
    }

    async fn count_duplicates(&self, batch: &[DuplicateCount]) -> Result<()> {
        self.store.count_duplicates(batch).await
    }

    async fn backlog(&self, params: &BacklogParams) -> Result<Vec<Backlog>> {
        self.store.backlog(params).await
    }

    async fn orphans(&self, params: &OrphanParams) -> Result<Vec<Orphan>> {
        self.store.orphans(params).await
    }

    fn wakeups(&self) -> Option<&dyn Wakeups> {
        self.store.wakeups()
    }

    fn failover(&self) -> Option<Failover> {
        self.store.failover()
    }

    fn is_transient(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        self.store.is_transient(error)
    }
}

fn event(event: EntryEvent) -> String {
    format!("{event:?}").to_lowercase()
}
