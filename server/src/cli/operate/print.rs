//! For people: tables whose cells cannot play tricks on a terminal. For programs: JSON.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use oncebox::state::ErrorText;
use oncebox::store::{EntryView, OperationView};
use oncebox::time::Timestamp;
use serde_json::{Value, json};

/// Text without control characters: an id may hold any bytes, and a terminal obeys some of them.
pub(super) fn printable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut safe, c| {
        if c.is_control() && c != '\n' {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
        safe
    })
}

pub(super) fn bytes(bytes: &[u8]) -> String {
    printable(&String::from_utf8_lossy(bytes)).replace('\n', "\\n")
}

/// A time for people; one that never comes is the wait for another entry.
pub(super) fn time(at: Timestamp) -> String {
    if at == Timestamp::MAX {
        return "waits".into();
    }
    let since = Duration::from_millis(u64::try_from(at.as_millis()).unwrap_or(0));
    let system: SystemTime = UNIX_EPOCH + since;
    humantime::format_rfc3339_millis(system).to_string()
}

/// A table: as wide as its cells.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells.zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    println!("{}", line(&mut head.iter().copied()));
    for row in rows {
        println!("{}", line(&mut row.iter().map(String::as_str)));
    }
}

pub(super) fn entries(entries: &[EntryView]) {
    let row = |entry: &EntryView| {
        let label = entry.label.as_ref();
        let error = entry.error.as_ref().map_or("", ErrorText::as_str);
        vec![
            entry.status.to_string(),
            entry.handler.to_string(),
            label.map_or_else(String::new, |label| bytes(&label.id)),
            label.map_or_else(String::new, |label| printable(&label.kind)),
            entry.attempts.to_string(),
            time(entry.at),
            entry.key.to_string(),
            printable(error).replace('\n', "\\n").chars().take(80).collect(),
        ]
    };
    let rows: Vec<_> = entries.iter().map(row).collect();
    table(&["STATUS", "HANDLER", "ID", "TYPE", "ATTEMPTS", "AT", "KEY", "ERROR"], &rows);
}

pub(super) fn entry(entry: &EntryView) -> Value {
    let label = entry.label.as_ref().map(|label| {
        json!({ "source": label.source, "id": String::from_utf8_lossy(&label.id), "type": label.kind,
                "ordering_key": label.ordering_key.as_deref().map(String::from_utf8_lossy) })
    });
    json!({
        "key": entry.key.to_string(), "handler": entry.handler.as_str(), "status": entry.status.as_str(),
        "attempts": entry.attempts, "crashes": entry.crashes, "generation": entry.generation,
        "at_ms": entry.at.as_millis(), "received_at_ms": entry.received_at.as_millis(),
        "reason": entry.reason.map(oncebox::state::PoisonReason::as_str),
        "error": entry.error.as_ref().map(ErrorText::as_str), "tenant": entry.tenant, "message": label,
    })
}

pub(super) fn operation(one: &OperationView) -> Value {
    json!({
        "id": one.id.to_string(), "parent": one.parent.map(|parent| parent.to_string()), "at_ms": one.at.as_millis(),
        "actor": one.actor, "reason": one.reason, "verb": one.verb, "key": one.key.map(|key| key.to_string()),
        "handler": one.handler.as_ref().map(oncebox::HandlerKey::as_str),
        "body": serde_json::from_str::<Value>(&one.body).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_not_told_what_to_do() {
        assert_eq!(printable("\u{1b}[31mred\u{7}"), "\\u{1b}[31mred\\u{7}");
        assert_eq!(bytes(b"a\0b\nc"), "a\\u{0}b\\nc");
        assert_eq!(bytes("größe".as_bytes()), "größe");
    }

    #[test]
    fn times_are_dates() {
        assert_eq!(time(Timestamp::from_millis(1_767_225_600_000)), "2026-01-01T00:00:00.000Z");
        assert_eq!(time(Timestamp::MAX), "waits");
    }
}
