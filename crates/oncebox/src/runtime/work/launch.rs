//! Starts the runs of claimed entries and ensures that each ends in a settlement. Tests: `tests/lifecycle.rs`, `tests/outcomes.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

use super::batch;
use super::executor::{Verdict, execute};
use super::group;
use crate::handler::{Function, Registered};
use crate::name::HandlerKey;
use crate::runtime::Core;
use crate::state::{CircuitPass, CircuitSignal, ErrorText, Outcome, Policy, Settlement, decide};
use crate::store::{Claim, Claimed, Store};

/// So many take a while to be started: the next ones are claimed meanwhile.
const MANY: usize = 64;

/// Runs what one claim brought: each entry in a task of its own, or several in one where a handler takes many messages
/// or shares its commits.
pub(in crate::runtime) fn launch_all<S: Store>(
    core: &Arc<Core<S>>,
    settlements: &UnboundedSender<Settlement>,
    claimed: Vec<Claimed>,
) {
    // Made at once, so that whatever happens each ends in a settlement, and the gates know of them before the next claim.
    let runs: Vec<Run<S>> =
        claimed.into_iter().filter_map(|claimed| Run::new(core, settlements, claimed)).collect();
    if runs.len() < MANY {
        start_all(runs);
    } else {
        tokio::spawn(async move { start_all(runs) });
    }
}

