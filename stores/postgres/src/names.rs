//! Inboxes and handlers by their small numbers.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use oncebox::store::Route;
use oncebox::{HandlerKey, InboxName, Result};
use parking_lot::RwLock;
use sqlx::Row as _;

use crate::db::Db;
use crate::error::{corrupt, unreadable};
use crate::unit::ask;

/// How long a name that was looked for in vain is not looked for again by claims, which ask all the time.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// What the two small tables hold, as far as it was read. Rows are only ever added to them, so what is known stays true.
#[derive(Default)]
pub(crate) struct Names {
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    inboxes: HashMap<InboxName, i16>,
    by_id: HashMap<i16, InboxName>,
    handlers: HashMap<i16, HashMap<HandlerKey, i16>>,
    by_handler: HashMap<i16, (i16, HandlerKey)>,
    loaded: Option<Instant>,
}

impl Names {
    fn inbox_id(&self, name: &InboxName) -> Option<i16> {
        self.known.read().inboxes.get(name).copied()
    }

    fn handler_id(&self, inbox: i16, key: &HandlerKey) -> Option<i16> {
        self.known.read().handlers.get(&inbox)?.get(key).copied()
    }

    fn by_handler(&self, id: i16) -> Option<(InboxName, HandlerKey)> {
        let known = self.known.read();
        let (inbox, key) = known.by_handler.get(&id)?;
        Some((known.by_id.get(inbox)?.clone(), key.clone()))
    }

    fn is_recent(&self) -> bool {
        self.known.read().loaded.is_some_and(|loaded| loaded.elapsed() < LOOK_AGAIN)
    }
}

impl Db {
    /// The number of an inbox, if it has one.
    pub(crate) async fn known_inbox(&self, name: &InboxName) -> Result<Option<i16>> {
        if let Some(id) = self.names.inbox_id(name) {
            return Ok(Some(id));
        }
        Box::pin(self.load_names()).await?;
        Ok(self.names.inbox_id(name))
    }

    /// The number of an inbox, made if it is new. Mostly it is known: what asks the server is no part of every call's state.
    pub(crate) async fn inbox(&self, name: &InboxName) -> Result<i16> {
        match self.known_inbox(name).await? {
            Some(id) => Ok(id),
            None => Box::pin(self.add_inbox(name)).await,
        }
    }

    async fn add_inbox(&self, name: &InboxName) -> Result<i16> {
        let mut unit = self.control.single().await?;
        unit.run(ask(&self.sql.names_add_inbox).bind(name.as_str().to_owned())).await?;
        unit.end().await?;
        self.known_inbox(name).await?.ok_or_else(|| corrupt("an inbox that was just added is missing"))
    }

    /// The number of a handler, if it has one.
    pub(crate) async fn known_handler(&self, inbox: i16, key: &HandlerKey) -> Result<Option<i16>> {
        if let Some(id) = self.names.handler_id(inbox, key) {
            return Ok(Some(id));
        }
        Box::pin(self.load_names()).await?;
        Ok(self.names.handler_id(inbox, key))
    }

    /// The number of a handler, made if it is new.
    pub(crate) async fn handler(&self, inbox: i16, key: &HandlerKey) -> Result<i16> {
        match self.known_handler(inbox, key).await? {
            Some(id) => Ok(id),
            None => Box::pin(self.add_handler(inbox, key)).await,
        }
    }

    async fn add_handler(&self, inbox: i16, key: &HandlerKey) -> Result<i16> {
        let mut unit = self.control.single().await?;
        unit.run(ask(&self.sql.names_add_handler).bind(inbox).bind(key.as_str().to_owned())).await?;
        unit.end().await?;
        let id = self.known_handler(inbox, key).await?;
        id.ok_or_else(|| corrupt("a handler that was just added is missing"))
    }

    /// The numbers of a route's keys, former ones included. A key without a number has no entries.
    pub(crate) async fn route(&self, inbox: i16, route: &Route) -> Result<Vec<i16>> {
        let mut ids = Vec::with_capacity(1 + route.legacy.len());
        for key in std::iter::once(&route.key).chain(route.legacy.iter()) {
            let known = self.names.handler_id(inbox, key);
            match known {
                None if !self.names.is_recent() => ids.extend(self.known_handler(inbox, key).await?),
                known => ids.extend(known),
            }
        }
        Ok(ids)
    }

    /// The inbox and key of a handler's number.
    pub(crate) async fn by_handler(&self, id: i16) -> Result<(InboxName, HandlerKey)> {
        if let Some(found) = self.names.by_handler(id) {
            return Ok(found);
        }
        self.load_names().await?;
        self.names.by_handler(id).ok_or_else(|| corrupt("an entry has a handler that is not in the list"))
    }

    async fn load_names(&self) -> Result<()> {
        let mut unit = self.control.look().await?;
        let inboxes = unit.rows(ask(&self.sql.names_inboxes)).await?;
        let handlers = unit.rows(ask(&self.sql.names_handlers)).await?;
        unit.end().await?;
        let mut known = self.names.known.write();
        known.loaded = Some(Instant::now());
        for row in inboxes {
            let name = InboxName::new(row.try_get::<String, _>(1).map_err(unreadable)?)?;
            let id = row.try_get(0).map_err(unreadable)?;
            known.by_id.insert(id, name.clone());
            known.inboxes.insert(name, id);
        }
        for row in handlers {
            let (id, inbox) = (row.try_get(0).map_err(unreadable)?, row.try_get(1).map_err(unreadable)?);
            let key = HandlerKey::new(row.try_get::<String, _>(2).map_err(unreadable)?)?;
            known.handlers.entry(inbox).or_default().insert(key.clone(), id);
            known.by_handler.insert(id, (inbox, key));
        }
        Ok(())
    }
}

impl Db {
    /// The number of a handler, if it was read before: for whoever holds a connection, and must not wait for another.
    pub(crate) fn known_handler_id(&self, inbox: i16, key: &HandlerKey) -> Option<i16> {
        self.names.handler_id(inbox, key)
    }

    /// The numbers of an inbox's handlers.
    pub(crate) async fn handlers_of(&self, inbox: i16) -> Result<Vec<i16>> {
        Ok(self.keys_of(inbox).await?.into_iter().map(|(id, _)| id).collect())
    }

    /// The handlers of an inbox: their numbers and keys.
    pub(crate) async fn keys_of(&self, inbox: i16) -> Result<Vec<(i16, HandlerKey)>> {
        self.load_names().await?;
        let known = self.names.known.read();
        let handlers = known.handlers.get(&inbox).into_iter().flatten();
        Ok(handlers.map(|(key, id)| (*id, key.clone())).collect())
    }
}
