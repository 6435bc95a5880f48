//! Accept inside a transaction of any driver: the caller's, or a handler's. Tests: `tests/accept_in.rs`,
//! `tests/accept_in_tokio.rs`.
//!
//! Uses the long statement of the batch writer, which inserts without errors: an error would abort the caller's
//! transaction. Its numbers become visible late, so it holds a lock that shows sweeps the age of the transaction. See
//! docs/adr/0030.

pub(crate) mod driver;
mod rare;

use oncebox_core::store::{AcceptIn, Accepted, NewMessage};
use oncebox_core::time::Timestamp;
use oncebox_core::{Error, ErrorKind, Result};
use sqlx::PgConnection;

use super::{
    AcceptRow, KnownWith, OfferOutcome, Offered, RACES, chosen, column, encode_handlers, place, places,
    rounds, tenants, unordered_entries, verdicts_of,
};
use crate::Postgres;
use crate::db::{Db, TouchedQueues, millis};
use crate::error::corrupt;
use crate::transaction::PostgresTx;
use driver::{SqlValue, SqlxTx, TxConnection, TxRow};

/// Messages that a transaction accepted. The store reports them after the commit.
#[derive(Default)]
pub(crate) struct StagedMessages {
    /// New messages, with the numbers of their inboxes and the lanes of their keys.
    pub(crate) stored: Vec<(i16, i16, NewMessage)>,
    /// Places that claims must scan again: they may have passed the numbers while the transaction was open.
    pub(crate) places: Vec<((i16, i16), i64)>,
    /// True if the commit makes entries claimable.
    pub(crate) work: bool,
}

/// Numbers of messages and places.
#[derive(Clone, Copy, Default)]
pub(crate) struct StagedCounts(usize, usize);

impl StagedMessages {
    pub(crate) fn counts(&self) -> StagedCounts {
        StagedCounts(self.stored.len(), self.places.len())
    }

    /// Removes messages and places added since `counts` was called. Keeps `work`: an unneeded wake-up costs one query.
    pub(crate) fn undo(&mut self, StagedCounts(stored, places): StagedCounts) {
        self.stored.truncate(stored);
        self.places.truncate(places);
    }

    /// Notifies this process of the committed messages. Returns true if there may be work for other processes.
    pub(crate) fn committed(self, db: &Db) -> bool {
        for (place, seq) in self.places {
            db.cursors.rewind(place, seq);
        }
        if !self.stored.is_empty() {
            let stored = self.stored.iter();
            db.timeline
                .acknowledged(stored.map(|(inbox, lane, new)| (*inbox, *lane, new.key, &*new.message)));
        }
        self.work
    }

    fn extend(&mut self, other: Self) {
        self.stored.extend(other.stored);
        self.places.extend(other.places);
        self.work |= other.work;
    }

    fn add(&mut self, offer: &Offered, accepted: Accepted) {
        match accepted {
            Accepted::First(seq) => {
                self.work |= !offer.routes.is_empty();
                self.places.extend(offer.handlers.iter().map(|handler| ((offer.home, *handler), seq.0)));
                self.stored.push((offer.inbox, offer.lane, offer.new.clone()));
            }
            Accepted::HandlersAdded(..) => self.work = true,
            _ => {}
        }
    }
}

/// Accepts in the transaction that is open on a connection.
async fn accept_in(
    db: &Db,
    tx: &mut impl TxConnection,
    batch: &[NewMessage],
) -> Result<(Vec<Accepted>, StagedMessages)> {
    let mut staged = StagedMessages::default();
    if batch.is_empty() {
        return Ok((Vec::new(), staged));
    }
    // The store creates names on its own connection, so they survive a rollback of the transaction.
    let changes = db.timeline.changes();
    let mut offers = Vec::with_capacity(batch.len());
    for new in batch {
        offers.push(Offered::new(db, new).await?);
    }
    db.timeline.refuse_former(changes)?;
    check_home(db, tx).await?;
    let mut answers: Vec<Option<Accepted>> = vec![None; offers.len()];
    let mut waiting: Vec<usize> = (0..offers.len()).collect();
    for _ in 0..RACES {
        let mut rare_cases = Vec::new();
        for (index, outcome) in offer(db, tx, &offers, &std::mem::take(&mut waiting)).await? {
            match outcome {
                OfferOutcome::Answer(accepted) => answers[index] = Some(accepted),
                OfferOutcome::Raced => waiting.push(index),
                OfferOutcome::RareCase(rare_case) => rare_cases.push((index, rare_case)),
            }
        }
        let (cared, released) = rare::handle(db, tx, &offers, &rare_cases).await?;
        staged.places.extend(released.into_places());
        for ((index, _), accepted) in rare_cases.into_iter().zip(cared) {
            match accepted {
                Some(accepted) => answers[index] = Some(accepted),
                None => waiting.push(index),
            }
        }
        if waiting.is_empty() {
            let accepted = answers.into_iter().collect::<Option<Vec<_>>>();
            let accepted = accepted.ok_or_else(|| corrupt("a message of a batch was not answered"))?;
            offers.iter().zip(&accepted).for_each(|(offer, answer)| staged.add(offer, *answer));
            return Ok((accepted, staged));
        }
        waiting.sort_unstable();
    }
    let what =
        "the same keys were offered and removed at the same time, again and again; roll back and try again";
    Err(Error::new(ErrorKind::Unavailable, what))
}

