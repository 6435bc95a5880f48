//! Settings of identity: keys, order, duplicates, tenants, and the time for which keys are remembered.

/// Handling of a message without a key: neither the strategy nor its id gives one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// The inbox refuses it with [`ErrorKind::MissingKey`](crate::ErrorKind::MissingKey). A source rejects the delivery.
    #[default]
    Refuse,
    /// The inbox accepts it and compares it with nothing: every delivery runs. Its id stays empty.
    Undeduplicated,
}

/// Handling of a message that was stored or handled before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDuplicate {
    /// Only the result reports it.
    #[default]
    Silent,
    /// The result reports it, and the inbox logs it.
    Log,
    /// `accept` and `process` return an error of kind [`Duplicate`](crate::ErrorKind::Duplicate). Sources acknowledge the delivery
    /// as usual. A busy key or an unknown commit is never reported as a duplicate.
    Refuse,
}

/// Handling of a source that may redeliver a message after the inbox has forgotten it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShortWindow {
    /// The inbox does not receive from it.
    #[default]
    Refuse,
    /// The inbox receives from it and logs a warning: late duplicates run again.
    Warn,
}
