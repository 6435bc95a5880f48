//! A handler and its settings. Tests: `tests/bad_input.rs`.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use super::batch::ErasedBatch;
use super::data::NeededData;
use super::kinds::RetryRule;
use super::transaction::{self, OpenInline, SharedCommit};
use super::{Erased, Failure, IntoTypes};
use crate::config::dedupe::Dedupe;
use crate::error::Result;
use crate::name::HandlerKey;
use crate::state::{Breaker, OnPoisoned, Policy, Rate, Retry};
use crate::store::{MarkIn, ShareIn, Store, Transactional};

/// The function of a handler.
pub(crate) enum Function<S: Store> {
    /// Takes one message.
    One(Arc<dyn Erased<S>>),
    /// Takes many messages.
    Batch(Arc<dyn ErasedBatch<S>>),
}

/// A handler and its settings, for an [`InboxBuilder`](crate::InboxBuilder).
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct Registration<S: Store> {
    pub(crate) key: String,
    pub(crate) legacy: Vec<String>,
    /// Message types for [`InboxBuilder::register`](crate::InboxBuilder::register).
    pub(crate) types: Vec<Box<str>>,
    pub(crate) policy: Policy,
    /// True if the user set the policy.
    pub(crate) has_policy: bool,
    pub(crate) kinds: Vec<RetryRule>,
    /// Types of the values that the inbox must have.
    pub(crate) needs: Vec<NeededData>,
    pub(crate) breaker: Option<Breaker>,
    pub(crate) rate: Option<Rate>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) concurrency: usize,
    /// Overrides the inbox's retention.
    pub(crate) retention: Option<Duration>,
    pub(crate) inline: bool,
    pub(crate) forget: bool,
    /// True if its entries ignore ordering keys.
    pub(crate) unordered: bool,
    /// Overrides the dedupe of the type and the inbox.
    pub(crate) dedupe: Option<Dedupe>,
    /// Maximum messages per call. Set only for batch handlers.
    pub(crate) max_batch: Option<usize>,
    /// Opens the transaction of an inline handler; set together with `inline`.
    pub(crate) open: Option<OpenInline<S>>,
    /// Opens the transaction of a dry run; set if a rollback undoes all of the handler's effects.
    pub(crate) open_for_dry_run: Option<OpenInline<S>>,
    /// Settings of shared commits, if runs share them.
    pub(crate) share: Option<SharedCommit<S>>,
    pub(crate) function: Function<S>,
}

/// A handler for an inbox with the store `S`: a [`Registration`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler for an inbox with the store `{S}`",
    label = "write `handler(\"ship-order\", ship)`, or `ship::registration()` if `ship` has the attribute `#[oncebox::handler]`",
    note = "the function's context names the store: `cx: &mut Context<{S}>`"
)]
pub trait IntoRegistration<S: Store> {
    /// Returns the registration.
    fn into_registration(self) -> Registration<S>;
}

impl<S: Store> IntoRegistration<S> for Registration<S> {
    fn into_registration(self) -> Self {
        self
    }
}

impl<S: Store> Registration<S> {
    pub(super) fn new(key: String, function: Function<S>) -> Self {
        Self {
            key,
            legacy: Vec::new(),
            types: Vec::new(),
            policy: Policy::default(),
            has_policy: false,
            kinds: Vec::new(),
            needs: Vec::new(),
            breaker: None,
            rate: None,
            timeout: None,
            concurrency: 64,
            retention: None,
            inline: false,
            forget: false,
            unordered: false,
            dedupe: None,
            max_batch: None,
            open: None,
            open_for_dry_run: None,
            share: None,
            function,
        }
    }

    /// Adds a key that this handler had before. Its entries still run; new entries never get it. Messages with an ordering
    /// key keep their order across both keys, if the process knows both.
    pub fn legacy(mut self, key: impl Into<String>) -> Self {
        self.legacy.push(key.into());
        self
    }

    /// Sets the message types for [`InboxBuilder::register`](crate::InboxBuilder::register). The last call wins.
    pub fn types(mut self, types: impl IntoTypes) -> Self {
        self.types = types.into_types();
        self
    }

