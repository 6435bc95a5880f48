//! Converts rows to the types of the library. Tests: the testkit's conformance suite.

use std::sync::Arc;

use bytes::Bytes;
use oncebox_core::state::{ErrorText, InLine, PoisonReason, Status, Suspicion};
use oncebox_core::store::{EntryView, Seq};
use oncebox_core::time::Timestamp;
use oncebox_core::{HandlerKey, Headers, Key, Message, OrderKey, Result};
use sqlx::postgres::PgRow;
use sqlx::{Decode, Postgres, Row as _, Type};

use crate::error::{corrupt, unreadable};

/// Returns a column's value.
pub(crate) fn get<'r, T: Decode<'r, Postgres> + Type<Postgres>>(row: &'r PgRow, column: usize) -> Result<T> {
    row.try_get(column).map_err(unreadable)
}

/// Reads the message in the columns from `first` on: time, source, id, type, ordering key, headers, payload, tenant.
pub(crate) fn message(row: &PgRow, first: usize) -> Result<Arc<Message>> {
    let bytes =
        |column: usize| -> Result<Bytes> { Ok(Bytes::copy_from_slice(get::<&[u8]>(row, first + column)?)) };
    let text = |column: usize| -> Result<Box<str>> { Ok(get::<&str>(row, first + column)?.into()) };
    let mut message = Message::new(bytes(2)?, text(3)?, bytes(6)?).with_source(text(1)?);
    if let Some(time) = get::<Option<i64>>(row, first)? {
        message = message.with_time(Timestamp::from_millis(time));
    }
    if let Some(key) = get::<Option<&[u8]>>(row, first + 4)? {
        message = message.with_ordering_key(key.to_vec());
    }
    if let Some(tenant) = get::<Option<&str>>(row, first + 7)? {
        message = message.with_tenant(tenant);
    }
    let headers: &[u8] = get(row, first + 5)?;
    Ok(Arc::new(if headers.is_empty() { message } else { message.with_headers(Headers::decode(headers)?) }))
}

pub(crate) fn key(row: &PgRow, column: usize) -> Result<Key> {
    let bytes: &[u8] = get(row, column)?;
    Ok(Key::from_bytes(bytes.try_into().map_err(|_| corrupt("a stored digest has a wrong length"))?))
}

pub(crate) fn order(row: &PgRow, column: usize) -> Result<Option<OrderKey>> {
    get::<Option<&[u8]>>(row, column)?.map(order_key).transpose()
}

pub(crate) fn order_key(bytes: &[u8]) -> Result<OrderKey> {
    let bytes = bytes.try_into().map_err(|_| corrupt("a stored order key has a wrong length"))?;
    Ok(OrderKey::from_bytes(bytes))
}

/// Reads a count. NULL is 0.
pub(crate) fn count(row: &PgRow, column: usize) -> Result<u32> {
    Ok(get::<Option<i32>>(row, column)?.map_or(0, i32::unsigned_abs))
}

/// Reads an entry in the column order of the admin queries: seq, handler, status, attempts, crashes, generation, at,
/// reason, error, in line. Column `origin` has the origin of the handler.
pub(crate) fn entry(row: &PgRow, origin: usize, key: Key) -> Result<EntryView> {
    let word: &str = get(row, 2)?;
    let status = Status::ALL.into_iter().find(|status| status.as_str() == word);
    let status = status.ok_or_else(|| corrupt("a stored entry has an unknown status"))?;
    let handler = HandlerKey::new(get::<String>(row, 1)?)?;
    let mut view =
        EntryView::new(Seq(get(row, 0)?), key, handler, status, Timestamp::from_millis(get(row, 6)?));
    view.origin = HandlerKey::new(get::<String>(row, origin)?)?;
    view.attempts = count(row, 3)?;
    view.suspicion = Suspicion::from_stored(count(row, 4)?);
    view.generation = count(row, 5)?;
    let reason: Option<&str> = get(row, 7)?;
    view.reason = PoisonReason::ALL.into_iter().find(|known| Some(known.as_str()) == reason);
    view.error = get::<Option<&str>>(row, 8)?.map(ErrorText::stored);
    view.in_line = get::<Option<&str>>(row, 9)?.and_then(InLine::from_word);
    Ok(view)
}
