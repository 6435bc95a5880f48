//! CloudEvents 1.0: events as JSON, in batches, in request headers, and in the attributes of any transport. Tests:
//! src/tests.rs.
//!
//! All sources read events with this crate, so one event makes the same message over every transport. A producer may
//! switch transports.

mod header;
mod json;
pub mod rfc3339;

pub use header::{decode as decode_header, encode as encode_header};
pub use json::Split;

use base64::Engine as _;
use bytes::Bytes;
use oncebox_core::{Headers, Message};

/// Media type of one event.
pub const STRUCTURED: &str = "application/cloudevents+json";
/// Media type of a list of events.
pub const BATCH: &str = "application/cloudevents-batch+json";

/// Maximum attributes of an event: each new name is compared with all before it.
const MAX_ATTRIBUTES: usize = 256;

/// Reason why input is not an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(String);

impl Malformed {
    fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

/// One event: its attributes, as the text that the specification defines, and its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    id: String,
    source: String,
    type_name: String,
    /// Other attributes in the order they came, extensions included; never `specversion`.
    others: Vec<(String, String)>,
    data: Option<Bytes>,
}

impl Event {
    /// Creates an event with the required attributes.
    pub fn new(
        source: impl Into<String>,
        id: impl Into<String>,
        event_type: impl Into<String>,
    ) -> Result<Self, Malformed> {
        let attributes = [("specversion", "1.0".to_owned()), ("source", source.into()), ("id", id.into())];
        let attributes = attributes.into_iter().chain([("type", event_type.into())]);
        Self::from_attributes(attributes.map(|(name, value)| (name.to_owned(), value)), None)
    }

    /// Returns the event with another attribute or an extension.
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Result<Self, Malformed> {
        if matches!(name, "id" | "source" | "type" | "specversion") || self.attribute(name).is_some() {
            return Err(Malformed::new(format!("the attribute {name:?} is set already")));
        }
        let value = value.into();
        check(name, &value)?;
        self.others.push((name.to_owned(), value));
        Ok(self)
    }

    /// Returns the event with data.
    pub fn with_data(mut self, data: impl Into<Bytes>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Reads the event of a request in binary mode: attributes in headers, the data as body.
    #[cfg(any(feature = "http", test))]
    pub fn from_request(headers: &http::HeaderMap, body: Bytes) -> Result<Self, Malformed> {
        let attributes = header::attributes(headers)?;
        Self::from_attributes(attributes.into_iter(), Some(body).filter(|body| !body.is_empty()))
    }

    /// Reads one event in JSON.
    pub fn from_json(json: &[u8]) -> Result<Self, Malformed> {
        json::event(json)
    }

    /// Reads a list of events in JSON. Fails as a whole, or returns one error per malformed event.
    pub fn batch_from_json(json: &[u8]) -> Result<Vec<Result<Self, Malformed>>, Malformed> {
        match Self::split_json(json, usize::MAX)? {
            Split::Items(items) => {
                Ok(items.into_iter().map(|item| json::event(item.get().as_bytes())).collect())
            }
            Split::TooMany(_) => Err(Malformed::new("the list is too long")),
        }
    }

    /// Splits a list of events without reading them. Keeps nothing of it if there are more than `max`.
    pub fn split_json(json: &[u8], max: usize) -> Result<Split<'_>, Malformed> {
        json::split(json, max)
    }

    /// Returns the event in JSON.
    pub fn to_json(&self) -> Vec<u8> {
        json::render(self)
    }

    /// Builds an event from checked attributes, as the binary mode of any transport carries it.
    pub fn from_attributes(
        attributes: impl Iterator<Item = (String, String)>,
        data: Option<Bytes>,
    ) -> Result<Self, Malformed> {
        let (mut id, mut source, mut event_type, mut version) = (None, None, None, None);
        let mut others: Vec<(String, String)> = Vec::new();
        for (name, value) in attributes {
            let slot = match &*name {
                "id" => &mut id,
                "source" => &mut source,
                "type" => &mut event_type,
                "specversion" => &mut version,
                _ => {
                    if others.len() >= MAX_ATTRIBUTES {
                        return Err(too_many_attributes());
                    }
                    check(&name, &value)?;
                    if others.iter().any(|(known, _)| *known == name) {
                        return Err(Malformed::new(format!("the attribute {name:?} comes twice")));
                    }
                    others.push((name, value));
                    continue;
                }
            };
            check(&name, &value)?;
            if slot.replace(value).is_some() {
                return Err(Malformed::new(format!("the attribute {name:?} comes twice")));
            }
        }
        let need = |name: &str, value: Option<String>| {
            value.ok_or_else(|| Malformed::new(format!("the required attribute {name:?} is missing")))
        };
        let version = need("specversion", version)?;
        if version != "1.0" {
            let shown: String = version.chars().take(20).collect();
            return Err(Malformed::new(format!("specversion {shown:?} is not known; 1.0 is")));
        }
        let (id, source, event_type) = (need("id", id)?, need("source", source)?, need("type", event_type)?);
        Ok(Self { id, source, type_name: event_type, others, data })
    }