/// Refuses a transaction of another database, and marks it for sweeps as open with new numbers.
async fn check_home(db: &Db, tx: &mut impl TxConnection) -> Result<()> {
    let values = vec![
        SqlValue::Int4(db.open_class),
        SqlValue::Int8(db.now()),
        SqlValue::Text(Some(db.incarnation.to_string())),
    ];
    let rows = tx.rows(&db.sql.accept_open, values).await?;
    let row = rows.first().ok_or_else(|| corrupt("the check of a transaction has no answer"))?;
    if row.get::<Option<bool>>(0)? == Some(true) {
        return Ok(());
    }
    let what = "the transaction is one of another database than that of the inbox, though it has tables of the same names; \
                nothing was stored; begin it on a connection to the database of the inbox";
    Err(Error::new(ErrorKind::Refused, what))
}

/// Offers messages, with one statement per inbox.
async fn offer(
    db: &Db,
    tx: &mut impl TxConnection,
    offers: &[Offered],
    indexes: &[usize],
) -> Result<Vec<(usize, OfferOutcome)>> {
    let mut lines = TouchedQueues::default();
    for index in indexes {
        offers[*index].add_lines(&mut lines);
    }
    // The first statement takes all locks, in order.
    let mut locks = lines.locks();
    let mut outcomes = Vec::with_capacity(indexes.len());
    for round in rounds(offers, indexes) {
        let values = values(db, offers, &round, std::mem::take(&mut locks), &lines);
        let rows = tx.rows(&db.sql.accept, values).await?;
        let rows = rows.iter().map(row).collect::<Result<Vec<_>>>()?;
        let (seqs, handlers, delays) = unordered_entries(offers, &rows);
        if !seqs.is_empty() {
            let some = |numbers: Vec<i64>| SqlValue::Int8s(numbers.into_iter().map(Some).collect());
            let values = vec![SqlValue::Int8(db.now()), some(seqs), SqlValue::Int2s(handlers), some(delays)];
            tx.rows(&db.sql.accept_unordered, values).await?;
        }
        outcomes.extend(verdicts_of(offers, rows)?);
    }
    Ok(outcomes)
}

fn row(row: &TxRow) -> Result<AcceptRow> {
    let known = match row.get(4)? {
        Some(fingerprint) => Some(KnownWith { fingerprint, handlers: row.get(5)?, age: row.get(6)? }),
        None => None,
    };
    Ok(AcceptRow { place: row.get(0)?, seq: row.get(1)?, is_new: row.get(2)?, is_stale: row.get(3)?, known })
}

/// Returns the values of the statement for all kinds of messages, in the order of the section `accept` of `sql/accept.sql`.
fn values(
    db: &Db,
    offers: &[Offered],
    round: &[usize],
    locks: Vec<i32>,
    lines: &TouchedQueues,
) -> Vec<SqlValue> {
    let chosen = chosen(offers, round);
    let inbox = chosen.first().map_or(0, |(_, offer)| offer.inbox);
    let (mut entry_places, mut entry_handlers) = (Vec::new(), Vec::new());
    let (mut doubted_places, mut doubted_handlers) = (Vec::new(), Vec::new());
    for (number, (at, offer)) in chosen.iter().enumerate() {
        for handler in offer.keep_order() {
            entry_places.push(*at);
            entry_handlers.push(handler);
        }
        doubted_places.extend(std::iter::repeat_n(place(number), offer.doubted.len()));
        doubted_handlers.extend_from_slice(&offer.doubted);
    }
    let bytes = |of: fn(&Offered) -> Vec<u8>| SqlValue::Byteas(column(&chosen, |offer| Some(of(offer))));
    let texts =
        |of: fn(&Offered) -> &str| SqlValue::Texts(Some(column(&chosen, |offer| Some(of(offer).to_owned()))));
    let tenants = tenants(&chosen).map(|all| all.into_iter().map(|one| one.map(str::to_owned)).collect());
    let [line_lanes, line_handlers, line_keys] = lines.values();
    vec![
        SqlValue::Int8(db.now()),
        SqlValue::Int2(inbox),
        SqlValue::Int4s(places(&chosen)),
        SqlValue::Int2s(column(&chosen, |offer| offer.lane)),
        SqlValue::Int2s(column(&chosen, |offer| offer.home)),
        bytes(|offer| offer.new.key.as_bytes().to_vec()),
        bytes(|offer| offer.new.fingerprint.as_bytes().to_vec()),
        bytes(|offer| encode_handlers(&offer.handlers)),
        SqlValue::Int8s(column(&chosen, |offer| offer.new.message.time().map(Timestamp::as_millis))),
        texts(|offer| offer.new.message.source()),
        bytes(|offer| offer.new.message.id().to_vec()),
        texts(|offer| offer.new.message.message_type()),
        SqlValue::Byteas(column(&chosen, |offer| offer.new.message.ordering_key().map(<[u8]>::to_vec))),
        bytes(|offer| offer.new.message.headers().encode()),
        bytes(|offer| offer.new.message.payload().to_vec()),
        SqlValue::Byteas(column(&chosen, |offer| offer.new.order.map(|order| order.as_bytes().to_vec()))),
        SqlValue::Int8s(column(&chosen, |offer| Some(millis(offer.new.delay)))),
        SqlValue::Int4s(entry_places),
        SqlValue::Int2s(entry_handlers),
        SqlValue::Texts(tenants),
        SqlValue::Int4(db.lock_class),
        SqlValue::Int4s(locks),
        line_lanes,
        line_handlers,
        line_keys,
        SqlValue::Int4s((0..chosen.len()).map(place).collect()),
        SqlValue::Int4s(doubted_places),
        SqlValue::Int2s(doubted_handlers),
    ]
}

