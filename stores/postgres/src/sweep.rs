//! Sweep: forget what is finished and past its retention. Keys leave by bounded deletes, in order; messages and history leave
//! with their segment.

use oncebox::Result;
use oncebox::store::{Seq, SweepParams, Swept};

use crate::db::{Db, millis};
use crate::row::get;
use crate::segment::{self, Segments};
use crate::unit::ask;

pub(crate) async fn sweep(db: &Db, segments: &Segments, params: &SweepParams) -> Result<Swept> {
    let inbox = db.inbox(&params.inbox).await?;
    let (retention, limit) = (millis(params.retention), i64::try_from(params.limit).unwrap_or(i64::MAX));
    let after = params.after.unwrap_or(Seq(0));
    let proofs = ask(&db.sql.sweep_proofs)
        .bind(db.now())
        .bind(inbox)
        .bind(retention)
        .bind(after.0)
        .bind(limit)
        .bind(db.all_lanes());
    let marks = ask(&db.sql.sweep_marks)
        .bind(db.now())
        .bind(params.inbox.as_str().to_owned())
        .bind(retention)
        .bind(limit);
    let mut unit = db.control.transaction().await?;
    let rows = unit.rows(proofs).await?;
    let marks = usize::try_from(unit.run(marks).await?).unwrap_or(usize::MAX);
    unit.end().await?;
    let mut swept = Swept::new(0, marks, None);
    let mut last = None;
    let mut more = marks >= params.limit;
    if let Some(row) = rows.first() {
        swept.messages = usize::try_from(get::<i64>(row, 0)?).unwrap_or(0);
        last = get::<Option<i64>>(row, 1)?.map(Seq);
        more |= get::<i64>(row, 2)? >= limit && get::<bool>(row, 3)?;
    }
    // Marks have no sequence: when only they are left, the next page starts where this one did.
    swept.next = (more && params.limit > 0).then_some(last.unwrap_or(after));
    if swept.next.is_none() {
        segment::look_after(db, segments, params.retention).await?;
    }
    Ok(swept)
}
