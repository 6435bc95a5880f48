//! The handlers of an inbox by key and by message type. Tests: `tests/patterns.rs`, `tests/keys.rs`.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::check::check;
use super::reruns::Reruns;
use super::throttle::HandlerThrottle;
use super::types;
use super::{DataMap, Registration};
use crate::config::Config;
use crate::config::dedupe::{Dedupe, KeyRules};
use crate::error::{Error, ErrorKind, Result};
use crate::key::KeyStrategy;
use crate::message::pattern;
use crate::name::HandlerKey;
use crate::state::Policies;
use crate::store::{Route, Store};

/// A registered handler.
pub(crate) struct RegisteredHandler<S: Store> {
    pub(crate) route: Route,
    /// Message types, or patterns of them.
    pub(crate) types: Vec<Box<str>>,
    pub(crate) registration: Registration<S>,
    /// Its breaker and its rate limit.
    pub(crate) throttle: HandlerThrottle,
    /// Runs that the database ended.
    pub(crate) reruns: Reruns,
    /// Permits of fire-and-forget runs.
    pub(crate) slots: Semaphore,
    /// Permits of fire-and-forget runs that are active or wait.
    pub(crate) places: Arc<Semaphore>,
    /// Permits of fire-and-forget runs that are due later, apart from those that are due now.
    pub(crate) later: Arc<Semaphore>,
}

/// A registered handler, shared with its runs.
type HandlerArc<S> = Arc<RegisteredHandler<S>>;

/// Maximum waiting runs of a fire-and-forget handler, so that a flood cannot fill the memory.
const MAX_WAITING: usize = 1_024;

impl<S: Store> RegisteredHandler<S> {
    fn new(route: Route, types: Vec<Box<str>>, registration: Registration<S>) -> Self {
        let throttle = HandlerThrottle::new(
            route.key.clone(),
            registration.breaker.as_ref(),
            registration.rate.as_ref(),
        );
        let slots = registration.concurrency.min(Semaphore::MAX_PERMITS - MAX_WAITING);
        let places = Arc::new(Semaphore::new(slots + MAX_WAITING));
        let (reruns, slots) = (Reruns::default(), Semaphore::new(slots));
        let later = Arc::new(Semaphore::new(MAX_WAITING));
        Self { route, types, registration, throttle, reruns, slots, places, later }
    }
}

/// All handlers of an inbox.
pub(crate) struct Registry<S: Store> {
    handlers: Vec<HandlerArc<S>>,
    /// Handlers by current and legacy key.
    by_key: HashMap<HandlerKey, usize>,
    /// Routes of the types that are named exactly.
    by_type: HashMap<Box<str>, TypeRoutes>,
    /// Routes of the other types by prefix, the longest first.
    by_prefix: Vec<(Box<str>, TypeRoutes)>,
    /// Dedupe settings, also for types without a handler.
    keys: EffectiveDedupe,
    none: Arc<[Route]>,
    policies: Policies,
}

/// The handlers of a type while they are collected.
#[derive(Default)]
struct Takers {
    durable: Vec<(Dedupe, Vec<Route>)>,
    inline: Vec<(usize, Dedupe)>,
    forget: Vec<(usize, Dedupe)>,
}

struct TypeRoutes {
    /// Grouped by key; mostly one group.
    durable: Vec<Group>,
    inline: Vec<(usize, Dedupe)>,
    forget: Vec<(usize, Dedupe)>,
}

impl TypeRoutes {
    fn is_empty(&self) -> bool {
        self.durable.is_empty() && self.inline.is_empty() && self.forget.is_empty()
    }

    /// Returns true if a message may be stored under more than one key.
    fn has_several_keys(&self) -> bool {
        let same = |dedupe: &Dedupe| self.durable.iter().all(|group| group.dedupe.is_same(dedupe));
        self.durable.len() > 1 || !self.forget.iter().all(|(_, dedupe)| same(dedupe))
    }

