//! Keys and handlers of a message, found before the store call, and the store's result. Tests: `tests/keys.rs`, `tests/patterns.rs`.

use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use crate::config::dedupe::Dedupe;
use crate::config::{MissingKey, OnConflict, OnDuplicate, Tenants, Unrouted};
use crate::error::{Error, ErrorKind, Result};
use crate::key::{Fingerprint, Key, KeyContext, MessageKey, Naming, OrderKey};
use crate::message::Message;
use crate::name::HandlerKey;
use crate::observe::{emit, names};
use crate::runtime;
use crate::store::{Accepted, NewMessage, Route, Store};

/// Rows of one message for the store: one for each key of its durable handlers, mostly one.
pub(crate) struct Offers {
    first: NewMessage,
    others: Vec<NewMessage>,
    /// Keys of its fire-and-forget handlers, in the order of the registry.
    forget: Vec<Key>,
}

impl Offers {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &NewMessage> {
        std::iter::once(&self.first).chain(&self.others)
    }

    pub(crate) fn len(&self) -> usize {
        1 + self.others.len()
    }

    /// Returns the keys of its fire-and-forget handlers, in the order of the registry.
    pub(super) fn forget(&self) -> &[Key] {
        &self.forget
    }

    /// Returns the key of a message that has one key and no ordering key.
    pub(super) fn key_alone(&self) -> Option<&Key> {
        (self.others.is_empty() && self.first.order.is_none()).then_some(&self.first.key)
    }

    /// Adds handlers to the offer with their key, or makes a new offer. The stricter of two policies for one key wins.
    fn add(&mut self, MessageKey { key, on_conflict }: MessageKey, routes: &Arc<[Route]>) {
        let mut all = std::iter::once(&mut self.first).chain(&mut self.others);
        if let Some(offer) = all.find(|offer| offer.key == key) {
            if !routes.is_empty() {
                offer.routes = offer.routes.iter().chain(&**routes).cloned().collect();
            }
            if on_conflict == OnConflict::Quarantine {
                offer.on_conflict = on_conflict;
            }
            return;
        }
        let (mut offer, routes) = (self.first.clone(), Arc::clone(routes));
        (offer.key, offer.on_conflict, offer.routes) = (key, on_conflict, routes);
        self.others.push(offer);
    }
}

/// A message with its keys, ready to be received. Each delivery is prepared once, so a retry has the same unique key.
pub(crate) struct PreparedDelivery {
    pub(crate) message: Arc<Message>,
    /// Offers for the durable handlers; `None` if it has only inline handlers.
    pub(crate) offers: Option<Offers>,
    /// Keys of its inline handlers, in the order of the registry.
    pub(crate) inline: Vec<MessageKey>,
}

/// Result of the store for all offers of a message.
pub(crate) struct OfferResult {
    /// Result of all offers together, as [`Accepted::and`] defines.
    pub(crate) whole: Accepted,
    first: Accepted,
    /// Results of the other offers, in their order.
    others: Vec<Accepted>,
}

impl OfferResult {
    /// Iterates over the offers and their results.
    pub(crate) fn each<'a>(
        &'a self,
        offers: &'a Offers,
    ) -> impl Iterator<Item = (&'a NewMessage, Accepted)> + 'a {
        offers.iter().zip(std::iter::once(self.first).chain(self.others.iter().copied()))
    }

    /// Returns the result for a key if the message was quarantined under it: under that key it may have run before.
    pub(crate) fn quarantined(&self, offers: &Offers, key: &Key) -> Option<Accepted> {
        let is_quarantined = |one: &Accepted| matches!(one, Accepted::Conflict(_) | Accepted::Stale);
        self.each(offers).find(|(offer, one)| offer.key == *key && is_quarantined(one)).map(|(_, one)| one)
    }
}

impl<S: Store> Shared<S> {
    /// Checks a message and computes its offers, without a store call.
    pub(crate) fn prepare(&self, message: &Arc<Message>, delay: Duration) -> Result<Offers> {
        let prepared = self
            .check_routed(message)
            .and_then(|()| self.offers(message, &mut KeyFinder::new(self, message), delay));
        self.counted(message, prepared)
    }

    /// Checks a message and computes the keys of its inline handlers.
    pub(crate) fn prepare_inline(&self, message: &Arc<Message>) -> Result<Vec<MessageKey>> {
        let keys =
            self.check_routed(message).and_then(|()| self.inline_keys(&mut KeyFinder::new(self, message)));
        self.counted(message, keys)
    }

