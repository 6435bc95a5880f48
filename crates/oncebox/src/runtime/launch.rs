//! Starts the runs of claimed entries, and sees to it that each ends in a settlement.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

use super::Core;
use super::executor::{Verdict, execute};
use super::group;
use crate::handler::Registered;
use crate::name::HandlerKey;
use crate::state::{ErrorText, Outcome, Policy, Settlement, decide};
use crate::store::{Claim, Claimed, Store};

/// Runs what one claim brought: each entry in a task of its own, or in groups where a handler shares its commits.
pub(super) fn launch_all<S: Store>(
    core: &Arc<Core<S>>,
    settlements: &UnboundedSender<Settlement>,
    claimed: Vec<Claimed>,
) {
    let mut groups: BTreeMap<HandlerKey, Vec<Run<S>>> = BTreeMap::new();
    for run in claimed.into_iter().filter_map(|claimed| Run::new(core, settlements, claimed)) {
        let most = run.handler.registration.share.as_ref().map_or(1, |share| share.most);
        let group = groups.entry(run.handler.route.key.clone()).or_default();
        group.push(run);
        if group.len() >= most {
            start(std::mem::take(group));
        }
    }
    for group in groups.into_values() {
        start(group);
    }
}

/// Runs a claimed entry in a task of its own.
pub(super) fn launch<S: Store>(
    core: &Arc<Core<S>>,
    settlements: &UnboundedSender<Settlement>,
    claimed: Claimed,
) {
    start(Vec::from_iter(Run::new(core, settlements, claimed)));
}

/// Runs entries of one handler in one task; gives them back if nothing new is begun any more.
pub(super) fn start<S: Store>(mut runs: Vec<Run<S>>) -> Option<JoinHandle<()>> {
    let core = Arc::clone(&runs.first()?.core);
    if core.stop.requested() {
        return None;
    }
    let claims: Vec<Claim> = runs.iter().map(|run| run.claimed.claim.clone()).collect();
    // One alone needs none of the room that a group takes up.
    let task = match runs.pop() {
        Some(run) if runs.is_empty() => tokio::spawn(run.alone()),
        last => {
            runs.extend(last);
            tokio::spawn(group::run(runs))
        }
    };
    for claim in claims {
        core.flights.attach(&claim, task.abort_handle());
    }
    Some(task)
}

/// Gives back a claim that did not run, unless it was lost.
pub(super) fn give_back<S: Store>(
    core: &Core<S>,
    settlements: &UnboundedSender<Settlement>,
    claim: &Claim,
    outcome: Outcome,
) {
    if core.flights.holds(claim) {
        // Fails only when the runtime is gone; then the lease runs out.
        let _ = settlements.send(decide(&Policy::default(), claim, outcome));
    }
}

/// A claimed entry that has to end in a verdict, even if its run is stopped or panics: an entry that stayed in hand
/// would be renewed for ever, and could never be rescued. The verdict is told when this is dropped.
pub(super) struct Run<S: Store> {
    pub(super) core: Arc<Core<S>>,
    settlements: UnboundedSender<Settlement>,
    pub(super) handler: Arc<Registered<S>>,
    pub(super) claimed: Claimed,
    pub(super) verdict: Option<Verdict>,
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
        let (core, settlements) = (Arc::clone(core), settlements.clone());
        Some(Self { core, settlements, handler, claimed, verdict: None, alone: false })
    }

    /// Runs the entry by itself.
    pub(super) async fn alone(mut self) {
        self.alone = true;
        // What it borrows is gone before this is dropped: a transaction must be rolled back before its entry is given
        // back.
        self.verdict = Some(execute(&self.core.inbox, &self.handler, &self.claimed, &self.core.cut).await);
    }

    /// What follows from an outcome.
    pub(super) fn settle(&self, outcome: Outcome) -> Verdict {
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
        let (claim, Core { inbox, flights, .. }) = (&self.claimed.claim, &*self.core);
        let verdict = match self.verdict.take() {
            Some(verdict) => verdict,
            None if flights.holds(claim) => self.without_verdict(),
            None => return,
        };
        match verdict {
            Verdict::Settle(settlement) => {
                // Fails only when the runtime is gone; then the lease runs out.
                let _ = self.settlements.send(settlement);
            }
            Verdict::Written => {
                if claim.ordered {
                    // Before it lands: whoever sees nothing in hand must have been told what follows.
                    inbox.nudge.now();
                }
                flights.land([claim]);
                flights.tell(&inbox.name);
            }
        }
    }
}
