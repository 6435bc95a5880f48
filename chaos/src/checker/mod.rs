//! The checker: reads the ledgers and, with SQL of its own, the tables, and does set algebra. It shares no code with the
//! product.

mod books;
mod runs;
pub(crate) mod tables;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use crate::ledger::{self, Answer, Fact};
use crate::plan::Plan;
use books::Books;
use tables::{Ask, Tables};

/// What holds in a round.
pub(crate) struct Rules {
    pub(crate) plan: Plan,
    /// Attempts in all.
    pub(crate) attempts: u32,
    /// After so many crashes a killer is poisoned.
    pub(crate) crashes: u32,
    /// Whether the inbox may forget what is finished within the round.
    pub(crate) forgets: bool,
    /// Whether a worker that is stopped may keep all others from writing.
    pub(crate) one_writer: bool,
    /// What must appear nowhere.
    pub(crate) canary: &'static str,
}

/// What came out of a round, or of many.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Verdict {
    pub(crate) kills: u64,
    pub(crate) zombies: u64,
    pub(crate) unknown_commits: u64,
    pub(crate) messages: u64,
    /// Acknowledged, and neither done nor put where a person finds it.
    pub(crate) lost: u64,
    /// Effects beyond the first.
    pub(crate) doubled: u64,
    /// Runs after a run that was done, with no fault to explain them.
    pub(crate) unexplained: u64,
    /// Writes under a claim that somebody else had taken over, which the store refused.
    pub(crate) stale_refused: u64,
    /// Effects of what nobody offered.
    pub(crate) phantom: u64,
    /// Runs after another one that a fault explains.
    pub(crate) explained: u64,
    pub(crate) deliveries: u64,
    pub(crate) acked: u64,
    pub(crate) effects: u64,
    /// Processes ended at a failpoint, or by a handler.
    pub(crate) aborts: u64,
    /// Processes asked to end.
    pub(crate) terminations: u64,
    /// Things done to the database server.
    pub(crate) server_faults: u64,
    /// Calls made to fail.
    pub(crate) errors: u64,
    /// Times the machine itself kept a process from running.
    pub(crate) stalls: u64,
    /// Calls of the store that took longer than a renewal may.
    pub(crate) slow: u64,
    pub(crate) violations: Vec<String>,
    /// The failpoints something happened at.
    #[serde(skip)]
    pub(crate) points: BTreeSet<String>,
}

impl Verdict {
    /// Adds another round.
    pub(crate) fn add(&mut self, other: Self) {
        self.kills += other.kills;
        self.zombies += other.zombies;
        self.unknown_commits += other.unknown_commits;
        self.messages += other.messages;
        self.lost += other.lost;
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
        self.errors += other.errors;
        self.stalls += other.stalls;
        self.slow += other.slow;
        self.violations.extend(other.violations);
        self.points.extend(other.points);
    }
}

/// Reads everything, and compares.
pub(crate) fn check(dir: &Path, tables: &dyn Tables, rules: &Rules) -> Result<Verdict> {
    let lines = ledger::read(dir)?;
    let mut verdict = Verdict::default();
    count(&lines, &mut verdict);
    let books = Books::read(&lines, tables)?;
    verdict.acked = books.acked.len() as u64;
    verdict.effects = books.effects.len() as u64;
    books.phantoms(&mut verdict);
    books.fates(rules, &mut verdict);
    books.attempts(rules, &mut verdict);
    books.accounts(rules, &mut verdict);
    books.order(rules, &mut verdict);
    runs::check(&lines, &books, rules, &mut verdict);
    canary(dir, rules.canary, &mut verdict)?;
    Ok(verdict)
}

fn count(lines: &[ledger::Line], verdict: &mut Verdict) {
    for line in lines {
        match &line.fact {
            Fact::Fault { what, .. } => {
                let Some((point, kind)) = what.split_once(": ") else { continue };
                if point == "server" {
                    continue;
                }
                if point.contains('.') {
                    verdict.points.insert(point.to_owned());
                }
                match kind {
                    "abort" => verdict.aborts += 1,
                    "unknown" => verdict.unknown_commits += 1,
                    _ => verdict.errors += 1,
                }
            }
            Fact::Unknown { .. } => verdict.unknown_commits += 1,
            Fact::Stall { .. } => verdict.stalls += 1,
            Fact::Slow { .. } => verdict.slow += 1,
            Fact::Settled { r: Answer::Lost, .. } => verdict.stale_refused += 1,
            _ => {}
        }
    }
}

/// I12: a secret of the connection appears nowhere that is written.
fn canary(dir: &Path, canary: &str, verdict: &mut Verdict) -> Result<()> {
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

/// Looks on while a round runs: an effect that is there twice must not be seen at any time.
pub(crate) struct Observer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<String>>,
}

impl Observer {
    pub(crate) fn start(tables: Arc<dyn Tables>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut found = BTreeSet::new();
            while !flag.load(Ordering::Relaxed) {
                // A server that is down is asked again.
                for row in tables.ask(Ask::Doubled).unwrap_or_default() {
                    found.insert(format!("I3, seen while it ran: message {} at {}", row[0], row[1]));
                }
                std::thread::park_timeout(Duration::from_millis(400));
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
