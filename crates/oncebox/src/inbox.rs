//! The inbox: the three ways in, and the way to start it.

mod allowed_conflicts;
mod answers;
mod conflicts;
mod dry_run;
mod duplicate_counts;
mod incoming;
mod receive;
mod routing;
mod split_batch;

pub(crate) use allowed_conflicts::AllowedConflicts;
pub use answers::{HandlerAnswer, Processed, Receipt, Received, Results};
pub use dry_run::DryRun;
pub(crate) use duplicate_counts::DuplicateCounts;
pub use incoming::Incoming;
pub(crate) use routing::{Answer, Prepared};

use std::sync::{Arc, Weak};
use std::time::Duration;

use tracing::{Instrument as _, Span};

use crate::config::{Config, Guarantee};
use crate::direct::Direct;
use crate::error::{Error, ErrorKind, Result};
use crate::handler::{Data, Function, Keys, Redactor, Registration, Registry};
use crate::key::{Dedupe, Key, KeyRules};
use crate::message::Message;
use crate::name::{HandlerKey, InboxName};
use crate::observe::{Observed, Observer, Observers, Propagate, Propagator, Watch};
use crate::retention::Lateness;
use crate::runtime::{self, Core, Forget, Inline, LocalWakeup, Running};
use crate::state::BreakerState;
use crate::store::{Accepted, Store, SweepId, Swept};
use crate::time::{SharedClock, SystemClock, Timestamp};
use routing::{Offers, short_answer};

/// What everything that belongs to one inbox shares.
pub(crate) struct Shared<S: Store> {
    pub(crate) name: InboxName,
    pub(crate) config: Config,
    pub(crate) store: Arc<Observed<S>>,
    pub(crate) data: Arc<Data>,
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
    /// What was started last, for health.
    pub(crate) running: parking_lot::Mutex<Weak<Core<S>>>,
    pub(crate) drives: runtime::Drives,
    /// When the store was last told the windows of this process.
    pub(crate) registered: runtime::Registered,
}

impl<S: Store> Shared<S> {
    /// What every run of a handler is given.
    pub(crate) fn surroundings(&self) -> (Arc<Observed<S>>, Arc<Data>) {
        (Arc::clone(&self.store), Arc::clone(&self.data))
    }

    /// Where breakers stand.
    pub(crate) fn breakers(&self) -> Vec<(HandlerKey, BreakerState)> {
        let now = self.clock.monotonic();
        let state = |handler: &Arc<crate::handler::Registered<S>>| {
            Some((handler.route.key.clone(), handler.throttle.breaker(now)?))
        };
        self.registry.durable().filter_map(state).collect()
    }
}

