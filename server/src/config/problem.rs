//! What is wrong with a configuration: where, what, and what to do.

use std::fmt;
use std::path::PathBuf;

use crate::cli::out::escaped;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigProblem {
    /// Where in the file it is, in bytes.
    pub(super) at: usize,
    /// What is wrong and what to do. Never a secret, and never a line of the file, which may hold one.
    pub(super) what: String,
}

/// A configuration that cannot be used.
#[derive(Debug)]
pub(crate) struct Invalid {
    pub(super) path: PathBuf,
    pub(super) text: String,
    pub(super) problems: Vec<ConfigProblem>,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.problems.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            let (line, key) = place(&self.text, problem.at);
            // The parser explains on several lines, and names can hold anything: neither may write over the terminal.
            let what = problem.what.lines().map(str::trim).collect::<Vec<_>>().join("; ");
            write!(f, "{}:{line}: {}", self.path.display(), escaped(&format!("{key}{what}")))?;
        }
        Ok(())
    }
}

impl std::error::Error for Invalid {}

/// The number of the line at an offset, and the full name of the key there.
fn place(text: &str, at: usize) -> (usize, String) {
    let at = at.min(text.len());
    let before = text.get(..at).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let upwards = text.lines().take(line).collect::<Vec<_>>();
    let (mut key, mut table) = ("", "");
    for (above, line) in upwards.iter().rev().enumerate() {
        let line = line.trim();
        if line.starts_with('[') && !line.contains('=') {
            table = line.split('#').next().unwrap_or_default().trim().trim_matches(['[', ']']);
            break;
        }
        // A value over several lines belongs to the first of them.
        if key.is_empty() && !line.starts_with('#') && (above == 0 || !line.starts_with(['"', ']', '}', '{']))
        {
            key = line.split_once('=').map_or("", |(key, _)| key.trim());
        }
    }
    let name = match (table, key) {
        ("", "") => return (line, String::new()),
        ("", name) | (name, "") => name.to_owned(),
        (table, key) => format!("{table}.{key}"),
    };
    (line, format!("`{name}`: "))
}

/// What a message of the parser means to whoever wrote the file.
pub(super) fn explained(message: &str) -> String {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let Some((bad, known)) = quoted.split_first() else { return message.trim().to_owned() };
    let what = if message.starts_with("unknown field") {
        "there is no such setting"
    } else if message.starts_with("unknown variant") {
        "there is no such word"
    } else if message.starts_with("missing field") {
        return format!("the setting `{bad}` is missing; add it");
    } else {
        return message.trim().to_owned();
    };
    match nearest(bad, known) {
        Some(meant) => format!("{what} as `{bad}`; did you mean `{meant}`?"),
        None if known.is_empty() => format!("{what} as `{bad}`"),
        None => format!("{what} as `{bad}`; there are {}", known.join(", ")),
    }
}

/// The known word that was probably meant.
pub(crate) fn nearest<'a>(bad: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = known.iter().map(|word| (distance(bad, word), *word));
    let (distance, word) = near.min_by_key(|(distance, _)| *distance)?;
    (distance <= bad.len().max(word.len()).div_ceil(3)).then_some(word)
}

/// How many letters have to be changed, added or left out.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut before = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = before + usize::from(x != *y);
            before = row[j + 1];
            row[j + 1] = changed.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_by_line_and_full_name() {
        let text = "listen = 1\n[inbox.a] # note\nkey = 2\n# order = 3\ntypes = [\n  \"x\",\n  \"y\",\n]\n";
        let at = |needle: &str| place(text, text.find(needle).unwrap());
        assert_eq!(at("listen"), (1, "`listen`: ".into()));
        assert_eq!(at("2"), (3, "`inbox.a.key`: ".into()));
        assert_eq!(at("[inbox"), (2, "`inbox.a`: ".into()));
        assert_eq!(at("\"y\""), (7, "`inbox.a.types`: ".into()));
        assert_eq!(place("", 99), (1, String::new()));
    }

    #[test]
    fn a_slip_is_told_from_something_else() {
        assert_eq!(nearest("retrys", &["rate", "retry", "types"]), Some("retry"));
        assert_eq!(nearest("quik", &["never", "quick"]), Some("quick"));
        assert_eq!(nearest("colour", &["rate", "retry", "types"]), None);
        assert_eq!(
            explained("unknown field `colour`, expected `rate` or `retry`"),
            "there is no such setting as `colour`; there are rate, retry"
        );
        assert_eq!(
            explained("unknown variant `quik`, expected one of `never`, `quick`"),
            "there is no such word as `quik`; did you mean `quick`?"
        );
        assert_eq!(explained("missing field `url`"), "the setting `url` is missing; add it");
    }
}
