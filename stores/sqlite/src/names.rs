//! Inboxes and handlers by their small numbers.

use std::collections::HashMap;

use oncebox::store::Route;
use oncebox::time::Timestamp;
use oncebox::{HandlerKey, InboxName, Result};
use rusqlite::{Connection, params};

use crate::error::{corrupt, store_error};

#[derive(Clone, Copy)]
pub(crate) struct Inbox {
    pub(crate) id: i64,
    pub(crate) watermark: Timestamp,
}

#[derive(Clone)]
pub(crate) struct Handler {
    pub(crate) inbox: i64,
    pub(crate) key: HandlerKey,
    pub(crate) paused: bool,
    /// Its messages that came no later may have been forgotten.
    pub(crate) watermark: Timestamp,
}

/// What the two small tables hold.
#[derive(Default)]
pub(crate) struct Names {
    inboxes: HashMap<InboxName, Inbox>,
    by_inbox_id: HashMap<i64, InboxName>,
    ids: HashMap<i64, HashMap<HandlerKey, i64>>,
    handlers: HashMap<i64, Handler>,
}

impl Names {
    pub(crate) fn load(connection: &Connection) -> Result<Self> {
        let mut names = Self::default();
        let read = |sql| connection.prepare_cached(sql).map_err(store_error);
        let mut statement = read(include_str!("../sql/writer/inboxes.sql"))?;
        let rows = statement
            .query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?, row.get(2)?)))
            .map_err(store_error)?;
        for row in rows {
            let (id, name, watermark) = row.map_err(store_error)?;
            names
                .add_inbox(InboxName::new(name)?, Inbox { id, watermark: Timestamp::from_millis(watermark) });
        }
        let mut statement = read(include_str!("../sql/writer/handlers.sql"))?;
        let rows = statement
            .query_map([], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?, row.get(3)?, row.get(4)?))
            })
            .map_err(store_error)?;
        for row in rows {
            let (id, inbox, key, paused, watermark) = row.map_err(store_error)?;
            let watermark = Timestamp::from_millis(watermark);
            names.add_handler(id, Handler { inbox, key: HandlerKey::new(key)?, paused, watermark });
        }
        Ok(names)
    }

    fn add_inbox(&mut self, name: InboxName, inbox: Inbox) {
        self.by_inbox_id.insert(inbox.id, name.clone());
        self.inboxes.insert(name, inbox);
    }

    fn add_handler(&mut self, id: i64, handler: Handler) {
        self.ids.entry(handler.inbox).or_default().insert(handler.key.clone(), id);
        self.handlers.insert(id, handler);
    }

    /// The inbox, made if it is new.
    pub(crate) fn inbox(&mut self, connection: &Connection, name: &InboxName) -> Result<Inbox> {
        if let Some(inbox) = self.inboxes.get(name) {
            return Ok(*inbox);
        }
        let watermark = Timestamp::from_millis(i64::MIN);
        let id = connection
            .query_row(
                include_str!("../sql/writer/add_inbox.sql"),
                params![name.as_str(), watermark.as_millis()],
                |row| row.get(0),
            )
            .map_err(store_error)?;
        let inbox = Inbox { id, watermark };
        self.add_inbox(name.clone(), inbox);
        Ok(inbox)
    }

    /// The inbox, if it was ever used.
    pub(crate) fn known_inbox(&self, name: &InboxName) -> Option<Inbox> {
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
            .execute(
                include_str!("../sql/writer/set_watermark.sql"),
                params![inbox.id, inbox.watermark.as_millis()],
            )
            .map_err(store_error)?;
        Ok(())
    }

    /// Notes that messages of a handler that came no later may have been forgotten.
    pub(crate) fn set_handler_watermark(
        &mut self,
        connection: &Connection,
        id: i64,
        watermark: Timestamp,
    ) -> Result<()> {
        let Some(handler) = self.handlers.get_mut(&id) else { return Ok(()) };
        handler.watermark = handler.watermark.max(watermark);
        connection
            .execute(
                include_str!("../sql/writer/set_handler_watermark.sql"),
                params![id, handler.watermark.as_millis()],
            )
            .map_err(store_error)?;
        Ok(())
    }

    /// Until when messages of these handlers may have been forgotten.
    pub(crate) fn watermark(&self, handlers: &[i64]) -> Option<Timestamp> {
        handlers.iter().filter_map(|id| Some(self.handlers.get(id)?.watermark)).max()
    }

    /// The handler's number, made if it is new.
    pub(crate) fn handler(&mut self, connection: &Connection, inbox: i64, key: &HandlerKey) -> Result<i64> {
        if let Some(id) = self.known_handler(inbox, key) {
            return Ok(id);
        }
        let id = connection
            .query_row(include_str!("../sql/writer/add_handler.sql"), params![inbox, key.as_str()], |row| {
                row.get(0)
            })
            .map_err(store_error)?;
        let watermark = Timestamp::from_millis(i64::MIN);
        self.add_handler(id, Handler { inbox, key: key.clone(), paused: false, watermark });
        Ok(id)
    }

    /// The handler's number, if it was ever used.
    pub(crate) fn known_handler(&self, inbox: i64, key: &HandlerKey) -> Option<i64> {
        self.ids.get(&inbox)?.get(key).copied()
    }

    /// The numbers under which entries of a route may be stored.
    pub(crate) fn route(&self, inbox: i64, route: &Route) -> Vec<i64> {
        std::iter::once(&route.key)
            .chain(route.legacy.iter())
            .filter_map(|key| self.known_handler(inbox, key))
            .collect()
    }

    /// The handlers of an inbox.
    pub(crate) fn of_inbox(&self, inbox: i64) -> impl Iterator<Item = (i64, &Handler)> {
        let all = self.handlers.iter().map(|(id, handler)| (*id, handler));
        all.filter(move |(_, handler)| handler.inbox == inbox)
    }

    pub(crate) fn by_id(&self, id: i64) -> Result<&Handler> {
        self.handlers.get(&id).ok_or_else(|| corrupt("a stored entry has an unknown handler"))
    }

    pub(crate) fn inbox_name(&self, id: i64) -> Result<&InboxName> {
        self.by_inbox_id.get(&id).ok_or_else(|| corrupt("a stored handler has an unknown inbox"))
    }

    pub(crate) fn set_paused(&mut self, connection: &Connection, id: i64, paused: bool) -> Result<()> {
        connection
            .execute(include_str!("../sql/admin/set_paused.sql"), params![id, paused])
            .map_err(store_error)?;
        if let Some(handler) = self.handlers.get_mut(&id) {
            handler.paused = paused;
        }
        Ok(())
    }

    /// Handlers of an inbox that are paused.
    pub(crate) fn paused(&self, inbox: i64) -> Vec<HandlerKey> {
        let paused = self.handlers.values().filter(|handler| handler.inbox == inbox && handler.paused);
        paused.map(|handler| handler.key.clone()).collect()
    }
}
