//! Sweep: forget what is finished and past its retention. Keys leave by bounded deletes, in order; messages and history leave
//! with their segment.

use oncebox::Result;
use oncebox::store::{Seq, SweepParams, Swept};
use uuid::Uuid;

use crate::db::{Db, millis};
use crate::history;
use crate::operation;
use crate::row::get;
use crate::segment::{self, Segments};
use crate::unit::{Unit, ask};

pub(crate) async fn sweep(db: &Db, segments: &Segments, params: &SweepParams) -> Result<Swept> {
    let inbox = db.inbox(&params.inbox).await?;
    // Before a connection is taken: whoever holds one must not wait for another.
    let windows = Windows::new(db, inbox, params).await?;
    let sweep_id = Uuid::from_bytes(*params.sweep_id.as_bytes());
    let mut unit = db.control.transaction().await?;
    let begin = ask(&db.sql.sweep_begin).bind(db.now()).bind(inbox).bind(sweep_id);
    if unit.rows(begin).await?.is_empty() {
        unit.end().await?;
        return Ok(Swept::NOTHING);
    }
    let swept = page(db, &mut unit, inbox, params, &windows).await?;
    let hand_on = ask(&db.sql.sweep_hand_on)
        .bind(db.now())
        .bind(inbox)
        .bind(swept.next.map(|_| sweep_id))
        .bind(millis(params.hold));
    unit.run(hand_on).await?;
    operation::forget(db, &mut unit, inbox, params).await?;
    unit.end().await?;
    if swept.next.is_none() {
        segment::look_after(db, segments, params.longest()).await?;
    }
    Ok(swept)
}

/// The windows of handlers that have their own.
struct Windows {
    /// The numbers of those that have any, and the window of each.
    handlers: (Vec<i16>, Vec<i64>),
    /// Keys of marks, and the window of each.
    keys: (Vec<String>, Vec<i64>),
}

impl Windows {
    async fn new(db: &Db, inbox: i16, params: &SweepParams) -> Result<Self> {
        let mut windows = Self { handlers: (Vec::new(), Vec::new()), keys: (Vec::new(), Vec::new()) };
        for (handler, window) in &params.windows {
            if let Some(id) = db.known_handler(inbox, handler).await? {
                windows.handlers.0.push(id);
                windows.handlers.1.push(millis(*window));
            }
            windows.keys.0.push(handler.as_str().to_owned());
            windows.keys.1.push(millis(*window));
        }
        Ok(windows)
    }
}

/// Forgets what is over of one page.
async fn page(
    db: &Db,
    unit: &mut Unit,
    inbox: i16,
    params: &SweepParams,
    windows: &Windows,
) -> Result<Swept> {
    let (retention, limit) = (millis(params.retention), i64::try_from(params.limit).unwrap_or(i64::MAX));
    let after = params.after.unwrap_or(Seq(0));
    let proofs = ask(&db.sql.sweep_proofs)
        .bind(db.now())
        .bind(inbox)
        .bind(retention)
        .bind(after.0)
        .bind(limit)
        .bind(db.all_lanes())
        .bind(millis(params.shortest()))
        .bind(windows.handlers.0.clone())
        .bind(windows.handlers.1.clone());
    let marks = ask(&db.sql.sweep_marks)
        .bind(db.now())
        .bind(params.inbox.as_str().to_owned())
        .bind(retention)
        .bind(limit)
        .bind(windows.keys.0.clone())
        .bind(windows.keys.1.clone());
    let rows = unit.rows(proofs).await?;
    let marks = usize::try_from(unit.run(marks).await?).unwrap_or(usize::MAX);
    let mut swept = Swept::new(0, marks, None);
    let mut last = None;
    let mut more = marks >= params.limit;
    if let Some(row) = rows.first() {
        swept.messages = usize::try_from(get::<i64>(row, 0)?).unwrap_or(0);
        last = get::<Option<i64>>(row, 1)?.map(Seq);
        more |= get::<i64>(row, 2)? >= limit && get::<bool>(row, 3)?;
    }
    if let Some(last) = last {
        history::forget(db, unit, after, last).await?;
    }
    // Marks have no sequence: when only they are left, the next page starts where this one did.
    swept.next = (more && params.limit > 0).then_some(last.unwrap_or(after));
    Ok(swept)
}