    /// Returns the id, unique within its source.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the context of the event: a URI reference.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the type of the event.
    pub fn event_type(&self) -> &str {
        &self.type_name
    }

    /// Returns any other attribute, extensions included.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.others.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Returns all other attributes.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.others.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns the data, byte for byte.
    pub fn data(&self) -> Option<&Bytes> {
        self.data.as_ref()
    }

    /// Returns the message: the data is its payload, its headers are `content-type` and `ce-` with each attribute. It
    /// is the same over every transport. Only source and id together are unique, so its id joins both with a space; a
    /// source has no space.
    pub fn into_message(self) -> Message {
        let mut headers = Headers::default();
        headers.push("ce-specversion", "1.0");
        headers.push("ce-id", self.id.clone());
        headers.push("ce-source", self.source.clone());
        headers.push("ce-type", self.type_name.clone());
        let (mut order, mut time) = (None, None);
        // Transports deliver them in any order.
        let mut others = self.others;
        others.sort_unstable();
        for (name, value) in others {
            match &*name {
                "datacontenttype" => {
                    headers.push("content-type", value);
                    continue;
                }
                "partitionkey" => order = Some(value.clone()),
                "time" => time = rfc3339::parse(&value),
                _ => {}
            }
            headers.push(format!("ce-{name}"), value);
        }
        let id = format!("{} {}", self.source, self.id);
        let mut message =
            Message::new(id, self.type_name, self.data.unwrap_or_default()).with_headers(headers);
        if let Some(order) = order {
            message = message.with_ordering_key(order);
        }
        if let Some(time) = time {
            message = message.with_time(time);
        }
        message
    }

    /// Returns true if the data is JSON, the default without a media type.
    fn has_json_data(&self) -> bool {
        self.attribute("datacontenttype").is_none_or(is_json)
    }
}

fn too_many_attributes() -> Malformed {
    Malformed::new(format!("there are too many attributes, the limit is {MAX_ATTRIBUTES}"))
}

/// Returns the media type without its parameters, in lower case.
pub fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Returns true if a media type stands for JSON.
fn is_json(media_type: &str) -> bool {
    let essence = essence(media_type);
    let subtype = essence.split_once('/').map_or("", |(_, subtype)| subtype);
    subtype == "json" || subtype.ends_with("+json")
}

/// Checks an attribute by the rules for its name.
fn check(name: &str, value: &str) -> Result<(), Malformed> {
    let refuse = |why: &str| Err(Malformed::new(format!("the attribute {:?} {why}", shown(name))));
    if name.is_empty()
        || name == "data"
        || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    {
        return refuse(
            "has a name that none can have: lower-case letters and digits are allowed, and not `data`",
        );
    }
    if value.chars().any(|c| c.is_control() || is_noncharacter(c)) {
        return refuse("holds control characters or no characters at all");
    }
    match name {
        "id" | "type" | "subject" | "partitionkey" if value.trim().is_empty() => refuse("is blank"),
        "source" | "dataschema" if value.is_empty() || value.chars().any(char::is_whitespace) => {
            refuse("is not a URI reference: it is empty or holds blanks")
        }
        "time" if rfc3339::parse(value).is_none() => refuse("is not a time of RFC 3339"),
        "datacontenttype" if !is_media_type(value) => refuse("is not a media type"),
        _ => Ok(()),
    }
}

fn is_noncharacter(c: char) -> bool {
    let code = u32::from(c);
    code & 0xFFFE == 0xFFFE || (0xFDD0..=0xFDEF).contains(&code)
}

fn is_media_type(value: &str) -> bool {
    let essence = value.split(';').next().unwrap_or_default().trim();
    let token = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
    };
    essence.split_once('/').is_some_and(|(event_type, subtype)| token(event_type) && token(subtype))
}

/// Returns the start of untrusted input, for an error.
fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

fn base64(text: &str) -> Result<Bytes, Malformed> {
    let decoded = base64::engine::general_purpose::STANDARD.decode(text);
    decoded.map(Bytes::from).map_err(|_| Malformed::new("`data_base64` is not base64"))
}

#[cfg(test)]
mod tests;
