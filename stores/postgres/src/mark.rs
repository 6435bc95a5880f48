//! Marks: the "seen" record, written inside the caller's own transaction, and its results. Tests: `tests/once.rs`.

use std::sync::Arc;

use bytes::Bytes;
use oncebox_core::store::NewMessage;
use oncebox_core::time::Timestamp;
use oncebox_core::{Error, ErrorKind, Fingerprint, HandlerKey, InboxName, Key, Mark, Message, Result};

use crate::db::{Db, lock_number};
use crate::error::corrupt;
use crate::sql::FIXED;

/// Statement and values that mark a key, for any driver.
pub(crate) struct MarkQuery {
    pub(crate) sql: Arc<str>,
    pub(crate) lock: i64,
    pub(crate) now: Option<i64>,
    pub(crate) lane: i16,
    pub(crate) digest: Vec<u8>,
    pub(crate) inbox: String,
    pub(crate) handler: String,
    pub(crate) fingerprint: Option<Vec<u8>>,
    /// Identity of the tables that the caller's transaction must use.
    pub(crate) home: Arc<str>,
}

impl MarkQuery {
    pub(crate) fn new(
        db: &Db,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        fingerprint: Option<Fingerprint>,
    ) -> Self {
        let class = db.lock_class.to_le_bytes();
        Self {
            sql: Arc::clone(&db.sql.mark),
            lock: lock_number(&[b"mark", &class, key.as_bytes(), handler.as_str().as_bytes()]),
            now: db.now(),
            lane: db.lane_of(key),
            digest: key.as_bytes().to_vec(),
            inbox: inbox.as_str().to_owned(),
            handler: handler.as_str().to_owned(),
            fingerprint: fingerprint.map(|print| print.as_bytes().to_vec()),
            home: Arc::clone(&db.incarnation),
        }
    }
}

/// The columns of the answer to a mark.
pub(crate) struct MarkColumns {
    /// True if the tables belong to the store. `None` if the table that identifies them is empty.
    pub(crate) home: Option<bool>,
    pub(crate) open: bool,
    pub(crate) marked: bool,
    pub(crate) known: Option<Vec<u8>>,
}

impl MarkColumns {
    /// Turns the columns into a `Mark` for the message with this fingerprint.
    pub(crate) fn found(self, fingerprint: Option<Vec<u8>>) -> Result<Mark> {
        let print = |bytes: Option<Vec<u8>>| {
            let bytes = bytes.map(|bytes| <[u8; 16]>::try_from(bytes).map(Fingerprint::from_bytes));
            bytes.transpose().map_err(|_| corrupt("a fingerprint has another length than 16 bytes"))
        };
        if self.home != Some(true) {
            let what = "the transaction is one of another database than that of the inbox, though it has tables of the same names: \
                        nothing was marked; begin it on a connection to the database of the inbox";
            return Err(Error::new(ErrorKind::Refused, what));
        }
        Ok(match (self.open, self.marked) {
            (false, _) => Mark::Busy,
            (true, true) => Mark::First,
            (true, false) => Mark::of_known(print(self.known)?, print(fingerprint)?),
        })
    }
}

/// Statements and values that store or read the result of a mark, for any driver.
pub(crate) struct MarkRef {
    pub(crate) record: Arc<str>,
    pub(crate) recall: Arc<str>,
    pub(crate) lane: i16,
    pub(crate) digest: Vec<u8>,
    pub(crate) handler: String,
}

impl MarkRef {
    pub(crate) fn new(db: &Db, key: &Key, handler: &HandlerKey) -> Self {
        Self {
            record: Arc::clone(&db.sql.mark_record),
            recall: Arc::clone(&db.sql.mark_recall),
            lane: db.lane_of(key),
            digest: key.as_bytes().to_vec(),
            handler: handler.as_str().to_owned(),
        }
    }
}

/// Checks the number of marks that took a result.
pub(crate) fn recorded(marks: u64) -> Result<()> {
    if marks == 0 {
        let what = "a result needs a mark of the same transaction that has none yet";
        return Err(Error::new(ErrorKind::Refused, what));
    }
    Ok(())
}

/// Stores a result with a mark.
pub(crate) async fn record(
    place: MarkRef,
    result: &[u8],
    persistent: bool,
    connection: &mut sqlx::PgConnection,
) -> Result<()> {
    use crate::error::{TxPhase, store_error};
    let query = crate::session::query(&place.record)
        .bind(result.to_vec())
        .bind(place.lane)
        .bind(place.digest)
        .bind(place.handler)
        .persistent(persistent);
    let done = query.execute(connection).await.map_err(|error| store_error(error, TxPhase::Before))?;
    recorded(done.rows_affected())
}

/// Returns the stored result of a mark.
pub(crate) async fn recall(
    place: MarkRef,
    persistent: bool,
    connection: &mut sqlx::PgConnection,
) -> Result<Option<Bytes>> {
    Ok(find(place, persistent, connection).await?.flatten().map(Into::into))
}