    /// Sets when failed attempts are retried.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.policy.retry = retry;
        self.has_policy = true;
        self
    }

    /// Sets the retry for errors of type `E`, or with a cause of type `E`. With [`Retry::never`] such an error poisons the
    /// entry at once. The first rule that matches wins.
    ///
    /// ```
    /// # use oncebox::{Context, Memory, Message, Retry, handler};
    /// # async fn ship(_: Message, _: &mut Context<Memory>) -> Result<(), oncebox::BoxError> { Ok(()) }
    /// let registration = handler("ship-order", ship)
    ///     .retry_for::<std::num::ParseIntError>(Retry::never())
    ///     .retry_when(|error| error.to_string().contains("rate limit"), Retry::patient())
    ///     .retry(Retry::quick());
    /// # let _ = registration;
    /// ```
    pub fn retry_for<E: StdError + 'static>(mut self, retry: Retry) -> Self {
        self.kinds.push(RetryRule::of::<E>(retry));
        self
    }

    /// Sets the retry for errors for which `matches` returns true. It is called with the error and each of its causes. See
    /// [`retry_for`](Self::retry_for).
    pub fn retry_when(
        mut self,
        matches: impl Fn(&(dyn StdError + 'static)) -> bool + Send + Sync + 'static,
        retry: Retry,
    ) -> Self {
        self.kinds.push(RetryRule::when(matches, retry));
        self
    }

    /// Declares that the handler reads data of type `T` with [`Context::data`](crate::Context::data). Without it,
    /// [`build`](crate::InboxBuilder::build) returns an error that names the handler and the type.
    ///
    /// ```
    /// # use oncebox::{BoxError, Context, ErrorKind, Inbox, Memory, handler};
    /// struct Mailer;
    ///
    /// async fn ship(order: u64, cx: &mut Context<Memory>) -> Result<(), BoxError> {
    ///     let mailer = cx.data::<Mailer>()?; // an owned handle: it can stay while `cx.tx()` is in use
    ///     let tx = cx.tx().await?;
    ///     # let _ = (order, mailer, tx);
    ///     Ok(())
    /// }
    /// let ship = || handler("ship-order", ship).needs::<Mailer>();
    /// let forgotten = Inbox::builder("orders", Memory::new()).on("order.placed", ship()).build().unwrap_err();
    /// assert_eq!(forgotten.kind(), ErrorKind::InvalidConfig);
    /// Inbox::builder("orders", Memory::new()).on("order.placed", ship()).data(Mailer).build()?;
    /// # Ok::<(), oncebox::Error>(())
    /// ```
    pub fn needs<T: Send + Sync + 'static>(mut self) -> Self {
        self.needs.push(NeededData::of::<T>());
        self
    }

    /// Sets the whole policy.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self.has_policy = true;
        self
    }

    /// Maximum worker deaths with only this entry in hand, before it is poisoned. Default: 3.
    pub fn crashes(mut self, crashes: u32) -> Self {
        self.policy.crashes = crashes;
        self
    }

    /// Wait before an entry runs again after the first such death; six times as long after each further one, up to ten minutes.
    /// Default: 10 seconds.
    pub fn crash_delay(mut self, delay: Duration) -> Self {
        self.policy.crash_delay = delay;
        self
    }

    /// Sets what happens to messages behind a poisoned one with the same ordering key. Default: they wait for an operator.
    pub fn on_poisoned(mut self, on_poisoned: OnPoisoned) -> Self {
        self.policy.on_poisoned = on_poisoned;
        self
    }

    /// Runs messages without regard to their ordering key, for a handler to which their order does not matter, such as one that
    /// sends mails. Its entries run at once, and a poisoned one holds nothing back. Other handlers of the same messages keep
    /// the order. Default: entries with one ordering key run one at a time, in the order of acceptance.
    ///
    /// It applies to entries that are stored from then on. A finished entry that an operator replays keeps the order with other
    /// replays of its ordering key.
    pub fn unordered(mut self) -> Self {
        self.unordered = true;
        self
    }

    /// Sets a circuit breaker, which pauses claims for the handler while it only fails. No attempts are counted meanwhile.
    /// Each process has its own breaker. Default: none.
    pub fn breaker(mut self, breaker: Breaker) -> Self {
        self.breaker = Some(breaker);
        self
    }

    /// Rate limit of claims in this process. Default: none.
    pub fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// Maximum time of one run, or of one call of a batch handler. A timeout is a failed attempt. Default: no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Maximum runs at once in this process. Default: 64. For a batch handler: maximum messages in hand, default 256. Several
    /// calls at once need a multiple of [`max_batch`](Self::max_batch).
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Retention of what this handler finished, from completion, and of its marks if it is inline. Default:
    /// [`Config::retention`](crate::Config::retention). [`Duration::MAX`] means for ever.
    ///
    /// A message with several handlers is deleted after the longest of their windows.
    pub fn retention(mut self, window: Duration) -> Self {
        self.retention = Some(window);
        self
    }

    /// Maximum messages in one call of a [batch handler](crate::batch_handler). Default: 64.
    pub fn max_batch(mut self, messages: usize) -> Self {
        self.max_batch = Some(messages);
        self
    }

    /// Sets whether this handler recognises repeats, and by which key. It overrides the setting of the type and of the inbox.
    /// The last call wins, so code overrides the attribute of the function.
    pub fn dedupe(mut self, dedupe: Dedupe) -> Self {
        self.dedupe = Some(dedupe);
        self
    }

    /// Runs the handler while the broker holds the delivery, in one transaction with its mark. The message is not stored
    /// first, and the transport retries. After a deadlock or a serialization failure, the transaction and its handler run
    /// again, up to three times.
    pub fn inline(mut self) -> Self
    where
        S: Transactional + MarkIn<<S as Transactional>::Tx>,
    {
        self.inline = true;
        self.open = Some(transaction::open::<S>);
        self
    }

    /// Declares that all effects of the handler go through [`Context::tx`](crate::Context::tx): no request, no file, nothing
    /// that survives a rollback. This allows [`Inbox::dry_run`](crate::Inbox::dry_run). The library cannot check the
    /// declaration.
    pub fn undoable(mut self) -> Self
    where
        S: Transactional + MarkIn<<S as Transactional>::Tx>,
    {
        self.open_for_dry_run = Some(transaction::open::<S>);
        self
    }

    /// Runs the handler at most once, in the process that stored the message, and only for a new message. The store keeps no
    /// entry, and a failure is logged and counted, never retried. If the process ends before, the handler does not run. It
    /// neither delays nor fails the accept.
    ///
    /// At most [`concurrency`](Self::concurrency) runs are active and 1,024 wait; further ones are dropped and counted.
    pub fn fire_and_forget(mut self) -> Self {
        self.forget = true;
        self
    }

    /// Lets up to `max_runs` runs share one transaction and one commit, because the commit is most of the cost of a small
    /// transaction. Maximum: 64. Default: one transaction per run.
    ///
    /// The entries of one claim are split into groups; no group waits to fill up. The runs of a group follow one another in
    /// one open transaction, so use it for short handlers that mostly write. `concurrency` counts every run of a group, so
    /// several groups at once need a multiple of `max_runs`.
    ///
    /// A failed run is rolled back alone and settled by its own error. If the whole transaction fails, no run is counted as
    /// failed: each runs again in its own transaction. Effects outside [`Context::tx`](crate::Context::tx) may then happen
    /// twice without a crash; give them an [idempotency key](crate::Context::idempotency_key).
    ///
    /// A handler must not end the transaction itself. SQLite refuses that, but PostgreSQL cannot: earlier runs of the group
    /// may then be committed without their completion. After the run the library detects this, poisons all of them for an
    /// operator, and repeats none. If the process dies or the handler hangs after its COMMIT, they are repeated.
    pub fn share_commit(mut self, max_runs: usize) -> Self
    where
        S: Transactional + ShareIn<<S as Transactional>::Tx>,
    {
        self.share = Some(SharedCommit { max_runs, open: transaction::open_shared::<S> });
        self
    }

    /// Returns the validated key.
    pub(crate) fn checked_key(&self) -> Result<HandlerKey> {
        HandlerKey::new(&self.key)
    }

    /// Returns the maximum of entries per call or per transaction.
    pub(crate) fn together(&self) -> usize {
        self.share.as_ref().map(|share| share.max_runs).or(self.max_batch).unwrap_or(1)
    }

    /// Returns true if its entries are stored.
    pub(crate) const fn is_durable(&self) -> bool {
        !self.inline && !self.forget
    }

    /// Returns the retry for a failure, if a rule matches.
    pub(crate) fn retry_of(&self, failure: &Failure) -> Option<Retry> {
        failure.retry(&self.kinds)
    }
}

impl<S: Store> std::fmt::Debug for Registration<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration")
            .field("key", &self.key)
            .field("legacy", &self.legacy)
            .field("types", &self.types)
            .field("policy", &self.policy)
            .field("retry_for", &self.kinds)
            .field("needs", &self.needs)
            .field("breaker", &self.breaker)
            .field("rate", &self.rate)
            .field("timeout", &self.timeout)
            .field("concurrency", &self.concurrency)
            .field("retention", &self.retention)
            .field("dedupe", &self.dedupe)
            .field("undoable", &self.open_for_dry_run.is_some())
            .field("inline", &self.inline)
            .field("fire_and_forget", &self.forget)
            .field("unordered", &self.unordered)
            .field("share_commit", &self.share.as_ref().map(|share| share.max_runs))
            .finish_non_exhaustive()
    }
}
