//! Faults and their times, chosen by the seed. Tests: below.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::StoreKind;
use super::proxy::LinkFault;
use crate::seam::PointOdds;

/// A choice of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mix {
    /// Every fault that the store can meet
    All,
    /// Workers are killed
    Kills,
    /// Suspend workers past their leases, then continue them
    Zombies,
    /// Put commits in doubt, fail calls
    Unknown,
    /// End sessions, kill and suspend the server
    Storm,
    /// Delay, drop and cut connections to the server or broker
    Network,
    /// Kill the server, and promote a replica
    Failover,
    /// Promote a replica that lacks the latest commits
    #[serde(rename = "failover-async")]
    FailoverAsync,
    /// Make the server refuse logins, rights or connections
    Denied,
    /// Fill the disk for a while
    Full,
    /// Kill workers while they create the tables
    Migrate,
    /// Send as many messages as possible, with some kills
    Volume,
    /// Rename handlers: old and new processes together, with kills and restarts
    Rename,
    /// Inject no faults: only handlers fail
    Calm,
}

/// A fault by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DriverFault {
    Kill,
    /// Suspends a worker.
    Stop(Duration),
    Terminate,
    /// Ends sessions of the database.
    EndSessions,
    /// Commits without reporting the result.
    LoseCommits,
    /// Kills the database server and starts it again.
    KillServer,
    /// Suspends the whole server.
    SuspendServer(Duration),
    /// Kills the server and promotes its replica.
    FailOver,
    /// Disconnects the replica before that, so that it lacks the commits meanwhile.
    FailOverBehind(Duration),
    /// Refuses commands, and ends the sessions of the workers.
    Deny(Denial, Duration),
    /// Fills the disk.
    FillDisk(Duration),
    /// Disturbs a connection.
    Disturb(LinkFault),
    /// Kills the broker and starts it again.
    KillBroker,
}

impl DriverFault {
    /// Returns true if another server takes over.
    pub(super) const fn fails_over(self) -> bool {
        matches!(self, Self::FailOver | Self::FailOverBehind(_))
    }
}

/// Commands that the server can refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denial {
    Logins,
    Rights,
    Connections,
}

impl Denial {
    pub(super) const ALL: [Self; 3] = [Self::Logins, Self::Rights, Self::Connections];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Logins => "logins",
            Self::Rights => "rights",
            Self::Connections => "connections",
        }
    }
}

/// Minimum interval, in milliseconds, of a fault that is queued if it cannot happen at once.
const RARE: u64 = 1_000;
const SOON: Duration = Duration::from_millis(10);

/// A fault, and the minimum and maximum interval in milliseconds.
type FaultInterval = (DriverFault, u64, u64);

/// Times of the next faults.
pub(super) struct Schedule {
    rng: fastrand::Rng,
    lease: Duration,
    /// Each with the time of its next fault.
    kinds: Vec<(FaultInterval, Instant)>,
}

impl Mix {
    /// Returns the lease of a claim: short in mixes in which many must expire.
    pub(super) fn lease(self) -> Duration {
        Duration::from_millis(match self {
            Self::Kills | Self::Zombies | Self::Rename => 700,
            // A settlement waits longer than a refusal lasts.
            Self::Volume | Self::Denied => 4_000,
            _ => 1_500,
        })
    }

    /// Returns the maximum entries that a worker holds. A killed worker leaves them to its lease.
    pub(super) fn in_flight(self) -> usize {
        match self {
            Self::Volume => 160,
            Self::Kills => 6,
            _ => 24,
        }
    }

    /// Returns the maximum messages offered ahead of handled ones: enough to keep all workers busy, few enough that all
    /// are in flight at a fault.
    pub(super) fn ahead(self) -> usize {
        match self {
            Self::Volume => 2_000,
            Self::Kills | Self::Zombies => 400,
            _ => 160,
        }
    }

    /// Returns the odds of faults in the calls of a worker.
    pub(super) fn odds(self) -> PointOdds {
        match self {
            Self::All => PointOdds { abort: 300, error: 2_000, unknown: 6_000, delay: 3_000 },
            Self::Kills => PointOdds { abort: 1_500, ..PointOdds::default() },
            Self::Rename => PointOdds { abort: 300, ..PointOdds::default() },
            Self::Unknown => PointOdds { abort: 0, error: 6_000, unknown: 25_000, delay: 0 },
            Self::Volume => PointOdds { unknown: 300, error: 200, ..PointOdds::default() },
            _ => PointOdds::default(),
        }
    }

    /// Returns the range of milliseconds from a worker's first sign of work to its kill.
    pub(super) fn doom(self) -> Option<(u64, u64)> {
        (self == Self::Kills).then_some((20, 300))
    }

