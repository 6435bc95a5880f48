//! Verification of senders: tokens and signatures. Tests: verify/tests.rs and tests/webhooks.rs.

mod refusal;
mod signed;
mod standard_headers;
mod token;

use std::net::IpAddr;
use std::time::Duration;

use http::HeaderName;
use http::request::Parts;
use oncebox::Result;
use oncebox::time::Timestamp;

use crate::local::{Pages, check_local};
pub(crate) use refusal::Refusal;
pub use signed::Encoding;
use signed::{Hmac, Slack, Standard, Stripe};
pub(crate) use standard_headers::StandardHeaders;
use token::BearerTokens;

/// Maximum age of a signature, and maximum clock difference in both directions.
pub(crate) const REPLAY_WINDOW: Duration = Duration::from_mins(5);

/// Proof that a sender must give. Several secrets or tokens are valid at once, so that they can be rotated without a
/// gap.
#[derive(Clone, Debug)]
pub struct Verify(VerifyMethod);

#[derive(Clone, Debug)]
enum VerifyMethod {
    Tokens(BearerTokens),
    Hmac(Hmac),
    Standard(Standard),
    Stripe(Stripe),
    Slack(Slack),
    Loopback,
    Open,
}

/// Result of verifying the head of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadProof {
    /// The head proves the sender.
    Holds,
    /// The head is well formed and its time is recent; the body decides.
    NeedsBody,
    /// No body can make it valid.
    Fails,
}

/// Parts of a request that are verified.
#[derive(Clone, Copy)]
pub(crate) struct Proof<'a> {
    pub(crate) parts: &'a Parts,
    /// Empty while only the head is checked.
    pub(crate) body: &'a [u8],
    pub(crate) peer: Option<IpAddr>,
    pub(crate) now: Timestamp,
    pub(crate) window: Duration,
}

impl<'a> Proof<'a> {
    /// Returns the only value of a header. A repeated header has none: two readers might take different values.
    fn header(&self, name: &str) -> Option<&'a [u8]> {
        let mut values = self.parts.headers.get_all(name).iter();
        let value = values.next()?;
        if values.next().is_some() { None } else { Some(value.as_bytes()) }
    }

    /// Parses a time in seconds, as senders write it.
    fn sent(seconds: &[u8]) -> Option<Timestamp> {
        let seconds = std::str::from_utf8(seconds).ok()?;
        let seconds = seconds.bytes().all(|b| b.is_ascii_digit()).then(|| seconds.parse::<i64>().ok())??;
        Some(Timestamp::from_millis(seconds.saturating_mul(1_000)))
    }

    /// Returns true if a time in seconds, as senders write it, is within the window.
    fn is_recent(&self, seconds: &[u8]) -> bool {
        let Some(sent) = Self::sent(seconds) else { return false };
        self.now.since(sent) <= self.window && sent.since(self.now) <= self.window
    }
}

impl Verify {
    /// A token in `Authorization: Bearer`.
    pub fn tokens<T: AsRef<str>>(tokens: impl IntoIterator<Item = T>) -> Result<Self> {
        Ok(Self(VerifyMethod::Tokens(BearerTokens::new(tokens)?)))
    }

    /// Standard Webhooks: `whsec_` for v1 (HMAC-SHA256), `whpk_` for v1a (Ed25519). The headers are `webhook-id`,
    /// `webhook-timestamp` and `webhook-signature`, or the same with `svix-`.
    pub fn standard_webhooks<T: AsRef<str>>(secrets: impl IntoIterator<Item = T>) -> Result<Self> {
        Ok(Self(VerifyMethod::Standard(Standard::new(secrets)?)))
    }

    /// An HMAC-SHA256 of the body in a header, as GitHub, Shopify and many others send it. `prefix` precedes the digest
    /// in the header, such as `sha256=`; empty for none.
    pub fn hmac_sha256<T: AsRef<[u8]>>(
        header: &str,
        prefix: &str,
        encoding: Encoding,
        secrets: impl IntoIterator<Item = T>,
    ) -> Result<Self> {
        Ok(Self(VerifyMethod::Hmac(Hmac::new(header, prefix, encoding, secrets)?)))
    }