fn start_all<S: Store>(runs: Vec<Run<S>>) {
    let mut groups: BTreeMap<HandlerKey, Vec<Run<S>>> = BTreeMap::new();
    for run in runs {
        let max = run.handler.registration.together();
        // A suspect shares neither a call nor a transaction: what it brings down there would be the work of others.
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

/// Runs entries of one handler in one task; gives them back if nothing new is begun any more.
pub(in crate::runtime) fn start<S: Store>(mut runs: Vec<Run<S>>) -> Option<JoinHandle<()>> {
    if runs.len() == 1 {
        return start_alone(runs.pop()?);
    }
    let core = Arc::clone(&runs.first()?.core);
    if core.stop.requested() {
        return None;
    }
    runs.retain(Run::is_held);
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

/// Runs one entry in a task of its own; gives it back if nothing new is begun any more.
fn start_alone<S: Store>(run: Run<S>) -> Option<JoinHandle<()>> {
    let core = Arc::clone(&run.core);
    if core.stop.requested() || !run.is_held() {
        return None;
    }
    let claim = run.claimed.claim.clone();
    let task = tokio::spawn(run.alone());
    core.in_flight.attach(&claim, task.abort_handle());
    Some(task)
}

/// How long runs that belong together may wait for one of them. Renewals come in time even if they have to wait for a
/// shared transaction, as they have on SQLite, and those who ran do not wait for ever for one that hangs.
pub(in crate::runtime) fn patience(lease: Duration) -> Duration {
    lease / 6
}

/// Runs entries that cannot run together, each by itself.
pub(in crate::runtime) async fn one_by_one<S: Store>(mut runs: Vec<Run<S>>) {
    let Some(last) = runs.pop() else { return };
    let (clock, patience) = (Arc::clone(&last.core.inbox.clock), patience(last.core.inbox.config.lease));
    for run in runs {
        // One by one, because together they would wait for a place to write, each with its timeout running. But in
        // tasks of their own, because one that hangs must not hold up the others.
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

/// Gives back a claim that did not run, unless it was lost.
pub(in crate::runtime) fn give_back<S: Store>(
    core: &Core<S>,
    settlements: &UnboundedSender<Settlement>,
    claim: &Claim,
    outcome: Outcome,
) {
    if core.in_flight.holds(claim) {
        // It did not run, so nothing speaks for it.
        let settlement =
            Settlement { suspicion: claim.suspicion, ..decide(&Policy::default(), claim, outcome) };
        // Fails only when the runtime is gone; then the lease runs out.
        let _ = settlements.send(settlement);
    }
}

/// A claimed entry that has to end in a verdict, even if its run is stopped or panics: an entry that stayed in hand
/// would be renewed for ever, and could never be rescued. The verdict is told when this is dropped.
pub(in crate::runtime) struct Run<S: Store> {
    pub(in crate::runtime) core: Arc<Core<S>>,
    settlements: UnboundedSender<Settlement>,
    pub(in crate::runtime) handler: Arc<Registered<S>>,
    pub(in crate::runtime) claimed: Claimed,
    pub(in crate::runtime) verdict: Option<Verdict>,
    /// Its right to run, until its handler's throttle knows how it ended.
    pass: Option<CircuitPass>,
    /// The throttle knows already that the handler did well, though the commit is still to come.
    told: bool,
    /// It has a transaction and a task for itself: nobody else can have brought them down.
    alone: bool,
}

impl<S: Store> Run<S> {
    fn new(core: &Arc<Core<S>>, settlements: &UnboundedSender<Settlement>, claimed: Claimed) -> Option<Self> {
        let Some(handler) = core.inbox.registry.by_key(&claimed.claim.handler).map(Arc::clone) else {
            // A store answered with a handler nobody asked for; its lease runs out and the right worker gets it.
            tracing::error!(handler = %claimed.claim.handler, "claimed an entry of an unknown handler");
            return None;
        };
        let pass = handler.throttle.enter(core.inbox.clock.monotonic());
        let (core, settlements) = (Arc::clone(core), settlements.clone());
        let mut run =
            Self { core, settlements, handler, claimed, verdict: None, pass, told: false, alone: false };
        // Given back at once if its handler is left alone.
        run.may_begin().then_some(run)
    }

    /// Whether its lease holds: it may have run out before it was its turn. Where that happens all the time nothing ever runs, and
    /// nobody else would tell.
    fn is_held(&self) -> bool {
        let Core { inbox, in_flight, .. } = &*self.core;
        let held = in_flight.may_run(&self.claimed.claim, inbox.clock.monotonic());
        if !held && let Some(suppressed) = inbox.store.watch().log_throttle.allow("not begun", "") {
            let lease = inbox.config.lease;
            tracing::warn!(inbox = %inbox.name, ?lease, suppressed, "given back, not begun: its lease was over by then; the store answers too late, or this process stood still");
        }
        held
    }

    /// Runs the entry by itself.
    pub(in crate::runtime) async fn alone(mut self) {
        if !self.may_begin() {
            return;
        }
        (self.alone, self.told) = (true, false);
        // What it borrows is gone before this is dropped: a transaction must be rolled back before its entry is given
        // back.
        let verdict = execute(&self.core.inbox, &self.handler, &self.claimed, &self.core.cut).await;
        self.conclude(verdict);
    }

    /// Whether the entry may run. If its handler's breaker opened meanwhile it may not, and is given back uncounted.
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

    /// Its verdict, of which the handler's throttle knows at once.
    pub(in crate::runtime) fn conclude(&mut self, verdict: Verdict) {
        self.ended(verdict.ended());
        self.verdict = Some(verdict);
    }

    /// The handler did well; what becomes of the entry depends on a commit that is still to come.
    pub(in crate::runtime) fn did_well(&mut self) {
        self.ended(CircuitSignal::Success);
        self.told = true;
        // It may have to run again.
        self.pass = self.handler.throttle.enter(self.core.inbox.clock.monotonic());
    }

    /// Tells the handler's throttle how the run ended.
    fn ended(&mut self, ended: CircuitSignal) {
        if let Some(pass) = self.pass.take() {
            let ended = if self.told { CircuitSignal::Neutral } else { ended };
            self.handler.throttle.end(pass, ended, self.core.inbox.clock.monotonic());
        }
    }

    /// What follows from an outcome.
    pub(in crate::runtime) fn settle(&self, outcome: Outcome) -> Verdict {
        Verdict::Settle(decide(&self.handler.registration.policy, &self.claimed.claim, outcome))
    }

    fn without_verdict(&self) -> Verdict {
        self.settle(if self.alone && std::thread::panicking() {
            Outcome::Retry { error: ErrorText::new("the run panicked outside of its handler"), after: None }
        } else {
            // It did not begin, or it was stopped because its lease could not be renewed: that is nobody's failure.
            Outcome::Released
        })
    }
}

impl<S: Store> Drop for Run<S> {
    fn drop(&mut self) {
        self.ended(CircuitSignal::Neutral);
        let (claim, Core { inbox, in_flight, .. }) = (&self.claimed.claim, &*self.core);
        let verdict = match self.verdict.take() {
            Some(verdict) => verdict,
            None if in_flight.holds(claim) => self.without_verdict(),
            None => return,
        };
        match verdict {
            Verdict::Settle(settlement) => {
                // Fails only when the runtime is gone; then the lease runs out.
                let _ = self.settlements.send(settlement);
            }
            Verdict::Written | Verdict::Lost => {
                if claim.order.is_some() {
                    // Before it lands: whoever sees nothing in hand must have been told what follows.
                    inbox.local_wakeup.now();
                }
                in_flight.release([claim]);
                in_flight.report(&inbox.name);
            }
        }
    }
}
