//! Claim and rescue: hand entries to one worker at a time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use oncebox::state::{ErrorText, Outcome, Policies, Policy};
use oncebox::store::{Claim, ClaimId, ClaimMode, ClaimParams, Claimed, RescueParams, Seq, Token, Want};
use oncebox::time::Timestamp;
use oncebox::{ErrorKind, Result};
use parking_lot::Mutex;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::db::{Db, lane, millis};
use crate::error::unread;
use crate::row::{self, get};
use crate::settle::settle;
use crate::unit::{Ask, ask};

/// Up to this many the order of claims is exact over all lanes, and between untouched entries and others. Beyond, each gives
/// its share.
const EXACT: usize = 64;
/// The least that a lane is asked for its share.
const LEAST_SHARE: usize = 8;
/// How long claims look only behind what was claimed last. What came in late before it waits no longer than this.
const LOOK_BACK: Duration = Duration::from_secs(1);
/// Looking at everything may take this part of the time, when rows that are gone cannot be removed yet.
const LOOK_BACK_SHARE: u32 = 20;
/// The attempts of an entry: none, not even 0, if it was claimed where it lay, with the work that nobody had touched.
const ATTEMPTS: usize = 4;

/// From which number on each lane and handler has untouched work, as far as this process knows. Without it every claim
/// would pass all rows that are gone but not yet removed.
#[derive(Default)]
pub(crate) struct Cursors {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    least: HashMap<(i16, i16), i64>,
    /// How often work came in before what was claimed: a claim that was on its way meanwhile knows nothing of it.
    backs: HashMap<(i16, i16), u64>,
    look_back: Option<Instant>,
}

impl Cursors {
    /// Where to look from; everywhere from the start, if it is time. With it, what to say when advancing.
    fn least(&self, places: impl Iterator<Item = (i16, i16)>) -> Vec<(i64, u64)> {
        let mut known = self.known.lock();
        if known.look_back.is_none_or(|at| Instant::now() >= at) {
            known.least.clear();
        }
        let of = |place| {
            let least = known.least.get(&place).copied().unwrap_or(0);
            (least, known.backs.get(&place).copied().unwrap_or(0))
        };
        places.map(of).collect()
    }

    /// This was claimed, by a claim that began after so many steps back.
    fn advance(&self, place: (i16, i16), backs: u64, seq: i64) {
        let mut known = self.known.lock();
        if known.backs.get(&place).copied().unwrap_or(0) != backs {
            return;
        }
        let least = known.least.entry(place).or_default();
        *least = (*least).max(seq.saturating_add(1));
    }

    /// There is work from this number on.
    pub(crate) fn step_back(&self, place: (i16, i16), seq: i64) {
        let mut known = self.known.lock();
        *known.backs.entry(place).or_default() += 1;
        if let Some(least) = known.least.get_mut(&place) {
            *least = (*least).min(seq);
        }
    }

    fn reset(&self, place: (i16, i16)) {
        self.known.lock().least.remove(&place);
    }

    /// Everything was looked at, and took `took`.
    fn looked_back(&self, took: Duration) {
        self.known.lock().look_back = Some(Instant::now() + LOOK_BACK.max(took * LOOK_BACK_SHARE));
    }
}

/// One place to look at: a handler in a lane, on behalf of a want.
struct Look {
    lane: i16,
    handler: i16,
    want: usize,
    share: Share,
}

/// The keys of handlers that have several, by want: a line runs through all of them.
#[derive(Default)]
struct Kin {
    wants: Vec<i32>,
    handlers: Vec<i16>,
}

/// The number of a want in the statements.
fn number(want: usize) -> i32 {
    i32::try_from(want + 1).unwrap_or(i32::MAX)
}

/// How many are looked for in a place.
#[derive(Clone, Copy, Default)]
struct Share {
    untouched: usize,
    others: usize,
}

pub(crate) async fn claim(db: &Db, params: &ClaimParams) -> Result<Vec<Claimed>> {
    let Some(inbox) = db.known_inbox(&params.inbox).await? else { return Ok(Vec::new()) };
    let wants: Vec<&Want> = params.wants.iter().filter(|want| want.limit > 0).collect();
    let (mut looks, mut kin) = (Vec::new(), Kin::default());
    for (index, want) in wants.iter().enumerate() {
        let handlers = db.route(inbox, &want.route).await?;
        if handlers.len() > 1 {
            kin.wants.extend(handlers.iter().map(|_| number(index)));
            kin.handlers.extend(&handlers);
        }
        for handler in handlers {
            looks.extend(db.all_lanes().into_iter().map(|lane| Look {
                lane,
                handler,
                want: index,
                share: Share::default(),
            }));
        }
    }
    if looks.is_empty() {
        return held(db, params.claim_id, &params.policies).await;
    }
    match params.mode {
        ClaimMode::Healthy => healthy(db, params, &wants, looks, &kin).await,
        ClaimMode::Suspect => suspect(db, params, &looks, &kin).await,
    }
}

