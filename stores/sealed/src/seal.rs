//! Bytes that only a key opens, and only in their own place.
//!
//! A sealed value is `version | length of the key's name | the key's name | salt | ciphertext and tag`. Each has a random salt,
//! from which a key and a nonce of its own are derived: no number of messages wears a key out. What it belongs to (inbox, key
//! of the message, field) is authenticated with it, so that nobody can put it into another row.

use std::fmt;

use oncebox::{InboxName, Key};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::keyring::{Keyring, Master};

const VERSION: u8 = 1;
const SALT: usize = 24;
const KEY: usize = 32;
const NONCE: usize = 12;
const TAG: usize = 16;

/// Why a value cannot be read. None of these holds anything of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It was written with a key that is not on the ring.
    NoKey(Box<str>),
    /// It was changed, or belongs to another place, or its key is another one of the same name.
    Forged,
    /// It is not sealed, and only what is sealed is read.
    Plain,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKey(id) => {
                write!(f, "it is sealed with the key {id:?}, which this process does not have")
            }
            Self::Forged => {
                f.write_str("it does not open: it was changed or moved, or its key has another value here")
            }
            Self::Plain => f.write_str("it is not sealed, and this store reads nothing else"),
        }
    }
}

/// Where a value belongs.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) inbox: &'a InboxName,
    pub(crate) key: &'a Key,
    /// `message`, `result` or `error`, and of which handler.
    pub(crate) field: &'static str,
    pub(crate) handler: &'a str,
}

impl Place<'_> {
    /// What is authenticated with a value. Each part stands behind its length.
    fn aad(&self, id: &str) -> Vec<u8> {
        let parts = [
            b"oncebox sealed 1".as_slice(),
            id.as_bytes(),
            self.inbox.as_str().as_bytes(),
            self.key.as_bytes(),
            self.field.as_bytes(),
            self.handler.as_bytes(),
        ];
        let mut aad = Vec::new();
        for part in parts {
            aad.extend_from_slice(&(part.len() as u64).to_le_bytes());
            aad.extend_from_slice(part);
        }
        aad
    }
}

struct Length;

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        KEY + NONCE
    }
}

/// The key and the nonce of one value.
fn derive(master: &hkdf::Prk, salt: &[u8]) -> Option<(LessSafeKey, Nonce)> {
    let mut bytes = [0; KEY + NONCE];
    master.expand(&[b"oncebox sealed 1", salt], Length).ok()?.fill(&mut bytes).ok()?;
    let (key, nonce) = bytes.split_at(KEY);
    let key = UnboundKey::new(&AES_256_GCM, key).ok()?;
    Some((LessSafeKey::new(key), Nonce::try_assume_unique_for_key(nonce).ok()?))
}

/// Seals a value. Nothing if the system has no randomness, or the value is too large for the cipher.
pub(crate) fn seal(keys: &Keyring, place: Place<'_>, plain: &[u8]) -> Option<Vec<u8>> {
    let Master { id, key } = keys.current();
    let mut salt = [0; SALT];
    SystemRandom::new().fill(&mut salt).ok()?;
    let (key, nonce) = derive(key, &salt)?;
    let mut sealed = Vec::with_capacity(2 + id.len() + SALT + plain.len() + TAG);
    sealed.extend([VERSION, u8::try_from(id.len()).ok()?]);
    sealed.extend_from_slice(id.as_bytes());
    sealed.extend_from_slice(&salt);
    let start = sealed.len();
    sealed.extend_from_slice(plain);
    let tag = key.seal_in_place_separate_tag(nonce, Aad::from(place.aad(id)), &mut sealed[start..]).ok()?;
    sealed.extend_from_slice(tag.as_ref());
    Some(sealed)
}

/// Opens a sealed value.
pub(crate) fn open(keys: &Keyring, place: Place<'_>, sealed: &[u8]) -> Result<Vec<u8>, Unreadable> {
    let (id, salt, text) = parts(sealed).ok_or(Unreadable::Forged)?;
    let master = keys.get(id).ok_or_else(|| Unreadable::NoKey(id.into()))?;
    let (key, nonce) = derive(master, salt).ok_or(Unreadable::Forged)?;
    let mut text = text.to_vec();
    let plain =
        key.open_in_place(nonce, Aad::from(place.aad(id)), &mut text).map_err(|_| Unreadable::Forged)?;
    Ok(plain.to_vec())
}

fn parts(sealed: &[u8]) -> Option<(&str, &[u8], &[u8])> {
    let ([VERSION, length], rest) = sealed.split_first_chunk::<2>()? else { return None };
    let (id, rest) = rest.split_at_checked(usize::from(*length))?;
    let (salt, text) = rest.split_at_checked(SALT)?;
    Some((std::str::from_utf8(id).ok()?, salt, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(id: &str, seed: u8) -> Keyring {
        let key: [u8; 32] = std::array::from_fn(|at| seed.wrapping_add(u8::try_from(at).unwrap()));
        Keyring::new(id, &key, &[7; 32]).unwrap()
    }

    fn inbox() -> InboxName {
        InboxName::new("orders").unwrap()
    }

    // FAULTS S19
    #[test]
    fn a_value_opens_in_its_own_place_alone() {
        let (ring, inbox, other) = (keys("a", 1), inbox(), InboxName::new("other").unwrap());
        let (one, two) = (Key::from_bytes([1; 32]), Key::from_bytes([2; 32]));
        let place = Place { inbox: &inbox, key: &one, field: "message", handler: "" };
        let sealed = seal(&ring, place, b"secret").unwrap();
        assert_eq!(open(&ring, place, &sealed).unwrap(), b"secret");
        for elsewhere in [
            Place { inbox: &other, ..place },
            Place { key: &two, ..place },
            Place { field: "result", ..place },
            Place { handler: "h", ..place },
        ] {
            assert_eq!(open(&ring, elsewhere, &sealed), Err(Unreadable::Forged));
        }
        assert_eq!(open(&keys("a", 2), place, &sealed), Err(Unreadable::Forged), "another key of that name");
        assert_eq!(open(&keys("b", 1), place, &sealed), Err(Unreadable::NoKey("a".into())));
    }

    #[test]
    fn no_byte_can_be_changed() {
        let (ring, inbox, key) = (keys("a", 1), inbox(), Key::from_bytes([1; 32]));
        let place = Place { inbox: &inbox, key: &key, field: "message", handler: "" };
        let sealed = seal(&ring, place, b"secret").unwrap();
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(open(&ring, place, &changed).is_err(), "byte {at}");
            assert!(open(&ring, place, &sealed[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn the_same_value_is_never_sealed_alike() {
        let (ring, inbox, key) = (keys("a", 1), inbox(), Key::from_bytes([1; 32]));
        let place = Place { inbox: &inbox, key: &key, field: "message", handler: "" };
        let all: std::collections::HashSet<_> = (0..100).map(|_| seal(&ring, place, b"x").unwrap()).collect();
        assert_eq!(all.len(), 100);
    }
}
