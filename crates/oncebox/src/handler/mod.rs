//! Handlers: plain async functions, registered under a stable key.

mod context;
mod data;
mod failure;
mod registry;
mod transaction;

pub use context::Context;
pub(crate) use data::Data;
pub use failure::{Discard, Failure, Reject, RetryAfter, Snooze};
pub(crate) use registry::{Registered, Registry};
pub(crate) use transaction::{FinishTx, ShareTx};

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::message::{DecodeError, FromMessage, Message};
use crate::name::HandlerKey;
use crate::state::{OnPoisoned, Policy, Retry};
use crate::store::{MarkIn, ShareIn, Store, Transactional};
use transaction::{OpenMarked, Share};

/// What can be registered: `async fn(M, &mut Context<S>) -> Result<(), E>`, where `M` is any type that deserializes
/// from JSON or a [`Message`], and `E` any error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler for the store `{S}`",
    label = "expected `async fn(M, &mut Context<{S}>) -> Result<(), E>`",
    note = "M is your message type (serde's `Deserialize`) or `oncebox::Message`; E is any error; the future must be `Send`"
)]
pub trait HandlerFn<'a, M, S: Store>: Send + Sync + 'static {
    /// The future of one run.
    type Run: Future<Output = Result<(), Failure>> + Send + 'a;

    /// Runs the handler once.
    fn run(&self, message: M, cx: &'a mut Context<S>) -> Self::Run;
}

impl<'a, F, Fut, M, S, E> HandlerFn<'a, M, S> for F
where
    F: Fn(M, &'a mut Context<S>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send + 'a,
    E: Into<crate::BoxError> + 'static,
    S: Store,
{
    type Run = futures_util::future::MapErr<Fut, fn(E) -> Failure>;

    fn run(&self, message: M, cx: &'a mut Context<S>) -> Self::Run {
        futures_util::TryFutureExt::map_err(self(message, cx), |error| Failure::new(error))
    }
}

/// The future of one run, decoded and erased.
pub(crate) type Run<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

/// A handler with its message type erased.
pub(crate) trait Erased<S: Store>: Send + Sync {
    fn run<'a>(&self, message: &Message, cx: &'a mut Context<S>) -> Result<Run<'a>, DecodeError>;
}

struct Typed<F, M>(F, std::marker::PhantomData<fn(M)>);

impl<F, M, S> Erased<S> for Typed<F, M>
where
    F: for<'a> HandlerFn<'a, M, S>,
    M: FromMessage + Send + 'static,
    S: Store,
{
    fn run<'a>(&self, message: &Message, cx: &'a mut Context<S>) -> Result<Run<'a>, DecodeError> {
        let message = M::from_message(message)?;
        Ok(Box::pin(self.0.run(message, cx)))
    }
}

/// Registers `function` under `key`. Hand the result to [`Builder::on`](crate::Builder::on).
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
pub fn handler<M, S, F>(key: impl Into<String>, function: F) -> Registration<S>
where
    F: for<'a> HandlerFn<'a, M, S>,
    M: FromMessage + Send + 'static,
    S: Store,
{
    Registration {
        key: key.into(),
        legacy: Vec::new(),
        policy: Policy::default(),
        timeout: None,
        concurrency: 64,
        inline: false,
        open: None,
        share: None,
        function: Arc::new(Typed(function, std::marker::PhantomData)),
    }
}

/// A handler and its settings, on the way to an inbox.
pub struct Registration<S: Store> {
    pub(crate) key: String,
    pub(crate) legacy: Vec<String>,
    pub(crate) policy: Policy,
    pub(crate) timeout: Option<Duration>,
    pub(crate) concurrency: usize,
    pub(crate) inline: bool,
    /// Opens the transaction of an inline handler; set together with `inline`.
    pub(crate) open: Option<OpenMarked<S>>,
    /// How runs share their commits, if they do.
    pub(crate) share: Option<Share<S>>,
    pub(crate) function: Arc<dyn Erased<S>>,
}

impl<S: Store> Registration<S> {
    /// A key this handler had before: entries stored under it are still handled; new ones never get it. Messages with an
    /// ordering key keep their order over both keys, as far as a process knows both.
    pub fn legacy(mut self, key: impl Into<String>) -> Self {
        self.legacy.push(key.into());
        self
    }

    /// When failed attempts are tried again.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.policy.retry = retry;
        self
    }

    /// All rules at once.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// What happens to those behind a poisoned message with its ordering key. Default: they wait for a person.
    pub fn on_poisoned(mut self, on_poisoned: OnPoisoned) -> Self {
        self.policy.on_poisoned = on_poisoned;
        self
    }

    /// How long one run may take; running out of it is a failed attempt. Default: no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How many runs at once in this process. Default 64.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Runs the handler while the delivery is held, in one transaction with its mark, instead of storing the
    /// message first. Retrying is the transport's business then.
    pub fn inline(mut self) -> Self
    where
        S: Transactional + MarkIn<<S as Transactional>::Tx>,
    {
        self.inline = true;
        self.open = Some(transaction::open_marked::<S>);
        self
    }

    /// Lets up to `most` runs share one transaction and one commit, 64 at the most: the commit is most of what a small
    /// transaction costs. Default: each run has its own.
    ///
    /// What one claim brought is cut into groups; nothing waits for a group to fill up. The runs of a group follow one
    /// another, in one transaction that is open all the time: this is for short handlers that do little else than write.
    /// `concurrency` still counts runs, those that wait for their turn included: several groups at once need a multiple
    /// of `most`.
    ///
    /// A run that fails is undone alone, and settled by what it said. If the transaction as a whole fails, nobody is
    /// blamed: each run that had not failed by itself is repeated in a transaction of its own. So effects other than
    /// through [`Context::tx`] can happen again though nothing crashed; give them an
    /// [idempotency key](Context::idempotency_key).
    pub fn share_commit(mut self, most: usize) -> Self
    where
        S: Transactional + ShareIn<<S as Transactional>::Tx>,
    {
        self.share = Some(Share { most, open: transaction::open_shared::<S> });
        self
    }

    /// The key, checked.
    pub(crate) fn checked_key(&self) -> Result<HandlerKey> {
        HandlerKey::new(&self.key)
    }
}

impl<S: Store> std::fmt::Debug for Registration<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration")
            .field("key", &self.key)
            .field("legacy", &self.legacy)
            .finish_non_exhaustive()
    }
}
