//! An operator under faults: pauses and resumes handlers, and retries rejected messages. Tests: tests/short.rs.

use std::sync::Arc;
use std::time::Duration;

use oncebox::state::{Operation, PoisonReason, Status};
use oncebox::store::{Action, ActionKind, EntryFilter, EntryView};
use oncebox::{HandlerKey, InboxName, Result};

use crate::ledger::{Fact, SettleResult};
use crate::plan::{handler_of, number_of};
use crate::seam::{Notes, Rigged, pause};

/// Attempts of an operation without a response.
const TIMES: u32 = 6;

/// Operates until the last fault, then resumes all handlers.
pub(super) async fn act<S: Rigged>(store: S, notes: Arc<Notes>, seed: u64) -> Result<()> {
    let inbox = InboxName::new("chaos")?;
    let handlers = ["tx", "plain", "ordered", "share", "batch"].map(HandlerKey::new);
    let handlers: Vec<HandlerKey> = handlers.into_iter().collect::<Result<_>>()?;
    let operator = ChaosOperator { store, inbox, notes };
    let mut rng = fastrand::Rng::with_seed(seed);
    while !operator.notes.is_quiescent() {
        pause(Duration::from_millis(rng.u64(20..200))).await;
        if rng.u32(0..3) == 0 {
            let handler = handlers[rng.usize(0..handlers.len())].clone();
            operator.request(ActionKind::Pause { handler: handler.clone() }, None).await;
            pause(Duration::from_millis(rng.u64(1..40))).await;
            operator.request(ActionKind::Resume { handler }, None).await;
        } else if let Some((m, what)) = operator.rejected(&mut rng).await {
            operator.request(what, Some(m)).await;
        }
    }
    // A killed operator may have paused a handler, and its request may still be in flight.
    loop {
        for handler in &handlers {
            operator.request(ActionKind::Resume { handler: handler.clone() }, None).await;
        }
        pause(Duration::from_secs(1)).await;
    }
}

struct ChaosOperator<S> {
    store: S,
    inbox: InboxName,
    notes: Arc<Notes>,
}

impl<S: Rigged> ChaosOperator<S> {
    /// Returns a retry of a rejected message, which will be rejected again.
    async fn rejected(&self, rng: &mut fastrand::Rng) -> Option<(u32, ActionKind)> {
        let page = self.store.list(&EntryFilter::new(self.inbox.clone(), Status::Poisoned)).await.ok()?;
        let rejected = |entry: &&EntryView| entry.reason == Some(PoisonReason::Rejected);
        let entries: Vec<&EntryView> = page.entries.iter().filter(rejected).collect();
        let entry = *entries.get(rng.usize(0..entries.len().max(1)))?;
        let m = number_of(&entry.label.as_ref()?.id)?;
        let (key, handler, operation) = (entry.key, entry.handler.clone(), Operation::Retry);
        Some((m, ActionKind::Entry { key, handler, operation }))
    }

    /// Requests an operation, and repeats it under the same identity while its result is unknown.
    async fn request(&self, what: ActionKind, m: Option<u32>) {
        let h = handler_of(what.handler().map_or("", HandlerKey::as_str)).to_owned();
        let action = Action::new(self.inbox.clone(), what).by("the rig", "to see what happens");
        let op = action.id.to_string();
        self.notes.ledger.note(Fact::Requested { op: op.clone(), m, h });
        for _ in 0..TIMES {
            let acted = self.store.act(&action).await;
            let r = match &acted {
                Ok(_) => SettleResult::Applied,
                Err(error) if error.is_retryable() => SettleResult::Unknown,
                Err(_) => SettleResult::Error,
            };
            self.notes.ledger.note(Fact::Acted { op: op.clone(), r });
            if r != SettleResult::Unknown {
                return;
            }
            pause(Duration::from_millis(10)).await;
        }
    }
}
