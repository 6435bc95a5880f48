//! Secrets, and constant-time comparison with them. Tests: below.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use ring::rand::SecureRandom as _;

use oncebox::{Error, ErrorKind, Result};

/// Secret bytes: no `Debug`, log or error shows them.
#[derive(Clone)]
pub(crate) struct SecretBytes(Box<[u8]>);

impl SecretBytes {
    /// Creates a secret. Refuses an empty one.
    pub(crate) fn new(what: &str, bytes: &[u8]) -> Result<Self> {
        if bytes.is_empty() {
            return Err(refused(what, "is empty: everybody would know it"));
        }
        if secret_strength(bytes) != SecretStrength::Good {
            tracing::warn!(secret = what, advice = "use 32 random characters", "weak secret");
        }
        Ok(Self(bytes.into()))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Minimum bytes of a secret that is not guessed within minutes.
const SHORTEST: usize = 8;
/// Minimum bytes of a secret that is not guessed at all: 128 random bits.
const SHORT: usize = 16;

/// Resistance of a secret to guesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretStrength {
    /// At least 16 characters or decoded bytes.
    Good,
    /// Fewer than 16 characters or decoded bytes.
    Short,
    /// Fewer than 8 characters or decoded bytes.
    Shortest,
    /// One repeated character or byte.
    Repeated,
}

/// Returns the strength of a secret. Behind `whsec_`, which is no part of a secret, decoded bytes count.
pub fn secret_strength(secret: &[u8]) -> SecretStrength {
    let bytes = secret_forms(secret).pop().unwrap_or_default();
    let count = std::str::from_utf8(&bytes).map_or(bytes.len(), |text| text.chars().count());
    if count < SHORTEST {
        SecretStrength::Shortest
    } else if bytes.windows(2).all(|pair| pair[0] == pair[1]) {
        SecretStrength::Repeated
    } else if count < SHORT {
        SecretStrength::Short
    } else {
        SecretStrength::Good
    }
}

/// Returns the forms in which formats use a secret: as it is without `whsec_`, and decoded. The same senders know two
/// secrets with a common form. The length of the last form counts.
pub fn secret_forms(secret: &[u8]) -> Vec<Box<[u8]>> {
    let text = secret.strip_prefix(b"whsec_");
    let bare = text.unwrap_or(secret);
    let decoded = STANDARD.decode(bare).ok().filter(|decoded| !decoded.is_empty());
    let decoded = decoded.map(Vec::into_boxed_slice);
    let bare: Box<[u8]> = bare.into();
    match (text, decoded) {
        (Some(_), Some(decoded)) => vec![bare, decoded],
        (None, Some(decoded)) => vec![decoded, bare],
        (_, None) => vec![bare],
    }
}

/// Returns an error about a secret without showing it.
pub(crate) fn refused(what: &str, why: &str) -> Error {
    Error::new(ErrorKind::InvalidConfig, format!("a {what} {why}"))
}

/// Keys of HMAC-SHA256; several during a rotation.
#[derive(Clone)]
pub(crate) struct Macs {
    keys: Vec<hmac::Key>,
    blind: Blind,
}

impl Macs {
    /// At least one.
    pub(crate) fn new(what: &str, secrets: &[SecretBytes]) -> Result<Self> {
        if secrets.is_empty() {
            return Err(refused(what, "is missing: no request could be verified"));
        }
        let keys = secrets.iter().map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret.bytes())).collect();
        Ok(Self { keys, blind: Blind::new()? })
    }

    /// Returns true if one of the tags matches the parts under one of the keys. The work depends only on the number of
    /// keys and tags.
    pub(crate) fn verify(&self, parts: &[&[u8]], tags: &[Vec<u8>]) -> bool {
        let mut found = false;
        for key in &self.keys {
            let mut context = hmac::Context::with_key(key);
            for part in parts {
                #[cfg(test)]
                tests::DIGESTED.set(tests::DIGESTED.get() + part.len());
                context.update(part);
            }
            let expected = context.sign();
            for tag in tags {
                found |= self.blind.equal(expected.as_ref(), tag);
            }
        }
        found
    }
}

impl fmt::Debug for Macs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secret(s)", self.keys.len())
    }
}

/// Compares the digests of both sides under a key of this process. So the time does not reveal how many bytes match.
#[derive(Clone)]
pub(crate) struct Blind(hmac::Key);

impl Blind {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &random()?)))
    }

    pub(crate) fn equal(&self, one: &[u8], other: &[u8]) -> bool {
        hmac::verify(&self.0, one, hmac::sign(&self.0, other).as_ref()).is_ok()
    }
}

impl fmt::Debug for Blind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blind")
    }
}

fn random() -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    let filled = ring::rand::SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Error::new(ErrorKind::Unavailable, "the system gives no random numbers"))?;
    Ok(bytes)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    thread_local! {
        /// Bytes that this thread has digested for signatures.
        pub(crate) static DIGESTED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    #[test]
    fn equal_is_equal_and_nothing_else() {
        let blind = Blind::new().unwrap();
        assert!(blind.equal(b"abc", b"abc"));
        assert!(blind.equal(b"", b""));
        for (one, other) in [("abc", "abd"), ("abc", "ab"), ("", "a")] {
            assert!(!blind.equal(one.as_bytes(), other.as_bytes()));
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let secret = SecretBytes::new("secret", b"hidden").unwrap();
        let macs = Macs::new("secret", std::slice::from_ref(&secret)).unwrap();
        assert_eq!(format!("{secret:?} {macs:?}"), "*** 1 secret(s)");
        assert!(SecretBytes::new("secret", b"").is_err());
    }

    // A prefix that all know makes no secret stronger.
    #[test]
    fn decoded_bytes_count() {
        use SecretStrength::{Good, Repeated, Short, Shortest};
        for (secret, strength) in [
            ("x", Shortest),
            ("1234567", Shortest),
            ("\u{e4}\u{f6}\u{fc}\u{e4}\u{f6}\u{fc}\u{e4}", Shortest),
            ("aaaaaaaaaaaaaaaaaaaaaaaa", Repeated),
            ("tr0ub4dor", Short),
            ("whsec_eA==", Shortest),
            ("whsec_c2VjcmV0LXNlY3JldA==", Short),
            ("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", Repeated),
            ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", Good),
            ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", Good),
        ] {
            assert_eq!(secret_strength(secret.as_bytes()), strength, "{secret}");
        }
    }
}
