//! Erases the content of one message. Tests: `tests/erase.rs`.

use oncebox_core::state::{Operation, erase as decide};
use oncebox_core::store::{ActionResult, ErasedIds, ErasureCounts, nothing_to_erase};
use oncebox_core::{Fingerprint, HandlerKey, InboxName, Key, Result};
use rusqlite::{Connection, params};

use crate::admin;
use crate::error::store_error;
use crate::sql::SQL;
use crate::writer::WriteTx;

pub(crate) fn erase(
    work: &mut WriteTx<'_>,
    inbox: &InboxName,
    key: &Key,
    discard_unfinished: bool,
) -> Result<ErasureCounts> {
    // Marks store the name of their inbox, which may have no id yet.
    let inbox_id = work.names.known_inbox(inbox).map(|inbox| inbox.id);
    let found = inbox_id.map_or(Ok(None), |inbox| admin::stored(work, inbox, key))?;
    let (stored, mut ids) = (found.as_ref().map(|stored| stored.seq.0), ErasedIds::default());
    if let Some(message) = found.as_ref().and_then(|found| found.message.as_ref().ok()) {
        ids.add(message.id(), message.ordering_key());
    }
    let mut unfinished: Vec<(HandlerKey, Operation)> = Vec::new();
    if let Some(seq) = stored {
        // Decide everything before the first change.
        for entry in admin::entries(work, seq, key)? {
            if let Some(operation) = decide(entry.status, discard_unfinished)? {
                unfinished.push((entry.handler, operation));
            }
        }
    }
    for (handler, operation) in &unfinished {
        admin::operate(work, inbox, key, handler, *operation)?;
    }
    let _overwriting = Overwriting::begin(work.connection)?;
    let execute = |sql: &'static str, params: &[&dyn rusqlite::ToSql]| -> Result<usize> {
        work.statement(sql)?.execute(params).map_err(store_error)
    };
    if let Some(seq) = stored {
        let erased = &Fingerprint::ERASED.as_bytes()[..];
        execute(SQL.erase_message, params![seq, erased])?;
        execute(SQL.erase_outcomes, params![seq])?;
        execute(SQL.history_forget_attempts, params![seq])?;
    }
    let digest = &key.as_bytes()[..];
    let mut statement = work.statement(SQL.erase_quarantine)?;
    let mut rows = statement.query(params![digest, inbox_id]).map_err(store_error)?;
    let mut quarantined = 0;
    while let Some(row) = rows.next().map_err(store_error)? {
        let (id, ordering_key): (Vec<u8>, Option<Vec<u8>>) =
            row.get(0).and_then(|id| Ok((id, row.get(1)?))).map_err(store_error)?;
        ids.add(&id, ordering_key.as_deref());
        quarantined += 1;
    }
    let marks = execute(SQL.erase_marks, params![digest])?;
    if stored.is_none() && quarantined == 0 && marks == 0 {
        return Err(nothing_to_erase(key));
    }
    let mut statement = work.statement(SQL.erase_answers)?;
    let answers = statement.query_map([digest], |row| Ok((row.get(0)?, row.get(1)?))).map_err(store_error)?;
    let answers: Vec<(i64, String)> = answers.collect::<rusqlite::Result<_>>().map_err(store_error)?;
    for (number, answer) in answers {
        if let Some(without) = ActionResult::without_content(&answer) {
            execute(SQL.erase_set_answer, params![number, without])?;
        }
    }
    if !ids.is_empty() {
        let mut statement = work.statement(SQL.erase_bodies)?;
        let bodies =
            statement.query_map([inbox_id], |row| Ok((row.get(0)?, row.get(1)?))).map_err(store_error)?;
        let bodies: Vec<(i64, String)> = bodies.collect::<rusqlite::Result<_>>().map_err(store_error)?;
        for (number, body) in bodies {
            if let Some(without) = ids.without(&body) {
                execute(SQL.erase_set_body, params![number, without])?;
            }
        }
    }
    Ok(ErasureCounts::new(unfinished.len(), quarantined))
}

/// Makes SQLite overwrite all freed data with zeros, including whole pages, until this is dropped. Other calls do
/// without it, because it costs writes.
struct Overwriting<'a>(&'a Connection);

impl<'a> Overwriting<'a> {
    fn begin(connection: &'a Connection) -> Result<Self> {
        switch(connection, "on").map_err(store_error)?;
        Ok(Self(connection))
    }
}

impl Drop for Overwriting<'_> {
    fn drop(&mut self) {
        if let Err(error) = switch(self.0, "fast") {
            tracing::warn!(%error, effect = "slower writes", "cannot reset secure_delete");
        }
    }
}

fn switch(connection: &Connection, how: &str) -> rusqlite::Result<()> {
    // SQLite returns the new value.
    connection.pragma_update_and_check(None, "secure_delete", how, |_| Ok(()))
}
