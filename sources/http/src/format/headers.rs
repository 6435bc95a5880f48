//! Headers: reads them, and chooses the stored ones. Tests: format/tests.rs.

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use oncebox::Headers;
use oncebox::privacy::names_credential;

use crate::problem::{ProblemType, RequestProblem};

/// Headers of the connection rather than of the message.
const TRANSPORT: [&str; 19] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "connection",
    "content-length",
    "expect",
    "forwarded",
    "host",
    "keep-alive",
    "pragma",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-forwarded-for",
    "x-real-ip",
];

/// Returns the headers to store with a message. Omits credentials and `proof`, the header that the endpoint verifies.
pub(crate) fn kept(headers: &HeaderMap, proof: Option<&HeaderName>) -> Headers {
    let mut kept = Headers::default();
    for (name, value) in headers {
        let secret = proof == Some(name) || names_credential(name.as_str()) || value.is_sensitive();
        let name = name.as_str();
        if !secret && !TRANSPORT.contains(&name) {
            kept.push(name, Bytes::copy_from_slice(value.as_bytes()));
        }
    }
    kept
}

/// Returns the only value of a header. Refuses a repeated header: two readers might take different values.
pub(super) fn only<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a [u8]>, RequestProblem> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    if values.next().is_some() {
        return Err(RequestProblem::new(ProblemType::Malformed, format!("the header {name:?} comes twice")));
    }
    Ok(value.map(http::HeaderValue::as_bytes))
}

/// Returns the only value of a header as text.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, RequestProblem> {
    let Some(value) = only(headers, name)? else { return Ok(None) };
    let text = std::str::from_utf8(value);
    text.map(Some)
        .map_err(|_| RequestProblem::new(ProblemType::Malformed, format!("the header {name:?} is not UTF-8")))
}
