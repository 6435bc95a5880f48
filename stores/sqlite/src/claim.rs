//! Claim and rescue: lease entries to a worker.

use std::sync::Arc;

use oncebox::state::{ErrorText, Outcome, Policies};
use oncebox::store::{Claim, ClaimId, ClaimMode, ClaimParams, Claimed, RescueParams, Seq, Token};
use oncebox::time::Timestamp;
use oncebox::{Message, OrderKey, Result};
use rusqlite::{OptionalExtension as _, params};

use crate::error::store_error;
use crate::row;
use crate::settle::settle;
use crate::writer::Work;

pub(crate) fn claim(work: &mut Work<'_>, params: &ClaimParams) -> Result<Vec<Claimed>> {
    let held = held(work, params.claim_id, &params.policies)?;
    if !held.is_empty() {
        return Ok(held);
    }
    let Some(inbox) = work.names.known_inbox(&params.inbox) else { return Ok(Vec::new()) };
    // Taken for good only with an entry: a claim that finds nothing must not write, or idle workers would wake each other
    // for ever.
    let token = work.counters.token + 1;
    let lease_until = work.now.after(params.lease);
    let mut taken = 0;
    for want in &params.wants {
        let mut handlers = work.names.route(inbox.id, &want.route);
        handlers.retain(|handler| work.names.by_id(*handler).is_ok_and(|handler| !handler.paused));
        let take = |handler| Take { claim_id: params.claim_id, token, lease_until, handler };
        match params.mode {
            ClaimMode::Healthy => {
                let known = work.names.route(inbox.id, &want.route);
                match shares(work, &handlers, &known, want.limit)? {
                    Shares::Ranges(shares) => {
                        for (handler, limit) in shares {
                            taken += take_healthy(work, &take(handler), limit)?;
                        }
                    }
                    Shares::Ordered => {
                        for (handler, due, seq) in in_turn(work, &handlers, &known, want.limit)? {
                            taken += take_one(work, &take(handler), due, seq)?;
                        }
                    }
                }
            }
            ClaimMode::Suspect => {
                let known = json(&work.names.route(inbox.id, &want.route));
                for handler in handlers {
                    if taken == 0 && want.limit > 0 {
                        taken += take_suspect(work, &take(handler), &known)?;
                    }
                }
            }
        }
    }
    if taken == 0 {
        return Ok(Vec::new());
    }
    work.counters.token = token;
    self::held(work, params.claim_id, &params.policies)
}

