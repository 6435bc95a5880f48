//! One round: seconds of faults, then quiescence, then the check. Tests: below.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::broker::DriverBroker;
use super::faults::Schedule;
use super::server::{CANARY, DatabaseServer};
use super::transports::{RoundTransport, Transports};
use super::workers::{ProcessEvent, RigWorker};
use super::{RunOptions, SourceKind, StoreKind};
use crate::checker::{self, EffectWatcher, RoundRules, RoundVerdict};
use crate::ledger::{Fact, ProcessLedger};
use crate::plan::RoundPlan;
use crate::seam::PointOdds;
use crate::worker::{self, HandedDelivery, StoreLocation, WorkerJob, WorkerReport};

/// A round before its start.
pub(super) struct Round<'a> {
    pub(super) options: &'a RunOptions,
    plan: RoundPlan,
    pub(super) rng: fastrand::Rng,
    dir: tempfile::TempDir,
    pub(super) ledger: Arc<ProcessLedger>,
    pub(super) broker: DriverBroker,
    pub(super) schedule: Schedule,
    pub(super) workers: Vec<RigWorker>,
    events: (Sender<ProcessEvent>, Receiver<ProcessEvent>),
    pub(super) entrance: RoundTransport,
    lives: u64,
    /// True once the tables exist.
    born: bool,
    pub(super) is_quiescent: bool,
    retention: Duration,
    connections: usize,
    /// In `rename`: true if both keys of each handler are known before a process links them.
    keys_apart: bool,
    pub(super) seen: RoundVerdict,
}

/// Maximum wait for the failover after the end of a round.
const OVERTIME: Duration = Duration::from_mins(2);

/// Phase of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Faults,
    /// Waits for the failover only: ended workers restart first, and a server without a replica gets one.
    Overtime,
}

impl Phase {
    /// Returns the phase at a time; `None` after the end.
    fn of(now: Instant, end: Instant, failover_awaited: bool) -> Option<Self> {
        if now < end {
            Some(Self::Faults)
        } else {
            (failover_awaited && now < end + OVERTIME).then_some(Self::Overtime)
        }
    }
}

