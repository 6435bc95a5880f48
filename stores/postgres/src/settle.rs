//! Settle, renew and complete: every write after a claim, under its fence. Tests: `tests/finish.rs`,
//! `tests/locks.rs`.

use oncebox_core::Result;
use oncebox_core::state::{EntryEvent, ErrorText, InLine, NextState, Settlement};
use oncebox_core::store::{Claim, RenewParams, Renewed, Settled};
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::claim::uuid;
use crate::db::{Db, Released, TouchedQueues, lane, millis};
use crate::error::unread;
use crate::row::get;
use crate::session::{PgSession, Query, query};
use crate::sql::{FIXED, with_values};

/// Claims as columns that find and fence their rows, in the order in which every caller locks them.
#[derive(Default)]
struct Fences {
    places: Vec<i32>,
    lanes: Vec<i16>,
    claim_ids: Vec<Uuid>,
    seqs: Vec<i64>,
    handlers: Vec<i16>,
    tokens: Vec<i64>,
}

impl Fences {
    /// Skips claims with unknown handlers: they cannot hold.
    async fn new<'a>(db: &Db, claims: impl Iterator<Item = &'a Claim>) -> Result<Self> {
        let mut found = Vec::new();
        let mut last: Option<(&Claim, Option<i16>)> = None;
        for (place, claim) in claims.enumerate() {
            // Most claims of a batch have the same handler.
            let handler = match last {
                Some((same, id)) if same.inbox == claim.inbox && same.handler == claim.handler => id,
                _ => match db.known_inbox(&claim.inbox).await? {
                    Some(inbox) => db.known_handler(inbox, &claim.handler).await?,
                    None => None,
                },
            };
            last = Some((claim, handler));
            let Some(handler) = handler else { continue };
            found.push((lane(claim.seq), handler, claim.seq.0, claim.token.0, uuid(claim.claim_id), place));
        }
        found.sort_unstable();
        let mut fences = Self::default();
        for (lane, handler, seq, token, claim_id, place) in found {
            fences.places.push(i32::try_from(place).unwrap_or(i32::MAX));
            fences.lanes.push(lane);
            fences.claim_ids.push(claim_id);
            fences.seqs.push(seq);
            fences.handlers.push(handler);
            fences.tokens.push(token);
        }
        Ok(fences)
    }

    fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    fn bind(&self, query: Query<'static>) -> Query<'static> {
        query
            .bind(self.places.clone())
            .bind(self.lanes.clone())
            .bind(self.handlers.clone())
            .bind(self.seqs.clone())
            .bind(self.tokens.clone())
            .bind(self.claim_ids.clone())
    }

    /// Binds only the first claim.
    fn bind_one(&self, query: Query<'static>) -> Query<'static> {
        query
            .bind(self.lanes[0])
            .bind(self.handlers[0])
            .bind(self.seqs[0])
            .bind(self.tokens[0])
            .bind(self.claim_ids[0])
    }

    /// Returns one value per claim, in the order of the columns.
    fn column<T>(&self, of: impl Fn(usize) -> T) -> Vec<T> {
        self.places.iter().map(|place| of(usize::try_from(*place).unwrap_or(usize::MAX))).collect()
    }

    /// Returns the lines of the claims.
    fn lines<'a>(&self, claim: impl Fn(usize) -> &'a Claim) -> TouchedQueues {
        let mut lines = TouchedQueues::default();
        for (at, order) in self.column(|at| claim(at).order).into_iter().enumerate() {
            if let Some(order) = order {
                lines.add(self.lanes[at], self.handlers[at], order.as_bytes().to_vec());
            }
        }
        lines
    }
}

/// Returns a result per claim from the places of the claims that hold.
fn answers(count: usize, places: impl IntoIterator<Item = i32>) -> Vec<Settled> {
    let mut settled = vec![Settled::LeaseLost; count];
    for place in places {
        if let Some(settled) = settled.get_mut(usize::try_from(place).unwrap_or(usize::MAX)) {
            *settled = Settled::Applied;
        }
    }
    settled
}

/// Reads the results from one row per claim that holds.
fn held(count: usize, rows: &[PgRow]) -> Result<Vec<Settled>> {
    let places: Vec<i32> = rows.iter().map(|row| get(row, 0)).collect::<Result<_>>()?;
    Ok(answers(count, places))
}

