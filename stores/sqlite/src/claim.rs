//! Claim and rescue: lease entries to a worker. Tests: `tests/batch.rs`, `tests/takeover.rs`.

use std::collections::HashMap;
use std::sync::Arc;

use oncebox_core::state::{ErrorText, Outcome, Policies, Suspicion};
use oncebox_core::store::{
    Claim, ClaimId, ClaimMode, ClaimParams, ClaimQuota, Claimed, RescueParams, Route, Seq, Token,
};
use oncebox_core::time::Timestamp;
use oncebox_core::{HandlerKey, Message, OrderKey, Result};
use rusqlite::params;

use crate::error::{corrupt, store_error};
use crate::owner::{self, own_first};
use crate::row;
use crate::settle::settle;
use crate::sql::SQL;
use crate::writer::WriteTx;

pub(crate) fn claim(work: &mut WriteTx<'_>, params: &ClaimParams) -> Result<Vec<Claimed>> {
    let routes: Vec<&Route> = params.wants.iter().map(|want| &want.route).collect();
    let held = held(work, params.claim_id, &routes, &params.policies)?;
    if !held.is_empty() {
        return Ok(held);
    }
    let Some(inbox) = work.names.known_inbox(&params.inbox) else { return Ok(Vec::new()) };
    // Store the token only with an entry. A claim that finds nothing must not write, or idle workers would wake each
    // other for ever.
    let token = work.counters.token + 1;
    let lease_until = work.now.after(params.lease);
    for want in &params.wants {
        work.names.link_known(work.connection, inbox.id, &want.route)?;
    }
    let owner = work.owner.id();
    let take = Take { claim_id: params.claim_id, token, lease_until, alone: false, owner };
    let taken = match params.mode {
        ClaimMode::Healthy => healthy(work, inbox.id, &params.wants, &take)?,
        ClaimMode::Suspect => {
            let found = suspects(work, inbox.id, params)?;
            let take = Take { alone: params.idle && found.len() == 1, ..take };
            let mut taken = 0;
            for (due, seq, handler) in found {
                taken += take_one(work, &take, handler, due, seq)?;
            }
            taken
        }
    };
    if taken == 0 {
        return Ok(Vec::new());
    }
    work.counters.token = token;
    if owner.is_none() {
        own_first(work, params.claim_id)?;
    }
    self::held(work, params.claim_id, &routes, &params.policies)
}

/// Returns the keys of a wanted handler that are not paused, and all of its keys.
fn keys(work: &WriteTx<'_>, inbox: i64, want: &ClaimQuota) -> (Vec<i64>, Vec<i64>) {
    let known = work.names.route(inbox, &want.route);
    let goes = |handler: &i64| work.names.by_id(*handler).is_ok_and(|handler| !handler.paused);
    (known.iter().copied().filter(goes).collect(), known)
}

fn healthy(work: &WriteTx<'_>, inbox: i64, wants: &[ClaimQuota], take: &Take) -> Result<usize> {
    let mut taken = 0;
    for want in wants {
        let (handlers, known) = keys(work, inbox, want);
        match shares(work, &handlers, &known, want.limit)? {
            Shares::Ranges(shares) => {
                for (handler, limit) in shares {
                    taken += take_healthy(work, take, handler, limit)?;
                }
            }
            Shares::Ordered => {
                for (handler, due, seq) in in_turn(work, &handlers, &known, want.limit)? {
                    taken += take_one(work, take, handler, due, seq)?;
                }
            }
        }
    }
    Ok(taken)
}

/// Returns the due suspect that waited longest, and others with the same suspicion: due, number and handler.
fn suspects(work: &WriteTx<'_>, inbox: i64, params: &ClaimParams) -> Result<Vec<DueEntry>> {
    let wants = || params.wants.iter().filter(|want| want.limit > 0);
    let mut first: Option<(DueEntry, Suspicion)> = None;
    for want in wants() {
        for found in peek_suspects(work, inbox, want, None, 1)? {
            first = Some(first.map_or(found, |first| first.min(found)));
        }
    }
    let Some((entry, suspicion)) = first else { return Ok(Vec::new()) };
    let company = suspicion.company(params.company_factor);
    if company == 1 {
        return Ok(vec![entry]);
    }
    let mut found = Vec::new();
    for want in wants() {
        let mut same = peek_suspects(work, inbox, want, Some(suspicion), want.limit)?;
        same.sort_unstable();
        found.extend(same.into_iter().map(|(entry, _)| entry).take(want.limit));
    }
    found.sort_unstable();
    found.dedup();
    found.truncate(company);
    Ok(found)
}

/// Due time, number and handler of an entry.
type DueEntry = (i64, i64, i64);

