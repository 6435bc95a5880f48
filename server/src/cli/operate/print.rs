//! Tables for people and lines for programs, of what goes over the wire.

use serde::Serialize;

use super::target::TargetArgs;
use crate::api::wire::{EntryRecord, InboxCounts, TimeText};
use crate::cli::out::{self, Cell, table};
use crate::cli::{CommandError, Exit};

/// The longest error in a table.
const ERROR: usize = 80;

/// One JSON object on a line.
pub(super) fn json<T: Serialize>(value: &T) -> Result<(), CommandError> {
    out::line(&serde_json::to_string(value).map_err(|error| Exit::Failure.with(error))?)
}

/// A time for people; one that never comes is the wait for another entry.
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

/// Tells when nothing at all is stored: an inbox that nobody has used looks like one that is well.
pub(super) fn if_empty(place: &TargetArgs, counts: &InboxCounts) -> Result<(), CommandError> {
    if counts.messages == 0 && counts.quarantined == 0 && counts.entries.is_empty() {
        let (inbox, _) = place.found()?;
        out::eprint_note(&format!("nothing is stored for the inbox {inbox} here; is that its name?"));
    }
    Ok(())
}
