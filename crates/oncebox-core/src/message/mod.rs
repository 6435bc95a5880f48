//! Messages: tenant, source, id, type, payload bytes, headers, ordering key and time.

mod decode;
mod headers;
pub mod pattern;

pub use decode::{DecodeError, FromMessage};
pub use headers::Headers;

use bytes::Bytes;

use crate::config::Limits;
use crate::error::{Error, ErrorKind, Result};
use crate::time::Timestamp;

/// A received message. Id and payload are opaque bytes that nothing interprets on the way to the store.
///
/// ```
/// use oncebox::Message;
///
/// let message = Message::new("evt_1", "order.placed", r#"{"order":7}"#)
///     .with_source("shop")
///     .with_ordering_key("customer-42")
///     .with_header("correlation-id", "abc");
/// assert_eq!(message.id(), b"evt_1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    tenant: Option<Box<str>>,
    source: Box<str>,
    id: Bytes,
    type_name: Box<str>,
    payload: Bytes,
    headers: Headers,
    ordering_key: Option<Bytes>,
    time: Option<Timestamp>,
    compared: Option<Bytes>,
}

impl Message {
    /// Returns a message with its producer's id, its type and its payload.
    pub fn new(id: impl Into<Bytes>, message_type: impl Into<Box<str>>, payload: impl Into<Bytes>) -> Self {
        Self {
            tenant: None,
            source: "".into(),
            id: id.into(),
            type_name: message_type.into(),
            payload: payload.into(),
            headers: Headers::default(),
            ordering_key: None,
            time: None,
            compared: None,
        }
    }

    /// Sets the producer. Ids are unique within a source, so the source is part of the key.
    pub fn with_source(mut self, source: impl Into<Box<str>>) -> Self {
        self.source = source.into();
        self
    }

    /// Sets the tenant, if one inbox serves several customers. The tenant is part of the key and of the order, so two tenants never
    /// meet. Take it from the authenticated identity, never from the message itself.
    pub fn with_tenant(mut self, tenant: impl Into<Box<str>>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// Adds a header.
    pub fn with_header(mut self, name: impl Into<Box<str>>, value: impl Into<Bytes>) -> Self {
        self.headers.push(name, value);
        self
    }

    /// Replaces all headers.
    pub fn with_headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }

    /// Sets the ordering key. Messages with the same key are handled one after the other, in the order of acceptance.
    pub fn with_ordering_key(mut self, key: impl Into<Bytes>) -> Self {
        self.ordering_key = Some(key.into());
        self
    }

    /// Sets the time at which the producer dates the event.
    pub fn with_time(mut self, time: Timestamp) -> Self {
        self.time = Some(time);
        self
    }

    /// Sets the bytes that replace the payload in the comparison of messages under one key. For producers that put a counter or the
    /// time into each attempt. Not stored.
    pub fn compared_by(mut self, content: impl Into<Bytes>) -> Self {
        self.compared = Some(content.into());
        self
    }

    /// Returns the tenant, if there is one.
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// Returns the producer. Empty if the transport does not name it.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the producer's id: any bytes.
    pub fn id(&self) -> &[u8] {
        &self.id
    }

    /// Returns the type, which selects the handlers.
    pub fn message_type(&self) -> &str {
        &self.type_name
    }

    /// Returns the payload, as received.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Returns the headers, in order.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Returns the ordering key, if there is one.
    pub fn ordering_key(&self) -> Option<&[u8]> {
        self.ordering_key.as_deref()
    }

    /// Returns the time at which the producer dates the event.
    pub fn time(&self) -> Option<Timestamp> {
        self.time
    }

    /// Returns the bytes that distinguish messages under one key: the payload, or its replacement.
    pub fn compared(&self) -> &Bytes {
        self.compared.as_ref().unwrap_or(&self.payload)
    }

    /// Validates every field against the limits, before any database call.
    pub fn validate(&self, limits: &Limits) -> Result<()> {
        let field = |what: &str, len: usize, limit: usize, kind: ErrorKind| {
            if len > limit {
                return Err(Error::new(kind, format!("the {what} has {len} bytes, the limit is {limit}")));
            }
            Ok(())
        };
        field("message id", self.id.len(), limits.id, ErrorKind::InvalidMessage)?;
        field("tenant", self.tenant().map_or(0, str::len), limits.text, ErrorKind::InvalidMessage)?;
        field("message source", self.source.len(), limits.text, ErrorKind::InvalidMessage)?;
        field("message type", self.type_name.len(), limits.text, ErrorKind::InvalidMessage)?;
        field("set of headers", self.headers.size(), limits.headers, ErrorKind::InvalidMessage)?;
        field(
            "ordering key",
            self.ordering_key.as_ref().map_or(0, Bytes::len),
            limits.id,
            ErrorKind::InvalidMessage,
        )?;
        field("payload", self.payload.len(), limits.payload, ErrorKind::TooLarge)?;
        if self.type_name.is_empty() {
            return Err(Error::new(ErrorKind::InvalidMessage, "the message type is empty"));
        }
        if self.tenant().is_some_and(|tenant| tenant.trim().is_empty()) {
            return Err(Error::new(ErrorKind::InvalidMessage, "the tenant is blank; leave it out instead"));
        }
        if self.ordering_key.as_ref().is_some_and(Bytes::is_empty) {
            return Err(Error::new(
                ErrorKind::InvalidMessage,
                "the ordering key is empty; leave it out instead",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_has_its_own_error() {
        let limits = Limits { id: 4, text: 4, payload: 4, headers: 4, ..Limits::default() };
        let kind = |m: Message| m.validate(&limits).unwrap_err().kind();
        assert!(Message::new("1234", "abcd", "1234").validate(&limits).is_ok());
        assert_eq!(kind(Message::new("12345", "a", "")), ErrorKind::InvalidMessage);
        assert_eq!(kind(Message::new("1", "abcde", "")), ErrorKind::InvalidMessage);
        assert_eq!(kind(Message::new("1", "", "")), ErrorKind::InvalidMessage);
        assert_eq!(kind(Message::new("1", "a", "12345")), ErrorKind::TooLarge);
        assert_eq!(kind(Message::new("1", "a", "").with_source("abcde")), ErrorKind::InvalidMessage);
        assert_eq!(kind(Message::new("1", "a", "").with_tenant("abcde")), ErrorKind::InvalidMessage);
        for blank in ["", " ", "\t\n"] {
            assert_eq!(kind(Message::new("1", "a", "").with_tenant(blank)), ErrorKind::InvalidMessage);
        }
        assert_eq!(kind(Message::new("1", "a", "").with_header("abc", "de")), ErrorKind::InvalidMessage);
        assert_eq!(kind(Message::new("1", "a", "").with_ordering_key("")), ErrorKind::InvalidMessage);
    }
}
