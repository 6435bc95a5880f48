//! Handlers: plain async functions, registered under a stable key. Each module names its tests.

mod batch;
mod check;
mod context;
mod data;
mod failure;
mod into_failure;
mod kinds;
mod redact;
mod registration;
mod registry;
mod reruns;
mod throttle;
mod transaction;
mod types;

pub use batch::{BatchContext, BatchFn, BatchItem, BatchResult, IntoBatchResult, batch_handler};
pub(crate) use batch::{ErasedBatch, ItemResults};
pub(crate) use context::check_result;
pub use context::{Context, HandlerContext};
pub use data::Data;
pub(crate) use data::DataMap;
pub use failure::{Discard, Failure, Reject, RetryAfter, Snooze};
pub use into_failure::{ErrorMessage, ErrorReport, ErrorValue, IntoFailure};
pub(crate) use kinds::retry_of;
pub(crate) use redact::Redactor;
pub(crate) use registration::Function;
pub use registration::{IntoRegistration, Registration};
pub(crate) use registry::{EffectiveDedupe, RegisteredHandler, Registry};
pub(crate) use transaction::{FinishTx, Marked, OpenInline, ShareTx};
pub use types::IntoTypes;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::error::Result;
use crate::message::{DecodeError, FromMessage, Message};
use crate::store::Store;

/// A function for [`handler`]: `async fn(M, &mut Context<S>) -> Result<(), E>`. `M` is a [`Message`] or any type that
/// deserializes from JSON, and `E` any error. The compiler finds `Kind`, the [kind](IntoFailure) of the error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler for the store `{S}`",
    label = "expected `async fn(M, &mut Context<{S}>) -> Result<(), E>`",
    note = "M is your message type (serde's `Deserialize`) or `oncebox::Message`; E is any error; the future must be `Send`"
)]
pub trait HandlerFn<'a, M, S: Store, Kind>: Send + Sync + 'static {
    /// The future of one run.
    type Run: Future<Output = Result<(), Failure>> + Send + 'a;

    /// Runs the handler once.
    fn run(&self, message: M, cx: &'a mut Context<S>) -> Self::Run;
}

impl<'a, F, Fut, M, S, Kind> HandlerFn<'a, M, S, Kind> for F
where
    F: Fn(M, &'a mut Context<S>) -> Fut + Send + Sync + 'static,
    Fut: HandlerFuture + Send + 'a,
    Fut::Error: IntoFailure<Kind>,
    S: Store,
{
    type Run = futures_util::future::MapErr<Fut, fn(Fut::Error) -> Failure>;

    fn run(&self, message: M, cx: &'a mut Context<S>) -> Self::Run {
        futures_util::TryFutureExt::map_err(self(message, cx), IntoFailure::into_failure)
    }
}

/// The future of a handler: `Future<Output = Result<(), E>>`.
#[diagnostic::on_unimplemented(
    message = "a handler is an `async fn` that returns `Result<(), E>`; this one returns `{Self}`",
    label = "write `async fn(M, &mut Context<S>) -> Result<(), E>`",
    note = "E is any error, such as `oncebox::BoxError`"
)]
pub trait HandlerFuture: Future<Output = Result<(), <Self as HandlerFuture>::Error>> {
    /// The error of the handler.
    type Error;
}

#[diagnostic::do_not_recommend]
impl<Fut: Future<Output = Result<(), E>>, E> HandlerFuture for Fut {
    type Error = E;
}

/// The future of one run, decoded and erased.
pub(crate) type HandlerRun<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

/// A handler with its message type erased.
pub(crate) trait Erased<S: Store>: Send + Sync {
    fn run<'a>(&self, message: &Message, cx: &'a mut Context<S>) -> Result<HandlerRun<'a>, DecodeError>;
}

struct Typed<F, M, Kind>(F, std::marker::PhantomData<fn(M, Kind)>);

impl<F, M, S, Kind> Erased<S> for Typed<F, M, Kind>
where
    F: for<'a> HandlerFn<'a, M, S, Kind>,
    M: FromMessage + Send + 'static,
    S: Store,
{
    fn run<'a>(&self, message: &Message, cx: &'a mut Context<S>) -> Result<HandlerRun<'a>, DecodeError> {
        let message = M::from_message(message)?;
        Ok(Box::pin(self.0.run(message, cx)))
    }
}

/// Makes a handler of `function` under `key`. Pass it to [`InboxBuilder::on`](crate::InboxBuilder::on).
///
/// ```
/// # use oncebox::{Context, Memory, handler};
/// # #[derive(serde::Deserialize)] struct OrderPlaced { order: u64 }
/// async fn ship(placed: OrderPlaced, _cx: &mut Context<Memory>) -> Result<(), std::io::Error> {
///     println!("shipping {}", placed.order);
///     Ok(())
/// }
/// let registration = handler("ship-order", ship).legacy("order-handler").concurrency(8);
/// ```
pub fn handler<M, S, F, Kind>(key: impl Into<String>, function: F) -> Registration<S>
where
    F: for<'a> HandlerFn<'a, M, S, Kind>,
    M: FromMessage + Send + 'static,
    S: Store,
    Kind: 'static,
{
    let function = Arc::new(Typed(function, std::marker::PhantomData));
    Registration::new(key.into(), Function::One(function))
}
