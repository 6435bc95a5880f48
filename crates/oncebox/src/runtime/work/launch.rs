//! Starts the runs of claimed entries and ensures that each ends in a settlement. Tests: `tests/lifecycle.rs`, `tests/outcomes.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

use super::batch;
use super::executor::{RunVerdict, execute};
use super::group;
use crate::handler::{Function, RegisteredHandler};
use crate::name::HandlerKey;
use crate::runtime::Core;
use crate::state::{CircuitPass, CircuitSignal, ErrorText, Outcome, Policy, Settlement, decide};
use crate::store::{Claim, Claimed, Store};

/// Number of runs from which a task starts them, so that the next claim does not wait.
const MANY: usize = 64;

/// Runs the entries of one claim: each in its own task, or several in one for batch handlers and shared commits.
pub(in crate::runtime) fn launch_all<S: Store>(
    core: &Arc<Core<S>>,
    settlements: &UnboundedSender<Settlement>,
    claimed: Vec<Claimed>,
) {
    // Made at once, so that each ends in a settlement in any case, and the throttles count them before the next claim.
    let runs: Vec<EntryRun<S>> =
        claimed.into_iter().filter_map(|claimed| EntryRun::new(core, settlements, claimed)).collect();
    if runs.len() < MANY {
        start_all(runs);
    } else {
        tokio::spawn(async move { start_all(runs) });
    }
}

fn start_all<S: Store>(runs: Vec<EntryRun<S>>) {
    let mut groups: BTreeMap<HandlerKey, Vec<EntryRun<S>>> = BTreeMap::new();
    for run in runs {
        let max = run.handler.registration.together();
        // A suspect shares neither a call nor a transaction, because a crash would take others down with it.
        if max <= 1 || run.claimed.claim.suspicion.is_suspect() {
            start_alone(run);
            continue;
        }
        let group = groups.entry(run.handler.route.key.clone()).or_default();
        group.push(run);
        if group.len() >= max {
            start(std::mem::take(group));
        }
    }
    for group in groups.into_values() {
        start(group);
    }
}

/// Runs entries of one handler in one task, or releases them after a request to stop.
pub(in crate::runtime) fn start<S: Store>(mut runs: Vec<EntryRun<S>>) -> Option<JoinHandle<()>> {
    if runs.len() == 1 {
        return start_alone(runs.pop()?);
    }
    let core = Arc::clone(&runs.first()?.core);
    if core.stop.requested() {
        return None;
    }
    runs.retain(EntryRun::is_held);
    if runs.is_empty() {
        return None;
    }
    let claims: Vec<Claim> = runs.iter().map(|run| run.claimed.claim.clone()).collect();
    let batch =
        runs.first().is_some_and(|run| matches!(run.handler.registration.function, Function::Batch(_)));
    let task = if batch { tokio::spawn(batch::run(runs)) } else { tokio::spawn(group::run(runs)) };
    for claim in claims {
        core.in_flight.attach(&claim, task.abort_handle());
    }
    Some(task)
}

/// Runs one entry in its own task, or releases it after a request to stop.
fn start_alone<S: Store>(run: EntryRun<S>) -> Option<JoinHandle<()>> {
    let core = Arc::clone(&run.core);
    if core.stop.requested() || !run.is_held() {
        return None;
    }
    let claim = run.claimed.claim.clone();
    let task = tokio::spawn(run.alone());
    core.in_flight.attach(&claim, task.abort_handle());
    Some(task)
}

/// Maximum wait of grouped runs for one of them. It leaves time for renewals, which wait for a shared transaction on
/// SQLite, and limits the effect of a run that hangs.
pub(in crate::runtime) fn patience(lease: Duration) -> Duration {
    lease / 6
}

/// Runs entries that cannot run together, each alone.
pub(in crate::runtime) async fn one_by_one<S: Store>(mut runs: Vec<EntryRun<S>>) {
    let Some(last) = runs.pop() else { return };
    let (clock, patience) = (Arc::clone(&last.core.inbox.clock), patience(last.core.inbox.config.lease));
    for run in runs {
        // One by one, because in parallel they would wait for the writer while their timeouts run. Each in its own task,
        // because one that hangs must not delay the others.
        if let Some(task) = start(vec![run]) {
            tokio::select! {
                _ = task => {}
                () = clock.sleep(patience) => {}
            }
        }
    }
    if !last.core.stop.requested() {
        last.alone().await;
    }
}

/// Releases a claim that did not run, unless it was lost.
pub(in crate::runtime) fn give_back<S: Store>(
    core: &Core<S>,
    settlements: &UnboundedSender<Settlement>,
    claim: &Claim,
    outcome: Outcome,
) {
    if core.in_flight.holds(claim) {
        // It did not run, so nothing speaks for it.
        let mut settlement = decide(&Policy::default(), claim, outcome);
        settlement.suspicion = claim.suspicion;
        // Fails only without a Tokio runtime; then the lease expires.
        let _ = settlements.send(settlement);
    }
}

