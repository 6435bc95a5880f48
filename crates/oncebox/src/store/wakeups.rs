//! Hints that there may be work. Best effort: polling is the truth.

use tokio::sync::watch;

/// A store that can say when there may be work.
pub trait Wakeups: Send + Sync {
    /// Starts listening; what happened before is not reported.
    fn subscribe(&self) -> Wakeup;
}

/// A listener for "there may be work". Any number of events between two calls are one.
#[derive(Clone, Debug)]
pub struct Wakeup(watch::Receiver<u64>);

impl Wakeup {
    /// Listens to a counter that changes when there may be work.
    pub fn new(receiver: watch::Receiver<u64>) -> Self {
        Self(receiver)
    }

    /// Completes at the next event; never, if the store is gone.
    pub async fn woken(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
