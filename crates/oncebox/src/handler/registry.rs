//! Which handlers there are, under which keys, for which types.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::Registration;
use crate::error::{Error, ErrorKind, Result};
use crate::key::{Dedupe, KeyStrategy, Rules};
use crate::name::HandlerKey;
use crate::store::{Route, Store};

/// The most runs in one transaction. PostgreSQL keeps this many subtransactions in memory; every reader pays for more.
const MAX_SHARE: usize = 64;

/// A registered handler.
pub(crate) struct Registered<S: Store> {
    pub(crate) route: Route,
    pub(crate) registration: Registration<S>,
}

/// All handlers of an inbox.
pub(crate) struct Registry<S: Store> {
    handlers: Vec<Arc<Registered<S>>>,
    /// By current and legacy key.
    by_key: HashMap<HandlerKey, usize>,
    /// Durable routes and inline handlers by message type.
    by_type: HashMap<Box<str>, TypeRoutes>,
    /// What counts for types without a handler.
    keys: Keys,
    none: Arc<[Route]>,
}

struct TypeRoutes {
    /// By the key they go by; mostly one.
    durable: Vec<Group>,
    inline: Vec<(usize, Dedupe)>,
}

/// Durable handlers of a type that always have the same key.
pub(crate) struct Group {
    pub(crate) dedupe: Dedupe,
    /// The handler, if the key depends on it.
    pub(crate) handler: Option<HandlerKey>,
    pub(crate) routes: Arc<[Route]>,
}

/// By which key handlers go.
pub(crate) struct Keys {
    inbox: KeyStrategy,
    rules: Rules,
}

impl Keys {
    pub(crate) fn new(inbox: KeyStrategy, rules: Rules) -> Self {
        Self { inbox, rules }
    }

    /// What counts for a type and what its handler says, if it says anything: the most exact one.
    fn effective(&self, kind: &str, handler: Option<&Dedupe>) -> Dedupe {
        match handler.or_else(|| self.rules.of(kind)) {
            None => Dedupe::On,
            // The inbox's own key in other words.
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

    /// Adds a route to those that have the same key.
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
    /// Checks all registrations together.
    pub(crate) fn new(registrations: Vec<(Vec<Box<str>>, Registration<S>)>, keys: Keys) -> Result<Self> {
        type Routes = (Vec<(Dedupe, Vec<Route>)>, Vec<(usize, Dedupe)>);
        let mut by_key = HashMap::new();
        let mut handlers = Vec::new();
        let mut types: HashMap<Box<str>, Routes> = HashMap::new();
        for (kinds, registration) in registrations {
            let index = handlers.len();
            let route = Route {
                key: registration.checked_key()?,
                legacy: registration.legacy.iter().map(HandlerKey::new).collect::<Result<_>>()?,
            };
            check(&registration, &kinds, &route)?;
            for key in std::iter::once(&route.key).chain(route.legacy.iter()) {
                if by_key.insert(key.clone(), index).is_some() {
                    let what = format!(
                        "the handler key {key:?} is used twice, as a key or a legacy key; give each handler its own"
                    );
                    return Err(Error::new(ErrorKind::InvalidHandler, what));
                }
            }
            // A type that is named twice is still one type: a message must not get two entries for one handler.
            for kind in kinds.into_iter().collect::<BTreeSet<_>>() {
                let dedupe = keys.effective(&kind, registration.dedupe.as_ref());
                let (durable, inline) = types.entry(kind).or_default();
                if registration.inline {
                    inline.push((index, dedupe));
                } else {
                    keys.add(durable, dedupe, route.clone());
                }
            }
            handlers.push(Arc::new(Registered { route, registration }));
        }
        let by_type = types
            .into_iter()
            .map(|(kind, (durable, inline))| {
                let durable =
                    durable.into_iter().map(|(dedupe, routes)| keys.group(dedupe, routes)).collect();
                (kind, TypeRoutes { durable, inline })
            })
            .collect();
        Ok(Self { handlers, by_key, by_type, keys, none: Arc::new([]) })
    }

    /// The handler an entry under `key` belongs to; `key` may be a legacy key.
    pub(crate) fn by_key(&self, key: &HandlerKey) -> Option<&Arc<Registered<S>>> {
        self.by_key.get(key).map(|index| &self.handlers[*index])
    }

    /// The handlers that work from the store.
    pub(crate) fn durable(&self) -> impl Iterator<Item = &Arc<Registered<S>>> {
        self.handlers.iter().filter(|handler| !handler.registration.inline)
    }

    /// The durable handlers for a type, by the key they go by.
    pub(crate) fn groups(&self, kind: &str) -> &[Group] {
        self.by_type.get(kind).map_or(&[], |routes| &routes.durable)
    }

    /// The durable handlers for a type.
    pub(crate) fn durable_for(&self, kind: &str) -> impl Iterator<Item = &Arc<Registered<S>>> {
        let routes = self.groups(kind).iter().flat_map(|group| group.routes.iter());
        routes.filter_map(|route| self.by_key(&route.key))
    }

    /// The routes of a message that goes to no durable handler.
    pub(crate) fn no_routes(&self) -> Arc<[Route]> {
        Arc::clone(&self.none)
    }

    /// The inline handlers for a type, and by which key they go.
    pub(crate) fn inline(&self, kind: &str) -> impl Iterator<Item = (&Arc<Registered<S>>, &Dedupe)> {
        self.by_type
            .get(kind)
            .into_iter()
            .flat_map(|routes| &routes.inline)
            .map(|(index, dedupe)| (&self.handlers[*index], dedupe))
    }

    /// By which key a handler goes; `None` for a message that goes to no handler.
    pub(crate) fn dedupe(&self, kind: &str, handler: Option<&HandlerKey>) -> Dedupe {
        let registered = handler.and_then(|handler| self.by_key(handler));
        self.keys.effective(kind, registered.and_then(|handler| handler.registration.dedupe.as_ref()))
    }

    /// Whether any handler takes the type.
    pub(crate) fn knows(&self, kind: &str) -> bool {
        self.by_type.contains_key(kind)
    }
}

fn check<S: Store>(registration: &Registration<S>, kinds: &[Box<str>], route: &Route) -> Result<()> {
    let key = &route.key;
    let refuse =
        |what: String| Err(Error::new(ErrorKind::InvalidHandler, format!("the handler {key:?} {what}")));
    if kinds.is_empty() || kinds.iter().any(|kind| kind.is_empty()) {
        return refuse(format!(
            "is registered for no type, or for an empty one (`on` got {kinds:?}): it could never run; name its types"
        ));
    }
    if registration.concurrency == 0 {
        return refuse("has a `concurrency` of 0: it could never run; use at least 1".into());
    }
    if let Some(timeout) = registration.timeout.filter(Duration::is_zero) {
        return refuse(format!(
            "has a `timeout` of {timeout:?}: it could never finish; make it longer, or leave it out"
        ));
    }
    if let Some(share) = &registration.share {
        let most = share.most;
        if !(1..=MAX_SHARE).contains(&most) {
            return refuse(format!(
                "has a `share_commit` of {most}: too few or too many runs; use 1 to {MAX_SHARE}"
            ));
        }
        if registration.inline {
            return refuse(format!(
                "has a `share_commit` of {most} and is `inline`: its delivery waits and cannot share; leave one of the two out"
            ));
        }
    }
    registration.policy.validate().map_err(|error| {
        Error::new(
            ErrorKind::InvalidHandler,
            format!("the policy of the handler {key:?} cannot work: {}", error.what()),
        )
    })
}