    /// Returns true if a durable handler is among them.
    fn has(&self, route: &Route) -> bool {
        self.durable.iter().any(|group| group.routes.iter().any(|one| one.key == route.key))
    }
}

/// Durable handlers of a type that always have the same key.
pub(crate) struct Group {
    pub(crate) dedupe: Dedupe,
    /// The handler, if the key depends on it.
    pub(crate) handler: Option<HandlerKey>,
    pub(crate) routes: Arc<[Route]>,
}

/// Dedupe settings of an inbox and its types.
pub(crate) struct EffectiveDedupe {
    inbox: KeyStrategy,
    rules: KeyRules,
}

impl EffectiveDedupe {
    pub(crate) fn new(inbox: KeyStrategy, rules: KeyRules) -> Self {
        Self { inbox, rules }
    }

    /// Returns the dedupe of a handler for a type: the most specific setting.
    fn effective(&self, message_type: &str, handler: Option<&Dedupe>) -> Dedupe {
        self.most_exact(handler.or_else(|| self.rules.of(message_type)))
    }

    /// Like [`effective`](Self::effective), for a type or a pattern.
    fn effective_for(&self, pattern: &str, handler: Option<&Dedupe>) -> Dedupe {
        match pattern::prefix(pattern) {
            None => self.effective(pattern, handler),
            Some(prefix) => self.most_exact(handler.or_else(|| self.rules.of_prefix(prefix))),
        }
    }

    fn most_exact(&self, said: Option<&Dedupe>) -> Dedupe {
        match said {
            None => Dedupe::On,
            // The inbox's own key, written another way.
            Some(Dedupe::By(strategy)) if strategy.is_same(&self.inbox) => Dedupe::On,
            Some(dedupe) => dedupe.clone(),
        }
    }

    fn asks_for_handler(&self, dedupe: &Dedupe) -> bool {
        match dedupe {
            Dedupe::On => self.inbox.asks_for_handler(),
            Dedupe::By(strategy) => strategy.asks_for_handler(),
            Dedupe::Off => false,
        }
    }

    /// Adds a route to the group with the same key.
    fn add(&self, groups: &mut Vec<(Dedupe, Vec<Route>)>, dedupe: Dedupe, route: Route) {
        let same = groups.iter_mut().find(|(known, _)| known.is_same(&dedupe));
        match same.filter(|_| !self.asks_for_handler(&dedupe)) {
            Some((_, routes)) => routes.push(route),
            None => groups.push((dedupe, vec![route])),
        }
    }

    fn group(&self, dedupe: Dedupe, routes: Vec<Route>) -> Group {
        let asks = self.asks_for_handler(&dedupe);
        let handler = routes.first().filter(|_| asks).map(|route| route.key.clone());
        Group { dedupe, handler, routes: routes.into() }
    }
}

impl<S: Store> Registry<S> {
    /// Checks all registrations and makes the registry.
    pub(crate) fn new(
        registrations: Vec<(Vec<Box<str>>, Registration<S>)>,
        keys: EffectiveDedupe,
    ) -> Result<Self> {
        let mut by_key = HashMap::new();
        let mut handlers = Vec::new();
        for (kinds, registration) in registrations {
            let index = handlers.len();
            let legacy = registration.legacy.iter().map(HandlerKey::new).collect::<Result<_>>()?;
            let mut route = Route::renamed(registration.checked_key()?, legacy);
            route.ordered = !registration.unordered;
            check(&registration, &kinds, &route)?;
            for key in std::iter::once(&route.key).chain(route.legacy.iter()) {
                if by_key.insert(key.clone(), index).is_some() {
                    let what = format!(
                        "the handler key {key:?} is used twice, as a key or a legacy key; give each handler its own"
                    );
                    return Err(Error::new(ErrorKind::InvalidHandler, what));
                }
            }
            // A type may be named twice, but a message must not get two entries for one handler.
            let kinds: Vec<Box<str>> = kinds.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
            handlers.push(Arc::new(RegisteredHandler::new(route, kinds, registration)));
        }
        let (by_type, by_prefix) = routes(&handlers, &keys)?;
        let policies = handlers.iter().flat_map(|handler: &HandlerArc<S>| {
            handler.route.keys().map(|key| (key.clone(), handler.registration.policy.clone()))
        });
        let policies = policies.collect();
        Ok(Self { handlers, by_key, by_type, by_prefix, keys, none: Arc::new([]), policies })
    }

