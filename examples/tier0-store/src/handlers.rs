//! Handlers by their keys: all keys of a renamed handler are one handler, in processes of both sides of a rename.

use std::collections::HashMap;

use oncebox_core::name::HandlerKey;
use oncebox_core::store::Route;

/// Keys of the handlers of an inbox. Entries are stored under an origin, which never changes. So a rename writes no entry again.
#[derive(Default)]
pub(crate) struct LinkedHandlers {
    /// Origin of each key.
    origins: HashMap<HandlerKey, HandlerKey>,
    /// Group of each origin. Two origins share a group if both had entries before a route linked their keys.
    groups: HashMap<HandlerKey, HandlerKey>,
}

impl LinkedHandlers {
    /// Links the keys of a route, and returns their origins. Every verb with a route begins with it, because any process may be
    /// the first that knows of a rename.
    pub(crate) fn link(&mut self, route: &Route) -> Vec<HandlerKey> {
        let link = route.link(|key| self.origins.get(key).cloned());
        let mut origins = link.ids;
        if origins.is_empty() {
            let origin = route.origin().clone();
            self.groups.insert(origin.clone(), origin.clone());
            origins.push(origin);
        }
        for key in link.added {
            self.origins.insert(key, origins[0].clone());
        }
        let groups: Vec<HandlerKey> = origins.iter().map(|origin| self.groups[origin].clone()).collect();
        for group in self.groups.values_mut().filter(|group| groups.contains(group)) {
            *group = groups[0].clone();
        }
        origins
    }

    /// Returns every origin under which an entry of this route may be stored.
    pub(crate) fn group(&mut self, route: &Route) -> Vec<HandlerKey> {
        let origin = self.link(route).swap_remove(0);
        let group = self.groups[&origin].clone();
        self.groups.iter().filter(|(_, of)| **of == group).map(|(origin, _)| origin.clone()).collect()
    }

    /// Returns the origin of a key.
    pub(crate) fn origin(&self, key: &HandlerKey) -> HandlerKey {
        self.origins.get(key).unwrap_or(key).clone()
    }

    /// Returns the first key of the routes with an origin: claims name a key that the caller knows.
    pub(crate) fn key_in<'a>(
        &self,
        routes: impl IntoIterator<Item = &'a Route>,
        origin: &HandlerKey,
    ) -> HandlerKey {
        let mut keys = routes.into_iter().flat_map(Route::keys);
        keys.find(|key| self.origin(key) == *origin).unwrap_or(origin).clone()
    }

    /// Returns the keys of each handler.
    pub(crate) fn all(&self) -> impl Iterator<Item = Vec<HandlerKey>> {
        let mut handlers: HashMap<&HandlerKey, Vec<HandlerKey>> = HashMap::new();
        for (key, origin) in &self.origins {
            handlers.entry(origin).or_default().push(key.clone());
        }
        handlers.into_values()
    }
}
