//! Marks inside a transaction of `tokio-postgres`, and so of `deadpool-postgres`, for programs without `sqlx`. Tests:
//! `tests/once_tokio.rs`.

use bytes::Bytes;
use oncebox_core::store::{MarkIn, NewMessage};
use oncebox_core::{Error, ErrorKind, Fingerprint, HandlerKey, InboxName, Key, Mark, Result};
use tokio_postgres::Transaction;
use tokio_postgres::types::{ToSql, Type};

use crate::Postgres;
use crate::error::{TxPhase, by_code, lost};
use crate::mark::{MarkColumns, MarkQuery, MarkRef, QuarantineValues, recorded};
use crate::once::once_key;

impl Postgres {
    /// [`once`](Self::once) inside a transaction of `tokio-postgres`, on the caller's own connection to the same database.
    /// Do the work only on [`Mark::First`], then commit: the work and the mark are stored together. Do not acknowledge the message
    /// on [`Mark::Busy`]; [`Mark::is_first`] makes an error of it.
    ///
    #[doc = include_str!("../docs/once_tokio.md")]
    pub async fn once_tokio(
        &self,
        tx: &Transaction<'_>,
        inbox: &str,
        id: impl AsRef<[u8]>,
        handler: &str,
    ) -> Result<Mark> {
        let (inbox, key) = once_key(inbox, id.as_ref())?;
        let mark_query = MarkQuery::new(&self.inner.db, &inbox, &key, &HandlerKey::new(handler)?, None);
        mark(mark_query, tx).await
    }
}

/// The caller's own transaction of `tokio-postgres`.
impl MarkIn<Transaction<'_>> for Postgres {
    async fn mark(
        &self,
        tx: &mut Transaction<'_>,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        fingerprint: Option<Fingerprint>,
    ) -> Result<Mark> {
        mark(MarkQuery::new(&self.inner.db, inbox, key, handler, fingerprint), tx).await
    }

    async fn quarantine(&self, tx: &mut Transaction<'_>, message: &NewMessage) -> Result<()> {
        let values = QuarantineValues::new(&self.inner.db, message);
        let (time, message) = (values.time(), &values.message);
        let typed: [(&(dyn ToSql + Sync), Type); 12] = [
            (&values.now, Type::INT8),
            (&values.inbox, Type::TEXT),
            (&values.digest, Type::BYTEA),
            (&values.fingerprint, Type::BYTEA),
            (&time, Type::INT8),
            (&message.source(), Type::TEXT),
            (&message.id(), Type::BYTEA),
            (&message.message_type(), Type::TEXT),
            (&message.ordering_key(), Type::BYTEA),
            (&values.headers, Type::BYTEA),
            (&&message.payload()[..], Type::BYTEA),
            (&message.tenant(), Type::TEXT),
        ];
        tx.execute_typed(&values.sql, &typed).await.map(drop).map_err(store_error)
    }

    async fn record(
        &self,
        tx: &mut Transaction<'_>,
        _: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        result: &[u8],
    ) -> Result<()> {
        let place = MarkRef::new(&self.inner.db, key, handler);
        let values: [(&(dyn ToSql + Sync), Type); 4] = [
            (&result, Type::BYTEA),
            (&place.lane, Type::INT2),
            (&place.digest, Type::BYTEA),
            (&place.handler, Type::TEXT),
        ];
        recorded(tx.execute_typed(&place.record, &values).await.map_err(store_error)?)
    }

    async fn recall(
        &self,
        tx: &mut Transaction<'_>,
        _: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> Result<Option<Bytes>> {
        let found = find(MarkRef::new(&self.inner.db, key, handler), tx).await?;
        Ok(found.flatten().map(Into::into))
    }

    async fn is_marked(
        &self,
        tx: &mut Transaction<'_>,
        _: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> Result<bool> {
        Ok(find(MarkRef::new(&self.inner.db, key, handler), tx).await?.is_some())
    }
}

/// Finds a mark and its stored result.
async fn find(place: MarkRef, tx: &Transaction<'_>) -> Result<Option<Option<Vec<u8>>>> {
    let values: [(&(dyn ToSql + Sync), Type); 3] =
        [(&place.lane, Type::INT2), (&place.digest, Type::BYTEA), (&place.handler, Type::TEXT)];
    let row = tx.query_typed_opt(&place.recall, &values).await.map_err(store_error)?;
    row.map(|row| row.try_get(0).map_err(store_error)).transpose()
}

async fn mark(mark_query: MarkQuery, tx: &Transaction<'_>) -> Result<Mark> {
    // With explicit types, the statement needs one round trip, and leaves nothing on a connection that a pooler may
    // share.
    let row = tx
        .query_typed_one(
            &mark_query.sql,
            &[
                (&mark_query.lock, Type::INT8),
                (&mark_query.now, Type::INT8),
                (&mark_query.lane, Type::INT2),
                (&mark_query.digest, Type::BYTEA),
                (&mark_query.inbox, Type::TEXT),
                (&mark_query.handler, Type::TEXT),
                (&mark_query.fingerprint, Type::BYTEA),
                (&&*mark_query.home, Type::TEXT),
            ],
        )
        .await
        .map_err(store_error)?;
    let row = MarkColumns {
        home: row.try_get(0).map_err(store_error)?,
        open: row.try_get(1).map_err(store_error)?,
        marked: row.try_get(2).map_err(store_error)?,
        known: row.try_get(3).map_err(store_error)?,
    };
    row.found(mark_query.fingerprint)
}

/// Maps an error of the driver. The caller commits, so a failed statement stores nothing.
pub(crate) fn store_error(error: tokio_postgres::Error) -> Error {
    let mapped = match error.code() {
        Some(code) => by_code(code.code(), TxPhase::Before),
        None if error.is_closed() => lost(TxPhase::Before),
        None => Error::new(ErrorKind::Unavailable, "PostgreSQL could not be used"),
    };
    mapped.caused_by(error)
}
