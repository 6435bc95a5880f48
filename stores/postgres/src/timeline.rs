//! Failovers: notices that the database's timeline changed, keeps tokens from going back, and reports losses.
//!
//! The store checks a new connection before its first use, because a failover ends all connections. Behind a pooler, a
//! connection may change its server at any time, so each claim checks. Tests: `tests/failover.rs`.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use oncebox_core::store::{Claimed, Failover};
use oncebox_core::time::{SharedClock, Timestamp};
use oncebox_core::{Error, ErrorKind, HandlerKey, Key, Message, Result};
use parking_lot::Mutex;
use sqlx::postgres::{PgConnection, PgRow};

use crate::db::{Db, millis};
use crate::error::{TxPhase, store_error};
use crate::remembered::{Acknowledged, Acknowledgement, Remembered};
use crate::row::get;
use crate::session::{query, run};
use crate::sql::{FIXED, Statements, with_values};

/// Maximum lost messages that the log names.
const NAMED: usize = 10;

/// This process's view of the database's timelines.
pub(crate) struct Timeline {
    check: Arc<str>,
    missing: Arc<str>,
    lost: Arc<str>,
    latest: Arc<str>,
    clock: Option<SharedClock>,
    /// The greatest token of a claim.
    seen: AtomicI64,
    acknowledged: Mutex<Remembered>,
    /// Timeline and epoch. `None` until the first check.
    known: Mutex<Option<(String, i64)>>,
    failover: Mutex<Option<Failover>>,
    /// Lets one connection at a time handle a change.
    noticing: tokio::sync::Mutex<()>,
    /// Number of timeline changes that this process noticed. Ids read before the latest change are void.
    changes: AtomicU64,
    /// The store whose caches a change clears.
    db: OnceLock<Weak<Db>>,
}

impl Timeline {
    pub(crate) fn new(sql: &Statements, clock: Option<SharedClock>) -> Arc<Self> {
        Arc::new(Self {
            check: Arc::clone(&sql.timeline_check),
            missing: Arc::clone(&sql.timeline_missing),
            lost: Arc::clone(&sql.timeline_lost),
            latest: Arc::clone(&sql.timeline_latest),
            clock,
            seen: AtomicI64::new(0),
            acknowledged: Mutex::default(),
            known: Mutex::default(),
            failover: Mutex::default(),
            noticing: tokio::sync::Mutex::default(),
            changes: AtomicU64::new(0),
            db: OnceLock::new(),
        })
    }

    /// Sets the store whose caches the next change clears.
    pub(crate) fn belongs_to(&self, db: &Arc<Db>) {
        let _ = self.db.set(Arc::downgrade(db));
    }

    /// Returns the latest failover that this process knows of.
    pub(crate) fn failover(&self) -> Option<Failover> {
        *self.failover.lock()
    }

    /// Returns the number of timeline changes that this process noticed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Returns an error if the timeline has changed since the count was `changes`.
    pub(crate) fn refuse_former(&self, changes: u64) -> Result<()> {
        if self.changes() == changes { Ok(()) } else { Err(changed()) }
    }

    /// Remembers the tokens of claims.
    pub(crate) fn given(&self, claimed: &[Claimed]) {
        if let Some(token) = claimed.iter().map(|one| one.claim.token.0).max() {
            self.seen.fetch_max(token, Ordering::Relaxed);
        }
    }

