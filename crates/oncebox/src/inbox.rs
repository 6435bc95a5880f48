//! The inbox: the three ways in, and the way to start it.

mod accept_in;
mod allowed_conflicts;
mod answers;
mod backfill;
mod conflicts;
mod dry_run;
mod duplicate_counts;
mod health;
mod incoming;
mod receive;
mod routing;
mod split_batch;

pub(crate) use accept_in::unregistered;
pub(crate) use allowed_conflicts::AllowedConflicts;
pub use answers::{HandlerAnswer, Processed, Receipt, Received, Results};
pub use dry_run::DryRun;
pub(crate) use duplicate_counts::DuplicateCounts;
pub use incoming::Incoming;
pub(crate) use routing::{OfferResult, PreparedDelivery};

use std::sync::{Arc, Weak};
use std::time::Duration;

use tracing::{Instrument as _, Span};

use crate::config::dedupe::{Dedupe, KeyRules};
use crate::config::{Config, Guarantee, Limits};
use crate::direct::Direct;
use crate::error::{Error, ErrorKind, Result};
use crate::handler::{
    DataMap, EffectiveDedupe, Function, IntoRegistration, IntoTypes, Redactor, Registration, Registry,
};
use crate::key::Key;
use crate::message::Message;
use crate::name::{HandlerKey, InboxName};
use crate::observe::{Observed, Observer, Observers, Propagate, SpanPropagator, Watch};
use crate::retention::Lateness;
use crate::runtime::{self, Core, Forget, Inline, LocalWakeup, Running};
use crate::state::BreakerState;
use crate::store::{Accepted, Store, SweepId, Swept};
use crate::time::{SharedClock, SystemClock, Timestamp};
use routing::{Offers, short_answer};

/// State that all parts of one inbox share.
pub(crate) struct Shared<S: Store> {
    pub(crate) name: InboxName,
    pub(crate) config: Config,
    pub(crate) store: Arc<Observed<S>>,
    pub(crate) data: Arc<DataMap>,
    pub(crate) registry: Registry<S>,
    pub(crate) clock: SharedClock,
    pub(crate) local_wakeup: LocalWakeup,
    pub(crate) lateness: Lateness,
    pub(crate) duplicate_counts: DuplicateCounts,
    pub(crate) allowed_conflicts: AllowedConflicts,
    /// Sweeps of this inbox wait for each other here, because all of them have the same identity.
    pub(crate) sweeps: tokio::sync::Mutex<SweepId>,
    pub(crate) redactor: Redactor,
    pub(crate) forget: Forget,
    /// The runtime that was started last, for health.
    pub(crate) running: parking_lot::Mutex<Weak<Core<S>>>,
    pub(crate) drives: runtime::Drives,
    /// Time of the last registration of this process's windows.
    pub(crate) registered: runtime::LastRegistration,
}

impl<S: Store> Shared<S> {
    /// Returns the store and the data that every handler run gets.
    pub(crate) fn surroundings(&self) -> (Arc<Observed<S>>, Arc<DataMap>) {
        (Arc::clone(&self.store), Arc::clone(&self.data))
    }

    /// Returns the state of every breaker.
    pub(crate) fn breakers(&self) -> Vec<(HandlerKey, BreakerState)> {
        let now = self.clock.monotonic();
        let state = |handler: &Arc<crate::handler::RegisteredHandler<S>>| {
            Some((handler.route.key.clone(), handler.throttle.breaker(now)?))
        };
        self.registry.durable().filter_map(state).collect()
    }
}

/// A durable inbox over a store. Cheap to clone; clones share the inbox.
pub struct Inbox<S: Store> {
    pub(crate) shared: Arc<Shared<S>>,
}

impl<S: Store> Clone for Inbox<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S: Store> Inbox<S> {
    /// Begins an inbox named `name` over `store`.
    pub fn builder(name: impl Into<String>, store: S) -> InboxBuilder<S> {
        InboxBuilder {
            name: name.into(),
            store,
            config: Config::default(),
            clock: None,
            data: DataMap::default(),
            redactor: Redactor::default(),
            observers: Observers::default(),
            propagator: SpanPropagator::default(),
            registrations: Vec::new(),
            keys: Vec::new(),
        }
    }

    /// The inbox's name.
    pub fn name(&self) -> &InboxName {
        &self.shared.name
    }

    /// The store inside.
    pub fn store(&self) -> &S {
        self.shared.store.inner()
    }

