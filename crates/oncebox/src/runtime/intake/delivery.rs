//! Stores deliveries, then settles each with its broker. Tests: `tests/receiver.rs`, `tests/outages.rs`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tracing::{Instrument as _, Span};

use super::lines::QueuePlace;
use super::source_state::{DeliveryInHand, SourceState};
use crate::error::{Error, ErrorKind, Result};
use crate::inbox::{PreparedDelivery, Receipt, Received, Shared};
use crate::message::Message;
use crate::runtime::Core;
use crate::runtime::upkeep::repeat::{Pauses, is_trouble};
use crate::runtime::work::executor::text_of;
use crate::source::{Ack, BatchPermit, Delivery, Settle};
use crate::state::ErrorText;
use crate::store::Store;

/// Redelivery delay for a message that another worker has held for too long.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// A delivery in hand.
pub(in crate::runtime) struct Taken {
    message: Arc<Message>,
    rest: UnsettledDelivery,
}

/// A delivery without its message, until the broker is told.
struct UnsettledDelivery {
    settle: Box<dyn Settle>,
    in_hand: DeliveryInHand,
    /// Its receive span, which ends with the settlement.
    span: Span,
}

impl Taken {
    pub(in crate::runtime) fn new<S: Store>(
        inbox: &Shared<S>,
        state: &Arc<SourceState>,
        delivery: Delivery,
    ) -> Self {
        let (message, settle) = delivery.into_parts();
        let (message, span) = inbox.open(state.name(), message);
        Self { message: Arc::new(message), rest: UnsettledDelivery { settle, in_hand: state.take(), span } }
    }

    pub(in crate::runtime) fn message(&self) -> &Message {
        &self.message
    }
}

impl UnsettledDelivery {
    async fn settle(mut self, state: &SourceState, ack: Ack) {
        self.in_hand.let_go();
        let word = ack.as_str();
        if let Err(error) = self.settle.settle(ack).await {
            // The broker delivers it again, and it will be a duplicate.
            let error = ErrorText::new(error.to_string());
            tracing::debug!(source = state.name(), %error, "could not settle a delivery");
        } else {
            self.in_hand.told(word);
        }
    }
}

/// Stores deliveries in one store call, and settles them. A delivery that the call does not store continues alone, and
/// does not delay the others.
pub(in crate::runtime) async fn store_together<S: Store>(
    core: Arc<Core<S>>,
    state: Arc<SourceState>,
    together: Vec<Taken>,
    turn: BatchPermit,
) {
    let (mut prepared, mut rests, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for Taken { message, rest } in together {
        match rest.span.in_scope(|| prepare(&core.inbox, message)) {
            Some(Ok(one)) => {
                prepared.push(one);
                rests.push(rest);
            }
            Some(Err(error)) => refused.push(caught(rest.settle(&state, reject(&error)))),
            None => {}
        }
    }
    let stored = async {
        let span = if let [one] = &rests[..] { one.span.clone() } else { Span::none() };
        let received = core.inbox.receive_each(&prepared).instrument(span).await;
        drop(turn);
        let settled =
            prepared.into_iter().zip(rests).zip(received).map(|((prepared, rest), first)| {
                caught(settle_stored(&core, &state, (prepared, rest), first))
            });
        join_all(settled).await
    };
    // Deliveries that are refused without the store do not wait for it.
    futures_util::future::join(stored, join_all(refused)).await;
}

/// Settles a delivery after its store call, with retries. `first` is `None` if the call panicked; then the broker delivers
/// it again.
async fn settle_stored<S: Store>(
    core: &Core<S>,
    state: &SourceState,
    (prepared, mut rest): (PreparedDelivery, UnsettledDelivery),
    first: Option<Result<Received>>,
) {
    let ack = match first {
        Some(Ok(Received { receipt: Receipt::Done, .. })) => {
            drop(prepared);
            core.intake_switch.open();
            Some(Ack::Done)
        }
        // A rare and much larger future.
        Some(first) => {
            let span = rest.span.clone();
            let on = receive(core, &mut rest.in_hand, prepared, Some(first));
            Box::pin(on.instrument(span)).await
        }
        None => None,
    };
    if let Some(ack) = ack {
        rest.settle(state, ack).await;
    }
}

/// Prepares a message, which may call functions of the program. Returns `None` if one of them panicked.
pub(crate) fn prepare<S: Store>(
    inbox: &Shared<S>,
    message: Arc<Message>,
) -> Option<Result<PreparedDelivery>> {
    let prepared = catch_unwind(AssertUnwindSafe(|| inbox.prepare_delivery(message)));
    prepared.inspect_err(|panic| panicked(&**panic)).ok()
}

/// Returns the output of a future, or `None` if it panicked.
pub(in crate::runtime) async fn caught<T>(future: impl Future<Output = T>) -> Option<T> {
    AssertUnwindSafe(future).catch_unwind().await.inspect_err(|panic| panicked(&**panic)).ok()
}

fn panicked(panic: &(dyn std::any::Any + Send)) {
    tracing::error!(error = text_of(panic), "taking a message in panicked");
}

/// Stores one delivery and settles it. It waits for an unavailable store, and for a limited time for another worker with
/// the same message. A redelivery would only make the broker count a failure, and dead-letter the message after too many.
pub(in crate::runtime) async fn store_alone<S: Store>(
    core: Arc<Core<S>>,
    state: Arc<SourceState>,
    Taken { message, mut rest }: Taken,
    mut place: Option<QueuePlace>,
) {
    let span = rest.span.clone();
    if let Some(place) = &mut place
        && !place.turn().await
        && core.stop.requested()
    {
        // The delivery before it goes back to the broker. This one follows, so that it cannot overtake.
        return;
    }
    let ack = match core.inbox.prepare_delivery(message) {
        Ok(prepared) => receive(&core, &mut rest.in_hand, prepared, None).instrument(span).await,
        Err(error) => Some(reject(&error)),
    };
    let Some(ack) = ack else { return };
    if let Some(place) = place {
        place.leave();
    }
    rest.settle(&state, ack).await;
}

/// Stores one delivery, unless `first` already has the result, and returns the acknowledgement. `None` if the inbox stops:
/// the broker keeps an unsettled delivery.
async fn receive<S: Store>(
    core: &Core<S>,
    in_hand: &mut DeliveryInHand,
    prepared: PreparedDelivery,
    mut first: Option<Result<Received>>,
) -> Option<Ack> {
    let (mut pauses, mut busy) = (Pauses::default(), BusyWait::default());
    loop {
        let answer = match first.take() {
            Some(answer) => answer,
            None => core.inbox.receive(&prepared).await,
        };
        match &answer {
            Ok(_) => core.intake_switch.open(),
            Err(error) if is_trouble(error.kind()) => core.intake_switch.shut(),
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
            Err(error) => return Some(reject(&error)),
        };
        tokio::select! {
            () = core.inbox.clock.sleep(pause) => {}
            () = core.stop.wait() => return None,
        }
    }
}

fn reject(error: &Error) -> Ack {
    Ack::Reject { reason: error.to_string() }
}

/// Time that another worker has held a message.
#[derive(Default)]
struct BusyWait {
    since: Option<Duration>,
    pauses: Pauses,
}

impl BusyWait {
    fn may_go_on<S: Store>(&mut self, inbox: &Shared<S>) -> bool {
        let now = inbox.clock.monotonic();
        now.saturating_sub(*self.since.get_or_insert(now)) < inbox.config.busy_wait
    }
}

/// Returns true if the delivery waits after this error: only errors of the message itself are refused.
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
