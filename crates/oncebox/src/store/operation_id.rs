//! The identity of an operation.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::error::{Error, ErrorKind, Result};
use crate::key::{Digest, Key, Purpose};
use crate::name::HandlerKey;

/// The identity of an operation, made by its caller. The same action for the same reason under the same identity is done
/// once, and gets the same answer each time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(Uuid);

impl OperationId {
    /// A new one, never seen before.
    pub fn fresh() -> Self {
        Self(Uuid::now_v7())
    }

    /// From the bytes a store kept.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// The bytes a store keeps.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The operation on one entry within an operation on many: always the same for the same entry, so that it is done once
    /// however often the whole is begun again.
    pub fn of_entry(&self, key: &Key, handler: &HandlerKey) -> Self {
        self.part(Purpose::EntryOperation, &[key.as_bytes(), handler.as_str().as_bytes()])
    }

    /// The operation on a key that a handler had before, within an operation on the handler: always the same, as above.
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
