//! Rules for the SQL of the stores: one file per verb, with a named and described section per statement. The
//! tests of the stores prove that each statement is valid. Tests: below.

use std::collections::BTreeSet;

use super::{RuleInput, is};

/// Begins a section.
const NAME: &str = "-- name: ";

/// Checks what only readers see, and finds names that no code uses.
pub(super) fn statements_are_described(tree: &RuleInput<'_>) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut known = BTreeSet::new();
    for file in tree.files.iter().filter(|file| is(&file.path, "sql")) {
        let ["stores", store, "sql", rest @ ..] = &*file.path.split('/').collect::<Vec<_>>() else {
            continue;
        };
        let [name] = rest else {
            breaches.push(format!("{}: a store has one file per verb, directly in `sql`", file.path));
            continue;
        };
        let verb = name.trim_end_matches(".sql");
        let text = format!("\n{}", file.text).replace(&format!("\n{NAME}"), "\0");
        let mut sections = text.split('\0');
        if sections.next().is_some_and(|before| !before.is_empty()) {
            breaches.push(format!("{}: does not begin with `{NAME}`", file.path));
        }
        for section in sections {
            let (name, text) = section.split_once('\n').unwrap_or((section, ""));
            let mut found = faults(text);
            if name != verb && !name.starts_with(&format!("{verb}_")) {
                found.push("is not named after its file");
            }
            if !known.insert((*store, name.to_owned())) {
                found.push("has the name of another statement");
            }
            if !is_listed(tree, &format!("stores/{store}/src/"), name) {
                found.push("is not named by the store's source: use it, or delete it");
            }
            breaches.extend(found.into_iter().map(|fault| format!("{}: `{name}` {fault}", file.path)));
        }
    }
    breaches
}

/// Returns the faults of a header and of the end of a statement.
fn faults(text: &str) -> Vec<&'static str> {
    let mut faults = Vec::new();
    let header = || text.lines().take_while(|line| line.starts_with("-- "));
    if header().next().is_none_or(|first| parameter(first).is_some()) {
        faults.push("lacks its purpose");
    }
    let body: Vec<&str> = text.lines().map(|line| line.split("--").next().unwrap_or_default()).collect();
    if !text.trim_end().ends_with(';') || !body.join("\n").trim_end().ends_with(';') {
        faults.push("does not end with a semicolon");
    }
    if !header().filter_map(parameter).eq(used(&body.join("\n"))) {
        faults.push("does not list its parameters in order, one a line");
    }
    faults
}

/// The number of the parameter that a line of a header describes.
fn parameter(line: &str) -> Option<u32> {
    let (number, _) = line.strip_prefix("-- ")?.strip_prefix(['$', '?'])?.split_once(' ')?;
    number.parse().ok()
}

/// The numbers of the parameters of a statement, in order.
fn used(sql: &str) -> BTreeSet<u32> {
    let numbers = sql.split(['$', '?']).skip(1).filter_map(|behind| {
        let end = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
        behind[..end].parse().ok()
    });
    numbers.collect()
}

/// Returns true if a source file below `dir` has this word.
fn is_listed(tree: &RuleInput<'_>, dir: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut sources = tree.rust().filter(|file| file.path.starts_with(dir));
    sources.any(|file| file.text.split(|c| !is_part(c)).any(|word| word == name))
}

#[cfg(test)]
mod tests {
    use super::super::RepoFile;
    use super::*;

    const SOURCE: (&str, &str) = ("stores/s/src/sql.rs", "settle: settle, settle_one;");

    fn broken(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<RepoFile> = files
            .iter()
            .map(|(path, text)| RepoFile { path: (*path).into(), text: (*text).into() })
            .collect();
        statements_are_described(&RuleInput { files: &files, members: &[] })
    }

    #[test]
    fn a_described_statement_is_left_alone() {
        let file = "-- name: settle\n-- Settles.\n-- $1 a bigint\nSELECT $1;\n\n\
                    -- name: settle_one\n-- Settles one.\n-- ?1 a\n-- ?2 b\n-- Index: none.\n-- why\nSELECT ?1, ?2\n-- why $9\n;\n";
        assert!(broken(&[SOURCE, ("stores/s/sql/settle.sql", file)]).is_empty());
        assert!(broken(&[("bench/sql/fill.sql", "select 1")]).is_empty());
    }

    #[test]
    fn faults_are_named() {
        for (text, fault) in [
            ("-- name: settle\nSELECT 1;", "lacks its purpose"),
            ("-- name: settle\n-- $1 a\nSELECT $1;", "lacks its purpose"),
            ("-- name: settle\n-- Settles.\nSELECT 1", "does not end with a semicolon"),
            ("-- name: settle\n-- Settles.\nSELECT 1 -- all;", "does not end with a semicolon"),
            ("-- name: settle\n-- Settles.\nSELECT 1\n-- all;", "does not end with a semicolon"),
            ("-- name: settle\n-- Settles.\nSELECT $1;", "does not list its parameters in order, one a line"),
            (
                "-- name: settle\n-- Settles.\n-- $2 b\n-- $1 a\nSELECT $1, $2;",
                "does not list its parameters in order, one a line",
            ),
            (
                "-- name: settle\n-- Settles.\n-- $1 a\n-- $2 b\nSELECT $1;",
                "does not list its parameters in order, one a line",
            ),
        ] {
            let breaches = broken(&[SOURCE, ("stores/s/sql/settle.sql", text)]);
            assert_eq!(breaches, [format!("stores/s/sql/settle.sql: `settle` {fault}")], "{text}");
        }
    }

    #[test]
    fn names_are_refused_that_are_doubled_unused_or_of_another_file() {
        let broken = |text: &str| broken(&[SOURCE, ("stores/s/sql/settle.sql", text)]).join("\n");
        let one = "-- name: settle\n-- Settles.\nSELECT 1;\n";
        assert!(broken(&format!("{one}{one}")).ends_with("`settle` has the name of another statement"));
        assert!(
            broken(&one.replace("settle\n", "settle_on\n")).contains("is not named by the store's source")
        );
        assert!(broken(&one.replace("settle\n", "settled\n")).contains("is not named after its file"));
        assert!(broken(&format!("SELECT 1;\n{one}")).ends_with("does not begin with `-- name: `"));
    }

    #[test]
    fn a_file_in_a_folder_is_refused() {
        let breaches = broken(&[("stores/s/sql/settle/one.sql", "SELECT 1")]);
        assert_eq!(
            breaches,
            ["stores/s/sql/settle/one.sql: a store has one file per verb, directly in `sql`"]
        );
    }
}
