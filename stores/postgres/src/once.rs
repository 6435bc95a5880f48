//! Marks in the caller's own transaction, by the id of a message alone.

use bytes::Bytes;
use oncebox::{Error, ErrorKind, HandlerKey, InboxName, Key, KeyStrategy, Mark, Message, Result};
use sqlx::PgConnection;

use crate::Postgres;
use crate::mark::{self, MarkQuery, MarkRef};

impl Postgres {
    /// Marks the message with this id as handled inside the caller's own transaction, on the caller's own connection to
    /// the same database. Do the work only on [`Mark::First`], then commit: the work and the mark are stored together.
    ///
    /// Call it first in the transaction: then the body of a duplicate that runs at the same time does not run. It is told with
    /// an error of kind [`Unavailable`](ErrorKind::Unavailable) that the message is being handled: have it delivered again.
    /// `inbox` keeps ids of different streams apart, `handler` what is done with one message from what else is.
    ///
    /// A transaction of another database is refused ([`Refused`](ErrorKind::Refused)), even if that has tables of the same names. A copy of
    /// the database, restored or made from it as a template, cannot be told from it. It knows the id alone, so it cannot tell another
    /// message under the same id; [`Inbox::once`](oncebox::Inbox::once) can.
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

    /// The same for a key that was made otherwise: with a source, or by another [`KeyStrategy`].
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

    /// Leaves a result with the mark that [`once`](Self::once) has just made in the same transaction, for duplicates to be
    /// answered with. Once for each mark.
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

    /// The result that was left with a mark: ask for it when [`once`](Self::once) said [`Mark::Duplicate`], in the same
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
