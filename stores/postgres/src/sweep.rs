//! Sweep: forget what is finished and past its retention. Keys leave by bounded deletes, in order; messages and history leave
//! with their segment.

use std::time::Duration;

use oncebox::Result;
use oncebox::store::{Seq, SweepParams, SweepPosition, Swept, Walk, Windows};
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::db::{Db, millis};
use crate::operation;
use crate::register;
use crate::row::get;
use crate::segment::{self, Segments};
use crate::unit::{Unit, Units, ask};

pub(crate) async fn sweep(db: &Db, segments: &Segments, params: &SweepParams) -> Result<Swept> {
    let control = db.control.knowing(db.timeline.changes());
    let inbox = db.inbox(&params.inbox).await?;
    // Before a connection is taken: whoever holds one must not wait for another.
    let handlers = db.keys_of(inbox).await?;
    let mut unit = control.single().await?;
    let (windows, _) = register::windows(db, &mut unit, inbox, params).await?;
    unit.end().await?;
    let windows = windows.over(handlers.values().filter(|keys| keys.len() > 1).cloned());
    let handlers = handlers.into_iter().map(|(id, keys)| (id, windows.of(&keys[0]))).collect();
    let mut page = Page { db, control, inbox, params, windows, handlers, swept: Swept::NOTHING };
    let start = params.after.unwrap_or(SweepPosition::START);
    let mut walks: Vec<SweepPosition> = Vec::new();
    for window in page.windows.lengths().into_iter().filter(|window| *window >= start.window) {
        walks.push(SweepPosition::new(window, if window == start.window { start.seq } else { Seq(0) }));
    }
    // A transaction for each: one that has locked keys for one walk must not wait for those of another.
    let mut walked = Ok(());
    for at in walks {
        match page.one(Some(at)).await {
            Ok(false) => return Ok(page.swept),
            Ok(true) => {}
            // A walk that fails again and again must not keep marks and segments for ever.
            Err(error) => walked = Err(error),
        }
        if page.swept.next.is_some() || walked.is_err() {
            break;
        }
    }
    let marks = page.one(None).await.map(drop);
    if page.swept.next.is_none() {
        let looked_after = segment::look_after(db, segments, page.windows.longest()).await;
        walked.and(marks).and(looked_after)?;
    } else {
        walked.and(marks)?;
    }
    Ok(page.swept)
}

/// A page of a sweep.
struct Page<'a> {
    db: &'a Db,
    control: Units,
    inbox: i16,
    params: &'a SweepParams,
    windows: Windows,
    /// The handlers of the inbox, and the window of each.
    handlers: Vec<(i16, Duration)>,
    swept: Swept,
}

