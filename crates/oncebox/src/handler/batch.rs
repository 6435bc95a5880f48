//! Handlers that take many messages in one call. Tests: `tests/batch.rs`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::transaction::{OpenTx, ShareTx};
use super::{Data, DataMap, Failure, Function, IntoFailure, Registration};
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;
use crate::message::{DecodeError, FromMessage, Message};
use crate::name::HandlerKey;
use crate::observe::Observed;
use crate::store::{Claim, ShareIn, Store, Transactional};

/// Default maximum of messages per call; see [`Registration::max_batch`].
const DEFAULT_MAX_BATCH: usize = 64;
/// Default maximum of entries in hand: enough for several calls at once.
const CONCURRENCY: usize = 256;

/// A function for [`batch_handler`]: `async fn(Vec<M>, &mut BatchContext<S>) -> Result<R, E>`. `R` is `()` if all messages
/// succeed or fail together, or a `Vec<Result<(), E>>` with one result per message.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a batch handler for the store `{S}`",
    label = "expected `async fn(Vec<M>, &mut BatchContext<{S}>) -> Result<R, E>`",
    note = "M is your message type (serde's `Deserialize`) or `oncebox::Message`; R is `()` or `Vec<Result<(), E>>`; E is any error; the future must be `Send`"
)]
pub trait BatchFn<'a, M, S: Store, Kind>: Send + Sync + 'static {
    /// The future of one call.
    type Run: Future<Output = Result<BatchResult, Failure>> + Send + 'a;

    /// Runs the handler once.
    fn run(&self, messages: Vec<M>, cx: &'a mut BatchContext<S>) -> Self::Run;
}

impl<'a, F, Fut, M, S, R, E, KindR, Kind> BatchFn<'a, M, S, (KindR, Kind)> for F
where
    F: Fn(Vec<M>, &'a mut BatchContext<S>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send + 'a,
    R: IntoBatchResult<KindR> + 'static,
    E: IntoFailure<Kind>,
    S: Store,
{
    type Run = futures_util::future::Map<Fut, fn(Result<R, E>) -> Result<BatchResult, Failure>>;

    fn run(&self, messages: Vec<M>, cx: &'a mut BatchContext<S>) -> Self::Run {
        let answer: fn(Result<R, E>) -> Result<BatchResult, Failure> =
            |ended| ended.map(IntoBatchResult::into_batch_result).map_err(IntoFailure::into_failure);
        futures_util::FutureExt::map(self(messages, cx), answer)
    }
}

/// Results of a batch call that did not fail as a whole.
#[derive(Debug)]
pub struct BatchResult(pub(crate) ItemResults);

#[derive(Debug)]
pub(crate) enum ItemResults {
    /// All messages are done.
    Done,
    /// One result per message, in their order.
    Each(Vec<Result<(), Failure>>),
}

/// A return value of a batch handler: `()`, or one result per message, in their order.
/// The compiler finds `Kind`.
pub trait IntoBatchResult<Kind> {
    /// Converts the value.
    fn into_batch_result(self) -> BatchResult;
}

impl IntoBatchResult<()> for () {
    fn into_batch_result(self) -> BatchResult {
        BatchResult(ItemResults::Done)
    }
}

impl<E: IntoFailure<Kind>, Kind> IntoBatchResult<(Kind,)> for Vec<Result<(), E>> {
    fn into_batch_result(self) -> BatchResult {
        BatchResult(ItemResults::Each(
            self.into_iter().map(|item| item.map_err(IntoFailure::into_failure)).collect(),
        ))
    }
}

/// Makes a handler that takes up to [`max_batch`](Registration::max_batch) messages in one call. Default: 64. Pass it to
/// [`InboxBuilder::on`](crate::InboxBuilder::on).
///
/// A call gets the messages of one claim and never waits for a batch to fill. If a call fails as a whole, each message
/// runs again alone, so only the bad message has a failed attempt.
///
/// ```
/// # use oncebox::{BatchContext, BoxError, Memory, batch_handler};
/// # #[derive(serde::Deserialize)] struct Reading { sensor: u64, value: f64 }
/// async fn store(readings: Vec<Reading>, _cx: &mut BatchContext<Memory>) -> Result<(), BoxError> {
///     println!("{} readings in one go", readings.len());
///     Ok(())
/// }
/// let registration = batch_handler("store-readings", store).max_batch(100);
/// ```
pub fn batch_handler<M, S, F, Kind>(key: impl Into<String>, function: F) -> Registration<S>
where
    F: for<'a> BatchFn<'a, M, S, Kind>,
    M: FromMessage + Send + 'static,
    S: Store,
    Kind: 'static,
{
    let function = Arc::new(TypedBatch(Arc::new(function), std::marker::PhantomData));
    let mut registration = Registration::new(key.into(), Function::Batch(function));
    registration.max_batch = Some(DEFAULT_MAX_BATCH);
    registration.concurrency = CONCURRENCY;
    registration
}

/// The future of one call.
pub(crate) type BatchRun<'a> = Pin<Box<dyn Future<Output = Result<BatchResult, Failure>> + Send + 'a>>;

/// A call whose messages are decoded.
pub(crate) type PreparedBatch<S> = Box<dyn for<'a> FnOnce(&'a mut BatchContext<S>) -> BatchRun<'a> + Send>;

/// A batch handler with its message type erased.
pub(crate) trait ErasedBatch<S: Store>: Send + Sync {
    /// Decodes messages, and prepares a call with those that decode.
    fn prepare(&self, messages: &[Arc<Message>]) -> (Vec<Result<(), DecodeError>>, PreparedBatch<S>);
}

struct TypedBatch<F, M, Kind>(Arc<F>, std::marker::PhantomData<fn(M, Kind)>);

impl<F, M, S, Kind> ErasedBatch<S> for TypedBatch<F, M, Kind>
where
    F: for<'a> BatchFn<'a, M, S, Kind>,
    M: FromMessage + Send + 'static,
    S: Store,
{
    fn prepare(&self, messages: &[Arc<Message>]) -> (Vec<Result<(), DecodeError>>, PreparedBatch<S>) {
        let mut decoded = Vec::with_capacity(messages.len());
        let results =
            messages.iter().map(|message| M::from_message(message).map(|message| decoded.push(message)));
        let results = results.collect();
        let function = Arc::clone(&self.0);
        (results, Box::new(move |cx| Box::pin(function.run(decoded, cx))))
    }
}

/// Context of one call of a batch handler.
pub struct BatchContext<S: Store> {
    store: Arc<Observed<S>>,
    data: Arc<DataMap>,
    items: Vec<BatchItem>,
    tx: Option<Box<dyn ShareTx>>,
}

impl<S: Store> BatchContext<S> {
    pub(crate) fn new((store, data): (Arc<Observed<S>>, Arc<DataMap>), items: Vec<BatchItem>) -> Self {
        Self { store, data, items, tx: None }
    }

