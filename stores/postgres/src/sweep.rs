//! Sweep: deletes keys of finished messages that are past their retention, in order and in pages. Messages and history
//! are dropped with their partition. Tests: `tests/retention.rs`, `tests/windows.rs`.

use std::time::Duration;

use oncebox_core::Result;
use oncebox_core::store::{RetentionWindows, Seq, SweepCursor, SweepParams, SweepPosition, Swept};
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::db::{Db, millis};
use crate::operation;
use crate::partition::{self, PartitionLimits};
use crate::register;
use crate::row::get;
use crate::session::{PgSession, Sessions, query};

pub(crate) async fn sweep(db: &Db, partitions: &PartitionLimits, params: &SweepParams) -> Result<Swept> {
    let control = db.control.knowing(db.timeline.changes());
    let inbox = db.inbox(&params.inbox).await?;
    // Runs before it takes a connection: a caller that holds one must not wait for another.
    let handlers = db.keys_of(inbox).await?;
    let mut session = control.single().await?;
    let (windows, _) = register::windows(db, &mut session, inbox, params).await?;
    session.end().await?;
    let windows = windows.over(handlers.values().filter(|keys| keys.len() > 1).cloned());
    let handlers = handlers.into_iter().map(|(id, keys)| (id, windows.of(&keys[0]))).collect();
    let mut page = SweepStep { db, control, inbox, params, windows, handlers, swept: Swept::NOTHING };
    let start = params.after.unwrap_or(SweepPosition::START);
    let mut walks: Vec<SweepPosition> = Vec::new();
    for window in page.windows.lengths().into_iter().filter(|window| *window >= start.window) {
        walks.push(SweepPosition::new(window, if window == start.window { start.seq } else { Seq(0) }));
    }
    // One transaction per window: a transaction that holds the keys of one window must not wait for those of another.
    let mut walked = Ok(());
    for at in walks {
        match page.one(Some(at)).await {
            Ok(false) => return Ok(page.swept),
            Ok(true) => {}
            // A scan that always fails must not keep the sweep from marks and partitions.
            Err(error) => walked = Err(error),
        }
        if page.swept.next.is_some() || walked.is_err() {
            break;
        }
    }
    let marks = page.one(None).await.map(drop);
    if page.swept.next.is_none() {
        let looked_after = partition::look_after(db, partitions, page.windows.longest()).await;
        walked.and(marks).and(looked_after)?;
    } else {
        walked.and(marks)?;
    }
    Ok(page.swept)
}

/// A page of a sweep.
struct SweepStep<'a> {
    db: &'a Db,
    control: Sessions,
    inbox: i16,
    params: &'a SweepParams,
    windows: RetentionWindows,
    /// Handlers of the inbox, with the window of each.
    handlers: Vec<(i16, Duration)>,
    swept: Swept,
}

