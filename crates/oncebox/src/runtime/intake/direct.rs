//! Runs all handlers of a message at once, without a store. Tests: `tests/direct.rs`.

use std::sync::Arc;

use tracing::{Instrument as _, Span};

use crate::error::Result;
use crate::handler::Context;
use crate::inbox::{HandlerAnswer, Processed, Receipt, Shared};
use crate::message::Message;
use crate::name::HandlerKey;
use crate::runtime::work::executor::run;
use crate::store::Store;

/// Runs every handler, even after a failure. The result of a fire-and-forget handler does not affect the acknowledgement.
pub(crate) async fn run_directly<S: Store>(
    inbox: &Arc<Shared<S>>,
    message: &Arc<Message>,
) -> Result<(Receipt, Vec<(HandlerKey, HandlerAnswer)>)> {
    let (mut receipt, mut answers) = (Receipt::Done, Vec::new());
    let forget = inbox.registry.forget(message.message_type()).map(|(handler, _)| handler);
    for handler in inbox.registry.durable_for(message.message_type()).chain(forget) {
        let handler_key = handler.route.key.clone();
        let key = inbox.mark_key(message, &handler_key)?.key;
        let mut context = Context::new(inbox.surroundings(), Arc::clone(message), key, handler_key, 1, 0);
        let propagator = &inbox.store.watch().propagator;
        let span = propagator.handling(&inbox.name, &handler.route.key, message, (None, 1), &Span::none());
        let processed = match run(handler, message, &mut context, inbox).instrument(span).await {
            Ok(()) => Processed::Done,
            Err(said) => Processed::Failed(said.outcome),
        };
        let said = Receipt::of(processed.clone(), &handler.registration.policy);
        answers.push((handler.route.key.clone(), HandlerAnswer::Ran(processed)));
        if !handler.registration.forget {
            receipt = receipt.and(said);
        } else if said != Receipt::Done {
            tracing::warn!(handler = %handler.route.key, "fire-and-forget handler failed, not retried");
        }
    }
    Ok((receipt, answers))
}
