//! Shared state of every verb: statements, connections, names and lane numbers. Tests: the testkit's conformance suite.

use std::sync::Arc;
use std::time::Duration;

use oncebox_core::store::Seq;
use oncebox_core::time::SharedClock;
use oncebox_core::{Key, OrderKey, Result};
use sha2::{Digest as _, Sha256};
use sqlx::postgres::PgRow;

use crate::accept::DuplicateExpectation;
use crate::cursors::Cursors;
use crate::names::NameCache;
use crate::row::get;
use crate::session::{PgSession, Query, Sessions, query};
use crate::sql::Statements;
use crate::timeline::Timeline;
use crate::vacuum::VacuumSchedule;
use crate::wake::Waker;

/// Bits of a message's number that are its lane.
const LANE_BITS: i64 = 63;
/// Number of advisory locks for order queues: enough that unrelated queues seldom share one, and few enough for the
/// server's lock table.
const BUCKETS: u16 = 256;
/// An endless duration in milliseconds. Its sum with any time does not overflow.
pub(crate) const FOREVER: i64 = i64::MAX / 4;

pub(crate) struct Db {
    pub(crate) sql: Statements,
    pub(crate) control: Sessions,
    pub(crate) reads: Sessions,
    pub(crate) names: NameCache,
    pub(crate) cursors: Cursors,
    pub(crate) duplicate_expectation: DuplicateExpectation,
    pub(crate) vacuum: VacuumSchedule,
    pub(crate) timeline: Arc<Timeline>,
    pub(crate) waker: Waker,
    /// Injected clock. `None`: the server's clock counts.
    pub(crate) clock: Option<SharedClock>,
    pub(crate) lanes: i16,
    /// Identity of the tables. A mark in the transaction of another database finds another identity.
    pub(crate) incarnation: Arc<str>,
    /// Class of the store's advisory locks, which separates them from those of another inbox in the same database.
    pub(crate) lock_class: i32,
    /// Class of the locks of callers' transactions that accept.
    pub(crate) open_class: i32,
}

impl Db {
    /// Returns the time of the injected clock. `None`: the server's clock counts.
    pub(crate) fn now(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| clock.now().as_millis())
    }

    /// Returns the lane of a key.
    pub(crate) fn lane_of(&self, key: &Key) -> i16 {
        i16::from(key.as_bytes()[0]) % self.lanes
    }

    /// Returns the lane of a message. Uses its order key if it has one, so that a line is in one lane.
    pub(crate) fn home_of(&self, key: &Key, order: Option<&OrderKey>) -> i16 {
        order.map_or_else(|| self.lane_of(key), |order| i16::from(order.as_bytes()[0]) % self.lanes)
    }

    /// Returns a session with one snapshot for all queries, for operators.
    pub(crate) async fn reads(&self) -> Result<PgSession> {
        self.reads.view().await
    }

    /// Returns all lanes.
    pub(crate) fn all_lanes(&self) -> Vec<i16> {
        (0..self.lanes).collect()
    }
}

/// Returns the lane in a message's number.
pub(crate) fn lane(seq: Seq) -> i16 {
    i16::try_from(seq.0 & LANE_BITS).unwrap_or(0)
}

/// Converts a duration to milliseconds, the unit of the tables.
pub(crate) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).map_or(FOREVER, |millis| millis.min(FOREVER))
}

/// Lines of ordered entries that a change touches.
#[derive(Default)]
pub(crate) struct TouchedQueues {
    lines: Vec<(i16, i16, Vec<u8>)>,
}

impl TouchedQueues {
    pub(crate) fn add(&mut self, lane: i16, handler: i16, order_key: Vec<u8>) {
        self.lines.push((lane, handler, order_key));
    }

    /// Lanes, handlers and order keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(i16, i16, Vec<u8>)> {
        self.lines.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns the locks of the lines, in the order in which every caller takes them. Removes repeated lines.
    pub(crate) fn locks(&mut self) -> Vec<i32> {
        self.lines.sort_unstable();
        self.lines.dedup();
        let mut buckets: Vec<i32> = self.lines.iter().map(|(_, _, order)| bucket(order)).collect();
        buckets.sort_unstable();
        buckets.dedup();
        buckets
    }

