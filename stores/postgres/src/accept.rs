//! Accept: stores each message once per key, with one pending entry per handler. Tests: `tests/accept_races.rs`.

mod accept_in;
mod duplicate_expectation;
mod fast_path;
mod rare_cases;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use oncebox_core::store::{Accepted, KnownMessage, NewMessage, QuarantineReason, Route, Seq};
use oncebox_core::{Error, ErrorKind, Fingerprint, Key, Result};
use sqlx::postgres::PgRow;

use crate::db::{Db, TouchedQueues, millis};
use crate::error::corrupt;
use crate::row::get;
use crate::session::{Query, Sessions, query};
pub(crate) use accept_in::{StagedCounts, StagedMessages};
pub(crate) use duplicate_expectation::DuplicateExpectation;
use fast_path::{FastPath, Statement};
use rare_cases::{add_unordered, handle_rare_cases, unordered_entries};
pub(crate) use rare_cases::{group_of, order_of};

/// Maximum messages in one statement.
const MAX_ROUND: usize = 1_000;
/// Maximum retries for messages that raced with another message under the same key.
const RACES: usize = 100;

/// A message on its way in, with the numbers of its names.
pub(crate) struct Offered {
    pub(crate) new: NewMessage,
    /// Number of timeline changes that the process knew when it read these ids.
    changes: u64,
    inbox: i16,
    /// Lane of the key, and lane of the message.
    lane: i16,
    home: i16,
    /// By route: the id of its key, then the ids of former keys with another id.
    routes: Vec<Vec<i16>>,
    /// Ids of the keys, sorted.
    handlers: Vec<i16>,
    /// The keys in `handlers` that ignore ordering keys.
    ignore_order: Vec<i16>,
    /// If the key may have been swept: the ids of all current and former keys of its handlers, or 0 without handlers.
    doubted: Vec<i16>,
}

impl Offered {
    pub(crate) async fn new(db: &Db, new: &NewMessage) -> Result<Self> {
        refuse_nul(new)?;
        let changes = db.timeline.changes();
        let inbox = db.inbox(&new.inbox).await?;
        let mut routes = Vec::with_capacity(new.routes.len());
        for route in &*new.routes {
            routes.push(db.link(inbox, route).await?);
        }
        let mut handlers: Vec<i16> = routes.iter().filter_map(|ids| ids.first().copied()).collect();
        handlers.sort_unstable();
        handlers.dedup();
        let is_unordered =
            |(ids, route): (&Vec<i16>, &Route)| ids.first().copied().filter(|_| !route.ordered);
        let ignore_order = routes.iter().zip(&*new.routes).filter_map(is_unordered).collect();
        let (lane, home) = (db.lane_of(&new.key), db.home_of(&new.key, new.order.as_ref()));
        let mut doubted: Vec<i16> = routes.iter().flatten().copied().collect();
        match new.doubtful_since() {
            None => doubted.clear(),
            Some(_) if doubted.is_empty() => doubted.push(0),
            Some(_) => doubted.sort_unstable(),
        }
        Ok(Self { new: new.clone(), changes, inbox, lane, home, routes, handlers, ignore_order, doubted })
    }

    pub(crate) fn inbox(&self) -> i16 {
        self.inbox
    }

    /// Returns the lane of the key.
    pub(crate) fn lane(&self) -> i16 {
        self.lane
    }

    /// Returns the approximate number of bytes that the store sends for the message.
    pub(crate) fn bytes(&self) -> usize {
        self.new.message.payload().len() + 256
    }

    /// Returns true if the message goes to exactly these handlers, without delay or ordering key.
    fn is_plain(&self, handlers: &[i16]) -> bool {
        self.new.delay.is_zero() && self.new.message.ordering_key().is_none() && self.handlers == handlers
    }

    /// Returns true if one watermark check covers this message too: it has these handlers, or no time to check.
    fn is_doubted_by(&self, doubted: &[i16]) -> bool {
        self.doubted == doubted || self.new.message.time().is_none()
    }

    fn add_lines(&self, lines: &mut TouchedQueues) {
        if let Some(order) = &self.new.order {
            for handler in self.keep_order() {
                lines.add(self.home, handler, order.as_bytes().to_vec());
            }
        }
    }