impl<'a> Round<'a> {
    pub(super) fn new(options: &'a RunOptions, seed: u64) -> Result<Self> {
        let plan = RoundPlan {
            seed,
            killers: options.mix.has_killers(),
            long: options.mix.is_long(),
            quick: options.mix.is_quick(),
            steady: options.mix.loses(),
        };
        let dir = tempfile::Builder::new().prefix("oncebox-chaos-").tempdir()?;
        let ledger = Arc::new(ProcessLedger::open(dir.path(), 0)?);
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x40d);
        // In every third round the inbox deletes messages within the round, so later copies are stale. Messages from a
        // broker have no creation time.
        let forgets = rng.u32(0..3) == 0 && options.source != SourceKind::Rabbitmq && !options.mix.loses();
        let retention = if forgets { Duration::from_secs(4) } else { Duration::from_hours(1) };
        // In every fourth round all handlers share one connection.
        let connections = if rng.u32(0..4) == 0 && options.sabotage.is_none() { 1 } else { 8 };
        let keys_apart = options.mix.renames() && seed.is_multiple_of(2);
        let rabbit = options.source == SourceKind::Rabbitmq;
        Ok(Self {
            options,
            plan,
            rng,
            dir,
            ledger,
            broker: DriverBroker::new(plan, options.mix, options.workers),
            schedule: Schedule::new(options.mix, options.store, rabbit, seed),
            workers: Vec::new(),
            events: channel(),
            entrance: RoundTransport::Pipe,
            lives: 0,
            born: false,
            is_quiescent: false,
            retention,
            connections,
            keys_apart,
            seen: RoundVerdict::default(),
        })
    }

    /// Runs the round, and returns its result.
    pub(super) fn run(
        mut self,
        server: &mut DatabaseServer,
        transports: &mut Transports,
    ) -> Result<RoundVerdict> {
        let (place, tables) = server.prepare(self.dir.path())?;
        self.entrance = transports.open(&self.events.0)?;
        self.births(&place)?;
        worker::make_tables(&place)?;
        self.born = true;
        if self.keys_apart {
            worker::set_keys_apart(&place)?;
        }
        for number in 0..self.options.workers {
            let worker = self.spawn(number, &place)?;
            self.workers.push(worker);
        }
        let observer = EffectWatcher::start(Arc::clone(&tables));
        let end = Instant::now() + Duration::from_secs_f64(self.options.round);
        let before = server.failovers();
        loop {
            let awaited = self.options.mix.fails_over() && server.failovers() == before;
            let Some(phase) = Phase::of(Instant::now(), end, awaited) else { break };
            self.step(&place)?;
            self.reap();
            while let Some(fault) = self.schedule.due() {
                if phase == Phase::Faults || fault.fails_over() {
                    self.inflict(fault, server, transports);
                }
            }
            self.wake();
        }
        if self.options.mix.fails_over() && server.failovers() == before {
            eprintln!("chaos: the server did not fail over in this round");
        }
        server.settle();
        transports.settle();
        self.quiesce(&place, &*tables, transports)?;
        self.seen.violations.extend(observer.stop());
        self.measure();
        self.dismiss(&*tables)?;
        let rules = RoundRules {
            plan: self.plan,
            attempts: worker::ATTEMPTS,
            crashes: worker::CRASHES,
            forgets: self.retention < Duration::from_mins(1),
            one_writer: self.options.store == StoreKind::Sqlite,
            fails_over: self.options.mix.fails_over(),
            loses: self.options.mix.loses(),
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

    fn job(&mut self, number: usize, place: &StoreLocation) -> WorkerJob {
        self.lives += 1;
        let day = 86_400_000;
        let mix = self.options.mix;
        let way = self.entrance.way();
        WorkerJob {
            dir: self.dir.path().to_owned(),
            store: place.clone(),
            plan: self.plan,
            life: self.lives,
            odds: if self.is_quiescent { PointOdds::default() } else { mix.odds() },
            front: number + 1 == self.options.workers && number >= 2 && way.has_front(),
            way,
            lease_ms: u64::try_from(mix.lease().as_millis()).unwrap_or(u64::MAX),
            in_flight: mix.in_flight(),
            operated: number == 0 && mix.is_operated(),
            skew_ms: [0, 0, day, -day, 5_000, -5_000][self.rng.usize(0..6)],
            retention_ms: u64::try_from(self.retention.as_millis()).unwrap_or(u64::MAX),
            migrates: !self.born,
            connections: self.connections,
            // A process that knows one of two separate keys claims only that key's entries: one process knows both.
            renamed: mix.renames().then(|| self.rng.bool() || (self.keys_apart && number == 0)),
            sabotage: self.options.sabotage.clone(),
        }
    }

    pub(super) fn spawn(&mut self, number: usize, place: &StoreLocation) -> Result<RigWorker> {
        let job = self.job(number, place);
        let mut worker = RigWorker::spawn(number, &job, &self.events.0)?;
        if self.is_quiescent {
            worker.feed(format!("{}\n", worker::QUIESCE).as_bytes());
        }
        Ok(worker)
    }

    /// Feeds the workers, and processes their reports.
    pub(super) fn step(&mut self, place: &StoreLocation) -> Result<()> {
        if let RoundTransport::Rabbit(publisher) = &self.entrance {
            while let Some(handed) = self.broker.next(self.options.workers, false, &self.ledger) {
                publisher.publish(&self.plan, handed);
            }
        } else {
            for number in 0..self.workers.len() {
                self.feed(number);
            }
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
        if let RoundTransport::Http(http) = &self.entrance {
            let Some(port) = worker.port else { return };
            while let Some(handed) = self.broker.next(number, worker.front, &self.ledger) {
                http.post((number, worker.life, port), &self.plan, handed, self.is_quiescent);
            }
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

    fn note(&mut self, event: ProcessEvent, place: &StoreLocation) -> Result<()> {
        match event {
            ProcessEvent::Reported(number, life, report) if self.workers[number].life == life => {
                self.process_report(number, report);
            }
            ProcessEvent::Gone(number, life) if self.workers[number].life == life => {
                // The driver did not cause this end: a failpoint or a handler aborted the worker.
                self.ledger.note(Fact::Fault { life, what: "gone".into() });
                self.workers[number].wait()?;
                self.broker.lost_worker(number);
                self.workers[number] = self.spawn(number, place)?;
            }
            ProcessEvent::Published(delivery, true) => self.broker.confirmed(delivery),
            ProcessEvent::Published(delivery, false) => self.broker.again(self.options.workers, delivery),
            ProcessEvent::Reported(..) | ProcessEvent::Gone(..) => {}
        }
        Ok(())
    }

    fn process_report(&mut self, number: usize, report: WorkerReport) {
        if matches!(report, WorkerReport::Acked(_) | WorkerReport::Ran(_)) {
            self.at_work(number);
        }
        match report {
            WorkerReport::Acked(delivery) => {
                if let Some(HandedDelivery { m, v, .. }) = self.broker.acked(number, delivery) {
                    self.ledger.note(Fact::Acked { m, v });
                }
            }
            WorkerReport::Again(delivery) => self.broker.again(number, delivery),
            WorkerReport::Refused(delivery, why) => {
                if let Some(HandedDelivery { m, v, .. }) = self.broker.acked(number, delivery) {
                    self.ledger.note(Fact::Refused { m, v, why });
                }
            }
            WorkerReport::Ran(message) => self.broker.ran(message),
            WorkerReport::Listens(port) => self.workers[number].port = Some(port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_waits_for_its_failover_but_not_for_ever() {
        let end = Instant::now();
        let after = |seconds| end + Duration::from_secs(seconds);
        assert_eq!(Phase::of(end, after(1), false), Some(Phase::Faults));
        assert_eq!(Phase::of(after(1), end, false), None);
        assert_eq!(Phase::of(after(1), end, true), Some(Phase::Overtime));
        assert_eq!(Phase::of(end + OVERTIME, end, true), None);
    }
}
