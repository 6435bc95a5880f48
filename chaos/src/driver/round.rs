//! One round: seconds of faults, then peace, then the check.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::process::Signal;

use super::broker::Broker;
use super::faults::{Fault, Schedule};
use super::server::{CANARY, Server};
use super::workers::{Event, Worker};
use super::{Options, StoreKind};
use crate::checker::tables::Tables;
use crate::checker::{self, Observer, Rules, Verdict};
use crate::ledger::{Fact, Ledger};
use crate::plan::Plan;
use crate::seam::Odds;
use crate::worker::{self, Handed, Job, Place, Told};

/// How long a claim holds.
const LEASE: Duration = Duration::from_millis(1_500);
/// Messages that come in at the end, through the one that runs nothing.
const LATE: u32 = 8;
/// What a worker may need when everything is done.
const MOST_FILES: usize = 96;
const MOST_MEMORY: u64 = 400 << 20;

/// A round that has not begun.
pub(super) struct Round<'a> {
    options: &'a Options,
    plan: Plan,
    rng: fastrand::Rng,
    dir: tempfile::TempDir,
    ledger: Arc<Ledger>,
    broker: Broker,
    schedule: Schedule,
    workers: Vec<Worker>,
    events: (Sender<Event>, Receiver<Event>),
    lives: u64,
    at_peace: bool,
    retention: Duration,
    connections: usize,
    seen: Verdict,
}

