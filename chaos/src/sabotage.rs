//! Plants each bug, and expects the checker to detect it. Tests: `cargo xtask chaos sabotage`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};
use serde::Serialize;

use crate::bugs::{BUGS, Planted};
use crate::commit::Commit;
use crate::driver::{self, RunOptions, SourceKind};

/// Maximum rounds to detect a bug.
const ROUNDS: u64 = 10;

/// Bugs to plant.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Names of bugs (default: all)
    names: Vec<String>,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print only one JSON object, at the end
    #[arg(long)]
    json: bool,
    /// Write that object to a file in this directory
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// List the bugs
    #[arg(long)]
    list: bool,
}

/// Result for one bug.
#[derive(Debug, Serialize)]
struct BugResult {
    name: &'static str,
    what: &'static str,
    caught: bool,
    rounds: u64,
    seconds: f64,
    /// The first violation.
    by: Option<String>,
}

/// Results for all bugs.
#[derive(Debug, Serialize)]
struct Sabotage {
    caught: usize,
    planted: usize,
    seed: u64,
    bugs: Vec<BugResult>,
}

/// Plants bugs; exits with 1 if one is not detected.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.list {
        for bug in BUGS {
            let _ = writeln!(std::io::stdout(), "{:<26} {}", bug.name, bug.what);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(name) = args.names.iter().find(|name| BUGS.iter().all(|bug| bug.name != name.as_str())) {
        bail!("there is no bug {name:?}; `--list` names them");
    }
    let commit = Commit::of_the_rig();
    let wanted = |bug: &&Planted| args.names.is_empty() || args.names.iter().any(|name| name == bug.name);
    controls(&BUGS.iter().filter(wanted).collect::<Vec<_>>(), args)?;
    let mut bugs = Vec::new();
    for bug in BUGS.iter().filter(wanted) {
        let found = detect(bug, args)?;
        let BugResult { name, caught, rounds, seconds, by, .. } = &found;
        let by = by.as_deref().unwrap_or("NOT NOTICED");
        eprintln!(
            "{:<8} {name:<26} {rounds:>2} rounds {seconds:>6.1} s  {by}",
            if *caught { "caught" } else { "SURVIVED" }
        );
        bugs.push(found);
    }
    let caught = bugs.iter().filter(|found| found.caught).count();
    let report = Sabotage { caught, planted: bugs.len(), seed: args.seed, bugs };
    if let Some(dir) = &args.record {
        let mut value = serde_json::to_value(&report)?;
        Commit::note(commit.as_ref(), &mut value);
        std::fs::create_dir_all(dir)?;
        std::fs::write(dir.join("sabotage.json"), serde_json::to_string_pretty(&value)? + "\n")?;
    }
    let _ = writeln!(std::io::stdout(), "{}", serde_json::to_string(&report)?);
    Ok(if caught == report.planted { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Runs the same rounds without a bug: a violation counts only if the clean run has none.
fn controls(bugs: &[&Planted], args: &Args) -> Result<()> {
    let mut seen = Vec::new();
    for bug in bugs {
        if seen.contains(&(bug.store, bug.mix)) {
            continue;
        }
        seen.push((bug.store, bug.mix));
        let report = driver::rounds(&RunOptions { rounds: Some(1), sabotage: None, ..options(bug, args) })?;
        if let Some(first) = report.verdict.violations.first() {
            bail!("the rig sees a bug where none is planted ({:?}, {:?}): {first}", bug.store, bug.mix);
        }
        eprintln!("control  {:?} {:?}: nothing is said without a bug", bug.store, bug.mix);
    }
    Ok(())
}

fn options(bug: &Planted, args: &Args) -> RunOptions {
    RunOptions {
        store: bug.store,
        source: SourceKind::Direct,
        minutes: None,
        kills: None,
        zombies: None,
        unknown: None,
        messages: None,
        rounds: Some(1),
        seed: Some(args.seed),
        mix: bug.mix,
        round: 6.0,
        workers: 4,
        json: true,
        record: None,
        patience: 40,
        fail_fast: true,
        sabotage: Some(bug.name.to_owned()),
    }
}

fn detect(bug: &Planted, args: &Args) -> Result<BugResult> {
    let start = Instant::now();
    let (mut rounds, mut by) = (0, None);
    while by.is_none() && rounds < ROUNDS {
        let one = RunOptions { seed: Some(args.seed + rounds), rounds: Some(1), ..options(bug, args) };
        by = driver::rounds(&one)?.verdict.violations.into_iter().find(|violation| bug.leads_to(violation));
        rounds += 1;
    }
    let seconds = (start.elapsed().as_secs_f64() * 10.0).round() / 10.0;
    Ok(BugResult { name: bug.name, what: bug.what, caught: by.is_some(), rounds, seconds, by })
}
