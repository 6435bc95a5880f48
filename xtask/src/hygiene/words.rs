//! Rules for prose and names, and `cargo xtask words`, which lists every breach. Tests: below, and for each rule in its
//! file below `words/`.

mod docs;
mod headers;
mod history;
mod logs;
mod sentences;
mod subjects;
mod types;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use self::history::CommitLog;
use super::{RepoFile, is};
use crate::literals::{Lexeme, LexemeKind, code, lexemes};

/// Options of `cargo xtask words`.
#[derive(clap::Args, Debug)]
pub(crate) struct WordsOptions {
    /// Path prefix, such as `server/src` (default: the whole tree and the commits)
    prefix: Option<String>,

    /// List every type name with several definitions, and its files
    #[arg(long)]
    types: bool,
}

/// A breach of a rule.
#[derive(Debug)]
pub(super) struct Breach {
    /// Relative to the root; `commits` for a commit.
    path: String,
    text: String,
}

/// Input of the rules.
pub(super) struct Sources {
    /// Every text file of the repository.
    files: Vec<RepoFile>,
    history: CommitLog,
}

impl Sources {
    fn rust(&self) -> impl Iterator<Item = &RepoFile> {
        self.files.iter().filter(|file| is(&file.path, "rs"))
    }

    fn read(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        for path in history::tracked(root)?.map_or_else(|| walk(root), Ok)? {
            if !is_prose(&path) {
                continue;
            }
            // A deleted file may be uncommitted, and not every file is text.
            match fs::read(root.join(&path)) {
                Ok(bytes) => files.extend(String::from_utf8(bytes).ok().map(|text| RepoFile { path, text })),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).with_context(|| format!("cannot read {path}")),
            }
        }
        Ok(Self { files, history: CommitLog::read(root)? })
    }
}

pub(super) struct WordRule {
    title: &'static str,
    find: fn(&Sources) -> Vec<Breach>,
}

pub(super) const RULES: &[WordRule] = &[
    WordRule { title: "banned subjects", find: subjects::are_named },
    WordRule { title: "sentences without an actor", find: sentences::name_the_actor },
    WordRule { title: "type names defined more than once", find: types::are_unique },
    WordRule { title: "doc comments that begin with a question word", find: docs::begin_with_a_verb },
    WordRule { title: "log messages over six words", find: logs::are_short },
    WordRule { title: "commit subjects over 72 characters", find: history::subjects_are_short },
    WordRule { title: "modules without a first line of documentation", find: headers::are_there },
];

/// Returns a sentence for each breach of the rules above. Prints one line if there is no history to check.
pub(super) fn breaches(root: &Path) -> Result<Vec<String>> {
    let sources = Sources::read(root)?;
    sources.history.print_gap();
    let found = RULES.iter().flat_map(|rule| (rule.find)(&sources));
    Ok(found.map(|breach| breach.text).collect())
}

/// Prints every breach by rule and directory, and fails if there is one.
pub(crate) fn words(root: &Path, options: &WordsOptions) -> Result<()> {
    let sources = Sources::read(root)?;
    let prefix = options.prefix.as_deref().unwrap_or("").trim_start_matches("./");
    let (text, count) = if options.types {
        types::listed(&sources, prefix)
    } else {
        sources.history.print_gap();
        report(RULES, &sources, prefix)
    };
    io::stdout().write_all(text.as_bytes())?;
    match count {
        0 => Ok(()),
        1 => bail!("1 breach"),
        count => bail!("{count} breaches"),
    }
}

/// Returns the output of `cargo xtask words` and the number of breaches below `prefix`.
fn report(rules: &[WordRule], sources: &Sources, prefix: &str) -> (String, usize) {
    let (mut text, mut totals, mut count) = (String::new(), String::new(), 0);
    for rule in rules {
        let found = (rule.find)(sources);
        let found: Vec<Breach> = found.into_iter().filter(|breach| breach.path.starts_with(prefix)).collect();
        count += found.len();
        let tops = found.iter().map(|breach| breach.path.split_once('/').map_or(".", |(top, _)| top));
        let mut by_top = BTreeMap::new();
        tops.for_each(|top| *by_top.entry(top).or_insert(0) += 1);
        let by_top: Vec<String> = by_top.into_iter().map(|(top, count)| format!("{top} {count}")).collect();
        _ = writeln!(totals, "{:>6}  {}: {}", found.len(), rule.title, by_top.join(", "));

        let mut by_dir: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for breach in &found {
            let dir = breach.path.rsplit_once('/').map_or(".", |(dir, _)| dir);
            by_dir.entry(dir).or_default().push(&breach.text);
        }
        if !found.is_empty() {
            _ = writeln!(text, "=== {}: {}", rule.title, found.len());
        }
        for (dir, lines) in by_dir {
            _ = writeln!(text, "--- {dir}: {}\n  {}", lines.len(), lines.join("\n  "));
        }
    }
    (format!("{text}=== counts\n{totals}"), count)
}

/// Returns true for prose; recorded runs, input samples and lock files are data.
fn is_prose(path: &str) -> bool {
    let data = is(path, "json") && !path.starts_with("docs/");
    !data && !is(path, "lock") && !path.starts_with("chaos/untrusted-input/corpus/")
}

