//! Who asks, and what they may do.

use std::fmt;
use std::net::SocketAddr;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use oncebox::store::Actor;
use oncebox_http::{NotLocal, Pages, check_local, is_address_host, named_host};
use schemars::JsonSchema;
use serde::Deserialize;

use super::problem::{ApiProblem, ProblemKind};

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ApiRole {
    Viewer,
    PayloadReader,
    Operator,
    Admin,
}

impl ApiRole {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Viewer, Self::PayloadReader, Self::Operator, Self::Admin];

    /// The word for it in the configuration.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::PayloadReader => "payload-reader",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// Whether this role does what `needed` does: everybody may look, an admin may do everything, and to read payloads and
    /// to act are two things.
    pub(crate) fn may(self, needed: Self) -> bool {
        self == needed || self == Self::Admin || needed == Self::Viewer
    }
}

/// A token. Only its hash is known, and that is not shown either.
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

/// What a token is known by.
pub(crate) fn hash(token: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, token);
    let mut hash = [0; 32];
    hash.copy_from_slice(digest.as_ref());
    hash
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut digits, byte| {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiCaller {
    /// The name of the token; nothing where there are none.
    pub(crate) name: Option<String>,
    pub(crate) roles: Vec<ApiRole>,
}

impl ApiCaller {
    pub(crate) fn may(&self, needed: ApiRole) -> bool {
        self.roles.iter().any(|role| role.may(needed))
    }

    /// Who an action is recorded for: who they say they are, and apart from that the token that proves what they may do.
    pub(crate) fn asker(&self, said: Option<&str>) -> Result<Requester, ApiProblem> {
        let said = said.filter(|said| !said.trim().is_empty());
        let name = said.or(self.name.as_deref()).map(str::to_owned);
        let missing = || ApiProblem::new(ProblemKind::Invalid, "`actor` is missing: say who asks for this");
        Ok(Requester { name: name.ok_or_else(missing)?, token: self.name.clone() })
    }
}

/// Who an action is recorded for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Requester {
    /// Who they say they are.
    pub(crate) name: String,
    /// The name of their token; nothing where there are none.
    pub(crate) token: Option<String>,
}

impl<'a> From<&'a Requester> for Actor<'a> {
    fn from(asker: &'a Requester) -> Self {
        Self::from(&asker.name).with_token(asker.token.as_deref())
    }
}

/// Who is let in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    /// Without one, whoever is on this machine may do everything.
    pub(crate) tokens: Vec<ApiToken>,
}

impl Access {
    /// Who asks, if they may ask at all.
    pub(crate) fn who(&self, parts: &Parts, peer: Option<SocketAddr>) -> Result<ApiCaller, ApiProblem> {
        if self.tokens.is_empty() {
            near(parts, peer)?;
            return Ok(ApiCaller { name: None, roles: vec![ApiRole::Admin] });
        }
        let bearer = bearer(&parts.headers).unwrap_or_default();
        let presented = hash(bearer);
        // All are compared, so that the time does not tell which one was close.
        let fits = |found: Option<usize>, (at, known): (usize, &ApiToken)| {
            if same(&known.hash, &presented) { Some(at) } else { found }
        };
        // The hash of nothing is one, too, and easily made by mistake.
        let found = self.tokens.iter().enumerate().fold(None, fits).filter(|_| !bearer.is_empty());
        let token = found.and_then(|at| self.tokens.get(at)).ok_or_else(|| {
            ApiProblem::new(ProblemKind::Unauthenticated, "there is no token, or none that is known here")
        })?;
        Ok(ApiCaller { name: Some(token.name.clone()), roles: token.roles.clone() })
    }
}

/// Whether two hashes are the same, in a time that does not depend on where they differ.
fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let differs = a.iter().zip(b).fold(0, |differs, (a, b)| std::hint::black_box(differs | (a ^ b)));
    differs == 0
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (first, None) = (all.next()?.as_bytes(), all.next()) else { return None };
    let (scheme, token) = first.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Without tokens, being on this machine is the proof, by the rule that holds for messages, too. Pages of the API itself are let