/// How many entries to take under each key of a handler: the oldest first, whatever key they are stored under. `known` are
/// all of its keys, paused ones included.
fn shares(work: &Work<'_>, handlers: &[i64], known: &[i64], limit: usize) -> Result<Shares> {
    if let ([handler], [_]) = (handlers, known) {
        return Ok(Shares::Ranges(vec![(*handler, limit)]));
    }
    let mut due: Vec<(i64, i64, i64, bool)> = Vec::new();
    let mut peek = work.statement(include_str!("../sql/claim/peek.sql"))?;
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

/// What is taken under the keys of a handler.
enum Shares {
    /// The first so many of each.
    Ranges(Vec<(i64, usize)>),
    /// One by one: some have an order key, and may have to wait for one under another key.
    Ordered,
}

/// The first due entries of a handler that no earlier one keeps waiting, under any of its keys: handler, due and number.
fn in_turn(work: &Work<'_>, handlers: &[i64], known: &[i64], limit: usize) -> Result<Vec<(i64, i64, i64)>> {
    let (wanted, known) = (i64::try_from(limit).unwrap_or(i64::MAX), json(known));
    let mut due: Vec<(i64, i64, i64)> = Vec::new();
    let mut peek = work.statement(include_str!("../sql/claim/peek_in_turn.sql"))?;
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

/// Numbers, for a statement that takes any count of them.
fn json(numbers: &[i64]) -> String {
    format!("{numbers:?}")
}

struct Take {
    claim_id: ClaimId,
    token: i64,
    lease_until: Timestamp,
    handler: i64,
}

fn take_healthy(work: &Work<'_>, take: &Take, limit: usize) -> Result<usize> {
    let wanted = i64::try_from(limit).unwrap_or(i64::MAX);
    let now = work.now.as_millis();
    let taken = work
        .statement(include_str!("../sql/claim/take.sql"))?
        .execute(params![
            &take.claim_id.as_bytes()[..],
            take.token,
            now,
            take.lease_until.as_millis(),
            take.handler,
            wanted
        ])
        .map_err(store_error)?;
    if taken == 0 {
        return Ok(0);
    }
    work.statement(include_str!("../sql/claim/remove.sql"))?
        .execute(params![&take.claim_id.as_bytes()[..], take.handler])
        .map_err(store_error)?;
    Ok(taken)
}

fn take_one(work: &Work<'_>, take: &Take, due: i64, seq: i64) -> Result<usize> {
    work.statement(include_str!("../sql/claim/take_one.sql"))?
        .execute(params![
            &take.claim_id.as_bytes()[..],
            take.token,
            work.now.as_millis(),
            take.lease_until.as_millis(),
            take.handler,
            due,
            seq
        ])
        .map_err(store_error)?;
    work.statement(include_str!("../sql/claim/remove_one.sql"))?
        .execute(params![take.handler, due, seq])
        .map_err(store_error)
}

fn take_suspect(work: &Work<'_>, take: &Take, known: &str) -> Result<usize> {
    let seq: Option<i64> = work
        .statement(include_str!("../sql/claim/take_suspect.sql"))?
        .query_row(
            params![
                &take.claim_id.as_bytes()[..],
                take.token,
                work.now.as_millis(),
                take.lease_until.as_millis(),
                take.handler,
                known
            ],
            |row| row.get(0),
        )
        .optional()
        .map_err(store_error)?;
    let Some(seq) = seq else { return Ok(0) };
    work.statement(include_str!("../sql/claim/remove_suspect.sql"))?
        .execute(params![seq, take.handler])
        .map_err(store_error)
}

/// What a claim id holds. An entry whose message cannot be read is rejected here: it must not keep the others waiting.
fn held(work: &mut Work<'_>, claim_id: ClaimId, policies: &Policies) -> Result<Vec<Claimed>> {
    let (mut held, mut damaged) = (Vec::new(), Vec::new());
    for (claim, message) in read_held(work, claim_id)? {
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
        // There may be others behind them.
        *work.wake = true;
    }
    Ok(held)
}

fn read_held(work: &Work<'_>, claim_id: ClaimId) -> Result<Vec<(Claim, Result<Arc<Message>>)>> {
    let mut statement = work.statement(include_str!("../sql/claim/held.sql"))?;
    let mut rows = statement.query([&claim_id.as_bytes()[..]]).map_err(store_error)?;
    let mut held = Vec::new();
    while let Some(row) = rows.next().map_err(store_error)? {
        let handler = work.names.by_id(row.get(1).map_err(store_error)?)?;
        let inbox = work.names.inbox_name(handler.inbox)?;
        let read = || -> rusqlite::Result<Claim> {
            Ok(Claim {
                inbox: inbox.clone(),
                seq: Seq(row.get(0)?),
                handler: handler.key.clone(),
                key: row::key(row, 9)?,
                token: Token(row.get(2)?),
                claim_id,
                attempts: row.get(4)?,
                crashes: row.get(5)?,
                generation: row.get(6)?,
                order: row.get::<_, Option<[u8; 16]>>(7)?.map(OrderKey::from_bytes),
                received_at: Timestamp::from_millis(row.get(10)?),
                claimed_at: Timestamp::from_millis(row.get(3)?),
            })
        };
        let claim = read().map_err(store_error)?;
        let due: i64 = row.get(8).map_err(store_error)?;
        held.push((due, claim, row::message(row, 11)));
    }
    // The rows come by sequence; a retry is younger than its sequence says.
    held.sort_by_key(|(due, claim, _)| (*due, claim.seq));
    Ok(held.into_iter().map(|(_, claim, message)| (claim, message)).collect())
}

pub(crate) fn rescue(work: &mut Work<'_>, params: &RescueParams) -> Result<Vec<Claimed>> {
    let held = held(work, params.claim_id, &params.policies)?;
    if !held.is_empty() {
        return Ok(held);
    }
    let Some(inbox) = work.names.known_inbox(&params.inbox) else { return Ok(Vec::new()) };
    let handlers: Vec<i64> =
        params.routes.iter().flat_map(|route| work.names.route(inbox.id, route)).collect();
    let expired: Vec<([u8; 16], i64, i64, i64)> = {
        let mut statement = work.statement(include_str!("../sql/rescue/expired.sql"))?;
        let rows = statement
            .query_map([work.now.as_millis()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
            .map_err(store_error)?;
        let known =
            rows.filter(|row| row.as_ref().map_or(true, |(_, _, handler, _)| handlers.contains(handler)));
        known.take(params.limit).collect::<rusqlite::Result<_>>().map_err(store_error)?
    };
    if expired.is_empty() {
        return Ok(Vec::new());
    }
    let token = work.next_token();
    let mut take_over = work.statement(include_str!("../sql/rescue/take_over.sql"))?;
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
                work.now.after(params.lease).as_millis()
            ])
            .map_err(store_error)?;
    }
    drop(take_over);
    self::held(work, params.claim_id, &params.policies)
}
