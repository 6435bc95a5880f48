//! Stops receiving while the store has trouble: brokers count redeliveries, and give up on a message that returned too often. Tests: `tests/intake_switch.rs`.

use std::time::Duration;

use tokio::sync::watch;

use crate::error::ErrorKind;
use crate::runtime::Core;
use crate::runtime::upkeep::orphans;
use crate::runtime::upkeep::repeat::Pauses;
use crate::store::Store;

/// Pause before more deliveries, for a store that answers but refuses writes.
const TRY_AGAIN: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SwitchState {
    /// No store call yet.
    Unknown,
    Open,
    Shut,
}

/// Open while the store accepts deliveries.
#[derive(Debug)]
pub(in crate::runtime) struct IntakeSwitch {
    state: watch::Sender<SwitchState>,
}

impl Default for IntakeSwitch {
    fn default() -> Self {
        Self { state: watch::Sender::new(SwitchState::Unknown) }
    }
}

impl IntakeSwitch {
    pub(in crate::runtime) fn shut(&self) {
        self.set(SwitchState::Shut);
    }

    pub(in crate::runtime) fn open(&self) {
        self.set(SwitchState::Open);
    }

    fn set(&self, state: SwitchState) {
        // Every delivery calls this, so a write for each would contend.
        if *self.state.borrow() != state {
            self.state.send_replace(state);
        }
    }

    /// Completes when the switch is no longer open.
    pub(in crate::runtime) async fn shuts(&self) {
        // The sender lives in `self`, so the channel cannot close.
        let _ = self.state.subscribe().wait_for(|state| *state != SwitchState::Open).await;
    }

    async fn opened(&self) {
        // The sender lives in `self`, so the channel cannot close.
        let _ = self.state.subscribe().wait_for(|state| *state == SwitchState::Open).await;
    }

    /// Completes when the switch is open. A stored delivery opens it. If there is none, this call asks the store.
    pub(in crate::runtime) async fn opens<S: Store>(&self, core: &Core<S>) {
        let state = *self.state.borrow();
        if state == SwitchState::Open {
            return;
        }
        let ask = async {
            if state == SwitchState::Shut {
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

/// Completes when the store answers a query: the cheapest one that every store has. A store that does not support it has answered, too.
async fn answers<S: Store>(core: &Core<S>) {
    let (inbox, mut pauses) = (&core.inbox, Pauses::default());
    while let Err(error) = inbox.store.orphans(&orphans::params(inbox)).await {
        if error.kind() == ErrorKind::Unsupported {
            return;
        }
        inbox.store.watch().trouble(&inbox.name, "receive", &error);
        inbox.clock.sleep(pauses.next()).await;
    }
}
