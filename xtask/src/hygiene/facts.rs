//! Facts that one page repeats from another page or from the code must match. Tests: below.

use std::fmt::Write as _;

use super::{RepoFile, RuleInput};

const README: &str = "README.md";
const RELIABILITY: &str = "RELIABILITY.md";
const SPEEDS: &str = "docs/performance.md";
const RESULTS: &str = "bench/RESULTS.md";
const ARCHITECTURE: &str = "ARCHITECTURE.md";
const SEAM: &str = "crates/oncebox-core/src/store/mod.rs";
const DECISIONS: &str = "docs/adr/";
pub(crate) const INDEX: &str = "docs/adr/README.md";

fn page<'a>(tree: &'a RuleInput<'_>, path: &str) -> Option<&'a str> {
    tree.files.iter().find(|file| file.path == path).map(|file| &*file.text)
}

/// The kills and messages in the README match the generated page.
pub(super) fn kills_are_those_on_record(tree: &RuleInput<'_>) -> Vec<String> {
    let (Some(readme), Some(record)) = (page(tree, README), page(tree, RELIABILITY)) else {
        return Vec::new();
    };
    let cells = |line: &str| -> Vec<String> {
        line.split('|').map(|cell| cell.trim_matches([' ', '*']).into()).collect()
    };
    let titles =
        record.lines().find(|line| line.starts_with("| store | source")).map(cells).unwrap_or_default();
    let sums = record.lines().find(|line| line.starts_with("| **all**")).map(cells).unwrap_or_default();
    let sum = |title: &str| sums.get(titles.iter().position(|one| one == title)?).cloned();
    let (Some(kills), Some(messages)) = (sum("kills"), sum("messages")) else {
        return vec![format!("{RELIABILITY}: has no row **all** with kills and messages")];
    };
    let quoted = format!("{kills} kills and {messages} messages");
    if readme.split_whitespace().collect::<Vec<_>>().join(" ").contains(&quoted) {
        return Vec::new();
    }
    vec![format!("{README}: does not say \"{quoted}\", which is what {RELIABILITY} has")]
}

/// Every figure in the README's table of speeds is in a row of the results page.
pub(super) fn speeds_are_those_on_record(tree: &RuleInput<'_>) -> Vec<String> {
    let (Some(speeds), Some(results)) = (page(tree, SPEEDS), page(tree, RESULTS)) else { return Vec::new() };
    let table = speeds.split("<!-- bench -->").nth(1).unwrap_or_default().trim_start();
    let rows: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).skip(2).collect();
    if rows.is_empty() {
        return vec![format!("{SPEEDS}: has no table below `<!-- bench -->`")];
    }
    let figures = |row: &str| row.splitn(4, '|').nth(3).map(str::to_owned);
    let quoted = rows.into_iter().filter_map(figures);
    quoted
        .filter(|figures| {
            !results.lines().any(|line| line.starts_with('|') && line.ends_with(&format!("|{figures}")))
        })
        .map(|figures| {
            format!("{SPEEDS}: quotes {}, which {RESULTS} does not have", figures.trim_matches([' ', '|']))
        })
        .collect()
}

/// The page lists every verb of the trait, possibly beside verbs of other traits.
pub(super) fn verbs_are_listed(tree: &RuleInput<'_>) -> Vec<String> {
    let (Some(seam), Some(words)) = (page(tree, SEAM), page(tree, ARCHITECTURE)) else { return Vec::new() };
    let listed =
        words.split("Store verbs: **").nth(1).and_then(|rest| rest.split("**").next()).unwrap_or_default();
    let listed: Vec<&str> = listed.split(',').map(str::trim).collect();
    let body =
        seam.split("pub trait Store").nth(1).and_then(|rest| rest.split("\n}\n").next()).unwrap_or_default();
    let verbs = body.lines().filter_map(|line| line.strip_prefix("    async fn ")?.split('(').next());
    let missing = verbs.filter(|verb| !listed.contains(verb));
    missing
        .map(|verb| format!("{ARCHITECTURE}: \"Store verbs\" does not list `{verb}` of the trait Store"))
        .collect()
}

/// Returns the number, the file name and the title of every decision.
fn decisions<'a>(tree: &'a RuleInput<'_>) -> Vec<(usize, &'a str, &'a str)> {
    let read = |file: &'a RepoFile| {
        let name = file.path.strip_prefix(DECISIONS).filter(|_| file.path != INDEX)?;
        let number = name.split('-').next()?.parse().ok()?;
        let title = file.text.lines().next()?.trim_start_matches("# ").split_once(". ")?.1;
        Some((number, name, title))
    };
    tree.files.iter().filter_map(read).collect()
}

