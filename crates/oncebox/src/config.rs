//! The settings of an inbox: documented fields, defaults, and one `validate` with the rules between them.

mod identity;

pub use identity::{MissingKey, OnDuplicate, OnTenantsChange, OrderBy, ShortWindow, Tenants};

use std::fmt;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::key::{Fingerprint, KeyStrategy};
use crate::store::Tenancy;

/// The most an inbox takes, checked before any database is asked. All in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A message id or ordering key. Default 1 MiB: ids are kept as digests, so long ones cost nothing to index.
    pub id: usize,
    /// A source, type or tenant. Default 1,024.
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

/// What happens when a key arrives again with another message: another payload, or another type.
///
/// Of several settings the most exact one counts: that beside the strategy
/// ([`KeyStrategy::on_conflict`]), then [`Config::on_conflict`], then what the strategy is for. A key that names a message
/// ([`KeyStrategy::MessageId`], [`CloudEvents`](KeyStrategy::CloudEvents), [`Content`](KeyStrategy::Content), a header that is no
/// correlation id, and every key that fell back to the message id) is never right for two messages: the second is quarantined. A
/// business or correlation key comes again with every republished message: the first wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnConflict {
    /// The second message is quarantined for a person and does not run.
    #[default]
    Quarantine,
    /// A second message of the same type counts as a duplicate of the first, whatever its payload. It is counted
    /// (`oncebox_allowed_conflicts_total`) and logged, and for stored messages `explain` shows how many there were. A message of
    /// another type is quarantined: no handler is given the message of another one's type.
    FirstWins,
    /// Each payload under a key is a message of its own: its fingerprint becomes a part of its key. What is delivered
    /// again with the same payload is a duplicate. The store knows nothing of the conflict, so it cannot list it; what a
    /// process notices itself it counts (`oncebox_allowed_conflicts_total`) and logs, with both keys. Keys made under
    /// another setting are not recognised: change it when nothing old can come again.
    AcceptAsNew,
}

impl OnConflict {
    /// Whether a message is in conflict with the one that its key is known with.
    pub fn is_conflict(self, known: &Fingerprint, new: &Fingerprint) -> bool {
        known != new && !(self == Self::FirstWins && known.is_same_type(new))
    }
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
    /// Where the dedupe key comes from, unless a type or handler says otherwise. Default: source and id.
    pub key: KeyStrategy,
    /// Headers that are not stored, beside [those that never are](crate::privacy::PRIVATE_HEADERS). They are taken off first
    /// of all, so no key can come from one. Default: none.
    pub private_headers: Vec<Box<str>>,
    /// Where the ordering key of messages is whose source names none. Default: they have none.
    pub order: Option<OrderBy>,
    /// What happens to a message without a key. Default: refused.
    pub missing_key: MissingKey,
    /// What happens to a message that was there before. Default: the answer says so.
    pub on_duplicate: OnDuplicate,
    /// Whether messages belong to tenants. Default: they do not, and one that does is refused.
    pub tenants: Tenants,
    /// The tenant to whom messages belong that were accepted before the inbox had tenants: its messages have the keys of
    /// messages without a tenant, so redeliveries stay duplicates. Needs [`Tenants::Required`], and stays set for good. Default:
    /// none.
    pub adopted_tenant: Option<Box<str>>,
    /// What happens if the inbox has worked on the store with other tenants settings. Default: refused.
    pub on_tenants_change: OnTenantsChange,
    /// What happens to types without a handler. Default: kept.
    pub unrouted: Unrouted,
    /// What happens to a key that comes back with another message, for all strategies that do not say it themselves. Default:
    /// [by the strategy](OnConflict).
    pub on_conflict: Option<OnConflict>,
    /// What must be promised. Default: whatever the store can give.
    pub guarantee: Guarantee,
    /// Entries claimed in one go. Default 100.
    pub batch: usize,
    /// Entries in hand at once over all handlers, from claim to settlement. Default 512.
    pub in_flight: usize,
    /// How long a claim holds without being renewed. A running entry is renewed at least every third of it. Default: 30 seconds.
    pub lease: Duration,
    /// How long to wait for a wake-up before looking anyway. Default 30 seconds.
    pub poll: Duration,
    /// How often entries of dead workers are looked for: leases that ran out, and on SQLite processes that are gone. Default: 2
    /// seconds.
    pub rescue: Duration,
    /// How long a finished message and its key are remembered, from completion; `None` for ever. Default 7 days. A
    /// handler can have [a window of its own](crate::Registration::retention).
    pub retention: Option<Duration>,
    /// What happens to a source that may bring a message again later than that. Default: refused.
    pub short_window: ShortWindow,
    /// How often what is past its retention is removed. Default: a tenth of the shortest window, between 1 second and 1 hour.
    pub sweep: Option<Duration>,
    /// How long entries of a handler key that this process does not know may wait before they are reported. Looked at
    /// as often as is swept, but at most once a minute and at least once an hour. Default 1 hour.
    pub orphan_grace: Duration,
    /// How often what waits is counted, for gauges and health; `None` for never. Each process does it, and it is cheap.
    /// Default 30 seconds.
    pub backlog: Option<Duration>,
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
            private_headers: Vec::new(),
            order: None,
            missing_key: MissingKey::default(),
            on_duplicate: OnDuplicate::default(),
            tenants: Tenants::default(),
            adopted_tenant: None,
            on_tenants_change: OnTenantsChange::default(),
            unrouted: Unrouted::default(),
            on_conflict: None,
            guarantee: Guarantee::default(),
            batch: 100,
            in_flight: 512,
            lease: Duration::from_secs(30),
            poll: Duration::from_secs(30),
            rescue: Duration::from_secs(2),
            retention: Some(Duration::from_hours(168)),
            short_window: ShortWindow::default(),
            sweep: None,
            orphan_grace: Duration::from_hours(1),
            backlog: Some(Duration::from_secs(30)),
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