/// Returns every file of a tree without git, relative to `root`. Skips build directories.
fn walk(root: &Path) -> Result<Vec<String>> {
    let (mut found, mut dirs) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                if !path.ends_with(".git") && !path.join("CACHEDIR.TAG").exists() {
                    dirs.push(path);
                }
            } else {
                found.push(crate::workspace::slashes(path.strip_prefix(root).unwrap_or(&path)));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// A Rust file, split into code and text.
struct Lexed<'a> {
    file: &'a RepoFile,
    lexemes: Vec<Lexeme>,
    /// The code, with comments and literals masked.
    code: String,
    /// The position of each line.
    lines: Vec<usize>,
}

impl<'a> Lexed<'a> {
    fn new(file: &'a RepoFile) -> Self {
        let lexemes = lexemes(&file.text);
        let code = code(&file.text, &lexemes);
        let starts = file.text.match_indices('\n').map(|(at, _)| at + 1);
        Self { file, lexemes, code, lines: std::iter::once(0).chain(starts).collect() }
    }

    /// Returns the line number of the byte `at`, from 1.
    fn line(&self, at: usize) -> usize {
        self.lines.partition_point(|start| *start <= at)
    }

    fn of_kind(&self, kind: LexemeKind) -> impl Iterator<Item = &Lexeme> {
        self.lexemes.iter().filter(move |lexeme| lexeme.kind == kind)
    }

    fn breach(&self, at: usize, text: &str) -> Breach {
        let path = self.file.path.clone();
        Breach { text: format!("{path}:{}: {text}", self.line(at)), path }
    }
}

/// The allowed breaches of a rule below a path, and the reason. The counts only shrink: lower one when it is not reached.
type Allowance = (&'static str, usize, &'static str);

/// Returns the breaches beyond the allowances. A path without one has none.
fn beyond(breaches: Vec<Breach>, allowances: &[Allowance]) -> Vec<Breach> {
    let allowance = |path: &str| allowances.iter().position(|(prefix, ..)| path.starts_with(prefix));
    let mut counts = vec![0; allowances.len()];
    breaches.iter().filter_map(|breach| allowance(&breach.path)).for_each(|at| counts[at] += 1);
    let is_beyond = |breach: &Breach| allowance(&breach.path).is_none_or(|at| counts[at] > allowances[at].1);
    breaches.into_iter().filter(is_beyond).collect()
}

#[cfg(test)]
fn sources(files: &[(&str, &str)]) -> Sources {
    let file = |(path, text): &(&str, &str)| RepoFile { path: (*path).into(), text: (*text).into() };
    Sources { files: files.iter().map(file).collect(), history: CommitLog::Missing("no repository") }
}

/// Returns the texts of the breaches that a rule finds in `files`.
#[cfg(test)]
fn found(rule: fn(&Sources) -> Vec<Breach>, files: &[(&str, &str)]) -> Vec<String> {
    rule(&sources(files)).into_iter().map(|breach| breach.text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "headers";
    const HEADERS: &[WordRule] = &[WordRule { title: HEADER, find: headers::are_there }];

    #[test]
    fn the_report_counts_by_directory_and_honours_the_prefix() {
        let sources = sources(&[("server/src/a/b.rs", "fn b() {}"), ("crates/x/src/lib.rs", "fn x() {}")]);
        let (text, count) = report(HEADERS, &sources, "");
        assert_eq!(count, 2);
        assert!(
            text.contains(&format!("=== {HEADER}: 2\n--- crates/x/src: 1\n  crates/x/src/lib.rs:1: ")),
            "{text}"
        );
        assert!(text.contains(&format!("     2  {HEADER}: crates 1, server 1\n")), "{text}");
        let (text, count) = report(HEADERS, &sources, "server/src");
        assert_eq!(count, 1);
        assert!(text.contains("--- server/src/a: 1") && !text.contains("crates/x"), "{text}");
    }

    #[test]
    fn the_tree_and_its_history_are_read() {
        let sources = Sources::read(&crate::workspace::root()).unwrap();
        let here = sources.files.iter().find(|file| file.path == "xtask/src/hygiene/words.rs").unwrap();
        assert!(here.text.contains("fn the_tree_and_its_history_are_read"));
        assert!(!sources.files.iter().any(|file| file.path.starts_with("target/")));
    }

    #[test]
    fn an_allowance_covers_its_path_and_no_more() {
        let breaches =
            |count| (0..count).map(|_| Breach { path: "a/b.rs".into(), text: String::new() }).collect();
        let allowances = [("a/", 2, "not converted yet")];
        assert!(beyond(breaches(2), &allowances).is_empty());
        assert_eq!(beyond(breaches(3), &allowances).len(), 3);
        assert_eq!(beyond(breaches(1), &[("b/", 2, "not converted yet")]).len(), 1);
    }

    #[test]
    fn data_is_not_prose() {
        for path in ["README.md", "docs/vectors/messages.json", ".ci/run", "a/b.rs"] {
            assert!(is_prose(path), "{path}");
        }
        for path in ["Cargo.lock", "chaos/runs/sabotage.json", "chaos/untrusted-input/corpus/names/long"] {
            assert!(!is_prose(path), "{path}");
        }
    }

    #[test]
    fn a_tree_without_git_is_walked() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(walk(here).unwrap().contains(&"src/hygiene/words.rs".to_owned()));
    }
}