async fn healthy(
    db: &Db,
    params: &ClaimParams,
    wants: &[&Want],
    mut looks: Vec<Look>,
    kin: &Kin,
) -> Result<Vec<Claimed>> {
    let mut limits: Vec<usize> = wants.iter().map(|want| want.limit).collect();
    let mut found = Vec::new();
    let mut goes_on = false;
    while !looks.is_empty() {
        let cursors = db.cursors.least(looks.iter().map(|look| (look.lane, look.handler)));
        let (least, backs): (Vec<i64>, Vec<u64>) = cursors.into_iter().unzip();
        let backs: HashMap<(i16, i16), u64> =
            looks.iter().map(|look| (look.lane, look.handler)).zip(backs).collect();
        let from_the_start = least.iter().all(|least| *least == 0);
        let mut places = vec![0; wants.len()];
        for look in &looks {
            places[look.want] += 1;
        }
        let exact = looks.iter().any(|look| !is_shared(limits[look.want], places[look.want]));
        for look in &mut looks {
            look.share = share(limits[look.want], places[look.want], exact);
        }
        let start = Instant::now();
        let rows = ask_for(db, params, (&looks, &least, kin), &limits, (exact, goes_on)).await;
        let rows = rows.map_err(|error| if goes_on { unread(error) } else { error })?;
        if from_the_start {
            db.cursors.looked_back(start.elapsed());
        }
        if rows.first().is_some_and(|row| get::<Option<i64>>(row, 0).is_ok_and(|seq| seq.is_none())) {
            return held(db, params.claim_id, &params.policies).await;
        }
        let mut got: HashMap<(i16, i16), Share> = HashMap::new();
        for row in &rows {
            let seq: i64 = get(row, 0)?;
            let place = (lane(Seq(seq)), get::<i16>(row, 1)?);
            let got = got.entry(place).or_default();
            if get::<Option<i32>>(row, ATTEMPTS)?.is_none() {
                got.untouched += 1;
                db.cursors.advance(place, backs.get(&place).copied().unwrap_or(0), seq);
            } else {
                got.others += 1;
            }
        }
        let mut more = Vec::new();
        for (look, least) in looks.into_iter().zip(least) {
            let got = got.get(&(look.lane, look.handler)).copied().unwrap_or_default();
            limits[look.want] -= (got.untouched + got.others).min(limits[look.want]);
            // One that gave its whole share may have more. One that was not looked at from its start, too.
            let all = got.untouched >= look.share.untouched || got.others >= look.share.others;
            if !all && least > 0 {
                db.cursors.reset((look.lane, look.handler));
            }
            if all || least > 0 {
                more.push(look);
            }
        }
        looks = more.into_iter().filter(|look| limits[look.want] > 0).collect();
        goes_on |= !rows.is_empty();
        found.extend(rows);
    }
    claimed(db, params.claim_id, &found, &params.policies).await.map_err(unread)
}

/// Whether a limit is large enough to be cut into shares of its places.
fn is_shared(limit: usize, places: usize) -> bool {
    limit > EXACT && limit / places.max(1) >= LEAST_SHARE
}

/// How many are looked for in each place: all that is wanted, if the oldest are to be chosen; else its share. What has waited
/// before gets no more than half of it, so that retries leave room for what is new.
fn share(limit: usize, places: usize, exact: bool) -> Share {
    if exact {
        return Share { untouched: limit, others: limit };
    }
    let share = limit.div_ceil(places.max(1));
    Share { untouched: share, others: share.div_ceil(2) }
}

async fn ask_for(
    db: &Db,
    params: &ClaimParams,
    (looks, least, kin): (&[Look], &[i64], &Kin),
    limits: &[usize],
    (exact, goes_on): (bool, bool),
) -> Result<Vec<PgRow>> {
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let claim = under(
        ask(if exact { &db.sql.claim_oldest } else { &db.sql.claim_all }),
        db,
        params.claim_id,
        params.lease,
    )
    .bind(looks.iter().map(|look| look.lane).collect::<Vec<_>>())
    .bind(looks.iter().map(|look| look.handler).collect::<Vec<_>>())
    .bind(looks.iter().map(|look| number(look.want)).collect::<Vec<_>>())
    .bind(kin.wants.clone())
    .bind(kin.handlers.clone())
    .bind(least.to_vec())
    .bind(looks.iter().map(|look| count(look.share.untouched)).collect::<Vec<_>>())
    .bind(looks.iter().map(|look| count(look.share.others)).collect::<Vec<_>>())
    .bind(limits.iter().map(|limit| count(*limit)).collect::<Vec<_>>())
    .bind(goes_on);
    let mut unit = db.control.single().await?;
    let rows = unit.rows(claim).await?;
    unit.end().await?;
    Ok(rows)
}