    /// Takes the locks of the lines until the transaction ends.
    pub(crate) async fn lock(&mut self, db: &Db, session: &mut PgSession) -> Result<()> {
        let locks = self.locks();
        session.rows(query(&db.sql.order_lock).bind(db.lock_class).bind(locks)).await?;
        Ok(())
    }

    /// Releases the first entry of each line if it may run, and parks the entries behind one that parks.
    pub(crate) async fn release(&self, db: &Db, session: &mut PgSession) -> Result<Released> {
        let rows = session.rows(self.bind(query(&db.sql.order_release).bind(db.now()))).await?;
        let released = |row: &PgRow| Ok(((get(row, 0)?, get(row, 1)?), get(row, 2)?));
        Ok(Released(rows.iter().map(released).collect::<Result<_>>()?))
    }

    /// Makes parked entries pending again if no entry parks them any more.
    pub(crate) async fn unpark(&self, db: &Db, session: &mut PgSession) -> Result<()> {
        session.run(self.bind(query(&db.sql.order_unpark))).await?;
        Ok(())
    }

    /// Like `release`, after an entry has joined that may be older than the released one.
    pub(crate) async fn rearrange(&self, db: &Db, session: &mut PgSession) -> Result<Released> {
        session.run(self.bind(query(&db.sql.order_wait_turn))).await?;
        self.release(db, session).await
    }

    pub(crate) fn bind<'q>(&self, query: Query<'q>) -> Query<'q> {
        query
            .bind(self.lines.iter().map(|(lane, ..)| *lane).collect::<Vec<_>>())
            .bind(self.lines.iter().map(|(_, handler, _)| *handler).collect::<Vec<_>>())
            .bind(self.lines.iter().map(|(_, _, order_key)| order_key.clone()).collect::<Vec<_>>())
    }
}

/// Places where followers became claimable. A follower may have a lower number than the last claimed entry.
#[derive(Debug, Default)]
#[must_use = "claims may look past what was let go"]
pub(crate) struct Released(Vec<((i16, i16), i64)>);

impl Released {
    pub(crate) fn new(places: Vec<((i16, i16), i64)>) -> Self {
        Self(places)
    }

    /// Returns lanes, handlers and the least numbers, for a caller that notifies later.
    pub(crate) fn into_places(self) -> Vec<((i16, i16), i64)> {
        self.0
    }

    /// Reads lanes, handlers and numbers from the columns from `first` on.
    pub(crate) fn of(row: &PgRow, first: usize) -> Result<Self> {
        let lanes = get::<Option<Vec<i16>>>(row, first)?.unwrap_or_default();
        let handlers = get::<Option<Vec<i16>>>(row, first + 1)?.unwrap_or_default();
        let seqs = get::<Option<Vec<i64>>>(row, first + 2)?.unwrap_or_default();
        Ok(Self(lanes.into_iter().zip(handlers).zip(seqs).collect()))
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Makes claims of this process scan the released entries. Call it after the commit.
    pub(crate) fn notify(self, db: &Db) {
        for (place, seq) in self.0 {
            db.cursors.rewind(place, seq);
        }
    }
}

/// Returns the lock of an order key. The handler does not count, because a line spans all keys of its handler.
fn bucket(order_key: &[u8]) -> i32 {
    let hash = order_key.iter().skip(1).take(2).fold(0, |hash, byte| hash << 8 | u16::from(*byte));
    i32::from(hash % BUCKETS)
}

/// Hashes parts to the number of an advisory lock.
pub(crate) fn lock_number(parts: &[&[u8]]) -> i64 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hash = hash.finalize();
    i64::from_be_bytes(std::array::from_fn(|index| hash[index]))
}

pub(crate) type SharedDb = Arc<Db>;