    fn routes(&self, message_type: &str) -> Option<&TypeRoutes> {
        let prefix = || self.by_prefix.iter().find(|(prefix, _)| message_type.starts_with(&**prefix));
        self.by_type.get(message_type).or_else(|| prefix().map(|(_, routes)| routes))
    }

    /// Returns the handler with a current or legacy key.
    pub(crate) fn by_key(&self, key: &HandlerKey) -> Option<&HandlerArc<S>> {
        self.by_key.get(key).map(|index| &self.handlers[*index])
    }

    pub(crate) fn handlers(&self) -> impl Iterator<Item = &HandlerArc<S>> {
        self.handlers.iter()
    }

    pub(crate) fn policies(&self) -> Policies {
        self.policies.clone()
    }

    /// Returns the handlers with stored entries.
    pub(crate) fn durable(&self) -> impl Iterator<Item = &HandlerArc<S>> {
        self.handlers.iter().filter(|handler| handler.registration.is_durable())
    }

    /// Returns every current and legacy key.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &HandlerKey> {
        self.by_key.keys()
    }

    /// Returns the retention window of every current and legacy key.
    pub(crate) fn windows(&self, config: &Config) -> Vec<(HandlerKey, Duration)> {
        let default = config.retention.unwrap_or(Duration::MAX);
        let windows = self.handlers.iter().flat_map(|handler| {
            let window = handler.registration.retention.unwrap_or(default);
            handler.route.keys().map(move |key| (key.clone(), window))
        });
        windows.collect()
    }

    /// Refuses retention windows that contradict the settings.
    pub(crate) fn check_windows(&self, config: &Config) -> Result<()> {
        let own = |one: &HandlerArc<S>| Some((one.route.key.clone(), one.registration.retention?));
        for (key, window) in self.handlers.iter().filter_map(own) {
            config.check_window(window).map_err(|why| {
                let what = format!("the `retention` of the handler {key:?} is shorter than `lease`: {why}");
                Error::new(ErrorKind::InvalidHandler, what)
            })?;
        }
        Ok(())
    }

    /// Refuses handlers that need data which the inbox lacks.
    pub(crate) fn check_data(&self, data: &DataMap) -> Result<()> {
        self.handlers.iter().try_for_each(|one| data.check(&one.route.key, &one.registration.needs))
    }

    /// Returns a type or pattern of a handler whose messages may be stored under more than one key.
    pub(crate) fn has_several_keys(&self, handler: &RegisteredHandler<S>) -> Option<String> {
        let mixed = |routes: &TypeRoutes| routes.has(&handler.route) && routes.has_several_keys();
        let exact = self
            .by_type
            .iter()
            .filter(|(_, routes)| mixed(routes))
            .map(|(message_type, _)| message_type.to_string());
        let prefixes = self.by_prefix.iter().filter(|(_, routes)| mixed(routes));
        exact.chain(prefixes.map(|(prefix, _)| format!("{prefix}*"))).min()
    }

    /// Returns the durable handlers for a type, grouped by key.
    pub(crate) fn groups(&self, message_type: &str) -> &[Group] {
        self.routes(message_type).map_or(&[], |routes| &routes.durable)
    }

    pub(crate) fn durable_for(&self, message_type: &str) -> impl Iterator<Item = &HandlerArc<S>> {
        let routes = self.groups(message_type).iter().flat_map(|group| group.routes.iter());
        routes.filter_map(|route| self.by_key(&route.key))
    }

    /// Returns the routes of a message without a durable handler.
    pub(crate) fn no_routes(&self) -> Arc<[Route]> {
        Arc::clone(&self.none)
    }

    /// Returns the inline handlers for a type, with their dedupe.
    pub(crate) fn inline(&self, message_type: &str) -> impl Iterator<Item = (&HandlerArc<S>, &Dedupe)> {
        self.routes(message_type)
            .into_iter()
            .flat_map(|routes| &routes.inline)
            .map(|(index, dedupe)| (&self.handlers[*index], dedupe))
    }

    /// Returns the fire-and-forget handlers for a type, with their dedupe.
    pub(crate) fn forget(&self, message_type: &str) -> impl Iterator<Item = (&HandlerArc<S>, &Dedupe)> {
        self.routes(message_type)
            .into_iter()
            .flat_map(|routes| &routes.forget)
            .map(|(index, dedupe)| (&self.handlers[*index], dedupe))
    }

    /// Returns the dedupe of a handler for a type; `None` asks for a message without a handler.
    pub(crate) fn dedupe(&self, message_type: &str, handler: Option<&HandlerKey>) -> Dedupe {
        let registered = handler.and_then(|handler| self.by_key(handler));
        self.keys.effective(message_type, registered.and_then(|handler| handler.registration.dedupe.as_ref()))
    }

    /// Returns true if a handler takes the type.
    pub(crate) fn knows(&self, message_type: &str) -> bool {
        self.routes(message_type).is_some_and(|routes| !routes.is_empty())
    }
}

