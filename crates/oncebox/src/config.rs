//! The settings of an inbox: documented fields, defaults, and one `validate` with the rules between them.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::key::KeyStrategy;

/// The most an inbox takes, checked before any database is asked. All in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A message id or ordering key. Default 1 MiB: ids are kept as digests, so long ones cost nothing to index.
    pub id: usize,
    /// A source or type. Default 1,024.
    pub text: usize,
    /// All headers together. Default 64 KiB.
    pub headers: usize,
    /// A payload. Default 4 MiB.
    pub payload: usize,
    /// A result that a handler leaves for duplicates. Default 64 KiB.
    pub result: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { id: 1 << 20, text: 1_024, headers: 64 << 10, payload: 4 << 20, result: 64 << 10 }
    }
}

/// What happens to a message for whose type no handler is registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unrouted {
    /// It is stored without entries, warned of and acknowledged, and leaves with its retention. A handler added later
    /// gets it if it is redelivered.
    #[default]
    Keep,
    /// It is refused with an error; a source rejects the delivery.
    Refuse,
}

/// What happens when a key arrives again with another payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnConflict {
    /// The second message is kept aside for a person and does not run.
    #[default]
    KeepAside,
    /// The second message counts as a duplicate of the first.
    FirstWins,
}

/// What an inbox promises. A promise its store cannot keep is refused at start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Guarantee {
    /// Whatever the store can give.
    #[default]
    BestOfStore,
    /// Accepted messages survive the end of the process.
    Durable,
    /// Accepted messages survive, and a handler's writes and its completion share one commit.
    ExactlyOnceEffects,
}

/// The settings of an inbox.
#[derive(Clone, Debug)]
pub struct Config {
    /// What is taken at most.
    pub limits: Limits,
    /// Where the dedupe key comes from. Default: source and id.
    pub key: KeyStrategy,
    /// What happens to types without a handler. Default: kept.
    pub unrouted: Unrouted,
    /// What happens to a key that comes back with another payload. Default: kept aside.
    pub on_conflict: OnConflict,
    /// What must be promised. Default: whatever the store can give.
    pub guarantee: Guarantee,
    /// Entries claimed in one go. Default 100.
    pub batch: usize,
    /// Entries in hand at once over all handlers, from claim to settlement. Default 512.
    pub in_flight: usize,
    /// How long a claim holds without being renewed. Default 5 minutes.
    pub lease: Duration,
    /// How long to wait for a wake-up before looking anyway. Default 30 seconds.
    pub poll: Duration,
    /// How often leases that ran out are looked for. Default 30 seconds.
    pub rescue: Duration,
    /// How long a finished message and its key are remembered, from completion; `None` for ever. Default 7 days. A
    /// handler can have [a window of its own](crate::Registration::retention).
    pub retention: Option<Duration>,
    /// How often what is past its retention is removed. Default 1 hour.
    pub sweep: Duration,
    /// How long entries of a handler key that this process does not know may wait before they are reported. Looked at
    /// as often as is swept. Default 1 hour.
    pub orphan_grace: Duration,
    /// How long running handlers may go on once shutdown was asked for. Default 30 seconds.
    pub grace: Duration,
    /// How long a part of the runtime that failed waits before it starts again. Default 5 seconds.
    pub restart: Duration,
    /// Deliveries of one source in hand at once. Default 256.
    pub prefetch: usize,
    /// How long a received delivery is held that somebody else is working on, before the broker is told to bring it
    /// again. Brokers count that, so it is worth waiting: most are a duplicate soon. Default 30 seconds; zero for at once.
    pub busy_wait: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            key: KeyStrategy::default(),
            unrouted: Unrouted::default(),
            on_conflict: OnConflict::default(),
            guarantee: Guarantee::default(),
            batch: 100,
            in_flight: 512,
            lease: Duration::from_mins(5),
            poll: Duration::from_secs(30),
            rescue: Duration::from_secs(30),
            retention: Some(Duration::from_hours(168)),
            sweep: Duration::from_hours(1),
            orphan_grace: Duration::from_hours(1),
            grace: Duration::from_secs(30),
            restart: Duration::from_secs(5),
            prefetch: 256,
            busy_wait: Duration::from_secs(30),
        }
    }
}

impl Config {
    /// The shortest lease: shorter ones would run out during an ordinary pause of the process.
    pub const MIN_LEASE: Duration = Duration::from_millis(300);

    /// Checks every setting and the rules between them.
    pub fn validate(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::new(ErrorKind::InvalidConfig, what));
        if self.batch == 0 || self.in_flight == 0 || self.prefetch == 0 {
            return refuse("`batch`, `in_flight` and `prefetch` must be at least 1");
        }
        if self.batch > 10_000 {
            return refuse("`batch` is over 10,000: one claim would hold the store for too long");
        }
        if self.prefetch > 100_000 {
            return refuse("`prefetch` is over 100,000: the messages of one source could fill the memory");
        }
        if self.lease < Self::MIN_LEASE {
            return refuse("`lease` is under 300 ms: it would run out during an ordinary pause");
        }
        for (name, value) in
            [("poll", self.poll), ("rescue", self.rescue), ("sweep", self.sweep), ("restart", self.restart)]
        {
            if value.is_zero() {
                return refuse(&format!("`{name}` is 0: it would spin"));
            }
        }
        if let Some(window) = self.retention {
            self.check_window(window).map_err(|why| {
                Error::new(ErrorKind::InvalidConfig, format!("`retention` is shorter than `lease`: {why}"))
            })?;
        }
        if self.limits.id == 0 || self.limits.text == 0 || self.limits.payload == 0 {
            return refuse("a limit is 0: nothing could be accepted");
        }
        Ok(())
    }
}

impl Config {
    /// Whether a window can work; what is wrong with it otherwise.
    pub(crate) fn check_window(&self, window: Duration) -> std::result::Result<(), String> {
        if window >= self.lease {
            return Ok(());
        }
        let lease = self.lease;
        Err(format!(
            "{window:?} is less than {lease:?}, and a key could be forgotten while its message still runs; make it {lease:?} or \
             more, or `lease` shorter"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        Config::default().validate().unwrap();
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let zero = Duration::ZERO;
        let bad = [
            Config { batch: 0, ..Config::default() },
            Config { batch: 10_001, ..Config::default() },
            Config { in_flight: 0, ..Config::default() },
            Config { prefetch: 0, ..Config::default() },
            Config { prefetch: usize::MAX, ..Config::default() },
            Config { lease: Duration::from_millis(299), ..Config::default() },
            Config { poll: zero, ..Config::default() },
            Config { rescue: zero, ..Config::default() },
            Config { sweep: zero, ..Config::default() },
            Config { restart: zero, ..Config::default() },
            Config { retention: Some(Duration::from_secs(1)), ..Config::default() },
            Config { limits: Limits { payload: 0, ..Limits::default() }, ..Config::default() },
        ];
        for config in bad {
            assert_eq!(config.validate().unwrap_err().kind(), ErrorKind::InvalidConfig, "{config:?}");
        }
    }
}