    /// Checks every setting and the rules between them. An error names the option, its value and what to do.
    pub fn validate(&self) -> Result<()> {
        self.validate_sizes()?;
        self.validate_times()?;
        if let Some(flaw) = self.key.flaw() {
            return Err(Error::new(ErrorKind::InvalidConfig, format!("`key` is {:?}: {flaw}", self.key)));
        }
        if let Some((why, fix)) = self.order.as_ref().and_then(OrderBy::flaw) {
            return refuse("order", &self.order, why, fix);
        }
        if let Some(tenant) = &self.adopted_tenant {
            if tenant.trim().is_empty() {
                return refuse(
                    "adopted_tenant",
                    tenant,
                    "a tenant has a name",
                    "name the tenant, or leave it out",
                );
            }
            if self.tenants != Tenants::Required {
                return refuse(
                    "adopted_tenant",
                    tenant,
                    "its messages would meet those without a tenant",
                    "set `tenants` to Required",
                );
            }
        }
        if self.guarantee == Guarantee::ExactlyOnceEffects && self.missing_key == MissingKey::Undeduplicated {
            return refuse(
                "missing_key",
                &self.missing_key,
                "a message without a key could have its effects twice, and `guarantee` is ExactlyOnceEffects",
                "set `missing_key` to Refuse, or promise less",
            );
        }
        Ok(())
    }

    fn validate_sizes(&self) -> Result<()> {
        let sizes = [
            ("batch", self.batch, 10_000, "one claim would hold the store for too long"),
            ("in_flight", self.in_flight, usize::MAX, ""),
            ("prefetch", self.prefetch, 100_000, "the messages of one source could fill the memory"),
        ];
        for (name, value, max, why) in sizes {
            if value == 0 {
                return refuse(name, &value, "nothing could ever be taken", "use at least 1");
            }
            if value > max {
                return refuse(name, &value, why, &format!("use at most {max}"));
            }
        }
        let Limits { id, text, payload, .. } = self.limits;
        for (name, value) in [("limits.id", id), ("limits.text", text), ("limits.payload", payload)] {
            if value == 0 {
                return refuse(name, &value, "nothing could be accepted", "use at least 1");
            }
        }
        Ok(())
    }

    fn validate_times(&self) -> Result<()> {
        if self.lease < Self::MIN_LEASE {
            let fix = format!("use at least {:?}", Self::MIN_LEASE);
            return refuse("lease", &self.lease, "it would run out during an ordinary pause", &fix);
        }
        let times = [("poll", self.poll), ("rescue", self.rescue), ("restart", self.restart)];
        let optional = [("sweep", self.sweep), ("backlog", self.backlog)];
        let optional = optional.into_iter().filter_map(|(name, value)| Some((name, value?)));
        for (name, value) in times.into_iter().chain(optional) {
            if value.is_zero() {
                return refuse(name, &value, "it would spin", "use some milliseconds at least");
            }
        }
        if let Some(window) = self.retention {
            self.check_window(window).map_err(|why| {
                let what = format!("`retention` is shorter than `lease`: {why}");
                Error::new(ErrorKind::InvalidConfig, what)
            })?;
        }
        Ok(())
    }
}

/// An error about a setting: which one it is, what it is set to, why that cannot work, and what to do.
fn refuse(option: &str, value: &dyn fmt::Debug, why: &str, fix: &str) -> Result<()> {
    Err(Error::new(ErrorKind::InvalidConfig, format!("`{option}` is {value:?}: {why}; {fix}")))
}

impl Config {
    /// What the store records of the tenants settings.
    pub(crate) fn tenancy(&self) -> Tenancy {
        let adopted = self.adopted_tenant.as_deref().map(Tenancy::adopting);
        adopted.unwrap_or_else(|| Tenancy::new(self.tenants)).on_change(self.on_tenants_change)
    }

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
            Config { sweep: Some(zero), ..Config::default() },
            Config { restart: zero, ..Config::default() },
            Config { retention: Some(Duration::from_secs(1)), ..Config::default() },
            Config { limits: Limits { payload: 0, ..Limits::default() }, ..Config::default() },
            Config { order: Some(OrderBy::JsonPointer("customer".into())), ..Config::default() },
            Config { order: Some(OrderBy::Header("".into())), ..Config::default() },
            Config { order: Some(OrderBy::Header(" ".into())), ..Config::default() },
            Config { key: KeyStrategy::header(" "), ..Config::default() },
            Config { adopted_tenant: Some("acme".into()), ..Config::default() },
            Config { adopted_tenant: Some("acme".into()), tenants: Tenants::Optional, ..Config::default() },
            Config { adopted_tenant: Some(" ".into()), tenants: Tenants::Required, ..Config::default() },
        ];
        for config in bad {
            assert_eq!(config.validate().unwrap_err().kind(), ErrorKind::InvalidConfig, "{config:?}");
        }
    }
}
