//! Starts the runs of claimed entries, and sees to it that each ends in a settlement.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;

use super::Core;
use super::executor::{Verdict, execute};
use crate::handler::Registered;
use crate::state::{ErrorText, Outcome, Policy, Settlement, decide};
use crate::store::{Claim, Claimed, Store};

/// Runs a claimed entry in a task of its own.
pub(super) fn launch<S: Store>(
    core: &Arc<Core<S>>,
    settlements: &UnboundedSender<Settlement>,
    claimed: Claimed,
) {
    let Some(handler) = core.inbox.registry.by_key(&claimed.claim.handler).map(Arc::clone) else {
        // A store answered with a handler nobody asked for; its lease runs out and the right worker gets it.
        tracing::error!(handler = %claimed.claim.handler, "claimed an entry of an unknown handler");
        return;
    };
    let claim = claimed.claim.clone();
    let run = Run {
        core: Arc::clone(core),
        settlements: settlements.clone(),
        handler,
        claim: claim.clone(),
        ended: false,
    };
    let task = tokio::spawn(async move {
        // Dropped after everything below it, whose transaction must be rolled back before the entry is given back.
        let mut run = run;
        let verdict = execute(&run.core.inbox, &run.handler, claimed, &run.core.cut).await;
        run.end(verdict);
    });
    core.flights.attach(&claim, task.abort_handle());
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

/// A run that has to end in a settlement, even if it is stopped or panics: an entry that stayed in hand would be
/// renewed for ever, and could never be rescued.
struct Run<S: Store> {
    core: Arc<Core<S>>,
    settlements: UnboundedSender<Settlement>,
    handler: Arc<Registered<S>>,
    claim: Claim,
    ended: bool,
}

impl<S: Store> Run<S> {
    fn end(&mut self, verdict: Verdict) {
        self.ended = true;
        match verdict {
            Verdict::Settle(settlement) => {
                // Fails only when the runtime is gone; then the lease runs out.
                let _ = self.settlements.send(settlement);
            }
            Verdict::Written => {
                if self.claim.ordered {
                    // Before it lands: whoever sees nothing in hand must have been told what follows.
                    self.core.inbox.nudge.now();
                }
                self.core.flights.land([&self.claim]);
                self.core.flights.tell(&self.core.inbox.name);
            }
        }
    }
}

impl<S: Store> Drop for Run<S> {
    fn drop(&mut self) {
        if self.ended || !self.core.flights.holds(&self.claim) {
            return;
        }
        let outcome = if std::thread::panicking() {
            Outcome::Retry { error: ErrorText::new("the run panicked outside of its handler"), after: None }
        } else {
            // Stopped because its lease could not be renewed: that is nobody's failure.
            Outcome::Released
        };
        let settlement = decide(&self.handler.registration.policy, &self.claim, outcome);
        // Fails only when the runtime is gone; then the lease runs out.
        let _ = self.settlements.send(settlement);
    }
}
