//! Rule for requests from this machine, shared by messages and operators. Tests: below.

use std::net::IpAddr;

use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderName, Version};

/// Pages in a browser, for [`check_local`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pages {
    /// Refuses every request from a page.
    Refused,
    /// Allows pages of the same host and port, as a dashboard needs.
    SameOrigin,
}

/// Reason why a request does not count as local.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotLocal {
    /// The connection does not come from a loopback address, or its address is unknown.
    Peer,
    /// A proxy passed the request on.
    Proxy,
    /// The request names no host, or several.
    NoHost,
    /// The request is for a host that is neither a loopback address nor `localhost`.
    Host,
    /// A page in a browser made the request.
    Page,
}

/// Headers that proxies add, besides those with one of [`PROXY_PREFIXES`].
const PROXY_HEADERS: [&str; 26] = [
    "cdn-loop",
    "cf-connecting-ip",
    "cf-ray",
    "client-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "forwarded",
    "proxy-client-ip",
    "true-client-ip",
    "via",
    "wl-proxy-client-ip",
    "x-appengine-user-ip",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-host",
    "x-proxyuser-ip",
    "x-real-ip",
    "x-remote-addr",
    "x-remote-ip",
    "x-scheme",
    "x-varnish",
];

/// Prefixes of other headers that proxies add.
const PROXY_PREFIXES: [&str; 3] = ["x-forwarded", "x-original-", "x-envoy-"];

/// Checks that a program on this machine made the request for itself.
///
/// The connection has to come from a loopback address. A proxy on this machine connects from there, too, and so does a
/// browser with a page from elsewhere. So the request must not have the headers of either, nor use HTTP/1.0, as some
/// proxies do. Its host must be a loopback address or `localhost`. A proxy that shows none of this looks like a local
/// program.
///
/// # Errors
///
/// Returns the first condition that does not hold.
pub fn check_local(parts: &Parts, peer: Option<IpAddr>, pages: Pages) -> Result<(), NotLocal> {
    if !peer.is_some_and(|peer| peer.to_canonical().is_loopback()) {
        return Err(NotLocal::Peer);
    }
    if is_passed_on(parts) {
        return Err(NotLocal::Proxy);
    }
    let host = named_host(parts).ok_or(NotLocal::NoHost)?;
    if !is_loopback_host(host.host()) {
        return Err(NotLocal::Host);
    }
    if is_from_page(parts, &host, pages) { Err(NotLocal::Page) } else { Ok(()) }
}

/// Returns whether a request shows that a proxy forwarded it. Browsers and common clients do not use HTTP/1.0.
fn is_passed_on(parts: &Parts) -> bool {
    let is_of_proxy = |name: &str| {
        PROXY_HEADERS.contains(&name) || PROXY_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    parts.version < Version::HTTP_11 || parts.headers.keys().map(HeaderName::as_str).any(is_of_proxy)
}

/// Returns the header, or its prefix, that shows a proxy or a browser behind the request.
pub(crate) fn sign_of_other(parts: &Parts) -> Option<&'static str> {
    let headers = &parts.headers;
    let exact = PROXY_HEADERS.into_iter().find(|name| headers.contains_key(*name));
    let begins = |prefix: &&str| headers.keys().any(|name| name.as_str().starts_with(*prefix));
    let page = || ["origin", "sec-fetch-site"].into_iter().find(|name| headers.contains_key(*name));
    exact.or_else(|| PROXY_PREFIXES.into_iter().find(begins)).or_else(page)
}

/// Returns whether a page made the request, and `pages` does not allow it.
fn is_from_page(parts: &Parts, host: &Authority, pages: Pages) -> bool {
    let values =
        |name: &str| parts.headers.get_all(name).iter().map(|value| value.as_bytes().to_ascii_lowercase());
    let own = format!("http://{host}").to_ascii_lowercase();
    match pages {
        Pages::Refused => values(ORIGIN.as_str()).chain(values("sec-fetch-site")).next().is_some(),
        Pages::SameOrigin => {
            values("sec-fetch-site").any(|site| site != b"same-origin" && site != b"none")
                || values(ORIGIN.as_str()).any(|origin| origin != own.as_bytes())
        }
    }
}

/// Returns the host of a request if it names exactly one.
#[must_use]
pub fn named_host(parts: &Parts) -> Option<Authority> {
    let mut all = parts.headers.get_all(HOST).iter();
    let header = all.next().map(|host| Authority::try_from(host.as_bytes()).ok());
    match (header, parts.uri.authority().cloned(), all.next()) {
        (Some(header), None, None) => header,
        (None, authority, None) => authority,
        (Some(Some(header)), Some(authority), None) => (header == authority).then_some(header),
        _ => None,
    }
}

/// Returns whether a host without its port is `localhost` or a loopback address. Any other name may belong to a page in
/// a browser whose DNS name points here.
#[must_use]
pub fn is_loopback_host(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || address(host).is_some_and(|address| address.is_loopback())
}

