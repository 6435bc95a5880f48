//! Claim and rescue: hand entries to one worker at a time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use oncebox::state::{Outcome, Policies, Policy};
use oncebox::store::{ClaimId, ClaimMode, ClaimParams, Claimed, RescueParams, Want};
use oncebox::{ErrorKind, Result};
use parking_lot::Mutex;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::claimed::Answer;
use crate::db::{Db, millis};
use crate::error::unread;
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

/// How many are looked for in a place, and how many of those at most that have waited before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    all: usize,
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
    let mut found = Answer::default();
    let mut goes_on = false;
    while !looks.is_empty() {
        let cursors = db.cursors.least(looks.iter().map(|look| (look.lane, look.handler)));
        let (least, backs): (Vec<i64>, Vec<u64>) = cursors.into_iter().unzip();
        let backs: HashMap<(i16, i16), u64> =
            looks.iter().map(|look| (look.lane, look.handler)).zip(backs).collect();
        let from_the_start = least.iter().all(|least| *least == 0);
        let exact = share_out(&mut looks, &limits);
        let start = Instant::now();
        let rows = ask_for(db, params, (&looks, &least, kin), &limits, (exact, goes_on)).await;
        let rows = rows.map_err(|error| if goes_on { unread(error) } else { error })?;
        if from_the_start {
            db.cursors.looked_back(start.elapsed());
        }
        let answer = Answer::read(rows).map_err(unread)?;
        if !answer.is_all() {
            return held(db, params.claim_id, &params.policies).await.map_err(unread);
        }
        let mut got: HashMap<(i16, i16), Share> = HashMap::new();
        for entry in &answer.entries {
            let place = entry.place();
            let got = got.entry(place).or_default();
            got.all += 1;
            if entry.is_untouched() {
                db.cursors.advance(place, backs.get(&place).copied().unwrap_or(0), entry.seq.0);
            } else {
                got.others += 1;
            }
        }
        let mut more = Vec::new();
        for (look, least) in looks.into_iter().zip(least) {
            let got = got.get(&(look.lane, look.handler)).copied().unwrap_or_default();
            limits[look.want] -= got.all.min(limits[look.want]);
            // One that gave its whole share may have more. One that was not looked at from its start, too.
            let whole = got.all >= look.share.all || got.others >= look.share.others;
            if !whole && least > 0 {
                db.cursors.reset((look.lane, look.handler));
            }
            if whole || least > 0 {
                more.push(look);
            }
        }
        looks = more.into_iter().filter(|look| limits[look.want] > 0).collect();
        goes_on |= !answer.entries.is_empty();
        found.extend(answer);
    }
    found.claimed(db, params.claim_id, &params.policies).await.map_err(unread)
}

/// Says how many are looked for in each place: all that is wanted, if the oldest are to be chosen; else its share, and the shares
/// make up what is wanted. Whether the oldest are to be chosen: a limit has to be large to be cut into shares.
fn share_out(looks: &mut [Look], limits: &[usize]) -> bool {
    let mut places = vec![0; limits.len()];
    for look in looks.iter() {
        places[look.want] += 1;
    }
    let is_large = |want: usize| limits[want] > EXACT && limits[want] / places[want] >= LEAST_SHARE;
    let exact = !looks.iter().all(|look| is_large(look.want));
    let mut rest: Vec<usize> = limits.to_vec();
    for look in looks {
        if exact {
            look.share = Share { all: limits[look.want], others: limits[look.want] };
            continue;
        }
        let all = rest[look.want].div_ceil(places[look.want]);
        rest[look.want] -= all;
        places[look.want] -= 1;
        // So that retries leave room for what is new.
        look.share = Share { all, others: all.div_ceil(2) };
    }
    exact
}

async fn ask_for(
    db: &Db,
    params: &ClaimParams,
    (looks, least, kin): (&[Look], &[i64], &Kin),
    limits: &[usize],
    (exact, goes_on): (bool, bool),
) -> Result<Vec<PgRow>> {
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let sql = if exact { &db.sql.claim_oldest } else { &db.sql.claim_all };
    let mut claim = under(ask(sql), db, params.claim_id, params.lease)
        .bind(looks.iter().map(|look| look.lane).collect::<Vec<_>>())
        .bind(looks.iter().map(|look| look.handler).collect::<Vec<_>>())
        .bind(looks.iter().map(|look| number(look.want)).collect::<Vec<_>>())
        .bind(kin.wants.clone())
        .bind(kin.handlers.clone())
        .bind(least.to_vec())
        .bind(looks.iter().map(|look| count(look.share.all)).collect::<Vec<_>>())
        .bind(looks.iter().map(|look| count(look.share.others)).collect::<Vec<_>>())
        .bind(goes_on)
        .bind(i64::from(db.lanes));
    if exact {
        claim = claim.bind(limits.iter().map(|limit| count(*limit)).collect::<Vec<_>>());
    }
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
    Answer::read(rows)?.claimed(db, id, policies).await
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

    #[test]
    fn shares_make_up_the_limit() {
        let look = |want, lane| Look { lane, handler: 1, want, share: Share::default() };
        for (limits, places) in [([1_000, 65], [3, 7]), ([77, 130], [4, 16]), ([4_001, 66], [64, 1])] {
            let mut looks: Vec<Look> =
                (0..2).flat_map(|want| (0..places[want]).map(move |lane| look(want, lane))).collect();
            assert!(!share_out(&mut looks, &limits));
            for (want, limit) in limits.into_iter().enumerate() {
                let shares = || looks.iter().filter(|look| look.want == want).map(|look| look.share);
                assert_eq!(shares().map(|share| share.all).sum::<usize>(), limit);
                assert!(shares().all(|share| 0 < share.others && share.others < share.all));
            }
        }
        // Too few to be cut: whoever is oldest.
        for limits in [[64, 1_000], [1_000, 100]] {
            let mut looks: Vec<Look> =
                (0..2).flat_map(|want| (0..16).map(move |lane| look(want, lane))).collect();
            assert!(share_out(&mut looks, &limits));
            assert!(looks.iter().all(|look| look.share.all == limits[look.want]));
        }
    }
}