    /// As GitHub signs.
    pub fn github<T: AsRef<[u8]>>(secrets: impl IntoIterator<Item = T>) -> Result<Self> {
        Self::hmac_sha256("x-hub-signature-256", "sha256=", Encoding::Hex, secrets)
    }

    /// As Shopify signs.
    pub fn shopify<T: AsRef<[u8]>>(secrets: impl IntoIterator<Item = T>) -> Result<Self> {
        Self::hmac_sha256("x-shopify-hmac-sha256", "", Encoding::Base64, secrets)
    }

    /// As Stripe signs.
    pub fn stripe<T: AsRef<[u8]>>(secrets: impl IntoIterator<Item = T>) -> Result<Self> {
        Ok(Self(VerifyMethod::Stripe(Stripe::new(secrets)?)))
    }

    /// As Slack signs.
    pub fn slack<T: AsRef<[u8]>>(secrets: impl IntoIterator<Item = T>) -> Result<Self> {
        Ok(Self(VerifyMethod::Slack(Slack::new(secrets)?)))
    }

    /// Accepts senders on this machine: the connection comes from a loopback address. [`Server`](crate::Server) and
    /// axum's `ConnectInfo` provide the address; without it every request is refused. Requests through a proxy or from
    /// a page in a browser are refused, by the rule of [`check_local`]. Behind a proxy use [tokens](Self::tokens).
    pub fn loopback() -> Self {
        Self(VerifyMethod::Loopback)
    }

    /// Accepts every request that reaches the port.
    pub fn open() -> Self {
        Self(VerifyMethod::Open)
    }

    /// Returns true if no sender is verified.
    pub fn is_open(&self) -> bool {
        matches!(self.0, VerifyMethod::Open)
    }

    /// Returns the header with the proof if the endpoint chose it. The other headers have fixed names.
    pub(crate) fn header(&self) -> Option<&HeaderName> {
        match &self.0 {
            VerifyMethod::Hmac(hmac) => Some(hmac.header()),
            _ => None,
        }
    }

    /// Checks the head before a byte of the body is read.
    pub(crate) fn check_head(&self, head: &Proof<'_>) -> HeadProof {
        let proven = |holds| if holds { HeadProof::Holds } else { HeadProof::Fails };
        let claimed = |well_formed| if well_formed { HeadProof::NeedsBody } else { HeadProof::Fails };
        match &self.0 {
            VerifyMethod::Tokens(tokens) => proven(tokens.holds(head)),
            VerifyMethod::Loopback => proven(check_local(head.parts, head.peer, Pages::Refused).is_ok()),
            VerifyMethod::Hmac(hmac) => claimed(hmac.tag(head).is_some()),
            VerifyMethod::Standard(standard) => claimed(standard.signatures(head).is_some()),
            VerifyMethod::Stripe(_) => claimed(Stripe::signatures(head).is_some()),
            VerifyMethod::Slack(_) => claimed(Slack::signature(head).is_some()),
            VerifyMethod::Open => HeadProof::NeedsBody,
        }
    }

    /// Returns whether the work of a check grows with the body.
    pub(crate) fn digests_body(&self) -> bool {
        !matches!(self.0, VerifyMethod::Tokens(_) | VerifyMethod::Loopback | VerifyMethod::Open)
    }

    pub(crate) fn holds(&self, proof: &Proof<'_>) -> bool {
        match &self.0 {
            VerifyMethod::Tokens(tokens) => tokens.holds(proof),
            VerifyMethod::Hmac(hmac) => hmac.holds(proof),
            VerifyMethod::Standard(standard) => standard.holds(proof),
            VerifyMethod::Stripe(stripe) => stripe.holds(proof),
            VerifyMethod::Slack(slack) => slack.holds(proof),
            VerifyMethod::Loopback => check_local(proof.parts, proof.peer, Pages::Refused).is_ok(),
            VerifyMethod::Open => true,
        }
    }
}

#[cfg(test)]
mod tests;
