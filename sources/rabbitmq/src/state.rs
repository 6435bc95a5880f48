//! State of the connection of a source, for monitors.

use std::sync::Arc;

use tokio::sync::watch;

/// Where a source stands with its broker.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionState {
    /// Nothing was asked of it yet, or the inbox does not take messages because its store is away.
    Idle,
    /// It consumes.
    Connected,
    /// It cannot, for the time being.
    Away {
        /// Why.
        error: String,
    },
}

/// Tells how a source is doing, while an inbox has the source itself.
#[derive(Clone, Debug)]
pub struct Monitor {
    state: Arc<watch::Sender<ConnectionState>>,
}

impl Monitor {
    pub(crate) fn new() -> Self {
        Self { state: Arc::new(watch::Sender::new(ConnectionState::Idle)) }
    }

    /// Where it stands.
    pub fn connection(&self) -> ConnectionState {
        self.state.borrow().clone()
    }

    /// Completes when it stands as asked for, at once if it does already.
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
