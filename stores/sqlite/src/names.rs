//! Ids of inboxes and handlers, with a cache. Tests: `tests/rename.rs`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use oncebox_core::store::{HandlerLink, Route};
use oncebox_core::time::Timestamp;
use oncebox_core::{HandlerKey, InboxName, Result};
use rusqlite::{Connection, params};

use crate::error::{corrupt, store_error};
use crate::sql::SQL;

#[derive(Clone, Copy)]
pub(crate) struct InboxState {
    pub(crate) id: i64,
    pub(crate) watermark: Timestamp,
}

#[derive(Clone)]
pub(crate) struct HandlerState {
    pub(crate) inbox: i64,
    /// Newest and first key of the handler.
    pub(crate) key: HandlerKey,
    pub(crate) origin: HandlerKey,
    /// Same value for all handlers that were linked as one.
    group: i64,
    pub(crate) paused: bool,
    /// Messages of the handler that were received up to this time may have been swept.
    pub(crate) watermark: Timestamp,
}

/// Contents of the small tables.
#[derive(Default)]
pub(crate) struct NameMap {
    inboxes: HashMap<InboxName, InboxState>,
    by_inbox_id: HashMap<i64, InboxName>,
    ids: HashMap<i64, HashMap<HandlerKey, i64>>,
    handlers: HashMap<i64, HandlerState>,
    /// True if some handlers with separate ids were linked as one.
    grouped: bool,
}

