//! After the last fault: everything comes to its end, and the workers go.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::round::Round;
use super::ways::{Entrance, Ways};
use crate::checker::tables::Tables;
use crate::ledger::Fact;
use crate::worker::{self, Place};

/// Messages that come in at the end, through the one that runs nothing.
const LATE: u32 = 8;
/// More than there ever are entries: deliveries that are not taken yet count above them.
const UNTAKEN: u64 = 1 << 40;
/// What a worker may need when everything is done.
const MOST_FILES: usize = 96;
const MOST_MEMORY: u64 = 400 << 20;

/// Whether it still goes on. How long everything takes is the machine's business; that nothing comes to its end any more for so
/// long is not, nor is it that it takes ten times as long.
struct Progress {
    start: Instant,
    patience: Duration,
    least: u64,
    last: Instant,
}

impl Progress {
    fn new(patience: Duration) -> Self {
        let start = Instant::now();
        Self { start, patience, least: u64::MAX, last: start }
    }

    /// Whether nothing moves any more, with so much left.
    fn is_over(&mut self, left: u64) -> bool {
        if left < self.least {
            (self.least, self.last) = (left, Instant::now());
        }
        self.last.elapsed() >= self.patience || self.start.elapsed() >= 10 * self.patience
    }
}

impl Round<'_> {
    /// No more faults: everything has to come to its end.
    pub(super) fn peace(&mut self, place: &Place, tables: &dyn Tables, ways: &Ways) -> Result<()> {
        self.at_peace = true;
        self.broker.open = false;
        self.wake();
        for worker in &mut self.workers {
            worker.doom = None;
            worker.feed(format!("{}\n", worker::PEACE).as_bytes());
        }
        self.ledger.note(Fact::Fault { life: 0, what: "peace".into() });
        let mut progress = Progress::new(Duration::from_secs(self.options.peace));
        let mut looked = Instant::now();
        let mut late = self.workers.iter().any(|worker| worker.front);
        loop {
            self.step(place)?;
            if looked.elapsed() > Duration::from_millis(150) {
                looked = Instant::now();
                let taken = self.broker.is_done() && self.is_drained(ways)?;
                let left = if taken { Some(tables.unfinished()?) } else { None };
                if left == Some(0) && std::mem::take(&mut late) {
                    // Those who run are idle now: whether they are told of these or not, they have to find them.
                    self.broker.late = LATE;
                } else if left == Some(0) {
                    return Ok(());
                }
                if progress.is_over(left.unwrap_or(UNTAKEN + self.broker.outstanding())) {
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

    /// Whether a broker has nothing left. What it has given away for good was acknowledged; what it put aside was refused.
    fn is_drained(&mut self, ways: &Ways) -> Result<bool> {
        let Entrance::Rabbit(publisher) = &self.entrance else { return Ok(true) };
        let (left, dead) = ways.left(publisher.queue())?;
        if dead > 0 {
            let what =
                format!("I1: {dead} messages were refused, and are among the dead letters of the broker");
            if !self.seen.violations.contains(&what) {
                self.seen.violations.push(what);
            }
        }
        if left > 0 {
            return Ok(false);
        }
        for handed in self.broker.take_confirmed() {
            self.ledger.note(Fact::Acked { m: handed.m, v: handed.v });
        }
        Ok(true)
    }

    /// What the workers still need.
    pub(super) fn measure(&mut self) {
        for worker in &self.workers {
            let proc = Path::new("/proc").join(worker.pid().to_string());
            let files = std::fs::read_dir(proc.join("fd")).map_or(0, Iterator::count);
            let pages: u64 = std::fs::read_to_string(proc.join("statm"))
                .ok()
                .and_then(|text| text.split_whitespace().nth(1)?.parse().ok())
                .unwrap_or(0);
            if files > MOST_FILES || pages * 4_096 > MOST_MEMORY {
                self.seen.violations.push(format!(
                    "I13: process {} has {files} files open and {} MiB in memory with nothing to do",
                    worker.life,
                    (pages * 4_096) >> 20
                ));
            }
        }
    }

    /// The workers go, and leave nothing behind.
    pub(super) fn dismiss(&mut self, tables: &dyn Tables) -> Result<()> {
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
