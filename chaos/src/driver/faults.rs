//! Which faults there are, and when: chosen by the seed.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::StoreKind;
use crate::seam::Odds;

/// A choice of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mix {
    /// Everything the store can suffer
    All,
    /// Workers are killed
    Kills,
    /// Workers are stopped for longer than their leases, and go on
    Zombies,
    /// Commits are in doubt, calls fail
    Unknown,
    /// Sessions are ended, the server is killed and suspended
    Storm,
    /// As many messages as possible, and some kills
    Volume,
    /// Nothing: what is left is what handlers do
    Calm,
}

/// What the driver does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Kill,
    /// Stops a worker for so long.
    Stop(Duration),
    Terminate,
    /// Ends sessions of the database.
    EndSessions,
    /// A commit is made, and its answer never comes.
    LoseCommits,
    /// Kills the database server and starts it again.
    KillServer,
    /// Suspends the whole server for so long.
    SuspendServer(Duration),
}

/// When what comes next.
pub(super) struct Schedule {
    rng: fastrand::Rng,
    lease: Duration,
    /// A fault, the shortest and longest time between two, and when the next one is.
    kinds: Vec<(Fault, u64, u64, Instant)>,
}

impl Mix {
    /// How often calls of a worker fail by themselves.
    pub(super) fn odds(self) -> Odds {
        match self {
            Self::All => Odds { abort: 300, error: 2_000, unknown: 6_000, delay: 3_000 },
            Self::Kills => Odds { abort: 1_500, ..Odds::default() },
            Self::Unknown => Odds { abort: 0, error: 6_000, unknown: 25_000, delay: 0 },
            Self::Volume => Odds { unknown: 500, error: 500, ..Odds::default() },
            Self::Zombies | Self::Storm | Self::Calm => Odds::default(),
        }
    }

    /// Whether some messages take their process down every time they run.
    pub(super) fn has_killers(self) -> bool {
        matches!(self, Self::All | Self::Calm)
    }

    /// Whether many handlers take longer than a lease.
    pub(super) fn is_long(self) -> bool {
        self == Self::Zombies
    }

    /// Whether handlers take no time.
    pub(super) fn is_quick(self) -> bool {
        self == Self::Volume
    }

    fn kinds(self, store: StoreKind) -> Vec<(Fault, u64, u64)> {
        let stop = Fault::Stop(Duration::ZERO);
        let mut kinds = match self {
            Self::All => vec![(Fault::Kill, 60, 500), (stop, 900, 2_500), (Fault::Terminate, 500, 2_000)],
            Self::Kills => vec![(Fault::Kill, 20, 300), (Fault::Terminate, 1_000, 4_000)],
            Self::Zombies => vec![(stop, 250, 900)],
            Self::Unknown => vec![(Fault::Kill, 800, 2_000)],
            Self::Storm => vec![(Fault::Kill, 1_000, 3_000)],
            Self::Volume => vec![(Fault::Kill, 1_500, 4_000), (Fault::Terminate, 3_000, 6_000)],
            Self::Calm => vec![(Fault::Terminate, 800, 2_000)],
        };
        if store == StoreKind::Postgres {
            let suspend = Fault::SuspendServer(Duration::ZERO);
            kinds.extend(match self {
                Self::All => vec![
                    (Fault::EndSessions, 500, 3_000),
                    (Fault::LoseCommits, 3_000, 9_000),
                    (Fault::KillServer, 5_000, 15_000),
                    (suspend, 6_000, 20_000),
                ],
                Self::Unknown => vec![(Fault::LoseCommits, 300, 1_200)],
                Self::Storm => vec![
                    (Fault::EndSessions, 50, 200),
                    (Fault::KillServer, 3_000, 8_000),
                    (suspend, 3_000, 9_000),
                ],
                _ => Vec::new(),
            });
        }
        kinds
    }
}

impl Schedule {
    pub(super) fn new(mix: Mix, store: StoreKind, seed: u64, lease: Duration) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0xfa17);
        let now = Instant::now();
        let kinds = mix.kinds(store);
        let first = |(fault, least, most): (Fault, u64, u64)| {
            (fault, least, most, now + Duration::from_millis(rng.u64(least..=most)))
        };
        let kinds = kinds.into_iter().map(first).collect();
        Self { rng, lease, kinds }
    }

    /// The next fault whose time has come.
    pub(super) fn due(&mut self) -> Option<Fault> {
        let now = Instant::now();
        let (fault, least, most, next) = self.kinds.iter_mut().find(|(.., next)| *next <= now)?;
        // From now on, not from when it was due: a driver that was late does not catch up with a salvo.
        *next = now + Duration::from_millis(self.rng.u64(*least..=*most));
        let times =
            |low: f64, high: f64, rng: &mut fastrand::Rng| self.lease.mul_f64(low + (high - low) * rng.f64());
        Some(match *fault {
            Fault::Stop(_) => Fault::Stop(times(1.15, 1.7, &mut self.rng)),
            Fault::SuspendServer(_) => Fault::SuspendServer(times(0.2, 1.2, &mut self.rng)),
            fault => fault,
        })
    }

    /// One of so many.
    pub(super) fn one_of(&mut self, many: usize) -> usize {
        self.rng.usize(0..many.max(1))
    }
}
