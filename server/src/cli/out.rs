//! Output of commands: JSON lines, and tables whose cells cannot control a terminal. Tests: below.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _, Write as _};

use anyhow::Context as _;
use oncebox::state::Status;
use oncebox::store::Severity;

use super::{CommandError, Exit};

/// Escapes control characters and characters that change the direction of writing. Ids and errors may contain any of them.
pub(crate) fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut safe, c| {
        let is_bidi =
            matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || is_bidi {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
        safe
    })
}

/// Escapes each line of a text, such as an error with its causes. Keeps tabs.
pub(crate) fn escaped_lines(text: &str) -> String {
    let line = |line: &str| line.split('\t').map(escaped).collect::<Vec<_>>().join("\t");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Writes to standard output. A closed pipe is no error: the command continues.
pub(crate) fn print(text: &str) -> Result<(), CommandError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => {
            written.context("cannot write to standard output").map_err(|error| Exit::Failure.with(error))
        }
    }
}

/// Writes a line to standard output.
pub(crate) fn line(text: &str) -> Result<(), CommandError> {
    print(&format!("{text}\n"))
}

/// Writes a line to standard error, and ignores errors.
pub(crate) fn eprint_note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Returns true if standard output shows colours.
pub(crate) fn colours() -> bool {
    let var = |name: &str| std::env::var_os(name);
    wants_colours(io::stdout().is_terminal(), var("NO_COLOR").as_deref(), var("TERM").as_deref())
}

/// Returns true for a terminal with colours, unless `NO_COLOR` is set.
fn wants_colours(terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    terminal && no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|term| term != "dumb")
}

/// Colour of a text.
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

    /// Returns the text in this colour, if `colours` is set.
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

/// A cell of a table: one line, with escaped control characters.
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

    /// Cuts the text after `max` characters.
    pub(crate) fn cut(text: impl AsRef<str>, max: usize) -> Self {
        let mut cell = Self::new(text);
        if cell.text.chars().count() > max {
            cell.text = cell.text.chars().take(max.saturating_sub(1)).chain(['…']).collect();
        }
        cell
    }
}

/// Formats a table as wide as its cells.
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
    fn output_cannot_control_the_terminal() {
        assert_eq!(escaped("\u{1b}[31mred\u{7}"), "\\u{1b}[31mred\\u{7}");
        assert_eq!(escaped("c1 \u{9b}31m"), "c1 \\u{9b}31m", "the C1 form of an escape sequence");
        assert_eq!(escaped("a\u{202e}b\u{2066}"), "a\\u{202e}b\\u{2066}", "no bidirectional text");
        assert_eq!(escaped("a\0b\nc\r"), "a\\u{0}b\\nc\\r");
        assert_eq!(escaped("größe 箱"), "größe 箱");
        assert_eq!(escaped_lines("a\u{7}\n\tb\n"), "a\\u{7}\n\tb");
    }

    #[test]
    fn only_terminals_get_colours() {
        let os = OsStr::new;
        assert!(wants_colours(true, None, Some(os("xterm"))));
        assert!(wants_colours(true, Some(os("")), None), "an empty NO_COLOR has no effect");
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
        assert_eq!(bare, plain, "colours have no width");
    }
}