impl Page<'_> {
    /// Goes on with one walk, or with marks at the end of the page. Says whether nobody else sweeps.
    async fn one(&mut self, walk: Option<SweepPosition>) -> Result<bool> {
        let (db, params) = (self.db, self.params);
        let sweep_id = Uuid::from_bytes(*params.sweep_id.as_bytes());
        let mut unit = self.control.transaction().await?;
        let of = |sql| ask(sql).bind(db.now()).bind(self.inbox).bind(sweep_id);
        let (begin, go_on) = (of(&db.sql.sweep_begin), of(&db.sql.sweep_go_on));
        if unit.rows(begin).await?.is_empty() && unit.rows(go_on).await?.is_empty() {
            unit.end().await?;
            self.swept.next = None;
            return Ok(false);
        }
        if let Some(at) = walk {
            let limit = params.limit.saturating_sub(self.swept.looked);
            self.swept.next = self.walk(&mut unit, at, limit).await?;
        } else {
            self.marks(&mut unit, params).await?;
            self.swept.operations = operation::forget(db, &mut unit, self.inbox, params).await?;
        }
        self.swept.next = self.swept.next.filter(|_| params.limit > 0);
        let goes_on = walk.is_some() || self.swept.next.is_some();
        let hand_on = ask(&db.sql.sweep_hand_on)
            .bind(db.now())
            .bind(self.inbox)
            .bind(goes_on.then_some(sweep_id))
            .bind(millis(params.hold));
        unit.run(hand_on).await?;
        unit.end().await?;
        Ok(true)
    }

    /// Looks at messages that may have left one window; says where to go on.
    async fn walk(
        &mut self,
        unit: &mut Unit,
        at: SweepPosition,
        limit: usize,
    ) -> Result<Option<SweepPosition>> {
        let before = self.load(unit, at.window).await?;
        let mut walk = before.clone();
        let (again, from) = (walk.again(at.seq, limit), walk.from(at.seq));
        let looked = self.look(unit, at.window, from, limit - again.len()).await?;
        // Last, because it waits for nobody.
        if !again.is_empty() {
            walk.gone(&self.look_again(unit, &again).await?);
        }
        if let Some(passed) = looked.passed {
            walk.pass(from, passed, &looked.stays);
        }
        if walk != before {
            self.save(unit, at.window, &walk).await?;
        }
        let count = again.len() + looked.count;
        self.swept.looked += count;
        let last = looked.last.or(again.last().copied()).unwrap_or(at.seq);
        Ok((count >= limit).then_some(SweepPosition::new(at.window, last)))
    }

    /// Looks at messages in order, and forgets those that are over.
    async fn look(&mut self, unit: &mut Unit, window: Duration, after: Seq, limit: usize) -> Result<Looked> {
        let longer = self.handlers.iter().filter(|(_, own)| *own > window).map(|(id, _)| *id);
        let (ids, spans) = self.spans();
        let proofs = ask(&self.db.sql.sweep_proofs)
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
            .bind(millis(window.max(Walk::SETTLED)))
            .bind(i64::try_from(Walk::MOST_LEFT).unwrap_or(i64::MAX).saturating_add(1));
        let rows = unit.rows(proofs).await?;
        let Some(row) = rows.first() else { return Ok(Looked::default()) };
        self.count_gone(row, 5)?;
        Ok(Looked {
            count: usize::try_from(get::<i64>(row, 1)?).unwrap_or(0),
            last: get::<Option<i64>>(row, 2)?.map(Seq),
            passed: get::<Option<i64>>(row, 3)?.map(Seq),
            stays: get::<Vec<i64>>(row, 4)?.into_iter().map(Seq).collect(),
        })
    }

    /// Looks at messages that were left behind; returns those that are there no longer.
    async fn look_again(&mut self, unit: &mut Unit, seqs: &[Seq]) -> Result<Vec<Seq>> {
        let (ids, spans) = self.spans();
        let again = ask(&self.db.sql.sweep_again)
            .bind(self.db.now())
            .bind(self.inbox)
            .bind(seqs.iter().map(|seq| seq.0).collect::<Vec<_>>())
            .bind(millis(self.windows.default_window()))
            .bind(ids)
            .bind(spans);
        let rows = unit.rows(again).await?;
        let Some(row) = rows.first() else { return Ok(Vec::new()) };
        self.count_gone(row, 2)?;
        Ok(get::<Vec<i64>>(row, 1)?.into_iter().map(Seq).collect())
    }

    /// Counts the messages in the first column of an answer, and their entries in another.
    fn count_gone(&mut self, row: &PgRow, entries: usize) -> Result<()> {
        self.swept.messages += usize::try_from(get::<i64>(row, 0)?).unwrap_or(0);
        self.swept.entries += usize::try_from(get::<i64>(row, entries)?).unwrap_or(0);
        Ok(())
    }

    /// The numbers of the handlers, and their windows.
    fn spans(&self) -> (Vec<i16>, Vec<i64>) {
        self.handlers.iter().map(|(id, window)| (*id, millis(*window))).unzip()
    }

    async fn marks(&mut self, unit: &mut Unit, params: &SweepParams) -> Result<()> {
        let own = self.windows.own().map(|(key, window)| (key.as_str().to_owned(), millis(window)));
        let (keys, spans): (Vec<String>, Vec<i64>) = own.unzip();
        let marks = ask(&self.db.sql.sweep_marks)
            .bind(self.db.now())
            .bind(params.inbox.as_str().to_owned())
            .bind(millis(self.windows.default_window()))
            .bind(i64::try_from(params.limit).unwrap_or(i64::MAX))
            .bind(keys)
            .bind(spans);
        self.swept.marks = usize::try_from(unit.run(marks).await?).unwrap_or(usize::MAX);
        if self.swept.marks >= params.limit {
            // Marks have no sequence: when only they are left, the next page starts behind everything.
            let behind = SweepPosition::new(self.windows.longest(), Seq(i64::MAX));
            self.swept.next = self.swept.next.or(Some(behind));
        }
        Ok(())
    }

    /// How far sweeps have come with a window.
    async fn load(&self, unit: &mut Unit, window: Duration) -> Result<Walk> {
        let walk =
            ask(&self.db.sql.sweep_walk).bind(self.inbox).bind(millis(window)).bind(self.windows.digest());
        let rows = unit.rows(walk).await?;
        let Some(row) = rows.first() else { return Ok(Walk::default()) };
        let behind: Vec<i64> = get(row, 1)?;
        Ok(Walk::new(Seq(get(row, 0)?), behind.into_iter().map(Seq).collect()))
    }

    async fn save(&self, unit: &mut Unit, window: Duration, walk: &Walk) -> Result<()> {
        let behind: Vec<i64> = walk.left.iter().map(|seq| seq.0).collect();
        let save = ask(&self.db.sql.sweep_set_walk)
            .bind(self.inbox)
            .bind(millis(window))
            .bind(self.windows.digest())
            .bind(walk.upto.0)
            .bind(behind);
        unit.run(save).await?;
        Ok(())
    }
}

/// What was looked at in order.
#[derive(Default)]
struct Looked {
    count: usize,
    last: Option<Seq>,
    /// The last before which nothing can come in any more.
    passed: Option<Seq>,
    /// Those up to there that have to be looked at again.
    stays: Vec<Seq>,
}
