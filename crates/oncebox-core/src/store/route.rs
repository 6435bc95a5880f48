//! Handlers of a message, and the identity of a handler in a store.

use std::sync::Arc;

use crate::key::OrderKey;
use crate::name::HandlerKey;

/// A handler of a message, with its former keys.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// The handler's key.
    pub key: HandlerKey,
    /// Former keys, the newest first. The store links them with `key`: all of them are one handler.
    pub legacy: Arc<[HandlerKey]>,
    /// True if entries keep the order of their ordering key. It applies to the entries that a store adds for this route. Default: true.
    pub ordered: bool,
}

impl Route {
    /// Returns a handler without former keys.
    pub fn new(key: HandlerKey) -> Self {
        Self::renamed(key, Arc::new([]))
    }

    /// Returns a handler with former keys, the newest first.
    pub fn renamed(key: HandlerKey, legacy: Arc<[HandlerKey]>) -> Self {
        Self { key, legacy, ordered: true }
    }

    /// Returns it with entries that ignore ordering keys.
    #[must_use]
    pub fn unordered(mut self) -> Self {
        self.ordered = false;
        self
    }

    /// Returns the order of an entry of this route, given that of its message.
    pub fn order_of(&self, message: Option<OrderKey>) -> Option<OrderKey> {
        message.filter(|_| self.ordered)
    }

    /// Returns its key, then its former keys.
    pub fn keys(&self) -> impl Iterator<Item = &HandlerKey> {
        std::iter::once(&self.key).chain(self.legacy.iter())
    }

    /// Returns the oldest of its keys. A store takes it as the origin of a new handler.
    pub fn origin(&self) -> &HandlerKey {
        self.legacy.last().unwrap_or(&self.key)
    }

    /// Returns the rows that a store has to write so that all keys of this route are one handler. `id_of` returns the store's id of
    /// a key.
    pub fn link<I: Clone + PartialEq>(&self, id_of: impl Fn(&HandlerKey) -> Option<I>) -> HandlerLink<I> {
        let mut link = HandlerLink { ids: Vec::new(), added: Vec::new(), renamed: false };
        for key in self.keys() {
            match id_of(key) {
                Some(id) if !link.ids.contains(&id) => link.ids.push(id),
                Some(_) => {}
                None if link.added.contains(key) => {}
                None => link.added.insert(0, key.clone()),
            }
        }
        link.renamed = link.added.contains(&self.key);
        link
    }

    /// Returns true if `key` is or was a key of this handler.
    pub fn answers_to(&self, key: &HandlerKey) -> bool {
        self.key == *key || self.legacy.contains(key)
    }
}

/// State of a [`Route`]'s keys in a store; see [`Route::link`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerLink<I> {
    /// Ids of the route's keys, in the order of the keys, each once. If there are several, they stay apart and the store notes one
    /// group: an entry under any of them counts for all.
    pub ids: Vec<I>,
    /// Keys without an id, the oldest first. They get the first of `ids`, or one new id whose origin is
    /// [`Route::origin`].
    pub added: Vec<HandlerKey>,
    /// True if the current key is in `added`. Operators see the handler under it from then on.
    pub renamed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(keys: &[&str]) -> Route {
        let mut keys = keys.iter().map(|key| HandlerKey::new(*key).unwrap());
        Route::renamed(keys.next().unwrap(), keys.collect())
    }

    fn link(keys: &[&str], known: &[(&str, u8)]) -> (Vec<u8>, Vec<String>, bool) {
        let id_of =
            |key: &HandlerKey| known.iter().find(|(name, _)| *name == key.as_str()).map(|(_, id)| *id);
        let HandlerLink { ids, added, renamed } = route(keys).link(id_of);
        (ids, added.iter().map(ToString::to_string).collect(), renamed)
    }

    #[test]
    fn unknown_keys_are_added_the_oldest_first() {
        assert_eq!(link(&["c", "b", "a"], &[]), (vec![], vec!["a".into(), "b".into(), "c".into()], true));
        assert_eq!(link(&["c", "b", "a"], &[("b", 7)]), (vec![7], vec!["a".into(), "c".into()], true));
        assert_eq!(link(&["c", "b"], &[("c", 7)]), (vec![7], vec!["b".into()], false), "not a newer name");
        assert_eq!(route(&["c", "b", "a"]).origin().as_str(), "a");
        assert_eq!(route(&["c"]).origin().as_str(), "c");
    }

    #[test]
    fn each_id_is_told_once_in_the_order_of_the_keys() {
        assert_eq!(link(&["c", "b", "a"], &[("a", 1), ("b", 2), ("c", 1)]), (vec![1, 2], vec![], false));
    }
}
