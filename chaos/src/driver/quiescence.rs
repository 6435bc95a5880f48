//! Quiescence after the last fault: every entry must finish, then the workers end. Tests: below.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::round::Round;
use super::transports::{RoundTransport, Transports};
use crate::checker::tables::RoundTables;
use crate::ledger::Fact;
use crate::worker::{self, StoreLocation};

/// Messages at the end, through the worker without handlers.
const LATE: u32 = 8;
/// More than the number of entries; unaccepted deliveries count above them.
const UNTAKEN: u64 = 1 << 40;
/// Maximum open files of an idle worker.
const MAX_FILES: usize = 96;
const MAX_MEMORY: u64 = 400 << 20;

/// Progress towards an empty backlog. Too long a pause between finished entries (`patience`), or ten times that in all,
/// is a violation.
struct QuiescenceProgress {
    start: Instant,
    patience: Duration,
    least: u64,
    last: Instant,
}

impl QuiescenceProgress {
    fn new(patience: Duration, start: Instant) -> Self {
        Self { start, patience, least: u64::MAX, last: start }
    }

    /// Returns true if progress has stopped, with `left` entries unfinished.
    fn is_over(&mut self, left: u64, now: Instant) -> bool {
        if left < self.least {
            (self.least, self.last) = (left, now);
        }
        now - self.last >= self.patience || now - self.start >= 10 * self.patience
    }
}

/// I13: returns the excess resources of an idle process.
fn too_much(life: u64, files: usize, memory: u64) -> Option<String> {
    (files > MAX_FILES || memory > MAX_MEMORY).then(|| {
        format!(
            "I13: process {life} has {files} files open and {} MiB in memory with nothing to do",
            memory >> 20
        )
    })
}

