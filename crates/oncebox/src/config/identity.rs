//! The settings about who is who: keys, order, duplicates, tenants, and how long they are remembered.

use bytes::Bytes;

use crate::key::{is_blank, json_field};
use crate::message::Message;

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

/// What happens if an inbox has worked on the store with another [`tenants`](crate::Config::tenants) or
/// [`adopted_tenant`](crate::Config::adopted_tenant) before. Keys depend on the tenant, so a message that was accepted before
/// the change and comes again after it may be new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnTenantsChange {
    /// The store refuses the process with [`ErrorKind::TenantsChanged`](crate::ErrorKind::TenantsChanged), unless the change
    /// keeps every key: from [`Tenants::Off`] to an adopted tenant.
    #[default]
    Refuse,
    /// The store records the new setting. A redelivery whose tenant changed runs again. Remove this when the change is made.
    Accept,
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

/// Where the ordering key of a message is, if its source did not name it. A message that has nothing there, or only
/// white space, is in no order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OrderBy {
    /// In a header.
    Header(Box<str>),
    /// In a field of its JSON payload, by JSON pointer (`/customer`): a text, a whole number or a truth value.
    JsonPointer(Box<str>),
}

impl OrderBy {
    /// The ordering key of a message.
    pub(crate) fn of(&self, message: &Message) -> Option<Bytes> {
        let found = match self {
            Self::Header(name) => message.headers().get(name).cloned(),
            Self::JsonPointer(pointer) => json_field(message, pointer).map(Bytes::from),
        };
        found.filter(|key| !is_blank(key))
    }

    /// What is wrong with it, if it can never find anything, and what to do instead.
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
