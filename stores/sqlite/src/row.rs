//! Converts rows to the types of the library. Tests: `tests/damage.rs`, the testkit's conformance suite.

use std::sync::Arc;

use bytes::Bytes;
use oncebox_core::state::{ErrorText, InLine, PoisonReason, Status, Suspicion};
use oncebox_core::store::{EntryView, Seq};
use oncebox_core::time::Timestamp;
use oncebox_core::{Headers, Key, Message, Result};
use rusqlite::Row;

use crate::error::{corrupt, store_error};
use crate::names::HandlerState;

/// Reads the message in the columns from `first` on: time, tenant, source, id, type, ordering key, headers, payload.
pub(crate) fn message(row: &Row<'_>, first: usize) -> Result<Arc<Message>> {
    let read = || -> rusqlite::Result<(Message, Vec<u8>)> {
        let bytes = |column: usize| -> rusqlite::Result<Bytes> {
            Ok(Bytes::copy_from_slice(row.get_ref(first + column)?.as_blob()?))
        };
        let text = |column: usize| -> rusqlite::Result<Box<str>> {
            Ok(row.get_ref(first + column)?.as_str()?.into())
        };
        let mut message = Message::new(bytes(3)?, text(4)?, bytes(7)?).with_source(text(2)?);
        if let Some(time) = row.get::<_, Option<i64>>(first)? {
            message = message.with_time(Timestamp::from_millis(time));
        }
        if let Some(tenant) = row.get_ref(first + 1)?.as_str_or_null()? {
            message = message.with_tenant(tenant);
        }
        if let Some(key) = row.get::<_, Option<Vec<u8>>>(first + 5)? {
            message = message.with_ordering_key(key);
        }
        Ok((message, row.get(first + 6)?))
    };
    let (message, headers) = read().map_err(store_error)?;
    let message = if headers.is_empty() { message } else { message.with_headers(Headers::decode(&headers)?) };
    Ok(Arc::new(message))
}

pub(crate) fn key(row: &Row<'_>, column: usize) -> rusqlite::Result<Key> {
    Ok(Key::from_bytes(row.get(column)?))
}

/// Reads the key of a message that may be lost. Then the key is made from its number.
pub(crate) fn key_of(row: &Row<'_>, column: usize, seq: i64) -> rusqlite::Result<Key> {
    Ok(row.get::<_, Option<[u8; 32]>>(column)?.map_or_else(|| lost_key(seq), Key::from_bytes))
}

/// Returns the key of a lost message, so that an operator can name its entries: zeros, then the number.
fn lost_key(seq: i64) -> Key {
    let mut bytes = [0; 32];
    bytes[24..].copy_from_slice(&seq.to_be_bytes());
    Key::from_bytes(bytes)
}

/// Returns the number in the key of a lost message.
pub(crate) fn lost_seq(key: &Key) -> Option<i64> {
    let (zeros, number) = key.as_bytes().split_at(24);
    let number = i64::from_be_bytes(number.try_into().ok()?);
    zeros.iter().all(|byte| *byte == 0).then_some(number)
}

/// Reads an entry in the column order of the admin queries: seq, handler, status, attempts, crashes, generation, at,
/// reason, error, in line.
pub(crate) fn entry(row: &Row<'_>, handler: &HandlerState, key: Key) -> Result<EntryView> {
    let word: String = row.get(2).map_err(store_error)?;
    let status = Status::ALL.into_iter().find(|status| status.as_str() == word);
    let status = status.ok_or_else(|| corrupt("a stored entry has an unknown status"))?;
    let read = || -> rusqlite::Result<EntryView> {
        let mut view = EntryView::new(
            Seq(row.get(0)?),
            key,
            handler.key.clone(),
            status,
            Timestamp::from_millis(row.get(6)?),
        );
        view.origin = handler.origin.clone();
        view.attempts = row.get(3)?;
        view.suspicion = Suspicion::from_stored(row.get(4)?);
        view.generation = row.get(5)?;
        let reason: Option<String> = row.get(7)?;
        view.reason = PoisonReason::ALL.into_iter().find(|known| Some(known.as_str()) == reason.as_deref());
        view.error = row.get::<_, Option<String>>(8)?.map(ErrorText::stored);
        view.in_line = row.get::<_, Option<String>>(9)?.and_then(|word| InLine::from_word(&word));
        Ok(view)
    };
    read().map_err(store_error)
}
