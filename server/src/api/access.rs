//! Access to the API: tokens, roles, and requests of this machine. Tests: below and `tests/serve/api/access.rs`.

use std::fmt;
use std::net::SocketAddr;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use oncebox_http::{NotLocal, Pages, check_local, is_address_host, named_host};
use schemars::JsonSchema;
use serde::Deserialize;

use super::problem::{ApiProblem, ProblemKind};

/// A permission of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ApiRole {
    Viewer,
    PayloadReader,
    Operator,
    Admin,
}

impl ApiRole {
    pub(crate) const ALL: [Self; 4] = [Self::Viewer, Self::PayloadReader, Self::Operator, Self::Admin];

    /// Returns the word for the role in the configuration.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::PayloadReader => "payload-reader",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// Returns true if this role includes `needed`. Every role includes viewer, and admin includes every role.
    pub(crate) fn may(self, needed: Self) -> bool {
        self == needed || self == Self::Admin || needed == Self::Viewer
    }
}

/// An API token. Stores only its hash, and never shows the hash.
#[derive(Clone)]
pub(crate) struct ApiToken {
    pub(crate) name: String,
    pub(crate) roles: Vec<ApiRole>,
    pub(crate) hash: [u8; 32],
}

impl fmt::Debug for ApiToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiToken")
            .field("name", &self.name)
            .field("roles", &self.roles)
            .finish_non_exhaustive()
    }
}

/// Returns the SHA-256 of a token.
pub(crate) fn hash(token: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, token);
    let mut hash = [0; 32];
    hash.copy_from_slice(digest.as_ref());
    hash
}

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiCaller {
    /// Token name; `None` without tokens.
    pub(crate) name: Option<String>,
    pub(crate) roles: Vec<ApiRole>,
}

impl ApiCaller {
    pub(crate) fn may(&self, needed: ApiRole) -> bool {
        self.roles.iter().any(|role| role.may(needed))
    }
}

/// The tokens that the API accepts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    /// If empty, every program on this machine has the role admin.
    pub(crate) tokens: Vec<ApiToken>,
}

impl Access {
    /// Authenticates a request.
    pub(crate) fn caller(&self, parts: &Parts, peer: Option<SocketAddr>) -> Result<ApiCaller, ApiProblem> {
        if self.tokens.is_empty() {
            require_local(parts, peer)?;
            return Ok(ApiCaller { name: None, roles: vec![ApiRole::Admin] });
        }
        let bearer = bearer(&parts.headers).unwrap_or_default();
        let presented = hash(bearer);
        // Compares every token, so that the response time does not reveal which one was close.
        let fits = |found: Option<usize>, (at, known): (usize, &ApiToken)| {
            if constant_time_eq(&known.hash, &presented) { Some(at) } else { found }
        };
        // A configuration may hold the hash of the empty text by mistake.
        let found = self.tokens.iter().enumerate().fold(None, fits).filter(|_| !bearer.is_empty());
        let token = found.and_then(|at| self.tokens.get(at)).ok_or_else(|| {
            ApiProblem::new(ProblemKind::Unauthenticated, "the token is missing or unknown")
        })?;
        Ok(ApiCaller { name: Some(token.name.clone()), roles: token.roles.clone() })
    }
}

