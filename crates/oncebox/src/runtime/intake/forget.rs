//! Runs fire-and-forget handlers once, in the process that stored the message. Only a shutdown waits for them. Tests: `tests/forget.rs`.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tracing::{Instrument as _, Span};

use crate::handler::{Context, RegisteredHandler};
use crate::inbox::Shared;
use crate::name::InboxName;
use crate::observe::{emit, names};
use crate::runtime::work::executor::{HandlerFailure, failed, run, uncommitted};
use crate::state::Outcome;
use crate::store::{NewMessage, Store};

/// The active runs.
#[derive(Default)]
pub(crate) struct Forget {
    under_way: watch::Sender<usize>,
    /// Number of requests to abort all runs.
    cuts: watch::Sender<u64>,
}

impl Forget {
    /// Completes when no run is active or waits for a permit. Runs that are due later do not count.
    pub(in crate::runtime) async fn empty(&self) {
        // The sender lives in `self`, so the channel cannot close.
        let _ = self.under_way.subscribe().wait_for(|under_way| *under_way == 0).await;
    }

    /// Aborts every run, and drops those that wait.
    pub(in crate::runtime) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

/// A run that a shutdown waits for. It is counted even if the Tokio runtime ends before its task begins.
struct UnderWay<S: Store>(Arc<Shared<S>>);

impl<S: Store> UnderWay<S> {
    fn new(inbox: &Arc<Shared<S>>) -> Self {
        inbox.forget.under_way.send_modify(|under_way| *under_way += 1);
        Self(Arc::clone(inbox))
    }
}

impl<S: Store> Drop for UnderWay<S> {
    fn drop(&mut self) {
        self.0.forget.under_way.send_modify(|under_way| *under_way -= 1);
    }
}

/// Starts a handler for a stored message. A failure to start is logged and counted, and does not affect the sender.
pub(crate) fn launch<S: Store>(
    inbox: &Arc<Shared<S>>,
    handler: &Arc<RegisteredHandler<S>>,
    message: &NewMessage,
) {
    let room = if message.delay.is_zero() { &handler.places } else { &handler.later };
    let Ok(place) = Arc::clone(room).try_acquire_owned() else {
        return dropped(inbox, handler, "too many of its runs wait already");
    };
    let Ok(runtime) = Handle::try_current() else {
        return dropped(inbox, handler, "there is no Tokio runtime to run it on");
    };
    let (inbox, handler, message) = (Arc::clone(inbox), Arc::clone(handler), message.clone());
    let mut cuts = inbox.forget.cuts.subscribe();
    // Counted from here on, unless it is due later: a shutdown that begins now waits for it.
    let counted = message.delay.is_zero().then(|| UnderWay::new(&inbox));
    runtime.spawn(async move {
        tokio::select! {
            biased;
            () = begin(&inbox, &handler, &message, place, counted.is_none()) => {}
            _ = cuts.changed() => dropped(&inbox, &handler, "the inbox stopped"),
        }
    });
}

async fn begin<S: Store>(
    inbox: &Arc<Shared<S>>,
    handler: &RegisteredHandler<S>,
    message: &NewMessage,
    mut place: OwnedSemaphorePermit,
    later: bool,
) {
    let _counted = if later {
        inbox.clock.sleep(message.delay).await;
        let counted = UnderWay::new(inbox);
        let Ok(due) = Arc::clone(&handler.places).try_acquire_owned() else {
            return dropped(inbox, handler, "too many of its runs wait already");
        };
        place = due;
        Some(counted)
    } else {
        None
    };
    let _place = place;
    // This semaphore is never closed.
    let _slot = handler.slots.acquire().await;
    let key = &handler.route.key;
    let watch = inbox.store.watch();
    let span = watch.propagator.handling(&inbox.name, key, &message.message, (None, 1), &Span::none());
    let result = match attempt(inbox, handler, message).instrument(span).await {
        Ok(()) | Err(HandlerFailure { outcome: Outcome::Discard { .. }, .. }) => "done",
        Err(HandlerFailure { outcome, .. }) => {
            let error = outcome.text().map_or("it asked for another attempt", |text| text.as_str());
            let (inbox, id) = (&message.inbox, &message.key);
            if let Some(suppressed) = watch.allow("forget failed", key.as_str()) {
                tracing::warn!(%inbox, key = %id, handler = %key, error, suppressed, "fire-and-forget handler failed, not retried");
            }
            "failed"
        }
    };
    count(&message.inbox, handler, result);
}

async fn attempt<S: Store>(
    inbox: &Shared<S>,
    handler: &RegisteredHandler<S>,
    NewMessage { message, key, .. }: &NewMessage,
) -> Result<(), HandlerFailure> {
    let name = handler.route.key.clone();
    let mut context = Context::new(inbox.surroundings(), Arc::clone(message), *key, name, 1, 0);
    run(handler, message, &mut context, inbox).await?;
    let Some(tx) = context.take_tx() else { return Ok(()) };
    // A task of its own: a commit must not be torn when this run is aborted.
    match tokio::spawn(tx.commit(None)).await {
        Ok(committed) => committed.map_err(|error| uncommitted(inbox, handler, &error)),
        Err(panic) => Err(failed(inbox, &format!("the commit panicked: {panic}"))),
    }
}

fn dropped<S: Store>(inbox: &Shared<S>, handler: &RegisteredHandler<S>, why: &'static str) {
    if let Some(suppressed) = inbox.store.watch().log_throttle.allow(why, handler.route.key.as_str()) {
        let handler = &handler.route.key;
        tracing::warn!(%handler, why, suppressed, "fire-and-forget handler dropped");
    }
    count(&inbox.name, handler, "dropped");
}

fn count<S: Store>(inbox: &InboxName, handler: &RegisteredHandler<S>, result: &'static str) {
    let labels = [emit::inbox(inbox), emit::handler(&handler.route.key), emit::word("result", result)];
    emit::count(names::FORGOTTEN, 1, labels);
}
