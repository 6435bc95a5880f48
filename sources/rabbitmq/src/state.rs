//! Connection state of a source, for monitors. Tests: tests/faults.rs and tests/leader.rs.

use std::sync::Arc;

use tokio::sync::watch;

/// Connection state of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionState {
    /// Not started, or paused by the inbox during an outage of its store.
    Idle,
    /// Connected and consuming.
    Connected,
    /// Disconnected; the source retries.
    Away {
        /// The last error.
        error: String,
    },
}

/// Shows the state of a source that an inbox owns.
#[derive(Clone, Debug)]
pub struct Monitor {
    state: Arc<watch::Sender<ConnectionState>>,
}

impl Monitor {
    pub(crate) fn new() -> Self {
        Self { state: Arc::new(watch::Sender::new(ConnectionState::Idle)) }
    }

    /// Returns the current state.
    pub fn connection(&self) -> ConnectionState {
        self.state.borrow().clone()
    }

    /// Waits until the state matches; completes at once if it does already.
    pub async fn wait_for(&self, wanted: impl FnMut(&ConnectionState) -> bool) {
        // The sender lives in `self`, so the channel cannot close.
        let _ = self.state.subscribe().wait_for(wanted).await;
    }

    pub(crate) fn set(&self, state: ConnectionState) {
        self.state.send_if_modified(|current| {
            let changed = *current != state;
            *current = state;
            changed
        });
    }
}