    /// Stores a message for its durable handlers. Once this returns `Ok`, the broker may forget the message.
    ///
    /// If the handlers use different keys, the message is stored once under each key, in one transaction. The result then
    /// combines all of them, as [`Accepted::and`] defines.
    pub async fn accept(&self, message: Message) -> Result<Accepted> {
        self.accept_after(message, Duration::ZERO).await
    }

    /// Stores a message whose handlers start no sooner than `delay` from now.
    pub async fn accept_after(&self, message: Message, delay: Duration) -> Result<Accepted> {
        let (message, span) = self.shared.own(message);
        let offers = self.shared.prepare(&message, delay)?;
        let answer = self.shared.offer(&offers).instrument(span).await?;
        self.shared.told(&message, answer.whole)
    }

    /// Stores a message whose handlers start no sooner than `time`, by the clock of this process. A past time means at
    /// once. A message that is already stored keeps its first time.
    pub async fn accept_at(&self, message: Message, time: Timestamp) -> Result<Accepted> {
        let delay = time.since(self.shared.clock.now());
        self.accept_after(message, delay).await
    }

    /// Stores many messages in one transaction. If the store has several
    /// [writers](crate::store::Capabilities::writers), a batch of 256 messages or more may be split into as many transactions.
    /// A batch with an ordering key, or with a message under several keys, is never split.
    ///
    /// A refused message does not affect the others. A store error is returned for each message that it concerns, and may be
    /// [retryable](Error::is_retryable); an error that concerns all of them is returned by the call. Acknowledge only the
    /// messages with `Ok`.
    pub async fn accept_batch(
        &self,
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<Vec<Result<Accepted>>> {
        let prepared: Vec<(Arc<Message>, Span, Result<Offers>)> = messages
            .into_iter()
            .map(|message| {
                let (message, span) = self.shared.own(message);
                let offers = self.shared.prepare(&message, Duration::ZERO);
                (message, span, offers)
            })
            .collect();
        let offers: Vec<&Offers> = prepared.iter().filter_map(|(.., offers)| offers.as_ref().ok()).collect();
        let mut answers = self.shared.offer_in_parts(&offers).await?.into_iter();
        Ok(prepared
            .into_iter()
            .map(|(message, _, offers)| {
                offers?;
                let answer = answers.next().ok_or_else(short_answer)?;
                self.shared.told(&message, answer?.whole)
            })
            .collect())
    }

    /// Runs the inline handlers of a message now: each once, in one transaction with its mark. A failure does not stop the
    /// other handlers; the worst result is returned. The caller retries; handlers that completed do not run again. The store
    /// keeps only the marks.
    ///
    /// After a deadlock or a serialization failure, the transaction and its handler run again, up to three times. A
    /// transaction that may have committed is never repeated.
    pub async fn process(&self, message: Message) -> Result<Processed> {
        Ok(self.run_inline(message, false).await?.0)
    }

    /// Like [`process`](Self::process), and returns the results of [`Context::set_result`](crate::Context::set_result). A
    /// duplicate returns the results of the first delivery, so every sender gets the same answer.
    pub async fn process_with_results(&self, message: Message) -> Result<(Processed, Results)> {
        self.run_inline(message, true).await
    }

    async fn run_inline(&self, message: Message, recall: bool) -> Result<(Processed, Results)> {
        let (message, span) = self.shared.own(message);
        self.run_inline_in(&message, recall).instrument(span).await
    }

    async fn run_inline_in(&self, message: &Arc<Message>, recall: bool) -> Result<(Processed, Results)> {
        let keys = self.shared.prepare_inline(message)?;
        if keys.is_empty() {
            let message_type = message.message_type();
            let what = format!(
                "no inline handler is registered for messages of type {message_type:?} (`.inline()` makes a handler one; `accept` is for the others)"
            );
            return Err(Error::new(ErrorKind::Unrouted, what));
        }
        runtime::registered(&self.shared).await?;
        let (mut all, mut results) = (Processed::Duplicate, Results::default());
        for ((handler, _), key) in self.shared.registry.inline(message.message_type()).zip(keys) {
            let inline = Inline { inbox: &self.shared, handler, key, message, recall };
            let (processed, result): runtime::InlineResult = inline.run().await?;
            all = all.and(processed);
            results.0.extend(result.map(|result| (handler.route.key.clone(), result)));
        }
        // A caller that asks for the results of duplicates gets them, not an error.
        if all == Processed::Duplicate && !recall {
            self.shared.refuse_duplicate(message, "was handled before")?;
        }
        Ok((all, results))
    }

    /// Returns the limits of its messages.
    pub fn limits(&self) -> &Limits {
        &self.shared.config.limits
    }

    /// Returns the key by which a handler recognises a message. Operator tools show the message under it. `None` if every
    /// delivery runs.
    pub fn key_of(&self, message: &Message, handler: &str) -> Result<Option<Key>> {
        self.shared.key_of(message, &HandlerKey::new(handler)?)
    }

    /// Starts the background tasks: claim, run, settle, renew, rescue and sweep. Call it within a Tokio runtime.
    pub fn start(&self) -> Running<S> {
        Running::start(Arc::clone(&self.shared))
    }

    /// Runs at most `limit` due entries now, without background tasks. Returns the number of entries that ran.
    ///
    /// The call does not wait for later entries. It respects the [rate](crate::Registration::rate) and the open
    /// [breaker](crate::Registration::breaker) of each handler, and leaves the remaining entries due. If a handler is done and the
    /// store has trouble, the call tries to settle it for the time of a [lease](crate::Config::lease). Fire-and-forget handlers run
    /// by themselves when a message is accepted.
    pub async fn process_pending(&self, limit: usize) -> Result<usize> {
        runtime::process_pending(&self.shared, limit).await
    }

    /// Returns the state of every handler that has a breaker.
    pub fn breakers(&self) -> Vec<(HandlerKey, BreakerState)> {
        self.shared.breakers()
    }

    /// Runs every due entry that [may run](Self::process_pending) now. Returns the number of entries that ran.
    pub async fn drain(&self) -> Result<usize> {
        runtime::drain(&self.shared).await
    }

    /// Registers the handlers, windows and tenants setting of this inbox with the store. A running inbox does so by itself.
    /// Call it before [`start`](Self::start) to get an error such as [`ErrorKind::TenantsChanged`] at once.
    pub async fn register(&self) -> Result<()> {
        runtime::register(&self.shared).await
    }

    /// Deletes what is finished and past its retention now. Returns the number of deleted messages, entries, marks and
    /// operation records: [`Swept::NOTHING`] while another process sweeps the same inbox.
    pub async fn sweep(&self) -> Result<Swept> {
        runtime::sweep(&self.shared).await
    }
}

impl Inbox<Direct> {
    /// Begins an inbox without a store: handlers run while the broker holds the delivery, and every delivery runs. See
    /// [`Direct`].
    pub fn direct(name: impl Into<String>) -> InboxBuilder<Direct> {
        Self::builder(name, Direct)
    }
}

impl<S: Store> std::fmt::Debug for Inbox<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

/// Builder of an [`Inbox`].
pub struct InboxBuilder<S: Store> {
    name: String,
    store: S,
    config: Config,
    clock: Option<SharedClock>,
    data: DataMap,
    redactor: Redactor,
    observers: Observers,
    propagator: SpanPropagator,
    registrations: Vec<(Vec<Box<str>>, Registration<S>)>,
    keys: Vec<(Box<str>, Dedupe)>,
}

impl<S: Store> InboxBuilder<S> {
    /// Registers a handler for one or several message types. A pattern such as `order.*` matches every type with that
    /// prefix; `*` matches all types. A handler gets a message once, even if several of its types and patterns match.
    pub fn on(mut self, types: impl IntoTypes, registration: impl IntoRegistration<S>) -> Self {
        self.registrations.push((types.into_types(), registration.into_registration()));
        self
    }

