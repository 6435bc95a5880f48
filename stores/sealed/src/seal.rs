//! Seals values so that only a key opens them, and only in their own place. Tests: `tests/attacks.rs`.
//!
//! A sealed value is `version | length of the key's name | the key's name | salt | ciphertext and tag`. Each value has
//! a random salt, from which its own key and nonce are derived, so no number of messages exhausts a key. The place of
//! the value is authenticated with it: inbox, key of the message, field, handler. Version 2 also authenticates the
//! readable parts of a message: type, id, source, tenant, ordering key and time (ADR 25). Version 1 did not; the store
//! reads it, but never writes it.

use std::fmt;

use oncebox_core::{Error, ErrorKind, InboxName, Key, Message, Result};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::keyring::{Keyring, Master};

/// Layout of a sealed value, and the set of authenticated fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SealVersion {
    One = 1,
    Two = 2,
}

impl SealVersion {
    fn of(byte: u8) -> Option<Self> {
        [Self::One, Self::Two].into_iter().find(|version| *version as u8 == byte)
    }

    /// Separates the versions: a value of one never opens as another.
    const fn context(self) -> &'static [u8] {
        match self {
            Self::One => b"oncebox sealed 1",
            Self::Two => b"oncebox sealed 2",
        }
    }
}

const SALT: usize = 24;
const KEY: usize = 32;
const NONCE: usize = 12;
const TAG: usize = 16;

/// Reason that a value cannot be read. Holds no part of the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// The value was sealed with a key that is not on the ring.
    NoKey(Box<str>),
    /// The value or its message was changed, the value belongs to another place, or its key has the same name
    /// but another secret.
    Forged,
    /// The value is not sealed, and the store reads only sealed values.
    Plain,
    /// The value is sealed in version 1, and the store reads only version 2.
    Unbound,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKey(id) => {
                write!(f, "it is sealed with the key {id:?}, which this process does not have")
            }
            Self::Forged => f.write_str(
                "it does not open: it, its type, id, source, tenant, ordering key or time was changed, it was moved, or its key has \
                 another value here",
            ),
            Self::Plain => f.write_str("it is not sealed, and this store reads only sealed messages"),
            Self::Unbound => f.write_str("it is sealed in version 1, and this store reads only version 2"),
        }
    }
}

/// Place that a value belongs to.
#[derive(Clone, Copy)]
pub(crate) struct SealedField<'a> {
    pub(crate) inbox: &'a InboxName,
    pub(crate) key: &'a Key,
    /// `message`, `result` or `error`. `handler` is the entry's handler.
    pub(crate) field: &'static str,
    pub(crate) handler: &'a str,
    /// The message of a sealed payload. Sealing also authenticates the parts that the store keeps readable.
    pub(crate) message: Option<&'a Message>,
}

