//! Settings of identity: keys, order, duplicates, tenants, and the time for which keys are remembered.

use bytes::Bytes;

use crate::key::{is_blank, json_field};
use crate::message::Message;

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

/// Handling of an inbox that used other values of [`tenants`](crate::Config::tenants) or
/// [`adopted_tenant`](crate::Config::adopted_tenant) on the store before. Keys depend on the tenant, so a message that was accepted
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

/// Location of a message's ordering key, if its source does not name one. A message without a value, or with a blank one, has no
/// order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OrderBy {
    /// In a header.
    Header(Box<str>),
    /// In a field of its JSON payload, by JSON pointer (`/customer`): a string, an integer or a boolean.
    JsonPointer(Box<str>),
}

impl OrderBy {
    /// Returns the ordering key of a message.
    pub(crate) fn of(&self, message: &Message) -> Option<Bytes> {
        let found = match self {
            Self::Header(name) => message.headers().get(name).cloned(),
            Self::JsonPointer(pointer) => json_field(message, pointer).map(Bytes::from),
        };
        found.filter(|key| !is_blank(key))
    }

    /// Returns the problem and its fix, if it can never find anything.
    pub(super) fn flaw(&self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Header(name) if is_blank(name.as_bytes()) => {
                Some(("no header has a blank name", "name the header that holds the ordering key"))
            }
            Self::JsonPointer(pointer) if !pointer.starts_with('/') => {
                Some(("a JSON pointer to a field starts with `/`", "write it like `/customer`"))
            }
            _ => None,
        }
    }
}