    /// Returns the handlers whose entries ignore the order of this message. Empty if it has no order.
    fn unordered(&self) -> &[i16] {
        if self.new.order.is_some() { &self.ignore_order } else { &[] }
    }

    /// Splits handlers that are added to a stored message: those that keep its order, the others. Omits an empty part.
    fn split_by_order(
        &self,
        added: Vec<i16>,
        order: Option<Vec<u8>>,
    ) -> impl Iterator<Item = (Vec<i16>, Option<Vec<u8>>)> + use<> {
        // The stored message may have an order that this one does not have.
        let keeps_order = |handler: &i16| order.is_some() && !self.ignore_order.contains(handler);
        let (ordered, unordered): (Vec<i16>, Vec<i16>) = added.into_iter().partition(keeps_order);
        [(ordered, order), (unordered, None)].into_iter().filter(|(added, _)| !added.is_empty())
    }

    /// Returns the handlers whose entries have the order of the message, if it has one.
    fn keep_order(&self) -> impl Iterator<Item = i16> {
        self.handlers.iter().copied().filter(|handler| !self.unordered().contains(handler))
    }
}

/// Refuses a message with a NUL character in a text column, before it shares a statement with others.
fn refuse_nul(new: &NewMessage) -> Result<()> {
    let message = &new.message;
    let texts = [
        ("source", message.source()),
        ("type", message.message_type()),
        ("tenant", message.tenant().unwrap_or("")),
    ];
    for (what, text) in texts {
        if text.contains('\0') {
            return Err(Error::new(
                ErrorKind::InvalidMessage,
                format!("the message's {what} holds a NUL character"),
            ));
        }
    }
    Ok(())
}

/// Result of one message in a batch.
enum OfferOutcome {
    Answer(Accepted),
    /// Another call stored the same key at the same moment. The message must be offered again.
    Raced,
    /// The message needs more than one statement.
    RareCase(RareCase),
}

#[derive(Clone, Copy)]
enum RareCase {
    Quarantine(QuarantineReason, Option<Seq>),
    AddHandlers,
}

/// Result of a stored batch.
pub(crate) struct StoredBatch {
    pub(crate) accepted: Vec<Accepted>,
    /// True if the batch made entries claimable.
    pub(crate) work: bool,
}

/// Stores a batch. One commit stores all new messages.
pub(crate) async fn store(db: &Db, sessions: &Sessions, offers: &[Offered]) -> Result<StoredBatch> {
    let oldest = offers.iter().map(|offer| offer.changes).min();
    let sessions = &oldest.map_or_else(|| sessions.clone(), |changes| sessions.knowing(changes));
    let mut answers: Vec<Option<Accepted>> = vec![None; offers.len()];
    let mut waiting: Vec<usize> = (0..offers.len()).collect();
    let mut work = false;
    for turn in 0..RACES {
        let mut rare_cases = Vec::new();
        let verdicts = offer(db, sessions, offers, &waiting).await;
        let verdicts = verdicts.map_err(|error| if turn == 0 { error } else { partly(error) })?;
        waiting.clear();
        for (index, verdict) in verdicts {
            match verdict {
                OfferOutcome::Answer(accepted) => {
                    work |= matches!(accepted, Accepted::First(_)) && !offers[index].routes.is_empty();
                    answers[index] = Some(accepted);
                }
                OfferOutcome::Raced => waiting.push(index),
                OfferOutcome::RareCase(rare_case) => rare_cases.push((index, rare_case)),
            }
        }
        if !rare_cases.is_empty() {
            let cared = handle_rare_cases(db, sessions, offers, &rare_cases).await.map_err(partly)?;
            for ((index, _), accepted) in rare_cases.into_iter().zip(cared) {
                work |= matches!(accepted, Some(Accepted::HandlersAdded(..)));
                match accepted {
                    Some(accepted) => answers[index] = Some(accepted),
                    None => waiting.push(index),
                }
            }
        }
        if waiting.is_empty() {
            let accepted = answers.into_iter().collect::<Option<Vec<_>>>();
            let accepted = accepted.ok_or_else(|| corrupt("a message of a batch was not answered"))?;
            return Ok(StoredBatch { accepted, work });
        }
        waiting.sort_unstable();
    }
    Err(partly(Error::new(
        ErrorKind::Unavailable,
        "the same keys were offered and removed at the same time, again and again",
    )))
}

