//! Reason of a refusal, for the operator. The sender always gets the same response. Tests: tests/refusals.rs.

use crate::local::{NotLocal, Pages, check_local, sign_of_other};
use crate::verify::signed::{Hmac, Slack, Standard, Stripe};
use crate::verify::{Proof, StandardHeaders, Verify, VerifyMethod};

/// First fault of a request that was not verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No endpoint has the path.
    UnknownPath,
    /// A header that the proof needs is missing.
    MissingHeader(&'static str),
    /// A header that the proof needs comes more than once.
    RepeatedHeader(&'static str),
    /// A header of the proof is malformed.
    MalformedHeader(&'static str),
    /// The bearer token is unknown.
    WrongToken,
    /// No signature fits: the secret differs, or something on the way changed the body.
    WrongSignature,
    /// The signed time is too old: a late delivery, a replay, or a wrong clock.
    OldTimestamp,
    /// The signed time is in the future: a clock is wrong.
    FutureTimestamp,
    /// The router was served without the address of its clients.
    UnknownPeer,
    /// The connection comes from another machine.
    NotLoopback,
    /// A proxy or a browser on this machine forwards the request, as a header or HTTP/1.0 shows.
    Forwarded(Option<&'static str>),
    /// The request names a host, such as a service of a compose file, instead of an address; or no host.
    HostName,
}

impl Refusal {
    /// Returns the metric label.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::UnknownPath => "unknown_path",
            Self::MissingHeader(_) => "missing_header",
            Self::RepeatedHeader(_) => "repeated_header",
            Self::MalformedHeader(_) => "malformed_header",
            Self::WrongToken => "wrong_token",
            Self::WrongSignature => "wrong_signature",
            Self::OldTimestamp => "old_timestamp",
            Self::FutureTimestamp => "future_timestamp",
            Self::UnknownPeer => "unknown_peer",
            Self::NotLoopback => "not_loopback",
            Self::Forwarded(_) => "forwarded",
            Self::HostName => "host_name",
        }
    }

    /// Returns the header at fault. A header that the endpoint chose has a general name.
    pub(crate) const fn header(self) -> Option<&'static str> {
        match self {
            Self::MissingHeader(name) | Self::RepeatedHeader(name) | Self::MalformedHeader(name) => {
                Some(name)
            }
            Self::Forwarded(name) => name,
            Self::HostName => Some("host"),
            _ => None,
        }
    }

    /// Advice for the operator.
    pub(crate) const fn advice(self) -> &'static str {
        match self {
            Self::UnknownPath => "compare the path with that of the endpoint",
            Self::MissingHeader(_) => {
                "check that the sender signs or sends a token, and that no proxy removes the header"
            }
            Self::RepeatedHeader(_) => "check the sender and the proxies: one of them adds the header again",
            Self::MalformedHeader(_) => {
                "check that the endpoint has the format and verification of this sender"
            }
            Self::WrongToken => "compare the token of the sender with those of the endpoint",
            Self::WrongSignature => "compare the secrets, and check that no proxy changes the body",
            Self::OldTimestamp => "check both clocks; if deliveries come late, raise the replay window",
            Self::FutureTimestamp => "check both clocks",
            Self::UnknownPeer => "serve the router with the addresses of its clients, or use tokens",
            Self::NotLoopback => {
                "without a secret only this machine may send: set `verify` to tokens or signatures"
            }
            Self::Forwarded(_) => {
                "what comes through a proxy, or in HTTP/1.0 as from one, or from a browser needs a token or a signature"
            }
            Self::HostName => {
                "without a secret only 127.0.0.1, [::1] and localhost are served: use a token, or one of those"
            }
        }
    }
}