impl Round<'_> {
    /// Stops the faults and waits until every entry has finished.
    pub(super) fn quiesce(
        &mut self,
        place: &StoreLocation,
        tables: &dyn RoundTables,
        transports: &Transports,
    ) -> Result<()> {
        self.is_quiescent = true;
        self.broker.open = false;
        self.wake();
        for worker in &mut self.workers {
            worker.doom = None;
            worker.feed(format!("{}\n", worker::QUIESCE).as_bytes());
        }
        self.ledger.note(Fact::Fault { life: 0, what: "quiescence".into() });
        let mut looked = Instant::now();
        let mut progress = QuiescenceProgress::new(Duration::from_secs(self.options.patience), looked);
        let mut late = self.workers.iter().any(|worker| worker.front);
        loop {
            self.step(place)?;
            if looked.elapsed() > Duration::from_millis(150) {
                looked = Instant::now();
                let untaken = self.untaken(transports)?;
                let taken = untaken == 0;
                let left = if taken { Some(tables.unfinished()?) } else { None };
                if left == Some(0) && std::mem::take(&mut late) {
                    // The other workers are idle now: notified or not, they must find these messages.
                    self.broker.late = LATE;
                } else if left == Some(0) {
                    return Ok(());
                }
                if progress.is_over(left.unwrap_or(UNTAKEN + untaken), looked) {
                    self.seen.violations.push(format!(
                        "I9: {} s after the last fault {} and {left:?} entries are not finished",
                        progress.start.elapsed().as_secs(),
                        if taken { "everything is acknowledged" } else { "deliveries are not acknowledged" }
                    ));
                    return Ok(());
                }
            }
        }
    }

    /// Returns the unacknowledged deliveries: planned, unanswered, and those at a broker. A message that left the
    /// broker was acknowledged, or refused if it is a dead letter.
    fn untaken(&mut self, transports: &Transports) -> Result<u64> {
        let outstanding = self.broker.outstanding();
        let RoundTransport::Rabbit(publisher) = &self.entrance else { return Ok(outstanding) };
        let (left, dead) = transports.left(publisher.queue())?;
        if dead > 0 {
            let what =
                format!("I1: {dead} messages were refused, and are among the dead letters of the broker");
            if !self.seen.violations.contains(&what) {
                self.seen.violations.push(what);
            }
        }
        if outstanding == 0 && left == 0 {
            for handed in self.broker.take_confirmed() {
                self.ledger.note(Fact::Acked { m: handed.m, v: handed.v });
            }
        }
        Ok(outstanding + left as u64)
    }

    /// Checks the open files and the memory of the workers.
    pub(super) fn measure(&mut self) {
        for worker in &self.workers {
            let proc = Path::new("/proc").join(worker.pid().to_string());
            let files = std::fs::read_dir(proc.join("fd")).map_or(0, Iterator::count);
            let pages: u64 = std::fs::read_to_string(proc.join("statm"))
                .ok()
                .and_then(|text| text.split_whitespace().nth(1)?.parse().ok())
                .unwrap_or(0);
            self.seen.violations.extend(too_much(worker.life, files, pages * 4_096));
        }
    }

    /// Stops the workers, and checks for leftovers.
    pub(super) fn dismiss(&mut self, tables: &dyn RoundTables) -> Result<()> {
        for worker in &mut self.workers {
            worker.hang_up();
        }
        for worker in &mut self.workers {
            if !worker.leave(Duration::from_secs(15))? {
                self.seen
                    .violations
                    .push(format!("I13: process {} did not end when it was asked to", worker.life));
            }
        }
        self.workers.clear();
        if let Some(left) = tables.sessions()? {
            self.seen
                .violations
                .push(format!("I13: {left} sessions of the database outlive their processes"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::checker::tables::{TableQuery, TableRow};
    use crate::driver::RunOptions;

    #[derive(clap::Parser)]
    struct ParsedOptions {
        #[command(flatten)]
        options: RunOptions,
    }

    fn options(patience: &str) -> RunOptions {
        ParsedOptions::parse_from(["rig", "--seed", "1", "--patience", patience]).options
    }

    /// Tables with only waiting entries and open sessions.
    struct LeftOver {
        entries: u64,
        sessions: Option<u64>,
    }

    impl RoundTables for LeftOver {
        fn query(&self, query: TableQuery) -> Result<Vec<TableRow>> {
            Ok(match query {
                TableQuery::Unfinished => vec![vec![self.entries.to_string()]],
                _ => Vec::new(),
            })
        }

        fn sessions(&self) -> Result<Option<u64>> {
            Ok(self.sessions)
        }

        fn forget(&self) {}
    }

    const PATIENCE: Duration = Duration::from_secs(90);

    /// Returns the second at which progress counts as stopped, from pairs of a second and the entries left.
    fn over(left: impl IntoIterator<Item = (u64, u64)>) -> Option<u64> {
        let start = Instant::now();
        let mut progress = QuiescenceProgress::new(PATIENCE, start);
        left.into_iter()
            .find(|(second, left)| progress.is_over(*left, start + Duration::from_secs(*second)))
            .map(|(second, _)| second)
    }

    #[test]
    fn i9_a_machine_that_is_slow_is_no_violation() {
        // One entry finishes every 89 seconds; after 800 seconds all have.
        assert_eq!(over((0..=800).map(|second| (second, 9 - second / 89))), None);
    }

    #[test]
    fn i9_entries_that_stand_still_are_noticed() {
        assert_eq!(over((0..=800).map(|second| (second, 7))), Some(90));
        // The last one finished after 89 seconds.
        assert_eq!(over((0..=800).map(|second| (second, 7 - (second / 89).min(1)))), Some(179));
        // A number that goes up and down is no progress.
        assert_eq!(over((0..=800).map(|second| (second, 7 + second % 2))), Some(90));
    }

    #[test]
    fn i9_what_takes_ten_times_as_long_is_noticed() {
        assert_eq!(over((0..=2_000).map(|second| (second, 5_000 - second))), Some(900));
    }

    /// Returns the violations of a round with these leftovers and no worker.
    fn violations(left: &LeftOver) -> Vec<String> {
        let options = options("0");
        let mut round = Round::new(&options, 1).unwrap();
        let place = StoreLocation::Sqlite("none".into());
        round.quiesce(&place, left, &Transports::start(&options).unwrap()).unwrap();
        round.dismiss(left).unwrap();
        std::mem::take(&mut round.seen.violations)
    }

    #[test]
    fn i9_a_round_says_what_is_left() {
        assert_eq!(violations(&LeftOver { entries: 0, sessions: None }), [""; 0]);
        let stuck = violations(&LeftOver { entries: 3, sessions: None });
        assert!(
            stuck.len() == 1 && stuck[0].starts_with("I9: ") && stuck[0].contains("Some(3)"),
            "{stuck:?}"
        );
    }

    #[test]
    fn i13_sessions_that_outlive_their_processes_are_noticed() {
        let found = violations(&LeftOver { entries: 0, sessions: Some(2) });
        assert_eq!(found, ["I13: 2 sessions of the database outlive their processes"]);
    }

    #[test]
    fn i13_files_and_memory_of_the_idle_are_bounded() {
        assert_eq!(too_much(1, MAX_FILES, MAX_MEMORY), None);
        assert!(too_much(1, MAX_FILES + 1, 0).unwrap().starts_with("I13: process 1 has 97 files"));
        assert!(too_much(1, 0, MAX_MEMORY + 1).unwrap().contains("400 MiB"));
    }
}