impl SealedField<'_> {
    /// Returns the additional authenticated data of a value. The length of each part comes before it.
    fn aad(&self, version: SealVersion, id: &str) -> Vec<u8> {
        let mut aad = Vec::with_capacity(256);
        let mut part = |bytes: &[u8]| {
            aad.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            aad.extend_from_slice(bytes);
        };
        part(version.context());
        part(id.as_bytes());
        part(self.inbox.as_str().as_bytes());
        part(self.key.as_bytes());
        part(self.field.as_bytes());
        part(self.handler.as_bytes());
        if let (SealVersion::Two, Some(message)) = (version, self.message) {
            part(message.message_type().as_bytes());
            part(message.id());
            part(message.source().as_bytes());
            let time = message.time().map(|time| time.as_millis().to_le_bytes());
            // A flag before each part distinguishes a missing part from an empty one.
            for optional in
                [message.tenant().map(str::as_bytes), message.ordering_key(), time.as_ref().map(|t| &t[..])]
            {
                part(&[u8::from(optional.is_some())]);
                part(optional.unwrap_or_default());
            }
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

/// Derives the key and the nonce of one value.
fn derive(version: SealVersion, master: &hkdf::Prk, salt: &[u8]) -> Option<(LessSafeKey, Nonce)> {
    let mut bytes = [0; KEY + NONCE];
    master.expand(&[version.context(), salt], Length).ok()?.fill(&mut bytes).ok()?;
    let (key, nonce) = bytes.split_at(KEY);
    let key = UnboundKey::new(&AES_256_GCM, key).ok()?;
    Some((LessSafeKey::new(key), Nonce::try_assume_unique_for_key(nonce).ok()?))
}

/// Seals a value.
pub(crate) fn seal(keys: &Keyring, place: SealedField<'_>, plain: &[u8]) -> Result<Vec<u8>> {
    let Some(master) = keys.current() else {
        let what = "this keyring has no key, so nothing was sealed and nothing was stored; give it one to write with";
        return Err(Error::new(ErrorKind::InvalidConfig, what));
    };
    sealed(master, SealVersion::Two, place, plain).ok_or_else(|| {
        let what = "a message could not be encrypted, so it was not stored: the system gives no random bytes";
        Error::new(ErrorKind::Unavailable, what)
    })
}

/// Seals a value. Returns `None` if the system has no randomness, or the value is too large for the cipher.
fn sealed(master: &Master, version: SealVersion, place: SealedField<'_>, plain: &[u8]) -> Option<Vec<u8>> {
    let Master { id, key } = master;
    let mut salt = [0; SALT];
    SystemRandom::new().fill(&mut salt).ok()?;
    let (key, nonce) = derive(version, key, &salt)?;
    let mut sealed = Vec::with_capacity(2 + id.len() + SALT + plain.len() + TAG);
    sealed.extend([version as u8, u8::try_from(id.len()).ok()?]);
    sealed.extend_from_slice(id.as_bytes());
    sealed.extend_from_slice(&salt);
    let start = sealed.len();
    sealed.extend_from_slice(plain);
    let aad = Aad::from(place.aad(version, id));
    let tag = key.seal_in_place_separate_tag(nonce, aad, &mut sealed[start..]).ok()?;
    sealed.extend_from_slice(tag.as_ref());
    Some(sealed)
}

/// Opens a sealed value of a version that is at least `oldest`.
pub(crate) fn open(
    keys: &Keyring,
    oldest: SealVersion,
    place: SealedField<'_>,
    sealed: &[u8],
) -> Result<Vec<u8>, Unreadable> {
    let (version, id, salt, text) = parts(sealed).ok_or(Unreadable::Forged)?;
    let master = keys.get(id).ok_or_else(|| Unreadable::NoKey(id.into()))?;
    let (key, nonce) = derive(version, master, salt).ok_or(Unreadable::Forged)?;
    let mut text = text.to_vec();
    let aad = Aad::from(place.aad(version, id));
    let plain = key.open_in_place(nonce, aad, &mut text).map_err(|_| Unreadable::Forged)?;
    if (version as u8) < oldest as u8 {
        return Err(Unreadable::Unbound);
    }
    Ok(plain.to_vec())
}

fn parts(sealed: &[u8]) -> Option<(SealVersion, &str, &[u8], &[u8])> {
    let ([version, length], rest) = sealed.split_first_chunk::<2>()?;
    let version = SealVersion::of(*version)?;
    let (id, rest) = rest.split_at_checked(usize::from(*length))?;
    let (salt, text) = rest.split_at_checked(SALT)?;
    Some((version, std::str::from_utf8(id).ok()?, salt, text))
}

#[cfg(test)]
mod tests {
    use oncebox_core::time::Timestamp;

    use super::*;

    fn keys(id: &str, seed: u8) -> Keyring {
        let key: [u8; 32] = std::array::from_fn(|at| seed.wrapping_add(u8::try_from(at).unwrap()));
        Keyring::new(id, &key, &[7; 32]).unwrap()
    }

    fn inbox() -> InboxName {
        InboxName::new("orders").unwrap()
    }

    fn open(keys: &Keyring, place: SealedField<'_>, sealed: &[u8]) -> Result<Vec<u8>, Unreadable> {
        super::open(keys, SealVersion::One, place, sealed)
    }

    // FAULTS S19
    #[test]
    fn a_value_opens_in_its_own_place_alone() {
        let (ring, inbox, other) = (keys("a", 1), inbox(), InboxName::new("other").unwrap());
        let (one, two) = (Key::from_bytes([1; 32]), Key::from_bytes([2; 32]));
        let message = Message::new("1", "t", "");
        let place =
            SealedField { inbox: &inbox, key: &one, field: "message", handler: "", message: Some(&message) };
        let sealed = seal(&ring, place, b"secret").unwrap();
        assert_eq!(open(&ring, place, &sealed).unwrap(), b"secret");
        for elsewhere in [
            SealedField { inbox: &other, ..place },
            SealedField { key: &two, ..place },
            SealedField { field: "result", ..place },
            SealedField { handler: "h", ..place },
            SealedField { message: None, ..place },
        ] {
            assert_eq!(open(&ring, elsewhere, &sealed), Err(Unreadable::Forged));
        }
        assert_eq!(open(&keys("a", 2), place, &sealed), Err(Unreadable::Forged), "another key of that name");
        assert_eq!(open(&keys("b", 1), place, &sealed), Err(Unreadable::NoKey("a".into())));
        assert_eq!(open(&Keyring::locked(), place, &sealed), Err(Unreadable::NoKey("a".into())));
        assert!(seal(&Keyring::locked(), place, b"secret").is_err());
    }

    // FAULTS S19: the readable fields belong to the sealed payload, and no part can be moved into another.
    #[test]
    fn a_payload_opens_with_its_own_metadata_alone() {
        let (ring, inbox, key) = (keys("a", 1), inbox(), Key::from_bytes([1; 32]));
        let time = Timestamp::from_millis(5);
        let bare = || Message::new("id", "type", "").with_source("source");
        let full = || bare().with_tenant("tenant").with_ordering_key("order").with_time(time);
        let all = [
            bare(),
            full(),
            Message::new("di", "type", "").with_source("source"),
            Message::new("id", "types", "").with_source("source"),
            Message::new("id", "type", "").with_source("sources"),
            Message::new("id", "types", "").with_source("ource"),
            bare().with_tenant(""),
            bare().with_tenant("tenant"),
            bare().with_ordering_key(""),
            bare().with_ordering_key("tenant"),
            bare().with_time(Timestamp::from_millis(0)),
            bare().with_time(time),
            full().with_tenant("tenan").with_ordering_key("torder"),
            full().with_time(Timestamp::from_millis(6)),
            full().with_time(Timestamp::from_millis(-5)),
        ];
        for (at, own) in all.iter().enumerate() {
            let place =
                SealedField { inbox: &inbox, key: &key, field: "message", handler: "", message: Some(own) };
            let sealed = seal(&ring, place, b"secret").unwrap();
            for (other, message) in all.iter().enumerate() {
                let opened = open(&ring, SealedField { message: Some(message), ..place }, &sealed);
                assert_eq!(opened.is_ok(), at == other, "sealed with {own:?}, opened with {message:?}");
            }
        }
    }

    #[test]
    fn no_byte_can_be_changed() {
        let (ring, inbox, key) = (keys("a", 1), inbox(), Key::from_bytes([1; 32]));
        let place = SealedField { inbox: &inbox, key: &key, field: "message", handler: "", message: None };
        for version in [SealVersion::One, SealVersion::Two] {
            let sealed = sealed(ring.current().unwrap(), version, place, b"secret").unwrap();
            assert_eq!(open(&ring, place, &sealed).unwrap(), b"secret");
            for at in 0..sealed.len() {
                // All versions, and one unknown version.
                for flip in if at == 0 { &[1, 2, 3, 4][..] } else { &[1] } {
                    let mut changed = sealed.clone();
                    changed[at] ^= flip;
                    assert!(open(&ring, place, &changed).is_err(), "byte {at}");
                }
                assert!(open(&ring, place, &sealed[..at]).is_err(), "cut at {at}");
            }
        }
    }

    #[test]
    fn version_1_is_read_until_it_is_refused() {
        let (ring, inbox, key) = (keys("a", 1), inbox(), Key::from_bytes([1; 32]));
        let place = SealedField { inbox: &inbox, key: &key, field: "message", handler: "", message: None };
        let old = sealed(ring.current().unwrap(), SealVersion::One, place, b"secret").unwrap();
        assert_eq!(super::open(&ring, SealVersion::One, place, &old).unwrap(), b"secret");
        assert_eq!(super::open(&ring, SealVersion::Two, place, &old), Err(Unreadable::Unbound));
        assert_eq!(seal(&ring, place, b"secret").unwrap()[0], 2, "never written again");
    }

    #[test]
    fn the_same_value_is_never_sealed_alike() {
        let (ring, inbox, key) = (keys("a", 1), inbox(), Key::from_bytes([1; 32]));
        let place = SealedField { inbox: &inbox, key: &key, field: "message", handler: "", message: None };
        let all: std::collections::HashSet<_> = (0..100).map(|_| seal(&ring, place, b"x").unwrap()).collect();
        assert_eq!(all.len(), 100);
    }
}