impl TouchedQueues {
    /// Returns lanes, handlers and order keys.
    fn values(&self) -> [SqlValue; 3] {
        [
            SqlValue::Int2s(self.iter().map(|(lane, ..)| *lane).collect()),
            SqlValue::Int2s(self.iter().map(|(_, handler, _)| *handler).collect()),
            SqlValue::Byteas(self.iter().map(|(_, _, key)| Some(key.clone())).collect()),
        ]
    }
}

impl Postgres {
    /// Accepts in a transaction whose commit this store does not see. At the commit, PostgreSQL notifies the workers of
    /// all processes; a rollback drops the notification.
    async fn accept_unseen(&self, mut tx: impl TxConnection, batch: &[NewMessage]) -> Result<Vec<Accepted>> {
        let (db, pooled) = (&self.inner.db, self.inner.options.pooled);
        let (accepted, staged) = accept_in(db, &mut tx, batch).await?;
        if staged.work && !pooled {
            let (channel, sender) = self.inner.waker.late_event();
            tx.rows(&db.sql.wake_notify, vec![SqlValue::Text(Some(channel)), SqlValue::Text(Some(sender))])
                .await?;
        }
        Ok(accepted)
    }
}

impl PostgresTx {
    /// Accepts in the transaction. The commit notifies the workers.
    async fn accept_in(&mut self, db: &Db, batch: &[NewMessage]) -> Result<Vec<Accepted>> {
        let persistent = self.is_persistent();
        let mut tx = SqlxTx { connection: &mut *self, persistent };
        let (accepted, staged) = accept_in(db, &mut tx, batch).await?;
        self.staged.extend(staged);
        Ok(accepted)
    }
}

impl AcceptIn<PostgresTx> for Postgres {
    async fn accept_in(&self, tx: &mut PostgresTx, batch: &[NewMessage]) -> Result<Vec<Accepted>> {
        tx.accept_in(&self.inner.db, batch).await
    }
}

/// The caller's own connection, with a transaction open on it.
impl AcceptIn<PgConnection> for Postgres {
    async fn accept_in(&self, tx: &mut PgConnection, batch: &[NewMessage]) -> Result<Vec<Accepted>> {
        crate::mark::check_open(tx).await?;
        let persistent = !self.inner.options.pooled;
        self.accept_unseen(SqlxTx { connection: tx, persistent }, batch).await
    }
}

impl AcceptIn<sqlx::Transaction<'_, sqlx::Postgres>> for Postgres {
    async fn accept_in(
        &self,
        tx: &mut sqlx::Transaction<'_, sqlx::Postgres>,
        batch: &[NewMessage],
    ) -> Result<Vec<Accepted>> {
        let connection: &mut PgConnection = tx;
        AcceptIn::accept_in(self, connection, batch).await
    }
}

#[cfg(feature = "tokio-postgres")]
impl AcceptIn<tokio_postgres::Transaction<'_>> for Postgres {
    async fn accept_in(
        &self,
        tx: &mut tokio_postgres::Transaction<'_>,
        batch: &[NewMessage],
    ) -> Result<Vec<Accepted>> {
        self.accept_unseen(driver::TokioTx(&*tx), batch).await
    }
}
