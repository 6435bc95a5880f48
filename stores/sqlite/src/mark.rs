//! Mark, record and recall: store inside the caller's own transaction that a key was handled, and its result. Tests:
//! `tests/once.rs`.

use std::future::Future;
use std::path::Path;

use bytes::Bytes;
use oncebox_core::store::{MarkIn, NewMessage, QuarantineReason};
use oncebox_core::time::Timestamp;
use oncebox_core::{
    Error, ErrorKind, Fingerprint, HandlerKey, InboxName, Key, KeyStrategy, Mark, Message, Result,
};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::Sqlite;
use crate::accept::insert_quarantined;
use crate::error::store_error;
use crate::sql::SQL;
use crate::transaction::SqliteTx;

/// Marks on any connection. The insert takes SQLite's write lock if the transaction does not hold it yet. Of two
/// concurrent duplicates, the second waits for the first. A wait that is too long returns an error, never a duplicate.
pub(crate) fn mark(
    connection: &Connection,
    inbox: &InboxName,
    key: &Key,
    handler: &HandlerKey,
    fingerprint: Option<Fingerprint>,
    now: Timestamp,
) -> Result<Mark> {
    if connection.is_autocommit() {
        let what = "a mark needs an open transaction: without one it would be kept even if the work fails";
        return Err(Error::new(ErrorKind::Refused, what));
    }
    let marked = connection
        .prepare_cached(SQL.mark)
        .and_then(|mut statement| {
            statement.execute(params![
                inbox.as_str(),
                &key.as_bytes()[..],
                handler.as_str(),
                now.as_millis(),
                fingerprint.as_ref().map(Fingerprint::as_bytes),
            ])
        })
        .map_err(store_error)?;
    if marked == 1 {
        return Ok(Mark::First);
    }
    if fingerprint.is_none() {
        return Ok(Mark::Duplicate);
    }
    let known: Option<Option<[u8; 16]>> = connection
        .prepare_cached(SQL.mark_fingerprint)
        .and_then(|mut statement| {
            statement.query_row(params![&key.as_bytes()[..], handler.as_str()], |row| row.get(0)).optional()
        })
        .map_err(store_error)?;
    Ok(Mark::of_known(known.flatten().map(Fingerprint::from_bytes), fingerprint))
}

/// Quarantines a message, in the transaction that found it in conflict with a mark.
pub(crate) fn quarantine(connection: &Connection, new: &NewMessage, now: Timestamp) -> Result<()> {
    let inbox: i64 = connection
        .prepare_cached(SQL.mark_inbox)
        .and_then(|mut statement| {
            statement.query_row(params![new.inbox.as_str(), i64::MIN], |row| row.get(0))
        })
        .map_err(store_error)?;
    insert_quarantined(connection, inbox, new, QuarantineReason::Conflict, now)
}

/// Stores a result with a mark.
pub(crate) fn record(connection: &Connection, key: &Key, handler: &HandlerKey, result: &[u8]) -> Result<()> {
    let recorded = connection
        .prepare_cached(SQL.mark_record)
        .and_then(|mut statement| statement.execute(params![result, &key.as_bytes()[..], handler.as_str()]))
        .map_err(store_error)?;
    if recorded == 0 {
        let what = "a result needs a mark of the same transaction that has none yet";
        return Err(Error::new(ErrorKind::Refused, what));
    }
    Ok(())
}

/// Returns the stored result of a mark.
pub(crate) fn recall(connection: &Connection, key: &Key, handler: &HandlerKey) -> Result<Option<Bytes>> {
    Ok(marked(connection, key, handler)?.flatten().map(Into::into))
}

/// Finds a mark and its stored result.
#[expect(clippy::option_option, reason = "a mark without a result is not a missing mark")]
fn marked(connection: &Connection, key: &Key, handler: &HandlerKey) -> Result<Option<Option<Vec<u8>>>> {
    connection
        .prepare_cached(SQL.mark_recall)
        .and_then(|mut statement| {
            statement.query_row(params![&key.as_bytes()[..], handler.as_str()], |row| row.get(0)).optional()
        })
        .map_err(store_error)
}

/// Returns true if both paths lead to one file, as links do.
fn is_same_file(one: &Path, other: &Path) -> bool {
    if other.as_os_str().is_empty() {
        return false;
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let place = |path: &Path| path.metadata().map(|file| (file.dev(), file.ino())).ok();
        place(one).is_some_and(|one| place(other) == Some(one))
    }
    #[cfg(not(unix))]
    {
        let place = |path: &Path| path.canonicalize().ok();
        place(one).is_some_and(|one| place(other) == Some(one))
    }
}

