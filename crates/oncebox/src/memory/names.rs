//! Handlers by their keys: the keys of a renamed handler are one.

use std::collections::{BTreeMap, HashMap};

use crate::name::HandlerKey;
use crate::store::{HandlerLink, Route};

/// The handlers of one inbox. The tables know a handler by its origin, which is one of its keys and never changes.
#[derive(Default)]
pub(super) struct HandlerNames {
    /// By key: the origin.
    origins: HashMap<HandlerKey, HandlerKey>,
    /// By origin.
    handlers: BTreeMap<HandlerKey, NamedHandler>,
}

struct NamedHandler {
    /// What operators call it: the newest of its keys.
    name: HandlerKey,
    /// The least origin of those that are one handler though they had entries apart.
    group: HandlerKey,
}

impl HandlerNames {
    /// The origin of the handler with a key. A key that is not known is its own.
    pub(super) fn origin(&self, key: &HandlerKey) -> HandlerKey {
        self.origins.get(key).unwrap_or(key).clone()
    }

    /// What operators call the handler with an origin.
    pub(super) fn name(&self, origin: &HandlerKey) -> HandlerKey {
        self.handlers.get(origin).map_or(origin, |handler| &handler.name).clone()
    }

    /// Links the keys of a route; returns its origins, the one of its current key first.
    pub(super) fn link(&mut self, route: &Route) -> Vec<HandlerKey> {
        let link = route.link(|key| self.origins.get(key).cloned());
        if link.added.is_empty() && link.ids.len() == 1 {
            return link.ids;
        }
        let HandlerLink { mut ids, added, renamed } = link;
        if ids.is_empty() {
            let (origin, name) = (route.origin().clone(), route.key.clone());
            self.handlers.insert(origin.clone(), NamedHandler { name, group: origin.clone() });
            ids.push(origin);
        } else if let Some(handler) = self.handlers.get_mut(&ids[0]).filter(|_| renamed) {
            handler.name = route.key.clone();
        }
        self.origins.extend(added.into_iter().map(|key| (key, ids[0].clone())));
        let groups: Vec<HandlerKey> = ids.iter().map(|id| self.handlers[id].group.clone()).collect();
        if let Some(least) = groups.iter().min() {
            for handler in self.handlers.values_mut().filter(|handler| groups.contains(&handler.group)) {
                handler.group = least.clone();
            }
        }
        ids
    }

    /// The same for a route of which nothing is stored unless a key of it is known: then nothing is added.
    pub(super) fn link_known(&mut self, route: &Route) -> Vec<HandlerKey> {
        if route.keys().any(|key| self.origins.contains_key(key)) { self.link(route) } else { Vec::new() }
    }

    /// The origins of all handlers that an entry of this route may be stored under, in whatever process.
    pub(super) fn group(&self, route: &Route) -> Vec<HandlerKey> {
        let known = route.keys().filter_map(|key| self.handlers.get(self.origins.get(key)?));
        let groups: Vec<&HandlerKey> = known.map(|handler| &handler.group).collect();
        let all = self.handlers.iter().filter(|(_, handler)| groups.contains(&&handler.group));
        all.map(|(origin, _)| origin.clone()).collect()
    }

    /// The first key of some routes that stands for an origin.
    pub(super) fn key_in<'a>(
        &self,
        routes: impl IntoIterator<Item = &'a Route>,
        origin: &HandlerKey,
    ) -> HandlerKey {
        let mut keys = routes.into_iter().flat_map(Route::keys);
        keys.find(|key| self.origins.get(*key) == Some(origin)).cloned().unwrap_or_else(|| self.name(origin))
    }

    /// The keys of each handler that has several.
    pub(super) fn aliases(&self) -> impl Iterator<Item = Vec<HandlerKey>> {
        let mut keys: HashMap<&HandlerKey, Vec<HandlerKey>> = HashMap::new();
        for (key, origin) in &self.origins {
            keys.entry(origin).or_default().push(key.clone());
        }
        keys.into_values().filter(|keys| keys.len() > 1)
    }
}