    /// Checks a message and prepares its delivery.
    pub(crate) fn prepare_delivery(&self, message: Arc<Message>) -> Result<PreparedDelivery> {
        let prepare = || {
            self.check_routed(&message)?;
            let mut keys = KeyFinder::new(self, &message);
            let inline = self.inline_keys(&mut keys)?;
            // For a message with only inline handlers, the store keeps only their marks.
            let message_type = message.message_type();
            let forget = self.registry.forget(message_type).next().is_some();
            let stored = inline.is_empty() || forget || !self.registry.groups(message_type).is_empty();
            let stored = stored && !self.is_direct();
            let offers = if stored { Some(self.offers(&message, &mut keys, Duration::ZERO)?) } else { None };
            Ok((offers, inline))
        };
        let (offers, inline) = self.counted(&message, prepare())?;
        Ok(PreparedDelivery { message, offers, inline })
    }

    /// Returns the key by which a handler recognises a message; `None` if every delivery runs.
    pub(crate) fn key_of(&self, message: &Message, handler: &HandlerKey) -> Result<Option<Key>> {
        self.check(message)?;
        let dedupe = self.registry.dedupe(message.message_type(), Some(handler));
        Ok(KeyFinder::new(self, message).known(&dedupe, Some(self.current(handler)))?.map(|known| known.key))
    }

    /// Returns the key without the payload; `None` if the message is not compared.
    pub(super) fn plain_key(&self, message: &Message, handler: Option<&HandlerKey>) -> Result<Option<Key>> {
        let dedupe = self.registry.dedupe(message.message_type(), handler);
        let plain =
            KeyFinder::new(self, message).plain(&dedupe, handler.map(|handler| self.current(handler)))?;
        Ok(plain.map(|plain| plain.key))
    }

    /// Returns the key for the mark of a handler: a unique one if repeats are not recognised.
    pub(crate) fn mark_key(&self, message: &Message, handler: &HandlerKey) -> Result<MessageKey> {
        self.check(message)?;
        let dedupe = self.registry.dedupe(message.message_type(), Some(handler));
        KeyFinder::new(self, message).of(&dedupe, Some(self.current(handler)))
    }

    /// Returns true if the inbox has no store.
    pub(crate) fn is_direct(&self) -> bool {
        self.store.capabilities().direct
    }

    /// Returns the current key of a handler.
    fn current<'a>(&'a self, handler: &'a HandlerKey) -> &'a HandlerKey {
        self.registry.by_key(handler).map_or(handler, |registered| &registered.route.key)
    }

    /// Checks the limits and the tenant of a message.
    pub(crate) fn check(&self, message: &Message) -> Result<()> {
        message.validate(&self.config.limits)?;
        let refuse = |what: String| Err(Error::new(ErrorKind::Tenant, what));
        match (self.config.tenants, message.tenant()) {
            (Tenants::Off, Some(tenant)) => refuse(format!(
                "a message of type {:?} names the tenant {tenant:?}, and `tenants` is Off",
                message.message_type()
            )),
            (Tenants::Required, None) => refuse(format!(
                "a message of type {:?} from source {:?} names no tenant, and `tenants` is Required",
                message.message_type(),
                message.source()
            )),
            _ => Ok(()),
        }
    }

    fn check_routed(&self, message: &Message) -> Result<()> {
        self.check(message)?;
        if self.config.unrouted == Unrouted::Refuse && !self.registry.knows(message.message_type()) {
            let what = format!("no handler is registered for messages of type {:?}", message.message_type());
            return Err(Error::new(ErrorKind::Unrouted, what));
        }
        Ok(())
    }

    fn offers(&self, message: &Arc<Message>, keys: &mut KeyFinder<'_, S>, delay: Duration) -> Result<Offers> {
        let message_type = message.message_type();
        let forget = self.registry.forget(message_type);
        let forget: Vec<MessageKey> = forget
            .map(|(handler, dedupe)| keys.of(dedupe, Some(&handler.route.key)))
            .collect::<Result<_>>()?;
        let (first, others) = match (self.registry.groups(message_type), forget.first()) {
            ([], Some(known)) => ((*known, self.registry.no_routes()), &[][..]),
            ([], None) => {
                let key = keys.of(&self.registry.dedupe(message_type, None), None)?;
                ((key, self.registry.no_routes()), &[][..])
            }
            ([first, others @ ..], _) => {
                let key = keys.of(&first.dedupe, first.handler.as_ref())?;
                ((key, Arc::clone(&first.routes)), others)
            }
        };
        let mut new = NewMessage::new(self.name.clone(), first.0.key, self.in_order(message)?, first.1);
        new.on_conflict = first.0.on_conflict;
        new.delay = delay;
        let mut offers = Offers { first: new, others: Vec::new(), forget: Vec::new() };
        for group in others {
            offers.add(keys.of(&group.dedupe, group.handler.as_ref())?, &group.routes);
        }
        for known in &forget {
            offers.add(*known, &self.registry.no_routes());
        }
        offers.forget = forget.into_iter().map(|known| known.key).collect();
        for offer in std::iter::once(&mut offers.first).chain(&mut offers.others) {
            offer.compared = keys.unique != Some(offer.key);
        }
        Ok(offers)
    }

