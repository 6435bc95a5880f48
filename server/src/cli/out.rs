//! What is printed: for people, tables whose cells cannot play tricks on a terminal; for programs, JSON.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _, Write as _};

use anyhow::Context as _;
use oncebox::state::Status;
use oncebox::store::Severity;

use super::{CommandError, Exit};

/// Text on one line that a terminal does not obey: an id may hold any bytes, and an error any text. Characters that turn the
/// direction of writing count too, since they make a line read as what it is not.
pub(crate) fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut safe, c| {
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || turns {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
        safe
    })
}

/// The same for a text of several lines, such as an error with its causes. Tabs stay: a line that is pointed at keeps its shape.
pub(crate) fn escaped_lines(text: &str) -> String {
    let line = |line: &str| line.split('\t').map(escaped).collect::<Vec<_>>().join("\t");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Writes to the standard output. A reader that went away wants no more, and that is no failure: what was asked for is done all
/// the same.
pub(crate) fn print(text: &str) -> Result<(), CommandError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => {
            written.context("cannot write to the standard output").map_err(|error| Exit::Failure.with(error))
        }
    }
}

/// A line on the standard output.
pub(crate) fn line(text: &str) -> Result<(), CommandError> {
    print(&format!("{text}\n"))
}

/// A line on the standard error. That nobody reads it stops nothing.
pub(crate) fn eprint_note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Whether the standard output shows colours.
pub(crate) fn colours() -> bool {
    let var = |name: &str| std::env::var_os(name);
    wants_colours(io::stdout().is_terminal(), var("NO_COLOR").as_deref(), var("TERM").as_deref())
}

/// Only on a terminal that can, and only if nobody said no.
fn wants_colours(terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    terminal && no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|term| term != "dumb")
}

/// How something stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Plain,
    Bold,
    Red,
    Yellow,
    Green,
    Blue,
}

impl Colour {
    const fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Bold => Some("1"),
            Self::Red => Some("31"),
            Self::Yellow => Some("33"),
            Self::Green => Some("32"),
            Self::Blue => Some("34"),
        }
    }

    /// The text in this colour, if there are colours.
    pub(crate) fn paint(self, text: &str, colours: bool) -> String {
        match self.code().filter(|_| colours) {
            None => text.to_owned(),
            Some(code) => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}

impl From<Status> for Colour {
    fn from(status: Status) -> Self {
        match status {
            Status::Pending => Self::Plain,
            Status::Running => Self::Blue,
            Status::Completed => Self::Green,
            Status::Poisoned => Self::Red,
            Status::Discarded => Self::Yellow,
        }
    }
}

impl From<Severity> for Colour {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Danger => Self::Red,
            Severity::Warning => Self::Yellow,
            _ => Self::Plain,
        }
    }
}

/// A cell of a table: always one line, and harmless.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    colour: Colour,
}

impl Cell {
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        Self::coloured(text, Colour::Plain)
    }

    pub(crate) fn coloured(text: impl AsRef<str>, colour: impl Into<Colour>) -> Self {
        Self { text: escaped(text.as_ref()), colour: colour.into() }
    }

    /// No longer than so many characters.
    pub(crate) fn cut(text: impl AsRef<str>, max: usize) -> Self {
        let mut cell = Self::new(text);
        if cell.text.chars().count() > max {
            cell.text = cell.text.chars().take(max.saturating_sub(1)).chain(['…']).collect();
        }
        cell
    }
}

/// A table, as wide as its cells.
pub(crate) fn table(head: &[&str], rows: &[Vec<Cell>], colours: bool) -> String {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.text.chars().count());
        }
    }
    let head: Vec<Cell> = head.iter().map(|cell| Cell::coloured(cell, Colour::Bold)).collect();
    let mut text = String::new();
    for row in std::iter::once(&head).chain(rows) {
        let last = row.iter().rposition(|cell| !cell.text.is_empty()).map_or(0, |at| at + 1);
        for (at, (cell, width)) in row.iter().zip(&widths).take(last).enumerate() {
            text += &cell.colour.paint(&cell.text, colours);
            if at + 1 < last {
                text.extend(std::iter::repeat_n(' ', width - cell.text.chars().count() + 2));
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    // FAULTS S14
    #[test]
    fn a_terminal_is_not_told_what_to_do() {
        assert_eq!(escaped("\u{1b}[31mred\u{7}"), "\\u{1b}[31mred\\u{7}");
        assert_eq!(escaped("c1 \u{9b}31m"), "c1 \\u{9b}31m", "the other way to begin a sequence");
        assert_eq!(escaped("a\u{202e}b\u{2066}"), "a\\u{202e}b\\u{2066}", "no line reads backwards");
        assert_eq!(escaped("a\0b\nc\r"), "a\\u{0}b\\nc\\r");
        assert_eq!(escaped("größe 箱"), "größe 箱");
        assert_eq!(escaped_lines("a\u{7}\n\tb\n"), "a\\u{7}\n\tb");
    }

    #[test]
    fn colours_are_for_terminals_alone() {
        let os = OsStr::new;
        assert!(wants_colours(true, None, Some(os("xterm"))));
        assert!(wants_colours(true, Some(os("")), None), "an empty NO_COLOR says nothing");
        assert!(!wants_colours(true, Some(os("1")), Some(os("xterm"))));
        assert!(!wants_colours(true, None, Some(os("dumb"))));
        assert!(!wants_colours(false, None, Some(os("xterm"))));
    }

    #[test]
    fn a_table_is_as_wide_as_its_cells() {
        let rows = [
            vec![Cell::coloured("poisoned", Status::Poisoned), Cell::new("b\nc"), Cell::new("")],
            vec![Cell::new("x"), Cell::cut("abcdef", 3), Cell::new("z")],
        ];
        let plain = table(&["S", "LONG", "T"], &rows, false);
        assert_eq!(plain, "S         LONG  T\npoisoned  b\\nc\nx         ab…   z\n");
        let coloured = table(&["S", "LONG", "T"], &rows, true);
        assert!(coloured.contains("\x1b[31mpoisoned\x1b[0m  b\\nc\n"), "{coloured:?}");
        let bare = regex_lite::Regex::new("\x1b\\[[0-9]+m").unwrap().replace_all(&coloured, "").into_owned();
        assert_eq!(bare, plain, "colours take no room");
    }
}
