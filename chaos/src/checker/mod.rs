//! The checker: reads the ledgers and, with its own SQL, the tables, and compares sets. It shares no code with the
//! product. Tests: tests/.

mod operations;
mod round_ledger;
mod runs;
pub(crate) mod tables;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use crate::ledger::{self, Fact, SettleResult};
use crate::plan::RoundPlan;
use round_ledger::RoundLedger;
use tables::{RoundTables, TableQuery};

/// Rules that must hold in a round.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the round")]
pub(crate) struct RoundRules {
    pub(crate) plan: RoundPlan,
    /// Maximum attempts.
    pub(crate) attempts: u32,
    /// Number of crashes alone after which a killer is poisoned.
    pub(crate) crashes: u32,
    /// True if the inbox may delete finished messages within the round.
    pub(crate) forgets: bool,
    /// True if a suspended worker may block all other writers.
    pub(crate) one_writer: bool,
    /// True if another server takes over.
    pub(crate) fails_over: bool,
    /// True if that server lacks the latest commits: the store's report must name every loss.
    pub(crate) loses: bool,
    /// Secret text that must not appear in any output.
    pub(crate) canary: &'static str,
}

/// Result of a round, or of many.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct RoundVerdict {
    /// Working processes that were killed.
    pub(crate) kills: u64,
    /// Processes killed before their first report.
    pub(crate) early_kills: u64,
    /// Processes suspended past their lease with claims, and continued.
    pub(crate) zombies: u64,
    /// Suspended processes, with or without claims.
    pub(crate) stops: u64,
    pub(crate) unknown_commits: u64,
    pub(crate) messages: u64,
    /// Acknowledged messages that neither finished nor reached an operator.
    pub(crate) lost: u64,
    /// Messages and marks that the store reports as lost in a failover. Some are offered again.
    pub(crate) reported_lost: u64,
    /// Acknowledged messages that a failover lost and the store reported.
    pub(crate) gone: u64,
    /// Effects beyond the first.
    pub(crate) doubled: u64,
    /// Runs after a finished run, without a fault to explain them.
    pub(crate) unexplained: u64,
    /// Writes that the store refused because another worker had claimed the entry.
    pub(crate) stale_refused: u64,
    /// Effects of messages that were never offered.
    pub(crate) phantom: u64,
    /// Repeated runs that a fault explains.
    pub(crate) explained: u64,
    pub(crate) deliveries: u64,
    pub(crate) acked: u64,
    pub(crate) effects: u64,
    /// Processes that a failpoint or a handler ended.
    pub(crate) aborts: u64,
    /// Processes that received SIGTERM.
    pub(crate) terminations: u64,
    /// Faults of the database server.
    pub(crate) server_faults: u64,
    /// Recorded operations.
    pub(crate) operations: u64,
    /// Injected errors.
    pub(crate) errors: u64,
    /// Times the machine kept a process from running.
    pub(crate) stalls: u64,
    /// Store calls that took longer than a renewal may.
    pub(crate) slow: u64,
    /// Faults of the driver and the failpoints, by name.
    pub(crate) faults: BTreeMap<String, u64>,
    pub(crate) violations: Vec<String>,
    /// Failpoints that were hit.
    #[serde(skip)]
    pub(crate) points: BTreeSet<String>,
}

impl RoundVerdict {
    /// Adds another round.
    pub(crate) fn add(&mut self, other: Self) {
        self.kills += other.kills;
        self.early_kills += other.early_kills;
        self.stops += other.stops;
        self.zombies += other.zombies;
        self.unknown_commits += other.unknown_commits;
        self.messages += other.messages;
        self.lost += other.lost;
        self.reported_lost += other.reported_lost;
        self.gone += other.gone;
        self.doubled += other.doubled;
        self.unexplained += other.unexplained;
        self.stale_refused += other.stale_refused;
        self.phantom += other.phantom;
        self.explained += other.explained;
        self.deliveries += other.deliveries;
        self.acked += other.acked;
        self.effects += other.effects;
        self.aborts += other.aborts;
        self.terminations += other.terminations;
        self.server_faults += other.server_faults;
        self.operations += other.operations;
        self.errors += other.errors;
        self.stalls += other.stalls;
        self.slow += other.slow;
        for (name, count) in other.faults {
            *self.faults.entry(name).or_default() += count;
        }
        self.violations.extend(other.violations);
        self.points.extend(other.points);
    }
}