impl SweepStep<'_> {
    /// Continues with one window, or with marks at the end of the page. Returns false if another process sweeps.
    async fn one(&mut self, cursor: Option<SweepPosition>) -> Result<bool> {
        let (db, params) = (self.db, self.params);
        let sweep_id = Uuid::from_bytes(*params.sweep_id.as_bytes());
        let mut session = self.control.transaction().await?;
        let of = |sql| query(sql).bind(db.now()).bind(self.inbox).bind(sweep_id);
        let (begin, go_on) = (of(&db.sql.sweep_begin), of(&db.sql.sweep_go_on));
        if session.rows(begin).await?.is_empty() && session.rows(go_on).await?.is_empty() {
            session.end().await?;
            self.swept.next = None;
            return Ok(false);
        }
        if let Some(at) = cursor {
            let limit = params.limit.saturating_sub(self.swept.looked);
            self.swept.next = self.scan_page(&mut session, at, limit).await?;
        } else {
            self.marks(&mut session, params).await?;
            self.swept.operations = operation::forget(db, &mut session, self.inbox, params).await?;
        }
        self.swept.next = self.swept.next.filter(|_| params.limit > 0);
        let goes_on = cursor.is_some() || self.swept.next.is_some();
        let renew_sweep = query(&db.sql.sweep_renew)
            .bind(db.now())
            .bind(self.inbox)
            .bind(goes_on.then_some(sweep_id))
            .bind(millis(params.lease));
        session.run(renew_sweep).await?;
        session.end().await?;
        Ok(true)
    }

    /// Checks messages that may be past one window. Returns the next position.
    async fn scan_page(
        &mut self,
        session: &mut PgSession,
        at: SweepPosition,
        limit: usize,
    ) -> Result<Option<SweepPosition>> {
        let before = self.load(session, at.window).await?;
        let mut cursor = before.clone();
        let (again, from) = (cursor.again(at.seq, limit), cursor.from(at.seq));
        let looked = self.look(session, at.window, from, limit - again.len()).await?;
        // Last, because it waits for no lock.
        if !again.is_empty() {
            cursor.gone(&self.look_again(session, &again).await?);
        }
        if let Some(passed) = looked.passed {
            cursor.pass(from, passed, &looked.stays);
        }
        if cursor != before {
            self.save(session, at.window, &cursor).await?;
        }
        let count = again.len() + looked.count;
        self.swept.looked += count;
        let last = looked.last.or(again.last().copied()).unwrap_or(at.seq);
        Ok((count >= limit).then_some(SweepPosition::new(at.window, last)))
    }

    /// Checks messages in order, and deletes those past their retention.
    async fn look(
        &mut self,
        session: &mut PgSession,
        window: Duration,
        after: Seq,
        limit: usize,
    ) -> Result<Looked> {
        let settled = self.settled(session, window).await?;
        let longer = self.handlers.iter().filter(|(_, own)| *own > window).map(|(id, _)| *id);
        let (ids, spans) = self.spans();
        let proofs = query(&self.db.sql.sweep_proofs)
            .bind(self.db.now())
            .bind(self.inbox)
            .bind(millis(window))
            .bind(after.0)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .bind(self.db.all_lanes())
            .bind(millis(self.windows.default_window()))
            .bind(ids)
            .bind(spans)
            .bind(longer.collect::<Vec<_>>())
            .bind(settled)
            .bind(i64::try_from(SweepCursor::MAX_LEFT).unwrap_or(i64::MAX).saturating_add(1));
        let rows = session.rows(proofs).await?;
        let Some(row) = rows.first() else { return Ok(Looked::default()) };
        self.count_gone(row, 5)?;
        Ok(Looked {
            count: usize::try_from(get::<i64>(row, 1)?).unwrap_or(0),
            last: get::<Option<i64>>(row, 2)?.map(Seq),
            passed: get::<Option<i64>>(row, 3)?.map(Seq),
            stays: get::<Vec<i64>>(row, 4)?.into_iter().map(Seq).collect(),
        })
    }

    /// Returns the age in ms at which no earlier message can appear. Numbers of a caller's transaction appear when it ends.
    async fn settled(&self, session: &mut PgSession, window: Duration) -> Result<i64> {
        let open_for = query(&self.db.sql.sweep_open_for).bind(self.db.now()).bind(self.db.open_class);
        let rows = session.rows(open_for).await?;
        let open_for: i64 = rows.first().map_or(Ok(0), |row| get(row, 0))?;
        let after_last = if open_for > 0 { open_for.saturating_add(millis(SweepCursor::SETTLED)) } else { 0 };
        Ok(after_last.max(millis(window.max(SweepCursor::SETTLED))))
    }

    /// Checks messages again that an earlier sweep left. Returns those that no longer exist.
    async fn look_again(&mut self, session: &mut PgSession, seqs: &[Seq]) -> Result<Vec<Seq>> {
        let (ids, spans) = self.spans();
        let again = query(&self.db.sql.sweep_again)
            .bind(self.db.now())
            .bind(self.inbox)
            .bind(seqs.iter().map(|seq| seq.0).collect::<Vec<_>>())
            .bind(millis(self.windows.default_window()))
            .bind(ids)
            .bind(spans);
        let rows = session.rows(again).await?;
        let Some(row) = rows.first() else { return Ok(Vec::new()) };
        self.count_gone(row, 2)?;
        Ok(get::<Vec<i64>>(row, 1)?.into_iter().map(Seq).collect())
    }

    /// Adds the messages in the first column of a row, and the entries in column `entries`.
    fn count_gone(&mut self, row: &PgRow, entries: usize) -> Result<()> {
        self.swept.messages += usize::try_from(get::<i64>(row, 0)?).unwrap_or(0);
        self.swept.entries += usize::try_from(get::<i64>(row, entries)?).unwrap_or(0);
        Ok(())
    }

    /// Returns the ids of the handlers, and their windows.
    fn spans(&self) -> (Vec<i16>, Vec<i64>) {
        self.handlers.iter().map(|(id, window)| (*id, millis(*window))).unzip()
    }

    async fn marks(&mut self, session: &mut PgSession, params: &SweepParams) -> Result<()> {
        let own = self.windows.own().map(|(key, window)| (key.as_str().to_owned(), millis(window)));
        let (keys, spans): (Vec<String>, Vec<i64>) = own.unzip();
        let marks = query(&self.db.sql.sweep_marks)
            .bind(self.db.now())
            .bind(params.inbox.as_str().to_owned())
            .bind(millis(self.windows.default_window()))
            .bind(i64::try_from(params.limit).unwrap_or(i64::MAX))
            .bind(keys)
            .bind(spans);
        self.swept.marks = usize::try_from(session.run(marks).await?).unwrap_or(usize::MAX);
        if self.swept.marks >= params.limit {
            // Marks have no sequence: when only they are left, the next page starts behind everything.
            let behind = SweepPosition::new(self.windows.longest(), Seq(i64::MAX));
            self.swept.next = self.swept.next.or(Some(behind));
        }
        Ok(())
    }

    /// Reads the sweep cursor of a window.
    async fn load(&self, session: &mut PgSession, window: Duration) -> Result<SweepCursor> {
        let cursor = query(&self.db.sql.sweep_cursor)
            .bind(self.inbox)
            .bind(millis(window))
            .bind(self.windows.digest());
        let rows = session.rows(cursor).await?;
        let Some(row) = rows.first() else { return Ok(SweepCursor::default()) };
        let behind: Vec<i64> = get(row, 1)?;
        Ok(SweepCursor::new(Seq(get(row, 0)?), behind.into_iter().map(Seq).collect()))
    }

    async fn save(&self, session: &mut PgSession, window: Duration, cursor: &SweepCursor) -> Result<()> {
        let behind: Vec<i64> = cursor.left.iter().map(|seq| seq.0).collect();
        let save = query(&self.db.sql.sweep_set_cursor)
            .bind(self.inbox)
            .bind(millis(window))
            .bind(self.windows.digest())
            .bind(cursor.upto.0)
            .bind(behind);
        session.run(save).await?;
        Ok(())
    }
}

/// Result of one page that the sweep read in order.
#[derive(Default)]
struct Looked {
    count: usize,
    last: Option<Seq>,
    /// The last number below which no new message can appear.
    passed: Option<Seq>,
    /// Numbers up to `passed` that a later sweep must check again.
    stays: Vec<Seq>,
}
