//! Signatures, by the scheme of each sender. Tests: verify/tests.rs and tests/webhooks.rs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::HeaderName;
use oncebox::{Error, ErrorKind, Result};
use ring::signature::{ED25519, UnparsedPublicKey};

use crate::secret::{Macs, SecretBytes, refused};
use crate::verify::{Proof, StandardHeaders};

/// Decodes secrets, which often lack their padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Maximum signatures of one request that are compared. A sender that replaces a secret sends two.
const MAX_SIGNATURES: usize = 8;
/// Maximum signatures of one request that are verified with public keys. Each one reads the whole body.
const MAX_KEY_SIGNATURES: usize = 2;
/// Bytes of an HMAC-SHA256.
const TAG: usize = 32;
/// Bytes of a signature by Ed25519.
const KEY_SIGNATURE: usize = 64;

/// Encoding of bytes in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Encoding {
    /// Two hexadecimal digits for a byte.
    Hex,
    /// Base64 with padding.
    Base64,
}

impl Encoding {
    pub(super) fn decode(self, text: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Hex => unhex(text),
            Self::Base64 => BASE64.decode(text).ok(),
        }
    }
}

fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16);
    let (pairs, []) = text.as_chunks::<2>() else { return None };
    pairs.iter().map(|[a, b]| u8::try_from(digit(*a)? << 4 | digit(*b)?).ok()).collect()
}

fn macs<T: AsRef<[u8]>>(secrets: impl IntoIterator<Item = T>) -> Result<Macs> {
    let secret = |secret: T| SecretBytes::new("signing secret", secret.as_ref());
    let secrets: Vec<SecretBytes> = secrets.into_iter().map(secret).collect::<Result<_>>()?;
    Macs::new("signing secret", &secrets)
}

/// A digest of the body alone.
#[derive(Clone, Debug)]
pub(super) struct Hmac {
    header: HeaderName,
    prefix: Box<str>,
    encoding: Encoding,
    macs: Macs,
}

impl Hmac {
    pub(super) fn new<T: AsRef<[u8]>>(
        header: &str,
        prefix: &str,
        encoding: Encoding,
        secrets: impl IntoIterator<Item = T>,
    ) -> Result<Self> {
        let name = HeaderName::try_from(header);
        let name = name.map_err(|_| {
            Error::new(ErrorKind::InvalidConfig, format!("{header:?} is not a header's name"))
        })?;
        Ok(Self { header: name, prefix: prefix.into(), encoding, macs: macs(secrets)? })
    }

    pub(super) fn header(&self) -> &HeaderName {
        &self.header
    }

    /// Returns the digest that a request shows, if it has the length of one.
    pub(super) fn tag(&self, proof: &Proof<'_>) -> Option<Vec<u8>> {
        let tag = proof.header(self.header.as_str())?.strip_prefix(self.prefix.as_bytes())?;
        self.encoding.decode(tag).filter(|tag| tag.len() == TAG)
    }

    pub(super) fn holds(&self, proof: &Proof<'_>) -> bool {
        self.tag(proof).is_some_and(|tag| self.macs.verify(&[proof.body], &[tag]))
    }
}

/// Points of Ed25519 whose order divides 8, without the sign bit; the last two encode the first two differently.
/// Signatures under them need no private key, and `ring` does not refuse them.
const SMALL_ORDER: [&[u8; 32]; 7] = [
    &[0; 32],
    b"\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    b"\x26\xe8\x95\x8f\xc2\xb2\x27\xb0\x45\xc3\xf4\x89\xf2\xef\x98\xf0\xd5\xdf\xac\x05\xd3\xc6\x33\x39\xb1\x38\x02\x88\x6d\x53\xfc\x05",
    b"\xc7\x17\x6a\x70\x3d\x4d\xd8\x4f\xba\x3c\x0b\x76\x0d\x10\x67\x0f\x2a\x20\x53\xfa\x2c\x39\xcc\xc6\x4e\xc7\xfd\x77\x92\xac\x03\x7a",
    b"\xec\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\xed\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\xee\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
];

fn is_small_order(key: &[u8; 32]) -> bool {
    let mut point = *key;
    point[31] &= 0x7f;
    SMALL_ORDER.contains(&&point)
}

/// Standard Webhooks: id, time and body are signed.
#[derive(Clone, Debug)]
pub(super) struct Standard {
    /// v1.
    macs: Option<Macs>,
    /// v1a. Not secret.
    keys: Vec<[u8; 32]>,
}

impl Standard {
    pub(super) fn new<T: AsRef<str>>(secrets: impl IntoIterator<Item = T>) -> Result<Self> {
        let what = "Standard Webhooks secret";
        let (mut shared, mut keys) = (Vec::new(), Vec::new());
        for secret in secrets {
            let secret = secret.as_ref();
            if secret.starts_with("whsk_") {
                return Err(refused(
                    what,
                    "is a private key: only its sender may have it, give the `whpk_` key",
                ));
            }
            let public = secret.strip_prefix("whpk_");
            let text = public.unwrap_or_else(|| secret.strip_prefix("whsec_").unwrap_or(secret));
            let bytes = LENIENT
                .decode(text)
                .map_err(|_| refused(what, "is not base64 behind `whsec_` or `whpk_`"))?;
            if public.is_some() {
                let key: [u8; 32] =
                    bytes.try_into().map_err(|_| refused(what, "with `whpk_` does not have 32 bytes"))?;
                if is_small_order(&key) {
                    return Err(refused(
                        what,
                        "with `whpk_` is a point of small order: anybody can sign for it",
                    ));
                }
                keys.push(key);
            } else {
                shared.push(SecretBytes::new(what, &bytes)?);
            }
        }
        if shared.is_empty() && keys.is_empty() {
            return Err(refused(what, "is missing: nothing could be verified"));
        }
        let macs = if shared.is_empty() { None } else { Some(Macs::new(what, &shared)?) };
        Ok(Self { macs, keys })
    }

