//! Table of figures, one line per peer. Tests: below.

use std::fmt::Write as _;

use super::PeerFigure;

type ColumnText = fn(&PeerFigure) -> Option<String>;

/// Columns: row, heading and shown part.
const COLUMNS: [(&str, &str, ColumnText); 5] = [
    ("enqueue-single-8", "single, 8 callers", |row| row.value.map(thousands)),
    ("enqueue-batch-500", "batch of 500", |row| row.value.map(thousands)),
    ("drain", "drain", |row| row.value.map(thousands)),
    ("latency-200", "p50 ms", |row| row.p50_ms.map(|ms| format!("{ms:.1}"))),
    ("latency-200", "p99 ms", |row| row.p99_ms.map(|ms| format!("{ms:.1}"))),
];

/// Backlog of most peers; the table names a smaller one.
const BACKLOG: u64 = 50_000;

/// Returns one line per peer in their order, then the remarks.
pub(super) fn table(rows: &[PeerFigure]) -> String {
    let mut peers: Vec<&str> = Vec::new();
    for row in rows {
        if !peers.contains(&row.peer.as_str()) {
            peers.push(&row.peer);
        }
    }
    let mut text = format!("{:<26}", "messages a second");
    for (_, heading, _) in COLUMNS {
        let _ = write!(text, " {heading:>17}");
    }
    text.push('\n');
    let mut remarks = String::new();
    for peer in peers {
        let of_peer: Vec<&PeerFigure> = rows.iter().filter(|row| row.peer == peer).collect();
        let version = of_peer.iter().map(|row| row.version.as_str()).find(|version| !version.is_empty());
        let _ = write!(text, "{:<26}", format!("{peer} {}", version.unwrap_or_default()));
        for (name, _, shown) in COLUMNS {
            let row = of_peer.iter().find(|row| row.name == name);
            let cell =
                row.map_or_else(|| "-".into(), |row| shown(row).unwrap_or_else(|| missing(row).into()));
            let _ = write!(text, " {cell:>17}");
        }
        text.push('\n');
        for remark in of_peer.iter().flat_map(|row| remarks_on(row)) {
            // A note on every row becomes one remark.
            let line = format!("{peer}: {remark}\n");
            if !remarks.contains(&line) {
                remarks.push_str(&line);
            }
        }
    }
    if !remarks.is_empty() {
        let _ = write!(text, "\n{remarks}");
    }
    text
}

/// Returns a figure for a progress line.
pub(super) fn figure(row: &PeerFigure) -> String {
    if let Some(error) = &row.error {
        return format!("failed: {error}");
    }
    let parts = [
        row.value.map(|value| format!("{} {}", thousands(value), row.unit.as_deref().unwrap_or_default())),
        row.p50_ms.map(|ms| format!("p50 {ms:.1} ms")),
        row.p99_ms.map(|ms| format!("p99 {ms:.1} ms")),
        row.note.as_ref().map(|note| format!("({note})")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("  ")
}

fn missing(row: &PeerFigure) -> &'static str {
    if row.error.is_some() { "failed" } else { "-" }
}

fn remarks_on(row: &PeerFigure) -> Vec<String> {
    let of_row = |text: &String| format!("{}: {text}", row.name);
    let backlog = row.messages.filter(|messages| row.name == "drain" && *messages < BACKLOG);
    let parts = [
        row.error.as_ref().map(of_row),
        // A note about a single row replaces its missing figure.
        row.note.as_ref().map(|note| {
            if row.value.is_none() && row.p50_ms.is_none() { of_row(note) } else { note.clone() }
        }),
        backlog.map(|messages| format!("drain of {}", thousands_of(messages))),
        row.handled_again.map(|again| format!("{}: {again} messages were handled more than once", row.name)),
    ];
    parts.into_iter().flatten().collect()
}

fn thousands(value: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are positive and far below 2^64"
    )]
    let value = value.round() as u64;
    thousands_of(value)
}

fn thousands_of(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_grouped() {
        for (value, expected) in [(7, "7"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands_of(value), expected);
        }
    }

    #[test]
    fn a_peer_is_one_line_and_its_remarks_come_below() {
        let row = |name: &str, peer: &str| PeerFigure {
            name: name.into(),
            peer: peer.into(),
            version: "1.0".into(),
            ..PeerFigure::default()
        };
        let rows = [
            PeerFigure { value: Some(12_345.0), messages: Some(5_000), ..row("drain", "a") },
            PeerFigure { p50_ms: Some(2.04), p99_ms: Some(10.0), ..row("latency-200", "a") },
            PeerFigure { note: Some("cannot".into()), ..row("enqueue-batch-500", "a") },
            PeerFigure { error: Some("late".into()), messages: Some(50_000), ..row("drain", "b") },
        ];
        let text = table(&rows);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["a", "1.0", "-", "-", "12,345", "2.0", "10.0"]);
        assert_eq!(lines[2], ["b", "1.0", "-", "-", "failed", "-", "-"]);
        let remarks: Vec<&str> = text.lines().skip(4).collect();
        assert_eq!(remarks, ["a: drain of 5,000", "a: enqueue-batch-500: cannot", "b: drain: late"]);
    }
}
