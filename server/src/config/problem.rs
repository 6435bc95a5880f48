//! Problems of a configuration: location, description and advice. Tests: below and `tests/serve/config.rs`.

use std::fmt;
use std::path::PathBuf;

use crate::cli::out::escaped;

/// A problem of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigProblem {
    /// Offset in the file, in bytes.
    pub(super) at: usize,
    /// Description and advice. Never quotes a secret or a line of the file.
    pub(super) what: String,
}

/// A configuration that is not valid.
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
            let (line, key) = location(&self.text, problem.at);
            // Parser errors have several lines, and names may contain control characters.
            let what = problem.what.lines().map(str::trim).collect::<Vec<_>>().join("; ");
            write!(f, "{}:{line}: {}", self.path.display(), escaped(&format!("{key}{what}")))?;
        }
        Ok(())
    }
}

impl std::error::Error for Invalid {}

/// Returns the line number at an offset, and the full name of the key there.
fn location(text: &str, at: usize) -> (usize, String) {
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
        // A value on several lines belongs to the key on the first one.
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

/// Rewrites an error of the parser for the author of the file.
pub(super) fn explained(message: &str) -> String {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let Some((bad, known)) = quoted.split_first() else { return message.trim().to_owned() };
    let what = if message.starts_with("unknown field") {
        "unknown setting"
    } else if message.starts_with("unknown variant") {
        "unknown value"
    } else if message.starts_with("missing field") {
        return format!("the setting `{bad}` is missing; add it");
    } else {
        return message.trim().to_owned();
    };
    match nearest(bad, known) {
        Some(meant) => format!("{what} `{bad}`; did you mean `{meant}`?"),
        None if known.is_empty() => format!("{what} `{bad}`"),
        None => format!("{what} `{bad}`; use one of {}", known.join(", ")),
    }
}

/// Returns the known word that is most similar, if any is close.
pub(crate) fn nearest<'a>(bad: &str, known: &[&'a str]) -> Option<&'a str> {
    let near = known.iter().map(|word| (distance(bad, word), *word));
    let (distance, word) = near.min_by_key(|(distance, _)| *distance)?;
    (distance <= bad.len().max(word.len()).div_ceil(3)).then_some(word)
}

/// Returns the edit distance of two words.
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
    fn a_location_has_the_line_and_full_name() {
        let text = "listen = 1\n[inbox.a] # note\nkey = 2\n# order = 3\ntypes = [\n  \"x\",\n  \"y\",\n]\n";
        let at = |needle: &str| location(text, text.find(needle).unwrap());
        assert_eq!(at("listen"), (1, "`listen`: ".into()));
        assert_eq!(at("2"), (3, "`inbox.a.key`: ".into()));
        assert_eq!(at("[inbox"), (2, "`inbox.a`: ".into()));
        assert_eq!(at("\"y\""), (7, "`inbox.a.types`: ".into()));
        assert_eq!(location("", 99), (1, String::new()));
    }

    #[test]
    fn similar_words_are_suggested() {
        assert_eq!(nearest("retrys", &["rate", "retry", "types"]), Some("retry"));
        assert_eq!(nearest("quik", &["never", "quick"]), Some("quick"));
        assert_eq!(nearest("colour", &["rate", "retry", "types"]), None);
        assert_eq!(
            explained("unknown field `colour`, expected `rate` or `retry`"),
            "unknown setting `colour`; use one of rate, retry"
        );
        assert_eq!(
            explained("unknown variant `quik`, expected one of `never`, `quick`"),
            "unknown value `quik`; did you mean `quick`?"
        );
        assert_eq!(explained("missing field `url`"), "the setting `url` is missing; add it");
    }
}
