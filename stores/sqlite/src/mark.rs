//! Mark: remember inside the caller's own transaction that a key was handled.

use oncebox::time::Timestamp;
use oncebox::{Error, ErrorKind, HandlerKey, InboxName, Key, Mark, Result};
use rusqlite::{Connection, params};

use crate::error::store_error;

/// Marks on any connection. The insert takes SQLite's write lock if the transaction does not hold it yet, so of two
/// duplicates at once the second waits for the first; a wait that is too long is an error, never a duplicate.
pub(crate) fn mark(
    connection: &Connection,
    inbox: &InboxName,
    key: &Key,
    handler: &HandlerKey,
    now: Timestamp,
) -> Result<Mark> {
    if connection.is_autocommit() {
        let what = "a mark needs an open transaction: without one it would be kept even if the work fails";
        return Err(Error::new(ErrorKind::Refused, what));
    }
    let marked = connection
        .prepare_cached(include_str!("../sql/mark/mark.sql"))
        .and_then(|mut statement| {
            statement.execute(params![inbox.as_str(), &key.as_bytes()[..], handler.as_str(), now.as_millis()])
        })
        .map_err(store_error)?;
    Ok(if marked == 1 { Mark::First } else { Mark::Duplicate })
}