/// Returns an error for a batch that is partly committed. A repeat of the call finds out which messages are stored.
fn partly(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unavailable | ErrorKind::Full | ErrorKind::ReadOnly | ErrorKind::Denied => {
            Error::new(ErrorKind::CommitUnknown, "a part of the batch was stored, the rest was not")
                .caused_by(error)
        }
        _ => error,
    }
}

/// Offers messages: in one statement that commits by itself, unless a repeated key or a second inbox needs several.
async fn offer(
    db: &Db,
    sessions: &Sessions,
    offers: &[Offered],
    indexes: &[usize],
) -> Result<Vec<(usize, OfferOutcome)>> {
    let rounds = rounds(offers, indexes);
    let mut lines = TouchedQueues::default();
    for index in indexes {
        offers[*index].add_lines(&mut lines);
    }
    let unordered = indexes.iter().any(|index| !offers[*index].unordered().is_empty());
    if let ([round], true) = (&rounds[..], lines.is_empty() && !unordered) {
        return offer_round(db, sessions, offers, round).await;
    }
    let single = rounds.len() == 1 && !unordered;
    let mut session = if single { sessions.single().await? } else { sessions.transaction().await? };
    let mut verdicts = Vec::with_capacity(indexes.len());
    // The first round takes all locks, in order. A round leaves messages that it does not know yet unchanged.
    let mut locks = lines.locks();
    for round in &rounds {
        let offered = long_way(db, offers, round, std::mem::take(&mut locks), &lines);
        let found = read_rows(&session.rows(offered).await?)?;
        if unordered {
            add_unordered(db, &mut session, offers, &found).await?;
        }
        verdicts.extend(verdicts_of(offers, found)?);
    }
    session.end().await?;
    Ok(verdicts)
}

/// Offers messages in one statement. Uses a second one if the first skipped the lookup and a key is known. The short
/// statement fails if another process stores one of the keys at the same moment; the long one waits for it.
async fn offer_round(
    db: &Db,
    sessions: &Sessions,
    offers: &[Offered],
    round: &[usize],
) -> Result<Vec<(usize, OfferOutcome)>> {
    let mut looks = db.duplicate_expectation.looks();
    while let Some(FastPath { query, statement }) = FastPath::new(db, offers, round, looks) {
        let mut session = sessions.single().await?;
        match session.rows(query).await {
            Ok(rows) => {
                session.end().await?;
                let found = match statement {
                    Statement::New if rows.is_empty() => {
                        db.duplicate_expectation.learn(true);
                        looks = true;
                        continue;
                    }
                    Statement::New | Statement::Plain => fast_path::read_rows(&rows)?,
                    Statement::One => read_rows(&rows)?,
                };
                let known = found.iter().any(|row| !row.is_new);
                // A single message predicts little about batches, unless its key is known.
                if known || statement != Statement::One {
                    db.duplicate_expectation.learn(known);
                }
                return verdicts_of(offers, found);
            }
            // Nothing of the statement was stored.
            Err(error) if error.kind() == ErrorKind::Corrupt => break,
            Err(error) => {
                // The insert may have waited for a transaction that changes a known key. A lookup does not wait.
                db.duplicate_expectation.learn(true);
                return Err(error);
            }
        }
    }
    let mut session = sessions.single().await?;
    let rows = session.rows(long_way(db, offers, round, Vec::new(), &TouchedQueues::default())).await?;
    session.end().await?;
    verdicts_of(offers, read_rows(&rows)?)
}

/// Splits a batch into statements: one inbox, each key once, not too large. Keeps the order of a key's messages.
fn rounds(offers: &[Offered], indexes: &[usize]) -> Vec<Vec<usize>> {
    let mut by_inbox: BTreeMap<i16, Vec<Vec<usize>>> = BTreeMap::new();
    let mut seen: Vec<HashSet<Key>> = Vec::new();
    for index in indexes {
        let offer = &offers[*index];
        let repeats = seen.iter().take_while(|keys| keys.contains(&offer.new.key)).count();
        if seen.len() == repeats {
            seen.push(HashSet::new());
        }
        seen[repeats].insert(offer.new.key);
        let rounds = by_inbox.entry(offer.inbox).or_default();
        while rounds.len() <= repeats {
            rounds.push(Vec::new());
        }
        rounds[repeats].push(*index);
    }
    let mut rounds: Vec<_> = by_inbox.into_values().flatten().collect();
    for round in rounds.iter_mut().filter(|round| round.len() > MAX_ROUND) {
        // All statements store keys in the same order, so that batches with common keys cannot deadlock. Messages with
        // an ordering key keep their order of arrival; the transaction locks their lines first.
        round.sort_by_key(|index| {
            let offer = &offers[*index];
            offer.new.order.is_none().then_some((offer.lane, offer.new.key))
        });
    }
    rounds.iter().flat_map(|round| round.chunks(MAX_ROUND).map(<[usize]>::to_vec)).collect()
}

