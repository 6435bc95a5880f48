//! Spans of a message: receive, accept, claim, run and settlement. Tests: `oncebox-telemetry`, `tests/ways.rs`.
//!
//! The library makes spans with `tracing` and does not export them. A program that exports them gives the inbox a
//! [`Propagate`], which makes the producer's span the parent of the receive span. The context of the receive span is
//! stored in the headers of the message. Later spans, in any process, are in the same trace.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tracing::Span;
use tracing::field::Empty;

use super::TraceContext;
use super::trace::{PARENT, STATE};
use crate::message::Message;
use crate::name::{HandlerKey, InboxName};
use crate::store::{Accepted, Claim, Claimed, Settled};

/// Maximum bytes of a message id in a span.
const MAX_ID: usize = 128;

/// Links spans of the library to those of producers, for a program that exports traces.
pub trait Propagate: Send + Sync + 'static {
    /// Makes the producer's span the parent of `span`, which has just been made.
    fn parent(&self, span: &Span, producer: &TraceContext);

    /// Links `span`, which has several messages, to the producer of one of them.
    fn link(&self, span: &Span, producer: &TraceContext) {
        let _ = (span, producer);
    }

    /// Returns the context of `span`, which is stored with its message. Default: none, and the message keeps its own context.
    fn context(&self, span: &Span) -> Option<TraceContext> {
        let _ = span;
        None
    }
}

/// A propagator whose panics have no effect. It is called only for spans that a subscriber wants.
#[derive(Default)]
pub(crate) struct SpanPropagator(Option<Box<dyn Propagate>>);

impl SpanPropagator {
    pub(crate) fn new(propagate: impl Propagate) -> Self {
        Self(Some(Box::new(propagate)))
    }

    fn call<T>(&self, span: &Span, call: impl FnOnce(&dyn Propagate) -> Option<T>) -> Option<T> {
        let propagate = self.0.as_ref().filter(|_| !span.is_disabled())?;
        catch_unwind(AssertUnwindSafe(|| call(&**propagate))).unwrap_or_default()
    }

    /// Adds a span to the trace of its message.
    fn join(&self, span: &Span, message: &Message) {
        self.call(span, |propagate| {
            propagate.parent(span, &TraceContext::of(message)?);
            Some(())
        });
    }

    /// Links a span to each context.
    fn link(&self, span: &Span, contexts: impl Iterator<Item = Option<TraceContext>>) {
        self.call(span, |propagate| {
            contexts.flatten().for_each(|context| propagate.link(span, &context));
            Some(())
        });
    }

    fn context(&self, span: &Span) -> Option<TraceContext> {
        self.call(span, |propagate| propagate.context(span))
    }

    /// Opens the receive span of a message. Returns the message with the context of that span, if its headers fit in `room`
    /// bytes.
    pub(crate) fn receiving(
        &self,
        inbox: &InboxName,
        source: &str,
        message: Message,
        room: usize,
    ) -> (Message, Span) {
        let span = tracing::info_span!(
            "oncebox.receive",
            otel.name = format!("receive {inbox}"),
            otel.kind = "consumer",
            messaging.system = "oncebox",
            messaging.operation.name = "receive",
            messaging.operation.r#type = "receive",
            messaging.destination.name = %inbox,
            messaging.message.id = id(&message),
            messaging.message.body.size = message.payload().len(),
            oncebox.source = if source.is_empty() { message.source() } else { source },
            oncebox.message_type = message.message_type(),
        );
        self.join(&span, &message);
        let message = match self.context(&span) {
            Some(context) => carrying(message, &context, room),
            None => message,
        };
        (message, span)
    }

    /// Opens the span of the store call for a message.
    pub(super) fn accepting(&self, inbox: &InboxName, message: &Message, calls: usize) -> Span {
        let span = tracing::info_span!(
            "oncebox.accept",
            otel.name = format!("accept {inbox}"),
            otel.kind = "internal",
            otel.status_code = Empty,
            messaging.system = "oncebox",
            messaging.destination.name = %inbox,
            messaging.message.id = id(message),
            messaging.batch.message_count = calls,
            oncebox.message_type = message.message_type(),
            oncebox.outcome = Empty,
            seq = Empty,
        );
        self.join(&span, message);
        span
    }

    /// Opens the span of a claim, which ends when the claim is settled or lost.
    pub(super) fn claiming(&self, Claimed { claim, message }: &Claimed) -> Span {
        let span = tracing::info_span!(
            "oncebox.claim",
            otel.name = format!("claim {}", claim.handler),
            otel.kind = "internal",
            messaging.system = "oncebox",
            messaging.destination.name = %claim.inbox,
            messaging.consumer.group.name = %claim.handler,
            messaging.message.id = id(message),
            oncebox.lag = claim.claimed_at.since(claim.received_at).as_secs_f64(),
            handler = %claim.handler,
            seq = claim.seq.0,
            token = claim.token.0,
            attempt = claim.attempts.saturating_add(1),
        );
        self.join(&span, message);
        span
    }