impl<'a> Round<'a> {
    pub(super) fn new(options: &'a Options, seed: u64) -> Result<Self> {
        let plan = Plan {
            seed,
            killers: options.mix.has_killers(),
            long: options.mix.is_long(),
            quick: options.mix.is_quick(),
        };
        let dir = tempfile::Builder::new().prefix("oncebox-chaos-").tempdir()?;
        let ledger = Arc::new(Ledger::open(dir.path(), 0)?);
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x40d);
        // In every third round the inbox forgets within the round: what comes later than that is stale.
        let retention = if rng.u32(0..3) == 0 { Duration::from_secs(4) } else { Duration::from_hours(1) };
        // In every fourth round handlers have one connection between them.
        let connections = if rng.u32(0..4) == 0 && options.sabotage.is_none() { 1 } else { 8 };
        Ok(Self {
            options,
            plan,
            rng,
            dir,
            ledger,
            broker: Broker::new(plan, options.workers),
            schedule: Schedule::new(options.mix, options.store, seed, LEASE),
            workers: Vec::new(),
            events: channel(),
            lives: 0,
            at_peace: false,
            retention,
            connections,
            seen: Verdict::default(),
        })
    }

    /// Runs it, and says what came out.
    pub(super) fn run(mut self, server: &mut Server) -> Result<Verdict> {
        let (place, tables) = server.prepare(self.dir.path())?;
        for number in 0..self.options.workers {
            let worker = self.spawn(number, &place)?;
            self.workers.push(worker);
        }
        let observer = Observer::start(Arc::clone(&tables));
        let end = Instant::now() + Duration::from_secs_f64(self.options.round);
        while Instant::now() < end {
            self.step(&place)?;
            while let Some(fault) = self.schedule.due() {
                self.inflict(fault, server);
            }
            self.wake();
        }
        server.settle();
        self.peace(&place, &*tables)?;
        self.seen.violations.extend(observer.stop());
        self.measure();
        self.dismiss(&*tables)?;
        let rules = Rules {
            plan: self.plan,
            attempts: worker::ATTEMPTS,
            crashes: worker::CRASHES,
            forgets: self.retention < Duration::from_mins(1),
            one_writer: self.options.store == StoreKind::Sqlite,
            canary: CANARY,
        };
        let mut verdict = checker::check(self.dir.path(), &*tables, &rules)?;
        verdict.messages = u64::from(self.broker.count());
        verdict.deliveries = self.broker.deliveries;
        verdict.add(self.seen);
        tables.forget();
        if !verdict.violations.is_empty() && self.options.sabotage.is_none() {
            let kept = self.dir.keep();
            eprintln!("  the ledgers are kept in {}", kept.display());
        }
        Ok(verdict)
    }

    fn job(&mut self, number: usize, place: &Place) -> Job {
        self.lives += 1;
        let day = 86_400_000;
        Job {
            dir: self.dir.path().to_owned(),
            store: place.clone(),
            plan: self.plan,
            life: self.lives,
            odds: if self.at_peace { Odds::default() } else { self.options.mix.odds() },
            front: number + 1 == self.options.workers && number >= 2,
            lease_ms: u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX),
            skew_ms: [0, 0, day, -day, 5_000, -5_000][self.rng.usize(0..6)],
            retention_ms: u64::try_from(self.retention.as_millis()).unwrap_or(u64::MAX),
            connections: self.connections,
            sabotage: self.options.sabotage.clone(),
        }
    }

    fn spawn(&mut self, number: usize, place: &Place) -> Result<Worker> {
        let job = self.job(number, place);
        Worker::spawn(number, &job, &self.events.0)
    }

    /// Feeds the workers, and hears what they say.
    fn step(&mut self, place: &Place) -> Result<()> {
        for number in 0..self.workers.len() {
            self.feed(number);
        }
        let mut event = self.events.1.recv_timeout(Duration::from_millis(5)).ok();
        while let Some(one) = event {
            self.note(one, place)?;
            event = self.events.1.try_recv().ok();
        }
        Ok(())
    }

    fn feed(&mut self, number: usize) {
        let worker = &mut self.workers[number];
        if worker.leaving || worker.stopped.is_some() {
            return;
        }
        let mut lines = Vec::new();
        while let Some(handed) = self.broker.next(number, worker.front, &self.ledger) {
            // Serializing numbers cannot fail.
            let _ = serde_json::to_writer(&mut lines, &handed);
            lines.push(b'\n');
        }
        if !lines.is_empty() {
            worker.feed(&lines);
        }
    }

    fn note(&mut self, event: Event, place: &Place) -> Result<()> {
        match event {
            Event::Told(number, life, told) if self.workers[number].life == life => match told {
                Told::Acked(delivery) => {
                    if let Some(Handed { m, v, .. }) = self.broker.acked(number, delivery) {
                        self.ledger.note(Fact::Acked { m, v });
                    }
                }
                Told::Again(delivery) => self.broker.again(number, delivery),
                Told::Refused(delivery, why) => {
                    if let Some(Handed { m, v, .. }) = self.broker.acked(number, delivery) {
                        self.ledger.note(Fact::Refused { m, v, why });
                    }
                }
                Told::Ran(message) => self.broker.ran(message),
            },
            Event::Gone(number, life) if self.workers[number].life == life => {
                // An end that nobody saw coming was the worker's own: a failpoint, or a handler that aborts.
                self.ledger.note(Fact::Fault { life, what: "gone".into() });
                self.workers[number].wait()?;
                self.broker.lost_worker(number);
                self.workers[number] = self.spawn(number, place)?;
            }
            Event::Told(..) | Event::Gone(..) => {}
        }
        Ok(())
    }

    fn inflict(&mut self, fault: Fault, server: &Server) {
        let now = Instant::now();
        let able: Vec<usize> = (0..self.workers.len())
            .filter(|number| {
                let worker = &self.workers[*number];
                worker.stopped.is_none() && !worker.leaving && worker.spared <= now
            })
            .collect();
        let chosen = able.get(self.schedule.one_of(able.len())).copied();
        let note =
            |ledger: &Ledger, life, what: &str| ledger.note(Fact::Fault { life, what: what.to_owned() });
        match (fault, chosen) {
            (Fault::Kill, Some(number)) => {
                let worker = &mut self.workers[number];
                note(&self.ledger, worker.life, "kill");
                self.seen.kills += u64::from(worker.kill());
                worker.leaving = true;
            }
            (Fault::Terminate, Some(number)) => {
                let worker = &mut self.workers[number];
                note(&self.ledger, worker.life, "terminate");
                worker.signal(Signal::TERM);
                worker.leaving = true;
                self.seen.terminations += 1;
            }
            (Fault::Stop(time), Some(number)) if now - self.workers[number].since > LEASE / 8 => {
                let worker = &mut self.workers[number];
                note(&self.ledger, worker.life, "stop");
                worker.signal(Signal::STOP);
                worker.stopped = Some(now + time);
                self.seen.zombies += 1;
            }
            (Fault::Kill | Fault::Terminate | Fault::Stop(_), _) => {}
            (fault, _) => {
                self.seen.server_faults += 1;
                server.suffer(fault, &self.ledger);
            }
        }
    }

    /// Lets those go on whose time has come.
    fn wake(&mut self) {
        let now = Instant::now();
        for worker in &mut self.workers {
            if worker.stopped.is_some_and(|until| until <= now || self.at_peace) {
                worker.stopped = None;
                worker.spared = now + LEASE / 5;
                self.ledger.note(Fact::Fault { life: worker.life, what: "continue".into() });
                worker.signal(Signal::CONT);
            }
        }
    }

    /// No more faults: everything has to come to its end.
    fn peace(&mut self, place: &Place, tables: &dyn Tables) -> Result<()> {
        self.at_peace = true;
        self.broker.open = false;
        self.wake();
        for worker in &mut self.workers {
            worker.feed(format!("{}\n", worker::PEACE).as_bytes());
        }
        self.ledger.note(Fact::Fault { life: 0, what: "peace".into() });
        let start = Instant::now();
        let mut looked = Instant::now();
        let mut late = self.workers.iter().any(|worker| worker.front);
        loop {
            self.step(place)?;
            if looked.elapsed() > Duration::from_millis(150) {
                looked = Instant::now();
                let left = if self.broker.is_done() { Some(tables.unfinished()?) } else { None };
                if left == Some(0) && std::mem::take(&mut late) {
                    // Those who run are idle now: whether they are told of these or not, they have to find them.
                    self.broker.late = LATE;
                } else if left == Some(0) {
                    return Ok(());
                }
                if start.elapsed().as_secs() >= self.options.peace {
                    self.seen.violations.push(format!(
                        "I9: {} s after the last fault {} and {left:?} entries are not finished",
                        self.options.peace,
                        if self.broker.is_done() {
                            "everything is acknowledged"
                        } else {
                            "deliveries are not acknowledged"
                        }
                    ));
                    return Ok(());
                }
            }
        }
    }

    /// What the workers still need.
    fn measure(&mut self) {
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
    fn dismiss(&mut self, tables: &dyn Tables) -> Result<()> {
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
