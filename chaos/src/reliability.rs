//! RELIABILITY.md: totals of the recorded runs. Tests: below.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::bugs::BUGS;
use crate::seam::POINTS;

/// Paths of the records and the page.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory of the records
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/runs"))]
    runs: PathBuf,
    /// Path of the page
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../RELIABILITY.md"))]
    page: PathBuf,
    /// Write nothing; fail if the page is out of date
    #[arg(long)]
    check: bool,
}

/// Writes the page, or checks it.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let text = page(&args.runs)?;
    if args.check {
        let found = std::fs::read_to_string(&args.page).unwrap_or_default();
        if found != text {
            bail!("RELIABILITY.md differs from the records: run `cargo xtask chaos reliability`");
        }
    } else {
        std::fs::write(&args.page, text)?;
    }
    Ok(ExitCode::SUCCESS)
}

const HEAD: &str = "\
# Reliability

Recorded chaos runs and their results. `cargo xtask chaos reliability` generates this page from the records in
[chaos/runs](chaos/runs). [chaos/README.md](chaos/README.md) explains each number and how to repeat a run.

";

fn page(runs: &Path) -> Result<String> {
    let (mut records, mut sabotage) = (Vec::new(), None);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(runs)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|found| found == "json")) {
        let text = std::fs::read_to_string(file)?;
        let value: Value =
            serde_json::from_str(&text).with_context(|| format!("{} is not JSON", file.display()))?;
        if value["bugs"].is_array() {
            sabotage = Some(value);
        } else {
            records.push(value);
        }
    }
    let mut text = HEAD.to_owned();
    totals(&mut text, &records)?;
    since(&mut text, &records)?;
    commits(&mut text, &records)?;
    losses(&mut text, &records)?;
    faults(&mut text, &records)?;
    if let Some(sabotage) = sabotage {
        planted(&mut text, &sabotage)?;
    }
    machines(&mut text, &records)?;
    Ok(text)
}

const COLUMNS: [(&str, &str); 11] = [
    ("rounds", "rounds"),
    ("kills", "kills"),
    ("zombies", "zombies"),
    ("unknown_commits", "unknown commits"),
    ("messages", "messages"),
    ("lost", "lost"),
    ("doubled", "doubled"),
    ("unexplained", "unexplained repeats"),
    ("explained", "explained repeats"),
    ("stale_refused", "stale writes refused"),
    ("violations", "violations"),
];

fn number(record: &Value, column: &str) -> u64 {
    match &record[column] {
        Value::Array(list) => list.len() as u64,
        value => value.as_u64().unwrap_or(0),
    }
}

fn word<'a>(record: &'a Value, key: &str) -> &'a str {
    record[key].as_str().unwrap_or("?")
}

fn totals(text: &mut String, records: &[Value]) -> Result<()> {
    let mut rows: BTreeMap<String, [u64; COLUMNS.len()]> = BTreeMap::new();
    let mut all = [0; COLUMNS.len()];
    for record in records {
        let [store, source, mix] = ["store", "source", "mix"].map(|key| word(record, key));
        let row = rows.entry(format!("{store} | {source} | {mix}")).or_default();
        for (index, (column, _)) in COLUMNS.iter().enumerate() {
            row[index] += number(record, column);
            all[index] += number(record, column);
        }
    }
    let heads: Vec<&str> = COLUMNS.iter().map(|(_, head)| *head).collect();
    writeln!(text, "| store | source | faults | {} |", heads.join(" | "))?;
    writeln!(text, "|---|---|---|{}", "---:|".repeat(COLUMNS.len()))?;
    for (name, row) in &rows {
        writeln!(text, "| {name} | {} |", row.map(thousands).join(" | "))?;
    }
    writeln!(text, "| **all** | | | {} |", all.map(|cell| format!("**{}**", thousands(cell))).join(" | "))?;
    let failed: Vec<String> = records
        .iter()
        .filter(|record| number(record, "violations") > 0)
        .map(|record| format!("{} ({} {})", record["seed"], word(record, "store"), word(record, "mix")))
        .collect();
    writeln!(
        text,
        "\nA kill counts if the process had begun to work. A zombie counts if the process held claims when it was stopped. Seeds of \
         recorded runs with a violation: {}.\n",
        if failed.is_empty() { "none".into() } else { failed.join(", ") }
    )?;
    Ok(())
}

