//! The inbox: the three ways in, and the way to start it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::config::{Config, Guarantee, Unrouted};
use crate::error::{Error, ErrorKind, Result};
use crate::handler::{Data, Redactor, Registration, Registry};
use crate::message::Message;
use crate::name::{HandlerKey, InboxName};
use crate::observe::{Observed, names};
use crate::retention::Lateness;
use crate::runtime::{self, Forget, Inline, Nudge, Running};
use crate::state::{BreakerState, Outcome, Policy};
use crate::store::{Accepted, NewMessage, Store, SweepId};
use crate::time::{SharedClock, SystemClock, Timestamp};

/// What everything that belongs to one inbox shares.
pub(crate) struct Shared<S: Store> {
    pub(crate) name: InboxName,
    pub(crate) config: Config,
    pub(crate) store: Arc<Observed<S>>,
    pub(crate) data: Arc<Data>,
    pub(crate) registry: Registry<S>,
    pub(crate) clock: SharedClock,
    pub(crate) nudge: Nudge,
    pub(crate) lateness: Lateness,
    /// Sweeps of this inbox wait for each other here, because all of them have the same identity.
    pub(crate) sweeps: tokio::sync::Mutex<SweepId>,
    pub(crate) redactor: Redactor,
    pub(crate) forget: Forget,
}

impl<S: Store> Shared<S> {
    /// What every run of a handler is given.
    pub(crate) fn surroundings(&self) -> (Arc<Observed<S>>, Arc<Data>) {
        (Arc::clone(&self.store), Arc::clone(&self.data))
    }

    /// Checks a message and finds its key and handlers; the store is not asked.
    pub(crate) fn prepare(&self, message: &Arc<Message>, delay: Duration) -> Result<NewMessage> {
        let prepared = self.try_prepare(message, delay);
        if let Err(error) = &prepared {
            metrics::counter!(names::REFUSED, "reason" => error.kind().as_str()).increment(1);
        }
        prepared
    }

    fn try_prepare(&self, message: &Arc<Message>, delay: Duration) -> Result<NewMessage> {
        message.validate(&self.config.limits)?;
        let key = self.config.key.key(&self.name, message)?;
        if self.config.unrouted == Unrouted::Refuse && !self.registry.knows(message.kind()) {
            let what = format!("no handler is registered for messages of type {:?}", message.kind());
            return Err(Error::new(ErrorKind::Unrouted, what));
        }
        let routes = self.registry.routes(message.kind());
        let mut new = NewMessage::new(self.name.clone(), key, Arc::clone(message), routes);
        new.on_conflict = self.config.on_conflict;
        new.delay = delay;
        Ok(new)
    }

    /// Where breakers stand.
    pub(crate) fn breakers(&self) -> Vec<(HandlerKey, BreakerState)> {
        let now = self.clock.monotonic();
        let state = |handler: &Arc<crate::handler::Registered<S>>| {
            Some((handler.route.key.clone(), handler.gate.breaker(now)?))
        };
        self.registry.durable().filter_map(state).collect()
    }

    pub(crate) async fn accept(self: &Arc<Self>, message: &NewMessage) -> Result<Accepted> {
        let accepted = self.store.accept(std::slice::from_ref(message)).await?;
        let [accepted] = accepted[..] else { return Err(short_answer()) };
        self.announce(&accepted, message);
        Ok(accepted)
    }

    /// Notes how late a duplicate came, tells the dispatcher of this process what it can soon claim, and starts what is
    /// not stored for.
    fn announce(self: &Arc<Self>, accepted: &Accepted, message: &NewMessage) {
        self.lateness.note(&self.name, accepted);
        if let Accepted::First(seq) = accepted {
            let kind = message.message.kind();
            if message.routes.is_empty() && self.registry.forget(kind).next().is_none() {
                metrics::counter!(names::UNROUTED).increment(1);
                let (inbox, key) = (&message.inbox, &message.key);
                tracing::warn!(%inbox, %key, seq = seq.0, kind, "stored without a handler: none is registered for its type");
            }
            runtime::forget(self, message);
        }
        if matches!(accepted, Accepted::First(_) | Accepted::HandlersAdded(..)) && !message.routes.is_empty()
        {
            if message.delay.is_zero() {
                self.nudge.now();
            } else {
                self.nudge.at(self.clock.monotonic().saturating_add(message.delay));
            }
        }
    }
}