impl Proof<'_> {
    /// Returns a header that the proof needs.
    fn needs(&self, name: &'static str) -> Result<&[u8], Refusal> {
        self.needs_as(name, name)
    }

    /// Returns a header that the proof needs; the refusal calls it `known_as`.
    fn needs_as(&self, name: &str, known_as: &'static str) -> Result<&[u8], Refusal> {
        match (self.parts.headers.contains_key(name), self.header(name)) {
            (false, _) => Err(Refusal::MissingHeader(known_as)),
            (true, None) => Err(Refusal::RepeatedHeader(known_as)),
            (true, Some(value)) => Ok(value),
        }
    }

    /// Checks a time in seconds.
    fn time(&self, seconds: &[u8], header: &'static str) -> Result<(), Refusal> {
        if self.is_recent(seconds) {
            return Ok(());
        }
        match Self::sent(seconds) {
            None => Err(Refusal::MalformedHeader(header)),
            Some(sent) if sent > self.now => Err(Refusal::FutureTimestamp),
            Some(_) => Err(Refusal::OldTimestamp),
        }
    }
}

impl Verify {
    /// Returns the reason why a proof failed. Reads headers only, after the failure.
    pub(crate) fn refusal(&self, proof: &Proof<'_>) -> Refusal {
        let found = match &self.0 {
            VerifyMethod::Tokens(_) => tokens(proof),
            VerifyMethod::Hmac(hmac) => hmac.refusal(proof),
            VerifyMethod::Standard(known) => standard(known, proof),
            VerifyMethod::Stripe(_) => stripe(proof),
            VerifyMethod::Slack(_) => slack(proof),
            VerifyMethod::Loopback => local(proof),
            VerifyMethod::Open => Ok(()),
        };
        found.err().unwrap_or(Refusal::WrongSignature)
    }
}

fn tokens(proof: &Proof<'_>) -> Result<(), Refusal> {
    let header = proof.needs("authorization")?;
    let bearer =
        header.split_at_checked(7).is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
    Err(if bearer { Refusal::WrongToken } else { Refusal::MalformedHeader("authorization") })
}

fn local(proof: &Proof<'_>) -> Result<(), Refusal> {
    check_local(proof.parts, proof.peer, Pages::Refused).map_err(|why| match why {
        NotLocal::Peer if proof.peer.is_none() => Refusal::UnknownPeer,
        NotLocal::Peer => Refusal::NotLoopback,
        NotLocal::Proxy | NotLocal::Page => Refusal::Forwarded(sign_of_other(proof.parts)),
        NotLocal::NoHost | NotLocal::Host => Refusal::HostName,
    })
}

fn standard(known: &Standard, proof: &Proof<'_>) -> Result<(), Refusal> {
    let names = StandardHeaders::of(&proof.parts.headers);
    let id = proof.needs(names.id)?;
    let time = proof.needs(names.timestamp)?;
    proof.needs(names.signature)?;
    if id.is_empty() || id.contains(&b'.') {
        return Err(Refusal::MalformedHeader(names.id));
    }
    proof.time(time, names.timestamp)?;
    known.signatures(proof).map(|_| ()).ok_or(Refusal::MalformedHeader(names.signature))
}

fn stripe(proof: &Proof<'_>) -> Result<(), Refusal> {
    const NAME: &str = "stripe-signature";
    let header = proof.needs(NAME)?;
    let parts = || header.split(|b| *b == b',').map(<[u8]>::trim_ascii);
    let mut times = parts().filter_map(|part| part.strip_prefix(b"t="));
    let (time, signed) = (times.next(), parts().any(|part| part.starts_with(b"v1=")));
    match (time, times.next()) {
        (Some(time), None) if signed => proof.time(time, NAME)?,
        _ => return Err(Refusal::MalformedHeader(NAME)),
    }
    Stripe::signatures(proof).map(|_| ()).ok_or(Refusal::MalformedHeader(NAME))
}

fn slack(proof: &Proof<'_>) -> Result<(), Refusal> {
    let (time, signature) = ("x-slack-request-timestamp", "x-slack-signature");
    let seconds = proof.needs(time)?;
    proof.needs(signature)?;
    proof.time(seconds, time)?;
    Slack::signature(proof).map(|_| ()).ok_or(Refusal::MalformedHeader(signature))
}

impl Hmac {
    fn refusal(&self, proof: &Proof<'_>) -> Result<(), Refusal> {
        // The configuration names this header, so endpoints differ.
        const NAME: &str = "the header of the signature";
        proof.needs_as(self.header().as_str(), NAME)?;
        self.tag(proof).map(|_| ()).ok_or(Refusal::MalformedHeader(NAME))
    }
}