    /// Remembers stored messages.
    pub(crate) fn acknowledged<'a>(&self, messages: impl Iterator<Item = (i16, i16, Key, &'a Message)>) {
        self.remember(messages.map(|(inbox, lane, key, message)| {
            let name = Arc::new((message.source().into(), message.id().into()));
            (Some(inbox), lane, key, Acknowledgement::Message(name))
        }));
    }

    /// Remembers committed marks.
    pub(crate) fn marked(&self, marks: Vec<(i16, Key, HandlerKey)>) {
        self.remember(
            marks.into_iter().map(|(lane, key, handler)| (None, lane, key, Acknowledgement::Mark(handler))),
        );
    }

    fn remember(&self, all: impl Iterator<Item = (Option<i16>, i16, Key, Acknowledgement)>) {
        let at = Instant::now();
        let all = all.map(|(inbox, lane, key, what)| Acknowledged { inbox, lane, key, what, at });
        self.acknowledged.lock().add(all, at);
    }

    fn now(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| clock.now().as_millis())
    }

    /// Returns the SQL of the check, for the statement that begins a transaction.
    pub(crate) fn check_pooled(&self) -> String {
        let now = self.now().map_or_else(|| "NULL".into(), |now| now.to_string());
        let seen = self.seen.load(Ordering::Relaxed).to_string();
        with_values(&self.check, &[now, seen])
    }

    /// Checks a new connection. Returns an error if the history changed since the last check: then the caller's values
    /// belong to the former history.
    pub(crate) async fn check(&self, connection: &mut PgConnection) -> Result<()> {
        let check =
            query(&self.check).bind(self.now()).bind(self.seen.load(Ordering::Relaxed)).persistent(false);
        let row = check.fetch_one(&mut *connection).await.map_err(before)?;
        if self.is_known(&row)? {
            return Ok(());
        }
        // The report and the reads after it are in one transaction: a failure between them must not count the losses
        // twice.
        run(connection, FIXED.transaction_begin_store).await.map_err(before)?;
        let change = self.notice(connection, &row).await?;
        run(connection, FIXED.transaction_commit).await.map_err(before)?;
        match change.map(TimelineChange::committed) {
            None | Some(Notice::First) => Ok(()),
            Some(Notice::Changed) => Err(changed()),
        }
    }

    fn is_known(&self, row: &PgRow) -> Result<bool> {
        Ok(self.known.lock().as_ref() == Some(&here(row)?))
    }

    /// Reads the result of a check. If the history changed, finds the losses within the open transaction.
    pub(crate) async fn notice(
        &self,
        connection: &mut PgConnection,
        row: &PgRow,
    ) -> Result<Option<TimelineChange<'_>>> {
        if self.is_known(row)? {
            return Ok(None);
        }
        let alone = self.noticing.lock().await;
        // Another connection was faster, or this one waited so long that it leads to the former server.
        if self.is_known(row)? {
            return Ok(None);
        }
        let (here, former) = (here(row)?, self.known.lock().clone());
        let (remembered, unnamed) = self.acknowledged.lock().recent(Instant::now());
        if former.is_some() {
            self.report_lost(connection, here.1, &remembered, unnamed).await?;
        }
        let latest = query(&self.latest).bind(1_i64).persistent(false);
        let rows = latest.fetch_all(&mut *connection).await.map_err(before)?;
        let failover = rows.first().map(read).transpose()?;
        let newest = remembered.last().map(|one| one.at);
        Ok(Some(TimelineChange { timeline: self, here, former, failover, newest, _alone: alone }))
    }

    /// Searches for the messages that this process remembers, and records the lost ones.
    async fn report_lost(
        &self,
        connection: &mut PgConnection,
        epoch: i64,
        remembered: &[Acknowledged],
        unnamed: Option<(u64, Instant)>,
    ) -> Result<()> {
        let recent: Vec<&Acknowledged> = remembered.iter().collect();
        let missing = query(&self.missing)
            .bind(recent.iter().map(|one| one.lane).collect::<Vec<_>>())
            .bind(recent.iter().map(|one| one.key.as_bytes().to_vec()).collect::<Vec<_>>())
            .bind(recent.iter().map(|one| one.handler()).collect::<Vec<_>>())
            .bind(recent.iter().map(|one| one.inbox).collect::<Vec<_>>())
            .bind(recent.iter().map(|one| millis(one.at.elapsed())).collect::<Vec<_>>())
            .persistent(false);
        let rows = missing.fetch_all(&mut *connection).await.map_err(before)?;
        let mut gone = Vec::with_capacity(rows.len());
        for row in &rows {
            gone.push(usize::try_from(get::<i32>(row, 0)?).unwrap_or(usize::MAX));
        }
        let lost = lost(&recent, &gone);
        let (Some(first), Some(last)) = (lost.first(), lost.last()) else { return Ok(()) };
        // A failover loses the newest messages. Older ones are lost only if all remembered ones are lost.
        let unnamed = unnamed.filter(|_| lost.len() == recent.len());
        let named: Vec<(&str, &[u8])> = lost.iter().filter_map(|one| one.name()).collect();
        let report = query(&self.lost)
            .bind(self.now())
            .bind(epoch)
            .bind(named.iter().map(|(source, _)| (*source).to_owned()).collect::<Vec<_>>())
            .bind(named.iter().map(|(_, id)| id.to_vec()).collect::<Vec<_>>())
            .bind(millis(first.at.elapsed()))
            .bind(millis(last.at.elapsed()))
            .bind(i64::try_from(lost.len() - named.len()).unwrap_or(i64::MAX))
            .bind(unnamed.map_or(0, |(count, _)| i64::try_from(count).unwrap_or(i64::MAX)))
            .bind(unnamed.map(|(_, since)| millis(since.elapsed())))
            .persistent(false);
        report.execute(&mut *connection).await.map_err(before)?;
        for (source, id) in named.iter().take(NAMED) {
            let id = id.escape_ascii();
            tracing::error!(source, %id, "acknowledged message lost in failover");
        }
        if let Some((count, since)) = unnamed {
            tracing::error!(count, age = ?since.elapsed(), "older acknowledged messages may be lost");
        }
        Ok(())
    }
}

