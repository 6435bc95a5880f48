//! Resolves the name of a handler and refuses addresses that are not allowed. Tests: below and `tests/serve/network.rs`.
//!
//! Every connection resolves and checks again, so that DNS rebinding has no effect.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::network::{Allowed, Special};

/// A target that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{host} is {address}, {special}; add it to `allow_private` to allow it")]
pub(crate) struct Refused {
    host: String,
    address: IpAddr,
    special: Special,
}

/// Resolves names to allowed addresses only.
#[derive(Clone, Debug)]
pub(super) struct Resolver(pub(super) Arc<Allowed>);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allowed = Arc::clone(&self.0);
        Box::pin(async move {
            // The connector sets the port.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let addresses = permitted(&allowed, name.as_str(), found.map(|found| found.ip()))?;
            let addresses = addresses.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}

/// Returns the allowed addresses of a host, or the first refusal if none is allowed.
fn permitted(
    allowed: &Allowed,
    host: &str,
    found: impl IntoIterator<Item = IpAddr>,
) -> Result<Vec<IpAddr>, Refused> {
    let (mut good, mut refused) = (Vec::new(), None);
    for address in found {
        match allowed.check(address) {
            Ok(()) => good.push(address),
            Err(special) => {
                refused.get_or_insert_with(|| Refused { host: host.to_owned(), address, special });
            }
        }
    }
    match refused {
        Some(refused) if good.is_empty() => Err(refused),
        _ => Ok(good),
    }
}

/// Checks a URL whose host is an address or a name for this machine. The resolver never sees an address.
pub(crate) fn check_url(allowed: &Allowed, url: &Url) -> Result<(), Refused> {
    let Some(host) = url.host_str() else { return Ok(()) };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let local = bare.trim_end_matches('.');
    let address = if local == "localhost" || local.ends_with(".localhost") {
        Some(IpAddr::from([127, 0, 0, 1]))
    } else {
        bare.parse().ok()
    };
    permitted(allowed, bare, address).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_urls_are_checked_in_every_notation() {
        let none = Allowed::default();
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f.0.0.1/",
            "http://0177.0.0.1/",
            "http://0/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:a9fe:a9fe]/latest/meta-data",
            "http://169.254.169.254/",
            "http://localhost/",
            "http://LOCALHOST./",
            "http://app.localhost:9000/hook",
        ] {
            let url = Url::parse(url).unwrap();
            assert!(check_url(&none, &url).is_err(), "{url}");
        }
        for url in ["https://example.com/hook", "https://1.1.1.1/", "https://[2606:4700::1111]/"] {
            assert_eq!(check_url(&none, &Url::parse(url).unwrap()), Ok(()), "{url}");
        }
        let private = Allowed { private: true, ..Allowed::default() };
        assert_eq!(check_url(&private, &Url::parse("http://localhost:9000/").unwrap()), Ok(()));
        assert!(check_url(&private, &Url::parse("http://169.254.169.254/").unwrap()).is_err());
    }

    #[test]
    fn of_several_addresses_the_allowed_ones_are_used() {
        let found = ["127.0.0.1", "1.1.1.1", "10.0.0.1"].map(|text| text.parse().unwrap());
        let good: Vec<IpAddr> = vec!["1.1.1.1".parse().unwrap()];
        assert_eq!(permitted(&Allowed::default(), "mixed", found), Ok(good));
        let refused = permitted(&Allowed::default(), "near", found[..1].iter().copied()).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "near is 127.0.0.1, a loopback address; add it to `allow_private` to allow it"
        );
    }
}
