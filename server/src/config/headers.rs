//! Checks the headers of deliveries. Tests: `tests/serve/config.rs`.

use reqwest::header::{HOST, HeaderName, HeaderValue};

use super::plan::Planner;
use super::value::{Guarded, Located};

/// Headers of one connection: those of RFC 9110, section 7.6.1, earlier ones, and those that define the length of a request.
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
        parsed.map_err(|_| self.wrong(at, format!("{name:?}is not the name of a header"))).ok()
    }

    /// Parses the name of a header, and refuses those of a connection.
    fn end_to_end(&mut self, name: &str, at: usize) -> Option<HeaderName> {
        let header = self.header_name(name, at)?;
        if OF_CONNECTION.contains(&header.as_str()) {
            let what = format!(
                "{name:?} is a header of one connection, and could make a handler misread the end of a request; remove it"
            );
            self.wrong(at, what);
            return None;
        }
        Some(header)
    }

    /// Checks the name of a header to forward.
    pub(super) fn forwarded(&mut self, name: &str, at: usize) -> Option<HeaderName> {
        let header = self.end_to_end(name, at)?;
        if header == HOST {
            self.wrong(at, "the host of a delivery is the host of its URL; remove it");
            return None;
        }
        Some(header)
    }

    /// Checks a header of every delivery.
    pub(super) fn header(
        &mut self,
        name: &Located<String>,
        value: &Located<Guarded>,
    ) -> Option<(HeaderName, HeaderValue)> {
        let (key, text) = (self.end_to_end(name, name.at())?, self.guarded(value)?);
        let parsed = HeaderValue::from_str(&text);
        let mut value =
            parsed.map_err(|_| self.wrong(name.at(), "the value is not valid in a header")).ok()?;
        value.set_sensitive(true);
        Some((key, value))
    }
}
