//! Partitions of messages and history: created ahead of time, and dropped whole once all of their keys are swept.
//! Tests: `tests/retention.rs`, `tests/retention_races.rs`.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::{ErrorKind, Result};

use crate::db::{Db, lock_number, millis};
use crate::row::get;
use crate::session::{PgSession, query};

/// Maximum messages that are moved before a partition is dropped. A partition that must keep more is dropped later.
const KEPT: i64 = 10_000;
/// Number of bits of a sequence number below its partition.
const PARTITION_BITS: u32 = 36;
/// Number of bits of a sequence number below its count within the partition.
const COUNT_BITS: u32 = 6;

/// Maximum size setting of a partition: half of its numbers, because a full partition that cannot be ended at once
/// takes more messages for a while.
pub(crate) const MAX_SIZE: i64 = 1 << (PARTITION_BITS - COUNT_BITS - 1);

/// Limits at which a partition ends.
#[derive(Clone, Debug)]
pub(crate) struct PartitionLimits {
    /// Maximum age.
    pub(crate) life: Duration,
    /// Maximum messages.
    pub(crate) size: i64,
    /// Retention of messages. Default: as long as their keys.
    pub(crate) payload: Option<Duration>,
}

/// Returns the position of a message within its partition.
pub(crate) const fn count_of(seq: i64) -> i64 {
    (seq & ((1 << PARTITION_BITS) - 1)) >> COUNT_BITS
}

/// Creates, ends and drops partitions when they are due. Drops no partition whole before `retention`, the
/// longest window of all, has passed. The next call repeats a failed step, because no other work depends on
/// it. Returns an error that a repeat cannot fix, such as a missing privilege.
pub(crate) async fn look_after(db: &Db, partitions: &PartitionLimits, retention: Duration) -> Result<()> {
    let looked_after = async {
        let (current, now) = go_on(db, partitions).await?;
        drop_old(db, partitions, current, now, retention).await
    };
    match looked_after.await {
        Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::CommitUnknown) => {
            tracing::info!(%error, "partition upkeep failed, retrying later");
            Ok(())
        }
        done => done,
    }
}

/// Ends the partition if it is due. Returns the current partition and the time.
pub(crate) async fn go_on(db: &Db, partitions: &PartitionLimits) -> Result<(i64, i64)> {
    let mut session = db.control.transaction().await?;
    // Take the lock first, so that the state read after it stays true.
    let alone = alone(db, &mut session).await?;
    let rows = session.rows(query(&db.sql.partition_state).bind(db.now())).await?;
    let Some(row) = rows.first() else {
        return Err(crate::error::corrupt("the table of what all messages share is empty"));
    };
    let (current, started_at): (i64, Option<i64>) = (get(row, 0)?, get(row, 1)?);
    let (count, now): (i64, i64) = (get(row, 2)?, get(row, 3)?);
    if !alone {
        session.end().await?;
        return Ok((current, now));
    }
    if started_at.is_none() {
        session.run(query(&db.sql.partition_start).bind(now)).await?;
    }
    let old = started_at.is_some_and(|at| now.saturating_sub(at) >= millis(partitions.life));
    if count < partitions.size && !(old && count > 0) {
        session.end().await?;
        return Ok((current, now));
    }
    session.batch(Arc::clone(&db.sql.partition_patience)).await?;
    // The next partition exists since the last call. Create the one after it ahead of time.
    for next in [current + 1, current + 2] {
        session.rows(query(&db.sql.partition_make).bind(next)).await?;
    }
    session.run(query(&db.sql.partition_rotate).bind(current).bind(now)).await?;
    session.end().await?;
    Ok((current + 1, now))
}

async fn alone(db: &Db, session: &mut PgSession) -> Result<bool> {
    let lock = lock_number(&[b"partitions", &db.lock_class.to_le_bytes()]);
    let rows = session.rows(query(&db.sql.partition_lock).bind(lock)).await?;
    rows.first().map_or(Ok(false), |row| get(row, 0))
}

async fn drop_old(
    db: &Db,
    partitions: &PartitionLimits,
    current: i64,
    now: i64,
    retention: Duration,
) -> Result<()> {
    let mut session = db.control.single().await?;
    let rows = session.rows(query(&db.sql.partition_list).bind(current)).await?;
    session.end().await?;
    for row in rows {
        let (id, ended_at, payload): (i64, i64, bool) = (get(&row, 0)?, get(&row, 1)?, get(&row, 2)?);
        let age = now.saturating_sub(ended_at);
        if age >= millis(retention) && drop_one(db, id, true).await? {
            continue;
        }
        if payload && partitions.payload.is_some_and(|life| age >= millis(life)) {
            drop_one(db, id, false).await?;
        }
    }
    Ok(())
}

/// Drops a partition, or only its messages. Returns false, and drops nothing, while too many of its messages are
/// needed.
async fn drop_one(db: &Db, id: i64, whole: bool) -> Result<bool> {
    let (first, last) = (id << PARTITION_BITS, ((id + 1) << PARTITION_BITS) - 1);
    let mut session = db.control.transaction().await?;
    if !alone(db, &mut session).await? || needed(db, &mut session, whole, first, last).await?.is_none() {
        return Ok(false);
    }
    session.batch(Arc::clone(&db.sql.partition_patience)).await?;
    session.batch(Arc::clone(&db.sql.partition_lock_messages)).await?;
    // Check again: from here on no process can add work to a message of the partition.
    let Some(kept) = needed(db, &mut session, whole, first, last).await? else { return Ok(false) };
    let sql = if whole { &db.sql.partition_drop } else { &db.sql.partition_drop_payload };
    session.rows(query(sql).bind(id).bind(kept)).await?;
    session.end().await?;
    Ok(true)
}

/// Returns the messages of a partition that must stay. `None` if they are too many.
async fn needed(
    db: &Db,
    session: &mut PgSession,
    whole: bool,
    first: i64,
    last: i64,
) -> Result<Option<Vec<i64>>> {
    let question = if whole {
        query(&db.sql.partition_proofs)
    } else {
        let rows = session.rows(query(&db.sql.partition_handlers)).await?;
        let handlers = rows.iter().map(|row| get::<i16>(row, 0)).collect::<Result<Vec<_>>>()?;
        query(&db.sql.partition_unfinished).bind(db.all_lanes()).bind(handlers)
    };
    let rows = session.rows(question.bind(first).bind(last).bind(KEPT + 1)).await?;
    let seqs = rows.iter().map(|row| get::<i64>(row, 0)).collect::<Result<Vec<_>>>()?;
    Ok((i64::try_from(seqs.len()).unwrap_or(i64::MAX) <= KEPT).then_some(seqs))
}
