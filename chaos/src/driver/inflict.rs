//! Inflicts the faults of a round on the workers. Tests: tests/short.rs.

use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::process::Signal;

use super::faults::DriverFault;
use super::round::Round;
use super::server::DatabaseServer;
use super::transports::Transports;
use crate::ledger::Fact;
use crate::worker::StoreLocation;

impl Round<'_> {
    fn fault(&self, life: u64, what: &str) {
        self.ledger.note(Fact::Fault { life, what: what.to_owned() });
    }

    /// Kills new workers while they create the tables: two at a time.
    pub(super) fn births(&mut self, place: &StoreLocation) -> Result<()> {
        for _ in 0..self.options.mix.births() {
            let mut born = [self.spawn(0, place)?, self.spawn(1, place)?];
            std::thread::park_timeout(Duration::from_micros(self.rng.u64(1_000..90_000)));
            for worker in &mut born {
                self.fault(worker.life, "kill");
                self.seen.early_kills += u64::from(worker.kill());
            }
        }
        Ok(())
    }

    /// Marks a worker as working: from now on it may be killed.
    pub(super) fn at_work(&mut self, number: usize) {
        let worker = &mut self.workers[number];
        if !worker.worked {
            worker.worked = true;
            if let Some(span) = self.options.mix.doom().filter(|_| !self.is_quiescent) {
                worker.doom = Some(Instant::now() + self.schedule.millis(span));
            }
        }
    }

    /// Kills the workers that are due.
    pub(super) fn reap(&mut self) {
        let now = Instant::now();
        for number in 0..self.workers.len() {
            let worker = &self.workers[number];
            if worker.doom.is_some_and(|doom| doom <= now) && !worker.leaving {
                self.kill(number);
            }
        }
    }

    fn kill(&mut self, number: usize) {
        self.fault(self.workers[number].life, "kill");
        let worker = &mut self.workers[number];
        let killed = u64::from(worker.kill());
        worker.leaving = true;
        // An idle worker proves nothing.
        if worker.worked {
            self.seen.kills += killed;
        } else {
            self.seen.early_kills += killed;
        }
    }

    pub(super) fn inflict(&mut self, fault: DriverFault, server: &DatabaseServer, transports: &Transports) {
        match fault {
            DriverFault::Kill | DriverFault::Terminate | DriverFault::Stop(_) => self.hit(fault),
            DriverFault::Disturb(trouble) => {
                // Both links, if there are two.
                let disturbed =
                    [server.disturb(trouble, &mut self.rng), transports.disturb(trouble, &mut self.rng)];
                for _ in disturbed.into_iter().filter(|done| *done) {
                    self.fault(0, &format!("network: {}", trouble.name()));
                }
            }
            DriverFault::KillBroker => transports.kill_broker(&self.ledger),
            // A failover before the first message proves nothing.
            fault if fault.fails_over() && !self.workers.iter().any(|one| one.worked) => {
                self.schedule.postpone(fault);
            }
            fault if server.suffer(fault, &self.ledger) => self.seen.server_faults += 1,
            fault => self.schedule.postpone(fault),
        }
    }

    /// Inflicts a fault on one of the workers.
    fn hit(&mut self, fault: DriverFault) {
        let now = Instant::now();
        let able: Vec<usize> = (0..self.workers.len())
            .filter(|number| {
                let worker = &self.workers[*number];
                worker.stopped.is_none() && !worker.leaving && worker.spared <= now
            })
            .collect();
        let Some(number) = able.get(self.schedule.one_of(able.len())).copied() else { return };
        let stopped = self.workers.iter().filter(|worker| worker.stopped.is_some()).count();
        match fault {
            DriverFault::Kill => self.kill(number),
            DriverFault::Terminate => {
                self.fault(self.workers[number].life, "terminate");
                let worker = &mut self.workers[number];
                worker.signal(Signal::TERM);
                worker.leaving = true;
                self.seen.terminations += 1;
            }
            DriverFault::Stop(time) if stopped < self.options.mix.max_stopped(self.workers.len()) => {
                if !self.workers[number].worked {
                    return;
                }
                self.fault(self.workers[number].life, "stop");
                let worker = &mut self.workers[number];
                worker.signal(Signal::STOP);
                worker.stopped = Some(now + time);
                self.seen.stops += 1;
            }
            _ => {}
        }
    }

    /// Continues suspended workers that are due.
    pub(super) fn wake(&mut self) {
        let now = Instant::now();
        let spared = now + self.options.mix.lease() / 5;
        for worker in &mut self.workers {
            if worker.stopped.is_some_and(|until| until <= now || self.is_quiescent) {
                worker.stopped = None;
                worker.spared = spared;
                self.ledger.note(Fact::Fault { life: worker.life, what: "continue".into() });
                worker.signal(Signal::CONT);
            }
        }
    }
}
