//! Marks in the caller's own transaction, by the id of a message alone. Tests: `tests/once.rs`.

use bytes::Bytes;
use oncebox_core::store::{MarkIn, NewMessage};
use oncebox_core::{Fingerprint, HandlerKey, InboxName, Key, KeyStrategy, Mark, Message, Result};
use sqlx::{PgConnection, Transaction};

use crate::Postgres;
use crate::mark::{self, MarkQuery, MarkRef};

impl Postgres {
    /// Marks the message with this id as handled inside the caller's own transaction, on the caller's own connection to
    /// the same database. Do the work only on [`Mark::First`], then commit: the work and the mark are stored together.
    ///
    /// Call it first in the transaction: then a concurrent duplicate does not run its body. Its call returns [`Mark::Busy`],
    /// because the message is being handled: do not acknowledge it. [`Mark::is_first`] makes an error of it.
    /// `inbox` separates the ids of different streams, and `handler` the handlers of one message.
    ///
    /// Refuses a transaction of another database ([`Refused`](oncebox_core::ErrorKind::Refused)), even if that has tables of the same
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

    /// Like [`once`](Self::once), for another kind of key: with a source, or of another [`KeyStrategy`].
    pub async fn once_key(
        &self,
        tx: &mut PgConnection,
        inbox: &InboxName,
        key: &Key,
        handler: &str,
    ) -> Result<Mark> {
        let mark_query = MarkQuery::new(&self.inner.db, inbox, key, &HandlerKey::new(handler)?, None);
        mark::mark(mark_query, !self.inner.options.pooled, tx).await
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

/// The caller's own transaction of `sqlx`, as [`PgConnection`].
impl MarkIn<Transaction<'_, sqlx::Postgres>> for Postgres {
    async fn mark(
        &self,
        tx: &mut Transaction<'_, sqlx::Postgres>,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        fingerprint: Option<Fingerprint>,
    ) -> Result<Mark> {
        MarkIn::<PgConnection>::mark(self, tx, inbox, key, handler, fingerprint).await
    }

    async fn quarantine(&self, tx: &mut Transaction<'_, sqlx::Postgres>, message: &NewMessage) -> Result<()> {
        MarkIn::<PgConnection>::quarantine(self, tx, message).await
    }

    async fn record(
        &self,
        tx: &mut Transaction<'_, sqlx::Postgres>,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
        result: &[u8],
    ) -> Result<()> {
        MarkIn::<PgConnection>::record(self, tx, inbox, key, handler, result).await
    }

    async fn recall(
        &self,
        tx: &mut Transaction<'_, sqlx::Postgres>,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> Result<Option<Bytes>> {
        MarkIn::<PgConnection>::recall(self, tx, inbox, key, handler).await
    }

    async fn is_marked(
        &self,
        tx: &mut Transaction<'_, sqlx::Postgres>,
        inbox: &InboxName,
        key: &Key,
        handler: &HandlerKey,
    ) -> Result<bool> {
        MarkIn::<PgConnection>::is_marked(self, tx, inbox, key, handler).await
    }
}

/// Returns the inbox and key of an id that `once` is called with.
pub(crate) fn once_key(inbox: &str, id: &[u8]) -> Result<(InboxName, Key)> {
    let inbox = InboxName::new(inbox)?;
    let message = Message::new(id.to_vec(), "once", "");
    let key = KeyStrategy::MessageId.key(&inbox, &message)?;
    Ok((inbox, key))
}
