//! Handlers that take many messages in one call.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::transaction::{OpenTx, ShareTx};
use super::{Data, Failure, Function, Registration};
use crate::error::{BoxError, Error, ErrorKind, Result};
use crate::key::Key;
use crate::message::{DecodeError, FromMessage, Message};
use crate::name::HandlerKey;
use crate::observe::Observed;
use crate::store::{Claim, ShareIn, Store, Transactional};

/// How many messages one call gets at the most, unless [`Registration::most`] says otherwise.
const DEFAULT_MAX_BATCH: usize = 64;
/// How many entries are in hand at once: enough for several calls beside each other.
const CONCURRENCY: usize = 256;

/// What can be registered with [`batch_handler`]: `async fn(Vec<M>, &mut BatchContext<S>) -> Result<R, E>`, where `R` is
/// `()` if all succeed or fail together, or a `Vec<Result<(), E>>` with an answer for each message.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a batch handler for the store `{S}`",
    label = "expected `async fn(Vec<M>, &mut BatchContext<{S}>) -> Result<R, E>`",
    note = "M is your message type (serde's `Deserialize`) or `oncebox::Message`; R is `()` or `Vec<Result<(), E>>`; E is any error; the future must be `Send`"
)]
pub trait BatchFn<'a, M, S: Store>: Send + Sync + 'static {
    /// The future of one call.
    type Run: Future<Output = Result<BatchResult, Failure>> + Send + 'a;

    /// Runs the handler once.
    fn run(&self, messages: Vec<M>, cx: &'a mut BatchContext<S>) -> Self::Run;
}

impl<'a, F, Fut, M, S, R, E> BatchFn<'a, M, S> for F
where
    F: Fn(Vec<M>, &'a mut BatchContext<S>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send + 'a,
    R: IntoBatchResult + 'static,
    E: Into<BoxError> + 'static,
    S: Store,
{
    type Run = futures_util::future::Map<Fut, fn(Result<R, E>) -> Result<BatchResult, Failure>>;

    fn run(&self, messages: Vec<M>, cx: &'a mut BatchContext<S>) -> Self::Run {
        let answer: fn(Result<R, E>) -> Result<BatchResult, Failure> =
            |ended| ended.map(IntoBatchResult::into_batch_result).map_err(|error| Failure::new(error));
        futures_util::FutureExt::map(self(messages, cx), answer)
    }
}

/// What a batch handler says of its messages when it did not fail as a whole.
#[derive(Debug)]
pub struct BatchResult(pub(crate) ItemResults);

#[derive(Debug)]
pub(crate) enum ItemResults {
    /// All are done.
    Done,
    /// Each has an answer of its own, in the order of the messages.
    Each(Vec<Result<(), Failure>>),
}

/// What a batch handler can return: `()`, or an answer for each message, in their order.
pub trait IntoBatchResult {
    /// As an answer.
    fn into_batch_result(self) -> BatchResult;
}

impl IntoBatchResult for () {
    fn into_batch_result(self) -> BatchResult {
        BatchResult(ItemResults::Done)
    }
}

impl<E: Into<BoxError>> IntoBatchResult for Vec<Result<(), E>> {
    fn into_batch_result(self) -> BatchResult {
        BatchResult(ItemResults::Each(self.into_iter().map(|item| item.map_err(Failure::new)).collect()))
    }
}

/// Registers a handler that takes up to [`max_batch`](Registration::max_batch) messages in one call, 64 unless that says otherwise.
/// Hand the result to [`InboxBuilder::on`](crate::InboxBuilder::on).
///
/// A call gets what one claim brought; nothing waits for a batch to fill up. If a call fails as a whole, each of its
/// messages is tried again alone, so that only the one that is to blame has a failed attempt.
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
pub fn batch_handler<M, S, F>(key: impl Into<String>, function: F) -> Registration<S>
where
    F: for<'a> BatchFn<'a, M, S>,
    M: FromMessage + Send + 'static,
    S: Store,
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
pub(crate) type Prepared<S> = Box<dyn for<'a> FnOnce(&'a mut BatchContext<S>) -> BatchRun<'a> + Send>;

/// A batch handler with its message type erased.
pub(crate) trait ErasedBatch<S: Store>: Send + Sync {
    /// Decodes messages, and prepares a call with those that do.
    fn prepare(&self, messages: &[Arc<Message>]) -> (Vec<Result<(), DecodeError>>, Prepared<S>);
}

struct TypedBatch<F, M>(Arc<F>, std::marker::PhantomData<fn(M)>);

impl<F, M, S> ErasedBatch<S> for TypedBatch<F, M>
where
    F: for<'a> BatchFn<'a, M, S>,
    M: FromMessage + Send + 'static,
    S: Store,
{
    fn prepare(&self, messages: &[Arc<Message>]) -> (Vec<Result<(), DecodeError>>, Prepared<S>) {
        let mut decoded = Vec::with_capacity(messages.len());
        let results =
            messages.iter().map(|message| M::from_message(message).map(|message| decoded.push(message)));
        let results = results.collect();
        let function = Arc::clone(&self.0);
        (results, Box::new(move |cx| Box::pin(function.run(decoded, cx))))
    }
}

/// The surroundings of one call of a batch handler.
pub struct BatchContext<S: Store> {
    store: Arc<Observed<S>>,
    data: Arc<Data>,
    items: Vec<BatchItem>,
    tx: Option<Box<dyn ShareTx>>,
}

impl<S: Store> BatchContext<S> {
    pub(crate) fn new((store, data): (Arc<Observed<S>>, Arc<Data>), items: Vec<BatchItem>) -> Self {
        Self { store, data, items, tx: None }
    }

    /// The messages of this call with what belongs to each, in their order.
    pub fn items(&self) -> &[BatchItem] {
        &self.items
    }

    /// The value of type `T` that [`InboxBuilder::data`](crate::InboxBuilder::data) was given: a client, a setting.
    pub fn data<T: Send + Sync + 'static>(&self) -> Result<&T> {
        self.data.get()
    }

    /// The transaction, if one was opened.
    pub(crate) fn take_tx(&mut self) -> Option<Box<dyn ShareTx>> {
        self.tx.take()
    }
}

impl<S> BatchContext<S>
where
    S: Transactional + ShareIn<<S as Transactional>::Tx>,
{
    /// The transaction in which all completions of this call are written: what is written through it happens exactly
    /// once.
    ///
    /// It is opened at the first call, so do slow things before. If the handler answers for each message, what it wrote
    /// is committed if at least one of them is done: write nothing for those that are not.
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

/// A message of a batch, with what belongs to it.
pub struct BatchItem {
    message: Arc<Message>,
    key: Key,
    origin: HandlerKey,
    attempt: u32,
    generation: u32,
}

impl BatchItem {
    pub(crate) fn new(message: Arc<Message>, claim: &Claim) -> Self {
        // The same in every process, whatever it calls the handler.
        let (key, origin, generation) = (claim.key, claim.origin.clone(), claim.generation);
        Self { message, key, origin, attempt: claim.attempts.saturating_add(1), generation }
    }

    /// The message as it came, with its headers.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Its dedupe key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// A stable key for an effect of this message outside the database: the same at every attempt, in whichever batch,
    /// so that the other side can recognise a repeat.
    pub fn idempotency_key(&self, effect: &str) -> String {
        self.key.idempotency_key(self.origin.as_str(), self.generation, effect)
    }
}

impl std::fmt::Debug for BatchItem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchItem")
            .field("key", &self.key)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}