/// A new history, found in a transaction that is still open.
pub(crate) struct TimelineChange<'a> {
    timeline: &'a Timeline,
    here: (String, i64),
    former: Option<(String, i64)>,
    failover: Option<Failover>,
    /// Time of the latest remembered acknowledgement.
    newest: Option<Instant>,
    _alone: tokio::sync::MutexGuard<'a, ()>,
}

impl TimelineChange<'_> {
    /// Applies the change. Call it after the commit.
    pub(crate) fn committed(self) -> Notice {
        let Self { timeline, here, former, failover, newest, _alone } = self;
        *timeline.failover.lock() = failover;
        let (Some((former, _)), Some(failover)) = (former, failover) else {
            *timeline.known.lock() = Some(here);
            return Notice::First;
        };
        // Messages acknowledged meanwhile belong to the new history.
        if let Some(newest) = newest {
            timeline.acknowledged.lock().forget_until(newest);
        }
        if let Some(db) = timeline.db.get().and_then(Weak::upgrade) {
            // Count the change while the names are cleared, so that no id of the new history is taken for one of the
            // former.
            db.names.forget(|| timeline.changes.fetch_add(1, Ordering::AcqRel));
            db.cursors.forget();
        }
        // Set this last: a connection that finds the history known continues with the caller's values.
        *timeline.known.lock() = Some(here);
        tracing::warn!(
            epoch = failover.epoch,
            former,
            lost_messages = failover.lost_messages,
            lost_marks = failover.lost_marks,
            lost_claims = failover.lost_claims,
            unnamed = failover.unnamed,
            "the database failed over"
        );
        Notice::Changed
    }
}

/// Consequence of a check for the connection that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The first history that this process knows.
    First,
    /// The caller's values belong to the former timeline.
    Changed,
}

/// Reads timeline and epoch from the result of a check.
fn here(row: &PgRow) -> Result<(String, i64)> {
    Ok((get(row, 0)?, get(row, 1)?))
}

/// Returns remembered messages that a failover lost. A failover loses the newest: retention deleted a missing message
/// that is older than all present ones.
fn lost<T: Copy>(recent: &[T], gone: &[usize]) -> Vec<T> {
    let mut present = recent.iter().enumerate().filter(|(at, _)| gone.binary_search(at).is_err());
    let oldest = present.next().map_or(0, |(at, _)| at);
    gone.iter().filter(|at| **at >= oldest).filter_map(|at| recent.get(*at).copied()).collect()
}

/// Reads a failover, with the columns of `timeline/latest.sql`.
fn read(row: &PgRow) -> Result<Failover> {
    let time = |column| Ok(get::<Option<i64>>(row, column)?.map(Timestamp::from_millis));
    let mut failover = Failover::new(get(row, 0)?, Timestamp::from_millis(get(row, 1)?));
    failover.lost_claims = get::<i64>(row, 4)?.unsigned_abs();
    failover.lost_messages = get::<i64>(row, 5)?.unsigned_abs();
    failover.lost_between = time(6)?.zip(time(7)?);
    failover.lost_marks = get::<i64>(row, 8)?.unsigned_abs();
    failover.unnamed = get::<i64>(row, 9)?.unsigned_abs();
    failover.unnamed_since = time(10)?;
    Ok(failover)
}

/// Returns the latest failovers, for `doctor`.
pub(crate) async fn failovers(
    db: &Db,
    session: &mut crate::session::PgSession,
    limit: i64,
) -> Result<Vec<Failover>> {
    session.rows(query(&db.sql.timeline_latest).bind(limit)).await?.iter().map(read).collect()
}

/// Returns the error of a connection that noticed a changed history. Nothing was done on it.
pub(crate) fn changed() -> Error {
    let what = "the database failed over to another history; the store starts over with what it knows of it";
    Error::new(ErrorKind::Unavailable, what)
}

fn before(error: sqlx::Error) -> Error {
    store_error(error, TxPhase::Before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_left_before_all_that_is_there_was_not_lost() {
        let seqs = |gone: &[usize]| lost(&[1, 2, 3, 4], gone);
        assert_eq!(seqs(&[]), [] as [i32; 0]);
        assert_eq!(seqs(&[0, 3]), [4]);
        assert_eq!(seqs(&[1, 2, 3]), [2, 3, 4]);
        assert_eq!(seqs(&[0, 1, 2, 3]), [1, 2, 3, 4]);
    }
}