/// What claims and rescues start with: the time, their id, and the lease.
fn under(ask: Ask<'static>, db: &Db, id: ClaimId, lease: Duration) -> Ask<'static> {
    ask.bind(db.now()).bind(uuid(id)).bind(millis(lease))
}

async fn suspect(db: &Db, params: &ClaimParams, looks: &[Look], kin: &Kin) -> Result<Vec<Claimed>> {
    let suspect = under(ask(&db.sql.claim_suspect), db, params.claim_id, params.lease)
        .bind(looks.iter().map(|look| look.lane).collect::<Vec<_>>())
        .bind(looks.iter().map(|look| look.handler).collect::<Vec<_>>())
        .bind(looks.iter().map(|look| number(look.want)).collect::<Vec<_>>())
        .bind(kin.wants.clone())
        .bind(kin.handlers.clone());
    let mut unit = db.control.single().await?;
    unit.run(suspect).await?;
    unit.end().await?;
    held(db, params.claim_id, &params.policies).await.map_err(unread)
}

pub(crate) async fn rescue(db: &Db, params: &RescueParams) -> Result<Vec<Claimed>> {
    let Some(inbox) = db.known_inbox(&params.inbox).await? else { return Ok(Vec::new()) };
    let mut handlers = Vec::new();
    for route in &params.routes {
        handlers.extend(db.route(inbox, route).await?);
    }
    let rescue = under(ask(&db.sql.rescue), db, params.claim_id, params.lease)
        .bind(handlers)
        .bind(i64::try_from(params.limit).unwrap_or(i64::MAX));
    let mut unit = db.control.transaction().await?;
    unit.run(rescue).await?;
    unit.run(ask(&db.sql.rescue_forget).bind(db.now())).await?;
    unit.end().await?;
    held(db, params.claim_id, &params.policies).await.map_err(unread)
}

/// What a claim id holds.
async fn held(db: &Db, id: ClaimId, policies: &Policies) -> Result<Vec<Claimed>> {
    let mut unit = db.control.single().await?;
    let rows = unit.rows(ask(&db.sql.claim_held).bind(uuid(id))).await?;
    unit.end().await?;
    claimed(db, id, &rows, policies).await
}

/// Reads claims. An entry whose message cannot be read is rejected here: it must not keep the others waiting.
async fn claimed(db: &Db, id: ClaimId, rows: &[PgRow], policies: &Policies) -> Result<Vec<Claimed>> {
    let (mut claimed, mut damaged) = (Vec::with_capacity(rows.len()), Vec::new());
    let mut names = HashMap::new();
    for row in rows {
        let handler: i16 = get(row, 1)?;
        if let std::collections::hash_map::Entry::Vacant(vacant) = names.entry(handler) {
            vacant.insert(db.by_handler(handler).await?);
        }
        let (inbox, handler) = &names[&handler];
        let due: i64 = get(row, 8)?;
        let message = row::message(row, 11);
        let claim = Claim {
            inbox: inbox.clone(),
            seq: Seq(get(row, 0)?),
            handler: handler.clone(),
            key: row::key(row, 9)
                .or_else(|error| if message.is_err() { Ok(no_key()) } else { Err(error) })?,
            token: Token(get(row, 2)?),
            claim_id: id,
            attempts: row::count(row, ATTEMPTS)?,
            crashes: row::count(row, 5)?,
            generation: row::count(row, 6)?,
            order: row::order(row, 7)?,
            received_at: Timestamp::from_millis(get::<Option<i64>>(row, 10)?.unwrap_or(0)),
            claimed_at: Timestamp::from_millis(get(row, 3)?),
        };
        match message {
            Ok(message) => claimed.push((due, Claimed { claim, message })),
            Err(error) => {
                tracing::error!(seq = claim.seq.0, %error, "a stored message is damaged");
                let error = ErrorText::new(format!("the stored message is damaged: {}", error.what()));
                damaged.push(claim.settle(&policies.of(&claim.handler), Outcome::Reject { error }));
            }
        }
    }
    if !damaged.is_empty() {
        settle(db, &damaged).await?;
    }
    claimed.sort_by_key(|(due, claimed)| (*due, claimed.claim.seq));
    Ok(claimed.into_iter().map(|(_, claimed)| claimed).collect())
}

/// The key of a message that cannot be read.
fn no_key() -> oncebox::Key {
    oncebox::Key::from_bytes([0; 32])
}

/// Gives back what was claimed for somebody who has gone away.
pub(crate) async fn release(db: &Db, claimed: &[Claimed]) {
    let back: Vec<_> =
        claimed.iter().map(|claimed| claimed.claim.settle(&Policy::default(), Outcome::Released)).collect();
    if let Err(error) = settle(db, &back).await {
        let kind: ErrorKind = error.kind();
        tracing::warn!(%error, ?kind, "a claim that nobody waited for could not be given back; its lease runs out");
    }
}

pub(crate) fn uuid(id: ClaimId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: (i16, i16) = (1, 2);

    #[test]
    fn a_step_back_during_a_claim_is_not_lost() {
        for known in [false, true] {
            let cursors = Cursors::default();
            cursors.looked_back(Duration::ZERO);
            if known {
                cursors.advance(PLACE, 0, 5);
            }
            let (_, backs) = cursors.least([PLACE].into_iter())[0];
            cursors.step_back(PLACE, 3);
            cursors.advance(PLACE, backs, 9);
            let (least, backs) = cursors.least([PLACE].into_iter())[0];
            assert!(least <= 3, "{least}");
            cursors.advance(PLACE, backs, 9);
            assert_eq!(cursors.least([PLACE].into_iter())[0].0, 10);
        }
    }
}