    /// Returns the number of workers to kill while they create the tables.
    pub(super) fn births(self) -> usize {
        match self {
            Self::Migrate => 24,
            Self::All | Self::Kills => 2,
            _ => 0,
        }
    }

    /// Returns the maximum workers to stop at once.
    pub(super) fn max_stopped(self, workers: usize) -> usize {
        if self == Self::Zombies { workers.saturating_sub(2).max(1) } else { 1 }
    }

    /// Returns true if an operator pauses handlers and retries messages.
    pub(super) fn is_operated(self) -> bool {
        matches!(
            self,
            Self::All | Self::Kills | Self::Unknown | Self::Network | Self::Failover | Self::Rename
        )
    }

    /// Returns true if handlers have other keys in some processes.
    pub(super) fn renames(self) -> bool {
        self == Self::Rename
    }

    /// Returns true if some messages abort their process every time.
    pub(super) fn has_killers(self) -> bool {
        matches!(self, Self::All | Self::Calm)
    }

    /// Returns true if many handlers take longer than a lease.
    pub(super) fn is_long(self) -> bool {
        self == Self::Zombies
    }

    /// Returns true if handlers take no time.
    pub(super) fn is_quick(self) -> bool {
        self == Self::Volume
    }

    /// Returns true if the workers reach the server through a proxy.
    pub(super) fn has_proxy(self) -> bool {
        matches!(self, Self::Network | Self::Failover | Self::FailoverAsync)
    }

    /// Returns true if the server has a replica that takes over.
    pub(super) fn fails_over(self) -> bool {
        matches!(self, Self::Failover | Self::FailoverAsync)
    }

    /// Returns true if a failover loses history: then processes must live to report their effects.
    pub(super) fn loses(self) -> bool {
        self == Self::FailoverAsync
    }

    /// Returns true if the workers log in as a role whose commands the server can refuse.
    pub(super) fn denies(self) -> bool {
        self == Self::Denied
    }

    /// Returns true if leases may expire while the server refuses commands. Workers renew at a third, so at least two
    /// thirds are left; recovery needs some of that.
    pub(super) fn outlasts_leases(self, time: Duration) -> bool {
        time > self.lease() / 2
    }

    fn kinds(self, store: StoreKind, broker: bool) -> Vec<FaultInterval> {
        let stop = DriverFault::Stop(Duration::ZERO);
        let mut kinds = match self {
            Self::All => {
                vec![(DriverFault::Kill, 60, 500), (stop, 900, 2_500), (DriverFault::Terminate, 500, 2_000)]
            }
            Self::Kills => vec![(DriverFault::Terminate, 1_000, 4_000)],
            Self::Zombies => vec![(stop, 40, 160)],
            Self::Rename => vec![(DriverFault::Kill, 100, 500), (DriverFault::Terminate, 400, 1_200)],
            Self::Unknown | Self::Full => vec![(DriverFault::Kill, 800, 2_000)],
            Self::Denied => vec![(DriverFault::Kill, 2_000, 5_000)],
            Self::FailoverAsync => Vec::new(),
            Self::Storm | Self::Network | Self::Failover => vec![(DriverFault::Kill, 1_000, 3_000)],
            Self::Volume => vec![(DriverFault::Kill, 1_500, 4_000), (DriverFault::Terminate, 3_000, 6_000)],
            Self::Calm | Self::Migrate => vec![(DriverFault::Terminate, 800, 2_000)],
        };
        if self == Self::Network && (broker || store == StoreKind::Postgres) {
            kinds.extend(LinkFault::ALL.map(|trouble| (DriverFault::Disturb(trouble), 120, 700)));
        }
        if self == Self::Full {
            kinds.push((DriverFault::FillDisk(Duration::ZERO), 700, 2_500));
        }
        if self == Self::Storm && broker {
            kinds.push((DriverFault::KillBroker, 6_000, 12_000));
        }
        if store == StoreKind::Postgres {
            kinds.extend(self.of_servers());
        }
        kinds
    }

    fn of_servers(self) -> Vec<FaultInterval> {
        let suspend = DriverFault::SuspendServer(Duration::ZERO);
        match self {
            Self::All => vec![
                (DriverFault::EndSessions, 500, 3_000),
                (DriverFault::LoseCommits, 3_000, 9_000),
                (DriverFault::KillServer, 5_000, 15_000),
                (suspend, 6_000, 20_000),
            ],
            Self::Unknown => vec![(DriverFault::LoseCommits, 300, 1_200)],
            Self::Storm => vec![
                (DriverFault::EndSessions, 50, 200),
                (DriverFault::KillServer, 3_000, 8_000),
                (suspend, 3_000, 9_000),
            ],
            Self::Failover => vec![(DriverFault::FailOver, 2_000, 5_000)],
            Self::FailoverAsync => vec![(DriverFault::FailOverBehind(Duration::ZERO), 2_000, 5_000)],
            Self::Denied => {
                Denial::ALL.map(|denial| (DriverFault::Deny(denial, Duration::ZERO), 4_000, 8_000)).to_vec()
            }
            _ => Vec::new(),
        }
    }
}