/// A durable inbox over a store. Cheap to clone; clones are the same inbox.
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
            data: Data::default(),
            redactor: Redactor::default(),
            observers: Observers::default(),
            propagator: Propagator::default(),
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
    /// A message whose handlers go by different keys is stored once under each of them, in one transaction; the answer is
    /// then that of all of them together, as [`Accepted::and`] puts it.
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

    /// Stores a message whose handlers start no sooner than `time`, by the clock of this process; at once if that is past.
    /// A message that is stored already keeps the time it was first given.
    pub async fn accept_at(&self, message: Message, time: Timestamp) -> Result<Accepted> {
        let delay = time.since(self.shared.clock.now());
        self.accept_after(message, delay).await
    }

    /// Stores many messages, in one transaction. Where the store writes several at the same time
    /// ([`Capabilities::writers`](crate::store::Capabilities::writers)), from 256 messages on it may be as many transactions, unless one
    /// of the messages has an ordering key or goes by several keys.
    ///
    /// A message that is refused does not keep the others out. An error of the store is the answer of each message that it concerns,
    /// and may be worth another try ([`Error::is_retryable`]); one that concerns all of them is that of the call. Only a message that is
    /// answered with `Ok` may be acknowledged.
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

    /// Runs the inline handlers of a message now: each once, in one transaction with its mark. One that fails keeps no
    /// other from its work; the answer tells of the worst. Retrying is the caller's business: those that did their
    /// work are not run again. Nothing but the marks is stored.
    ///
    /// A transaction that the database ended to resolve a deadlock, or could not serialize, is made again up to three
    /// times, the handler included; never one whose commit may have happened.
    pub async fn process(&self, message: Message) -> Result<Processed> {
        Ok(self.run_inline(message, false).await?.0)
    }

    /// The same, with the results that the handlers left by [`Context::set_result`](crate::Context::set_result), now or
    /// when the message came first: whoever waits for an answer gets the same one each time.
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
            let (processed, result): runtime::Answer = inline.run().await?;
            all = all.and(processed);
            results.0.extend(result.map(|result| (handler.route.key.clone(), result)));
        }
        // Whoever asks for the results of duplicates is not refused them.
        if all == Processed::Duplicate && !recall {
            self.shared.refuse_duplicate(message, "was handled before")?;
        }
        Ok((all, results))
    }

    /// The key by which a handler recognises a message: under it the message is shown to operators. `None` if every
    /// delivery runs.
    pub fn key_of(&self, message: &Message, handler: &str) -> Result<Option<Key>> {
        self.shared.key_of(message, &HandlerKey::new(handler)?)
    }

    /// Starts the background work: claiming, running, settling, renewing, rescuing and sweeping. To be called within a
    /// Tokio runtime, whose tasks these are.
    pub fn start(&self) -> Running<S> {
        Running::start(Arc::clone(&self.shared))
    }

    /// Runs at most `limit` due entries here and now, without background work; returns how many ran.
    ///
    /// Of a handler with a [rate](crate::Registration::rate) no more are run than it allows right now, and of one whose
    /// [breaker](crate::Registration::breaker) is open none: nothing is waited for, and the rest stays due for a later
    /// call. Fire-and-forget handlers run by themselves when a message is accepted.
    pub async fn process_pending(&self, limit: usize) -> Result<usize> {
        runtime::process_pending(&self.shared, limit).await
    }

    /// Where the breakers of handlers stand that have one.
    pub fn breakers(&self) -> Vec<(HandlerKey, BreakerState)> {
        self.shared.breakers()
    }

    /// Runs everything that is due and that [may run](Self::process_pending), here and now; returns how many entries ran.
    pub async fn drain(&self) -> Result<usize> {
        runtime::drain(&self.shared).await
    }

    /// Tells the store the handlers, windows and tenants setting of this inbox, as a running inbox does by itself. Call it before
    /// [`start`](Self::start) to learn at once that the store refuses them, as with [`ErrorKind::TenantsChanged`].
    pub async fn register(&self) -> Result<()> {
        runtime::register(&self.shared).await
    }

    /// Removes what is finished and past the retention, here and now; returns how many messages, entries, marks and records
    /// of operations left. That is [`Swept::NOTHING`] while another process sweeps the same inbox.
    pub async fn sweep(&self) -> Result<Swept> {
        runtime::sweep(&self.shared).await
    }
}

impl Inbox<Direct> {
    /// Begins an inbox without a store, for a service that is about to get one: handlers run while the delivery is held,
    /// and every delivery runs. See [`Direct`].
    pub fn direct(name: impl Into<String>) -> InboxBuilder<Direct> {
        Self::builder(name, Direct)
    }
}

impl<S: Store> std::fmt::Debug for Inbox<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

/// An inbox in the making.
pub struct InboxBuilder<S: Store> {
    name: String,
    store: S,
    config: Config,
    clock: Option<SharedClock>,
    data: Data,
    redactor: Redactor,
    observers: Observers,
    propagator: Propagator,
    registrations: Vec<(Vec<Box<str>>, Registration<S>)>,
    keys: Vec<(Box<str>, Dedupe)>,
}

impl<S: Store> InboxBuilder<S> {
    /// Registers a handler for one or several message types. A pattern ends with `*` and stands for all types that start
    /// with what is before it; `*` alone for all there are. A handler gets a message once, however many of its types and
    /// patterns fit, and whatever other handlers take it too.
    pub fn on(mut self, types: impl IntoTypes, registration: Registration<S>) -> Self {
        self.registrations.push((types.into_types(), registration));
        self
    }

