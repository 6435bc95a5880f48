//! Rule: the subject of a commit fits a line. Also lists the files that git tracks. Tests: below.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{Breach, Sources};

/// Maximum characters of a commit subject.
const MAX_SUBJECT: usize = 72;

/// Committer time, in seconds since 1970, of the last unchecked commit. Earlier subjects were written before the rule,
/// and published history is not rewritten. A time needs no parent commits, so the rule works in a shallow clone.
const CHECKED_AFTER: u64 = 1_795_068_545;

/// The commits of the repository.
#[derive(Debug)]
pub(super) enum CommitLog {
    /// No commits to check, with the reason.
    Missing(&'static str),
    Commits(Vec<CommitSubject>),
}

#[derive(Debug)]
pub(super) struct CommitSubject {
    hash: String,
    /// In seconds since 1970.
    time: u64,
    subject: String,
}

impl CommitLog {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let Some(log) = git(root, &["log", "--no-merges", "--format=%h %ct %s"])? else {
            return Ok(Self::Missing("git finds no history in this tree"));
        };
        Ok(Self::Commits(log.lines().filter_map(parse).collect()))
    }

    /// Prints the reason if no commit is checked.
    pub(super) fn print_gap(&self) {
        if let Self::Missing(reason) = self {
            println!("skipped the rule about commit subjects: {reason}");
        }
    }
}

fn parse(line: &str) -> Option<CommitSubject> {
    let mut parts = line.splitn(3, ' ');
    let (hash, time) = (parts.next()?.into(), parts.next()?.parse().ok()?);
    Some(CommitSubject { hash, time, subject: parts.next().unwrap_or("").into() })
}

/// Returns the files that git tracks or would track, relative to `root`.
pub(super) fn tracked(root: &Path) -> Result<Option<Vec<String>>> {
    let files = git(root, &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
    Ok(files.map(|files| files.split_terminator('\0').map(str::to_owned).collect()))
}

/// Returns the output of a git command, if `root` is a readable repository.
fn git(root: &Path, args: &[&str]) -> Result<Option<String>> {
    if !root.join(".git").exists() {
        return Ok(None);
    }
    let Ok(output) = Command::new("git").arg("-C").arg(root).args(args).output() else { return Ok(None) };
    if !output.status.success() {
        return Ok(None);
    }
    String::from_utf8(output.stdout).map(Some).context("the output of git is not UTF-8")
}

pub(super) fn subjects_are_short(sources: &Sources) -> Vec<Breach> {
    let CommitLog::Commits(commits) = &sources.history else { return Vec::new() };
    let mut breaches = Vec::new();
    for CommitSubject { hash, time, subject } in commits {
        let length = subject.chars().count();
        // A shallow clone does not know every merge.
        if *time > CHECKED_AFTER && length > MAX_SUBJECT && !subject.starts_with("Merge ") {
            let text = format!("commit {hash}: {length} characters, at most {MAX_SUBJECT}: {subject}");
            breaches.push(Breach { path: "commits".into(), text });
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(log: &str) -> Vec<String> {
        let commits = log.lines().filter_map(parse).collect();
        let sources = Sources { files: Vec::new(), history: CommitLog::Commits(commits) };
        subjects_are_short(&sources).into_iter().map(|breach| breach.text).collect()
    }

    #[test]
    fn a_long_subject_is_named() {
        let new = CHECKED_AFTER + 1;
        let (fits, long) = ("é".repeat(MAX_SUBJECT), "é".repeat(MAX_SUBJECT + 1));
        assert!(broken(&format!("abc {new} {fits}\n")).is_empty());
        assert_eq!(
            broken(&format!("abc {new} {fits}\ndef {new} {long}\n")),
            [format!("commit def: 73 characters, at most 72: {long}")]
        );
    }

    #[test]
    fn old_commits_and_merges_are_not_checked() {
        let long = "x".repeat(MAX_SUBJECT + 1);
        assert!(broken(&format!("abc {CHECKED_AFTER} {long}\n")).is_empty());
        assert!(broken(&format!("abc {} Merge {long}\n", CHECKED_AFTER + 1)).is_empty());
        assert!(broken(&format!("abc {}\n", CHECKED_AFTER + 1)).is_empty());
    }

    #[test]
    fn a_tree_without_git_has_no_history() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(matches!(CommitLog::read(here), Ok(CommitLog::Missing(_))));
        assert!(tracked(here).unwrap().is_none());
    }
}
