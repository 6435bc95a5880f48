//! Prints wire types as tables or JSON lines. Tests: `tests/operate/output.rs`.

use serde::Serialize;

use super::target::TargetArgs;
use crate::cli::out::{self, Cell, table};
use crate::cli::{CommandError, Exit};
use crate::operator::wire::{EntryRecord, InboxTotals, TimeText};

/// Maximum length of an error in a table, in characters.
const ERROR: usize = 80;

/// Prints one JSON object on a line.
pub(super) fn json<T: Serialize>(value: &T) -> Result<(), CommandError> {
    out::line(&serde_json::to_string(value).map_err(|error| Exit::Failure.with(error))?)
}

/// Formats a time; `None` means that the entry waits for another one.
pub(super) fn time(at: Option<TimeText>) -> String {
    at.map_or_else(|| "waits".into(), |at| at.to_string())
}

pub(super) fn entries(entries: &[EntryRecord]) -> Result<(), CommandError> {
    let row = |entry: &EntryRecord| {
        let label = entry.message.as_ref();
        vec![
            Cell::coloured(entry.status.0.as_str(), entry.status.0),
            Cell::new(&entry.handler),
            Cell::new(label.map_or("", |label| &label.id)),
            Cell::new(label.map_or("", |label| &label.message_type)),
            Cell::new(entry.attempts.to_string()),
            Cell::new(time(entry.at)),
            Cell::new(entry.key.0.to_string()),
            Cell::cut(entry.error.as_deref().unwrap_or_default(), ERROR),
        ]
    };
    let rows: Vec<_> = entries.iter().map(row).collect();
    let head = ["STATUS", "HANDLER", "ID", "TYPE", "ATTEMPTS", "AT", "KEY", "ERROR"];
    out::print(&table(&head, &rows, out::colours()))
}

/// Prints a note if the inbox is empty: its name may be misspelled.
pub(super) fn note_if_empty(target: &TargetArgs, counts: &InboxTotals) -> Result<(), CommandError> {
    if counts.messages == 0 && counts.quarantined == 0 && counts.entries.is_empty() {
        let (inbox, _) = target.resolve()?;
        out::eprint_note(&format!("the inbox {inbox} is empty; check its name"));
    }
    Ok(())
}
