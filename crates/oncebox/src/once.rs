//! `once`: marks a message inside the caller's own transaction. Tests: `tests/keys.rs`.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::handler::{Marked, check_result};
use crate::inbox::Inbox;
use crate::key::{Fingerprint, Key, KeyStrategy};
use crate::message::Message;
use crate::name::HandlerKey;
use crate::observe::Observed;
use crate::store::{Mark, MarkIn, Store, Transactional};

impl<S: Store> Inbox<S> {
    /// Marks a message as handled inside the caller's own transaction. Do the work only on [`Mark::First`], in the
    /// same transaction, then commit. On [`Mark::Busy`], another transaction handles the message: do not acknowledge the delivery;
    /// [`Mark::is_first`] makes an error of it.
    ///
    /// The transaction is the caller's: `sqlx::Transaction` or `PgConnection`, `tokio_postgres::Transaction`,
    /// `rusqlite::Transaction` or `Connection`.
    ///
    /// [`Mark::Conflict`] means that the key is marked for another message. `once` quarantines this message in the same
    /// transaction: commit, and acknowledge the delivery. After a rollback the next delivery gets the same result. With
    /// [`FirstWins`](crate::config::OnConflict::FirstWins), another payload is a [`Mark::Duplicate`].
    pub async fn once<Tx: ?Sized>(&self, tx: &mut Tx, message: &Message, handler: &str) -> Result<Mark>
    where
        S: MarkIn<Tx>,
    {
        let handler = HandlerKey::new(handler)?;
        let key = self.shared.mark_key(message, &handler)?;
        let (shared, fingerprint) = (&self.shared, Some(Fingerprint::of(message)));
        let mark = shared.store.mark(tx, &shared.name, &key.key, &handler, fingerprint).await?;
        let mark = shared.judged(mark, &key, message);
        if matches!(mark, Mark::Conflict(_)) {
            let new = shared.in_conflict(&key, shared.own(message.clone()).0);
            shared.store.quarantine(tx, &new).await?;
            shared.note_quarantined(&new, &handler);
        }
        Ok(mark)
    }

    /// Stores a result with the mark that [`once`](Self::once) has just made in the same transaction. Call it once for each
    /// mark. Limit: `limits.result` bytes.
    pub async fn record<Tx: ?Sized>(
        &self,
        tx: &mut Tx,
        message: &Message,
        handler: &str,
        result: &[u8],
    ) -> Result<()>
    where
        S: MarkIn<Tx>,
    {
        check_result(result, self.shared.config.limits.result)?;
        // Where every delivery runs, no duplicate asks for the result.
        let Some(Marked { inbox, key, handler }) = self.known(message, handler)? else { return Ok(()) };
        self.shared.store.record(tx, &inbox, &key, &handler, result).await
    }

    /// Returns the result that was stored with the mark of a message. Call it in the same transaction, after
    /// [`once`](Self::once) returned [`Mark::Duplicate`].
    pub async fn recall<Tx: ?Sized>(
        &self,
        tx: &mut Tx,
        message: &Message,
        handler: &str,
    ) -> Result<Option<Bytes>>
    where
        S: MarkIn<Tx>,
    {
        let Some(Marked { inbox, key, handler }) = self.known(message, handler)? else { return Ok(None) };
        self.shared.store.recall(tx, &inbox, &key, &handler).await
    }

    /// Returns true if a message is marked as handled: by a committed transaction, until its retention is over, or by this one. It
    /// marks nothing; use it for questions and reports, and [`once`](Self::once) to decide about work. False if every delivery runs.
    pub async fn is_marked<Tx: ?Sized>(&self, tx: &mut Tx, message: &Message, handler: &str) -> Result<bool>
    where
        S: MarkIn<Tx>,
    {
        let Some(Marked { inbox, key, handler }) = self.known(message, handler)? else { return Ok(false) };
        self.shared.store.is_marked(tx, &inbox, &key, &handler).await
    }

    /// Returns the mark of a message, or `None` if every delivery runs.
    fn known(&self, message: &Message, handler: &str) -> Result<Option<Marked>> {
        let (inbox, handler) = (self.shared.name.clone(), HandlerKey::new(handler)?);
        let key = self.shared.key_of(message, &handler)?;
        Ok(key.map(|key| Marked { inbox, key, handler }))
    }

