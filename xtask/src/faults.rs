//! `docs/faults.md`: every fault of the design, and the tests that name it. The command collects tests with a fault id
//! in their comment. The check refuses a page that names a missing test. Tests: below.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::workspace::slashes;

const FILE: &str = "docs/faults.md";

/// Each fault with its id, in the order of the design.
const FAULTS: &str = include_str!("faults/list.txt");
/// Ids without a test, with the reason.
const UNTESTED: &str = include_str!("faults/untested.txt");

const INTRO: &str = "\
<!-- Written by `cargo xtask faults` from the comments of the tests. Name the id in a test (`// FAULTS A4`), then run it again. -->

# Faults and their tests

The faults that an inbox must survive, and their tests. A test names its fault in the comment above it, as in `// FAULTS A4`. The
letters are: A accept, B claim and lease, C handler, D completion, E store, F broker, G payload and identity, H retention, I deploy and
schema, J operations, S security. A test is named by its file and function; those of `oncebox-testkit/src/conformance` run on every store.
";

/// Writes the file.
pub(crate) fn write(root: &Path) -> Result<()> {
    fs::write(root.join(FILE), document(root)?).with_context(|| format!("cannot write {FILE}"))?;
    println!("wrote {FILE}");
    Ok(())
}

/// Fails if the page names a test that does not exist, or that no longer names its fault. New tests are no mistake: the
/// next run of the command adds them.
pub(crate) fn check(root: &Path) -> Result<()> {
    let page = fs::read_to_string(root.join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
    let mut tests = BTreeMap::new();
    collect(root, root, &mut tests)?;
    let mut count = 0;
    for (id, what) in pairs(FAULTS) {
        let start = format!("| {id} | {what} | ");
        let row = page.lines().find_map(|line| line.strip_prefix(&start));
        let row = row.with_context(|| format!("{FILE} has no row for {id}; run `cargo xtask faults`"))?;
        let named = row.trim_end_matches(" |").split("<br>").filter(|test| test.starts_with('`'));
        for test in named {
            count += 1;
            if !tests.get(id).is_some_and(|all| all.iter().any(|one| one == test)) {
                bail!(
                    "{FILE} lists {test} for {id}, but the test does not name it; run `cargo xtask faults`"
                );
            }
        }
    }
    println!("{FILE} names {count} tests, and they are there");
    Ok(())
}

fn pairs(list: &str) -> impl Iterator<Item = (&str, &str)> {
    list.lines().filter_map(|line| line.split_once(' '))
}

fn document(root: &Path) -> Result<String> {
    let mut tests = BTreeMap::new();
    collect(root, root, &mut tests)?;
    let known: Vec<&str> = pairs(FAULTS).map(|(id, _)| id).collect();
    if let Some((id, test)) = tests.iter().find(|(id, _)| !known.contains(&id.as_str())) {
        bail!("{} names the fault {id}, and there is none", test[0]);
    }
    let untested: BTreeMap<&str, &str> = pairs(UNTESTED).collect();
    let mut text = format!("{INTRO}\n| id | fault | tests |\n|---|---|---|\n");
    for (id, what) in pairs(FAULTS) {
        let named = match (tests.get(id), untested.get(id)) {
            (Some(_), Some(_)) => {
                bail!("tests name the fault {id} ({what}), and untested.txt excuses it; remove it there")
            }
            (Some(tests), None) => tests.join("<br>"),
            (None, Some(why)) => format!("none: {why}"),
            (None, None) => bail!("no test names the fault {id} ({what}), and untested.txt does not say why"),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {id} | {what} | {named} |");
    }
    Ok(text)
}

/// Collects the tests of all sources below a directory, by fault id.
fn collect(root: &Path, dir: &Path, tests: &mut BTreeMap<String, Vec<String>>) -> Result<()> {
    let mut paths = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            collect(root, &path, tests)?;
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("xtask/src/faults.rs") {
            let file = slashes(path.strip_prefix(root)?);
            for (id, function) in named(&fs::read_to_string(&path)?) {
                let test =
                    if function.is_empty() { format!("`{file}`") } else { format!("`{file}`: {function}") };
                let all = tests.entry(id).or_default();
                if !all.contains(&test) {
                    all.push(test);
                }
            }
        }
    }
    Ok(())
}

/// Returns the ids in a source, each with the function below its comment, or around it; an id of the whole file has no
/// function.
fn named(source: &str) -> Vec<(String, String)> {
    let (mut found, mut waiting) = (Vec::new(), Vec::new());
    let mut function = String::new();
    for line in source.lines() {
        let text = line.trim_start();
        let above = text.starts_with("//");
        let ids = ids(text);
        if text.starts_with("//!") {
            found.extend(ids.into_iter().map(|id| (id, String::new())));
        } else if above {
            waiting.extend(ids);
        } else {
            if let Some(name) = function_of(text) {
                name.clone_into(&mut function);
                found.extend(waiting.drain(..).map(|id| (id, function.clone())));
            } else if !(text.starts_with('#') || text.starts_with("proptest!") || text.is_empty()) {
                found.extend(waiting.drain(..).map(|id| (id, function.clone())));
            }
            found.extend(ids.into_iter().map(|id| (id, function.clone())));
        }
    }
    found
}

fn function_of(line: &str) -> Option<&str> {
    let before = line.split("fn ").next()?;
    let is_one = before.split(' ').all(|word| matches!(word, "" | "pub" | "pub(crate)" | "async" | "const"));
    let rest = line.get(before.len()..)?.strip_prefix("fn ")?;
    rest.split(['(', '<']).next().filter(|_| is_one)
}

/// Returns the ids after their keyword: `FAULTS A4, B15: ..`.
fn ids(line: &str) -> Vec<String> {
    let Some((_, rest)) = line.split_once("FAULTS ") else { return Vec::new() };
    let mut ids = Vec::new();
    for word in rest.split([',', ' ']).filter(|word| !word.is_empty()) {
        let id = word.trim_end_matches([':', '.', ')', '"', ';']);
        let mut chars = id.chars();
        let is_id = chars.next().is_some_and(|first| "ABCDEFGHIJS".contains(first))
            && id.len() > 1
            && chars.all(|c| c.is_ascii_digit());
        if !is_id {
            if word == "and" {
                continue;
            }
            break;
        }
        ids.push(id.to_owned());
        if word.ends_with([':', '.', ')', '"', ';']) {
            break;
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_that_the_page_names_is_there() {
        check(&crate::workspace::root()).unwrap();
    }

    #[test]
    fn ids_are_found_with_their_test() {
        let source = "\
//! FAULTS S5: all of it.
// FAULTS A4, B15: a reason, C3 is none.
#[tokio::test]
async fn a_test() {
    assert!(true, \"FAULTS H1: still remembered\");
}
// FAULTS G6
proptest! {
    #[test]
    fn another(a in 0..1) {}
}
";
        let found = named(source);
        let found: Vec<(&str, &str)> = found.iter().map(|(id, test)| (id.as_str(), test.as_str())).collect();
        let expected = [("S5", ""), ("A4", "a_test"), ("B15", "a_test"), ("H1", "a_test"), ("G6", "another")];
        assert_eq!(found, expected);
    }
}
