//! Identity of an operation.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::error::{Error, ErrorKind, Result};
use crate::key::{Digest, Key, Purpose};
use crate::name::HandlerKey;

/// Identity of an operation, made by its caller. The store does the same action for the same reason once under one
/// identity, and returns the same result each time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(Uuid);

impl OperationId {
    /// Returns a new, unique identity.
    pub fn fresh() -> Self {
        Self(Uuid::now_v7())
    }

    /// Reads the bytes that a store kept.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// Returns the bytes for a store to keep.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// Returns the identity of the operation on one entry, as a part of an operation on many. It is the same for the same
    /// entry, so restarting the whole operation repeats no entry.
    pub fn of_entry(&self, key: &Key, handler: &HandlerKey) -> Self {
        self.part(Purpose::EntryOperation, &[key.as_bytes(), handler.as_str().as_bytes()])
    }

    /// Returns the identity of the operation on a former key of a handler, as a part of an operation on the handler.
    pub fn of_legacy(&self, handler: &HandlerKey) -> Self {
        self.part(Purpose::LegacyOperation, &[handler.as_str().as_bytes()])
    }

    fn part(&self, purpose: Purpose, parts: &[&[u8]]) -> Self {
        let mut digest = Digest::new(purpose);
        digest.part(self.as_bytes());
        for part in parts {
            digest.part(part);
        }
        Self(uuid::Builder::from_custom_bytes(digest.truncated()).into_uuid())
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OperationId({})", self.0)
    }
}

impl FromStr for OperationId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let what = || format!("{text:?} is no operation id; use a UUID");
        Uuid::parse_str(text).map(Self).map_err(|_| Error::new(ErrorKind::InvalidConfig, what()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_one_operation_have_identities_of_their_own() {
        let (id, other) = (OperationId::fresh(), OperationId::fresh());
        let (key, h) = (Key::from_bytes([1; 32]), HandlerKey::new("h").unwrap());
        assert_eq!(id.of_entry(&key, &h), id.of_entry(&key, &h));
        let ids = [
            id.of_entry(&key, &h),
            other.of_entry(&key, &h),
            id.of_entry(&Key::from_bytes([2; 32]), &h),
            id.of_entry(&key, &HandlerKey::new("g").unwrap()),
            id.of_legacy(&h),
            other.of_legacy(&h),
        ];
        assert!(ids.iter().enumerate().all(|(at, id)| !ids[..at].contains(id)));
        assert_eq!(id.to_string().parse::<OperationId>().unwrap(), id);
    }
}
