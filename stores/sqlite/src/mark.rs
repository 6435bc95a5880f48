//! Mark, record and recall: remember inside the caller's own transaction that a key was handled, and with which result.

use std::future::Future;

use bytes::Bytes;
use oncebox::store::MarkIn;
use oncebox::time::Timestamp;
use oncebox::{Error, ErrorKind, HandlerKey, InboxName, Key, KeyStrategy, Mark, Message, Result};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::Sqlite;
use crate::error::store_error;
use crate::transaction::SqliteTx;

/// Marks on any connection. The insert takes SQLite's write lock if the transaction does not hold it yet, so of two
/// duplicates at once the second waits for the first; a wait that is too long is an error, never a duplicate.
pub(crate) fn mark(
    connection: &Connection,
    inbox: &InboxName,
    key: &Key,
    handler: &HandlerKey,
    now: Timestamp,
) -> Result<Mark> {
    if connection.is_autocommit() {
        let what = "a mark needs an open transaction: without one it would be kept even if the work fails";
        return Err(Error::new(ErrorKind::Refused, what));
    }
    let marked = connection
        .prepare_cached(include_str!("../sql/mark/mark.sql"))
        .and_then(|mut statement| {
            statement.execute(params![inbox.as_str(), &key.as_bytes()[..], handler.as_str(), now.as_millis()])
        })
        .map_err(store_error)?;
    Ok(if marked == 1 { Mark::First } else { Mark::Duplicate })
}

/// Leaves a result with a mark.
pub(crate) fn record(connection: &Connection, key: &Key, handler: &HandlerKey, result: &[u8]) -> Result<()> {
    let recorded = connection
        .prepare_cached(include_str!("../sql/mark/record.sql"))
        .and_then(|mut statement| statement.execute(params![result, &key.as_bytes()[..], handler.as_str()]))
        .map_err(store_error)?;
    if recorded == 0 {
        let what = "a result needs a mark of the same transaction that has none yet";
        return Err(Error::new(ErrorKind::Refused, what));
    }
    Ok(())
}

/// The result that was left with a mark.
pub(crate) fn recall(connection: &Connection, key: &Key, handler: &HandlerKey) -> Result<Option<Bytes>> {
    let result: Option<Option<Vec<u8>>> = connection
        .prepare_cached(include_str!("../sql/mark/recall.sql"))
        .and_then(|mut statement| {
            statement.query_row(params![&key.as_bytes()[..], handler.as_str()], |row| row.get(0)).optional()
        })
        .map_err(store_error)?;
    Ok(result.flatten().map(Into::into))
}

/// The inbox and key of an id that `once` is called with.
pub(crate) fn once_key(inbox: &str, id: &[u8]) -> Result<(InboxName, Key)> {
    let inbox = InboxName::new(inbox)?;
    let message = Message::new(id.to_vec(), "once", "");
    let key = KeyStrategy::MessageId.key(&inbox, &message)?;
    Ok((inbox, key))
}

impl Sqlite {
    /// Leaves a result with the mark that [`once`](Self::once) has just made in the same transaction, for duplicates to be
    /// answered with. Once for each mark.
    pub fn once_record(
        &self,
        tx: &Connection,
        inbox: &str,
        id: impl AsRef<[u8]>,
        handler: &str,
        result: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (_, key) = once_key(inbox, id.as_ref())?;
        record(tx, &key, &HandlerKey::new(handler)?, result.as_ref())
    }

    /// The result that was left with a mark: ask for it when [`once`](Self::once) said [`Mark::Duplicate`], in the same
    /// transaction.
    pub fn once_recall(
        &self,
        tx: &Connection,
        inbox: &str,
        id: impl AsRef<[u8]>,
        handler: &str,
    ) -> Result<Option<Bytes>> {
        let (_, key) = once_key(inbox, id.as_ref())?;
        recall(tx, &key, &HandlerKey::new(handler)?)
    }
}

impl MarkIn<SqliteTx> for Sqlite {
    fn mark(
        &self,
        tx: &mut SqliteTx,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> impl Future<Output = Result<Mark>> + Send {
        let now = self.inner.clock.now();
        std::future::ready(tx.check().and_then(|()| mark(tx, inbox, key, handler, now)))
    }

    fn record(
        &self,
        tx: &mut SqliteTx,
        _: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        result: &[u8],
    ) -> impl Future<Output = Result<()>> + Send {
        std::future::ready(tx.check().and_then(|()| record(tx, key, handler, result)))
    }

    fn recall(
        &self,
        tx: &mut SqliteTx,
        _: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> impl Future<Output = Result<Option<Bytes>>> + Send {
        std::future::ready(tx.check().and_then(|()| recall(tx, key, handler)))
    }
}

// The caller's own connection or transaction: a `rusqlite::Transaction` derefs to it. It is not `Send` across an
// await, so what is returned is already done.
impl MarkIn<Connection> for Sqlite {
    fn mark(
        &self,
        tx: &mut Connection,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> impl Future<Output = Result<Mark>> + Send {
        std::future::ready(mark(tx, inbox, key, handler, self.inner.clock.now()))
    }

    fn record(
        &self,
        tx: &mut Connection,
        _: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        result: &[u8],
    ) -> impl Future<Output = Result<()>> + Send {
        std::future::ready(record(tx, key, handler, result))
    }

    fn recall(
        &self,
        tx: &mut Connection,
        _: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> impl Future<Output = Result<Option<Bytes>>> + Send {
        std::future::ready(recall(tx, key, handler))
    }
}