impl NameMap {
    pub(crate) fn load(connection: &Connection) -> Result<Self> {
        let mut names = Self::default();
        let read = |sql| connection.prepare_cached(sql).map_err(store_error);
        let mut statement = read(SQL.writer_inboxes)?;
        let rows = statement
            .query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?, row.get(2)?)))
            .map_err(store_error)?;
        for row in rows {
            let (id, name, watermark) = row.map_err(store_error)?;
            names.add_inbox(
                InboxName::new(name)?,
                InboxState { id, watermark: Timestamp::from_millis(watermark) },
            );
        }
        let mut statement = read(SQL.writer_handlers)?;
        let rows = statement
            .query_map([], |row| {
                let names: [String; 3] = [row.get(2)?, row.get(3)?, row.get(7)?];
                Ok((row.get(0)?, row.get(1)?, names, row.get(4)?, row.get(5)?, row.get(6)?))
            })
            .map_err(store_error)?;
        for row in rows {
            let (id, inbox, [key, origin, known], group, paused, watermark) = row.map_err(store_error)?;
            names.ids.entry(inbox).or_default().insert(HandlerKey::new(known)?, id);
            names.grouped |= group != id;
            if let Entry::Vacant(handler) = names.handlers.entry(id) {
                let (key, origin) = (HandlerKey::new(key)?, HandlerKey::new(origin)?);
                let watermark = Timestamp::from_millis(watermark);
                handler.insert(HandlerState { inbox, key, origin, group, paused, watermark });
            }
        }
        Ok(names)
    }

    fn add_inbox(&mut self, name: InboxName, inbox: InboxState) {
        self.by_inbox_id.insert(inbox.id, name.clone());
        self.inboxes.insert(name, inbox);
    }

    /// Returns an inbox. Creates it if it is new.
    pub(crate) fn inbox(&mut self, connection: &Connection, name: &InboxName) -> Result<InboxState> {
        if let Some(inbox) = self.inboxes.get(name) {
            return Ok(*inbox);
        }
        let watermark = Timestamp::from_millis(i64::MIN);
        let id = connection
            .query_row(SQL.writer_add_inbox, params![name.as_str(), watermark.as_millis()], |row| row.get(0))
            .map_err(store_error)?;
        let inbox = InboxState { id, watermark };
        self.add_inbox(name.clone(), inbox);
        Ok(inbox)
    }

    /// Returns an inbox, if it was ever used.
    pub(crate) fn known_inbox(&self, name: &InboxName) -> Option<InboxState> {
        self.inboxes.get(name).copied()
    }

    pub(crate) fn set_watermark(
        &mut self,
        connection: &Connection,
        name: &InboxName,
        watermark: Timestamp,
    ) -> Result<()> {
        let Some(inbox) = self.inboxes.get_mut(name) else { return Ok(()) };
        inbox.watermark = inbox.watermark.max(watermark);
        connection
            .execute(SQL.writer_set_watermark, params![inbox.id, inbox.watermark.as_millis()])
            .map_err(store_error)?;
        Ok(())
    }

    /// Records that messages of a handler that were received up to `watermark` may have been swept.
    pub(crate) fn set_handler_watermark(
        &mut self,
        connection: &Connection,
        id: i64,
        watermark: Timestamp,
    ) -> Result<()> {
        let Some(handler) = self.handlers.get_mut(&id) else { return Ok(()) };
        handler.watermark = handler.watermark.max(watermark);
        connection
            .execute(SQL.writer_set_handler_watermark, params![id, handler.watermark.as_millis()])
            .map_err(store_error)?;
        Ok(())
    }

    /// Returns the time up to which messages of these handlers may have been swept.
    pub(crate) fn watermark(&self, handlers: &[i64]) -> Option<Timestamp> {
        handlers.iter().filter_map(|id| Some(self.handlers.get(id)?.watermark)).max()
    }

    /// Returns the id of a handler. Creates it if it is new.
    pub(crate) fn handler(&mut self, connection: &Connection, inbox: i64, key: &HandlerKey) -> Result<i64> {
        match self.known_handler(inbox, key) {
            Some(id) => Ok(id),
            None => self.make(connection, inbox, &Route::new(key.clone())),
        }
    }

    /// Creates a handler without known keys. The caller adds its keys.
    fn add_handler(&mut self, connection: &Connection, inbox: i64, route: &Route) -> Result<i64> {
        let (key, origin) = (route.key.clone(), route.origin().clone());
        let id = connection
            .query_row(SQL.writer_add_handler, params![inbox, key.as_str(), origin.as_str()], |row| {
                row.get(0)
            })
            .map_err(store_error)?;
        let watermark = Timestamp::from_millis(i64::MIN);
        self.handlers.insert(id, HandlerState { inbox, key, origin, group: id, paused: false, watermark });
        Ok(id)
    }

    /// Stores that the keys of a route are one handler. Returns the id of its current key.
    fn make(&mut self, connection: &Connection, inbox: i64, route: &Route) -> Result<i64> {
        let execute = |sql, params: &[&dyn rusqlite::ToSql]| {
            connection.prepare_cached(sql).and_then(|mut write| write.execute(params)).map_err(store_error)
        };
        let HandlerLink { mut ids, added, renamed, .. } = route.link(|key| self.known_handler(inbox, key));
        match ids.first() {
            None => ids.push(self.add_handler(connection, inbox, route)?),
            Some(first) if renamed => {
                let name: &str = route.key.as_str();
                execute(SQL.writer_rename_handler, params![first, name])?;
                self.handlers.entry(*first).and_modify(|handler| handler.key = route.key.clone());
            }
            Some(_) => {}
        }
        for key in added {
            execute(SQL.writer_add_key, params![inbox, key.as_str(), ids[0]])?;
            self.ids.entry(inbox).or_default().insert(key, ids[0]);
        }
        let groups: Vec<i64> = ids.iter().filter_map(|id| Some(self.handlers.get(id)?.group)).collect();
        let Some(least) = groups.iter().copied().min() else { return Ok(ids[0]) };
        for (id, handler) in &mut self.handlers {
            if groups.contains(&handler.group) && handler.group != least {
                execute(SQL.writer_join_handler, params![id, least])?;
                (handler.group, self.grouped) = (least, true);
            }
        }
        Ok(ids[0])
    }

    /// Returns true if all keys of a route belong to one handler.
    fn is_linked(&self, inbox: i64, route: &Route) -> bool {
        let group = |key| Some(self.handlers.get(&self.known_handler(inbox, key)?)?.group);
        let first = group(&route.key);
        first.is_some() && route.legacy.iter().all(|key| group(key) == first)
    }

    /// Returns the ids under which any process may have stored an entry of a route, the current key first. Links the
    /// keys if they are not linked yet.
    pub(crate) fn link(&mut self, connection: &Connection, inbox: i64, route: &Route) -> Result<Vec<i64>> {
        if !self.is_linked(inbox, route) {
            self.make(connection, inbox, route)?;
        }
        let mut ids = self.route(inbox, route);
        if self.grouped {
            let of = |id: &i64| self.handlers.get(id).map(|handler| handler.group);
            let groups: Vec<Option<i64>> = ids.iter().map(of).collect();
            let others = self.handlers.keys().filter(|id| groups.contains(&of(id)));
            let others: Vec<i64> = others.filter(|id| !ids.contains(id)).copied().collect();
            ids.extend(others);
        }
        Ok(ids)
    }

    /// Links the keys of a route for a query. Creates nothing if none of them is known.
    pub(crate) fn link_known(&mut self, connection: &Connection, inbox: i64, route: &Route) -> Result<()> {
        let known = |key| self.known_handler(inbox, key).is_some();
        if !self.is_linked(inbox, route) && route.keys().any(known) {
            self.make(connection, inbox, route)?;
        }
        Ok(())
    }

    /// Returns the id of a handler, if it was ever used.
    pub(crate) fn known_handler(&self, inbox: i64, key: &HandlerKey) -> Option<i64> {
        self.ids.get(&inbox)?.get(key).copied()
    }

    /// Returns the distinct ids of a route's keys.
    pub(crate) fn route(&self, inbox: i64, route: &Route) -> Vec<i64> {
        let mut ids = Vec::with_capacity(1);
        for id in route.keys().filter_map(|key| self.known_handler(inbox, key)) {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        ids
    }

    /// Returns the first key of the routes with this id.
    pub(crate) fn key_in<'a>(
        &self,
        routes: impl IntoIterator<Item = &'a Route>,
        inbox: i64,
        id: i64,
    ) -> Option<&'a HandlerKey> {
        let mut keys = routes.into_iter().flat_map(Route::keys);
        keys.find(|key| self.known_handler(inbox, key) == Some(id))
    }

    /// Returns the keys of each handler of an inbox with several keys.
    pub(crate) fn aliases(&self, inbox: i64) -> Vec<Vec<HandlerKey>> {
        let mut keys: HashMap<i64, Vec<HandlerKey>> = HashMap::new();
        for (key, id) in self.ids.get(&inbox).into_iter().flatten() {
            keys.entry(*id).or_default().push(key.clone());
        }
        keys.into_values().filter(|keys| keys.len() > 1).collect()
    }

    /// Returns the newest key of the handler that has this key. Operators see the newest key.
    pub(crate) fn name_of(&self, inbox: i64, key: &HandlerKey) -> HandlerKey {
        let handler = self.known_handler(inbox, key).and_then(|id| self.handlers.get(&id));
        handler.map_or(key, |handler| &handler.key).clone()
    }

    /// Returns the handlers of an inbox.
    pub(crate) fn of_inbox(&self, inbox: i64) -> impl Iterator<Item = (i64, &HandlerState)> {
        let all = self.handlers.iter().map(|(id, handler)| (*id, handler));
        all.filter(move |(_, handler)| handler.inbox == inbox)
    }

    pub(crate) fn by_id(&self, id: i64) -> Result<&HandlerState> {
        self.handlers.get(&id).ok_or_else(|| corrupt("a stored entry has an unknown handler"))
    }

    pub(crate) fn inbox_name(&self, id: i64) -> Result<&InboxName> {
        self.by_inbox_id.get(&id).ok_or_else(|| corrupt("a stored handler has an unknown inbox"))
    }

    pub(crate) fn set_paused(&mut self, connection: &Connection, id: i64, paused: bool) -> Result<()> {
        connection.execute(SQL.admin_set_paused, params![id, paused]).map_err(store_error)?;
        if let Some(handler) = self.handlers.get_mut(&id) {
            handler.paused = paused;
        }
        Ok(())
    }

    /// Returns the paused handlers of an inbox.
    pub(crate) fn paused(&self, inbox: i64) -> Vec<HandlerKey> {
        let paused = self.handlers.values().filter(|handler| handler.inbox == inbox && handler.paused);
        let mut paused: Vec<_> = paused.map(|handler| handler.key.clone()).collect();
        paused.sort();
        paused
    }
}
