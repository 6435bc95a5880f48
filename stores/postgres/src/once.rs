//! Marks in the caller's own transaction, by the id of a message alone. Tests: `tests/once.rs`.

use bytes::Bytes;
use oncebox_core::{Error, ErrorKind, HandlerKey, InboxName, Key, KeyStrategy, Mark, Message, Result};
use sqlx::PgConnection;

use crate::Postgres;
use crate::mark::{self, MarkQuery, MarkRef};

impl Postgres {
    /// Marks the message with this id as handled inside the caller's own transaction, on the caller's own connection to
    /// the same database. Do the work only on [`Mark::First`], then commit: the work and the mark are stored together.
    ///
    /// Call it first in the transaction: then a concurrent duplicate does not run its body. Its call returns an error of
    /// kind [`Unavailable`](ErrorKind::Unavailable), because the message is being handled: let the broker redeliver it.
    /// `inbox` separates the ids of different streams, and `handler` the handlers of one message.
    ///
    /// Refuses a transaction of another database ([`Refused`](ErrorKind::Refused)), even if that has tables of the same
    /// names. It cannot detect a copy of the database, restored or made from it as a template. It knows the id alone, so it
    /// cannot detect another message under the same id; `Inbox::once` of `oncebox` can.
    ///
    #[doc = include_str!("../docs/once.md")]
    pub async fn once(
        &self,
        tx: &mut PgConnection,
        inbox: &str,
        id: impl AsRef<[u8]>,
        handler: &str,
    ) -> Result<Mark> {
        let (inbox, key) = once_key(inbox, id.as_ref())?;
        self.once_key(tx, &inbox, &key, handler).await
    }

    /// The same for another kind of key: with a source, or of another [`KeyStrategy`].
    pub async fn once_key(
        &self,
        tx: &mut PgConnection,
        inbox: &InboxName,
        key: &Key,
        handler: &str,
    ) -> Result<Mark> {
        let mark_query = MarkQuery::new(&self.inner.db, inbox, key, &HandlerKey::new(handler)?, None);
        not_busy(mark::mark(mark_query, !self.inner.options.pooled, tx).await?)
    }

    /// Stores the result of the mark that [`once`](Self::once) made in the same transaction. Duplicates get this result.
    /// Call it once per mark.
    pub async fn once_record(
        &self,
        tx: &mut PgConnection,
        inbox: &str,
        id: impl AsRef<[u8]>,
        handler: &str,
        result: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (_, key) = once_key(inbox, id.as_ref())?;
        let place = MarkRef::new(&self.inner.db, &key, &HandlerKey::new(handler)?);
        mark::record(place, result.as_ref(), !self.inner.options.pooled, tx).await
    }

    /// Returns the stored result of a mark. Call it when [`once`](Self::once) returned [`Mark::Duplicate`], in the same
    /// transaction.
    pub async fn once_recall(
        &self,
        tx: &mut PgConnection,
        inbox: &str,
        id: impl AsRef<[u8]>,
        handler: &str,
    ) -> Result<Option<Bytes>> {
        let (_, key) = once_key(inbox, id.as_ref())?;
        let place = MarkRef::new(&self.inner.db, &key, &HandlerKey::new(handler)?);
        mark::recall(place, !self.inner.options.pooled, tx).await
    }
}

/// Returns an error while another transaction has the key. The caller of `once` does the work if the mark is first, and
/// acknowledges if not: until that transaction ends, both would be wrong.
pub(crate) fn not_busy(mark: Mark) -> Result<Mark> {
    if mark == Mark::Busy {
        let what = "another transaction that has not ended handles the same message";
        return Err(Error::new(ErrorKind::Unavailable, what));
    }
    Ok(mark)
}

/// The inbox and key of an id that `once` is called with.
pub(crate) fn once_key(inbox: &str, id: &[u8]) -> Result<(InboxName, Key)> {
    let inbox = InboxName::new(inbox)?;
    let message = Message::new(id.to_vec(), "once", "");
    let key = KeyStrategy::MessageId.key(&inbox, &message)?;
    Ok((inbox, key))
}