    /// Registers a handler for the types it names itself, in its attribute `#[oncebox::handler]` or with
    /// [`Registration::types`].
    pub fn register(mut self, mut registration: Registration<S>) -> Self {
        self.registrations.push((std::mem::take(&mut registration.types), registration));
        self
    }

    /// Says whether repeats of a type are recognised, and by which key. A pattern ends with `*` and stands for all types
    /// that start with what is before it. The very type counts more than a pattern, a longer pattern more than a shorter
    /// one, and what a handler says of itself ([`Registration::dedupe`]) more than both.
    pub fn key_for(mut self, pattern: impl Into<Box<str>>, dedupe: Dedupe) -> Self {
        self.keys.push((pattern.into(), dedupe));
        self
    }

    /// Gives handlers a value, one of each type: they get it with [`Context::data`](crate::Context::data).
    pub fn data<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.data.insert(value);
        self
    }

    /// Replaces the settings.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Lets `rule` rewrite the text of handlers' errors before anything of it is stored or logged: for what must not leave
    /// the process. Credentials are masked anyway, after it ([`ErrorText`](crate::state::ErrorText)).
    pub fn redact(mut self, rule: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.redactor = Redactor::new(rule);
        self
    }

    /// Tells somebody what this inbox does. There can be several; what they do wrong harms nothing.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.push(observer);
        self
    }

    /// Ties the spans of this inbox to those of producers, for a program that exports traces.
    pub fn propagate(mut self, propagate: impl Propagate) -> Self {
        self.propagator = Propagator::new(propagate);
        self
    }

    /// Takes time from another clock than the system's.
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Checks everything together and makes the inbox. Nothing runs before [`Inbox::start`].
    pub fn build(self) -> Result<Inbox<S>> {
        self.config.validate()?;
        let name = InboxName::new(&self.name)?;
        let rules = KeyRules::new(self.keys)?;
        check_promise(&self.config, &self.store)?;
        check_keys(&self.config, &rules, &self.registrations)?;
        if self.store.capabilities().direct {
            check_direct(&self.registrations)?;
            tracing::warn!(inbox = %name, "this inbox has no store: handlers run directly, and every delivery runs");
        }
        let keys = Keys::new(self.config.key.clone(), rules);
        let registry = Registry::new(self.registrations, keys)?;
        registry.check_windows(&self.config)?;
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
                registered: runtime::Registered::default(),
            }),
        })
    }
}

/// Refuses handlers that need a store to wait in.
fn check_direct<S: Store>(registrations: &[(Vec<Box<str>>, Registration<S>)]) -> Result<()> {
    let is_batch = |registration: &Registration<S>| matches!(registration.function, Function::Batch(_));
    let Some((_, batch)) = registrations.iter().find(|(_, registration)| is_batch(registration)) else {
        return Ok(());
    };
    let what = format!(
        "the handler {:?} takes batches: a direct inbox has nowhere to collect them; give the inbox a store, or take one message at a time",
        batch.key
    );
    Err(Error::new(ErrorKind::Unsupported, what))
}

/// Refuses a promise that the store cannot keep.
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

/// Refuses keys that can never be found, and a promise of effects that happen once where repeats are not recognised.
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

/// One message type, or several.
pub trait IntoTypes {
    /// As a list.
    fn into_types(self) -> Vec<Box<str>>;
}

impl IntoTypes for &str {
    fn into_types(self) -> Vec<Box<str>> {
        vec![self.into()]
    }
}

impl<const N: usize> IntoTypes for [&str; N] {
    fn into_types(self) -> Vec<Box<str>> {
        self.into_iter().map(Into::into).collect()
    }
}

impl IntoTypes for Vec<String> {
    fn into_types(self) -> Vec<Box<str>> {
        self.into_iter().map(Into::into).collect()
    }
}
