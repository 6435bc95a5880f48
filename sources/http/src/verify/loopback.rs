//! Whoever is on this machine, and nobody whom something on this machine speaks for.

use std::net::{IpAddr, Ipv6Addr};

use http::uri::Authority;

use crate::verify::{Proof, Refusal};

/// Headers of proxies, which pass on what comes from elsewhere, and of browsers, which send what a page tells them to.
const FOR_OTHERS: [&str; 6] =
    ["origin", "sec-fetch-site", "forwarded", "x-forwarded-for", "x-real-ip", "via"];

pub(super) fn holds(proof: &Proof<'_>) -> bool {
    refusal(proof).is_none()
}

/// What is wrong with it, if anything is.
pub(super) fn refusal(proof: &Proof<'_>) -> Option<Refusal> {
    let Some(peer) = proof.peer else { return Some(Refusal::UnknownPeer) };
    if !peer.to_canonical().is_loopback() {
        return Some(Refusal::NotLoopback);
    }
    if let Some(name) = FOR_OTHERS.into_iter().find(|name| proof.headers.contains_key(*name)) {
        return Some(Refusal::Forwarded(name));
    }
    (!names_an_address(proof)).then_some(Refusal::HostName)
}

/// Whether the request was made for an address. A name may be one of a page in a browser that was made to lead here.
fn names_an_address(proof: &Proof<'_>) -> bool {
    let mut hosts = proof.headers.get_all("host").iter();
    let header = hosts.next().map(|host| Authority::try_from(host.as_bytes()).ok());
    if hosts.next().is_some() {
        return false;
    }
    let is = |host: Option<&Authority>| host.is_some_and(|host| is_address(host.host()));
    match (header, proof.authority) {
        (Some(header), None) => is(header.as_ref()),
        (None, authority) => is(authority),
        (Some(header), authority) => is(header.as_ref()) && is(authority),
    }
}

fn is_address(host: &str) -> bool {
    let v6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match v6 {
        Some(v6) => v6.parse::<Ipv6Addr>().is_ok(),
        None => host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok(),
    }
}
