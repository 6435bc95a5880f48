//! Payloads encrypted at rest, around any store.
//!
//! [`Sealed`] wraps a store. Payloads, headers, error texts and results of handlers reach the store encrypted (AES-256-GCM,
//! under a key that is used once), and come back as they were. Ids, types, sources, tenants, ordering keys and times stay
//! readable: the store and its operators need them.

mod admin;
mod keyring;
mod message;
mod seal;
mod store;
mod text;
mod transaction;

pub use keyring::Keyring;

use std::sync::Arc;

/// A store in which nobody can read a payload who does not have its key.
///
/// It can do what the store inside can, with the same guarantees.
#[derive(Clone, Debug)]
pub struct Sealed<S> {
    store: S,
    keys: Arc<Keyring>,
    strict: bool,
}

impl<S> Sealed<S> {
    /// Encrypts what goes into a store from now on. What is in it already stays as it is, and is read.
    pub fn new(store: S, keys: Keyring) -> Self {
        Self { store, keys: Arc::new(keys), strict: false }
    }

    /// Refuses what is not encrypted: whoever can write to the database could put it there. For a store that was encrypted
    /// from its beginning, or whose last plain message has left.
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// The store inside, in which payloads are not readable.
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
