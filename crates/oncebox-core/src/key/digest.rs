//! The frozen layout of every digest that Oncebox stores: SHA-256 over a version byte, a purpose byte, and parts of which
//! each is preceded by its length. `docs/keys.md` describes it for other languages; the test vectors are in
//! `docs/vectors`, and the tests that compute them are in `tests/vectors.rs` of `oncebox` and of the PostgreSQL store.

use sha2::{Digest as _, Sha256};

/// The version of the layout. A new layout gets a new version, so that no digest of one equals a digest of the other.
const VERSION: u8 = 1;

/// Purpose of a digest. Digests of different purposes never collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Purpose {
    /// The dedupe key of a message without a tenant: inbox, source, key parts.
    Key = b'k',
    /// The dedupe key of a message with a tenant: inbox, tenant, source, key parts.
    TenantKey = b'K',
    /// The ordering key of a message without a tenant: inbox, source, ordering key.
    Order = b'o',
    /// The ordering key of a message with a tenant: inbox, tenant, source, ordering key.
    TenantOrder = b'O',
    /// The type of a message: the first four bytes of a fingerprint.
    Type = b't',
    /// Type and compared content of a message: the other twelve bytes of a fingerprint.
    Content = b'f',
    /// A key that no other message has: inbox, a random UUID.
    Unique = b'u',
    /// A key for one content under a known key: key, fingerprint.
    Payload = b'p',
    /// An idempotency key: key, handler, generation (four bytes, big-endian), effect.
    Idempotency = b'i',
    /// The operation on one entry within a bulk operation: operation, key, handler.
    EntryOperation = b'e',
    /// The operation on a legacy key within an operation on its handler: operation, handler.
    LegacyOperation = b'l',
    /// The retention windows of an inbox.
    Windows = b'w',
    /// A key of a handler that dedupes in memory.
    Recent = b'r',
}

/// A digest under construction.
pub(crate) struct Digest(Sha256);

impl Digest {
    pub(crate) fn new(purpose: Purpose) -> Self {
        Self(Sha256::new_with_prefix([VERSION, purpose as u8]))
    }

    /// Appends a part: its length as eight bytes, big-endian, then its bytes. No two lists of parts are laid out alike.
    pub(crate) fn part(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }

    /// Returns the first bytes of the digest.
    pub(crate) fn truncated<const N: usize>(self) -> [u8; N] {
        let bytes = self.finish();
        std::array::from_fn(|index| bytes[index])
    }
}

/// Returns the SHA-256 of bytes, without version, purpose or length.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Formats bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|half| char::from(DIGITS[usize::from(half)]))
        .collect()
}

/// Parses hexadecimal digits of either case.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let half = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(half(pair[0])? << 4 | half(pair[1])?).ok()?;
    }
    Some(bytes)
}