type ByPrefix = Vec<(Box<str>, TypeRoutes)>;

/// Computes the routes of each named type and pattern, so that a message needs one lookup.
fn routes<S: Store>(
    handlers: &[HandlerArc<S>],
    keys: &EffectiveDedupe,
) -> Result<(HashMap<Box<str>, TypeRoutes>, ByPrefix)> {
    let named = handlers.iter().flat_map(|handler| handler.types.iter().cloned());
    let said: BTreeSet<Box<str>> =
        named.chain(keys.rules.iter().map(|(pattern, _)| pattern.into())).collect();
    let (mut by_type, mut by_prefix) = (HashMap::new(), Vec::new());
    for pattern in said {
        let mut takers = Takers::default();
        for (index, handler) in handlers.iter().enumerate() {
            if handler.types.iter().any(|own| types::covers(own, &pattern)) {
                takers.add(index, handler, &pattern, keys)?;
            }
        }
        let Takers { durable, inline, forget } = takers;
        let durable = durable.into_iter().map(|(dedupe, routes)| keys.group(dedupe, routes)).collect();
        let routes = TypeRoutes { durable, inline, forget };
        match pattern::prefix(&pattern) {
            Some(prefix) => by_prefix.push((prefix.into(), routes)),
            None => _ = by_type.insert(pattern, routes),
        }
    }
    by_prefix.sort_by_key(|(prefix, _): &(Box<str>, TypeRoutes)| std::cmp::Reverse(prefix.len()));
    Ok((by_type, by_prefix))
}

impl Takers {
    fn add<S: Store>(
        &mut self,
        index: usize,
        handler: &RegisteredHandler<S>,
        pattern: &str,
        keys: &EffectiveDedupe,
    ) -> Result<()> {
        let registration = &handler.registration;
        let dedupe = keys.effective_for(pattern, registration.dedupe.as_ref());
        if !registration.legacy.is_empty() && keys.asks_for_handler(&dedupe) {
            let what = format!(
                "the handler {:?} has `legacy`, and its dedupe key contains its name: messages that were handled under the legacy \
                 name would run again; keep the name, or choose a key without it",
                registration.key
            );
            return Err(Error::new(ErrorKind::InvalidHandler, what));
        }
        if registration.inline {
            self.inline.push((index, dedupe));
        } else if registration.forget {
            self.forget.push((index, dedupe));
        } else {
            keys.add(&mut self.durable, dedupe, handler.route.clone());
        }
        Ok(())
    }
}
