//! Vacuums the hot table: frees the space of dead rows. Tests: `tests/vacuum.rs`.
//!
//! Autovacuum checks only once a minute. At tens of thousands of messages a second, a million dead rows have collected by
//! then: the table no longer fits in memory, and every claim scans over them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use oncebox_core::Result;
use oncebox_core::time::SharedClock;
use oncebox_tokio::SystemClock;
use parking_lot::Mutex;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Executor as _};

use crate::db::{Db, SharedDb};
use crate::error::TxPhase;
use crate::row::get;
use crate::session::query;

/// Interval of this process's checks.
const EVERY: Duration = Duration::from_secs(5);
/// Share of the time for vacuums: one part in this many.
const SHARE: u32 = 20;
/// Delay after a run that removed nothing, because an open transaction may still see the deleted rows.
const HELD: Duration = Duration::from_mins(1);
/// Delay after a vacuum without the privilege for it.
const FORBIDDEN: Duration = Duration::from_hours(1);

/// Time of the next check.
pub(crate) struct VacuumSchedule {
    clock: SharedClock,
    /// `None` while a check runs.
    next: Mutex<Option<Duration>>,
}

impl VacuumSchedule {
    pub(crate) fn new(clock: Option<&SharedClock>) -> Self {
        let clock = clock.cloned().unwrap_or_else(SystemClock::shared);
        let next = Mutex::new(Some(clock.monotonic().saturating_add(EVERY)));
        Self { clock, next }
    }

    /// Returns true once per interval. The caller then runs the check.
    fn begin(&self) -> bool {
        let mut next = self.next.lock();
        let due = next.is_some_and(|next| self.clock.monotonic() >= next);
        if due {
            *next = None;
        }
        due
    }

    fn end(&self, wait: Duration) {
        *self.next.lock() = Some(self.clock.monotonic().saturating_add(wait));
    }
}

/// A check in progress. Dropping it schedules the next one.
struct VacuumCheck {
    db: SharedDb,
    wait: Duration,
}

impl VacuumCheck {
    async fn finish(mut self) {
        match vacuum(&self.db).await {
            Ok(wait) => self.wait = wait,
            Err(error) => {
                tracing::debug!(%error, "cannot vacuum the entry table");
            }
        }
    }
}

impl Drop for VacuumCheck {
    fn drop(&mut self) {
        self.db.vacuum.end(self.wait);
    }
}

/// Starts a vacuum beside a claim, if a check is due.
pub(crate) fn if_due(db: &SharedDb) {
    if !db.vacuum.begin() {
        return;
    }
    let look = VacuumCheck { db: Arc::clone(db), wait: HELD };
    tokio::spawn(look.finish());
}

/// Vacuums if needed, and returns the delay until the next check.
async fn vacuum(db: &Db) -> Result<Duration> {
    let before = state(db).await?;
    if !before.may {
        return Ok(FORBIDDEN);
    }
    if !before.due {
        return Ok(EVERY);
    }
    let start = Instant::now();
    let vacuum = Arc::clone(&db.sql.vacuum_run);
    // VACUUM cannot run in a transaction, so it needs no session.
    let mut lent = db.reads.pool.acquire().await?;
    lent.answer(TxPhase::Before, async |connection: &mut PgConnection| {
        connection.execute(sqlx::raw_sql(AssertSqlSafe(vacuum))).await
    })
    .await?;
    lent.give_back();
    let took = start.elapsed();
    // Rows deleted during the vacuum are dead rows, too.
    let held = state(db).await?.dead > before.dead / 2;
    Ok(if held { HELD } else { EVERY }.max(took * SHARE))
}

/// State of the table.
struct VacuumNeed {
    may: bool,
    due: bool,
    /// Deleted rows that a vacuum has not removed yet.
    dead: i64,
}

async fn state(db: &Db) -> Result<VacuumNeed> {
    let mut session = db.reads.look().await?;
    let rows = session.rows(query(&db.sql.vacuum_due)).await?;
    session.end().await?;
    let Some(row) = rows.first() else { return Ok(VacuumNeed { may: false, due: false, dead: 0 }) };
    Ok(VacuumNeed { may: get(row, 0)?, due: get(row, 1)?, dead: get(row, 2)? })
}
