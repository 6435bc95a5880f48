//! Takes deliveries from a source, stores them, and only then tells the broker.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, Semaphore};

use super::Core;
use crate::error::{Error, Result};
use crate::inbox::{Receipt, Shared};
use crate::source::{Ack, Delivery, Source};
use crate::store::Store;

/// The longest pause between two tries while the store does not answer.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// How long a delivery is held back that somebody else is working on right now.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn run<S: Store>(core: Arc<Core<S>>, source: Arc<Mutex<impl Source>>) -> Result<()> {
    let mut source = source.lock().await;
    let room = core.inbox.config.prefetch;
    let slots = Arc::new(Semaphore::new(room));
    loop {
        // A slot first: while the store is away, the slots stay taken and nothing more is received.
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { break };
        let delivery = tokio::select! {
            delivery = source.recv() => delivery,
            () = core.stop.wait() => None,
        };
        let Some(delivery) = delivery else { break };
        let core = Arc::clone(&core);
        tokio::spawn(async move {
            deliver(&core, delivery).await;
            drop(slot);
        });
    }
    // Deliveries in hand are settled before the source is let go.
    let _ = slots.acquire_many(u32::try_from(room).unwrap_or(u32::MAX)).await;
    Ok(())
}

/// Stores one delivery and settles it. A store that is away is waited for: giving the delivery back would only make
/// the broker count another failed delivery.
async fn deliver<S: Store>(core: &Core<S>, delivery: Delivery) {
    let (message, settle) = delivery.into_parts();
    let message = Arc::new(message);
    let mut pause = Duration::ZERO;
    let ack = loop {
        match core.inbox.receive(&message).await {
            Ok(receipt) => break ack(&receipt),
            Err(error) if waits(&error) => {
                if pause.is_zero() {
                    tracing::warn!(inbox = %core.inbox.name, error = %error, "cannot store a delivery; holding it");
                }
                pause = (pause * 2).clamp(Duration::from_millis(100), MAX_PAUSE);
                tokio::select! {
                    () = core.inbox.clock.sleep(pause) => {}
                    // Dropped unsettled: the broker keeps it.
                    () = core.stop.wait() => return,
                }
            }
            Err(error) => break Ack::Reject { reason: error.to_string() },
        }
    };
    if let Err(error) = settle.settle(ack).await {
        // The broker brings it again, and it will be a duplicate.
        tracing::debug!(error = %error, "could not settle a delivery");
    }
}

/// Errors of the store are waited out; only what is wrong with the message itself is refused.
fn waits(error: &Error) -> bool {
    use crate::error::ErrorKind;
    !matches!(
        error.kind(),
        ErrorKind::MissingKey | ErrorKind::InvalidMessage | ErrorKind::TooLarge | ErrorKind::Unrouted
    )
}

fn ack(receipt: &Receipt) -> Ack {
    match receipt {
        Receipt::Done => Ack::Done,
        Receipt::Busy => Ack::Redeliver { after: BUSY_PAUSE },
        Receipt::Failed { after } => Ack::Redeliver { after: *after },
        Receipt::Rejected { reason } => Ack::Reject { reason: reason.clone() },
    }
}

impl<S: Store> Shared<S> {
    /// Takes a message the whole way: durable entries first, then inline handlers.
    pub(crate) async fn receive(self: &Arc<Self>, message: &Arc<crate::message::Message>) -> Result<Receipt> {
        let prepared = self.prepare(message, Duration::ZERO)?;
        // Stored first, so that the durable handlers have the message even if an inline one fails; the redelivery
        // that follows finds it there. A message for inline handlers alone leaves nothing but their marks.
        if !prepared.routes.is_empty() || !self.registry.has_inline(message.kind()) {
            self.accept(&prepared).await?;
        }
        let mut receipt = Receipt::Done;
        for handler in self.registry.inline(message.kind()) {
            let processed = super::run_inline(self, handler, prepared.key, message).await?;
            receipt = receipt.and(Receipt::of(processed, &handler.registration.policy));
        }
        Ok(receipt)
    }
}
