//! Settings of an inbox: fields, defaults, and the validation of the rules between them.

pub(crate) mod dedupe;
mod identity;

#[doc(inline)]
pub use oncebox_core::config::{Limits, OnConflict, OnTenantsChange, Tenants};
#[doc(inline)]
pub use oncebox_core::key::OrderBy;

pub use identity::{MissingKey, OnDuplicate, ShortWindow};

use std::fmt;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::key::KeyStrategy;
use crate::store::Tenancy;

/// Handling of a message without a handler for its type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unrouted {
    /// The inbox stores it without entries, logs a warning and acknowledges it. It expires with its retention. A handler added
    /// later gets it if it is redelivered.
    #[default]
    Keep,
    /// The inbox refuses it with an error. A source rejects the delivery.
    Refuse,
}

/// Guarantee of an inbox. It does not start on a store that cannot keep it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Guarantee {
    /// The best that the store can keep.
    #[default]
    BestOfStore,
    /// Accepted messages survive the end of the process.
    Durable,
    /// Accepted messages survive, and a handler's writes and its completion share one commit.
    ExactlyOnceEffects,
}

/// Settings of an inbox.
#[derive(Clone, Debug)]
pub struct Config {
    /// Maximum sizes.
    pub limits: Limits,
    /// Source of the dedupe key, unless a type or handler has its own. Default: source and id.
    pub key: KeyStrategy,
    /// Headers that are not stored, besides [those that never are](crate::privacy::PRIVATE_HEADERS). They are removed first, so no
    /// key can come from one. Default: none.
    pub private_headers: Vec<Box<str>>,
    /// Location of the ordering key, for messages whose source names none. Default: no ordering key.
    pub order: Option<OrderBy>,
    /// Handling of a message without a key. Default: refuse.
    pub missing_key: MissingKey,
    /// Handling of a duplicate. Default: report it in the result.
    pub on_duplicate: OnDuplicate,
    /// Use of tenants. Default: none. A message with a tenant is then refused.
    pub tenants: Tenants,
    /// Tenant of the messages that were accepted before the inbox had tenants. Its messages have the keys of messages without a
    /// tenant, so redeliveries stay duplicates. Requires [`Tenants::Required`], and must stay set. Default: none.
    pub adopted_tenant: Option<Box<str>>,
    /// Handling of other tenants settings recorded in the store. Default: refuse.
    pub on_tenants_change: OnTenantsChange,
    /// Handling of types without a handler. Default: keep.
    pub unrouted: Unrouted,
    /// Handling of another message under a known key, for strategies without their own setting. Default: [by the
    /// strategy](OnConflict).
    pub on_conflict: Option<OnConflict>,
    /// Required guarantee. Default: the best that the store can keep.
    pub guarantee: Guarantee,
    /// Maximum entries per claim. Default: 100.
    pub batch: usize,
    /// Maximum claimed entries of all handlers that are not settled yet. Default: 512.
    pub in_flight: usize,
    /// Duration of a claim without a renewal. Running entries are renewed at least every third of it. Default: 30 seconds.
    pub lease: Duration,
    /// Maximum wait for a wake-up before the next claim. Default: 30 seconds.
    pub poll: Duration,
    /// Interval of searches for entries of dead workers: expired leases, and on SQLite ended processes. Default: 2 seconds.
    pub rescue: Duration,
    /// Retention of a finished message and its key, from completion. `None`: for ever. Default: 7 days. A handler can have [its
    /// own](crate::Registration::retention).
    pub retention: Option<Duration>,
    /// Handling of a source that may redeliver a message after its retention. Default: refuse.
    pub short_window: ShortWindow,
    /// Interval of sweeps. Default: a tenth of the shortest window, between 1 second and 1 hour.
    pub sweep: Option<Duration>,
    /// Time for which entries of an unknown handler key may wait before the process reports them. Checked with each sweep, but at
    /// most once a minute and at least once an hour. Default: 1 hour.
    pub orphan_grace: Duration,
    /// Interval of backlog queries, for gauges and health. `None`: never. Each process makes them, and they are cheap. Default: 30
    /// seconds.
    pub backlog: Option<Duration>,
    /// Time for which running handlers may continue after the start of a shutdown. Default: 30 seconds.
    pub grace: Duration,
    /// Wait before a failed part of the runtime restarts. Default: 5 seconds.
    pub restart: Duration,
    /// Maximum unsettled deliveries per source. Default: 256.
    pub prefetch: usize,
    /// Time for which a source holds a delivery whose key is busy before it asks the broker for a redelivery. Brokers count
    /// redeliveries, and most such deliveries soon turn out to be duplicates. Default: 30 seconds. Zero: at once.
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
    /// Shortest lease. A shorter one could expire during an ordinary pause of the process.
    pub const MIN_LEASE: Duration = Duration::from_millis(300);

    /// Validates every setting and the rules between them. An error names the setting, its value and the fix.
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
                    "its messages would share keys with those without a tenant",
                    "set `tenants` to Required",
                );
            }
        }
        if self.guarantee == Guarantee::ExactlyOnceEffects && self.missing_key == MissingKey::Undeduplicated {
            return refuse(
                "missing_key",
                &self.missing_key,
                "a message without a key may run twice, and `guarantee` is ExactlyOnceEffects",
                "set `missing_key` to Refuse, or require less",
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
                return refuse(name, &value, "no message could be handled", "use at least 1");
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

/// Returns the error about a setting: its name, its value, the reason and the fix.
fn refuse(option: &str, value: &dyn fmt::Debug, why: &str, fix: &str) -> Result<()> {
    Err(Error::new(ErrorKind::InvalidConfig, format!("`{option}` is {value:?}: {why}; {fix}")))
}

impl Config {
    /// Returns the tenants setting that the store records.
    pub(crate) fn tenancy(&self) -> Tenancy {
        let adopted = self.adopted_tenant.as_deref().map(Tenancy::adopting);
        adopted.unwrap_or_else(|| Tenancy::new(self.tenants)).on_change(self.on_tenants_change)
    }

    /// Returns the problem of a retention window, if it has one.
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
