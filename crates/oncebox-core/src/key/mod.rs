//! Dedupe keys, fingerprints and order keys of messages. Tests: below, and `tests/keys.rs` of `oncebox`.

mod context;
mod digest;
mod fields;
mod order_by;
mod policy;
mod strategy;

pub use context::KeyContext;
pub(crate) use digest::{Digest, Purpose};
pub use order_by::OrderBy;
pub use strategy::{KeyStrategy, Naming};

use std::fmt;

use crate::config::OnConflict;
use crate::message::Message;
use crate::name::InboxName;

use digest::{from_hex, hex, sha256};
use fields::json_field;

/// Returns true if a value is empty or white space. It counts as missing: it identifies no message, and every message without an id
/// has the same one.
pub fn is_blank(value: &[u8]) -> bool {
    std::str::from_utf8(value).is_ok_and(|text| text.trim().is_empty())
}

/// Returns the digest of a key that a handler remembers in memory alone, within a scope.
pub fn recent_digest(scope: &str, key: &[u8]) -> [u8; 32] {
    let mut digest = Digest::new(Purpose::Recent);
    digest.part(scope.as_bytes());
    digest.part(key);
    digest.finish()
}

/// Dedupe key: a digest of the length-prefixed inbox name, tenant if there is one, source and key parts.
///
/// It is a digest because ids are any bytes of any length: no collation folds `ABC` and `abc`, no column truncates, no separator
/// makes `a`+`bc` equal to `ab`+`c`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key([u8; 32]);

impl Key {
    /// Returns the key of `parts` within an inbox and source, for messages without a tenant.
    pub fn new<P: AsRef<[u8]>>(inbox: &InboxName, source: &str, parts: impl IntoIterator<Item = P>) -> Self {
        Self::within(inbox, None, source, parts)
    }

    /// Returns the key of `parts` within an inbox, tenant and source. Two tenants never share one.
    pub fn within<P: AsRef<[u8]>>(
        inbox: &InboxName,
        tenant: Option<&str>,
        source: &str,
        parts: impl IntoIterator<Item = P>,
    ) -> Self {
        let mut digest = scoped([Purpose::Key, Purpose::TenantKey], inbox, tenant);
        digest.part(source.as_bytes());
        for part in parts {
            digest.part(part.as_ref());
        }
        Self(digest.finish())
    }

    /// Returns a unique key, for a message that is compared with no other.
    pub fn unique(inbox: &InboxName) -> Self {
        let mut digest = Digest::new(Purpose::Unique);
        digest.part(inbox.as_str().as_bytes());
        digest.part(uuid::Uuid::now_v7().as_bytes());
        Self(digest.finish())
    }

    /// Returns the key of one payload under this key.
    pub fn of_payload(&self, fingerprint: &Fingerprint) -> Self {
        let mut digest = Digest::new(Purpose::Payload);
        digest.part(&self.0);
        digest.part(fingerprint.as_bytes());
        Self(digest.finish())
    }

    /// Reads the bytes that a store kept.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes for a store to keep.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Parses the 64 hexadecimal digits that [`Display`](fmt::Display) prints.
    pub fn parse(text: &str) -> Option<Self> {
        from_hex(text).map(Self)
    }

    /// Returns a stable idempotency key for an effect outside the database: the same for every attempt of `scope`, different for
    /// each `effect`.
    pub fn idempotency_key(&self, handler: &str, generation: u32, effect: &str) -> String {
        let mut digest = Digest::new(Purpose::Idempotency);
        digest.part(&self.0);
        digest.part(handler.as_bytes());
        digest.part(&generation.to_be_bytes());
        digest.part(effect.as_bytes());
        hex(&digest.truncated::<20>())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// Key of a message at its destination, and the handling of a conflict under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageKey {
    /// Its dedupe key.
    pub key: Key,
    /// Handling of another message under the key.
    pub on_conflict: OnConflict,
}

/// Digest that distinguishes messages under one key: of type and payload, or of the [replacement](Message::compared_by).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// Fingerprint of erased content. No message has it.
    pub const ERASED: Self = Self([0; 16]);

    /// Returns true if the content was erased. Then every message under the key is a duplicate.
    pub fn is_erased(&self) -> bool {
        *self == Self::ERASED
    }

    /// Number of bytes for the type alone.
    const TYPE: usize = 4;

    /// Returns the fingerprint of a message. Four bytes are of the type, the others of type and payload together.
    pub fn of(message: &Message) -> Self {
        let mut of_type = Digest::new(Purpose::Type);
        of_type.part(message.message_type().as_bytes());
        let mut whole = Digest::new(Purpose::Content);
        whole.part(message.message_type().as_bytes());
        whole.part(message.compared());
        let mut bytes = whole.truncated();
        bytes[..Self::TYPE].copy_from_slice(&of_type.truncated::<{ Self::TYPE }>());
        Self(bytes)
    }

    /// Returns true if both belong to messages of one type.
    pub fn is_same_type(&self, other: &Self) -> bool {
        self.0[..Self::TYPE] == other.0[..Self::TYPE]
    }

    /// Replaces the bytes of type and payload. For a store that hides payloads from readers who can guess them; the type stays
    /// readable.
    #[must_use]
    pub fn with_secret(mut self, secret: &[u8; 16]) -> Self {
        self.0[Self::TYPE..].copy_from_slice(&secret[Self::TYPE..]);
        self
    }