/// Reads the results from the one row of a settlement, and the released followers if the row has them.
fn settled(count: usize, rows: &[PgRow]) -> Result<(Vec<Settled>, Released)> {
    let Some(row) = rows.first() else { return Ok((answers(count, []), Released::default())) };
    let released = if row.len() > 1 { Released::of(row, 1)? } else { Released::default() };
    Ok((answers(count, get::<Option<Vec<i32>>>(row, 0)?.unwrap_or_default()), released))
}

/// Writes a batch in one statement that commits by itself.
pub(crate) async fn settle(db: &Db, batch: &[Settlement]) -> Result<Vec<Settled>> {
    let fences = Fences::new(db, batch.iter().map(|settlement| &settlement.claim)).await?;
    if fences.is_empty() {
        return Ok(vec![Settled::LeaseLost; batch.len()]);
    }
    let mut session = db.control.single().await?;
    let rows = session.rows(statement(db, &fences, batch)).await?;
    session.end().await?;
    let (mut answers, released) = settled(batch.len(), &rows)?;
    released.notify(db);
    recognise(db, &fences, batch, &mut answers).await.map_err(unread)?;
    Ok(answers)
}

/// Returns the statement for a batch. Most batches only complete entries without ordering keys, for which there is a
/// short one.
fn statement(db: &Db, fences: &Fences, batch: &[Settlement]) -> Query<'static> {
    let lines = fences.lines(|at| &batch[at].claim);
    if batch.iter().all(|settlement| settlement.is_completion() && settlement.error.is_none()) {
        return if lines.is_empty() {
            fences.bind(query(&db.sql.settle_complete).bind(db.now()))
        } else {
            completion(db, fences, lines, false)
        };
    }
    let of = |at: usize| &batch[at];
    let delay = |next: NextState| if let NextState::Pending { delay } = next { millis(delay) } else { 0 };
    let reason = |next: NextState| {
        if let NextState::Poisoned { reason } = next { Some(reason.as_str()) } else { None }
    };
    let settlements = fences
        .bind(query(&db.sql.settle).bind(db.now()))
        .bind(fences.column(|at| of(at).next.status().as_str()))
        .bind(fences.column(|at| delay(of(at).next)))
        .bind(fences.column(|at| count(of(at).attempts)))
        .bind(fences.column(|at| count(of(at).suspicion.stored())))
        .bind(fences.column(|at| reason(of(at).next)))
        .bind(fences.column(|at| of(at).error.as_ref().map(ErrorText::as_str).map(str::to_owned)))
        .bind(fences.column(|at| of(at).in_line.map(InLine::as_str)));
    in_lines(db, settlements, lines, false).bind(fences.column(|at| of(at).failure().map(EntryEvent::as_str)))
}

/// Returns the statement that completes claims, some of them with an ordering key.
fn completion(db: &Db, fences: &Fences, lines: TouchedQueues, own: bool) -> Query<'static> {
    let completion = fences
        .bind(query(&db.sql.settle).bind(db.now()))
        .bind(None::<Vec<String>>)
        .bind(None::<Vec<i64>>)
        .bind(None::<Vec<i32>>)
        .bind(None::<Vec<i32>>)
        .bind(None::<Vec<String>>)
        .bind(None::<Vec<String>>)
        .bind(None::<Vec<String>>);
    in_lines(db, completion, lines, own).bind(None::<Vec<String>>)
}

