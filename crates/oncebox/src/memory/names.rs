//! Handlers by their keys. All keys of a renamed handler are one handler.

use std::collections::{BTreeMap, HashMap};

use crate::name::HandlerKey;
use crate::store::{HandlerLink, Route};

/// Handlers of one inbox. The tables know a handler by its origin: one of its keys, which never changes.
#[derive(Default)]
pub(super) struct HandlerNames {
    /// Origins by key.
    origins: HashMap<HandlerKey, HandlerKey>,
    /// Handlers by origin.
    handlers: BTreeMap<HandlerKey, NamedHandler>,
}

struct NamedHandler {
    /// Name for operators: the newest key.
    name: HandlerKey,
    /// Least origin of the group, if several origins with entries became one handler.
    group: HandlerKey,
}

impl HandlerNames {
    /// Returns the origin of the handler with a key. An unknown key is its own origin.
    pub(super) fn origin(&self, key: &HandlerKey) -> HandlerKey {
        self.origins.get(key).unwrap_or(key).clone()
    }

    /// Returns the name for operators of the handler with an origin.
    pub(super) fn name(&self, origin: &HandlerKey) -> HandlerKey {
        self.handlers.get(origin).map_or(origin, |handler| &handler.name).clone()
    }

    /// Links the keys of a route. Returns its origins, that of the current key first.
    pub(super) fn link(&mut self, route: &Route) -> Vec<HandlerKey> {
        let link = route.link(|key| self.origins.get(key).cloned());
        if link.added.is_empty() && link.ids.len() == 1 {
            return link.ids;
        }
        let HandlerLink { mut ids, added, renamed, .. } = link;
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

    /// Links the keys of a route if one of them is known. Otherwise nothing changes.
    pub(super) fn link_known(&mut self, route: &Route) -> Vec<HandlerKey> {
        if route.keys().any(|key| self.origins.contains_key(key)) { self.link(route) } else { Vec::new() }
    }

    /// Returns the origins of all handlers under which an entry of this route may be stored by any process.
    pub(super) fn group(&self, route: &Route) -> Vec<HandlerKey> {
        let known = route.keys().filter_map(|key| self.handlers.get(self.origins.get(key)?));
        let groups: Vec<&HandlerKey> = known.map(|handler| &handler.group).collect();
        let all = self.handlers.iter().filter(|(_, handler)| groups.contains(&&handler.group));
        all.map(|(origin, _)| origin.clone()).collect()
    }

    /// Returns the first key of the routes that belongs to an origin.
    pub(super) fn key_in<'a>(
        &self,
        routes: impl IntoIterator<Item = &'a Route>,
        origin: &HandlerKey,
    ) -> HandlerKey {
        let mut keys = routes.into_iter().flat_map(Route::keys);
        keys.find(|key| self.origins.get(*key) == Some(origin)).cloned().unwrap_or_else(|| self.name(origin))
    }

    /// Returns the keys of each handler with several.
    pub(super) fn aliases(&self) -> impl Iterator<Item = Vec<HandlerKey>> {
        let mut keys: HashMap<&HandlerKey, Vec<HandlerKey>> = HashMap::new();
        for (key, origin) in &self.origins {
            keys.entry(origin).or_default().push(key.clone());
        }
        keys.into_values().filter(|keys| keys.len() > 1)
    }
}
