//! Claim and rescue: hand entries to one worker at a time. Tests: `tests/claims.rs`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oncebox_core::state::{Outcome, Policy, Suspicion};
use oncebox_core::store::{ClaimId, ClaimMode, ClaimParams, ClaimQuota, Claimed, RescueParams};
use oncebox_core::{Error, ErrorKind, Result};
use uuid::Uuid;

use crate::claimed::{Caller, ClaimRows, LeasedEntry};
use crate::cursors::{LaneFindings, LaneHandler, Remainder, RescanRule, ScanExtent, ScanStart};
use crate::db::{Db, millis};
use crate::error::unread;
use crate::session::{PgSession, Query, Sessions, query};
use crate::settle::settle;

/// Maximum entries of a claim that takes the oldest over all lanes. A larger claim takes a share of each lane.
const EXACT: usize = 31;
/// Minimum share of a lane. Below it, the claim takes the oldest over all lanes.
const LEAST_SHARE: usize = 8;
/// Maximum entries of a claim by the short statement.
const FAST_PATH_LIMIT: usize = 8;

/// One scan target: a handler in a lane, and the `ClaimQuota` that it counts against. A lane is a fixed share of an inbox's
/// messages, chosen by a hash of the ordering key or of the key.
#[derive(Clone, Copy)]
struct ClaimTarget {
    lane: i16,
    handler: i16,
    want: usize,
    share: TargetLimits,
    /// True to scan from the start and ignore the cursor.
    at_all: bool,
}

impl ClaimTarget {
    fn place(&self) -> LaneHandler {
        (self.lane, self.handler)
    }
}

/// Keys of handlers with several keys, by want. A line spans all keys of its handler.
#[derive(Default)]
struct HandlerAliases {
    wants: Vec<i32>,
    handlers: Vec<i16>,
}

/// Returns the number of a want in the statements.
fn number(want: usize) -> i32 {
    i32::try_from(want + 1).unwrap_or(i32::MAX)
}

/// Maximum entries to claim from one target: all, and entries that waited before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TargetLimits {
    all: usize,
    others: usize,
}

pub(crate) async fn claim(db: &Db, params: &ClaimParams) -> Result<Vec<Claimed>> {
    let control = db.control.knowing(db.timeline.changes());
    let Some(inbox) = db.known_inbox(&params.inbox).await? else { return Ok(Vec::new()) };
    let caller = Caller::of_claim(params);
    let wants: Vec<&ClaimQuota> = params.wants.iter().filter(|want| want.limit > 0).collect();
    let (mut looks, mut aliases) = (Vec::new(), HandlerAliases::default());
    for (index, want) in wants.iter().enumerate() {
        let handlers = db.route(inbox, &want.route).await?;
        if handlers.len() > 1 {
            aliases.wants.extend(handlers.iter().map(|_| number(index)));
            aliases.handlers.extend(&handlers);
        }
        for handler in handlers {
            looks.extend(db.all_lanes().into_iter().map(|lane| ClaimTarget {
                lane,
                handler,
                want: index,
                share: TargetLimits::default(),
                at_all: false,
            }));
        }
    }
    if looks.is_empty() {
        return held(db, &caller).await;
    }
    match params.mode {
        ClaimMode::Healthy => healthy((db, &control), params, &wants, looks, &aliases).await,
        ClaimMode::Suspect => suspects((db, &control), params, &wants, &looks, &aliases).await,
    }
}