    /// Returns the signatures of a request, if a body could make it valid.
    pub(super) fn signatures<'a>(&self, proof: &Proof<'a>) -> Option<StandardSignatures<'a>> {
        let names = StandardHeaders::of(&proof.parts.headers);
        let id = proof.header(names.id)?;
        let time = proof.header(names.timestamp)?;
        // Dots join the parts: a dot within a part could move text to another part.
        if id.is_empty() || id.contains(&b'.') || !proof.is_recent(time) {
            return None;
        }
        let all = proof.header(names.signature)?;
        let of = |version: &[u8], len: usize| {
            let tag = |one: &[u8]| Encoding::Base64.decode(one.strip_prefix(version)?.strip_prefix(b",")?);
            let all = all.split(|b| *b == b' ').take(MAX_SIGNATURES).filter_map(tag);
            all.filter(|tag| tag.len() == len).collect::<Vec<_>>()
        };
        let shared = if self.macs.is_some() { of(b"v1", TAG) } else { Vec::new() };
        let mut keyed = if self.keys.is_empty() { Vec::new() } else { of(b"v1a", KEY_SIGNATURE) };
        keyed.truncate(MAX_KEY_SIGNATURES);
        (!shared.is_empty() || !keyed.is_empty()).then_some(StandardSignatures { id, time, shared, keyed })
    }

    pub(super) fn holds(&self, proof: &Proof<'_>) -> bool {
        let Some(StandardSignatures { id, time, shared, keyed }) = self.signatures(proof) else {
            return false;
        };
        let by_secret =
            |macs: &Macs| !shared.is_empty() && macs.verify(&[id, b".", time, b".", proof.body], &shared);
        self.macs.as_ref().is_some_and(by_secret)
            || (!keyed.is_empty()
                && self.any_key_signed(&[id, b".", time, b".", proof.body].concat(), &keyed))
    }

    fn any_key_signed(&self, signed: &[u8], signatures: &[Vec<u8>]) -> bool {
        let fits = |key: &[u8; 32], signature: &Vec<u8>| {
            #[cfg(test)]
            crate::secret::tests::DIGESTED.set(crate::secret::tests::DIGESTED.get() + signed.len());
            UnparsedPublicKey::new(&ED25519, key).verify(signed, signature).is_ok()
        };
        // Keys and signatures are public: the time may reveal which of them fits.
        self.keys.iter().any(|key| signatures.iter().any(|signature| fits(key, signature)))
    }
}

/// The parts of a request by Standard Webhooks.
pub(super) struct StandardSignatures<'a> {
    id: &'a [u8],
    time: &'a [u8],
    /// v1.
    shared: Vec<Vec<u8>>,
    /// v1a.
    keyed: Vec<Vec<u8>>,
}

/// Stripe: time and body are signed, `t=` and `v1=` in one header.
#[derive(Clone, Debug)]
pub(super) struct Stripe(Macs);

impl Stripe {
    pub(super) fn new<T: AsRef<[u8]>>(secrets: impl IntoIterator<Item = T>) -> Result<Self> {
        Ok(Self(macs(secrets)?))
    }

    /// Returns the time and the digests of a request, if a body could make it valid.
    pub(super) fn signatures<'a>(proof: &Proof<'a>) -> Option<(&'a [u8], Vec<Vec<u8>>)> {
        let header = proof.header("stripe-signature")?;
        let (mut time, mut times, mut tags) = (&b""[..], 0, Vec::new());
        for part in header.split(|b| *b == b',') {
            let part = part.trim_ascii();
            if let Some(value) = part.strip_prefix(b"t=") {
                (time, times) = (value, times + 1);
            } else if let Some(tag) = part.strip_prefix(b"v1=")
                && tags.len() < MAX_SIGNATURES
            {
                tags.extend(Encoding::Hex.decode(tag).filter(|tag| tag.len() == TAG));
            }
        }
        (!tags.is_empty() && times == 1 && proof.is_recent(time)).then_some((time, tags))
    }

    pub(super) fn holds(&self, proof: &Proof<'_>) -> bool {
        let signed = Self::signatures(proof);
        signed.is_some_and(|(time, tags)| self.0.verify(&[time, b".", proof.body], &tags))
    }
}

/// Slack: version, time and body are signed.
#[derive(Clone, Debug)]
pub(super) struct Slack(Macs);

impl Slack {
    pub(super) fn new<T: AsRef<[u8]>>(secrets: impl IntoIterator<Item = T>) -> Result<Self> {
        Ok(Self(macs(secrets)?))
    }

    /// Returns the time and the digest of a request, if a body could make it valid.
    pub(super) fn signature<'a>(proof: &Proof<'a>) -> Option<(&'a [u8], Vec<u8>)> {
        let time = proof.header("x-slack-request-timestamp")?;
        let tag = proof.header("x-slack-signature")?.strip_prefix(b"v0=")?;
        let tag = Encoding::Hex.decode(tag).filter(|tag| tag.len() == TAG)?;
        proof.is_recent(time).then_some((time, tag))
    }

    pub(super) fn holds(&self, proof: &Proof<'_>) -> bool {
        let signed = Self::signature(proof);
        signed.is_some_and(|(time, tag)| self.0.verify(&[b"v0:", time, b":", proof.body], &[tag]))
    }
}