    /// Registers a handler for the types it names itself, in its attribute `#[oncebox::handler]` or with
    /// [`Registration::types`].
    pub fn register(mut self, registration: impl IntoRegistration<S>) -> Self {
        let mut registration = registration.into_registration();
        self.registrations.push((std::mem::take(&mut registration.types), registration));
        self
    }

    /// Sets whether repeats of a type are recognised, and by which key. A pattern such as `order.*` matches every type with
    /// that prefix. Precedence: the handler's own setting ([`Registration::dedupe`]), the exact type, the longest pattern.
    pub fn key_for(mut self, pattern: impl Into<Box<str>>, dedupe: Dedupe) -> Self {
        self.keys.push((pattern.into(), dedupe));
        self
    }

    /// Gives handlers a value, one of each type. They read it with [`Context::data`](crate::Context::data), and declare it with
    /// [`Registration::needs`].
    pub fn data<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.data.insert(value);
        self
    }

    /// Replaces the settings.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Applies `rule` to the text of handlers' errors before it is stored or logged. Credentials are masked after it in any
    /// case ([`ErrorText`](crate::state::ErrorText)).
    pub fn redact(mut self, rule: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.redactor = Redactor::new(rule);
        self
    }

    /// Adds an observer, which is notified of every event of this inbox. Its failures have no effect.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.push(observer);
        self
    }

    /// Links the spans of this inbox to those of producers, for a program that exports traces.
    pub fn propagate(mut self, propagate: impl Propagate) -> Self {
        self.propagator = SpanPropagator::new(propagate);
        self
    }

    /// Sets the clock. Default: the system's.
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Checks all settings and makes the inbox. Nothing runs before [`Inbox::start`].
    pub fn build(self) -> Result<Inbox<S>> {
        self.config.validate()?;
        let name = InboxName::new(&self.name)?;
        let rules = KeyRules::new(self.keys)?;
        check_promise(&self.config, &self.store)?;
        check_keys(&self.config, &rules, &self.registrations)?;
        if self.store.capabilities().direct {
            check_direct(&self.registrations)?;
            tracing::warn!(inbox = %name, "no store: every delivery runs");
        }
        let keys = EffectiveDedupe::new(self.config.key.clone(), rules);
        let registry = Registry::new(self.registrations, keys)?;
        registry.check_windows(&self.config)?;
        registry.check_data(&self.data)?;
        let clock = self.clock.unwrap_or_else(SystemClock::shared);
        let watch = Watch::new(Arc::clone(&clock), self.observers, self.propagator);
        Ok(Inbox {
            shared: Arc::new(Shared {
                name,
                config: self.config,
                store: Arc::new(Observed::by(self.store, watch)),
                data: Arc::new(self.data),
                registry,
                clock,
                local_wakeup: LocalWakeup::default(),
                lateness: Lateness::default(),
                duplicate_counts: DuplicateCounts::default(),
                allowed_conflicts: AllowedConflicts::default(),
                sweeps: tokio::sync::Mutex::new(SweepId::fresh()),
                redactor: self.redactor,
                forget: Forget::default(),
                running: parking_lot::Mutex::new(Weak::new()),
                drives: runtime::Drives::default(),
                registered: runtime::LastRegistration::default(),
            }),
        })
    }
}