async fn healthy(
    (db, control): (&Db, &Sessions),
    params: &ClaimParams,
    wants: &[&ClaimQuota],
    mut looks: Vec<ClaimTarget>,
    aliases: &HandlerAliases,
) -> Result<Vec<Claimed>> {
    let caller = Caller::of_claim(params);
    let mut limits: Vec<usize> = wants.iter().map(|want| want.limit).collect();
    let mut found = ClaimRows::default();
    let mut goes_on = false;
    // The short statement cannot follow a line over the keys of a renamed handler.
    let mut short = aliases.wants.is_empty() && db.cursors.take_few(looks.iter().map(ClaimTarget::place));
    while !looks.is_empty() {
        let exact = share_out(&mut looks, &limits);
        let extent = if exact { ScanExtent::Oldest } else { ScanExtent::Many };
        let from = |look: &ClaimTarget| (look.place(), if look.at_all { ScanExtent::All } else { extent });
        let starts = db.cursors.starts(looks.iter().map(from));
        let mut session = control.claiming().await.map_err(|error| lost_after(goes_on, error))?;
        let round =
            ClaimRound { db, params, looks: &looks, starts: &starts, aliases, limits: &limits, goes_on };
        let start = Instant::now();
        let result = round.query(&mut session, exact, short).await;
        // A failed scan counts with its time, too.
        for (look, _) in looks.iter().zip(&starts).filter(|(_, start)| start.least == 0) {
            db.cursors.looked_back(look.place(), start.elapsed());
        }
        let (answer, by_short) = result?;
        session.end().await.map_err(|error| lost_after(goes_on, error))?;
        if !answer.is_all() {
            return held(db, &caller).await.map_err(unread);
        }
        let mut got = ClaimFindings::by_place(&answer);
        goes_on |= !answer.entries.is_empty();
        found.extend(answer);
        for look in &looks {
            limits[look.want] -= got.of(look).share.all.min(limits[look.want]);
        }
        let few =
            found.entries.len() <= FAST_PATH_LIMIT && found.entries.iter().all(LeasedEntry::is_untouched);
        (got.by_short, got.few, short) = (by_short, few, false);
        let looked = looks.iter().zip(&starts);
        looks = looked
            .filter_map(|(look, start)| look_again(db, look, *start, &got, (&limits, goes_on)))
            .collect();
    }
    found.claimed(db, &caller).await.map_err(unread)
}

/// Records the findings of a claim for a place. Returns the target if the claim must scan it again. `found` is true if
/// the claim has found an entry anywhere.
fn look_again(
    db: &Db,
    look: &ClaimTarget,
    start: ScanStart,
    got: &ClaimFindings,
    (limits, found): (&[usize], bool),
) -> Option<ClaimTarget> {
    let (all, got, filled) = (got, got.of(look), limits[look.want] == 0);
    // A target that returned its whole share may have more entries.
    let whole = got.share.all >= look.share.all || got.share.others >= look.share.others;
    let rest = match whole || filled {
        true => Remainder::Behind,
        false if found => Remainder::Passed,
        false => Remainder::PassedByAll,
    };
    let here = LaneFindings { untouched: got.untouched, last: got.last, few: all.are_few(rest), rest };
    let again = db.cursors.found(look.place(), start, here);
    if let RescanRule::After(rest) = again {
        db.waker.work_here_after(rest);
    }
    let looks = !filled && (whole || matches!(again, RescanRule::Recent | RescanRule::All));
    looks.then_some(ClaimTarget { at_all: again == RescanRule::All, ..*look })
}

/// Error of a claim whose last statement got no answer. If earlier statements leased entries, the outcome is unknown.
fn lost_after(others: bool, error: Error) -> Error {
    if others { unread(error) } else { error }
}

/// Entries found per target.
#[derive(Default)]
struct ClaimFindings {
    by_place: HashMap<LaneHandler, TargetFindings>,
    /// True if the claim found at most eight entries.
    few: bool,
    /// True if `claim_few` returned them, so nothing is left.
    by_short: bool,
}

#[derive(Clone, Copy, Default)]
struct TargetFindings {
    share: TargetLimits,
    /// Count of entries that were never leased, and the greatest sequence number of them.
    untouched: u64,
    last: i64,
}

impl ClaimFindings {
    fn by_place(answer: &ClaimRows) -> Self {
        let mut got = Self::default();
        for entry in &answer.entries {
            let here = got.by_place.entry(entry.place()).or_default();
            here.share.all += 1;
            if entry.is_untouched() {
                here.untouched += 1;
                here.last = here.last.max(entry.seq.0);
            } else {
                here.share.others += 1;
            }
        }
        got
    }

    /// Returns true if almost nothing is left. A claim that reached its limit cannot know this, except through the short
    /// statement, which reports it if more is left.
    fn are_few(&self, rest: Remainder) -> bool {
        self.few && (self.by_short || rest != Remainder::Behind)
    }

    fn of(&self, look: &ClaimTarget) -> TargetFindings {
        self.by_place.get(&look.place()).copied().unwrap_or_default()
    }
}

