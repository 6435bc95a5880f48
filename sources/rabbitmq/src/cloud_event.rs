//! CloudEvents, as the binding for AMQP carries them.

use bytes::Bytes;
use oncebox::{Headers, Message};

use crate::message::{Raw, bytes_of};

/// What attributes in headers start with.
const PREFIXES: [&str; 2] = ["cloudEvents:", "cloudEvents_"];

/// The event in `raw`; `None` if it is none, and an error if it is a broken one.
pub(crate) fn read(raw: &Raw) -> Result<Option<Message>, String> {
    let mut attributes = Vec::new();
    for (name, value) in raw.headers() {
        if let Some(attribute) = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)) {
            let text = std::str::from_utf8(&bytes_of(value)).map(str::to_owned);
            let text = text.map_err(|_| format!("the attribute {attribute:?} is not UTF-8"))?;
            attributes.push((attribute.to_owned(), text));
        }
    }
    if attributes.is_empty() {
        return Ok(None);
    }
    message(&attributes, raw.data.clone()).map(Some)
}

fn message(attributes: &[(String, String)], data: Bytes) -> Result<Message, String> {
    let need = |name: &str| {
        let found = attributes.iter().find(|(known, value)| known == name && !value.is_empty());
        found
            .map(|(_, value)| value.clone())
            .ok_or_else(|| format!("the required attribute {name:?} is missing"))
    };
    let (source, id, kind) = (need("source")?, need("id")?, need("type")?);
    let mut headers = Headers::default();
    for (name, value) in attributes {
        headers.push(format!("ce-{name}"), value.clone());
    }
    Ok(Message::new(format!("{source} {id}"), kind, data).with_headers(headers))
}