/// Returns the inbox and key of an id that `once` is called with.
pub(crate) fn once_key(inbox: &str, id: &[u8]) -> Result<(InboxName, Key)> {
    let inbox = InboxName::new(inbox)?;
    let message = Message::new(id.to_vec(), "once", "");
    let key = KeyStrategy::MessageId.key(&inbox, &message)?;
    Ok((inbox, key))
}

impl Sqlite {
    /// Refuses a connection to another file. A mark there would not stop a duplicate in this inbox, and no sweep would
    /// delete it. Cannot detect a file that was replaced under its path.
    pub(crate) fn check_file(&self, connection: &Connection) -> Result<()> {
        let (own, other) = (&self.inner.opener.path, connection.path().unwrap_or_default());
        if own.as_os_str() == other || is_same_file(own, Path::new(other)) {
            return Ok(());
        }
        let what = format!(
            "the transaction is one of the file {other:?}, and the inbox is in {:?}: nothing was marked; open the transaction on a \
             connection to the file of the inbox, as its main database",
            own.display()
        );
        Err(Error::new(ErrorKind::Refused, what))
    }

    /// Stores the result of the mark that [`once`](Self::once) made in the same transaction. Duplicates get this
    /// result. Call it once per mark.
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

    /// Returns the stored result of a mark. Call it when [`once`](Self::once) returned [`Mark::Duplicate`], in the same
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
        fingerprint: Option<Fingerprint>,
    ) -> impl Future<Output = Result<Mark>> + Send {
        let now = self.inner.clock.now();
        let checked = tx.check().and_then(|()| self.check_file(tx));
        std::future::ready(checked.and_then(|()| mark(tx, inbox, key, handler, fingerprint, now)))
    }

    fn quarantine(&self, tx: &mut SqliteTx, message: &NewMessage) -> impl Future<Output = Result<()>> + Send {
        let checked = tx.check().and_then(|()| self.check_file(tx));
        std::future::ready(checked.and_then(|()| quarantine(tx, message, self.inner.clock.now())))
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

    fn is_marked(
        &self,
        tx: &mut SqliteTx,
        _: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> impl Future<Output = Result<bool>> + Send {
        std::future::ready(tx.check().and_then(|()| Ok(marked(tx, key, handler)?.is_some())))
    }
}

// The caller's own connection or transaction. It is not `Send` across an await, so the returned future is already
// complete.
macro_rules! mark_in {
    ($tx:ty) => {
        impl MarkIn<$tx> for Sqlite {
            fn mark(
                &self,
                tx: &mut $tx,
                inbox: &InboxName,
                key: &Key,
                handler: &HandlerKey,
                fingerprint: Option<Fingerprint>,
            ) -> impl Future<Output = Result<Mark>> + Send {
                let now = self.inner.clock.now();
                let checked = self.check_file(tx);
                std::future::ready(checked.and_then(|()| mark(tx, inbox, key, handler, fingerprint, now)))
            }

            fn quarantine(
                &self,
                tx: &mut $tx,
                message: &NewMessage,
            ) -> impl Future<Output = Result<()>> + Send {
                let checked = self.check_file(tx);
                std::future::ready(checked.and_then(|()| quarantine(tx, message, self.inner.clock.now())))
            }

            fn record(
                &self,
                tx: &mut $tx,
                _: &InboxName,
                key: &Key,
                handler: &HandlerKey,
                result: &[u8],
            ) -> impl Future<Output = Result<()>> + Send {
                std::future::ready(record(tx, key, handler, result))
            }

            fn recall(
                &self,
                tx: &mut $tx,
                _: &InboxName,
                key: &Key,
                handler: &HandlerKey,
            ) -> impl Future<Output = Result<Option<Bytes>>> + Send {
                std::future::ready(recall(tx, key, handler))
            }

            fn is_marked(
                &self,
                tx: &mut $tx,
                _: &InboxName,
                key: &Key,
                handler: &HandlerKey,
            ) -> impl Future<Output = Result<bool>> + Send {
                std::future::ready(marked(tx, key, handler).map(|found| found.is_some()))
            }
        }
    };
}

mark_in!(Connection);
mark_in!(rusqlite::Transaction<'_>);
mark_in!(rusqlite::Savepoint<'_>);
