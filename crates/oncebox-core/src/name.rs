//! Names of inboxes and handlers, which keys, tables and labels use. They are checked once.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};

/// Longest inbox name or handler key, in bytes.
pub const MAX_NAME: usize = 200;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $kind:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Validates the name.
            pub fn new(name: impl AsRef<str>) -> Result<Self> {
                let name = name.as_ref();
                check(name).map_err(|why| Error::new($kind, format!("{} {:?} {why}", $what, shorten(name))))?;
                Ok(Self(name.into()))
            }

            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Returns the shared name, for the labels of every run.
            pub fn shared(&self) -> Arc<str> {
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
    /// Name of an inbox. It is part of every key, so two inboxes in one database never share keys.
    InboxName,
    "inbox name",
    ErrorKind::InvalidConfig
);
name!(
    /// Stable, explicit key of a handler. Entries are stored under it, so it stays when the function is renamed.
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