    /// Counts a message that is refused before the store call.
    fn counted<T>(&self, message: &Message, prepared: Result<T>) -> Result<T> {
        if let Err(error) = &prepared {
            let reason = emit::word("reason", error.kind().as_str());
            emit::count(names::REFUSED, 1, [emit::inbox(&self.name), reason]);
            self.store.watch().notify(&self.name, |observer| observer.refused(message, error));
        }
        prepared
    }

    /// Adds the ordering key that the inbox finds in a message, if its source set none.
    fn in_order(&self, message: &Arc<Message>) -> Result<Arc<Message>> {
        let found = self.config.order.as_ref().filter(|_| message.ordering_key().is_none());
        let Some(key) = found.and_then(|order| order.of(message)) else { return Ok(Arc::clone(message)) };
        let message = Message::clone(message).with_ordering_key(key);
        message.validate(&self.config.limits)?;
        Ok(Arc::new(message))
    }

    /// Returns the ordering key of a delivery, if it has one.
    pub(crate) fn line_of(&self, message: &Message) -> Option<OrderKey> {
        if message.ordering_key().is_some() {
            return OrderKey::of(&self.name, message);
        }
        let order = self.config.order.as_ref()?;
        // A refused message has no order, and may be too large to search for an ordering key.
        message.validate(&self.config.limits).ok()?;
        OrderKey::of(&self.name, &message.clone().with_ordering_key(order.of(message)?))
    }

    fn inline_keys(&self, keys: &mut KeyFinder<'_, S>) -> Result<Vec<MessageKey>> {
        let handlers = self.registry.inline(keys.message.message_type());
        handlers.map(|(handler, dedupe)| keys.of(dedupe, Some(&handler.route.key))).collect()
    }

    /// Stores a batch, after the store knows the retention windows.
    async fn accept(&self, batch: &[NewMessage]) -> Result<Vec<Accepted>> {
        runtime::registered(self).await?;
        self.store.accept(batch).await
    }

    /// Offers a message to the store under all its keys, in one call.
    pub(crate) async fn offer(self: &Arc<Self>, offers: &Offers) -> Result<OfferResult> {
        let accepted = if offers.others.is_empty() {
            self.accept(std::slice::from_ref(&offers.first)).await?
        } else {
            let batch: Vec<NewMessage> = offers.iter().cloned().collect();
            self.accept(&batch).await?
        };
        if accepted.len() != offers.len() {
            return Err(short_answer());
        }
        self.answer(offers, &mut accepted.into_iter())
    }

    /// Offers many messages to the store in one call. Returns one result per message.
    pub(crate) async fn offer_all<'a>(
        self: &Arc<Self>,
        offers: impl Iterator<Item = &'a Offers> + Clone + Send,
    ) -> Result<Vec<OfferResult>> {
        let batch: Vec<NewMessage> = offers.clone().flat_map(Offers::iter).cloned().collect();
        let accepted = if batch.is_empty() { Vec::new() } else { self.accept(&batch).await? };
        if accepted.len() != batch.len() {
            return Err(short_answer());
        }
        let mut accepted = accepted.into_iter();
        offers.map(|offers| self.answer(offers, &mut accepted)).collect()
    }

    /// Combines the results for one message, and wakes the dispatcher.
    fn answer(
        self: &Arc<Self>,
        offers: &Offers,
        accepted: &mut impl Iterator<Item = Accepted>,
    ) -> Result<OfferResult> {
        let mut next = || accepted.next().ok_or_else(short_answer);
        let first = next()?;
        let mut all = OfferResult { whole: first, first, others: Vec::new() };
        for _ in &offers.others {
            let one = next()?;
            all.whole = all.whole.and(one);
            all.others.push(one);
        }
        for (offer, one) in all.each(offers) {
            self.announce(one, offer, &offers.forget);
        }
        Ok(all)
    }

    /// Records duplicates, wakes the dispatcher of this process, and starts fire-and-forget handlers.
    fn announce(self: &Arc<Self>, accepted: Accepted, message: &NewMessage, forget: &[Key]) {
        self.lateness.note(&self.name, &accepted);
        self.duplicate_counts.note(&accepted, || self.clock.now());
        self.note_variant(&accepted, message);
        if let Accepted::First(seq) = accepted {
            let message_type = message.message.message_type();
            if message.routes.is_empty() && forget.is_empty() {
                let (inbox, key) = (&message.inbox, &message.key);
                emit::count(names::UNROUTED, 1, [emit::inbox(inbox)]);
                if let Some(suppressed) = self.store.watch().allow("unrouted", inbox.as_str()) {
                    tracing::warn!(%inbox, %key, seq = seq.0, message_type, suppressed, "stored without a handler");
                }
            }
            for ((handler, _), key) in self.registry.forget(message_type).zip(forget) {
                if *key == message.key {
                    runtime::forget(self, handler, message);
                }
            }
        }
        if matches!(accepted, Accepted::First(_) | Accepted::HandlersAdded(..)) && !message.routes.is_empty()
        {
            if message.delay.is_zero() {
                self.local_wakeup.now();
            } else {
                self.local_wakeup.at(self.clock.monotonic().saturating_add(message.delay));
            }
        }
    }

    /// Returns the result of an accept, or the error for a duplicate if the settings ask for one.
    pub(crate) fn told(&self, message: &Message, accepted: Accepted) -> Result<Accepted> {
        match accepted {
            Accepted::Duplicate(_) => self.refuse_duplicate(message, "was stored before").map(|()| accepted),
            _ => Ok(accepted),
        }
    }

    /// Logs a duplicate, and returns an error if the settings ask for one.
    pub(crate) fn refuse_duplicate(&self, message: &Message, what: &str) -> Result<()> {
        self.note_duplicate(message);
        if self.config.on_duplicate != OnDuplicate::Refuse {
            return Ok(());
        }
        let (message_type, source) = (message.message_type(), message.source());
        let what = format!("the message of type {message_type:?} from source {source:?} {what}");
        Err(Error::new(ErrorKind::Duplicate, what))
    }

    /// Logs a duplicate, if the settings ask for it.
    pub(crate) fn note_duplicate(&self, message: &Message) {
        if self.config.on_duplicate == OnDuplicate::Log {
            let (inbox, message_type, source) = (&self.name, message.message_type(), message.source());
            let id = String::from_utf8_lossy(&message.id()[..message.id().len().min(64)]);
            tracing::info!(%inbox, message_type, source, ?id, "duplicate ignored");
        }
    }
}