/// Finds a mark and its stored result.
pub(crate) async fn find(
    place: MarkRef,
    persistent: bool,
    connection: &mut sqlx::PgConnection,
) -> Result<Option<Option<Vec<u8>>>> {
    use crate::error::{TxPhase, store_error, unreadable};
    use sqlx::Row as _;
    let query = crate::session::query(&place.recall)
        .bind(place.lane)
        .bind(place.digest)
        .bind(place.handler)
        .persistent(persistent);
    let row = query.fetch_optional(connection).await.map_err(|error| store_error(error, TxPhase::Before))?;
    row.map(|row| row.try_get(0).map_err(unreadable)).transpose()
}

/// Marks a key on any connection that has a transaction open.
pub(crate) async fn mark(
    mark_query: MarkQuery,
    persistent: bool,
    connection: &mut sqlx::PgConnection,
) -> Result<Mark> {
    use crate::error::{TxPhase, store_error, unreadable};
    use sqlx::Row as _;
    check_open(connection).await?;
    let fingerprint = mark_query.fingerprint.clone();
    let row = crate::session::query(&mark_query.sql)
        .bind(mark_query.lock)
        .bind(mark_query.now)
        .bind(mark_query.lane)
        .bind(mark_query.digest)
        .bind(mark_query.inbox)
        .bind(mark_query.handler)
        .bind(mark_query.fingerprint)
        .bind(mark_query.home.to_string())
        .persistent(persistent)
        .fetch_one(connection)
        .await
        .map_err(|error| store_error(error, TxPhase::Before))?;
    let row = MarkColumns {
        home: row.try_get(0).map_err(unreadable)?,
        open: row.try_get(1).map_err(unreadable)?,
        marked: row.try_get(2).map_err(unreadable)?,
        known: row.try_get(3).map_err(unreadable)?,
    };
    row.found(fingerprint)
}

/// The values that quarantine a message, for each driver.
pub(crate) struct QuarantineValues {
    pub(crate) sql: Arc<str>,
    pub(crate) now: Option<i64>,
    pub(crate) inbox: String,
    pub(crate) digest: Vec<u8>,
    pub(crate) fingerprint: Vec<u8>,
    pub(crate) message: Arc<Message>,
    pub(crate) headers: Vec<u8>,
}

impl QuarantineValues {
    pub(crate) fn new(db: &Db, new: &NewMessage) -> Self {
        Self {
            sql: Arc::clone(&db.sql.mark_quarantine),
            now: db.now(),
            inbox: new.inbox.as_str().to_owned(),
            digest: new.key.as_bytes().to_vec(),
            fingerprint: new.fingerprint.as_bytes().to_vec(),
            message: Arc::clone(&new.message),
            headers: new.message.headers().encode(),
        }
    }

    pub(crate) fn time(&self) -> Option<i64> {
        self.message.time().map(Timestamp::as_millis)
    }
}

/// Quarantines a message, in the transaction that found it in conflict with a mark.
pub(crate) async fn quarantine(
    values: QuarantineValues,
    persistent: bool,
    connection: &mut sqlx::PgConnection,
) -> Result<()> {
    use crate::error::{TxPhase, store_error};
    let (time, message) = (values.time(), &values.message);
    let query = crate::session::query(&values.sql)
        .bind(values.now)
        .bind(values.inbox)
        .bind(values.digest)
        .bind(values.fingerprint)
        .bind(time)
        .bind(message.source())
        .bind(message.id())
        .bind(message.message_type())
        .bind(message.ordering_key())
        .bind(values.headers)
        .bind(&message.payload()[..])
        .bind(message.tenant())
        .persistent(persistent);
    query.execute(connection).await.map(drop).map_err(|error| store_error(error, TxPhase::Before))
}

/// Refuses a connection without an open transaction.
pub(crate) async fn check_open(connection: &mut sqlx::PgConnection) -> Result<()> {
    use sqlx_core::transaction::TransactionManager as _;
    if crate::connect::Manager::get_transaction_depth(connection) == 0 {
        in_transaction(connection).await?;
    }
    Ok(())
}

/// Checks for a transaction that the caller began with its own SQL, unseen by the driver. Without a transaction, the
/// mark would be stored at once, and failed work would never be repeated.
async fn in_transaction(connection: &mut sqlx::PgConnection) -> Result<()> {
    use crate::error::{TxPhase, store_error};
    use sqlx::Executor as _;
    let checked = connection.execute(sqlx::raw_sql(FIXED.mark_within)).await;
    checked.map(drop).map_err(|error| {
        let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
        if code.is_some_and(|code| code == "25P01") {
            let what = "this needs an open transaction, and the connection has none; nothing was stored; begin one first";
            return Error::new(ErrorKind::Refused, what);
        }
        store_error(error, TxPhase::Before)
    })
}