/// Returns true if two hashes are equal. Takes the same time wherever they differ.
fn constant_time_eq(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let differs = a.iter().zip(b).fold(0, |differs, (a, b)| std::hint::black_box(differs | (a ^ b)));
    differs == 0
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (first, None) = (all.next()?.as_bytes(), all.next()) else { return None };
    let (scheme, token) = first.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Refuses a request without a token unless it comes from this machine. Accepts pages that the API itself served.
fn require_local(parts: &Parts, peer: Option<SocketAddr>) -> Result<(), ApiProblem> {
    let why = match check_local(parts, peer.map(|peer| peer.ip()), Pages::SameOrigin) {
        Ok(()) => return Ok(()),
        Err(NotLocal::Peer) => "without tokens, only this machine may use the API",
        Err(NotLocal::Proxy) => {
            "a proxy forwarded this request, or it uses HTTP/1.0 as a proxy does, and no token is configured; create one \
             with `oncebox token`"
        }
        Err(NotLocal::NoHost) => "the request has no host header, or several",
        Err(NotLocal::Host) => "the host header does not name this machine; use 127.0.0.1 or localhost",
        Err(_) => "a page of another site sent the request",
    };
    Err(ApiProblem::new(ProblemKind::Forbidden, why))
}

/// Returns true if the host header is an address or a name without a dot. A page in a browser cannot forge either of them.
pub(crate) fn names_own_host(parts: &Parts) -> bool {
    let host = named_host(parts);
    host.is_some_and(|host| is_address_host(host.host()) || !host.host().contains(['.', '[']))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use axum::http::Version;

    use super::*;
    use crate::operator::show::hex;

    fn parts(headers: &[(&'static str, &str)]) -> Parts {
        let mut request = axum::http::Request::get("/api/v1/me");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    const NEAR: Option<SocketAddr> = Some(SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 5));

    // FAULTS S7, S9: DNS rebinding, another site, a proxy.
    #[test]
    fn without_tokens_only_this_machine_itself_is_let_in() {
        let open = Access::default();
        let local = ("host", "127.0.0.1:8472");
        for good in [
            &[local][..],
            &[("host", "LOCALHOST")],
            &[("host", "[::1]:8472")],
            &[local, ("origin", "http://127.0.0.1:8472"), ("sec-fetch-site", "same-origin")],
        ] {
            assert!(open.caller(&parts(good), NEAR).is_ok(), "{good:?}");
        }
        for bad in [
            &[][..],
            &[("host", "evil.example:8472")],
            &[("host", "10.0.0.1")],
            &[local, local],
            &[local, ("origin", "http://evil.example")],
            &[local, ("origin", "null")],
            &[local, ("origin", "http://127.0.0.1:9999")],
            &[local, ("sec-fetch-site", "cross-site")],
            &[local, ("sec-fetch-site", "same-site")],
            &[local, ("x-forwarded-for", "10.0.0.1")],
            &[local, ("x-forwarded-host", "inbox.example")],
            &[local, ("x-forwarded-proto", "https")],
            &[local, ("forwarded", "for=10.0.0.1")],
            &[local, ("via", "1.1 edge")],
            &[local, ("x-real-ip", "10.0.0.1")],
            &[local, ("cf-connecting-ip", "10.0.0.1")],
        ] {
            let refused = open.caller(&parts(bad), NEAR).unwrap_err();
            assert_eq!(refused.kind(), ProblemKind::Forbidden, "{bad:?}");
        }
        assert!(open.caller(&parts(&[local]), Some("10.0.0.1:5".parse().unwrap())).is_err());
        assert!(open.caller(&parts(&[local]), None).is_err());
        // Default of nginx for proxied requests.
        let mut old = parts(&[local]);
        old.version = Version::HTTP_10;
        assert_eq!(open.caller(&old, NEAR).unwrap_err().kind(), ProblemKind::Forbidden);
    }

    // FAULTS S7: a page in a browser cannot read the endpoints that need no token.
    #[test]
    fn names_with_dots_may_be_those_of_a_page() {
        for good in ["127.0.0.1:8472", "10.1.2.3", "[fd00::1]:8472", "localhost", "oncebox:8472"] {
            assert!(names_own_host(&parts(&[("host", good)])), "{good}");
        }
        for bad in ["evil.example", "inbox.evil.example:8472", "127.0.0.1.evil.example", ""] {
            assert!(!names_own_host(&parts(&[("host", bad)])), "{bad}");
        }
        assert!(!names_own_host(&parts(&[])));
        assert!(!names_own_host(&parts(&[("host", "localhost"), ("host", "localhost")])));
    }

    #[test]
    fn a_token_is_known_by_its_hash_alone() {
        let token = |name: &str, secret: &str, role| ApiToken {
            name: name.into(),
            roles: vec![role],
            hash: hash(secret.as_bytes()),
        };
        let access = Access {
            tokens: vec![token("ada", "s3cret", ApiRole::Viewer), token("bo", "other", ApiRole::Admin)],
        };
        let caller = |value: &str| access.caller(&parts(&[("authorization", value)]), None);
        assert_eq!(caller("Bearer s3cret").unwrap().name.as_deref(), Some("ada"));
        assert_eq!(caller("bEARER  other").unwrap().name.as_deref(), Some("bo"));
        let hex = hex(&hash(b"s3cret"));
        for wrong in
            ["Bearer s3cre", "Bearer s3cret2", "Bearer", "Bearer ", "Basic s3cret", "s3cret", "", &hex]
        {
            assert_eq!(caller(wrong).unwrap_err().kind(), ProblemKind::Unauthenticated, "{wrong}");
        }
        // A configuration may hold the hash of the empty text.
        let empty = Access { tokens: vec![token("empty", "", ApiRole::Admin)] };
        for nothing in ["Bearer ", "Bearer", "Basic x"] {
            assert!(empty.caller(&parts(&[("authorization", nothing)]), None).is_err(), "{nothing}");
        }
        assert!(empty.caller(&parts(&[]), None).is_err());
        let twice = parts(&[("authorization", "Bearer s3cret"), ("authorization", "Bearer s3cret")]);
        assert!(access.caller(&twice, None).is_err());
        assert!(!format!("{access:?}").contains("hash"));
    }

    #[test]
    fn roles() {
        let may = |role: ApiRole| ApiRole::ALL.map(|needed| role.may(needed));
        assert_eq!(may(ApiRole::Viewer), [true, false, false, false]);
        assert_eq!(may(ApiRole::PayloadReader), [true, true, false, false]);
        assert_eq!(may(ApiRole::Operator), [true, false, true, false]);
        assert_eq!(may(ApiRole::Admin), [true, true, true, true]);
    }
}