/// Returns the messages of a round, with their places in the batch.
fn chosen<'a>(offers: &'a [Offered], round: &[usize]) -> Vec<(i32, &'a Offered)> {
    round.iter().map(|index| (place(*index), &offers[*index])).collect()
}

/// Returns one value of each message.
fn column<'a, T>(chosen: &[(i32, &'a Offered)], value: impl Fn(&'a Offered) -> T) -> Vec<T> {
    chosen.iter().map(|(_, offer)| value(offer)).collect()
}

/// Returns the statement for all kinds of messages of one inbox. It takes `locks` first.
fn long_way<'a>(
    db: &Db,
    offers: &'a [Offered],
    round: &[usize],
    locks: Vec<i32>,
    lines: &TouchedQueues,
) -> Query<'a> {
    let chosen = chosen(offers, round);
    let inbox = chosen.first().map_or(0, |(_, offer)| offer.inbox);
    let mut entries = (Vec::new(), Vec::new());
    // Many messages go to the same few handlers.
    let mut distinct: Vec<&[i16]> = Vec::new();
    let mut by_message = Vec::with_capacity(chosen.len());
    for (at, offer) in &chosen {
        let known = distinct.iter().position(|handlers| *handlers == offer.doubted);
        by_message.push(place(known.unwrap_or(distinct.len())));
        if known.is_none() {
            distinct.push(&offer.doubted);
        }
        for handler in offer.keep_order() {
            entries.0.push(*at);
            entries.1.push(handler);
        }
    }
    let numbered = distinct.iter().enumerate();
    let pairs = numbered.flat_map(|(number, handlers)| handlers.iter().map(move |id| (place(number), *id)));
    let doubted: (Vec<i32>, Vec<i16>) = pairs.unzip();
    let accept = query(&db.sql.accept)
        .bind(db.now())
        .bind(inbox)
        .bind(places(&chosen))
        .bind(column(&chosen, |offer| offer.lane))
        .bind(column(&chosen, |offer| offer.home))
        .bind(column(&chosen, |offer| &offer.new.key.as_bytes()[..]))
        .bind(column(&chosen, |offer| &offer.new.fingerprint.as_bytes()[..]))
        .bind(column(&chosen, |offer| encode_handlers(&offer.handlers)))
        .bind(column(&chosen, |offer| offer.new.message.time().map(oncebox_core::time::Timestamp::as_millis)))
        .bind(column(&chosen, |offer| offer.new.message.source()))
        .bind(column(&chosen, |offer| offer.new.message.id()))
        .bind(column(&chosen, |offer| offer.new.message.message_type()))
        .bind(column(&chosen, |offer| offer.new.message.ordering_key()))
        .bind(column(&chosen, |offer| offer.new.message.headers().encode()))
        .bind(column(&chosen, |offer| &offer.new.message.payload()[..]))
        .bind(column(&chosen, |offer| offer.new.order.as_ref().map(|order| &order.as_bytes()[..])))
        .bind(column(&chosen, |offer| millis(offer.new.delay)))
        .bind(entries.0)
        .bind(entries.1)
        .bind(tenants(&chosen))
        .bind(db.lock_class)
        .bind(locks);
    lines.bind(accept).bind(by_message).bind(doubted.0).bind(doubted.1)
}

/// Returns the tenants of all messages. `None` if no message has one.
fn tenants<'a>(chosen: &[(i32, &'a Offered)]) -> Option<Vec<Option<&'a str>>> {
    let tenants = column(chosen, |offer| offer.new.message.tenant());
    tenants.iter().any(Option::is_some).then_some(tenants)
}

fn places(chosen: &[(i32, &Offered)]) -> Vec<i32> {
    chosen.iter().map(|(place, _)| *place).collect()
}

