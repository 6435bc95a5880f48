//! Shared state of every verb: statements, connections, names and lane numbers.

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

/// The bits of a message's number that say its lane.
const LANE_BITS: i64 = 63;
/// Number of advisory locks for order queues: enough that unrelated queues seldom share one, and few enough for the
/// server's lock table.
const BUCKETS: u16 = 256;
/// A span of time so long that it never ends, and can still be added to any time.
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
    /// The clock to go by; the server's own if there is none.
    pub(crate) clock: Option<SharedClock>,
    pub(crate) lanes: i16,
    /// The identity of the tables: marks in the transaction of another database find another one.
    pub(crate) incarnation: Arc<str>,
    /// Tells our advisory locks from those of another inbox in the same database.
    pub(crate) lock_class: i32,
    /// The same for the locks of callers' transactions that accept.
    pub(crate) open_class: i32,
}

impl Db {
    /// Time of the injected clock. `None`: the server's clock counts.
    pub(crate) fn now(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| clock.now().as_millis())
    }

    /// The lane of a key.
    pub(crate) fn lane_of(&self, key: &Key) -> i16 {
        i16::from(key.as_bytes()[0]) % self.lanes
    }

    /// The lane of a message: of its order key if it has one, so that a line lies in one lane.
    pub(crate) fn home_of(&self, key: &Key, order: Option<&OrderKey>) -> i16 {
        order.map_or_else(|| self.lane_of(key), |order| i16::from(order.as_bytes()[0]) % self.lanes)
    }

    /// One view of everything, for operators.
    pub(crate) async fn reads(&self) -> Result<PgSession> {
        self.reads.view().await
    }

    /// Every lane there is.
    pub(crate) fn all_lanes(&self) -> Vec<i16> {
        (0..self.lanes).collect()
    }
}

/// The lane of a message, as its number says.
pub(crate) fn lane(seq: Seq) -> i16 {
    i16::try_from(seq.0 & LANE_BITS).unwrap_or(0)
}

/// A span of time, in the unit of the tables.
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

    /// Takes the locks of the lines, for the rest of the transaction.
    pub(crate) async fn lock(&mut self, db: &Db, session: &mut PgSession) -> Result<()> {
        let locks = self.locks();
        session.rows(query(&db.sql.order_lock).bind(db.lock_class).bind(locks)).await?;
        Ok(())
    }

    /// Lets the first of each line go that may, and parks those that one before them parks.
    pub(crate) async fn release(&self, db: &Db, session: &mut PgSession) -> Result<Released> {
        let rows = session.rows(self.bind(query(&db.sql.order_release).bind(db.now()))).await?;
        let released = |row: &PgRow| Ok(((get(row, 0)?, get(row, 1)?), get(row, 2)?));
        Ok(Released(rows.iter().map(released).collect::<Result<_>>()?))
    }

    /// Makes those pending again that nothing parks any more.
    pub(crate) async fn unpark(&self, db: &Db, session: &mut PgSession) -> Result<()> {
        session.run(self.bind(query(&db.sql.order_unpark))).await?;
        Ok(())
    }

    /// The same after an entry has joined that may be older than one that was let go before.
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

    /// Lanes, handlers and numbers from the columns from `first` on.
    pub(crate) fn of(row: &PgRow, first: usize) -> Result<Self> {
        let lanes = get::<Option<Vec<i16>>>(row, first)?.unwrap_or_default();
        let handlers = get::<Option<Vec<i16>>>(row, first + 1)?.unwrap_or_default();
        let seqs = get::<Option<Vec<i64>>>(row, first + 2)?.unwrap_or_default();
        Ok(Self(lanes.into_iter().zip(handlers).zip(seqs).collect()))
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Has the claims of this process look at it. To be said when it is committed.
    pub(crate) fn notify(self, db: &Db) {
        for (place, seq) in self.0 {
            db.cursors.rewind(place, seq);
        }
    }
}

/// Of the order key alone: a handler may have several keys, and a line runs through all of them.
fn bucket(order_key: &[u8]) -> i32 {
    let hash = order_key.iter().skip(1).take(2).fold(0, |hash, byte| hash << 8 | u16::from(*byte));
    i32::from(hash % BUCKETS)
}

/// A number for an advisory lock, of anything.
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
