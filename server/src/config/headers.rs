//! The names and values of headers that deliveries have.

use reqwest::header::{HOST, HeaderName, HeaderValue};

use super::plan::Planner;
use super::value::{Guarded, Located};

/// Headers of one connection: those of RFC 9110, section 7.6.1, what was called so before it, and what says how long a request is.
const OF_CONNECTION: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

impl Planner {
    fn header_name(&mut self, name: &str, at: usize) -> Option<HeaderName> {
        let parsed = HeaderName::from_bytes(name.as_bytes());
        parsed.map_err(|_| self.wrong(at, format!("{name:?} is no name of a header"))).ok()
    }

    /// A header that belongs to a message, not to the connection that brought it.
    fn end_to_end(&mut self, name: &str, at: usize) -> Option<HeaderName> {
        let header = self.header_name(name, at)?;
        if OF_CONNECTION.contains(&header.as_str()) {
            let what = format!(
                "{name:?} is a header of one connection, and a handler could be made to misread where a request ends; leave it out"
            );
            self.wrong(at, what);
            return None;
        }
        Some(header)
    }

    /// A header of a message that is passed on.
    pub(super) fn forwarded(&mut self, name: &str, at: usize) -> Option<HeaderName> {
        let header = self.end_to_end(name, at)?;
        if header == HOST {
            self.wrong(at, "the host of a delivery is that of its URL, not what a sender says; leave it out");
            return None;
        }
        Some(header)
    }

    /// A header that every delivery has.
    pub(super) fn header(
        &mut self,
        name: &Located<String>,
        value: &Located<Guarded>,
    ) -> Option<(HeaderName, HeaderValue)> {
        let (key, text) = (self.end_to_end(name, name.at())?, self.guarded(value)?);
        let parsed = HeaderValue::from_str(&text);
        let mut value =
            parsed.map_err(|_| self.wrong(name.at(), "its value cannot be sent in a header")).ok()?;
        value.set_sensitive(true);
        Some((key, value))
    }
}
