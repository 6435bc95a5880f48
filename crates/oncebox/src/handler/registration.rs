//! A handler and its settings.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use super::batch::ErasedBatch;
use super::kinds::Kind;
use super::transaction::{self, Open, Share};
use super::{Erased, Failure};
use crate::error::Result;
use crate::inbox::IntoTypes;
use crate::key::Dedupe;
use crate::name::HandlerKey;
use crate::state::{Breaker, OnPoisoned, Policy, Rate, Retry};
use crate::store::{MarkIn, ShareIn, Store, Transactional};

/// What is run.
pub(crate) enum Function<S: Store> {
    /// For one message.
    One(Arc<dyn Erased<S>>),
    /// For many.
    Batch(Arc<dyn ErasedBatch<S>>),
}

/// A handler and its settings, on the way to an inbox.
pub struct Registration<S: Store> {
    pub(crate) key: String,
    pub(crate) legacy: Vec<String>,
    /// The message types that [`InboxBuilder::register`](crate::InboxBuilder::register) goes by.
    pub(crate) types: Vec<Box<str>>,
    pub(crate) policy: Policy,
    /// Whether the user chose the policy.
    pub(crate) has_policy: bool,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) breaker: Option<Breaker>,
    pub(crate) rate: Option<Rate>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) concurrency: usize,
    /// Instead of the inbox's.
    pub(crate) retention: Option<Duration>,
    pub(crate) inline: bool,
    pub(crate) forget: bool,
    /// By which key it goes, if it says so itself.
    pub(crate) dedupe: Option<Dedupe>,
    /// How many messages a batch handler gets at the most; set by whoever is one.
    pub(crate) max_batch: Option<usize>,
    /// Opens the transaction of an inline handler; set together with `inline`.
    pub(crate) open: Option<Open<S>>,
    /// Opens a transaction to try the handler out in; set if all it does can be undone.
    pub(crate) open_for_dry_run: Option<Open<S>>,
    /// How runs share their commits, if they do.
    pub(crate) share: Option<Share<S>>,
    pub(crate) function: Function<S>,
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
            breaker: None,
            rate: None,
            timeout: None,
            concurrency: 64,
            retention: None,
            inline: false,
            forget: false,
            dedupe: None,
            max_batch: None,
            open: None,
            open_for_dry_run: None,
            share: None,
            function,
        }
    }

    /// A key this handler had before: entries stored under it are still handled; new ones never get it. Messages with an
    /// ordering key keep their order over both keys, as far as a process knows both.
    pub fn legacy(mut self, key: impl Into<String>) -> Self {
        self.legacy.push(key.into());
        self
    }

    /// The message types it is for: what [`InboxBuilder::register`](crate::InboxBuilder::register) goes by. The last call counts.
    pub fn types(mut self, types: impl IntoTypes) -> Self {
        self.types = types.into_types();
        self
    }

    /// When failed attempts are tried again.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.policy.retry = retry;
        self.has_policy = true;
        self
    }

    /// When attempts are tried again that failed with an error of type `E`, or with one that `E` caused. With
    /// [`Retry::never`] such an error poisons at once. If an error is of several kinds, the one that was named first
    /// counts.
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
        self.kinds.push(Kind::of::<E>(retry));
        self
    }

    /// When attempts are tried again that failed with an error for which `matches` says so. It is asked for the error and
    /// for each of its causes; [`retry_for`](Self::retry_for) says what follows.
    pub fn retry_when(
        mut self,
        matches: impl Fn(&(dyn StdError + 'static)) -> bool + Send + Sync + 'static,
        retry: Retry,
    ) -> Self {
        self.kinds.push(Kind::when(matches, retry));
        self
    }

    /// All rules at once.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self.has_policy = true;
        self
    }

    /// How many workers may die while they run an entry alone before it is poisoned. Default: 3.
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

    /// What happens to those behind a poisoned message with its ordering key. Default: they wait for a person.
    pub fn on_poisoned(mut self, on_poisoned: OnPoisoned) -> Self {
        self.policy.on_poisoned = on_poisoned;
        self
    }

    /// Leaves the handler alone for a while when it only fails: nothing of it is claimed then, and no attempts are
    /// counted. Each process has a breaker of its own. Default: none.
    pub fn breaker(mut self, breaker: Breaker) -> Self {
        self.breaker = Some(breaker);
        self
    }

    /// How many entries this process claims in a time. Default: no limit.
    pub fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// How long one run may take, of a batch handler one call; running out of it is a failed attempt. Default: no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How many runs at once in this process. Default 64. For a batch handler this is the number of messages in hand, 256
    /// by default: several calls at once need a multiple of [`max_batch`](Self::max_batch).
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// How long what this handler finished is remembered, from completion, and its marks if it is inline. Default: as
    /// long as [`Config::retention`](crate::Config::retention) says. [`Duration::MAX`] for ever.
    ///
    /// A message that goes to several handlers leaves when the window of each is over.
    pub fn retention(mut self, window: Duration) -> Self {
        self.retention = Some(window);
        self
    }

    /// How many messages a [batch handler](crate::batch_handler) gets in one call at the most. Default 64.
    pub fn max_batch(mut self, messages: usize) -> Self {
        self.max_batch = Some(messages);
        self
    }

    /// Whether this handler recognises repeats, and by which key; it counts more than what is said of types and of the
    /// inbox. Of several calls the last one counts, so what is said in code replaces what came with the function.
    pub fn dedupe(mut self, dedupe: Dedupe) -> Self {
        self.dedupe = Some(dedupe);
        self
    }

    /// Runs the handler while the delivery is held, in one transaction with its mark, instead of storing the
    /// message first. Retrying is the transport's business then, except that a transaction which the database ended to
    /// resolve a deadlock, or could not serialize, is made again a few times, the handler included.
    pub fn inline(mut self) -> Self
    where
        S: Transactional + MarkIn<<S as Transactional>::Tx>,
    {
        self.inline = true;
        self.open = Some(transaction::open::<S>);
        self
    }

    /// Says that all the handler does, it does through [`Context::tx`](crate::Context::tx): no request to anybody else, no file,
    /// nothing that a rollback leaves behind. Then an operator can try a message out on it:
    /// [`Inbox::dry_run`](crate::Inbox::dry_run). Nobody can check that for you.
    pub fn undoable(mut self) -> Self
    where
        S: Transactional + MarkIn<<S as Transactional>::Tx>,
    {
        self.open_for_dry_run = Some(transaction::open::<S>);
        self
    }

    /// Runs the handler at most once, in the process that accepted the message, right after it was stored and only if it
    /// was new. Nothing is stored for it and nothing is tried again: if it fails, that is logged and counted; if the
    /// process ends before, it does not run. It neither delays nor fails the accept.
    ///
    /// Up to [`concurrency`](Self::concurrency) run at once and 1,024 wait; what comes beyond that is dropped and counted.
    pub fn fire_and_forget(mut self) -> Self {
        self.forget = true;
        self
    }

    /// Lets up to `max_runs` runs share one transaction and one commit, 64 at the most: the commit is most of what a small
    /// transaction costs. Default: each run has its own.
    ///
    /// What one claim brought is cut into groups; nothing waits for a group to fill up. The runs of a group follow one
    /// another, in one transaction that is open all the time: this is for short handlers that do little else than write.
    /// `concurrency` still counts runs, those that wait for their turn included: several groups at once need a multiple
    /// of `max_runs`.
    ///
    /// A run that fails is undone alone, and settled by what it said. If the transaction as a whole fails, nobody is
    /// blamed: each run that had not failed by itself is repeated in a transaction of its own. So effects other than
    /// through [`Context::tx`](crate::Context::tx) can happen again though nothing crashed; give them an
    /// [idempotency key](crate::Context::idempotency_key).
    ///
    /// A handler must not end the transaction itself. SQLite refuses it; PostgreSQL cannot, and then what the runs before it in the group
    /// wrote may be committed without their completion: none of them is repeated, all are poisoned, and a person has to look. That is
    /// seen when the run is over: if it never is, because the process dies or the handler hangs after its COMMIT, they are repeated.
    pub fn share_commit(mut self, max_runs: usize) -> Self
    where
        S: Transactional + ShareIn<<S as Transactional>::Tx>,
    {
        self.share = Some(Share { max_runs, open: transaction::open_shared::<S> });
        self
    }

    /// The key, checked.
    pub(crate) fn checked_key(&self) -> Result<HandlerKey> {
        HandlerKey::new(&self.key)
    }

    /// How many entries of one claim are run together.
    pub(crate) fn together(&self) -> usize {
        self.share.as_ref().map(|share| share.max_runs).or(self.max_batch).unwrap_or(1)
    }

    /// Whether its entries are stored.
    pub(crate) const fn is_durable(&self) -> bool {
        !self.inline && !self.forget
    }

    /// The retry for a failure, if its kind has one.
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
            .field("breaker", &self.breaker)
            .field("rate", &self.rate)
            .field("timeout", &self.timeout)
            .field("concurrency", &self.concurrency)
            .field("retention", &self.retention)
            .field("dedupe", &self.dedupe)
            .field("undoable", &self.open_for_dry_run.is_some())
            .field("inline", &self.inline)
            .field("fire_and_forget", &self.forget)
            .field("share_commit", &self.share.as_ref().map(|share| share.max_runs))
            .finish_non_exhaustive()
    }
}