fn place(index: usize) -> i32 {
    i32::try_from(index).unwrap_or(i32::MAX)
}

/// Row that a statement returned for one message.
struct AcceptRow {
    place: i32,
    /// Number of the message. `None` if it raced with another, or is stale.
    seq: Option<i64>,
    is_new: bool,
    is_stale: bool,
    known: Option<KnownWith>,
}

/// Stored fingerprint, handlers and age of a known key.
struct KnownWith {
    fingerprint: Vec<u8>,
    handlers: Vec<u8>,
    /// Time since the key was stored, in milliseconds.
    age: i64,
}

/// Reads a row for each message.
fn read_rows(rows: &[PgRow]) -> Result<Vec<AcceptRow>> {
    rows.iter().map(read_row).collect()
}

fn read_row(row: &PgRow) -> Result<AcceptRow> {
    let known = match get(row, 4)? {
        Some(fingerprint) => Some(KnownWith { fingerprint, handlers: get(row, 5)?, age: get(row, 6)? }),
        None => None,
    };
    Ok(AcceptRow {
        place: get(row, 0)?,
        seq: get(row, 1)?,
        is_new: get(row, 2)?,
        is_stale: get(row, 3)?,
        known,
    })
}

fn verdicts_of(offers: &[Offered], found: Vec<AcceptRow>) -> Result<Vec<(usize, OfferOutcome)>> {
    found.into_iter().map(|row| verdict(offers, row)).collect()
}

fn verdict(offers: &[Offered], row: AcceptRow) -> Result<(usize, OfferOutcome)> {
    let index = usize::try_from(row.place).unwrap_or(usize::MAX);
    let offer = offers.get(index).ok_or_else(|| corrupt("an answer is for no message"))?;
    let verdict = match (row.seq.map(Seq), row.known) {
        (Some(seq), _) if row.is_new => OfferOutcome::Answer(Accepted::First(seq)),
        (Some(seq), Some(with)) => known(offer, known_for(seq, with.age), &with.fingerprint, &with.handlers),
        (Some(_), None) => return Err(corrupt("an answer knows a message and says nothing of it")),
        (None, _) if row.is_stale => {
            OfferOutcome::RareCase(RareCase::Quarantine(QuarantineReason::Stale, None))
        }
        (None, _) => OfferOutcome::Raced,
    };
    Ok((index, verdict))
}

/// Result for a duplicate: the sequence number of the first message, and its age.
fn known_for(seq: Seq, age: i64) -> KnownMessage {
    KnownMessage::new(seq, Duration::from_millis(u64::try_from(age).unwrap_or(0)))
}

fn known(offer: &Offered, known: KnownMessage, fingerprint: &[u8], handlers: &[u8]) -> OfferOutcome {
    if fingerprint == Fingerprint::ERASED.as_bytes() {
        return OfferOutcome::Answer(Accepted::Duplicate(known));
    }
    let varied = fingerprint != offer.new.fingerprint.as_bytes();
    let stored = <[u8; 16]>::try_from(fingerprint).map(Fingerprint::from_bytes);
    let in_conflict = stored.map_or(true, |stored| offer.new.conflicts_with(&stored));
    if in_conflict {
        return OfferOutcome::RareCase(RareCase::Quarantine(QuarantineReason::Conflict, Some(known.seq)));
    }
    if missing(offer, &decode_handlers(handlers)).is_empty() {
        return OfferOutcome::Answer(Accepted::Duplicate(known.varied(varied)));
    }
    OfferOutcome::RareCase(RareCase::AddHandlers)
}

/// Returns the handlers of a message without an entry under their key or a former one, each with all of its keys.
fn missing<'a>(offer: &'a Offered, present: &[i16]) -> Vec<&'a [i16]> {
    let routes = offer.routes.iter().map(Vec::as_slice);
    routes.filter(|ids| !ids.iter().any(|id| present.contains(id))).collect()
}

pub(crate) fn encode_handlers(handlers: &[i16]) -> Vec<u8> {
    handlers.iter().flat_map(|id| id.to_be_bytes()).collect()
}

pub(crate) fn decode_handlers(bytes: &[u8]) -> Vec<i16> {
    bytes.as_chunks::<2>().0.iter().map(|id| i16::from_be_bytes(*id)).collect()
}