/// Reads the ledgers and tables, and compares them.
pub(crate) fn check(dir: &Path, tables: &dyn RoundTables, rules: &RoundRules) -> Result<RoundVerdict> {
    let lines = ledger::read(dir)?;
    let mut verdict = RoundVerdict::default();
    count(&lines, &mut verdict);
    let round_ledger = RoundLedger::read(&lines, tables)?;
    verdict.acked = round_ledger.acked.len() as u64;
    verdict.effects = round_ledger.effects.len() as u64;
    round_ledger.phantoms(rules, &mut verdict);
    round_ledger.reports(rules, &mut verdict);
    round_ledger.outcomes(rules, &mut verdict);
    round_ledger.attempts(rules, &mut verdict);
    round_ledger.accounts(rules, &mut verdict);
    round_ledger.order(rules, &mut verdict);
    runs::check(&lines, &round_ledger, rules, &mut verdict);
    operations::check(&lines, tables, rules, &mut verdict)?;
    canary(dir, rules.canary, &mut verdict)?;
    Ok(verdict)
}

fn count(lines: &[ledger::LedgerLine], verdict: &mut RoundVerdict) {
    // Claims of each process.
    let mut held: HashMap<u64, HashSet<i64>> = HashMap::new();
    for line in lines {
        match &line.fact {
            Fact::Claimed { tok, .. } => _ = held.entry(line.life).or_default().insert(*tok),
            Fact::Fault { life, what } => {
                if what == "stop" && held.get(life).is_some_and(|held| !held.is_empty()) {
                    verdict.zombies += 1;
                }
                count_fault(what, verdict);
            }
            Fact::Unknown { .. } => verdict.unknown_commits += 1,
            Fact::Stall { .. } => verdict.stalls += 1,
            Fact::Slow { .. } => verdict.slow += 1,
            Fact::Settled { r, tok, .. } => {
                held.entry(line.life).or_default().remove(tok);
                verdict.stale_refused += u64::from(*r == SettleResult::Lost);
            }
            _ => {}
        }
    }
}

fn count_fault(what: &str, verdict: &mut RoundVerdict) {
    let (place, kind) = what.split_once(": ").unwrap_or(("", what));
    // A failpoint, a handler, or a fault from outside.
    let at_a_point = place.contains('.');
    let name = if at_a_point { format!("failpoint: {kind}") } else { what.to_owned() };
    *verdict.faults.entry(name).or_default() += 1;
    if at_a_point {
        verdict.points.insert(place.to_owned());
    }
    if at_a_point || place == "handler" {
        match kind {
            "abort" => verdict.aborts += 1,
            "unknown" => verdict.unknown_commits += 1,
            _ => verdict.errors += 1,
        }
    }
}

/// I12: no output contains the connection's secret.
fn canary(dir: &Path, canary: &str, verdict: &mut RoundVerdict) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("worker-") || name.starts_with("ledger-") {
            let text = std::fs::read(&path)?;
            if text.windows(canary.len()).any(|part| part == canary.as_bytes()) {
                verdict.violations.push(format!("I12: the password of the database stands in {name}"));
            }
        }
    }
    Ok(())
}

/// Watches the effects during a round: no effect may ever appear twice.
pub(crate) struct EffectWatcher {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<String>>,
}

impl EffectWatcher {
    pub(crate) fn start(tables: Arc<dyn RoundTables>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut found = BTreeSet::new();
            while !flag.load(Ordering::Relaxed) {
                let start = Instant::now();
                // Query again if the server is down.
                for row in tables.query(TableQuery::Doubled).unwrap_or_default() {
                    found.insert(format!("I3, seen while it ran: message {} at {}", row[0], row[1]));
                }
                // Read rarely, to leave the machine to the workers.
                std::thread::park_timeout(Duration::from_millis(400).max(10 * start.elapsed()));
            }
            found.into_iter().collect()
        });
        Self { stop, thread }
    }

    pub(crate) fn stop(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        self.thread.join().unwrap_or_default()
    }
}
