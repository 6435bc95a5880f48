//! Stops receiving while the store has trouble: brokers count redeliveries, and give up on a message that returned too often. Tests: `tests/intake_switch.rs`.

use std::time::Duration;

use tokio::sync::watch;

use crate::runtime::Core;
use crate::runtime::upkeep::orphans;
use crate::runtime::upkeep::repeat::Pauses;
use crate::store::Store;

/// How long a store that answers, and yet takes nothing, is left alone before it is tried with more deliveries.
const TRY_AGAIN: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody has asked the store yet.
    Unknown,
    Open,
    Shut,
}

/// Open while the store takes what is received.
#[derive(Debug)]
pub(in crate::runtime) struct IntakeSwitch {
    state: watch::Sender<State>,
}

impl Default for IntakeSwitch {
    fn default() -> Self {
        Self { state: watch::Sender::new(State::Unknown) }
    }
}

impl IntakeSwitch {
    /// The store has trouble.
    pub(in crate::runtime) fn shut(&self) {
        self.set(State::Shut);
    }

    /// The store answers.
    pub(in crate::runtime) fn open(&self) {
        self.set(State::Open);
    }

    fn set(&self, state: State) {
        // Every delivery says so; a write for each would be in the way of all others.
        if *self.state.borrow() != state {
            self.state.send_replace(state);
        }
    }

    /// Completes when the switch is no longer open.
    pub(in crate::runtime) async fn shuts(&self) {
        // The sender lives in `self`, so the channel cannot close.
        let _ = self.state.subscribe().wait_for(|state| *state != State::Open).await;
    }

    async fn opened(&self) {
        // The sender lives in `self`, so the channel cannot close.
        let _ = self.state.subscribe().wait_for(|state| *state == State::Open).await;
    }

    /// Completes when the switch is open. Deliveries in hand open it when the store takes one of them. If there are none, or
    /// none gets through, the store is asked itself.
    pub(in crate::runtime) async fn opens<S: Store>(&self, core: &Core<S>) {
        let state = *self.state.borrow();
        if state == State::Open {
            return;
        }
        let ask = async {
            if state == State::Shut {
                core.inbox.clock.sleep(TRY_AGAIN).await;
            }
            answers(core).await;
            self.open();
        };
        tokio::select! {
            biased;
            () = self.opened() => {}
            () = ask => {}
        }
    }
}

/// Completes when the store answers a question that changes nothing.
async fn answers<S: Store>(core: &Core<S>) {
    let (inbox, mut pauses) = (&core.inbox, Pauses::default());
    while let Err(error) = inbox.store.orphans(&orphans::params(inbox)).await {
        inbox.store.watch().trouble(&inbox.name, "receive", &error);
        inbox.clock.sleep(pauses.next()).await;
    }
}
