//! Ids of inboxes and handlers, with a cache. Tests: the testkit's conformance suite.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use oncebox_core::store::{HandlerLink, Route};
use oncebox_core::{HandlerKey, InboxName, Result};
use parking_lot::RwLock;
use sqlx::Row as _;

use crate::db::Db;
use crate::error::{corrupt, unreadable};
use crate::row::get;
use crate::session::query;

/// Time for which claims do not query a missing name again.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Cache of the small tables. The number of a key never changes unless a failover loses it. The name of a handler, and
/// the group of handlers that it belongs to, may be out of date.
#[derive(Default)]
pub(crate) struct NameCache {
    known: RwLock<NameRows>,
}

#[derive(Default)]
struct NameRows {
    inboxes: HashMap<InboxName, i16>,
    by_id: HashMap<i16, InboxName>,
    handlers: HashMap<i16, HashMap<HandlerKey, i16>>,
    by_handler: HashMap<i16, CachedHandler>,
    loaded: Option<Instant>,
}

/// A handler.
#[derive(Clone)]
pub(crate) struct CachedHandler {
    inbox: i16,
    /// Newest and first key of the handler.
    pub(crate) key: HandlerKey,
    pub(crate) origin: HandlerKey,
    /// Same value for all handlers that were linked as one.
    group: i16,
}

impl NameCache {
    /// Drops all names: the database may have lost some, and reused their ids. Calls `count` before a name can be read
    /// again.
    pub(crate) fn forget(&self, count: impl FnOnce() -> u64) {
        let mut known = self.known.write();
        *known = NameRows::default();
        count();
    }

    fn inbox_id(&self, name: &InboxName) -> Option<i16> {
        self.known.read().inboxes.get(name).copied()
    }

    fn handler_id(&self, inbox: i16, key: &HandlerKey) -> Option<i16> {
        self.known.read().handlers.get(&inbox)?.get(key).copied()
    }

    fn by_handler(&self, id: i16) -> Option<(InboxName, CachedHandler)> {
        let known = self.known.read();
        let handler = known.by_handler.get(&id)?;
        Some((known.by_id.get(&handler.inbox)?.clone(), handler.clone()))
    }

    /// Returns the distinct ids of a route's keys, if the cache knows them as one handler.
    fn linked(&self, inbox: i16, route: &Route) -> Option<Vec<i16>> {
        let known = self.known.read();
        let ids = known.handlers.get(&inbox)?;
        let mut linked = vec![*ids.get(&route.key)?];
        for key in &*route.legacy {
            let id = *ids.get(key)?;
            if !linked.contains(&id) {
                linked.push(id);
            }
        }
        let group = |id| known.by_handler.get(id).map(|handler| handler.group);
        linked.iter().all(|id| group(id) == group(&linked[0])).then_some(linked)
    }

    /// Returns true if the cache has a key of the route.
    fn knows(&self, inbox: i16, route: &Route) -> bool {
        route.keys().any(|key| self.handler_id(inbox, key).is_some())
    }

    fn is_recent(&self) -> bool {
        self.known.read().loaded.is_some_and(|loaded| loaded.elapsed() < LOOK_AGAIN)
    }
}

impl Db {
    /// Returns the id of an inbox, if it has one.
    pub(crate) async fn known_inbox(&self, name: &InboxName) -> Result<Option<i16>> {
        if let Some(id) = self.names.inbox_id(name) {
            return Ok(Some(id));
        }
        Box::pin(self.load_names()).await?;
        Ok(self.names.inbox_id(name))
    }

    /// Returns the id of an inbox. Creates it if it is new. The id is mostly cached, so the query is boxed to keep the
    /// future small.
    pub(crate) async fn inbox(&self, name: &InboxName) -> Result<i16> {
        match self.known_inbox(name).await? {
            Some(id) => Ok(id),
            None => Box::pin(self.add_inbox(name)).await,
        }
    }

    async fn add_inbox(&self, name: &InboxName) -> Result<i16> {
        let mut session = self.control.single().await?;
        session.run(query(&self.sql.names_add_inbox).bind(name.as_str().to_owned())).await?;
        session.end().await?;
        self.known_inbox(name).await?.ok_or_else(|| corrupt("an inbox that was just added is missing"))
    }

    /// Returns the id of a handler, if it has one.
    pub(crate) async fn known_handler(&self, inbox: i16, key: &HandlerKey) -> Result<Option<i16>> {
        if let Some(id) = self.names.handler_id(inbox, key) {
            return Ok(Some(id));
        }
        Box::pin(self.load_names()).await?;
        Ok(self.names.handler_id(inbox, key))
    }

    /// Returns the id of a handler. Creates it if it is new.
    pub(crate) async fn handler(&self, inbox: i16, key: &HandlerKey) -> Result<i16> {
        match self.names.handler_id(inbox, key) {
            Some(id) => Ok(id),
            None => Ok(self.link(inbox, &Route::new(key.clone())).await?[0]),
        }
    }

    /// Returns the ids of a route's keys, the current key first. Links the keys if they are not linked yet.
    pub(crate) async fn link(&self, inbox: i16, route: &Route) -> Result<Vec<i16>> {
        match self.names.linked(inbox, route) {
            Some(ids) => Ok(ids),
            None => Box::pin(self.make_link(inbox, route)).await,
        }
    }

