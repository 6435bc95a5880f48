//! Runs rounds: each has a fresh store, a seed, some seconds of faults, quiescence, and a check. Tests: tests/short.rs.

mod broker;
mod disk;
mod faults;
mod inflict;
mod proxy;
mod publisher;
mod quiescence;
mod round;
mod server;
mod transports;
mod workers;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use crate::checker::RoundVerdict;
use crate::commit::Commit;
use crate::seam::POINTS;
pub(crate) use faults::Mix;
use round::Round;
use server::DatabaseServer;
use transports::Transports;
pub(crate) use transports::dead_letters;

/// Options of a run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunOptions {
    /// Store under test
    #[arg(long, value_enum, default_value_t = StoreKind::Sqlite)]
    pub(crate) store: StoreKind,
    /// Transport of the messages
    #[arg(long, value_enum, default_value_t = SourceKind::Direct)]
    pub(crate) source: SourceKind,
    /// Stop after this many minutes
    #[arg(long)]
    pub(crate) minutes: Option<f64>,
    /// Stop after this many killed workers
    #[arg(long)]
    pub(crate) kills: Option<u64>,
    /// Stop after this many workers suspended past their leases with claims
    #[arg(long)]
    pub(crate) zombies: Option<u64>,
    /// Stop after this many commits in doubt
    #[arg(long)]
    pub(crate) unknown: Option<u64>,
    /// Stop after this many offered messages
    #[arg(long)]
    pub(crate) messages: Option<u64>,
    /// Stop after this many rounds
    #[arg(long)]
    pub(crate) rounds: Option<u64>,
    /// Seed of all random choices (default: random)
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Mix of faults
    #[arg(long, value_enum, default_value_t = Mix::All)]
    pub(crate) mix: Mix,
    /// Seconds of faults per round
    #[arg(long, default_value_t = 12.0)]
    pub(crate) round: f64,
    /// Number of worker processes
    #[arg(long, default_value_t = 4)]
    pub(crate) workers: usize,
    /// Print only one JSON object, at the end
    #[arg(long)]
    pub(crate) json: bool,
    /// Write that object to a new file in this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) record: Option<PathBuf>,
    /// Fail the round after this many seconds without progress
    #[arg(long, default_value_t = 90)]
    pub(crate) patience: u64,
    /// Stop at the first round with a violation
    #[arg(long)]
    pub(crate) fail_fast: bool,
    /// Plant this bug (needs a build with bugs)
    #[arg(long)]
    pub(crate) sabotage: Option<String>,
}

/// The stores under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoreKind {
    Sqlite,
    Postgres,
}

/// Transports of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SourceKind {
    /// Use a pipe to each worker
    Direct,
    /// Post CloudEvents to each worker
    Http,
    /// Consume one queue with all workers
    Rabbitmq,
}

/// Result of all rounds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RunReport {
    store: StoreKind,
    source: SourceKind,
    mix: Mix,
    seed: u64,
    pub(crate) rounds: u64,
    seconds: f64,
    #[serde(flatten)]
    pub(crate) verdict: RoundVerdict,
    /// Failpoints that were hit, and all failpoints.
    failpoints: (usize, usize),
    /// Failpoints that were not hit.
    missed: Vec<&'static str>,
}

impl RunOptions {
    /// Returns the command that repeats one round.
    fn again(&self, seed: u64) -> String {
        let name = |value: &dyn erased::ChoiceName| value.name();
        let mut command = format!(
            "cargo xtask chaos --store {} --source {} --mix {} --workers {} --round {} --rounds 1 --seed {seed}",
            name(&self.store),
            name(&self.source),
            name(&self.mix),
            self.workers,
            self.round
        );
        if let Some(bug) = &self.sabotage {
            command = format!("{command} --sabotage {bug}");
        }
        command
    }

    fn continues(&self, start: Instant, rounds: u64, verdict: &RoundVerdict) -> bool {
        if self.fail_fast && !verdict.violations.is_empty() {
            return false;
        }
        let enough = [
            (self.rounds, rounds),
            (self.kills, verdict.kills),
            (self.zombies, verdict.zombies),
            (self.unknown, verdict.unknown_commits),
            (self.messages, verdict.messages),
        ];
        if self.minutes.is_none() && enough.iter().all(|(max, _)| max.is_none()) {
            return rounds < 1;
        }
        enough.iter().all(|(max, so_far)| max.is_none_or(|max| *so_far < max))
            && self.minutes.is_none_or(|minutes| start.elapsed().as_secs_f64() < minutes * 60.0)
    }
}

