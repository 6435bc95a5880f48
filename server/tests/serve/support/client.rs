//! A minimal HTTP client for tests.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::PATIENCE;

/// An HTTP response.
#[derive(Clone, Debug)]
pub(crate) struct HttpReply {
    pub(crate) status: u16,
    /// Raw headers.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl HttpReply {
    /// Parses the body, which must be JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

/// Sends a request to `http://address/path` and returns its response.
pub(crate) fn request(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<HttpReply> {
    use std::fmt::Write as _;
    let rest = url.strip_prefix("http://").expect("an http URL");
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut head = format!("{method} /{path} HTTP/1.1\r\nconnection: close\r\n");
    if headers.iter().all(|(name, _)| !name.eq_ignore_ascii_case("host")) {
        write!(head, "host: {address}\r\n").expect("room");
    }
    for (name, value) in headers {
        write!(head, "{name}: {value}\r\n").expect("room");
    }
    write!(head, "content-length: {}\r\n\r\n", body.len()).expect("room");
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let mut all = Vec::new();
    stream.read_to_end(&mut all)?;
    let text = String::from_utf8_lossy(&all);
    let (head, body) = text.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .ok_or(std::io::ErrorKind::InvalidData)?;
    Ok(HttpReply { status, head: head.to_owned(), body: body.to_owned() })
}

/// Posts a plain message.
pub(crate) fn post(url: &str, id: &str, message_type: &str, body: &str) -> HttpReply {
    let headers = [("message-id", id), ("message-type", message_type), ("content-type", "application/json")];
    request("POST", url, &headers, body.as_bytes()).expect("an answer")
}

pub(crate) fn get(url: &str) -> HttpReply {
    request("GET", url, &[], b"").expect("an answer")
}

/// Sends bytes and returns the response until the end.
pub(crate) fn raw(address: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(bytes).expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}