    /// Records in the trace of the message that the lease of a claim expired.
    pub(super) fn rescued(&self, Claimed { claim, message }: &Claimed) {
        let span = tracing::info_span!(
            "oncebox.rescue",
            otel.name = format!("rescue {}", claim.handler),
            otel.kind = "internal",
            messaging.system = "oncebox",
            messaging.destination.name = %claim.inbox,
            messaging.consumer.group.name = %claim.handler,
            messaging.message.id = id(message),
            handler = %claim.handler,
            seq = claim.seq.0,
            token = claim.token.0,
            crashes = claim.suspicion.own_crashes(),
        );
        self.join(&span, message);
    }

    /// Opens the span of a handler run for one message, under the span of its claim if there is one.
    pub(crate) fn handling(
        &self,
        inbox: &InboxName,
        handler: &HandlerKey,
        message: &Message,
        (seq, attempt): (Option<i64>, u32),
        claim: &Span,
    ) -> Span {
        let span = tracing::info_span!(
            "oncebox.handle",
            otel.name = format!("process {handler}"),
            otel.kind = "consumer",
            otel.status_code = Empty,
            messaging.system = "oncebox",
            messaging.operation.name = "process",
            messaging.operation.r#type = "process",
            messaging.destination.name = %inbox,
            messaging.consumer.group.name = %handler,
            messaging.message.id = id(message),
            messaging.message.body.size = message.payload().len(),
            oncebox.message_type = message.message_type(),
            handler = %handler,
            seq,
            attempt,
        );
        match self.context(claim) {
            Some(claim) => {
                self.call(&span, |propagate| {
                    propagate.parent(&span, &claim);
                    Some(())
                });
            }
            None => self.join(&span, message),
        }
        span
    }

    /// Opens the span of a handler run for several messages, linked to the claim of each.
    pub(crate) fn handling_batch<'a>(
        &self,
        inbox: &InboxName,
        handler: &HandlerKey,
        messages: impl ExactSizeIterator<Item = (&'a Message, Span)>,
    ) -> Span {
        let count = messages.len();
        let span = tracing::info_span!(
            "oncebox.handle_batch",
            otel.name = format!("process {handler}"),
            otel.kind = "consumer",
            otel.status_code = Empty,
            messaging.system = "oncebox",
            messaging.operation.name = "process",
            messaging.operation.r#type = "process",
            messaging.destination.name = %inbox,
            messaging.consumer.group.name = %handler,
            messaging.batch.message_count = count,
            handler = %handler,
        );
        let context = |(message, claim)| self.context(&claim).or_else(|| TraceContext::of(message));
        self.link(&span, messages.map(context));
        span
    }
}

/// Opens the span of a settlement, if its claim has a span.
pub(super) fn settling(claim: &Claim, event: &'static str, parent: &Span) -> Span {
    if parent.is_disabled() {
        return Span::none();
    }
    tracing::info_span!(
        parent: parent,
        "oncebox.settle",
        otel.name = format!("settle {}", claim.handler),
        otel.kind = "internal",
        otel.status_code = Empty,
        messaging.system = "oncebox",
        messaging.operation.name = "settle",
        messaging.operation.r#type = "settle",
        messaging.destination.name = %claim.inbox,
        messaging.consumer.group.name = %claim.handler,
        oncebox.event = event,
        oncebox.outcome = Empty,
        handler = %claim.handler,
        seq = claim.seq.0,
    )
}

/// Returns the only span, or a disabled one if there are several.
pub(super) fn alone(spans: &[Span]) -> Span {
    if let [span] = spans { span.clone() } else { Span::none() }
}

/// Records the result of the store for a message.
pub(super) fn accepted(span: &Span, answer: Accepted) {
    span.record("oncebox.outcome", answer.as_str());
    if let Some(seq) = answer.seq() {
        span.record("seq", seq.0);
    }
}

/// Records the result of the store for a settlement.
pub(super) fn settled(span: &Span, settled: Settled) {
    let (status, outcome) = match settled {
        Settled::Applied => ("OK", "applied"),
        Settled::LeaseLost => ("ERROR", "lease_lost"),
    };
    span.record("oncebox.outcome", outcome);
    span.record("otel.status_code", status);
}

/// Records that a call failed.
pub(super) fn failed(span: &Span) {
    span.record("otel.status_code", "ERROR");
}

/// Returns the message with a context in its headers, or unchanged if there is no room.
fn carrying(message: Message, context: &TraceContext, room: usize) -> Message {
    let mut headers = message.headers().clone();
    headers.set(PARENT, Some(context.traceparent()));
    headers.set(STATE, context.tracestate());
    if headers.size() <= room { message.with_headers(headers) } else { message }
}

/// Returns the id of a message as text; `None` if it is too long or not text.
fn id(message: &Message) -> Option<&str> {
    std::str::from_utf8(message.id()).ok().filter(|id| id.len() <= MAX_ID)
}