/// Decisions have consecutive numbers, and rows in the index.
pub(super) fn decisions_are_listed(tree: &RuleInput<'_>) -> Vec<String> {
    let Some(index) = page(tree, INDEX) else { return Vec::new() };
    let all = decisions(tree);
    let mut breaches = Vec::new();
    for (next, (number, name, _)) in (1..).zip(&all) {
        if next != *number {
            breaches.push(format!(
                "{DECISIONS}{name}: has the number {number} where {next} is the next: leave no gap"
            ));
            break;
        }
    }
    if index != self::index(&all) {
        breaches.push(format!("{INDEX}: is out of date: run `cargo xtask decisions`"));
    }
    breaches
}

/// Returns the index of all decisions.
pub(super) fn index_of(tree: &RuleInput<'_>) -> String {
    index(&decisions(tree))
}

fn index(all: &[(usize, &str, &str)]) -> String {
    let mut text = String::from(
        "<!-- Written by `cargo xtask decisions` from the titles of the records. -->\n\n# Decisions\n\nEach record states its context, the \
         decision, the alternatives and the consequences. If a decision changes, a new record supersedes the old one.\n\n| number | decision \
         |\n|---|---|\n",
    );
    for (number, name, title) in all {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| [{number}]({name}) | {title} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(rule: fn(&RuleInput<'_>) -> Vec<String>, files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<RepoFile> = files
            .iter()
            .map(|(path, text)| RepoFile { path: (*path).into(), text: (*text).into() })
            .collect();
        rule(&RuleInput { files: &files, members: &[] })
    }

    #[test]
    fn figures_that_are_older_than_the_record_are_named() {
        let record = "| store | source | faults | rounds | kills | messages |\n|---|---|---|---:|---:|---:|\n\
                      | sqlite | direct | all | 1 | 7 | 8 |\n| **all** | | | **1** | **56,741** | **4,340** |\n";
        let check = |readme| broken(kills_are_those_on_record, &[(README, readme), (RELIABILITY, record)]);
        assert!(check("found: 56,741 kills\n  and 4,340 messages").is_empty());
        assert_eq!(
            check("56,740 kills and 4,340 messages"),
            ["README.md: does not say \"56,741 kills and 4,340 messages\", which is what RELIABILITY.md has"]
        );
        assert_eq!(broken(kills_are_those_on_record, &[(README, ""), (RELIABILITY, "")]).len(), 1);
    }

    #[test]
    fn a_speed_that_is_not_on_record_is_named() {
        let results = "| row | ours | beside | ratio |\n|---|---:|---:|---:|\n| accept, beside a loop | 60,909 | 57,183 | 1.07 |\n";
        let check = |row: &str| {
            let speeds =
                format!("<!-- bench -->\n| ours | beside | | | |\n|---|---|---:|---:|---:|\n{row}\n\nmore");
            broken(speeds_are_those_on_record, &[(SPEEDS, &speeds), (RESULTS, results)])
        };
        assert!(check("| accept | loop | 60,909 | 57,183 | 1.07 |").is_empty());
        assert_eq!(
            check("| accept | loop | 50,909 | 57,183 | 0.89 |"),
            ["docs/performance.md: quotes 50,909 | 57,183 | 0.89, which bench/RESULTS.md does not have"]
        );
        assert_eq!(check("").len(), 1, "no row");
    }

    #[test]
    fn a_verb_that_is_not_listed_is_named() {
        let seam = "pub trait Store: Send {\n    fn capabilities(&self);\n    async fn accept(&self);\n    async fn sweep(&self);\n}\n";
        let check = |words| broken(verbs_are_listed, &[(SEAM, seam), (ARCHITECTURE, words)]);
        assert!(check("Store verbs: **accept, sweep, mark** and more").is_empty());
        assert_eq!(
            check("Store verbs: **accept, mark**"),
            ["ARCHITECTURE.md: \"Store verbs\" does not list `sweep` of the trait Store"]
        );
    }

    #[test]
    fn a_gap_or_a_decision_without_a_row_is_named() {
        let (one, two) = (("docs/adr/0001-a.md", "# 1. A\n"), ("docs/adr/0002-b.md", "# 2. B\n"));
        let index = index(&[(1, "0001-a.md", "A"), (2, "0002-b.md", "B")]);
        assert!(broken(decisions_are_listed, &[one, two, (INDEX, &index)]).is_empty());
        assert_eq!(broken(decisions_are_listed, &[one, (INDEX, &index)]).len(), 1);
        let three = ("docs/adr/0003-c.md", "# 3. C\n");
        let breaches = broken(decisions_are_listed, &[one, three, (INDEX, &index)]);
        assert_eq!(breaches[0], "docs/adr/0003-c.md: has the number 3 where 2 is the next: leave no gap");
    }
}