/// Returns whether a host without its port is `localhost` or any IP address: a name that no page can invent.
#[must_use]
pub fn is_address_host(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || address(host).is_some()
}

fn address(host: &str) -> Option<IpAddr> {
    match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?.parse().ok().map(IpAddr::V6),
        None => host.parse().ok().map(IpAddr::V4),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const NEAR: &str = "127.0.0.1";

    fn check(peer: Option<&str>, uri: &str, headers: &[(&str, &str)], pages: Pages) -> Result<(), NotLocal> {
        let mut request = Request::get(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let parts = request.body(()).unwrap().into_parts().0;
        check_local(&parts, peer.map(|peer| peer.parse().unwrap()), pages)
    }

    fn local(host: &str) -> Result<(), NotLocal> {
        check(Some(NEAR), "/in/x", &[("host", host)], Pages::Refused)
    }

    #[test]
    fn only_a_loopback_connection_is_of_this_machine() {
        let from = |peer| check(peer, "/", &[("host", "localhost:8080")], Pages::Refused);
        for near in [NEAR, "::1", "::ffff:127.0.0.1"] {
            assert_eq!(from(Some(near)), Ok(()), "{near}");
        }
        assert_eq!(from(Some("10.0.0.1")), Err(NotLocal::Peer));
        assert_eq!(from(None), Err(NotLocal::Peer));
    }

    // FAULTS S1, S7: a page in a browser on this machine, whose DNS name points here.
    #[test]
    fn the_host_has_to_be_this_machine() {
        for host in
            ["127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:8080", "127.9.9.9", "localhost", "LocalHost:1"]
        {
            assert_eq!(local(host), Ok(()), "{host}");
            let uri = format!("http://{host}/in/x");
            assert_eq!(check(Some(NEAR), &uri, &[], Pages::Refused), Ok(()), "{host}");
            assert_eq!(check(Some(NEAR), &uri, &[("host", host)], Pages::Refused), Ok(()), "{host}");
            assert_eq!(
                check(Some(NEAR), &uri, &[("host", "evil.example")], Pages::Refused),
                Err(NotLocal::NoHost)
            );
        }
        for host in [
            "evil.example",
            "evil.example:80",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.1.2.3",
        ] {
            assert_eq!(local(host), Err(NotLocal::Host), "{host}");
            let uri = format!("http://{host}/in/x");
            assert_eq!(check(Some(NEAR), &uri, &[], Pages::Refused), Err(NotLocal::Host), "{host}");
        }
        assert_eq!(local(""), Err(NotLocal::NoHost));
        assert_eq!(check(Some(NEAR), "/", &[], Pages::Refused), Err(NotLocal::NoHost));
        let twice = [("host", "localhost"), ("host", "localhost")];
        assert_eq!(check(Some(NEAR), "/", &twice, Pages::Refused), Err(NotLocal::NoHost));
    }

    // FAULTS S1, S9: a proxy on this machine forwards requests from elsewhere.
    #[test]
    fn what_a_proxy_passes_on_is_not_of_this_machine() {
        let names = PROXY_HEADERS.into_iter().chain([
            "x-forwarded-for",
            "X-Forwarded-Proto",
            "x-forwarded-host",
            "x-forwarded",
            "x-original-url",
            "x-envoy-external-address",
        ]);
        for name in names {
            for pages in [Pages::Refused, Pages::SameOrigin] {
                let headers = [("host", "localhost"), (name, "1")];
                assert_eq!(check(Some(NEAR), "/", &headers, pages), Err(NotLocal::Proxy), "{name}");
            }
        }
        let mut old =
            Request::get("/").version(Version::HTTP_10).header("host", "localhost").body(()).unwrap();
        *old.version_mut() = Version::HTTP_10;
        let parts = old.into_parts().0;
        assert_eq!(check_local(&parts, Some(NEAR.parse().unwrap()), Pages::SameOrigin), Err(NotLocal::Proxy));
    }

    #[test]
    fn a_page_is_let_in_only_where_its_own_host_is_asked() {
        let ask =
            |name, value, pages| check(Some(NEAR), "/", &[("host", "127.0.0.1:8472"), (name, value)], pages);
        for (name, value) in [("origin", "http://127.0.0.1:8472"), ("sec-fetch-site", "same-origin")] {
            assert_eq!(ask(name, value, Pages::SameOrigin), Ok(()), "{name}");
            assert_eq!(ask(name, value, Pages::Refused), Err(NotLocal::Page), "{name}");
        }
        for (name, value) in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("origin", "http://127.0.0.1:9999"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            for pages in [Pages::Refused, Pages::SameOrigin] {
                assert_eq!(ask(name, value, pages), Err(NotLocal::Page), "{name}: {value}");
            }
        }
    }
}
