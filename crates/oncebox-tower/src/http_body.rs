//! Bodies of requests and responses, and responses as stored results. Tests: `tests/axum.rs`, and below.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::header::{self, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use oncebox::{BoxError, Error, ErrorKind, Result};

/// First bytes of a stored response. A result that the service set itself does not begin with them.
const STORED: &[u8] = b"\0oncebox-http-1\0";

/// Headers that belong to one connection, one moment or one client.
const NOT_STORED: [HeaderName; 6] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::DATE,
    header::SET_COOKIE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Reads a body of at most `limit` bytes. `what` names it in errors.
pub(crate) async fn collect<B>(body: B, limit: usize, what: &str) -> Result<Bytes>
where
    B: BodyExt<Error: Into<BoxError>>,
{
    let collected = Limited::new(body, limit).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            let text = format!("the body of the {what} has more than {limit} bytes; nothing was stored; send less, or raise the limit of the inbox");
            Error::new(ErrorKind::TooLarge, text)
        } else {
            let text = format!("the body of the {what} could not be read; nothing was stored; send it again");
            Error::new(ErrorKind::InvalidMessage, text).caused_by(error)
        }
    })?;
    Ok(collected.to_bytes())
}

/// Encodes a response: status, headers and body.
pub(crate) fn encode(head: &http::response::Parts, body: &[u8]) -> Bytes {
    let mut stored = BytesMut::from(STORED);
    stored.put_u16(head.status.as_u16());
    let headers = head.headers.iter().filter(|(name, _)| !NOT_STORED.contains(name));
    for (name, value) in headers {
        let name = name.as_str().as_bytes();
        let (Ok(name_len), Ok(value_len)) = (u16::try_from(name.len()), u32::try_from(value.len())) else {
            continue;
        };
        stored.put_u16(name_len);
        stored.put_slice(name);
        stored.put_u32(value_len);
        stored.put_slice(value.as_bytes());
    }
    stored.put_u16(0);
    stored.put_slice(body);
    stored.freeze()
}

/// Decodes a stored response. `None` if it is a result that the service set itself.
pub(crate) fn decode(stored: &Bytes) -> Option<Response<Bytes>> {
    let mut rest = stored.clone();
    if !rest.starts_with(STORED) {
        return None;
    }
    rest.advance(STORED.len());
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::from_u16(rest.try_get_u16().ok()?).ok()?;
    loop {
        let name_len = usize::from(rest.try_get_u16().ok()?);
        if name_len == 0 {
            break;
        }
        let name = take(&mut rest, name_len)?;
        let value_len = usize::try_from(rest.try_get_u32().ok()?).ok()?;
        let value = take(&mut rest, value_len)?;
        let name = HeaderName::from_bytes(&name).ok()?;
        response.headers_mut().append(name, HeaderValue::from_maybe_shared(value).ok()?);
    }
    *response.body_mut() = rest;
    Some(response)
}

fn take(rest: &mut Bytes, len: usize) -> Option<Bytes> {
    (rest.len() >= len).then(|| rest.split_to(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_response_comes_back_or_is_refused() {
        let response =
            Response::builder().status(207).header("x-a", "1").header("x-a", "2").header("date", "now");
        let (head, ()) = response.body(()).expect("a valid response").into_parts();
        let stored = encode(&head, b"\0body");
        let again = decode(&stored).expect("it was stored");
        assert_eq!((again.status().as_u16(), &again.body()[..]), (207, &b"\0body"[..]));
        let values: Vec<&[u8]> = again.headers().get_all("x-a").iter().map(HeaderValue::as_bytes).collect();
        assert_eq!((values, again.headers().len()), (vec![&b"1"[..], &b"2"[..]], 2));
        assert!(decode(&Bytes::from_static(b"a receipt")).is_none());
        for cut in STORED.len()..stored.len() - 5 {
            assert!(decode(&stored.slice(..cut)).is_none(), "{cut}");
        }
    }
}