    /// Reads the bytes that a store kept.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes for a store to keep.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// Identity of an ordering key within an inbox, tenant and source, as stores keep it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OrderKey([u8; 16]);

impl OrderKey {
    /// Returns the order key of a message, if it has an ordering key.
    pub fn of(inbox: &InboxName, message: &Message) -> Option<Self> {
        let key = message.ordering_key()?;
        let mut digest = scoped([Purpose::Order, Purpose::TenantOrder], inbox, message.tenant());
        digest.part(message.source().as_bytes());
        digest.part(key);
        Some(Self(digest.truncated()))
    }

    /// Reads the bytes that a store kept.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes for a store to keep.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// Starts a digest with the inbox, and with the tenant if there is one. Each case has its own purpose, so a tenant never counts as
/// a source.
fn scoped([plain, tenanted]: [Purpose; 2], inbox: &InboxName, tenant: Option<&str>) -> Digest {
    let mut digest = Digest::new(if tenant.is_some() { tenanted } else { plain });
    digest.part(inbox.as_str().as_bytes());
    if let Some(tenant) = tenant {
        digest.part(tenant.as_bytes());
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn inbox() -> InboxName {
        InboxName::new("orders").unwrap()
    }

    // FAULTS G6, A12: distinct parts stay distinct, whatever their bytes are.
    proptest! {
        #[test]
        fn distinct_parts_have_distinct_keys(
            a in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..4), 0..4),
            b in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..4), 0..4),
        ) {
            prop_assert_eq!(Key::new(&inbox(), "s", &a) == Key::new(&inbox(), "s", &b), a == b);
        }
    }

    #[test]
    fn case_blanks_and_nul_are_not_folded() {
        let ids: [&[u8]; 6] = [b"ABC", b"abc", b"ABC ", "AB\u{c7}".as_bytes(), b"ABC\0", b"\xff"];
        let keys: std::collections::HashSet<_> = ids.iter().map(|id| Key::new(&inbox(), "s", [id])).collect();
        assert_eq!(keys.len(), ids.len());
    }

    #[test]
    fn source_and_inbox_are_part_of_the_key() {
        let other = InboxName::new("other").unwrap();
        assert_ne!(Key::new(&inbox(), "a", ["1"]), Key::new(&inbox(), "b", ["1"]));
        assert_ne!(Key::new(&inbox(), "a", ["1"]), Key::new(&other, "a", ["1"]));
    }

    // FAULTS G5, S4, S20: a tenant is neither another tenant, nor none, nor a source.
    #[test]
    fn tenants_have_keys_of_their_own() {
        let key = |tenant, source, id: &str| Key::within(&inbox(), tenant, source, [id]);
        let keys = [
            key(None, "s", "1"),
            key(Some("a"), "s", "1"),
            key(Some("b"), "s", "1"),
            key(Some("s"), "a", "1"),
            key(Some("as"), "", "1"),
            key(None, "as", "1"),
        ];
        let distinct: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert_eq!(keys[0], Key::new(&inbox(), "s", ["1"]));
        let order = |message: Message| OrderKey::of(&inbox(), &message.with_ordering_key("k"));
        let plain = || Message::new("1", "t", "");
        assert_ne!(order(plain().with_tenant("a")), order(plain().with_tenant("b")));
        assert_ne!(order(plain().with_tenant("a")), order(plain()));
        assert_ne!(order(plain().with_tenant("a")), order(plain().with_source("a")));
    }

    #[test]
    fn white_space_is_blank_and_everything_else_is_not() {
        for blank in ["", " ", "\t\r\n", "\u{a0}\u{2003}"] {
            assert!(is_blank(blank.as_bytes()), "{blank:?}");
        }
        for value in [&b"0"[..], b" 1 ", b"\0", b"\xff", b" \xff ", "\u{200b}".as_bytes()] {
            assert!(!is_blank(value), "{value:?}");
        }
    }

    #[test]
    fn a_fingerprint_tells_payloads_and_types_apart() {
        let print = |message_type: &str, payload: &'static str| {
            Fingerprint::of(&Message::new("1", message_type, payload))
        };
        assert_eq!(print("a", "x"), print("a", "x"));
        assert_ne!(print("a", "x"), print("a", "y"));
        assert!(print("a", "x").is_same_type(&print("a", "y")));
        assert!(!print("a", "x").is_same_type(&print("b", "x")));
        let hidden = print("a", "x").with_secret(&[7; 16]);
        assert!(hidden != print("a", "x") && hidden.is_same_type(&print("a", "x")));
    }

    #[test]
    fn a_unique_key_is_never_had_twice() {
        let keys: std::collections::HashSet<_> = (0..1_000).map(|_| Key::unique(&inbox())).collect();
        assert_eq!(keys.len(), 1_000);
    }

    #[test]
    fn prints_and_parses() {
        let key = Key::new(&inbox(), "a", ["1"]);
        assert_eq!(Key::parse(&key.to_string()), Some(key));
        assert_eq!(Key::parse("not a key"), None);
    }

    #[test]
    fn an_id_of_a_message_is_the_part_named_id() {
        let message = Message::new("evt_1", "t", "").with_source("shop");
        let key = KeyStrategy::MessageId.key(&inbox(), &message).unwrap();
        assert_eq!(key, Key::new(&inbox(), "shop", ["id", "evt_1"]));
    }
}
