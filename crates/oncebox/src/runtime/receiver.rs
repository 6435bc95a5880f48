//! Takes deliveries from a source, stores them, and only then tells the broker.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::Core;
use super::lines::{Lines, Place};
use super::repeat::{Pauses, is_trouble};
use crate::config::ShortWindow;
use crate::error::{Error, ErrorKind, Result};
use crate::health::{InHand, SourceState};
use crate::inbox::{Answer, Prepared, Processed, Receipt, Received, Shared};
use crate::message::Message;
use crate::source::{Ack, Delivery, Redelivery, Source};
use crate::state::ErrorText;
use crate::store::{Accepted, Store};

/// How much later a delivery is to come again that somebody else worked on for too long to wait for.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// A source and the deliveries that it brought. They outlive the component, so that one that starts again goes on
/// with them: a broker does not bring again what it still believes to be in good hands.
pub(super) struct Intake<Src> {
    source: Src,
    state: Arc<SourceState>,
    in_hand: JoinSet<()>,
    lines: Lines,
}

impl<Src> Intake<Src> {
    pub(super) fn new(source: Src, state: Arc<SourceState>) -> Self {
        Self { source, state, in_hand: JoinSet::new(), lines: Lines::default() }
    }
}

/// Refuses a source that may bring a message again after the inbox has forgotten it, or warns of it.
pub(super) fn check_window<S: Store>(inbox: &Shared<S>, source: &impl Source) -> Result<()> {
    let redelivers = source.redelivers_for();
    // The shortest there is: a handler may forget earlier than the inbox.
    let handlers = inbox.registry.handlers().filter(|handler| !handler.registration.forget);
    let windows = handlers.map(|handler| handler.registration.retention.or(inbox.config.retention));
    let shortest = windows.flatten().min().or(inbox.config.retention);
    let long_enough = match (shortest, redelivers) {
        (None, _) | (_, Redelivery::Unknown) => true,
        (Some(retention), Redelivery::Within(time)) => retention >= time,
        (Some(_), Redelivery::Forever) => false,
    };
    // Where nothing is remembered, that was said when the inbox was built.
    if long_enough || inbox.is_direct() {
        return Ok(());
    }
    let (name, window) = (source.name(), shortest.unwrap_or_default());
    let what = format!(
        "`retention` is {window:?}: the source {name:?} may bring a message again, {redelivers:?}, when the inbox {:?} has forgotten it; remember for longer, or set `short_window` to Warn",
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

pub(super) async fn run<S: Store>(core: Arc<Core<S>>, intake: Arc<Mutex<Intake<impl Source>>>) -> Result<()> {
    let Intake { source, state, in_hand, lines } = &mut *intake.lock().await;
    let receiving = Receiving::new(state);
    while let Some(delivery) = next(&core, source, in_hand).await {
        let (core, state) = (Arc::clone(&core), Arc::clone(state));
        let place = core.inbox.line_of(delivery.message()).map(|line| lines.place(line));
        in_hand.spawn(async move { deliver(&core, &state, delivery, place).await });
    }
    receiving.over(core.stop.requested());
    // Deliveries in hand are settled before the source is let go. What the grace does not suffice for is dropped
    // unsettled, and the broker keeps it.
    tokio::select! {
        () = async { while ended(in_hand.join_next().await.as_ref()) {} } => {}
        () = core.cut.wait() => {}
    }
    Ok(())
}

/// The next delivery, as soon as there is room for it; `None` at a request to stop or when the source is over.
async fn next<S: Store>(
    core: &Core<S>,
    source: &mut impl Source,
    in_hand: &mut JoinSet<()>,
) -> Option<Delivery> {
    while ended(in_hand.try_join_next().as_ref()) {}
    // While the store is away these stay in hand, and nothing more is received.
    while in_hand.len() >= core.inbox.config.prefetch {
        tokio::select! {
            biased;
            () = core.stop.wait() => return None,
            one = in_hand.join_next() => ended(one.as_ref()),
        };
    }
    loop {
        tokio::select! {
            biased;
            () = core.stop.wait() => return None,
            () = core.door.opens(core) => {}
        }
        tokio::select! {
            biased;
            () = core.stop.wait() => return None,
            // A source that lost its connection must not consume again now.
            () = core.door.shuts() => {}
            delivery = source.recv() => return delivery,
        }
    }
}

/// Tells of a source whose receiving ends in another way than it should.
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

/// Whether there was one that ended. One that panicked was dropped unsettled: the broker brings it again.
fn ended(one: Option<&std::result::Result<(), tokio::task::JoinError>>) -> bool {
    if let Some(Err(panic)) = one {
        tracing::error!(error = %panic, "taking a delivery in panicked");
    }
    one.is_some()
}

/// Stores one delivery and settles it. A store that is away is waited for, and so is somebody else who works on the same
/// message, though not for ever: giving the delivery back would only make the broker count another failed delivery, and
/// put it aside after so many.
async fn deliver<S: Store>(
    core: &Core<S>,
    state: &SourceState,
    delivery: Delivery,
    mut place: Option<Place>,
) {
    let mut in_hand = state.take();
    let (message, settle) = delivery.into_parts();
    let propagator = &core.inbox.store.watch().propagator;
    let span = propagator.receiving(&core.inbox.name, state.name(), &message);
    if let Some(place) = &mut place
        && !place.turn().await
        && core.stop.requested()
    {
        // The one before it goes back to the broker, and so does this one: it must not be the first to come again.
        return;
    }
    let Some(ack) = receive(core, &mut in_hand, message).instrument(span).await else { return };
    if let Some(place) = place {
        place.leave();
    }
    in_hand.let_go();
    let word = word(&ack);
    if let Err(error) = settle.settle(ack).await {
        // The broker brings it again, and it will be a duplicate.
        let error = ErrorText::new(error.to_string());
        tracing::debug!(source = state.name(), %error, "could not settle a delivery");
    } else {
        in_hand.told(word);
    }
}

/// Stores one delivery; says what to tell the broker. Nothing if the inbox stops: dropped unsettled, the broker keeps it.
async fn receive<S: Store>(core: &Core<S>, in_hand: &mut InHand<'_>, message: Message) -> Option<Ack> {
    let prepared = match core.inbox.prepare_delivery(core.inbox.own(message)) {
        Ok(prepared) => prepared,
        Err(error) => return Some(Ack::Reject { reason: error.to_string() }),
    };
    let (mut pauses, mut busy) = (Pauses::default(), Busy::default());
    loop {
        let answer = core.inbox.receive(&prepared).await;
        match &answer {
            Ok(_) => core.door.open(),
            Err(error) if is_trouble(error.kind()) => core.door.shut(),
            Err(_) => {}
        }
        let pause = match answer {
            Ok(Received { receipt: Receipt::Busy, .. }) if busy.may_go_on(&core.inbox) => busy.pauses.next(),
            Ok(received) => return Some(ack(&received.receipt)),
            Err(error) if waits(&error) => {
                in_hand.held(core.inbox.clock.monotonic());
                core.inbox.store.watch().trouble(&core.inbox.name, "accept", &error);
                pauses.next()
            }
            Err(error) => return Some(Ack::Reject { reason: error.to_string() }),
        };
        tokio::select! {
            () = core.inbox.clock.sleep(pause) => {}
            () = core.stop.wait() => return None,
        }
    }
}

/// The word for it in metrics.
const fn word(ack: &Ack) -> &'static str {
    match ack {
        Ack::Done => "done",
        Ack::Redeliver { .. } => "redeliver",
        Ack::Busy { .. } => "busy",
        Ack::Reject { .. } => "reject",
    }
}

/// How long somebody else has been working on a delivery.
#[derive(Default)]
struct Busy {
    since: Option<Duration>,
    pauses: Pauses,
}

impl Busy {
    fn may_go_on<S: Store>(&mut self, inbox: &Shared<S>) -> bool {
        let now = inbox.clock.monotonic();
        now.saturating_sub(*self.since.get_or_insert(now)) < inbox.config.busy_wait
    }
}

/// Errors of the store are waited out; only what is wrong with the message itself is refused.
fn waits(error: &Error) -> bool {
    use ErrorKind::{InvalidMessage, MissingKey, Tenant, TooLarge, Unrouted};
    !matches!(error.kind(), MissingKey | InvalidMessage | TooLarge | Unrouted | Tenant)
}

fn ack(receipt: &Receipt) -> Ack {
    match receipt {
        Receipt::Done => Ack::Done,
        Receipt::Busy => Ack::Busy { after: BUSY_PAUSE },
        Receipt::Snoozed { after } => Ack::Busy { after: *after },
        Receipt::Failed { after } => Ack::Redeliver { after: *after },
        Receipt::Rejected { reason } => Ack::Reject { reason: reason.clone() },
    }
}

impl<S: Store> Shared<S> {
    /// Takes a message the whole way: durable entries first, then inline handlers.
    pub(crate) async fn receive(self: &Arc<Self>, prepared: &Prepared) -> Result<Received> {
        // Stored first, so that the durable handlers have the message even if an inline one fails; the redelivery
        // that follows finds it there.
        let answer = match &prepared.offers {
            Some(offers) => Some(self.offer(offers).await?),
            None => None,
        };
        self.receive_stored(prepared, answer).await
    }

    /// Takes messages the whole way that came together: one transaction for all that is stored of them.
    pub(crate) async fn receive_batch(
        self: &Arc<Self>,
        messages: impl Iterator<Item = Arc<Message>>,
    ) -> Result<Vec<Result<Received>>> {
        let prepared: Vec<Result<Prepared>> =
            messages.map(|message| self.prepare_delivery(message)).collect();
        let offers = prepared.iter().flatten().filter_map(|prepared| prepared.offers.as_ref());
        let answers = self.offer_all(offers).await?;
        let mut answers = answers.into_iter();
        let mut all = Vec::with_capacity(prepared.len());
        for prepared in prepared {
            let received = match prepared {
                Ok(prepared) => {
                    let answer = if prepared.offers.is_some() { answers.next() } else { None };
                    self.receive_stored(&prepared, answer).await
                }
                Err(error) => Err(error),
            };
            all.push(received);
        }
        Ok(all)
    }

    /// Runs the inline handlers of a message of which the store has answered.
    async fn receive_stored(
        self: &Arc<Self>,
        prepared: &Prepared,
        answer: Option<Answer>,
    ) -> Result<Received> {
        let message = &prepared.message;
        if self.is_direct() {
            let receipt = super::run_directly(self, message).await?;
            return Ok(Received { receipt, accepted: None, duplicate: false });
        }
        super::registered(self).await?;
        let accepted = answer.as_ref().map(|answer| answer.whole);
        let kept_aside = answer.map(|answer| answer.kept_aside).unwrap_or_default();
        let mut duplicate = accepted.is_none_or(|accepted| matches!(accepted, Accepted::Duplicate(_)));
        let mut receipt = Receipt::Done;
        for ((handler, _), key) in self.registry.inline(message.kind()).zip(&prepared.inline) {
            // What is kept aside for a person does not run under the same key.
            if !kept_aside.contains(key) {
                let inline = super::Inline { inbox: self, handler, key: *key, message, recall: false };
                let (processed, _) = inline.run().await?;
                duplicate &= processed == Processed::Duplicate;
                receipt = receipt.and(Receipt::of(processed, &handler.registration.policy));
            }
        }
        if duplicate {
            self.note_duplicate(message);
        }
        Ok(Received { receipt, accepted, duplicate })
    }
}