/// Sets the limit of each target. Returns true if the statement must choose the oldest over all targets: each target may then
/// give the full limit. Otherwise equal shares add up to it.
fn share_out(looks: &mut [ClaimTarget], limits: &[usize]) -> bool {
    let mut places = vec![0; limits.len()];
    for look in looks.iter() {
        places[look.want] += 1;
    }
    let is_large = |want: usize| limits[want] > EXACT && limits[want] / places[want] >= LEAST_SHARE;
    let exact = !looks.iter().all(|look| is_large(look.want));
    let mut rest: Vec<usize> = limits.to_vec();
    for look in looks {
        if exact {
            look.share = TargetLimits { all: limits[look.want], others: limits[look.want] };
            continue;
        }
        let all = rest[look.want].div_ceil(places[look.want]);
        rest[look.want] -= all;
        places[look.want] -= 1;
        // Retries leave room for new entries.
        look.share = TargetLimits { all, others: all.div_ceil(2) };
    }
    exact
}

/// One statement of a claim. A claim may need several.
struct ClaimRound<'a> {
    db: &'a Db,
    params: &'a ClaimParams,
    looks: &'a [ClaimTarget],
    starts: &'a [ScanStart],
    aliases: &'a HandlerAliases,
    limits: &'a [usize],
    /// True if an earlier round found entries.
    goes_on: bool,
}

impl ClaimRound<'_> {
    /// Returns the rows of the claim, and true if the short statement returned them. `short` tries that statement first.
    async fn query(&self, session: &mut PgSession, exact: bool, short: bool) -> Result<(ClaimRows, bool)> {
        if short {
            let answer = ClaimRows::read(session.rows(self.few()).await?).map_err(unread)?;
            if answer.is_all() {
                return Ok((answer, true));
            }
        }
        let rows = session.rows(self.all(exact)).await.map_err(|error| lost_after(self.goes_on, error))?;
        Ok((ClaimRows::read(rows).map_err(unread)?, false))
    }

    fn few(&self) -> Query<'static> {
        let few = self.limits.iter().map(|limit| count(FAST_PATH_LIMIT.min(*limit)));
        self.places(&self.db.sql.claim_few).bind(self.leasts()).bind(few.collect::<Vec<_>>())
    }

    fn all(&self, exact: bool) -> Query<'static> {
        let shares = |of: fn(TargetLimits) -> usize| -> Vec<i64> {
            self.looks.iter().map(|look| count(of(look.share))).collect()
        };
        let sql = if exact { &self.db.sql.claim_oldest } else { &self.db.sql.claim_all };
        let claim = self
            .places(sql)
            .bind(self.aliases.wants.clone())
            .bind(self.aliases.handlers.clone())
            .bind(self.leasts())
            .bind(shares(|share| share.all))
            .bind(shares(|share| share.others))
            .bind(self.goes_on)
            .bind(i64::from(self.db.lanes));
        if exact {
            claim.bind(self.limits.iter().map(|limit| count(*limit)).collect::<Vec<_>>())
        } else {
            claim
        }
    }

    fn places(&self, sql: &Arc<str>) -> Query<'static> {
        at(under(query(sql), self.db, self.params.claim_id, self.params.lease), self.looks)
    }

    fn leasts(&self) -> Vec<i64> {
        self.starts.iter().map(|start| start.least).collect()
    }
}

