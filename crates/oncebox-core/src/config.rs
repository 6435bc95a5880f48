//! Settings of an inbox that messages, keys and stores depend on. `oncebox::config` has the others.

/// Maximum sizes that an inbox accepts, in bytes, checked before any database call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a message id or ordering key. Default: 1 MiB, because only their digests are indexed.
    pub id: usize,
    /// Bytes of a source, type or tenant. Default: 1,024.
    pub text: usize,
    /// Bytes of all headers together. Default: 64 KiB.
    pub headers: usize,
    /// Bytes of a payload. Default: 4 MiB.
    pub payload: usize,
    /// Bytes of a result that a handler stores for duplicates. Default: 64 KiB.
    pub result: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { id: 1 << 20, text: 1_024, headers: 64 << 10, payload: 4 << 20, result: 64 << 10 }
    }
}

/// Handling of another message under a known key: another payload or another type.
///
/// The most specific setting wins: that of the strategy ([`KeyStrategy::on_conflict`]), then `Config::on_conflict`, then the
/// default of the strategy. A key that identifies a message never fits two messages, so the second is quarantined. Such keys are
/// [`MessageId`], [`CloudEvents`], [`Content`], a header that is no correlation id, and every key that fell back to the message
/// id. A business or correlation key repeats with every republished message, so the first wins.
///
/// [`KeyStrategy::on_conflict`]: crate::key::KeyStrategy::on_conflict
/// [`MessageId`]: crate::key::KeyStrategy::MessageId
/// [`CloudEvents`]: crate::key::KeyStrategy::CloudEvents
/// [`Content`]: crate::key::KeyStrategy::Content
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnConflict {
    /// The second message is quarantined for an operator and does not run.
    #[default]
    Quarantine,
    /// A second message of the same type counts as a duplicate, whatever its payload is. The inbox counts it
    /// (`oncebox_allowed_conflicts_total`) and logs it, and `explain` shows the number for stored messages. A message of another
    /// type is quarantined, because a handler must not get it.
    FirstWins,
    /// Each payload under a key is a message of its own: its fingerprint becomes part of its key. A redelivery with the same
    /// payload is a duplicate. The store does not know of the conflict, so it cannot list it. The process counts the conflicts it
    /// notices (`oncebox_allowed_conflicts_total`) and logs both keys. Keys made under another setting are not recognised: change
    /// it when no old message can be redelivered.
    AcceptAsNew,
}

/// Use of tenants. A tenant is part of the key and of the order: two tenants never meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tenants {
    /// No tenants. The inbox refuses a message with a tenant: it would mix what its source keeps apart.
    #[default]
    Off,
    /// Some messages have a tenant. Those without one are apart from them.
    Optional,
    /// All messages have a tenant. The inbox refuses a message without one.
    Required,
}

/// Handling of an inbox that used other values of `Config::tenants` or
/// `Config::adopted_tenant` on the store before. Keys depend on the tenant, so a message that was accepted
/// before the change may count as new after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnTenantsChange {
    /// The store refuses the process with [`ErrorKind::TenantsChanged`](crate::ErrorKind::TenantsChanged), unless the change keeps
    /// every key: from [`Tenants::Off`] to an adopted tenant.
    #[default]
    Refuse,
    /// The store records the new setting. A redelivery whose tenant changed runs again. Remove this after the change.
    Accept,
}
