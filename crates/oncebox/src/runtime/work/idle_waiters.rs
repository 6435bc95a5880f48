//! Lets callers wait until the dispatcher finds no more work. Tests: `tests/lifecycle.rs`.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Notify, watch};

/// Tickets of callers that wait. A ticket is answered when no entry was in hand, and a claim for all handlers after the
/// ticket found nothing.
#[derive(Default)]
pub(in crate::runtime) struct IdleWaiters {
    tickets: AtomicU64,
    taken: Notify,
    answered: watch::Sender<u64>,
}

impl IdleWaiters {
    /// Takes a ticket, and waits until it is answered.
    pub(in crate::runtime) async fn wait(&self) {
        let ticket = self.tickets.fetch_add(1, Ordering::SeqCst) + 1;
        self.taken.notify_one();
        // The sender lives in `self`, so the channel cannot close.
        let _ = self.answered.subscribe().wait_for(|answered| *answered >= ticket).await;
    }

    /// Completes when a ticket was taken.
    pub(in crate::runtime) async fn taken(&self) {
        self.taken.notified().await;
    }

    /// The last ticket that was taken.
    pub(in crate::runtime) fn ticket(&self) -> u64 {
        self.tickets.load(Ordering::SeqCst)
    }

    pub(in crate::runtime) fn is_waited_for(&self) -> bool {
        self.ticket() > *self.answered.borrow()
    }

    /// Answers every ticket up to this one.
    pub(in crate::runtime) fn answer(&self, ticket: u64) {
        self.answered.send_if_modified(|answered| {
            let newer = ticket > *answered;
            *answered = ticket.max(*answered);
            newer
        });
    }
}