    /// Begins a transaction of the store and marks a key in it. For work that is not a handler of this inbox, such as a
    /// route of a web server.
    pub async fn open(&self, key: &Key, handler: &str) -> Result<Opened<S>>
    where
        S: Transactional + MarkIn<<S as Transactional>::Tx>,
    {
        // There is a key and no message: nothing is compared.
        self.open_with(key, None, handler).await
    }

    /// Like [`open`](Self::open), for a message: its key is that of its id, source and tenant. Refuses a message that is over the
    /// limits, or that has no tenant where the inbox requires one. With `compare`, another message under a marked key is
    /// [`Opened::Conflict`].
    pub async fn open_message(&self, message: &Message, compare: bool, handler: &str) -> Result<Opened<S>>
    where
        S: Transactional + MarkIn<<S as Transactional>::Tx>,
    {
        self.shared.check(message)?;
        let key = KeyStrategy::MessageId.key(&self.shared.name, message)?;
        self.open_with(&key, compare.then(|| Fingerprint::of(message)), handler).await
    }

    async fn open_with(&self, key: &Key, fingerprint: Option<Fingerprint>, handler: &str) -> Result<Opened<S>>
    where
        S: Transactional + MarkIn<<S as Transactional>::Tx>,
    {
        let store = Arc::clone(&self.shared.store);
        let (inbox, handler) = (self.shared.name.clone(), HandlerKey::new(handler)?);
        let mut tx = store.begin().await?;
        Ok(match store.mark(&mut tx, &inbox, key, &handler, fingerprint).await? {
            Mark::Busy => Opened::Busy,
            Mark::Conflict(_) => Opened::Conflict,
            Mark::Duplicate => Opened::Duplicate(store.recall(&mut tx, &inbox, key, &handler).await?),
            Mark::First => {
                let (marked, limit) =
                    (Marked { inbox, key: *key, handler }, self.shared.config.limits.result);
                Opened::First(MarkedWork { store, tx, marked, limit, result: None })
            }
        })
    }
}

/// Result of [`Inbox::open`].
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "a duplicate's work must not be done again"]
pub enum Opened<S: Transactional> {
    /// The key is new for this handler: do the work, then commit.
    First(MarkedWork<S>),
    /// The work was committed before. Holds its result, if it stored one.
    Duplicate(Option<Bytes>),
    /// Another worker has the key and has not finished.
    Busy,
    /// The key is marked for another message. Nothing is stored.
    Conflict,
}

/// Work whose mark is made and not yet committed. A drop rolls it back and frees the key.
pub struct MarkedWork<S: Transactional> {
    store: Arc<Observed<S>>,
    tx: S::Tx,
    marked: Marked,
    limit: usize,
    result: Option<Bytes>,
}

impl<S: Transactional> MarkedWork<S> {
    /// Returns the transaction. Its writes commit together with the mark.
    pub fn tx(&mut self) -> &mut S::Tx {
        &mut self.tx
    }

    /// Returns the transaction, for reads.
    pub fn as_tx(&self) -> &S::Tx {
        &self.tx
    }

    /// Stores a result for duplicates. Limit: `limits.result` bytes. A second call replaces the first.
    pub fn set_result(&mut self, result: impl Into<Bytes>) -> Result<()> {
        let result = result.into();
        check_result(&result, self.limit)?;
        self.result = Some(result);
        Ok(())
    }

    /// Returns true if a result is set.
    pub fn has_result(&self) -> bool {
        self.result.is_some()
    }

    /// Maximum bytes of a result: `limits.result` of the inbox.
    pub fn max_result(&self) -> usize {
        self.limit
    }

    /// Rolls back, and returns when the key is free for the next delivery.
    pub async fn rollback(self) {
        self.store.rollback(self.tx).await;
    }

    /// Commits the work, its mark and its result. The commit continues if the caller stops waiting.
    pub async fn commit(self) -> Result<()>
    where
        S: MarkIn<<S as Transactional>::Tx>,
    {
        let committed = tokio::spawn(async move {
            let Self { store, mut tx, marked: Marked { inbox, key, handler }, result, .. } = self;
            if let Some(result) = result
                && let Err(error) = store.record(&mut tx, &inbox, &key, &handler, &result).await
            {
                store.rollback(tx).await;
                return Err(error);
            }
            store.commit(tx).await
        });
        committed
            .await
            .map_err(|panic| Error::new(ErrorKind::CommitUnknown, format!("the commit panicked: {panic}")))?
    }
}

impl<S: Transactional> std::fmt::Debug for MarkedWork<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MarkedWork")
            .field("key", &self.marked.key)
            .field("handler", &self.marked.handler)
            .finish_non_exhaustive()
    }
}
