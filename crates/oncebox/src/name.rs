//! Names that end up in keys, tables and labels: checked once, then trusted.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};

/// The longest inbox name or handler key, in bytes.
pub const MAX_NAME: usize = 200;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $kind:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks and takes the name.
            pub fn new(name: impl AsRef<str>) -> Result<Self> {
                let name = name.as_ref();
                check(name).map_err(|why| Error::new($kind, format!("{} {:?} {why}", $what, shorten(name))))?;
                Ok(Self(name.into()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The name, shared: for labels, which are made for every run.
            pub(crate) fn shared(&self) -> Arc<str> {
                Arc::clone(&self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name!(
    /// The name of an inbox: part of every key, so that two inboxes in one database never silence one another.
    InboxName,
    "inbox name",
    ErrorKind::InvalidConfig
);
name!(
    /// The stable, explicit name of a handler. Entries are stored under it, so it outlives renames of the function.
    HandlerKey,
    "handler key",
    ErrorKind::InvalidHandler
);

fn check(name: &str) -> std::result::Result<(), String> {
    if name.is_empty() {
        return Err("is empty".into());
    }
    if name.len() > MAX_NAME {
        return Err(format!("has {} bytes, the limit is {MAX_NAME}", name.len()));
    }
    match name.chars().find(|c| !(c.is_ascii_alphanumeric() || "-_.:/".contains(*c))) {
        Some(c) => Err(format!("holds {c:?}; letters, digits and - _ . : / are allowed")),
        None => Ok(()),
    }
}

fn shorten(name: &str) -> String {
    name.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_could_be_mistaken() {
        for bad in ["", " ", "a b", "a\0", "é", &"x".repeat(MAX_NAME + 1)] {
            assert_eq!(HandlerKey::new(bad).unwrap_err().kind(), ErrorKind::InvalidHandler, "{bad:?}");
            assert_eq!(InboxName::new(bad).unwrap_err().kind(), ErrorKind::InvalidConfig, "{bad:?}");
        }
        assert_eq!(HandlerKey::new("shop/ship-order.v2").unwrap().as_str(), "shop/ship-order.v2");
    }
}