mod erased {
    //! The command-line name of a choice.

    pub(super) trait ChoiceName {
        fn name(&self) -> String;
    }

    impl<T: clap::ValueEnum> ChoiceName for T {
        fn name(&self) -> String {
            self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
        }
    }
}

/// Runs rounds until a limit is reached, and prints the result.
pub(crate) fn run(options: &RunOptions) -> Result<ExitCode> {
    let report = rounds(options)?;
    let _ = writeln!(std::io::stdout(), "{}", serde_json::to_string(&report)?);
    Ok(if report.verdict.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Runs rounds until a limit is reached.
pub(crate) fn rounds(options: &RunOptions) -> Result<RunReport> {
    if options.sabotage.is_some() && !cfg!(feature = "sabotage") {
        bail!("this build has no planted bugs: `cargo xtask chaos sabotage` builds one that has");
    }
    if options.workers < 2 {
        bail!("use at least two workers: one must continue when another is killed");
    }
    let (start, commit) = (Instant::now(), Commit::of_the_rig());
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1 << 48));
    let mut server = DatabaseServer::start(options)?;
    let mut transports = Transports::start(options)?;
    let mut verdict = RoundVerdict::default();
    let mut rounds = 0;
    while options.continues(start, rounds, &verdict) {
        // Round 0 of a seed uses that seed, so that a single round can be repeated.
        let own = seed + rounds;
        let one = Round::new(options, own)?
            .run(&mut server, &mut transports)
            .with_context(|| format!("the rig itself failed; to repeat: {}", options.again(own)))?;
        rounds += 1;
        print_round(options, own, &one);
        verdict.add(one);
        if let Some(dir) = &options.record {
            // Record after every round, so that an aborted run keeps its results.
            record(dir, &report(options, seed, rounds, start, verdict.clone()), commit.as_ref())?;
        }
    }
    Ok(report(options, seed, rounds, start, verdict))
}

fn report(options: &RunOptions, seed: u64, rounds: u64, start: Instant, verdict: RoundVerdict) -> RunReport {
    let hit = POINTS.iter().filter(|point| verdict.points.contains(**point)).count();
    let missed = POINTS.iter().copied().filter(|point| !verdict.points.contains(*point)).collect();
    let seconds = (start.elapsed().as_secs_f64() * 10.0).round() / 10.0;
    let (store, source, mix) = (options.store, options.source, options.mix);
    let failpoints = (hit, POINTS.len());
    RunReport { store, source, mix, seed, rounds, seconds, verdict, failpoints, missed }
}

fn print_round(options: &RunOptions, seed: u64, one: &RoundVerdict) {
    if !options.json {
        eprintln!(
            "round {seed}: {} messages, {} deliveries, {} kills, {} zombies, {} unknown commits, {} repeats explained, \
             {} stale writes refused, {} violations",
            one.messages,
            one.deliveries,
            one.kills,
            one.zombies,
            one.unknown_commits,
            one.explained,
            one.stale_refused,
            one.violations.len()
        );
    }
    // The checker must find a planted bug.
    if !one.violations.is_empty() && options.sabotage.is_none() {
        for violation in one.violations.iter().take(12) {
            eprintln!("  VIOLATION {violation}");
        }
        eprintln!("  seed {seed}; to repeat: {}", options.again(seed));
    }
}

fn record(dir: &std::path::Path, report: &RunReport, commit: Option<&Commit>) -> Result<()> {
    let at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
    let machine = serde_json::json!({
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "system": std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
    });
    let mut value = serde_json::to_value(report)?;
    value["at"] = at.into();
    value["machine"] = machine;
    Commit::note(commit, &mut value);
    let name = format!(
        "{}-{}-{}-{}.json",
        erased::ChoiceName::name(&report.store),
        erased::ChoiceName::name(&report.source),
        erased::ChoiceName::name(&report.mix),
        report.seed
    );
    std::fs::create_dir_all(dir)?;
    std::fs::write(dir.join(name), serde_json::to_string_pretty(&value)? + "\n")?;
    Ok(())
}
