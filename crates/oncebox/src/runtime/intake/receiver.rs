//! Receives deliveries from a source and stores those that arrive together in one batch. Tests: `tests/receiver.rs`, `tests/batcher.rs`.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::delivery::{Taken, caught, store_alone, store_together};
use super::lines::ArrivalQueues;
use super::source_state::SourceState;
use crate::config::ShortWindow;
use crate::error::{Error, ErrorKind, Result};
use crate::inbox::{HandlerAnswer, OfferResult, PreparedDelivery, Processed, Receipt, Received, Shared};
use crate::message::Message;
use crate::runtime::Core;
use crate::source::{Batcher, Delivery, Source};
use crate::store::{Accepted, Store};

/// Maximum deliveries taken before other tasks run.
const AT_ONCE: usize = 500;

/// A source and its deliveries. They outlive the component, so that a restart continues with them: a broker does not
/// deliver an unsettled message again on the same connection.
pub(in crate::runtime) struct Intake<Src> {
    source: Src,
    state: Arc<SourceState>,
    /// Deliveries that are only stored.
    together: Batcher<Taken>,
    /// Deliveries with inline handlers or an ordering key, each in its own task.
    alone: JoinSet<()>,
    lines: ArrivalQueues,
}

impl<Src> Intake<Src> {
    pub(in crate::runtime) fn new<S: Store>(
        core: &Arc<Core<S>>,
        source: Src,
        state: Arc<SourceState>,
    ) -> Self {
        let (core, of) = (Arc::clone(core), Arc::clone(&state));
        let store = move |taken, turn| store_together(Arc::clone(&core), Arc::clone(&of), taken, turn);
        let together = Batcher::start(|taken: &Taken| taken.message().payload().len(), store);
        Self { source, state, together, alone: JoinSet::new(), lines: ArrivalQueues::default() }
    }
}

/// A drop leaves the deliveries in hand unsettled, and the broker keeps them.
impl<Src> Drop for Intake<Src> {
    fn drop(&mut self) {
        self.together.abort();
    }
}

/// Returns an error or logs a warning if a source may deliver a message again after its retention.
pub(in crate::runtime) fn check_window<S: Store>(inbox: &Shared<S>, source: &impl Source) -> Result<()> {
    let redelivers = source.redelivers_for();
    // The shortest window: a handler may forget earlier than the inbox.
    let handlers = inbox.registry.handlers().filter(|handler| !handler.registration.forget);
    let windows = handlers.map(|handler| handler.registration.retention.or(inbox.config.retention));
    let shortest = windows.flatten().min().or(inbox.config.retention);
    // The build of the inbox has already warned that a direct inbox remembers nothing.
    if redelivers.is_within(shortest) || inbox.is_direct() {
        return Ok(());
    }
    let (name, window) = (source.name(), shortest.unwrap_or_default());
    let what = format!(
        "`retention` is {window:?}: the source {name:?} may deliver a message again ({redelivers:?}) after the inbox {:?} forgot it; set a longer retention, or set `short_window` to Warn",
        inbox.name
    );
    match inbox.config.short_window {
        ShortWindow::Refuse => Err(Error::new(ErrorKind::InvalidConfig, what)),
        ShortWindow::Warn => {
            tracing::warn!("{what}");
            Ok(())
        }
    }
}

pub(in crate::runtime) async fn run<S: Store>(
    core: Arc<Core<S>>,
    intake: Arc<Mutex<Intake<impl Source>>>,
) -> Result<()> {
    let intake = &mut *intake.lock().await;
    let state = Arc::clone(&intake.state);
    let receiving = Receiving::new(&state);
    while let Some(first) = intake.next(&core).await {
        intake.take(&core, first);
    }
    receiving.over(core.stop.requested());
    // Deliveries in hand are settled before the source is dropped. After the grace they are dropped unsettled, and the
    // broker keeps them.
    tokio::select! {
        () = state.has_none() => {}
        () = core.cut.wait() => {}
    }
    Ok(())
}

impl<Src: Source> Intake<Src> {
    /// Waits for room and the next delivery. Returns `None` at a request to stop or when the source ends.
    async fn next<S: Store>(&mut self, core: &Core<S>) -> Option<Delivery> {
        while ended(self.alone.try_join_next().as_ref()) {}
        loop {
            tokio::select! {
                biased;
                () = core.stop.wait() => return None,
                // While the store is unavailable, deliveries in hand wait and no others are received.
                () = async {
                    self.state.has_room(core.inbox.config.prefetch).await;
                    core.intake_switch.opens(core).await;
                } => {}
            }
            tokio::select! {
                biased;
                () = core.stop.wait() => return None,
                // A source that lost its connection must not consume again now.
                () = core.intake_switch.shuts() => {}
                delivery = self.source.recv() => return delivery,
            }
        }
    }

    /// Takes a delivery, and those that have already arrived behind it.
    fn take<S: Store>(&mut self, core: &Arc<Core<S>>, first: Delivery) {
        let room = self.state.room(core.inbox.config.prefetch).min(AT_ONCE);
        let mut next = Some(first);
        for left in (0..room.max(1)).rev() {
            let Some(delivery) = next.take() else { return };
            let line = core.inbox.line_of(delivery.message());
            let taken = Taken::new(&core.inbox, &self.state, delivery);
            if line.is_none() && core.inbox.only_stores(taken.message()) {
                // The push fails only when the Tokio runtime ends.
                let _ = self.together.push(taken);
            } else {
                let place = line.map(|line| self.lines.place(line));
                self.alone.spawn(store_alone(Arc::clone(core), Arc::clone(&self.state), taken, place));
            }
            if left > 0 {
                next = self.source.ready();
            }
        }
    }
}