/// Returns the first due suspects under each key of a wanted handler, with one suspicion or with any.
fn peek_suspects(
    work: &WriteTx<'_>,
    inbox: i64,
    want: &ClaimQuota,
    suspicion: Option<Suspicion>,
    limit: usize,
) -> Result<Vec<(DueEntry, Suspicion)>> {
    let (handlers, known) = keys(work, inbox, want);
    let (known, limit) = (json(&known), i64::try_from(limit).unwrap_or(i64::MAX));
    let mut peek = work.statement(SQL.claim_peek_suspects)?;
    let mut found = Vec::new();
    for handler in handlers {
        let stored = suspicion.map(Suspicion::stored);
        let rows = peek
            .query_map(params![handler, work.now.as_millis(), known, stored, limit], |row| {
                Ok(((row.get(0)?, row.get(1)?, handler), Suspicion::from_stored(row.get(2)?)))
            })
            .map_err(store_error)?;
        found.extend(rows.collect::<rusqlite::Result<Vec<_>>>().map_err(store_error)?);
    }
    Ok(found)
}

/// Splits `limit` over the keys of a handler, so that the oldest entries come first under any key. `known` holds all of
/// its keys, paused ones included.
fn shares(work: &WriteTx<'_>, handlers: &[i64], known: &[i64], limit: usize) -> Result<Shares> {
    if let ([handler], [_]) = (handlers, known) {
        return Ok(Shares::Ranges(vec![(*handler, limit)]));
    }
    let mut due: Vec<(i64, i64, i64, bool)> = Vec::new();
    let mut peek = work.statement(SQL.claim_peek)?;
    for handler in handlers {
        let wanted = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = peek
            .query_map(params![handler, work.now.as_millis(), wanted], |row| {
                Ok((row.get(0)?, row.get(1)?, *handler, row.get(2)?))
            })
            .map_err(store_error)?;
        due.extend(rows.collect::<rusqlite::Result<Vec<_>>>().map_err(store_error)?);
    }
    if due.iter().any(|(.., ordered)| *ordered) {
        return Ok(Shares::Ordered);
    }
    due.sort_unstable();
    due.truncate(limit);
    let share = |handler: &i64| due.iter().filter(|(_, _, of, _)| of == handler).count();
    Ok(Shares::Ranges(handlers.iter().map(|handler| (*handler, share(handler))).collect()))
}

/// Number of entries to take under the keys of a handler.
enum Shares {
    /// The first entries of each key, up to a count.
    Ranges(Vec<(i64, usize)>),
    /// One by one: some entries have an order key, and may have to wait for an entry under another key.
    Ordered,
}

/// Returns the first due entries of a handler that no earlier entry blocks, under any of its keys: handler, due and
/// number.
fn in_turn(
    work: &WriteTx<'_>,
    handlers: &[i64],
    known: &[i64],
    limit: usize,
) -> Result<Vec<(i64, i64, i64)>> {
    let (wanted, known) = (i64::try_from(limit).unwrap_or(i64::MAX), json(known));
    let mut due: Vec<(i64, i64, i64)> = Vec::new();
    let mut peek = work.statement(SQL.claim_peek_in_turn)?;
    for handler in handlers {
        let rows = peek
            .query_map(params![handler, work.now.as_millis(), wanted, known], |row| {
                Ok((row.get(0)?, row.get(1)?, *handler))
            })
            .map_err(store_error)?;
        due.extend(rows.collect::<rusqlite::Result<Vec<_>>>().map_err(store_error)?);
    }
    due.sort_unstable();
    due.dedup();
    due.truncate(limit);
    Ok(due.into_iter().map(|(due, seq, handler)| (handler, due, seq)).collect())
}

/// Formats numbers as JSON, for a statement that takes any count of them.
fn json(numbers: &[i64]) -> String {
    format!("{numbers:?}")
}

struct Take {
    claim_id: ClaimId,
    token: i64,
    lease_until: Timestamp,
    alone: bool,
    owner: Option<i64>,
}

fn take_healthy(work: &WriteTx<'_>, take: &Take, handler: i64, limit: usize) -> Result<usize> {
    let wanted = i64::try_from(limit).unwrap_or(i64::MAX);
    let now = work.now.as_millis();
    let taken = work
        .statement(SQL.claim_take)?
        .execute(params![
            &take.claim_id.as_bytes()[..],
            take.token,
            now,
            take.lease_until.as_millis(),
            handler,
            wanted,
            take.owner
        ])
        .map_err(store_error)?;
    if taken == 0 {
        return Ok(0);
    }
    work.statement(SQL.claim_remove)?
        .execute(params![&take.claim_id.as_bytes()[..], handler])
        .map_err(store_error)?;
    Ok(taken)
}

fn take_one(work: &WriteTx<'_>, take: &Take, handler: i64, due: i64, seq: i64) -> Result<usize> {
    work.statement(SQL.claim_take_one)?
        .execute(params![
            &take.claim_id.as_bytes()[..],
            take.token,
            work.now.as_millis(),
            take.lease_until.as_millis(),
            handler,
            due,
            seq,
            take.alone,
            take.owner
        ])
        .map_err(store_error)?;
    work.statement(SQL.claim_remove_one)?.execute(params![handler, due, seq]).map_err(store_error)
}