/// Refuses handlers that need a store.
fn check_direct<S: Store>(registrations: &[(Vec<Box<str>>, Registration<S>)]) -> Result<()> {
    let is_batch = |registration: &Registration<S>| matches!(registration.function, Function::Batch(_));
    let Some((_, batch)) = registrations.iter().find(|(_, registration)| is_batch(registration)) else {
        return Ok(());
    };
    let what = format!(
        "the handler {:?} takes batches: a direct inbox cannot collect them; give the inbox a store, or handle one message at a time",
        batch.key
    );
    Err(Error::new(ErrorKind::Unsupported, what))
}

/// Refuses a guarantee that the store cannot give.
fn check_promise(config: &Config, store: &impl Store) -> Result<()> {
    let capabilities = store.capabilities();
    let (kept, needs) = match config.guarantee {
        Guarantee::BestOfStore => (true, ""),
        Guarantee::Durable => (capabilities.durable, "a durable store"),
        Guarantee::ExactlyOnceEffects => {
            (capabilities.durable && capabilities.transactions, "a durable store with transactions")
        }
    };
    if kept {
        return Ok(());
    }
    let what = format!(
        "`guarantee` is {:?}: the {} store cannot promise it; it needs {needs}",
        config.guarantee, capabilities.name
    );
    Err(Error::new(ErrorKind::Unsupported, what))
}

/// Refuses keys that can never be found, and exactly-once effects where repeats are not recognised.
fn check_keys<S: Store>(
    config: &Config,
    rules: &KeyRules,
    registrations: &[(Vec<Box<str>>, Registration<S>)],
) -> Result<()> {
    let types = rules.iter().map(|(pattern, dedupe)| (format!("key_for({pattern:?})"), dedupe));
    let handlers = registrations.iter().filter_map(|(_, registration)| {
        Some((format!("dedupe` of the handler `{}", registration.key), registration.dedupe.as_ref()?))
    });
    for (option, dedupe) in types.chain(handlers) {
        let refuse =
            |why: &str| Err(Error::new(ErrorKind::InvalidConfig, format!("`{option}` is {dedupe:?}: {why}")));
        match dedupe {
            Dedupe::By(strategy) => {
                if let Some(flaw) = strategy.flaw() {
                    return refuse(flaw);
                }
            }
            Dedupe::Off if config.guarantee == Guarantee::ExactlyOnceEffects => {
                return refuse(
                    "every delivery would have its effects, and `guarantee` is ExactlyOnceEffects; recognise repeats, or promise less",
                );
            }
            _ => {}
        }
    }
    Ok(())
}

impl<S: Store> std::fmt::Debug for InboxBuilder<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InboxBuilder")
            .field("name", &self.name)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