    /// Returns the messages of this call with their keys and attempts, in their order.
    pub fn items(&self) -> &[BatchItem] {
        &self.items
    }

    /// Returns the value of type `T` from [`InboxBuilder::data`](crate::InboxBuilder::data), such as a client. Declare it with
    /// [`Registration::needs`], so that a missing value is an error of `build()`.
    pub fn data<T: Send + Sync + 'static>(&self) -> Result<Data<T>> {
        self.data.get()
    }

    /// Takes the transaction, if the handler began one.
    pub(crate) fn take_tx(&mut self) -> Option<Box<dyn ShareTx>> {
        self.tx.take()
    }
}

impl<S> BatchContext<S>
where
    S: Transactional + ShareIn<<S as Transactional>::Tx>,
{
    /// Returns the transaction that also completes the entries of this call, so its writes happen exactly once.
    ///
    /// The first call begins it, so do slow work before. If the handler returns one result per message, the transaction
    /// commits if at least one message is done. Write nothing for the others.
    pub async fn tx(&mut self) -> Result<&mut S::Tx> {
        if self.tx.is_none() {
            let tx = self.store.begin().await?;
            self.tx = Some(Box::new(OpenTx { store: Arc::clone(&self.store), tx }));
        }
        let open = self.tx.as_mut().and_then(|tx| tx.as_any().downcast_mut::<OpenTx<S>>());
        open.map(|open| &mut open.tx).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, "the open transaction belongs to another store")
        })
    }
}

impl<S: Store> std::fmt::Debug for BatchContext<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchContext").field("items", &self.items).finish_non_exhaustive()
    }
}

/// A message of a batch, with its key and attempt.
pub struct BatchItem {
    message: Arc<Message>,
    key: Key,
    origin: HandlerKey,
    attempt: u32,
    generation: u32,
}

impl BatchItem {
    pub(crate) fn new(message: Arc<Message>, claim: &Claim) -> Self {
        // The same in every process, under whichever key it registers the handler.
        let (key, origin, generation) = (claim.key, claim.origin.clone(), claim.generation);
        Self { message, key, origin, attempt: claim.attempts.saturating_add(1), generation }
    }

    /// Returns the message with its headers.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Returns the dedupe key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns a stable key for an effect of this message outside the database. It is the same at every attempt and in every
    /// batch, so the other side can recognise a repeat.
    pub fn idempotency_key(&self, effect: &str) -> String {
        self.key.idempotency_key(self.origin.as_str(), self.generation, effect)
    }
}

impl std::fmt::Debug for BatchItem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (key, attempt) = (&self.key, &self.attempt);
        f.debug_struct("BatchItem").field("key", key).field("attempt", attempt).finish_non_exhaustive()
    }
}
