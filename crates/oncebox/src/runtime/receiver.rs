//! Takes deliveries from a source, stores them, and only then tells the broker.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::Core;
use super::repeat::Pauses;
use crate::config::ShortWindow;
use crate::error::{Error, ErrorKind, Result};
use crate::inbox::{Answer, Prepared, Processed, Receipt, Received, Shared};
use crate::message::Message;
use crate::source::{Ack, Delivery, Redelivery, Settle, Source};
use crate::store::{Accepted, Store};

/// How much later a delivery is to come again that somebody else worked on for too long to wait for.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// A source and the deliveries that it brought. They outlive the component, so that one that starts again goes on
/// with them: a broker does not bring again what it still believes to be in good hands.
pub(super) struct Intake<Src> {
    source: Src,
    in_hand: JoinSet<()>,
}

impl<Src> Intake<Src> {
    pub(super) fn new(source: Src) -> Self {
        Self { source, in_hand: JoinSet::new() }
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
    let Intake { source, in_hand } = &mut *intake.lock().await;
    while let Some(delivery) = next(&core, source, in_hand).await {
        let core = Arc::clone(&core);
        in_hand.spawn(async move { deliver(&core, delivery).await });
    }
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
    tokio::select! {
        biased;
        () = core.stop.wait() => None,
        delivery = source.recv() => delivery,
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
async fn deliver<S: Store>(core: &Core<S>, delivery: Delivery) {
    let (message, settle) = delivery.into_parts();
    let prepared = match core.inbox.prepare_delivery(Arc::new(message)) {
        Ok(prepared) => prepared,
        Err(error) => return tell(settle, Ack::Reject { reason: error.to_string() }).await,
    };
    let (mut pauses, mut busy) = (Pauses::default(), Busy::default());
    let ack = loop {
        match core.inbox.receive(&prepared).await {
            Ok(Received { receipt: Receipt::Busy, .. }) if busy.may_go_on(&core.inbox) => {
                tokio::select! {
                    () = core.inbox.clock.sleep(busy.pauses.next()) => {}
                    // Dropped unsettled: the broker keeps it.
                    () = core.stop.wait() => return,
                }
            }
            Ok(received) => break ack(&received.receipt),
            Err(error) if waits(&error) => {
                if pauses.is_first() {
                    tracing::warn!(inbox = %core.inbox.name, error = %error, "cannot store a delivery; holding it");
                }
                tokio::select! {
                    () = core.inbox.clock.sleep(pauses.next()) => {}
                    // Dropped unsettled: the broker keeps it.
                    () = core.stop.wait() => return,
                }
            }
            Err(error) => break Ack::Reject { reason: error.to_string() },
        }
    };
    tell(settle, ack).await;
}

async fn tell(settle: Box<dyn Settle>, ack: Ack) {
    if let Err(error) = settle.settle(ack).await {
        // The broker brings it again, and it will be a duplicate.
        tracing::debug!(error = %error, "could not settle a delivery");
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
