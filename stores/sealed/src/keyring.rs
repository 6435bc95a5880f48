//! The keys: one that is written with, and any number that are read with.

use std::collections::BTreeMap;
use std::fmt;

use oncebox::{Error, ErrorKind, Result};
use ring::{hkdf, hmac};

/// The longest name of a key, in bytes.
const MAX_ID: usize = 64;

/// A key and how it is called. Its name is stored with everything that is written with it.
pub(crate) struct Master {
    pub(crate) id: Box<str>,
    pub(crate) key: hkdf::Prk,
}

/// The keys of a sealed store. They are yours to keep: without them nothing can be read.
///
/// To rotate, give every process the new key with [`reads`](Self::reads) first; then make it the current one, and keep the
/// old one for reading until nothing written with it is left.
pub struct Keyring {
    current: Master,
    others: BTreeMap<Box<str>, hkdf::Prk>,
    fingerprints: hmac::Key,
}

impl Keyring {
    /// A keyring that writes with `key`, which is called `id`. Both secrets are 32 random bytes.
    ///
    /// `fingerprints` is what repeats are recognised with: it tells two payloads under one key apart without telling anything
    /// about them. It never changes; with another one, every redelivery of an older message looks like a conflict.
    pub fn new(id: &str, key: &[u8; 32], fingerprints: &[u8; 32]) -> Result<Self> {
        let fingerprints = hmac::Key::new(hmac::HMAC_SHA256, fingerprints);
        Ok(Self { current: master(id, key)?, others: BTreeMap::new(), fingerprints })
    }

    /// Reads what was written with another key, too.
    pub fn reads(mut self, id: &str, key: &[u8; 32]) -> Result<Self> {
        let Master { id, key } = master(id, key)?;
        if *id == *self.current.id || self.others.contains_key(&id) {
            let what = format!("two keys are called {id:?}: nobody could tell which one to read with");
            return Err(Error::new(ErrorKind::InvalidConfig, what));
        }
        self.others.insert(id, key);
        Ok(self)
    }

    pub(crate) fn current(&self) -> &Master {
        &self.current
    }

    /// The key with a name.
    pub(crate) fn get(&self, id: &str) -> Option<&hkdf::Prk> {
        if *id == *self.current.id { Some(&self.current.key) } else { self.others.get(id) }
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

/// Names alone.
impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring")
            .field("current", &self.current.id)
            .field("others", &self.others.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
