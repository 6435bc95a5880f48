//! Checks the settings of the API. Tests: `tests/serve/config.rs`.

use std::net::{IpAddr, SocketAddr};

use oncebox::privacy::Redaction;

use super::model;
use super::plan::Planner;
use super::value::{Located, many};
use crate::api::access::{self, Access, ApiToken};
use crate::operator::Privacy;

/// Default address of the API.
pub(crate) const API_LISTEN: &str = "127.0.0.1:8472";

/// Plan of the API for operators.
#[derive(Clone, Debug)]
pub(crate) struct ApiPlan {
    pub(crate) listen: SocketAddr,
    /// True if it uses the certificate of the message port. On a loopback address the name of the certificate would not match.
    pub(crate) tls: bool,
    pub(crate) access: Access,
    pub(crate) privacy: Privacy,
}

impl ApiPlan {
    /// Returns a warning if the API is unencrypted on the network.
    pub(crate) fn warning(&self) -> Option<String> {
        let open = !self.tls && !self.listen.ip().is_loopback();
        open.then(|| {
            format!(
                "`api.listen` is {}: other machines can reach it, and requests are not encrypted, tokens included; set `tls`, or \
                 listen on 127.0.0.1 behind a reverse proxy with TLS",
                self.listen
            )
        })
    }
}

impl Planner {
    pub(super) fn api(
        &mut self,
        api: &model::ApiTable,
        messages: Option<SocketAddr>,
        tls: bool,
    ) -> Option<ApiPlan> {
        let (text, at) = api.listen.as_ref().map_or((API_LISTEN, 0), |set| (set.as_str(), set.at()));
        let tokens: Vec<ApiToken> =
            api.token.iter().filter_map(|(name, token)| self.token(name, token)).collect();
        let listen = self.address(text, at)?;
        if !listen.ip().is_loopback() && api.token.is_empty() {
            self.wrong(
                at,
                "other machines can reach this address, and no [api.token.NAME] is set; create one with `oncebox token`, or listen on 127.0.0.1",
            );
        }
        if messages.is_some_and(|messages| overlap(messages, listen)) {
            self.wrong(at, "`listen` uses this address for messages; choose another one for the API");
        }
        let privacy = self.privacy(api);
        let tls = tls && !listen.ip().is_loopback();
        Some(ApiPlan { listen, tls, access: Access { tokens }, privacy })
    }

    fn token(&mut self, name: &Located<String>, token: &model::TokenTable) -> Option<ApiToken> {
        let (roles, roles_at) = many(Some(&token.roles), name.at());
        if roles.is_empty() {
            self.wrong(roles_at, "a token needs a role; name one, or remove the token");
        }
        let text = self.guarded(&token.hash)?;
        let hash = text.strip_prefix("sha256:").and_then(digits);
        if hash.is_none() {
            // Not quoted: it may be the token itself.
            let what =
                "not a hash of a token; create one with `oncebox token`, like \"sha256:\" and 64 digits";
            self.wrong(token.hash.at(), what);
        }
        if hash.as_ref().is_some_and(is_of_weak_token) {
            let what = "the token of this hash is empty, very short or a common word; create another one with `oncebox token`";
            self.wrong(token.hash.at(), what);
        }
        Some(ApiToken { name: name.to_string(), roles: roles.to_vec(), hash: hash? })
    }

    fn privacy(&mut self, api: &model::ApiTable) -> Privacy {
        let (pointers, pointers_at) = many(api.redact_pointers.as_ref(), 0);
        let (patterns, patterns_at) = many(api.redact_patterns.as_ref(), 0);
        let mut rules = Redaction::new();
        for pattern in patterns {
            match rules.clone().pattern(pattern) {
                Ok(more) => rules = more,
                Err(error) => self.wrong(patterns_at, format!("{pattern:?}: {}", error.what())),
            }
        }
        for pointer in pointers {
            match rules.clone().pointer(pointer) {
                Ok(more) => rules = more,
                Err(error) => self.wrong(pointers_at, error.what()),
            }
        }
        Privacy(rules)
    }
}

/// Returns true if no process can listen on both addresses: the port is the same, and one address covers the other.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b) = (one.ip().to_canonical(), other.ip().to_canonical());
    // All addresses of IPv6 are those of IPv4, too.
    let covers = |all: IpAddr, ip: IpAddr| all.is_unspecified() && (all.is_ipv6() || ip.is_ipv4());
    one.port() == other.port() && one.port() != 0 && (a == b || covers(a, b) || covers(b, a))
}

/// Returns true for the hash of an empty token, one or two characters, or a common word.
fn is_of_weak_token(hash: &[u8; 32]) -> bool {
    const WORDS: [&str; 9] =
        ["admin", "changeme", "hunter2", "oncebox", "password", "s3cret", "secret", "test", "token"];
    let is = |token: &[u8]| access::hash(token) == *hash;
    let printable = || b'!'..=b'~';
    let is_short = || printable().any(|one| is(&[one]) || printable().any(|two| is(&[one, two])));
    is(b"") || WORDS.iter().any(|word| is(word.as_bytes())) || is_short()
}

/// Parses 64 hexadecimal digits.
pub(super) fn digits(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_of_a_port_are_each_of_them() {
        for (one, other, expected) in [
            ("127.0.0.1:1", "127.0.0.1:1", true),
            ("127.0.0.1:1", "127.0.0.1:2", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
            ("127.0.0.1:1", "127.0.0.2:1", false),
            ("0.0.0.0:1", "127.0.0.1:1", true),
            ("0.0.0.0:1", "[::1]:1", false),
            ("0.0.0.0:1", "[::]:1", true),
            ("[::]:1", "[::1]:1", true),
            ("[::]:1", "10.0.0.1:1", true),
            ("[::ffff:127.0.0.1]:1", "127.0.0.1:1", true),
        ] {
            let (one, other) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!((overlap(one, other), overlap(other, one)), (expected, expected), "{one} {other}");
        }
    }
}
