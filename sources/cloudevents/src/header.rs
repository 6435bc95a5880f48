//! CloudEvents attributes in headers. Tests: src/tests.rs.

use std::fmt::Write as _;

/// Returns the attributes of a request in binary mode.
#[cfg(any(feature = "http", test))]
pub(super) fn attributes(headers: &http::HeaderMap) -> Result<Vec<(String, String)>, super::Malformed> {
    use super::Malformed;

    let mut attributes = Vec::new();
    for (name, value) in headers {
        let attribute = match name.as_str().strip_prefix("ce-") {
            // `Content-Type` carries this one.
            Some("datacontenttype") | None => continue,
            Some(attribute) => attribute,
        };
        let decoded = decode(value.as_bytes()).ok_or_else(|| {
            Malformed::new(format!("the header {:?} is not UTF-8", super::shown(name.as_str())))
        })?;
        attributes.push((attribute.to_owned(), decoded));
    }
    if let Some(value) = headers.get(http::header::CONTENT_TYPE) {
        let value = value.to_str().map_err(|_| Malformed::new("the header \"content-type\" is not ASCII"))?;
        attributes.push(("datacontenttype".to_owned(), value.to_owned()));
    }
    Ok(attributes)
}

/// Decodes an attribute from the value of its header: removes quotes, then decodes `%xx` once. Returns `None` if the
/// bytes are no text. A `%` without two digits stays as it is.
pub fn decode(value: &[u8]) -> Option<String> {
    let unquoted;
    let value = match value {
        [b'"', inner @ .., b'"'] => {
            unquoted = unescape(inner);
            &unquoted[..]
        }
        _ => value,
    };
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    loop {
        match rest {
            [b'%', a, b, tail @ ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => {
                out.push(digit(*a) << 4 | digit(*b));
                rest = tail;
            }
            [byte, tail @ ..] => {
                out.push(*byte);
                rest = tail;
            }
            [] => return String::from_utf8(out).ok(),
        }
    }
}

fn digit(hex: u8) -> u8 {
    match hex {
        b'0'..=b'9' => hex - b'0',
        _ => (hex | 0x20) - b'a' + 10,
    }
}

fn unescape(quoted: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(quoted.len());
    let mut bytes = quoted.iter();
    while let Some(byte) = bytes.next() {
        let byte = if *byte == b'\\' { bytes.next().unwrap_or(byte) } else { byte };
        out.push(*byte);
    }
    out
}

/// Encodes the text of an attribute for its header: everything but visible ASCII becomes `%xx`, and so do the double
/// quote and `%`.
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && byte != b'"' && byte != b'%' {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
