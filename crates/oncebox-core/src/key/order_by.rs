//! Location of the ordering key in a message.

use bytes::Bytes;

use super::{is_blank, json_field};
use crate::message::Message;

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
    pub fn of(&self, message: &Message) -> Option<Bytes> {
        let found = match self {
            Self::Header(name) => message.headers().get(name).cloned(),
            Self::JsonPointer(pointer) => json_field(message, pointer).map(Bytes::from),
        };
        found.filter(|key| !is_blank(key))
    }

    /// Returns the problem and its fix, if it can never find anything.
    pub fn flaw(&self) -> Option<(&'static str, &'static str)> {
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