pub(super) fn short_answer() -> Error {
    Error::new(ErrorKind::Corrupt, "the store returned another number of results than it got messages")
}

/// Computes the keys of one message.
struct KeyFinder<'a, S: Store> {
    inbox: &'a Shared<S>,
    message: &'a Message,
    /// The unique key, once it is needed. All handlers that recognise no repeats share it.
    unique: Option<Key>,
}

impl<'a, S: Store> KeyFinder<'a, S> {
    fn new(inbox: &'a Shared<S>, message: &'a Message) -> Self {
        Self { inbox, message, unique: None }
    }

    /// Returns the key by which a handler recognises the message, or the unique key.
    fn of(&mut self, dedupe: &Dedupe, handler: Option<&HandlerKey>) -> Result<MessageKey> {
        if let Some(known) = self.known(dedupe, handler)? {
            return Ok(known);
        }
        let key = self.unique(if matches!(dedupe, Dedupe::Off) { "off" } else { "missing_key" });
        Ok(MessageKey { key, on_conflict: OnConflict::Quarantine })
    }

    /// Returns the key by which a handler recognises the message; `None` if every delivery runs.
    fn known(&self, dedupe: &Dedupe, handler: Option<&HandlerKey>) -> Result<Option<MessageKey>> {
        let mut known = self.plain(dedupe, handler)?;
        if let Some(MessageKey { key, on_conflict: OnConflict::AcceptAsNew }) = &mut known {
            *key = key.of_payload(&Fingerprint::of(self.message));
        }
        Ok(known)
    }

    /// Like [`known`](Self::known), without the payload.
    fn plain(&self, dedupe: &Dedupe, handler: Option<&HandlerKey>) -> Result<Option<MessageKey>> {
        let Shared { name, config, .. } = self.inbox;
        let context = KeyContext::new(name, handler).adopting(config.adopted_tenant.as_deref());
        let (strategy, naming) = match dedupe {
            Dedupe::Off => return Ok(None),
            Dedupe::On => (&config.key, Naming::Kind),
            Dedupe::By(strategy) => (strategy, Naming::Full),
        };
        match strategy.identify(&context, self.message, naming, config.on_conflict) {
            Ok(known) => Ok(Some(known)),
            Err(error)
                if error.kind() == ErrorKind::MissingKey
                    && (config.missing_key == MissingKey::Undeduplicated || self.inbox.is_direct()) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn unique(&mut self, reason: &'static str) -> Key {
        let (inbox, message_type) = (&self.inbox.name, self.message.message_type());
        *self.unique.get_or_insert_with(|| {
            let labels = [emit::inbox(inbox), emit::word("reason", reason)];
            emit::count(names::UNDEDUPLICATED, 1, labels);
            tracing::debug!(%inbox, message_type, reason, "no key: every delivery runs");
            Key::unique(inbox)
        })
    }
}