fn count(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Binds the places to scan, and the want of each.
fn at(query: Query<'static>, looks: &[ClaimTarget]) -> Query<'static> {
    query
        .bind(looks.iter().map(|look| look.lane).collect::<Vec<_>>())
        .bind(looks.iter().map(|look| look.handler).collect::<Vec<_>>())
        .bind(looks.iter().map(|look| number(look.want)).collect::<Vec<_>>())
}

/// Binds the first parameters of claims and rescues: time, claim id and lease.
fn under(query: Query<'static>, db: &Db, id: ClaimId, lease: Duration) -> Query<'static> {
    query.bind(db.now()).bind(uuid(id)).bind(millis(lease))
}

async fn suspects(
    (db, control): (&Db, &Sessions),
    params: &ClaimParams,
    wants: &[&ClaimQuota],
    looks: &[ClaimTarget],
    aliases: &HandlerAliases,
) -> Result<Vec<Claimed>> {
    let caller = Caller::of_claim(params);
    let limits: Vec<i64> = wants.iter().map(|want| count(want.limit)).collect();
    let company = (1..=Suspicion::FIRST_OWN_CRASH.stored())
        .map(|number| count(Suspicion::from_stored(number).company(params.company_factor)))
        .collect::<Vec<_>>();
    let suspects = at(under(query(&db.sql.claim_suspect), db, params.claim_id, params.lease), looks)
        .bind(aliases.wants.clone())
        .bind(aliases.handlers.clone())
        .bind(limits)
        .bind(company)
        .bind(params.idle);
    let mut session = control.claiming().await?;
    session.run(suspects).await?;
    session.end().await?;
    held(db, &caller).await.map_err(unread)
}

pub(crate) async fn rescue(db: &Db, params: &RescueParams) -> Result<Vec<Claimed>> {
    let Some(inbox) = db.known_inbox(&params.inbox).await? else { return Ok(Vec::new()) };
    let (caller, control) = (Caller::of_rescue(params), db.control.knowing(db.timeline.changes()));
    let mut handlers = Vec::new();
    for route in &params.routes {
        handlers.extend(db.route(inbox, route).await?);
    }
    let rescue = under(query(&db.sql.rescue), db, params.claim_id, params.lease)
        .bind(handlers)
        .bind(count(params.limit));
    let mut session = control.transaction().await?;
    session.run(rescue).await?;
    session.run(query(&db.sql.rescue_forget).bind(db.now())).await?;
    session.end().await?;
    held(db, &caller).await.map_err(unread)
}

/// Returns the entries that a claim id holds.
async fn held(db: &Db, caller: &Caller<'_>) -> Result<Vec<Claimed>> {
    let mut session = db.control.single().await?;
    let rows = session.rows(query(&db.sql.claim_held).bind(uuid(caller.id))).await?;
    session.end().await?;
    ClaimRows::read(rows)?.claimed(db, caller).await
}

/// Releases entries whose caller stopped waiting for the claim.
pub(crate) async fn release(db: &Db, claimed: &[Claimed]) {
    let back: Vec<_> =
        claimed.iter().map(|claimed| claimed.claim.settle(&Policy::default(), Outcome::Released)).collect();
    if let Err(error) = settle(db, &back).await {
        let kind: ErrorKind = error.kind();
        tracing::warn!(%error, ?kind, "cannot release an abandoned claim");
    }
}

pub(crate) fn uuid(id: ClaimId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_statement_is_not_asked_in_vain() {
        let got = |few, by_short| ClaimFindings { few, by_short, ..ClaimFindings::default() };
        assert!(
            got(true, false).are_few(Remainder::Passed) && got(true, false).are_few(Remainder::PassedByAll)
        );
        assert!(!got(true, false).are_few(Remainder::Behind), "a backlog, and a small limit");
        assert!(!got(false, false).are_few(Remainder::Passed), "as many as come in between two claims");
        assert!(got(true, true).are_few(Remainder::Behind), "it would have said that there is more");
    }

    #[test]
    fn shares_make_up_the_limit() {
        let look = |want, lane| ClaimTarget {
            lane,
            handler: 1,
            want,
            share: TargetLimits::default(),
            at_all: false,
        };
        for (limits, places) in [([1_000, 65], [3, 7]), ([77, 130], [4, 16]), ([4_001, 66], [64, 1])] {
            let mut looks: Vec<ClaimTarget> =
                (0..2).flat_map(|want| (0..places[want]).map(move |lane| look(want, lane))).collect();
            assert!(!share_out(&mut looks, &limits));
            for (want, limit) in limits.into_iter().enumerate() {
                let shares = || looks.iter().filter(|look| look.want == want).map(|look| look.share);
                assert_eq!(shares().map(|share| share.all).sum::<usize>(), limit);
                assert!(shares().all(|share| 0 < share.others && share.others < share.all));
            }
        }
        for (limit, is_exact) in [(31, true), (32, false)] {
            assert_eq!(share_out(&mut [look(0, 0)], &[limit]), is_exact, "{limit}");
        }
        // Too few entries to split: the oldest ones go first.
        for limits in [[64, 1_000], [1_000, 100]] {
            let mut looks: Vec<ClaimTarget> =
                (0..2).flat_map(|want| (0..16).map(move |lane| look(want, lane))).collect();
            assert!(share_out(&mut looks, &limits));
            assert!(looks.iter().all(|look| look.share.all == limits[look.want]));
        }
    }
}
