//! The fast path: messages that all go to the same handlers, at once and without order. Tests: `tests/unlooked.rs`.

use oncebox_core::time::Timestamp;
use oncebox_core::{Message, Result};
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::{AcceptRow, KnownWith, Offered, chosen, column, encode_handlers, places};
use crate::db::Db;
use crate::error::corrupt;
use crate::row::get;
use crate::session::{Query, query};

/// Kind of a statement.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Statement {
    /// For one message. Returns the rows of the long path.
    One,
    /// For many messages. Some may be known.
    Plain,
    /// For many new messages. Stores and returns nothing if one of them is known.
    New,
}

/// A statement.
pub(super) struct FastPath<'a> {
    pub(super) query: Query<'a>,
    pub(super) statement: Statement,
}

impl<'a> FastPath<'a> {
    /// Returns `None` if a message needs the long path. With `looks`, a statement for many messages looks up known keys
    /// first. It always does so if the sweep may have deleted one of the keys.
    pub(super) fn new(db: &Db, offers: &'a [Offered], round: &[usize], looks: bool) -> Option<Self> {
        let chosen = chosen(offers, round);
        let (_, first) = chosen.first()?;
        let doubted = chosen.iter().map(|(_, offer)| &offer.doubted).find(|doubted| !doubted.is_empty());
        let doubted = doubted.cloned().unwrap_or_default();
        let plain = |offer: &Offered| offer.is_plain(&first.handlers) && offer.is_doubted_by(&doubted);
        if !chosen.iter().all(|(_, offer)| plain(offer)) {
            return None;
        }
        let (one, plain) = if doubted.is_empty() {
            (&db.sql.accept_one, &db.sql.accept_plain)
        } else {
            (&db.sql.accept_one_by_time, &db.sql.accept_plain_by_time)
        };
        let (query, statement) = match chosen[..] {
            [(place, offer)] => (alone(one, db, place, offer), Statement::One),
            _ if !looks && doubted.is_empty() => {
                (together(&db.sql.accept_new, db, &chosen, first), Statement::New)
            }
            _ => (together(plain, db, &chosen, first), Statement::Plain),
        };
        Some(Self { query: if doubted.is_empty() { query } else { query.bind(doubted) }, statement })
    }
}

fn time(message: &Message) -> Option<i64> {
    message.time().map(Timestamp::as_millis)
}

fn begun<'a>(sql: &std::sync::Arc<str>, db: &Db, offer: &Offered) -> Query<'a> {
    query(sql)
        .bind(db.now())
        .bind(offer.inbox)
        .bind(encode_handlers(&offer.handlers))
        .bind(offer.handlers.clone())
}

fn alone<'a>(sql: &std::sync::Arc<str>, db: &Db, place: i32, offer: &'a Offered) -> Query<'a> {
    let message = &offer.new.message;
    begun(sql, db, offer)
        .bind(place)
        .bind(offer.lane)
        .bind(&offer.new.key.as_bytes()[..])
        .bind(&offer.new.fingerprint.as_bytes()[..])
        .bind(time(message))
        .bind(message.source())
        .bind(message.id())
        .bind(message.message_type())
        .bind(message.headers().encode())
        .bind(&message.payload()[..])
        .bind(message.tenant())
}

fn together<'a>(
    sql: &std::sync::Arc<str>,
    db: &Db,
    chosen: &[(i32, &'a Offered)],
    first: &'a Offered,
) -> Query<'a> {
    let times = column(chosen, |offer| time(&offer.new.message));
    let tenants = column(chosen, |offer| offer.new.message.tenant());
    let sources = column(chosen, |offer| offer.new.message.source());
    let types = column(chosen, |offer| offer.new.message.message_type());
    let headers = column(chosen, |offer| offer.new.message.headers().encode());
    let message = &first.new.message;
    begun(sql, db, first)
        .bind(places(chosen))
        .bind(column(chosen, |offer| offer.lane))
        .bind(column(chosen, |offer| &offer.new.key.as_bytes()[..]))
        .bind(column(chosen, |offer| &offer.new.fingerprint.as_bytes()[..]))
        .bind(times.iter().any(Option::is_some).then_some(times))
        .bind(unless_same(sources))
        .bind(column(chosen, |offer| offer.new.message.id()))
        .bind(unless_same(types))
        .bind(unless_same(headers))
        .bind(column(chosen, |offer| &offer.new.message.payload()[..]))
        .bind(tenants.iter().any(Option::is_some).then_some(tenants))
        .bind(message.source())
        .bind(message.message_type())
        .bind(message.headers().encode())
}

/// Returns `None` if all values are equal: then the first one is sent once.
fn unless_same<T: PartialEq>(values: Vec<T>) -> Option<Vec<T>> {
    values.windows(2).any(|pair| pair[0] != pair[1]).then_some(values)
}

/// Reads the one row with the results of many messages.
pub(super) fn read_rows(rows: &[PgRow]) -> Result<Vec<AcceptRow>> {
    let row = rows.first().ok_or_else(|| corrupt("a batch was not answered"))?;
    let places: Vec<i32> = list(row, 0)?;
    let seqs: Vec<i64> = list(row, 1)?;
    let mut found: Vec<AcceptRow> = places
        .into_iter()
        .zip(seqs)
        .map(|(place, seq)| AcceptRow { place, seq: Some(seq), is_new: true, is_stale: false, known: None })
        .collect();
    let places: Vec<i32> = if row.len() > 2 { list(row, 2)? } else { Vec::new() };
    if !places.is_empty() {
        let seqs: Vec<Option<i64>> = list(row, 3)?;
        let stale: Vec<bool> = list(row, 4)?;
        let fingerprints: Vec<Option<Vec<u8>>> = list(row, 5)?;
        let handlers: Vec<Option<Vec<u8>>> = list(row, 6)?;
        let ages: Vec<Option<i64>> = list(row, 7)?;
        let known = fingerprints.into_iter().zip(handlers).zip(ages);
        for (((place, seq), is_stale), known) in places.into_iter().zip(seqs).zip(stale).zip(known) {
            let known = match known {
                ((Some(fingerprint), Some(handlers)), Some(age)) => {
                    Some(KnownWith { fingerprint, handlers, age })
                }
                _ => None,
            };
            found.push(AcceptRow { place, seq, is_new: false, is_stale, known });
        }
    }
    Ok(found)
}

/// Reads a list. NULL is an empty one.
fn list<'r, T>(row: &'r PgRow, column: usize) -> Result<Vec<T>>
where
    Vec<T>: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    Ok(get::<Option<Vec<T>>>(row, column)?.unwrap_or_default())
}