/// Writes the runs of each store since its last recorded violation, which its fix has survived.
fn since(text: &mut String, records: &[Value]) -> Result<()> {
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    for record in records.iter().filter(|record| number(record, "violations") > 0) {
        let at = last.entry(word(record, "store")).or_default();
        *at = number(record, "at").max(*at);
    }
    let after =
        |record: &&Value| last.get(word(record, "store")).is_none_or(|last| number(record, "at") > *last);
    let mut rows: BTreeMap<&str, [u64; COLUMNS.len()]> = BTreeMap::new();
    for record in records.iter().filter(after) {
        let row = rows.entry(word(record, "store")).or_default();
        for (index, (column, _)) in COLUMNS.iter().enumerate() {
            row[index] += number(record, column);
        }
    }
    writeln!(text, "## Since the last violation on record\n")?;
    writeln!(text, "| store | {} |", COLUMNS.map(|(_, head)| head).join(" | "))?;
    writeln!(text, "|---|{}", "---:|".repeat(COLUMNS.len()))?;
    for (store, row) in &rows {
        writeln!(text, "| {store} | {} |", row.map(thousands).join(" | "))?;
    }
    text.push('\n');
    Ok(())
}

/// Writes the runs of each commit.
fn commits(text: &mut String, records: &[Value]) -> Result<()> {
    const SHOWN: [&str; 5] = ["rounds", "kills", "zombies", "messages", "violations"];
    let mut rows: BTreeMap<(u64, String), [u64; SHOWN.len()]> = BTreeMap::new();
    let first = |name: &str| {
        let times = records.iter().filter(|record| commit(record) == name);
        times.map(|record| number(record, "at")).min().unwrap_or(0)
    };
    for record in records {
        let name = commit(record);
        let row = rows.entry((first(&name), name)).or_default();
        for (cell, column) in row.iter_mut().zip(SHOWN) {
            *cell += number(record, column);
        }
    }
    writeln!(text, "## By commit\n")?;
    writeln!(text, "| commit | {} |", SHOWN.join(" | "))?;
    writeln!(text, "|---|{}", "---:|".repeat(SHOWN.len()))?;
    for ((_, name), row) in &rows {
        writeln!(text, "| {name} | {} |", row.map(thousands).join(" | "))?;
    }
    text.push('\n');
    Ok(())
}

/// Returns the commit of a record, as the page names it.
fn commit(record: &Value) -> String {
    match (record["commit"].as_str(), record["dirty"] == true) {
        (None, _) => "not recorded".to_owned(),
        (Some(hash), dirty) => {
            format!("{}{}", hash.get(..12).unwrap_or(hash), if dirty { " with local changes" } else { "" })
        }
    }
}

/// Writes the losses of failovers to a replica without the latest commits, and the losses that the store reports.
fn losses(text: &mut String, records: &[Value]) -> Result<()> {
    let lossy: Vec<&Value> =
        records.iter().filter(|record| word(record, "mix") == "failover-async").collect();
    if lossy.is_empty() {
        return Ok(());
    }
    let sum = |of: &dyn Fn(&Value) -> u64| thousands(lossy.iter().map(|record| of(record)).sum());
    let failovers = sum(&|record| record["faults"]["server: failed over"].as_u64().unwrap_or(0));
    writeln!(
        text,
        "## Failovers that lost history\n\n\
         | rounds | failovers | messages and marks reported as lost | their missing entries and effects | missing and not reported |\n\
         |---:|---:|---:|---:|---:|\n| {} | {failovers} | {} | {} | {} |\n",
        sum(&|record| number(record, "rounds")),
        sum(&|record| number(record, "reported_lost")),
        sum(&|record| number(record, "gone")),
        sum(&|record| number(record, "lost")),
    )?;
    Ok(())
}

/// Writes the faults by name and store, and the failpoints that were hit.
fn faults(text: &mut String, records: &[Value]) -> Result<()> {
    let mut rows: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for record in records {
        let store = usize::from(record["store"] == "postgres");
        for (name, count) in record["faults"].as_object().into_iter().flatten() {
            rows.entry(name).or_default()[store] += count.as_u64().unwrap_or(0);
        }
        rows.entry("kill, before any work").or_default()[store] += number(record, "early_kills");
        rows.entry("operators' actions").or_default()[store] += number(record, "operations");
    }
    writeln!(text, "## Faults\n\n| | sqlite | postgres |\n|---|---:|---:|")?;
    for (name, counts) in
        rows.iter().filter(|(name, _)| !matches!(**name, "quiescence" | "peace" | "gone" | "continue"))
    {
        writeln!(text, "| {name} | {} |", counts.map(thousands).join(" | "))?;
    }
    let missed = |point: &&str| {
        records.iter().all(|record| {
            record["missed"].as_array().is_none_or(|missed| missed.iter().any(|one| *one == **point))
        })
    };
    let missed: Vec<&str> = POINTS.iter().copied().filter(|point| missed(point)).collect();
    let (hit, all) = (POINTS.len() - missed.len(), POINTS.len());
    let rest = if missed.is_empty() { String::new() } else { format!(", not at {}", missed.join(", ")) };
    writeln!(text, "\nFaults hit {hit} of {all} failpoints{rest}.\n")?;
    Ok(())
}