impl Schedule {
    pub(super) fn new(mix: Mix, store: StoreKind, broker: bool, seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0xfa17);
        let now = Instant::now();
        let kinds = mix.kinds(store, broker);
        let first = |kind: FaultInterval| (kind, now + Duration::from_millis(rng.u64(kind.1..=kind.2)));
        let kinds = kinds.into_iter().map(first).collect();
        Self { rng, lease: mix.lease(), kinds }
    }

    /// Returns the next due fault.
    pub(super) fn due(&mut self) -> Option<DriverFault> {
        let now = Instant::now();
        let ((fault, least, max), next) = self.kinds.iter_mut().find(|(_, next)| *next <= now)?;
        // Counted from now: a late driver must not fire a salvo.
        *next = now + Duration::from_millis(self.rng.u64(*least..=*max));
        let times =
            |low: f64, high: f64, rng: &mut fastrand::Rng| self.lease.mul_f64(low + (high - low) * rng.f64());
        Some(match *fault {
            DriverFault::Stop(_) => DriverFault::Stop(times(1.15, 1.7, &mut self.rng)),
            DriverFault::SuspendServer(_) => DriverFault::SuspendServer(times(0.2, 1.2, &mut self.rng)),
            DriverFault::FillDisk(_) => DriverFault::FillDisk(times(0.1, 0.8, &mut self.rng)),
            DriverFault::FailOverBehind(_) => DriverFault::FailOverBehind(times(0.3, 1.0, &mut self.rng)),
            DriverFault::Deny(denial, _) => DriverFault::Deny(denial, times(0.3, 0.9, &mut self.rng)),
            fault => fault,
        })
    }

    /// Postpones a fault that cannot happen now. Frequent faults are dropped; rare ones would never get their turn.
    pub(super) fn postpone(&mut self, fault: DriverFault) {
        let same = |kind: &DriverFault| std::mem::discriminant(kind) == std::mem::discriminant(&fault);
        if let Some((_, next)) =
            self.kinds.iter_mut().find(|((kind, least, _), _)| same(kind) && *least >= RARE)
        {
            *next = Instant::now() + SOON;
        }
    }

    /// Returns a random index.
    pub(super) fn one_of(&mut self, many: usize) -> usize {
        self.rng.usize(0..many.max(1))
    }

    /// Returns a random duration in milliseconds.
    pub(super) fn millis(&mut self, (least, max): (u64, u64)) -> Duration {
        Duration::from_millis(self.rng.u64(least..=max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_last_for_much_of_a_lease_some_beyond_what_is_left_of_it() {
        let mut schedule = Schedule::new(Mix::Denied, StoreKind::Postgres, false, 1);
        let mut times = Vec::new();
        for _ in 0..100 {
            for (_, next) in &mut schedule.kinds {
                *next = Instant::now();
            }
            while let Some(fault) = schedule.due() {
                times.extend(if let DriverFault::Deny(_, time) = fault { Some(time) } else { None });
            }
        }
        let lease = Mix::Denied.lease();
        assert!(times.iter().all(|time| *time >= lease * 3 / 10 && *time <= lease * 9 / 10), "{times:?}");
        let long = times.iter().filter(|time| Mix::Denied.outlasts_leases(**time)).count();
        assert!((times.len() / 3..times.len()).contains(&long), "{long} of {}", times.len());
    }

    #[test]
    fn a_rare_fault_is_not_crowded_out_by_those_that_come_often() {
        let mut storm = Schedule::new(Mix::Storm, StoreKind::Postgres, false, 1);
        let next = |storm: &Schedule, fault: DriverFault| {
            storm.kinds.iter().find(|((kind, ..), _)| *kind == fault).map(|(_, next)| *next).unwrap()
        };
        let before = [DriverFault::KillServer, DriverFault::EndSessions].map(|fault| next(&storm, fault));
        let late = Instant::now() + Duration::from_secs(1);
        assert!(before[0] > late, "it comes seconds later");
        storm.postpone(DriverFault::KillServer);
        storm.postpone(DriverFault::EndSessions);
        assert!(next(&storm, DriverFault::KillServer) < late);
        assert_eq!(next(&storm, DriverFault::EndSessions), before[1]);
        // However long it lasts.
        storm.postpone(DriverFault::SuspendServer(Duration::from_secs(9)));
        assert!(next(&storm, DriverFault::SuspendServer(Duration::ZERO)) < late);
    }
}
