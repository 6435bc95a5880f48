//! Headers: reading them, and which of them are stored.

use bytes::Bytes;
use http::HeaderMap;
use oncebox::Headers;

use crate::problem::{Cause, Problem};

/// What stands in the names of headers that prove who somebody is. Such a header is never stored.
const CREDENTIALS: [&str; 10] =
    ["auth", "cookie", "token", "secret", "signature", "password", "apikey", "api-key", "hmac", "credential"];

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

/// The headers that are stored with a message.
pub(crate) fn kept(headers: &HeaderMap) -> Headers {
    let mut kept = Headers::default();
    for (name, value) in headers {
        let name = name.as_str();
        let secret = CREDENTIALS.iter().any(|part| name.contains(part)) || value.is_sensitive();
        if !secret && !TRANSPORT.contains(&name) {
            kept.push(name, Bytes::copy_from_slice(value.as_bytes()));
        }
    }
    kept
}

/// The only value of a header. One that comes twice is refused: two readers might take different ones.
pub(super) fn only<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a [u8]>, Problem> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    if values.next().is_some() {
        return Err(Problem::new(Cause::Malformed, format!("the header {name:?} comes twice")));
    }
    Ok(value.map(http::HeaderValue::as_bytes))
}

/// The same, as text.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Problem> {
    let Some(value) = only(headers, name)? else { return Ok(None) };
    let text = std::str::from_utf8(value);
    text.map(Some).map_err(|_| Problem::new(Cause::Malformed, format!("the header {name:?} is not UTF-8")))
}
