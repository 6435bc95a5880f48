//! The settings about who is who: keys, duplicates, tenants, and how long they are remembered.

/// What happens to a message that has no key: neither what the strategy selects nor an id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// It is refused with [`ErrorKind::MissingKey`](crate::ErrorKind::MissingKey); a source rejects the delivery.
    #[default]
    Refuse,
    /// It is taken and compared with nothing: every delivery of it runs. Its id stays empty.
    Undeduplicated,
}

/// What happens when a message was stored or handled before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDuplicate {
    /// The answer says so, and that is all.
    #[default]
    Silent,
    /// The same, with a line in the log.
    Log,
    /// `accept` and `process` answer with an error of kind [`Duplicate`](crate::ErrorKind::Duplicate). Deliveries of a
    /// source are acknowledged as always. What is busy or unknown is never called a duplicate.
    Refuse,
}

/// Whether messages belong to tenants. A tenant is part of the key and of the order: two tenants never meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tenants {
    /// They do not. A message that names a tenant is refused: what was set apart at its source would be mixed up here.
    #[default]
    Off,
    /// Some do; those without one are by themselves.
    Optional,
    /// All do. A message without one is refused.
    Required,
}

/// What happens to a source that may bring a message again after the inbox has forgotten it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShortWindow {
    /// It is not received from.
    #[default]
    Refuse,
    /// It is received from, with a warning: late duplicates run again.
    Warn,
}