/// Binds the locks of the touched lines. `own` is true in a handler's own transaction.
fn in_lines(db: &Db, settlements: Query<'static>, mut lines: TouchedQueues, own: bool) -> Query<'static> {
    settlements.bind(own).bind(db.lock_class).bind(lines.locks())
}

fn count(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Recognizes repeats of settlements whose answers were lost, among the settlements that did not apply.
async fn recognise(db: &Db, fences: &Fences, batch: &[Settlement], answers: &mut [Settled]) -> Result<()> {
    let refused = |place: &i32| {
        let place = usize::try_from(*place).unwrap_or(usize::MAX);
        answers.get(place) == Some(&Settled::LeaseLost)
    };
    let refused: Vec<usize> = (0..fences.places.len()).filter(|at| refused(&fences.places[*at])).collect();
    if refused.is_empty() {
        return Ok(());
    }
    let status = |place: i32| batch[usize::try_from(place).unwrap_or(0)].next.status().as_str();
    let question = query(&db.sql.settle_settled_by)
        .bind(refused.iter().map(|at| fences.places[*at]).collect::<Vec<_>>())
        .bind(refused.iter().map(|at| fences.lanes[*at]).collect::<Vec<_>>())
        .bind(refused.iter().map(|at| fences.seqs[*at]).collect::<Vec<_>>())
        .bind(refused.iter().map(|at| fences.handlers[*at]).collect::<Vec<_>>())
        .bind(refused.iter().map(|at| fences.tokens[*at]).collect::<Vec<_>>())
        .bind(refused.iter().map(|at| status(fences.places[*at])).collect::<Vec<_>>());
    let mut session = db.control.single().await?;
    let rows = session.rows(question).await?;
    session.end().await?;
    for row in rows {
        if let Some(answer) = answers.get_mut(usize::try_from(get::<i32>(&row, 0)?).unwrap_or(usize::MAX)) {
            *answer = Settled::Applied;
        }
    }
    Ok(())
}

pub(crate) async fn renew(db: &Db, params: &RenewParams) -> Result<Vec<Renewed>> {
    let fences = Fences::new(db, params.claims.iter()).await?;
    let renew = fences.bind(query(&db.sql.renew).bind(db.now()).bind(millis(params.lease)));
    let renew = renew.bind(fences.column(|at| params.claims[at].alone));
    let mut session = db.control.single().await?;
    let rows = session.rows(renew).await?;
    session.end().await?;
    let held = held(params.claims.len(), &rows)?;
    let renewed = |held| if held == Settled::Applied { Renewed::Extended } else { Renewed::LeaseLost };
    Ok(held.into_iter().map(renewed).collect())
}

/// Completes claims in a handler's own transaction. Never accepts the repeat of a completion: the transaction
/// holds the handler's writes, which must not be applied twice. The commit makes the released followers
/// visible.
pub(crate) async fn complete(
    db: &Db,
    session: &mut PgSession,
    claims: &[Claim],
) -> Result<(Vec<Settled>, Released)> {
    let fences = Fences::new(db, claims.iter()).await?;
    let lines = fences.lines(|at| &claims[at]);
    let (settled, released) = if let (true, [_], [_]) = (lines.is_empty(), claims, &fences.places[..]) {
        let one = fences.bind_one(query(&db.sql.settle_complete_one).bind(db.now()));
        let settled = if session.run(one).await? == 1 { Settled::Applied } else { Settled::LeaseLost };
        (vec![settled], Released::default())
    } else {
        settled(claims.len(), &session.rows(completion(db, &fences, lines, true)).await?)?
    };
    if settled.contains(&Settled::LeaseLost) {
        // The claim is lost, or the handler ended its transaction. In that case nothing counts as done.
        session.check_own().await?;
    }
    Ok((settled, released))
}

/// Returns the SQL text that completes a claim without an ordering key. `None` if its handler is unknown: such a claim
/// cannot hold.
pub(crate) async fn completion_text(db: &Db, claim: &Claim) -> Result<Option<String>> {
    let fences = Fences::new(db, std::iter::once(claim)).await?;
    if fences.is_empty() {
        return Ok(None);
    }
    let now = db.now().map_or_else(|| "NULL".to_owned(), |now| now.to_string());
    let values = [
        now,
        fences.lanes[0].to_string(),
        fences.handlers[0].to_string(),
        fences.seqs[0].to_string(),
        fences.tokens[0].to_string(),
        format!("'{}'", fences.claim_ids[0]),
    ];
    Ok(Some(with_values(FIXED.settle_finish, &values)))
}

/// Locks claims in a transaction that several runs share.
pub(crate) async fn hold(db: &Db, session: &mut PgSession, claims: &[Claim]) -> Result<Vec<Settled>> {
    let fences = Fences::new(db, claims.iter()).await?;
    let rows = session.rows(fences.bind(query(&db.sql.settle_hold))).await?;
    held(claims.len(), &rows)
}