fn planted(text: &mut String, sabotage: &Value) -> Result<()> {
    let (caught, planted, commit) = (&sabotage["caught"], &sabotage["planted"], commit(sabotage));
    writeln!(text, "## Planted bugs\n\nThe checker found {caught} of {planted} (commit: {commit}).\n")?;
    writeln!(text, "| bug | defect | found in | rule |\n|---|---|---:|---|")?;
    for bug in sabotage["bugs"].as_array().into_iter().flatten() {
        let word = |key: &str| bug[key].as_str().unwrap_or("").to_owned();
        let by = word("by");
        let rule = by.split([':', ',']).next().unwrap_or_default();
        let when = if bug["caught"] == true { format!("{} s", bug["seconds"]) } else { "**not**".into() };
        let name = word("name");
        let known = BUGS.iter().find(|known| known.name == name);
        let what = known.map_or_else(|| word("what"), |known| known.what.to_owned());
        writeln!(text, "| {name} | {what} | {when} | {rule} |")?;
    }
    text.push('\n');
    Ok(())
}

fn machines(text: &mut String, records: &[Value]) -> Result<()> {
    let machine = |record: &Value| {
        format!(
            "{} cores, Linux {}",
            record["machine"]["cores"],
            record["machine"]["system"].as_str().unwrap_or("?")
        )
    };
    let mut all: Vec<String> = records.iter().map(machine).collect();
    all.sort();
    all.dedup();
    let hours = records.iter().filter_map(|record| record["seconds"].as_f64()).sum::<f64>() / 3_600.0;
    writeln!(text, "## Machine\n\n{:.1} hours in total, on: {}.", hours, all.join("; "))?;
    Ok(())
}

fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
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
    fn the_page_is_what_the_records_say() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let found = std::fs::read_to_string(root.join("../RELIABILITY.md")).unwrap();
        assert!(
            found == page(&root.join("runs")).unwrap(),
            "`cargo xtask chaos reliability` mends RELIABILITY.md"
        );
    }

    #[test]
    fn the_readme_quotes_the_page() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
        let (page, readme) = (read("RELIABILITY.md"), read("README.md"));
        let total = page.lines().find(|line| line.starts_with("| **all** |")).expect("the page has a total");
        let cells: Vec<&str> = total.split('|').map(|cell| cell.trim().trim_matches('*')).collect();
        let (kills, messages) = (cells[5], cells[8]);
        let quote = format!("{kills} kills and {messages} messages");
        assert!(readme.contains(&quote), "README.md has to say: {quote}");
    }

    #[test]
    fn the_page_names_the_commits_that_were_run() {
        let dir = tempfile::tempdir().unwrap();
        let record = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        let hash = "0123456789abcdef0123456789abcdef01234567";
        record("a.json", r#"{"at": 1, "rounds": 2}"#);
        record("b.json", &format!(r#"{{"at": 3, "rounds": 3, "commit": "{hash}", "dirty": true}}"#));
        record("c.json", &format!(r#"{{"at": 2, "rounds": 4, "commit": "{hash}", "dirty": false}}"#));
        record("d.json", &format!(r#"{{"at": 5, "rounds": 5, "commit": "{hash}", "dirty": false}}"#));
        let page = page(dir.path()).unwrap();
        let rows: Vec<&str> = page
            .lines()
            .skip_while(|line| *line != "| commit | rounds | kills | zombies | messages | violations |")
            .skip(2)
            .take(3)
            .collect();
        assert_eq!(
            rows,
            [
                "| not recorded | 2 | 0 | 0 | 0 | 0 |",
                "| 0123456789ab | 9 | 0 | 0 | 0 | 0 |",
                "| 0123456789ab with local changes | 3 | 0 | 0 | 0 | 0 |",
            ]
        );
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }
}