    async fn make_link(&self, inbox: i16, route: &Route) -> Result<Vec<i16>> {
        self.load_names().await?;
        if let Some(ids) = self.names.linked(inbox, route) {
            return Ok(ids);
        }
        let mut session = self.control.transaction().await?;
        session.run(query(&self.sql.names_lock)).await?;
        let keys: Vec<String> = route.keys().map(|key| key.as_str().to_owned()).collect();
        let mut known = HashMap::new();
        for row in session.rows(query(&self.sql.names_known).bind(inbox).bind(keys)).await? {
            known.insert(get::<String>(&row, 0)?, get::<i16>(&row, 1)?);
        }
        let HandlerLink { mut ids, added, renamed, .. } = route.link(|key| known.get(key.as_str()).copied());
        let name = route.key.as_str().to_owned();
        if let Some(first) = ids.first() {
            if renamed {
                session.run(query(&self.sql.names_rename).bind(*first).bind(name)).await?;
            }
        } else {
            let origin = route.origin().as_str().to_owned();
            let add = query(&self.sql.names_add_handler).bind(inbox).bind(name).bind(origin);
            let made = session.rows(add).await?;
            let row = made.first().ok_or_else(|| corrupt("a handler that was just added has no number"))?;
            ids.push(get(row, 0)?);
        }
        if !added.is_empty() {
            let added: Vec<String> = added.iter().map(|key| key.as_str().to_owned()).collect();
            session.run(query(&self.sql.names_add_keys).bind(inbox).bind(added).bind(ids[0])).await?;
        }
        if ids.len() > 1 {
            session.run(query(&self.sql.names_join).bind(ids)).await?;
        }
        session.end().await?;
        self.load_names().await?;
        self.names.linked(inbox, route).ok_or_else(|| corrupt("keys that were just linked are not"))
    }

    /// Returns the ids of a route's keys for a claim. Claims run often, so this creates nothing if no key is known.
    pub(crate) async fn route(&self, inbox: i16, route: &Route) -> Result<Vec<i16>> {
        if let Some(ids) = self.names.linked(inbox, route) {
            return Ok(ids);
        }
        if !self.names.knows(inbox, route) {
            if self.names.is_recent() {
                return Ok(Vec::new());
            }
            Box::pin(self.load_names()).await?;
        }
        if self.names.knows(inbox, route) { self.link(inbox, route).await } else { Ok(Vec::new()) }
    }

    /// Returns the groups of a route's handlers, as far as the cache has them.
    pub(crate) fn group_of(&self, inbox: i16, route: &Route) -> Vec<i16> {
        let known = self.names.known.read();
        let ids = route.keys().filter_map(|key| known.handlers.get(&inbox)?.get(key));
        ids.filter_map(|id| known.by_handler.get(id)).map(|handler| handler.group).collect()
    }

    /// Returns the first key of the routes with this id.
    pub(crate) fn key_in(&self, inbox: i16, routes: &[&Route], id: i16) -> Option<HandlerKey> {
        let known = self.names.known.read();
        let ids = known.handlers.get(&inbox)?;
        routes.iter().flat_map(|route| route.keys()).find(|key| ids.get(*key) == Some(&id)).cloned()
    }

    /// Returns the inbox and the names of a handler.
    pub(crate) async fn by_handler(&self, id: i16) -> Result<(InboxName, CachedHandler)> {
        if let Some(found) = self.names.by_handler(id) {
            return Ok(found);
        }
        self.load_names().await?;
        self.names.by_handler(id).ok_or_else(|| corrupt("an entry has a handler that is not in the list"))
    }

    async fn load_names(&self) -> Result<()> {
        let changes = self.timeline.changes();
        let mut session = self.control.look().await?;
        let inboxes = session.rows(query(&self.sql.names_inboxes)).await?;
        let handlers = session.rows(query(&self.sql.names_handlers)).await?;
        session.end().await?;
        let mut known = self.names.known.write();
        self.timeline.refuse_former(changes)?;
        known.loaded = Some(Instant::now());
        for row in inboxes {
            let name = InboxName::new(row.try_get::<String, _>(1).map_err(unreadable)?)?;
            let id = row.try_get(0).map_err(unreadable)?;
            known.by_id.insert(id, name.clone());
            known.inboxes.insert(name, id);
        }
        for row in handlers {
            let (id, inbox) = (row.try_get(0).map_err(unreadable)?, row.try_get(1).map_err(unreadable)?);
            let name = |column| HandlerKey::new(row.try_get::<String, _>(column).map_err(unreadable)?);
            let group = row.try_get(4).map_err(unreadable)?;
            known.handlers.entry(inbox).or_default().insert(name(5)?, id);
            known.by_handler.insert(id, CachedHandler { inbox, key: name(2)?, origin: name(3)?, group });
        }
        Ok(())
    }
}

impl Db {
    /// Returns the number of a cached handler. For callers that hold a connection and must not wait for another.
    pub(crate) fn known_handler_id(&self, inbox: i16, key: &HandlerKey) -> Option<i16> {
        self.names.handler_id(inbox, key)
    }

    /// Returns the ids of an inbox's handlers.
    pub(crate) async fn handlers_of(&self, inbox: i16) -> Result<Vec<i16>> {
        Ok(self.keys_of(inbox).await?.into_keys().collect())
    }

    /// Returns the handlers of an inbox, with all keys of each.
    pub(crate) async fn keys_of(&self, inbox: i16) -> Result<BTreeMap<i16, Vec<HandlerKey>>> {
        self.load_names().await?;
        let mut keys: BTreeMap<i16, Vec<HandlerKey>> = BTreeMap::new();
        for (key, id) in self.names.known.read().handlers.get(&inbox).into_iter().flatten() {
            keys.entry(*id).or_default().push(key.clone());
        }
        Ok(keys)
    }

    /// Returns the newest key of the handler that has this key, as far as the cache has it.
    pub(crate) fn name_of(&self, inbox: i16, key: &HandlerKey) -> HandlerKey {
        let handler = self.names.handler_id(inbox, key).and_then(|id| self.names.by_handler(id));
        handler.map_or_else(|| key.clone(), |(_, handler)| handler.key)
    }
}