/// Records a receiver that ends without a request to stop.
struct Receiving<'a>(&'a SourceState, bool);

impl<'a> Receiving<'a> {
    fn new(state: &'a SourceState) -> Self {
        state.receives();
        Self(state, false)
    }

    fn over(mut self, stopping: bool) {
        self.1 = true;
        if !stopping {
            self.0.is_over();
        }
    }
}

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.failed();
        }
    }
}

/// Returns true if a task ended. A delivery whose task panicked was dropped unsettled: the broker delivers it again.
fn ended(one: Option<&std::result::Result<(), tokio::task::JoinError>>) -> bool {
    if let Some(Err(panic)) = one {
        tracing::error!(error = %panic, "intake of a delivery panicked");
    }
    one.is_some()
}

impl<S: Store> Shared<S> {
    /// Receives a message: durable entries first, then inline handlers.
    pub(crate) async fn receive(self: &Arc<Self>, prepared: &PreparedDelivery) -> Result<Received> {
        // Store first, so that durable handlers have the message even if an inline handler fails. The redelivery is then a
        // duplicate.
        let answer = match &prepared.offers {
            Some(offers) => Some(self.offer(offers).await?),
            None => None,
        };
        self.receive_stored(prepared, answer).await
    }

    /// Receives messages together, and stores all of them in one transaction.
    pub(crate) async fn receive_batch(
        self: &Arc<Self>,
        messages: impl Iterator<Item = Arc<Message>>,
    ) -> Result<Vec<Result<Received>>> {
        let prepared: Vec<Result<PreparedDelivery>> =
            messages.map(|message| self.prepare_delivery(message)).collect();
        let mut received = self.receive_all(prepared.iter().flatten()).await?.into_iter();
        let mut all = Vec::with_capacity(prepared.len());
        for prepared in prepared {
            all.extend(prepared.map_or_else(|error| Some(Err(error)), |_| received.next()));
        }
        Ok(all)
    }

    /// Receives unrelated messages: together, or each alone after an error that one message may cause. The result of a message
    /// is `None` after a panic.
    pub(crate) async fn receive_each(
        self: &Arc<Self>,
        prepared: &[PreparedDelivery],
    ) -> Vec<Option<Result<Received>>> {
        let many = prepared.len() > 1;
        match caught(self.receive_all(prepared.iter())).await {
            Some(Ok(received)) => received.into_iter().map(Some).collect(),
            Some(Err(error)) if !many || !error.kind().is_per_message() => {
                prepared.iter().map(|_| Some(Err(error.to_shared()))).collect()
            }
            None if !many => vec![None],
            _ => join_all(prepared.iter().map(|prepared| caught(self.receive(prepared)))).await,
        }
    }

    async fn receive_all<'a>(
        self: &Arc<Self>,
        prepared: impl Iterator<Item = &'a PreparedDelivery> + Clone + Send,
    ) -> Result<Vec<Result<Received>>> {
        let offers = prepared.clone().filter_map(|prepared| prepared.offers.as_ref());
        let mut answers = self.offer_all(offers).await?.into_iter();
        let mut all = Vec::new();
        for prepared in prepared {
            let answer = if prepared.offers.is_some() { answers.next() } else { None };
            all.push(self.receive_stored(prepared, answer).await);
        }
        Ok(all)
    }

    /// Returns true if a message is only stored before its acknowledgement.
    pub(crate) fn only_stores(&self, message: &Message) -> bool {
        !self.is_direct() && self.registry.inline(message.message_type()).next().is_none()
    }

    /// Runs the inline handlers of a message after its store call.
    async fn receive_stored(
        self: &Arc<Self>,
        prepared: &PreparedDelivery,
        answer: Option<OfferResult>,
    ) -> Result<Received> {
        let message = &prepared.message;
        if self.is_direct() {
            let (receipt, handlers) = crate::runtime::run_directly(self, message).await?;
            return Ok(Received { receipt, accepted: None, duplicate: false, handlers });
        }
        crate::runtime::registered(self).await?;
        let accepted = answer.as_ref().map(|answer| answer.whole);
        let stored = prepared.offers.as_ref().zip(answer);
        let mut handlers =
            stored.as_ref().map_or_else(Vec::new, |(offers, answer)| self.answers(message, offers, answer));
        let mut duplicate = accepted.is_none_or(|accepted| matches!(accepted, Accepted::Duplicate(_)));
        let mut receipt = Receipt::Done;
        for ((handler, _), key) in self.registry.inline(message.message_type()).zip(&prepared.inline) {
            // A quarantined message does not run under the same key.
            let item = stored.as_ref().and_then(|(offers, answer)| answer.quarantined(offers, &key.key));
            let said = if let Some(item) = item {
                HandlerAnswer::Stored(item)
            } else {
                let inline =
                    crate::runtime::Inline { inbox: self, handler, key: *key, message, recall: false };
                let (processed, _) = inline.run().await?;
                duplicate &= processed == Processed::Duplicate;
                receipt = receipt.and(Receipt::of(processed.clone(), &handler.registration.policy));
                HandlerAnswer::Ran(processed)
            };
            handlers.push((handler.route.key.clone(), said));
        }
        if duplicate {
            self.note_duplicate(message);
        }
        Ok(Received { receipt, accepted, duplicate, handlers })
    }
}
