//! Hints that there may be work. They may be lost: workers poll as well.

use tokio::sync::watch;

/// Store that reports when there may be work.
pub trait Wakeups: Send + Sync {
    /// Starts listening. Earlier events are not reported.
    fn subscribe(&self) -> Wakeup;
}

/// Listener for wake-ups. Events between two calls count as one.
#[derive(Clone, Debug)]
pub struct Wakeup(watch::Receiver<u64>);

impl Wakeup {
    /// Listens to a counter that changes when there may be work.
    pub fn new(receiver: watch::Receiver<u64>) -> Self {
        Self(receiver)
    }

    /// Completes at the next event. Never completes if the store is gone.
    pub async fn woken(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