fn short_answer() -> Error {
    Error::new(ErrorKind::Corrupt, "the store answered for another number of messages than it was given")
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
    pub fn builder(name: impl Into<String>, store: S) -> Builder<S> {
        Builder {
            name: name.into(),
            store,
            config: Config::default(),
            clock: None,
            data: Data::default(),
            redactor: Redactor::default(),
            registrations: Vec::new(),
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
    pub async fn accept(&self, message: Message) -> Result<Accepted> {
        self.accept_after(message, Duration::ZERO).await
    }

    /// Stores a message whose handlers start no sooner than `delay` from now.
    pub async fn accept_after(&self, message: Message, delay: Duration) -> Result<Accepted> {
        let prepared = self.shared.prepare(&Arc::new(message), delay)?;
        self.shared.accept(&prepared).await
    }

    /// Stores a message whose handlers start no sooner than `time`, by the clock of this process; at once if that is past.
    /// A message that is stored already keeps the time it was first given.
    pub async fn accept_at(&self, message: Message, time: Timestamp) -> Result<Accepted> {
        let delay = time.since(self.shared.clock.now());
        self.accept_after(message, delay).await
    }

    /// Stores many messages in one transaction. A message that is refused does not keep the others out; an error of
    /// the store concerns all of them.
    pub async fn accept_batch(
        &self,
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<Vec<Result<Accepted>>> {
        let prepared: Vec<Result<NewMessage>> = messages
            .into_iter()
            .map(|message| self.shared.prepare(&Arc::new(message), Duration::ZERO))
            .collect();
        let batch: Vec<NewMessage> = prepared.iter().flatten().cloned().collect();
        let accepted = if batch.is_empty() { Vec::new() } else { self.shared.store.accept(&batch).await? };
        if accepted.len() != batch.len() {
            return Err(short_answer());
        }
        let mut accepted = accepted.into_iter();
        Ok(prepared
            .into_iter()
            .map(|prepared| {
                let message = prepared?;
                let accepted = accepted.next().ok_or_else(short_answer)?;
                self.shared.announce(&accepted, &message);
                Ok(accepted)
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
        let message = Arc::new(message);
        let prepared = self.shared.prepare(&message, Duration::ZERO)?;
        let mut handlers = self.shared.registry.inline(message.kind()).peekable();
        if handlers.peek().is_none() {
            let kind = message.kind();
            let what = format!(
                "no inline handler is registered for messages of type {kind:?} (`.inline()` makes a handler one; `accept` is for the others)"
            );
            return Err(Error::new(ErrorKind::Unrouted, what));
        }
        let (mut all, mut results) = (Processed::Duplicate, Results::default());
        for handler in handlers {
            let (inbox, key) = (&self.shared, prepared.key);
            let inline = Inline { inbox, handler, key, message: &message, recall };
            let (processed, result): runtime::Answer = inline.run().await?;
            all = all.and(processed);
            results.0.extend(result.map(|result| (handler.route.key.clone(), result)));
        }
        Ok((all, results))
    }

    /// Takes a delivered message the whole way: stores it for its durable handlers, then runs its inline ones. The
    /// receipt says what to tell the broker.
    pub async fn receive(&self, message: Message) -> Result<Receipt> {
        self.shared.receive(&Arc::new(message)).await
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

    /// Removes what is finished and past the retention, here and now; returns how many messages left. That is none while
    /// another process sweeps the same inbox.
    pub async fn sweep(&self) -> Result<usize> {
        runtime::sweep(&self.shared).await
    }
}

impl<S: Store> std::fmt::Debug for Inbox<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

/// What became of a message's inline handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Processed {
    /// At least one handler did its work, and all have.
    Done,
    /// All had done their work before.
    Duplicate,
    /// Somebody else is working on it right now: neither done nor free. Hold the delivery back.
    Busy,
    /// A handler did not do its work; its transaction was rolled back.
    Failed(Outcome),
}

impl Processed {
    /// The answer for two handlers: the worse of theirs. What may still succeed counts more than what cannot, because
    /// the message must come again for it.
    fn and(self, other: Self) -> Self {
        let rank = |processed: &Self| match processed {
            Self::Duplicate => 0,
            Self::Done => 1,
            Self::Failed(Outcome::Discard { .. }) => 2,
            Self::Failed(Outcome::Reject { .. } | Outcome::Undecodable { .. }) => 3,
            Self::Failed(_) => 4,
            Self::Busy => 5,
        };
        if rank(&other) > rank(&self) { other } else { self }
    }
}

/// What the inline handlers of a message left for its duplicates, by handler key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Results(BTreeMap<HandlerKey, Bytes>);

impl Results {
    /// The result of a handler, if it left one.
    pub fn get(&self, handler: &str) -> Option<&Bytes> {
        self.0.get(handler)
    }

    /// Every result, in the order of the handlers' keys.
    pub fn iter(&self) -> impl Iterator<Item = (&HandlerKey, &Bytes)> {
        self.0.iter()
    }

    /// Whether no handler left one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What to tell the broker about a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Receipt {
    /// It is safe, or was before: acknowledge it.
    Done,
    /// Somebody else is working on it: hold it back.
    Busy,
    /// An inline handler failed: bring it again.
    Failed {
        /// Not before this long.
        after: Duration,
    },
    /// An inline handler said that no retry will help.
    Rejected {
        /// Why.
        reason: String,
    },
}

impl Receipt {
    pub(crate) fn of(processed: Processed, policy: &Policy) -> Self {
        match processed {
            Processed::Done | Processed::Duplicate | Processed::Failed(Outcome::Discard { .. }) => Self::Done,
            Processed::Busy => Self::Busy,
            Processed::Failed(Outcome::Reject { error } | Outcome::Undecodable { error }) => {
                Self::Rejected { reason: error.to_string() }
            }
            Processed::Failed(Outcome::Snooze { delay }) => Self::Failed { after: delay },
            Processed::Failed(Outcome::Retry { after: Some(after), .. }) => Self::Failed { after },
            Processed::Failed(_) => Self::Failed { after: policy.retry.first },
        }
    }

    /// The receipt for two handlers: a delivery is done only when both are. While one of them may still succeed, the
    /// delivery must come again, so that counts more than the other's rejection.
    pub(crate) fn and(self, other: Self) -> Self {
        let rank = |receipt: &Self| match receipt {
            Self::Done => 0,
            Self::Rejected { .. } => 1,
            Self::Failed { .. } => 2,
            Self::Busy => 3,
        };
        if rank(&other) > rank(&self) { other } else { self }
    }
}

/// An inbox in the making.
pub struct Builder<S: Store> {
    name: String,
    store: S,
    config: Config,
    clock: Option<SharedClock>,
    data: Data,
    redactor: Redactor,
    registrations: Vec<(Vec<Box<str>>, Registration<S>)>,
}

impl<S: Store> Builder<S> {
    /// Registers a handler for one or several message types.
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

    /// Takes time from another clock than the system's.
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Checks everything together and makes the inbox. Nothing runs before [`Inbox::start`].
    pub fn build(self) -> Result<Inbox<S>> {
        self.config.validate()?;
        let capabilities = self.store.capabilities();
        let kept = match self.config.guarantee {
            Guarantee::BestOfStore => true,
            Guarantee::Durable => capabilities.durable,
            Guarantee::ExactlyOnceEffects => capabilities.durable && capabilities.transactions,
        };
        if !kept {
            let what = format!("the {} store cannot promise {:?}", capabilities.name, self.config.guarantee);
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let registry = Registry::new(self.registrations)?;
        registry.check_windows(&self.config)?;
        Ok(Inbox {
            shared: Arc::new(Shared {
                name: InboxName::new(&self.name)?,
                config: self.config,
                store: Arc::new(Observed::new(self.store)),
                data: Arc::new(self.data),
                registry,
                clock: self.clock.unwrap_or_else(SystemClock::shared),
                nudge: Nudge::default(),
                lateness: Lateness::default(),
                sweeps: tokio::sync::Mutex::new(SweepId::fresh()),
                redactor: self.redactor,
                forget: Forget::default(),
            }),
        })
    }
}

impl<S: Store> std::fmt::Debug for Builder<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
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
