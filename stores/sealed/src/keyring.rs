//! Keys: one to write with, and any number to read with. Tests: `tests/at_rest.rs`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use oncebox_core::{Error, ErrorKind, Result};
use parking_lot::RwLock;
use ring::{hkdf, hmac};

/// Maximum length of a key's name, in bytes.
const MAX_ID: usize = 64;

/// A key and its name, which is stored with every value sealed with it.
pub(crate) struct Master {
    pub(crate) id: Box<str>,
    pub(crate) key: hkdf::Prk,
}

/// Keys of a sealed store. Back them up: without them no payload can be read.
///
/// To rotate, first give every process the new key with [`reads`](Self::reads). Then make it the current one, and keep
/// the old one for reading until the last message sealed with it is swept.
pub struct Keyring {
    current: Option<Master>,
    others: BTreeMap<Box<str>, hkdf::Prk>,
    fingerprints: hmac::Key,
}

impl Keyring {
    /// Returns a keyring that writes with `key`, whose name is `id`. Both secrets are 32 random bytes.
    ///
    /// `fingerprints` is the secret that identifies repeats: it distinguishes two payloads under one key and reveals neither.
    /// It never changes: with another one, every redelivery of an older message looks like a conflict.
    pub fn new(id: &str, key: &[u8; 32], fingerprints: &[u8; 32]) -> Result<Self> {
        let fingerprints = hmac::Key::new(hmac::HMAC_SHA256, fingerprints);
        Ok(Self { current: Some(master(id, key)?), others: BTreeMap::new(), fingerprints })
    }

    /// Returns a keyring without keys, for an operator who may see messages but not their payloads. It cannot write, and
    /// shows sealed payloads as sealed.
    pub fn locked() -> Self {
        Self {
            current: None,
            others: BTreeMap::new(),
            fingerprints: hmac::Key::new(hmac::HMAC_SHA256, &[0; 32]),
        }
    }

    /// Adds a key to read with.
    pub fn reads(mut self, id: &str, key: &[u8; 32]) -> Result<Self> {
        let Master { id, key } = master(id, key)?;
        if self.get(&id).is_some() {
            let what = format!(
                "two keys are called {id:?}, so a process cannot tell which one to read with; give each its own name"
            );
            return Err(Error::new(ErrorKind::InvalidConfig, what));
        }
        self.others.insert(id, key);
        Ok(self)
    }

    /// Returns the key to write with.
    pub(crate) fn current(&self) -> Option<&Master> {
        self.current.as_ref()
    }

    /// Returns true if the ring has no key.
    pub(crate) fn is_locked(&self) -> bool {
        self.current.is_none()
    }

    /// Returns the key with a name.
    pub(crate) fn get(&self, id: &str) -> Option<&hkdf::Prk> {
        let current = self.current.as_ref().filter(|current| *current.id == *id);
        current.map(|current| &current.key).or_else(|| self.others.get(id))
    }

    pub(crate) fn fingerprints(&self) -> &hmac::Key {
        &self.fingerprints
    }
}

fn master(id: &str, key: &[u8; 32]) -> Result<Master> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if id.is_empty() || id.len() > MAX_ID || !id.chars().all(plain) {
        let what =
            format!("a key cannot be called {id:?}: use letters, digits, `-`, `_` and `.`, {MAX_ID} at most");
        return Err(Error::new(ErrorKind::InvalidConfig, what));
    }
    if key.iter().all(|byte| *byte == key[0]) {
        let what = format!("the key {id:?} is one byte again and again; use 32 random bytes");
        return Err(Error::new(ErrorKind::InvalidConfig, what));
    }
    Ok(Master { id: id.into(), key: hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, key) })
}

/// Shows names only.
impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring")
            .field("current", &self.current.as_ref().map(|current| &current.id))
            .field("others", &self.others.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// A keyring that can be replaced while stores use it. Cheap to clone; clones share one keyring.
#[derive(Clone, Debug)]
pub struct SharedKeyring(Arc<RwLock<Arc<Keyring>>>);

impl SharedKeyring {
    /// Shares a keyring.
    pub fn new(keys: Keyring) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(keys))))
    }

    /// Replaces the keys: new messages are sealed with the new current key. Refuses another secret for fingerprints, because
    /// every redelivery of a stored message would look like a conflict.
    pub fn replace(&self, keys: Keyring) -> Result<()> {
        let mut held = self.0.write();
        let probe = |keys: &Keyring| hmac::sign(keys.fingerprints(), b"oncebox sealed keyring 1");
        if probe(&held).as_ref() != probe(&keys).as_ref() {
            let what = "the secret for fingerprints changed, and redelivered messages would look like conflicts; the former keys stay \
                        in use, put the former secret back";
            return Err(Error::new(ErrorKind::InvalidConfig, what));
        }
        *held = Arc::new(keys);
        Ok(())
    }

    /// Returns the current keys.
    pub(crate) fn keys(&self) -> Arc<Keyring> {
        Arc::clone(&self.0.read())
    }
}

impl From<Keyring> for SharedKeyring {
    fn from(keys: Keyring) -> Self {
        Self::new(keys)
    }
}