/// in.
fn near(parts: &Parts, peer: Option<SocketAddr>) -> Result<(), ApiProblem> {
    let why = match check_local(parts, peer.map(|peer| peer.ip()), Pages::SameOrigin) {
        Ok(()) => return Ok(()),
        Err(NotLocal::Peer) => "without tokens only this machine may ask",
        Err(NotLocal::Proxy) => {
            "this came through a proxy, or in HTTP/1.0 as from one, and there are no tokens to tell who asks: make some with \
             `oncebox token`"
        }
        Err(NotLocal::NoHost) => "the request names no host, or several",
        Err(NotLocal::Host) => {
            "the request is for a host that is not this machine; use 127.0.0.1 or localhost"
        }
        Err(_) => "a page of another site asks for this",
    };
    Err(ApiProblem::new(ProblemKind::Forbidden, why))
}

/// Returns whether a request without a token names a host that no page in a browser can have made up: an address, or a name
/// without a dot, as containers and machines of one network have them.
pub(crate) fn names_own_host(parts: &Parts) -> bool {
    let host = named_host(parts);
    host.is_some_and(|host| is_address_host(host.host()) || !host.host().contains(['.', '[']))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use axum::http::Version;

    use super::*;

    fn parts(headers: &[(&'static str, &str)]) -> Parts {
        let mut request = axum::http::Request::get("/api/v1/me");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    const NEAR: Option<SocketAddr> = Some(SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 5));

    // FAULTS S7, S9: a page that was made to lead here, another site, a proxy.
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
            assert!(open.who(&parts(good), NEAR).is_ok(), "{good:?}");
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
            let refused = open.who(&parts(bad), NEAR).unwrap_err();
            assert_eq!(refused.cause(), ProblemKind::Forbidden, "{bad:?}");
        }
        assert!(open.who(&parts(&[local]), Some("10.0.0.1:5".parse().unwrap())).is_err());
        assert!(open.who(&parts(&[local]), None).is_err());
        // What nginx makes of a request unless it is told otherwise.
        let mut old = parts(&[local]);
        old.version = Version::HTTP_10;
        assert_eq!(open.who(&old, NEAR).unwrap_err().cause(), ProblemKind::Forbidden);
    }

    // FAULTS S7: what needs no token is not shown to a page that was made to ask.
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
        let who = |value: &str| access.who(&parts(&[("authorization", value)]), None);
        assert_eq!(who("Bearer s3cret").unwrap().name.as_deref(), Some("ada"));
        assert_eq!(who("bEARER  other").unwrap().name.as_deref(), Some("bo"));
        let hex = hex(&hash(b"s3cret"));
        for wrong in
            ["Bearer s3cre", "Bearer s3cret2", "Bearer", "Bearer ", "Basic s3cret", "s3cret", "", &hex]
        {
            assert_eq!(who(wrong).unwrap_err().cause(), ProblemKind::Unauthenticated, "{wrong}");
        }
        // The hash of an empty text is in a configuration whose writer had no token.
        let empty = Access { tokens: vec![token("nobody", "", ApiRole::Admin)] };
        for nothing in ["Bearer ", "Bearer", "Basic x"] {
            assert!(empty.who(&parts(&[("authorization", nothing)]), None).is_err(), "{nothing}");
        }
        assert!(empty.who(&parts(&[]), None).is_err());
        let twice = parts(&[("authorization", "Bearer s3cret"), ("authorization", "Bearer s3cret")]);
        assert!(access.who(&twice, None).is_err());
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

    #[test]
    fn an_action_is_recorded_for_somebody() {
        let asker =
            |name: &str, token: Option<&str>| Requester { name: name.into(), token: token.map(Into::into) };
        let open = ApiCaller { name: None, roles: Vec::new() };
        assert!(open.asker(None).is_err() && open.asker(Some(" ")).is_err());
        assert_eq!(open.asker(Some("ada")).unwrap(), asker("ada", None));
        let known = ApiCaller { name: Some("night-shift".into()), roles: Vec::new() };
        assert_eq!(known.asker(None).unwrap(), asker("night-shift", Some("night-shift")));
        assert_eq!(known.asker(Some("ada")).unwrap(), asker("ada", Some("night-shift")));
        // A name that looks like another token's record changes nothing about the token.
        let posing = known.asker(Some("ada (token root)")).unwrap();
        assert_eq!(posing, asker("ada (token root)", Some("night-shift")));
    }
}
