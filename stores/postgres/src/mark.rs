//! Marks: the "seen" record, written inside the caller's own transaction, and the results that are left with them.

use std::sync::Arc;

use bytes::Bytes;
use oncebox::{Error, ErrorKind, HandlerKey, InboxName, Key, Mark, Result};

use crate::db::{Db, lock_number};

/// What marking a key needs, whoever sends it.
pub(crate) struct Question {
    pub(crate) sql: Arc<str>,
    pub(crate) lock: i64,
    pub(crate) now: Option<i64>,
    pub(crate) lane: i16,
    pub(crate) digest: Vec<u8>,
    pub(crate) inbox: String,
    pub(crate) handler: String,
}

impl Question {
    pub(crate) fn new(db: &Db, inbox: &InboxName, key: &Key, handler: &HandlerKey) -> Self {
        let class = db.lock_class.to_le_bytes();
        Self {
            sql: Arc::clone(&db.sql.mark),
            lock: lock_number(&[b"mark", &class, key.as_bytes(), handler.as_str().as_bytes()]),
            now: db.now(),
            lane: db.lane_of(key),
            digest: key.as_bytes().to_vec(),
            inbox: inbox.as_str().to_owned(),
            handler: handler.as_str().to_owned(),
        }
    }
}

/// What the two columns of the answer say.
pub(crate) const fn answer(open: bool, marked: bool) -> Mark {
    match (open, marked) {
        (false, _) => Mark::Busy,
        (true, true) => Mark::First,
        (true, false) => Mark::Duplicate,
    }
}

/// Which mark a result belongs to, whoever sends it.
pub(crate) struct Place {
    pub(crate) record: Arc<str>,
    pub(crate) recall: Arc<str>,
    pub(crate) lane: i16,
    pub(crate) digest: Vec<u8>,
    pub(crate) handler: String,
}

impl Place {
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

/// What it means how many marks took a result.
pub(crate) fn recorded(marks: u64) -> Result<()> {
    if marks == 0 {
        let what = "a result needs a mark of the same transaction that has none yet";
        return Err(Error::new(ErrorKind::Refused, what));
    }
    Ok(())
}

/// Leaves a result with a mark.
pub(crate) async fn record(
    place: Place,
    result: &[u8],
    persistent: bool,
    connection: &mut sqlx::PgConnection,
) -> Result<()> {
    use crate::error::{Phase, store_error};
    let ask = crate::unit::ask(&place.record)
        .bind(result.to_vec())
        .bind(place.lane)
        .bind(place.digest)
        .bind(place.handler)
        .persistent(persistent);
    let done = ask.execute(connection).await.map_err(|error| store_error(error, Phase::Before))?;
    recorded(done.rows_affected())
}

/// The result that was left with a mark.
pub(crate) async fn recall(
    place: Place,
    persistent: bool,
    connection: &mut sqlx::PgConnection,
) -> Result<Option<Bytes>> {
    use crate::error::{Phase, store_error, unreadable};
    use sqlx::Row as _;
    let ask = crate::unit::ask(&place.recall)
        .bind(place.lane)
        .bind(place.digest)
        .bind(place.handler)
        .persistent(persistent);
    let row = ask.fetch_optional(connection).await.map_err(|error| store_error(error, Phase::Before))?;
    let result: Option<Option<Vec<u8>>> = row.map(|row| row.try_get(0).map_err(unreadable)).transpose()?;
    Ok(result.flatten().map(Into::into))
}

/// Marks a key on any connection that has a transaction open.
pub(crate) async fn mark(
    question: Question,
    persistent: bool,
    connection: &mut sqlx::PgConnection,
) -> Result<Mark> {
    use crate::error::{Phase, store_error, unreadable};
    use sqlx::Row as _;
    use sqlx_core::transaction::TransactionManager as _;
    if crate::connect::Manager::get_transaction_depth(connection) == 0 {
        in_transaction(connection).await?;
    }
    let row = crate::unit::ask(&question.sql)
        .bind(question.lock)
        .bind(question.now)
        .bind(question.lane)
        .bind(question.digest)
        .bind(question.inbox)
        .bind(question.handler)
        .persistent(persistent)
        .fetch_one(connection)
        .await
        .map_err(|error| store_error(error, Phase::Before))?;
    Ok(answer(row.try_get(0).map_err(unreadable)?, row.try_get(1).map_err(unreadable)?))
}

/// The driver has not begun a transaction here. Then the caller did so in words of its own, or there is none: a mark would be
/// stored at once, and work that fails would never be done.
async fn in_transaction(connection: &mut sqlx::PgConnection) -> Result<()> {
    use crate::error::{Phase, store_error};
    use sqlx::Executor as _;
    let checked = connection.execute(sqlx::raw_sql(include_str!("../sql/mark/within.sql"))).await;
    checked.map(drop).map_err(|error| {
        let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
        if code.is_some_and(|code| code == "25P01") {
            let what = "a mark is made within a transaction, and this connection has none open";
            return Error::new(ErrorKind::Refused, what);
        }
        store_error(error, Phase::Before)
    })
}
