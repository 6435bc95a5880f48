//! Payloads encrypted at rest, around any store.
//!
//! [`Sealed`] wraps a store. It encrypts payloads, headers, error texts and results of handlers (AES-256-GCM, with a
//! single-use key), and decrypts them when they are read. Ids, types, sources, tenants, ordering keys and times stay
//! readable, because the store and its operators need them. They are authenticated with the payload: if one of them was
//! changed in the database, the message is not delivered. Tests: `tests/`.

mod admin;
mod keyring;
mod message;
mod seal;
mod store;
mod text;
mod transaction;

pub use keyring::{Keyring, SharedKeyring};

use seal::SealVersion;

/// A store whose payloads cannot be read without a key.
///
/// It has the features and guarantees of the store inside. It delivers sealed messages only, unless
/// [`allow_plaintext`](Self::allow_plaintext) permits others.
#[derive(Clone, Debug)]
pub struct Sealed<S> {
    store: S,
    keys: SharedKeyring,
    plaintext: bool,
    oldest: SealVersion,
}

impl<S> Sealed<S> {
    /// Wraps a store: encrypts its messages, and delivers only encrypted ones. Takes a [`Keyring`], or a [`SharedKeyring`]
    /// whose keys can be replaced later.
    pub fn new(store: S, keys: impl Into<SharedKeyring>) -> Self {
        Self { store, keys: keys.into(), plaintext: false, oldest: SealVersion::One }
    }

    /// Also delivers unencrypted messages: for a store with older messages, until the last of them is swept. Until then,
    /// a user with write access to the database can add messages. Default: refused.
    pub fn allow_plaintext(mut self) -> Self {
        self.plaintext = true;
        self
    }

    /// Refuses messages sealed in version 1, which did not authenticate type, id, source, tenant, ordering key and time. For
    /// a store whose last message of that version was swept. Default: version 1 is read.
    pub fn require_version_2(mut self) -> Self {
        self.oldest = SealVersion::Two;
        self
    }

    /// Returns the store inside, whose payloads are unreadable.
    pub fn inner(&self) -> &S {
        &self.store
    }
}

/// The program of the guide, so that it compiles and runs.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/guides/encryption.md")]
    mod encryption {}
}