/// Returns the entries that a claim id holds. Rejects an entry with an unreadable message: it must not delay the others.
fn held(
    work: &mut WriteTx<'_>,
    claim_id: ClaimId,
    routes: &[&Route],
    policies: &Policies,
) -> Result<Vec<Claimed>> {
    let (mut held, mut damaged) = (Vec::new(), Vec::new());
    for (claim, message) in read_held(work, claim_id, routes)? {
        match message {
            Ok(message) => held.push(Claimed { claim, message }),
            Err(error) => {
                tracing::error!(seq = claim.seq.0, %error, "a stored message is damaged");
                let error = ErrorText::new(format!("the stored message is damaged: {}", error.what()));
                damaged.push(claim.settle(&policies.of(&claim.handler), Outcome::Reject { error }));
            }
        }
    }
    if !damaged.is_empty() {
        settle(work, &damaged)?;
        // There may be more entries behind the rejected ones.
        *work.wake = true;
    }
    Ok(held)
}

/// Reads the entries of a claim id, with the handler keys that the caller knows.
fn read_held(
    work: &WriteTx<'_>,
    claim_id: ClaimId,
    routes: &[&Route],
) -> Result<Vec<(Claim, Result<Arc<Message>>)>> {
    let mut statement = work.statement(SQL.claim_held)?;
    let mut rows = statement.query([&claim_id.as_bytes()[..]]).map_err(store_error)?;
    let mut held = Vec::new();
    let mut keys: HashMap<i64, HandlerKey> = HashMap::new();
    while let Some(row) = rows.next().map_err(store_error)? {
        let id = row.get(1).map_err(store_error)?;
        let handler = work.names.by_id(id)?;
        let key = || work.names.key_in(routes.iter().copied(), handler.inbox, id).unwrap_or(&handler.key);
        let key = keys.entry(id).or_insert_with(|| key().clone());
        let inbox = work.names.inbox_name(handler.inbox)?;
        let read = || -> rusqlite::Result<Claim> {
            Ok(Claim {
                inbox: inbox.clone(),
                seq: Seq(row.get(0)?),
                handler: key.clone(),
                origin: handler.origin.clone(),
                key: row::key_of(row, 9, row.get(0)?)?,
                token: Token(row.get(2)?),
                claim_id,
                attempts: row.get(4)?,
                suspicion: Suspicion::from_stored(row.get(5)?),
                alone: row.get(19)?,
                generation: row.get(6)?,
                order: row.get::<_, Option<[u8; 16]>>(7)?.map(OrderKey::from_bytes),
                received_at: Timestamp::from_millis(row.get::<_, Option<i64>>(10)?.unwrap_or_default()),
                claimed_at: Timestamp::from_millis(row.get(3)?),
            })
        };
        let claim = read().map_err(store_error)?;
        let due: i64 = row.get(8).map_err(store_error)?;
        let gone = row.get_ref(9).map_err(store_error)? == rusqlite::types::ValueRef::Null;
        let message = if gone { Err(corrupt("it is not there")) } else { row::message(row, 11) };
        held.push((due, claim, message));
    }
    // The rows are in the order of their numbers. A retry is due later than its number suggests.
    held.sort_by_key(|(due, claim, _)| (*due, claim.seq));
    Ok(held.into_iter().map(|(_, claim, message)| (claim, message)).collect())
}

pub(crate) fn rescue(work: &mut WriteTx<'_>, params: &RescueParams) -> Result<Vec<Claimed>> {
    let routes: Vec<&Route> = params.routes.iter().collect();
    let held = held(work, params.claim_id, &routes, &params.policies)?;
    if !held.is_empty() {
        return Ok(held);
    }
    let Some(inbox) = work.names.known_inbox(&params.inbox) else { return Ok(Vec::new()) };
    for route in &routes {
        work.names.link_known(work.connection, inbox.id, route)?;
    }
    let handlers: Vec<i64> = routes.iter().flat_map(|route| work.names.route(inbox.id, route)).collect();
    let dead = owner::dead(work)?;
    let expired: Vec<([u8; 16], i64, i64, i64)> = {
        let mut statement = work.statement(SQL.rescue_expired)?;
        let rows = statement
            .query_map(params![work.now.as_millis(), json(&dead.ids)], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })
            .map_err(store_error)?;
        let known =
            rows.filter(|row| row.as_ref().map_or(true, |(_, _, handler, _)| handlers.contains(handler)));
        known.take(params.limit).collect::<rusqlite::Result<_>>().map_err(store_error)?
    };
    if expired.is_empty() {
        return Ok(Vec::new());
    }
    let (token, owner) = (work.next_token(), owner::enter(work)?);
    let mut take_over = work.statement(SQL.rescue_take_over)?;
    for (claim_id, seq, handler, old_token) in expired {
        take_over
            .execute(params![
                &claim_id[..],
                seq,
                handler,
                old_token,
                &params.claim_id.as_bytes()[..],
                token,
                work.now.as_millis(),
                work.now.after(params.lease).as_millis(),
                owner
            ])
            .map_err(store_error)?;
    }
    drop(take_over);
    self::held(work, params.claim_id, &routes, &params.policies)
}