/// A claimed entry that must end in a verdict, even if its run is stopped or panics. An entry that stayed in hand would be
/// renewed for ever and never rescued. The drop reports the verdict.
pub(in crate::runtime) struct EntryRun<S: Store> {
    pub(in crate::runtime) core: Arc<Core<S>>,
    settlements: UnboundedSender<Settlement>,
    pub(in crate::runtime) handler: Arc<RegisteredHandler<S>>,
    pub(in crate::runtime) claimed: Claimed,
    pub(in crate::runtime) verdict: Option<RunVerdict>,
    /// Its pass, until the handler's throttle gets the result.
    pass: Option<CircuitPass>,
    /// True if the throttle already counted a success, before the commit.
    told: bool,
    /// True if it has its own transaction and task, which no other run can break.
    alone: bool,
}

impl<S: Store> EntryRun<S> {
    fn new(core: &Arc<Core<S>>, settlements: &UnboundedSender<Settlement>, claimed: Claimed) -> Option<Self> {
        let Some(handler) = core.inbox.registry.by_key(&claimed.claim.handler).map(Arc::clone) else {
            // The store returned an entry of a handler that was not requested. Its lease expires, and the right worker gets it.
            tracing::error!(handler = %claimed.claim.handler, "claimed entry of unknown handler");
            return None;
        };
        let pass = handler.throttle.enter(core.inbox.clock.monotonic());
        let (core, settlements) = (Arc::clone(core), settlements.clone());
        let mut run =
            Self { core, settlements, handler, claimed, verdict: None, pass, told: false, alone: false };
        // Released at once if the breaker is open.
        run.may_begin().then_some(run)
    }

    /// Returns true if its lease holds. Logs an expired lease: if all leases expire before their start, nothing runs.
    fn is_held(&self) -> bool {
        let Core { inbox, in_flight, .. } = &*self.core;
        let held = in_flight.may_run(&self.claimed.claim, inbox.clock.monotonic());
        if !held && let Some(suppressed) = inbox.store.watch().log_throttle.allow("not begun", "") {
            let lease = inbox.config.lease;
            tracing::warn!(inbox = %inbox.name, ?lease, suppressed, "lease expired before start, released");
        }
        held
    }

    /// Runs the entry alone.
    pub(in crate::runtime) async fn alone(mut self) {
        if !self.may_begin() {
            return;
        }
        (self.alone, self.told) = (true, false);
        // The call returns before this is dropped: a transaction must be rolled back before its entry is released.
        let verdict = execute(&self.core.inbox, &self.handler, &self.claimed, &self.core.cut).await;
        self.conclude(verdict);
    }

    /// Returns true if the entry may run. If the breaker opened meanwhile, the entry is released without an attempt.
    pub(in crate::runtime) fn may_begin(&mut self) -> bool {
        let may = self.is_let_in();
        if !may && self.verdict.is_none() {
            self.conclude(self.settle(Outcome::Released));
        }
        may
    }

    pub(in crate::runtime) fn is_let_in(&self) -> bool {
        self.pass.as_ref().is_some_and(|pass| self.handler.throttle.may_begin(pass))
    }

    /// Sets the verdict, and reports it to the handler's throttle.
    pub(in crate::runtime) fn conclude(&mut self, verdict: RunVerdict) {
        self.ended(verdict.ended());
        self.verdict = Some(verdict);
    }

    /// Reports a success before the commit that completes the entry.
    pub(in crate::runtime) fn did_well(&mut self) {
        self.ended(CircuitSignal::Success);
        self.told = true;
        // It may have to run again.
        self.pass = self.handler.throttle.enter(self.core.inbox.clock.monotonic());
    }

    /// Reports the end of the run to the handler's throttle.
    fn ended(&mut self, ended: CircuitSignal) {
        if let Some(pass) = self.pass.take() {
            let ended = if self.told { CircuitSignal::Neutral } else { ended };
            self.handler.throttle.end(pass, ended, self.core.inbox.clock.monotonic());
        }
    }

    /// Returns the verdict for an outcome.
    pub(in crate::runtime) fn settle(&self, outcome: Outcome) -> RunVerdict {
        RunVerdict::Settle(decide(&self.handler.registration.policy, &self.claimed.claim, outcome))
    }

    fn without_verdict(&self) -> RunVerdict {
        self.settle(if self.alone && std::thread::panicking() {
            Outcome::Retry { error: ErrorText::new("the run panicked outside of its handler"), after: None }
        } else {
            // It did not begin, or was stopped because its lease was not renewed: no failure of the handler.
            Outcome::Released
        })
    }
}

impl<S: Store> Drop for EntryRun<S> {
    fn drop(&mut self) {
        self.ended(CircuitSignal::Neutral);
        let (claim, Core { inbox, in_flight, .. }) = (&self.claimed.claim, &*self.core);
        let verdict = match self.verdict.take() {
            Some(verdict) => verdict,
            None if in_flight.holds(claim) => self.without_verdict(),
            None => return,
        };
        match verdict {
            RunVerdict::Settle(settlement) => {
                // Fails only without a Tokio runtime; then the lease expires.
                let _ = self.settlements.send(settlement);
            }
            RunVerdict::Written | RunVerdict::Lost => {
                if claim.order.is_some() {
                    // Before the release, so that a caller that sees no entry in hand has seen the wakeup.
                    inbox.local_wakeup.now();
                }
                in_flight.release([claim]);
                in_flight.report(&inbox.name);
            }
        }
    }
}
